"""Measure 10,000 sessions of eight tools: the first index, lists, and following them while idle.

agentsview reads the same files in the same run, each program as a process of its own.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path

import _tool_homes
from _common import CACHE_VARIABLE, Bench, Times, temporary_directory, time_cases

from segue.factory import open_hub
from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.model.query import Query

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # tests.clients.toolbox installs agentsview

from tests.clients import toolbox  # noqa: E402

AGENTSVIEW = "agentsview==0.46.1"
SESSIONS = 10_000  # about 200 MB
PAGE = 50
SEARCHED = "deiwang"  # a word of the vocabulary that many sessions have
MIN_INDEX_RATIO = 5
MAX_LIST_RATIO = 3.0
MAX_COLD_RATIO = 1.5
IDLE_SECONDS = 10.0
WATCH_SECONDS = 30.0  # until the system notifies of changes
MAX_IDLE_SHARE = 0.005  # of one core, while no file changes
# What a list reads of an index: the newest rows, undecoded.
NEWEST_ROWS = (
    "SELECT active_at, id, row FROM files INDEXED BY files_active"
    " WHERE shown AND state = 0 ORDER BY active_at DESC, id DESC LIMIT ?"
)


def prepare_home(bench: Bench, directory: Path, sessions: int) -> Path:
    """Return a home with so many sessions; write it unless the cache has it."""
    cache = os.environ.get(CACHE_VARIABLE)
    home = (Path(cache) if cache else directory) / f"tools-{sessions}"
    if not (home / "whole").exists():  # a marker: the home is complete
        start = time.perf_counter()
        size = _tool_homes.write_home(home, sessions)
        (home / "whole").touch()
        elapsed = time.perf_counter() - start
        bench.progress(f"wrote {sessions:,} sessions in {elapsed:.0f} s, {size / 1e6:,.0f} MB")
    return home


def environment(home: Path, **variables: object) -> dict[str, str]:
    """Return the variables of a program that reads the home and nothing else."""
    values = {name: str(value) for name, value in variables.items()}
    return {"HOME": str(home), "PATH": os.environ["PATH"], **values}


def run_segue(home: Path, data: Path, *command: str) -> tuple[float, int]:
    """Run a segue command as a process; return its seconds and its lines."""
    variables = environment(home, SEGUE_DATA_DIR=data, PYTHONPATH=ROOT / "src")
    program = [sys.executable, "-m", "segue", *command, "--limit", str(PAGE), "--format", "jsonl"]
    start = time.perf_counter()
    done = subprocess.run(program, env=variables, cwd=home, check=True, capture_output=True)
    return time.perf_counter() - start, done.stdout.count(b"\n")


def list_sessions(home: Path, data: Path, *options: str) -> float:
    """Run `segue list` as a process, and return its seconds."""
    seconds, lines = run_segue(home, data, "list", *options)
    assert lines == PAGE
    return seconds


def search_sessions(home: Path, data: Path) -> float:
    """Run `segue search` as a process, and return its seconds."""
    seconds, lines = run_segue(home, data, "search", SEARCHED)
    assert lines
    return seconds


def run_agentsview(program: Path, home: Path, data: Path) -> float:
    """Run agentsview's full sync without its server, and return its seconds."""
    data.mkdir()
    variables = environment(
        home,
        AGENTSVIEW_DATA_DIR=data,
        AGENTSVIEW_NO_DAEMON=1,
        AGENTSVIEW_DISABLE_UPDATE_CHECK=1,
        AGENTSVIEW_TELEMETRY_ENABLED=0,
        DO_NOT_TRACK=1,
    )
    start = time.perf_counter()
    command = [str(program), "sync", "--full"]
    subprocess.run(command, env=variables, check=True, capture_output=True)
    return time.perf_counter() - start


def measure_first_index(bench: Bench, home: Path, directory: Path, sessions: int) -> Path:
    """Compare a first list with agentsview's full sync, and return segue's data directory."""
    program = Path(toolbox.python_with(AGENTSVIEW)).with_name("agentsview")
    own_seconds: list[float] = []
    search_seconds: list[float] = []
    other_seconds: list[float] = []
    data = directory
    for number in range(1 if bench.quick else 3):
        data = directory / f"segue-{number}"
        own_seconds.append(list_sessions(home, data))
        search_seconds.append(own_seconds[-1] + search_sessions(home, data))
        other_data = directory / f"agentsview-{number}"
        other_seconds.append(run_agentsview(program, home, other_data))
    with closing(sqlite3.connect(other_data / "sessions.db")) as connection:
        (count,) = connection.execute("SELECT count(*) FROM sessions").fetchone()
    if count != sessions:
        bench.note(f"agentsview synced {count:,} of {sessions:,} sessions.")
    other = Times(other_seconds).median
    for what, seconds in (
        ("first list", own_seconds),
        ("first list and first search", search_seconds),
    ):
        own = Times(seconds).median
        bench.row(
            f"{what} of {sessions:,} sessions of eight tools, compared with a full sync",
            target=f">= {MIN_INDEX_RATIO}x",
            ok=other / own >= MIN_INDEX_RATIO,
            segue=own * 1e3,
            other=other * 1e3,
            ratio=other / own,
        )
    return data


