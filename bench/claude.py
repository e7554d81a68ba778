"""Compare lists of Claude Code's sessions with both SDKs, and the first index with agentsview.

All programs list the same generated sessions in the same run. Without an index, each call reads
the files. With the index, each call checks every file and reads only those that have changed.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import _transcripts
from _common import CACHE_VARIABLE, Bench, Times, Vocabulary, temporary_directory

from segue import claude
from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.source import ClaudeSource
from segue.store.memory import MemoryStore

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # tests.clients.toolbox installs the SDKs

from tests.clients import toolbox  # noqa: E402

PYTHON_SDK = "claude-agent-sdk==0.2.182"
TYPESCRIPT_SDK = "@anthropic-ai/claude-agent-sdk@0.3.325"
AGENTSVIEW = "agentsview==0.46.1"
SESSIONS = 10_000
FIRST_INDEX_SESSIONS = 1_500  # about 100 MB
# How many times faster than the Python SDK and the TypeScript SDK, for each measurement.
MIN_RATIOS = {
    "20, no index": (30, 2),
    "all, no index": (4, 10),
    "20, index": (60, None),
    "all, index": (20, None),
}
MAX_INDEX_SECONDS = 10.0  # for 100 MB
MIN_INDEX_RATIO = 5


def prepare_home(bench: Bench, directory: Path, name: str, sessions: int) -> Path:
    """Return a Claude Code directory with so many sessions; write it unless the cache has it."""
    cache = os.environ.get(CACHE_VARIABLE)
    home = (Path(cache) if cache else directory) / f"claude-{name}-{sessions}"
    if not (home / "whole").exists():  # a marker: the directory is complete
        start = time.perf_counter()
        size = _transcripts.write_transcripts(home, sessions)
        (home / "whole").touch()
        elapsed = time.perf_counter() - start
        bench.progress(f"wrote {sessions:,} transcripts in {elapsed:.0f} s, {size / 1e6:,.0f} MB")
    return home


class TypeScriptSdk:
    """The TypeScript SDK in a Node process, which measures its own time."""

    def __init__(self) -> None:
        script = Path(__file__).parent / "peers" / "claude_sdk.mjs"
        self._node = subprocess.Popen(
            [toolbox.node(), str(script), str(toolbox.node_package(TYPESCRIPT_SDK))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def list(self, limit: int) -> tuple[float, int]:
        """Return the seconds of a list and the number of its sessions."""
        assert self._node.stdin is not None and self._node.stdout is not None
        print(limit, file=self._node.stdin, flush=True)
        milliseconds, count = self._node.stdout.readline().split()
        return float(milliseconds) / 1e3, int(count)

    def close(self) -> None:
        assert self._node.stdin is not None
        self._node.stdin.close()
        self._node.wait()


def python_sdk() -> Callable[..., list[object]]:
    """Return the Python SDK's `list_sessions`, from its source: the wheel has a large program."""
    unpacked = toolbox.source_of(PYTHON_SDK).parent
    (source,) = unpacked.glob("claude_agent_sdk-*/src")
    sys.path.insert(0, str(source))
    from claude_agent_sdk import list_sessions

    function: Callable[..., list[object]] = list_sessions
    return function


async def measure_lists(bench: Bench, home: Path, directory: Path) -> None:
    """Compare lists of 20 and of all sessions with both SDKs."""
    os.environ["CLAUDE_CONFIG_DIR"] = str(home)
    sdk, node = python_sdk(), TypeScriptSdk()
    source = ClaudeSource(directory / "index", ClaudeHome(str(home)))
    bench.progress("creating the index")
    await source.refresh()
    async with Hub(MemoryStore(), directory, sources=[source]) as hub:

        async def count_indexed(limit: int) -> int:
            if limit:
                return len((await hub.sessions.list(LOCAL, Query(limit=limit))).sessions)
            await source.refresh()
            return len(await source.page(Query(limit=1_000_000)))

        async def run_once(name: str, limit: int) -> tuple[float, int]:
            if name == "TypeScript SDK":
                return node.list(limit)
            start = time.perf_counter()
            if name == "Python SDK":
                count = len(sdk(limit=limit or None))
            elif name == "no index":
                count = len(claude.list_sessions(limit=limit or None))
            else:
                count = await count_indexed(limit)
            return time.perf_counter() - start, count

        for limit, rounds in ((20, 5), (0, 3)):
            names = ["no index", "index", "Python SDK", "TypeScript SDK"]
            seconds_by_name: dict[str, list[float]] = {name: [] for name in names}
            counts = {}
            for number in range(-1, 1 if bench.quick else rounds):
                for name in names:
                    # One call of segue is too short for a reliable measurement.
                    for _ in range(5 if "index" in name else 1):
                        seconds, counts[name] = await run_once(name, limit)
                        if number >= 0:
                            seconds_by_name[name].append(seconds)
                names.append(names.pop(0))
            times = {name: Times(seconds) for name, seconds in seconds_by_name.items()}
            label = f"{limit} sessions" if limit else "all sessions"
            if not limit and counts["index"] != counts["no index"]:
                bench.note(
                    f"Listed with the index: {counts['index']}, without: {counts['no index']}."
                )
            for mode in ("no index", "index"):
                min_ratios = MIN_RATIOS[f"{limit or 'all'}, {mode}"]
                for peer, min_ratio in zip(
                    ("Python SDK", "TypeScript SDK"), min_ratios, strict=True
                ):
                    ratio = times[peer].median / times[mode].median
                    bench.row(
                        f"{label}, {mode}, compared with the {peer}",
                        target="" if min_ratio is None else f">= {min_ratio}x",
                        ok=None if min_ratio is None else ratio >= min_ratio,
                        segue=times[mode].median * 1e3,
                        other=times[peer].median * 1e3,
                        ratio=ratio,
                    )
            if not limit and counts["TypeScript SDK"] != counts["no index"]:
                count, total = counts["TypeScript SDK"], counts["no index"]
                bench.note(f"The TypeScript SDK listed {count:,} of {total:,} sessions.")
        await measure_searches(bench, hub, source)
    node.close()


