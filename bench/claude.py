"""Claude Code's sessions: lists beside both of the SDKs, and the first index beside agentsview's.

All of them list the same made-up home in this run. Without an index every call reads the files;
with it a call looks at every file, and reads none that has not changed.
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
from _common import Bench, Times, Words, scratch

from segue import claude
from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.source import ClaudeSource
from segue.store.memory import MemoryStore

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the SDKs come from the tests' toolbox

from tests.clients import toolbox  # noqa: E402

PYTHON_SDK = "claude-agent-sdk==0.2.182"
TYPESCRIPT_SDK = "@anthropic-ai/claude-agent-sdk@0.3.325"
AGENTSVIEW = "agentsview==0.46.1"
SESSIONS = 10_000
INDEXED = 1_500  # about 100 MB
# How many times faster, by what is measured: the Python SDK, the TypeScript SDK.
TARGETS = {
    "20, no index": (30, 2),
    "all, no index": (4, 10),
    "20, index": (60, None),
    "all, index": (20, None),
}
INDEX_SECONDS = 10.0  # for 100 MB
INDEX_FASTER = 5
KEEP = "SEGUE_BENCH_CACHE"


def made(bench: Bench, directory: Path, name: str, sessions: int) -> Path:
    """A home of so many sessions: made, unless a kept one is there."""
    kept = os.environ.get(KEEP)
    home = (Path(kept) if kept else directory) / f"claude-{name}-{sessions}"
    if not (home / "whole").exists():
        begun = time.perf_counter()
        size = _transcripts.home(home, sessions)
        (home / "whole").touch()
        took = time.perf_counter() - begun
        bench.say(f"made {sessions:,} transcripts in {took:.0f} s, {size / 1e6:,.0f} MB")
    return home


class TypeScript:
    """The TypeScript SDK in a Node of its own, which tells the time that it took."""

    def __init__(self) -> None:
        peer = Path(__file__).parent / "peers" / "claude_sdk.mjs"
        self._node = subprocess.Popen(
            [toolbox.node(), str(peer), str(toolbox.node_package(TYPESCRIPT_SDK))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def list(self, limit: int) -> tuple[float, int]:
        assert self._node.stdin is not None and self._node.stdout is not None
        print(limit, file=self._node.stdin, flush=True)
        milliseconds, count = self._node.stdout.readline().split()
        return float(milliseconds) / 1e3, int(count)

    def close(self) -> None:
        assert self._node.stdin is not None
        self._node.stdin.close()
        self._node.wait()


def python_sdk() -> Callable[..., list[object]]:
    """The Python SDK's list, from its source: the wheel carries a large program besides."""
    unpacked = toolbox.source_of(PYTHON_SDK).parent
    (source,) = unpacked.glob("claude_agent_sdk-*/src")
    sys.path.insert(0, str(source))
    from claude_agent_sdk import list_sessions

    found: Callable[..., list[object]] = list_sessions
    return found