async def measure_cold_lists(bench: Bench, home: Path, data: Path) -> None:
    """Compare a new process that lists the sessions of all tools with one for Claude Code's."""

    async def list_all() -> None:
        list_sessions(home, data)

    async def list_claude() -> None:
        list_sessions(home, data, "--sources", "claude")

    cases = {"all": list_all, "claude": list_claude}
    times = await time_cases(cases, 3 if bench.quick else 20)
    ratio = times["all"].median / times["claude"].median
    bench.row(
        f"`segue list` of {PAGE} in a new process, compared with Claude Code's sessions alone",
        target=f"<= {MAX_COLD_RATIO}x",
        ok=ratio <= MAX_COLD_RATIO,
        segue=times["all"].median * 1e3,
        other=times["claude"].median * 1e3,
        ratio=ratio,
    )


async def wait_until_watched(hub: Hub) -> None:
    """Wait until the system notifies of the changes of every source. Raises TimeoutError."""
    indexes = [source.current_index for source in hub.sources]  # type: ignore[attr-defined]
    async with asyncio.timeout(WATCH_SECONDS):  # other programs may have taken all watches
        while not all(index.watched for index in indexes):
            await asyncio.sleep(0.05)
    for source in hub.sources:
        await source.refresh()


async def measure_server(bench: Bench, data: Path) -> None:
    """Measure lists in a process that follows all sources, and what following costs."""
    if find_spec("watchfiles") is None:
        bench.note("watchfiles is not installed: following was not measured")
        return
    async with await open_hub(data) as hub:
        waiting = asyncio.ensure_future(anext(hub.history.changes(LOCAL)))
        await wait_until_watched(hub)
        await measure_lists(bench, hub, data)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
    await measure_idle(bench, data)


async def measure_lists(bench: Bench, hub: Hub, data: Path) -> None:
    """Compare a list with plain SQLite that reads the same rows of the same indexes."""
    indexes = [sqlite3.connect(path) for path in sorted(data.glob("*.index"))]
    assert len(indexes) == len(_tool_homes.TOOLS)

    async def list_page() -> None:
        assert len((await hub.sessions.list(LOCAL, Query(limit=PAGE))).sessions) == PAGE

    async def read_rows() -> None:
        rows: list[tuple[int, str, bytes]] = []
        for index in indexes:
            rows += index.execute(NEWEST_ROWS, (PAGE + 1,)).fetchall()
        rows.sort(reverse=True)
        assert len(rows[:PAGE]) == PAGE

    times = await time_cases({"hub": list_page, "floor": read_rows}, 20 if bench.quick else 200)
    ratio = times["hub"].median / times["floor"].median
    bench.row(
        f"list of {PAGE} in a process that follows, compared with plain SQLite",
        target=f"<= {MAX_LIST_RATIO}x",
        ok=ratio <= MAX_LIST_RATIO,
        segue=times["hub"].median * 1e3,
        other=times["floor"].median * 1e3,
        ratio=ratio,
    )
    for index in indexes:
        index.close()


async def idle_seconds(data: Path, seconds: float, sources: str | None) -> float:
    """Return the processor time of a process that follows sources while nothing changes."""
    async with await open_hub(data, sources=sources) as hub:
        waiting = asyncio.ensure_future(anext(hub.history.changes(LOCAL)))
        await wait_until_watched(hub)
        await asyncio.sleep(1)  # what the start left to do
        before = resource.getrusage(resource.RUSAGE_SELF)
        await asyncio.sleep(seconds)
        after = resource.getrusage(resource.RUSAGE_SELF)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


async def measure_idle(bench: Bench, data: Path) -> None:
    """Measure what following all sources costs in addition to following the store, while idle."""
    seconds = 2.0 if bench.quick else IDLE_SECONDS
    used = await idle_seconds(data, seconds, None)
    without = await idle_seconds(data, seconds, "none")
    share = (used - without) / seconds
    bench.row(
        f"following for {seconds:.0f} s while nothing changes, compared with the store alone",
        target=f"<= {MAX_IDLE_SHARE:.1%} of a core",
        ok=share <= MAX_IDLE_SHARE,
        segue=used * 1e3,
        other=without * 1e3,
        ratio=used / without,
    )


async def main() -> int:
    bench = Bench("The sessions of eight tools (milliseconds)", ("segue", "other", "ratio"))
    bench.progress("installing agentsview, if it is missing")
    sessions = 400 if bench.quick else SESSIONS
    with temporary_directory() as directory:
        home = prepare_home(bench, directory, sessions)
        data = measure_first_index(bench, home, directory, sessions)
        await measure_cold_lists(bench, home, data)
        os.environ.update(environment(home))
        try:
            await measure_server(bench, data)
        except TimeoutError:
            bench.note("the system does not watch all sources: following was not measured")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