async def measure_searches(bench: Bench, hub: Hub, source: ClaudeSource) -> None:
    """Measure searches with snippets in a process that watches the files, like a server."""
    if find_spec("watchfiles") is None:
        bench.note("watchfiles is not installed: searches were not measured")
        return
    changes = hub.history.changes(LOCAL)
    waiting = asyncio.ensure_future(anext(changes))
    while not source.current_index.watched:
        await asyncio.sleep(0.05)
    words = Vocabulary().words
    for frequency, first in (("common", 0), ("medium", 1000), ("rare", 30_000)):
        seconds: list[float] = []
        for word in words[first : first + 40]:
            await source.refresh()  # before the measurement
            start = time.perf_counter()
            await hub.sessions.search(LOCAL, Query(text=word, limit=20))
            seconds.append(time.perf_counter() - start)
        bench.row(f"search with snippets, {frequency} word", segue=Times(seconds).median * 1e3)
    waiting.cancel()


async def measure_first_index(bench: Bench, home: Path, directory: Path) -> None:
    """Compare the first index of a directory with agentsview's full sync."""
    size = sum(path.stat().st_size for path in home.glob("projects/*/*.jsonl"))
    agentsview = Path(toolbox.python_with(AGENTSVIEW)).with_name("agentsview")
    own_seconds: list[float] = []
    other_seconds: list[float] = []
    for number in range(1 if bench.quick else 3):
        start = time.perf_counter()
        source = ClaudeSource(directory / f"first-{number}", ClaudeHome(str(home)))
        await source.refresh()
        await source.current_index.make_searchable()
        own_seconds.append(time.perf_counter() - start)
        await source.close()
        data = directory / f"agentsview-{number}"
        environment = {
            "HOME": str(data),
            "PATH": os.environ["PATH"],
            "AGENTSVIEW_DATA_DIR": str(data),
            "AGENTSVIEW_NO_DAEMON": "1",
            "CLAUDE_PROJECTS_DIR": str(home / "projects"),
        }
        data.mkdir()
        start = time.perf_counter()
        subprocess.run(
            [str(agentsview), "sync", "--full"], env=environment, check=True, capture_output=True
        )
        other_seconds.append(time.perf_counter() - start)
    scale_to_100_mb = 100e6 / size
    own_median, other_median = Times(own_seconds).median, Times(other_seconds).median
    bench.row(
        f"first index of {size / 1e6:,.0f} MB, compared with 10 s for 100 MB",
        target=f"<= {MAX_INDEX_SECONDS / scale_to_100_mb:.1f} s",
        ok=own_median * scale_to_100_mb <= MAX_INDEX_SECONDS,
        segue=own_median * 1e3,
        other=MAX_INDEX_SECONDS / scale_to_100_mb * 1e3,
        ratio=MAX_INDEX_SECONDS / scale_to_100_mb / own_median,
    )
    bench.row(
        "first index, compared with agentsview's full sync",
        target=f">= {MIN_INDEX_RATIO}x",
        ok=other_median / own_median >= MIN_INDEX_RATIO,
        segue=own_median * 1e3,
        other=other_median * 1e3,
        ratio=other_median / own_median,
    )


async def main() -> int:
    bench = Bench("Claude Code's sessions (milliseconds)", ("segue", "other", "ratio"))
    bench.progress("installing the SDKs and agentsview, if they are missing")
    with temporary_directory() as directory:
        small, large = (100, 500) if bench.quick else (FIRST_INDEX_SESSIONS, SESSIONS)
        await measure_first_index(bench, prepare_home(bench, directory, "home", small), directory)
        await measure_lists(bench, prepare_home(bench, directory, "home", large), directory)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