async def lists(bench: Bench, home: Path, directory: Path) -> None:
    os.environ["CLAUDE_CONFIG_DIR"] = str(home)
    sdk, node = python_sdk(), TypeScript()
    source = ClaudeSource(directory / "index", ClaudeHome(str(home)))
    bench.say("making the index")
    await source.refresh()
    async with Hub(MemoryStore(), directory, sources=[source]) as hub:

        async def indexed(limit: int) -> int:
            if limit:
                return len((await hub.sessions.list(LOCAL, Query(limit=limit))).sessions)
            await source.refresh()
            return len(await source.page(Query(limit=1_000_000)))

        async def once(name: str, limit: int) -> tuple[float, int]:
            if name == "TypeScript SDK":
                return node.list(limit)
            begun = time.perf_counter()
            if name == "Python SDK":
                count = len(sdk(limit=limit or None))
            elif name == "no index":
                count = len(claude.list_sessions(limit=limit or None))
            else:
                count = await indexed(limit)
            return time.perf_counter() - begun, count

        for limit, rounds in ((20, 5), (0, 3)):
            names = ["no index", "index", "Python SDK", "TypeScript SDK"]
            took: dict[str, list[float]] = {name: [] for name in names}
            counts = {}
            for number in range(-1, 1 if bench.quick else rounds):
                for name in names:
                    # Ours are so much shorter that one call says little.
                    for _ in range(5 if "index" in name else 1):
                        seconds, counts[name] = await once(name, limit)
                        if number >= 0:
                            took[name].append(seconds)
                names.append(names.pop(0))
            times = {name: Times(found) for name, found in took.items()}
            what = f"{limit} sessions" if limit else "all sessions"
            if not limit and counts["index"] != counts["no index"]:
                bench.note(f"The index lists {counts['index']}, the files {counts['no index']}.")
            for way in ("no index", "index"):
                least = TARGETS[f"{limit or 'all'}, {way}"]
                for peer, wanted in zip(("Python SDK", "TypeScript SDK"), least, strict=True):
                    ratio = times[peer].median / times[way].median
                    bench.row(
                        f"{what}, {way}, and the {peer}",
                        "" if wanted is None else f">= {wanted}x",
                        None if wanted is None else ratio >= wanted,
                        segue=times[way].median * 1e3,
                        peer=times[peer].median * 1e3,
                        ratio=ratio,
                    )
            if not limit and counts["TypeScript SDK"] != counts["no index"]:
                told = counts["TypeScript SDK"], counts["no index"]
                bench.note(f"The TypeScript SDK listed {told[0]:,} of {told[1]:,} sessions.")
        await searches(bench, hub, source)
    node.close()


async def searches(bench: Bench, hub: Hub, source: ClaudeSource) -> None:
    """Searches with snippets, as a server does them, which is told when files change."""
    if find_spec("watchfiles") is None:
        bench.note("watchfiles is not there: searches were not measured")
        return
    changes = hub.history.changes(LOCAL)
    waiting = asyncio.ensure_future(anext(changes))
    while not source.watched:
        await asyncio.sleep(0.05)
    words = Words().all
    for name, first in (("common", 0), ("middling", 1000), ("rare", 30_000)):
        took: list[float] = []
        for word in words[first : first + 40]:
            await source.refresh()  # not in the way of what is measured
            begun = time.perf_counter()
            await hub.sessions.search(LOCAL, Query(text=word, limit=20))
            took.append(time.perf_counter() - begun)
        bench.row(f"a search with snippets, a {name} word", segue=Times(took).median * 1e3)
    waiting.cancel()


async def first_index(bench: Bench, home: Path, directory: Path) -> None:
    size = sum(path.stat().st_size for path in home.glob("projects/*/*.jsonl"))
    viewer = Path(toolbox.python_with(AGENTSVIEW)).with_name("agentsview")
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(1 if bench.quick else 3):
        begun = time.perf_counter()
        source = ClaudeSource(directory / f"first-{number}", ClaudeHome(str(home)))
        await source.refresh()
        ours.append(time.perf_counter() - begun)
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
        begun = time.perf_counter()
        subprocess.run(
            [str(viewer), "sync", "--full"], env=environment, check=True, capture_output=True
        )
        theirs.append(time.perf_counter() - begun)
    per = 100e6 / size
    mine, other = Times(ours).median, Times(theirs).median
    bench.row(
        f"first index, {size / 1e6:,.0f} MB, and 10 s for 100 MB",
        f"<= {INDEX_SECONDS / per:.1f} s",
        mine * per <= INDEX_SECONDS,
        segue=mine * 1e3,
        peer=INDEX_SECONDS / per * 1e3,
        ratio=INDEX_SECONDS / per / mine,
    )
    bench.row(
        "first index, and agentsview's full sync",
        f">= {INDEX_FASTER}x",
        other / mine >= INDEX_FASTER,
        segue=mine * 1e3,
        peer=other * 1e3,
        ratio=other / mine,
    )


async def main() -> int:
    bench = Bench("Claude Code's sessions (milliseconds)", ("segue", "peer", "ratio"))
    bench.say("fetching the SDKs and agentsview, unless they are there")
    with scratch() as directory:
        small, large = (100, 500) if bench.quick else (INDEXED, SESSIONS)
        await first_index(bench, made(bench, directory, "home", small), directory)
        await lists(bench, made(bench, directory, "home", large), directory)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
