"""Shared parts of the benchmarks: generated sessions, timing, and the printed table.

Most targets are ratios to something measured in the same run. A round calls each case once, so
that other work on the machine affects all cases in the same way.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import UNSET

from segue.model import clock, ids
from segue.model.content import Text
from segue.model.event import (
    AgentMessage,
    AgentRef,
    Created,
    Draft,
    InfoChanged,
    ModelCalled,
    StatusChanged,
    Usage,
    UserMessage,
)
from segue.store.sqlite import SQLiteStore
from segue.store.sqlite.search_index import index_path

WORKSPACE = "local"
NOW = 1_780_000_000 * clock.SECOND  # fixed, so that every run generates the same sessions
CACHE_VARIABLE = "SEGUE_BENCH_CACHE"  # names a directory that keeps databases between runs
BATCH_SESSIONS = 4000  # written concurrently: the store commits waiting writes in groups


# Timing.

Case = Callable[[], Awaitable[object]]


class Times(NamedTuple):
    """The duration of each call of one case, in seconds."""

    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def worst(self) -> float:
        return max(self.seconds)

    def quantile(self, share: float) -> float:
        index = min(len(self.seconds) - 1, int(len(self.seconds) * share))
        return sorted(self.seconds)[index]


async def time_cases(cases: Mapping[str, Case], rounds: int, warm: int = 3) -> dict[str, Times]:
    """Time each case once per round, after `warm` rounds that do not count.

    Each round has another order, so that no case always profits from the processor caches that
    the case before it filled.
    """
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    rng = random.Random(0)
    order = list(cases.items())
    gc.collect()
    for number in range(-warm, rounds):
        rng.shuffle(order)
        for name, case in order:
            start = time.perf_counter()
            await case()
            elapsed = time.perf_counter() - start
            if number >= 0:
                seconds[name].append(elapsed)
    return {name: Times(durations) for name, durations in seconds.items()}


# The table.


class Bench:
    """The arguments, the result rows and the exit code of one script."""

    def __init__(
        self, title: str, columns: Sequence[str], numbers: Mapping[str, int] | None = None
    ) -> None:
        parser = argparse.ArgumentParser(description=title)
        for name, default in (numbers or {}).items():
            parser.add_argument(f"--{name}", type=int, default=default)
        parser.add_argument(
            "--quick", action="store_true", help="run with little data; always exit with 0"
        )
        parser.add_argument("--json", action="store_true", help="print the results as JSON")
        options = parser.parse_args()
        self.quick: bool = options.quick
        self.numbers = {name: vars(options)[name.replace("-", "_")] for name in numbers or {}}
        self._json: bool = options.json
        self._title = title
        self._columns = ("measurement", *columns, "target", "")
        self._rows: list[dict[str, Any]] = []
        self._notes: list[str] = []
        self._missed = 0

    def progress(self, line: str) -> None:
        """Print a progress message to standard error."""
        print(f"# {line}", file=sys.stderr, flush=True)

    def note(self, line: str) -> None:
        """Add a line below the table."""
        self._notes.append(line)

    def row(self, label: str, *, target: str = "", ok: bool | None = None, **cells: Any) -> None:
        """Add a row to the table; `ok` is None if the row has no target."""
        verdict = "" if ok is None else "ok" if ok else "MISSED"
        self._missed += ok is False
        self._rows.append({"measurement": label, **cells, "target": target, "verdict": verdict})

    def finish(self) -> int:
        """Print the results and return the exit code."""
        if self._json:
            report = {"title": self._title, "rows": self._rows, "notes": self._notes}
            print(json.dumps({**report, "machine": machine(), "missed": self._missed}, indent=1))
        else:
            self._print()
        return 1 if self._missed and not self.quick else 0

    def _print(self) -> None:
        lines = [self._columns]
        for row in self._rows:
            cells = [row.get(name, "") for name in self._columns[1:-2]]
            texts = map(_format_cell, cells)
            lines.append((row["measurement"], *texts, row["target"], row["verdict"]))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        print(f"{self._title}\n{machine()}\n")
        for line in lines:
            cells = [line[0].ljust(widths[0])]
            cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
            print("  ".join(cells).rstrip())
        for note in self._notes:
            print(f"\n{note}")
        print(flush=True)


def _format_cell(cell: object) -> str:
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:,.0f}" if cell >= 1000 else f"{cell:.3g}"


def machine() -> str:
    """Return the versions and the number of processors that the results depend on."""
    python = ".".join(map(str, sys.version_info[:3]))
    return f"Python {python}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} CPUs"


# Databases.


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """Yield a directory that is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="segue-bench-") as name:
        yield Path(name)


async def build_database(
    bench: Bench, name: str, directory: Path, sessions: Iterator[CorpusSession], count: int
) -> Path:
    """Write a corpus to a database through the store, unless the cache has it; return its path."""
    cache = os.environ.get(CACHE_VARIABLE)
    path = Path(cache) / f"{name}.db" if cache else directory / f"{name}.db"
    if path.exists():
        return path
    start = time.perf_counter()
    unfinished = path.with_suffix(".new")
    for file in (unfinished, index_path(unfinished)):
        for leftover in path.parent.glob(f"{file.name}*"):
            leftover.unlink()
    store = SQLiteStore.open(unfinished)
    while batch := [session for _, session in zip(range(BATCH_SESSIONS), sessions, strict=False)]:
        await asyncio.gather(*(store.create(WORKSPACE, id, drafts) for id, drafts in batch))
    await wait_until_idle(unfinished)
    await store.close()
    index_path(unfinished).rename(index_path(path))
    unfinished.rename(path)
    megabytes = path.stat().st_size / 1e6
    seconds = time.perf_counter() - start
    bench.progress(f"generated {count:,} sessions in {seconds:.0f} s, {megabytes:,.0f} MB")
    return path


def copy_store(path: Path, target: Path) -> None:
    """Copy a closed store with its search index."""
    shutil.copyfile(path, target)
    shutil.copyfile(index_path(path), index_path(target))


async def wait_until_idle(path: Path) -> None:
    """Wait until the store has finished its maintenance after many writes.

    The benchmarks then measure a store as it is in daily use, without this work in the background.
    """
    connections = [sqlite3.connect(file) for file in (path, index_path(path))]
    versions: list[int] = []

    def read_versions() -> list[int]:
        cursors = [connection.execute("PRAGMA data_version") for connection in connections]
        return [cursor.fetchone()[0] for cursor in cursors]

    while versions != (versions := read_versions()):
        await asyncio.sleep(1)
    for connection in connections:
        connection.close()


# Sessions.


class CorpusSession(NamedTuple):
    """A generated session: its id and the events that create it."""

    id: str
    drafts: list[Draft]


class Vocabulary:
    """Generated words with the frequencies of natural text.

    Few words are common and most are rare. Common words are short, and many words share a prefix.
    """

    SIZE = 50_000

    def __init__(self, seed: int = 1) -> None:
        rng = random.Random(seed)
        onsets = [*"strlncdpmbfghwv", "st", "tr", "pr", "pl", "ch"]
        first_onsets = ["con", "in", "re", "de", "ex", "un", "com", "pre", "inter", "pro", *onsets]
        vowels = [*"aeiouaeio", "ea", "ou"]
        codas = [*[""] * 10, *"nrstldm", "ng", "st", "ck"]
        weights = [1 / (rank + 4) for rank in range(len(first_onsets))]

        def syllable(index: int) -> str:
            choices = onsets if index else first_onsets
            onset: str = rng.choices(choices, weights[: len(choices)])[0]
            return onset + rng.choice(vowels) + rng.choice(codas)

        words: dict[str, None] = {}
        while len(words) < self.SIZE:
            # The 100 most common words have one syllable, the next thousands two, then three …
            syllables = 1 + sum(len(words) >= bound for bound in (100, 4000, 25_000))
            words.setdefault("".join(syllable(index) for index in range(syllables)))
        self.words = list(words)
        # Zipf's law as modified by Mandelbrot: the most common words are less frequent.
        self._weights = list(accumulate((rank + 2.7) ** -1.07 for rank in range(self.SIZE)))

    def text(self, rng: random.Random, min_words: int = 20, max_words: int = 200) -> str:
        """Return a text of random length; short texts are more frequent than long ones."""
        length = int(min_words * (max_words / min_words) ** rng.random())
        return " ".join(rng.choices(self.words, cum_weights=self._weights, k=length))


AGENTS = [ids.derived_id("bench", "agent", str(number)) for number in range(5)]
ENVIRONMENT = ids.derived_id("bench", "environment")
MEMORY = ids.derived_id("bench", "memory")
DEPLOYMENT = ids.derived_id("bench", "deployment")
TAG = "review"


def list_corpus(count: int, seed: int = 2) -> Iterator[CorpusSession]:
    """Yield sessions for lists: each filter has a value that many of the sessions match."""
    rng = random.Random(seed)
    words = Vocabulary()
    for number in range(count):
        created_at, active_for = _times(rng, count - number)
        # Each of these properties belongs to a fifth of the sessions.
        kind = number % 5
        created = Created(
            cwd=f"/home/ada/src/project-{rng.randrange(5)}",
            agent=AgentRef(id=AGENTS[rng.randrange(5)], version=1 + number % 2),
            environment_id=ENVIRONMENT,
            deployment_id=DEPLOYMENT if kind == 0 else None,
            memory_store_ids=(MEMORY,) if kind == 1 else (),
            metadata={"ticket": f"T-{number}"} if kind == 2 else {},
            source="segue" if kind == 3 else "claude",
            origin="acp",
        )
        drafts = [
            Draft(body=created, at=created_at),
            Draft(body=UserMessage(content=(Text(text=words.text(rng, 5, 20)),)), at=created_at),
            Draft(body=ModelCalled(usage=_usage(rng)), at=created_at + active_for),
            Draft(
                body=AgentMessage(content=(Text(text=words.text(rng, 5, 20)),)),
                at=created_at + active_for,
            ),
            Draft(
                body=InfoChanged(
                    title=words.text(rng, 4, 8), tag=TAG if kind == 4 else UNSET, by="auto"
                ),
                at=created_at + active_for,
            ),
        ]
        if rng.random() < 0.2:
            body = StatusChanged(status="running", turn=ids.derived_id("bench", str(number)))
            drafts.append(Draft(body=body, at=created_at + active_for))
        share = rng.random()
        if share < 0.15:
            drafts.append(Draft(body=InfoChanged(archived=True), at=created_at + active_for))
        elif share < 0.3:
            drafts.append(Draft(body=InfoChanged(deleted=True), at=created_at + active_for))
        yield CorpusSession(ids.new_id(), drafts)


def search_corpus(
    count: int, words: Vocabulary, *, shuffled: bool = False, seed: int = 3
) -> Iterator[CorpusSession]:
    """Yield sessions for searches: four to six events, of which two to four are messages.

    With `shuffled`, the order of last activity is unrelated to the order of creation. This is the
    hardest case for a search by activity.
    """
    rng = random.Random(seed)
    for number in range(count):
        created_at, active_for = _times(rng, count - number)
        if shuffled:
            active_for = NOW + rng.randrange(count) * clock.SECOND - created_at
        created = Created(cwd=f"/home/ada/src/project-{number % 20}", environment_id=ENVIRONMENT)
        drafts = [Draft(body=created, at=created_at)]
        for turn in range(rng.randrange(2, 5)):
            kind = AgentMessage if turn % 2 else UserMessage
            at = created_at if turn == 0 else created_at + active_for
            drafts.append(Draft(body=kind(content=(Text(text=words.text(rng)),)), at=at))
        title = InfoChanged(title=words.text(rng, 4, 8), by="auto")
        drafts.append(Draft(body=title, at=created_at + active_for))
        yield CorpusSession(ids.new_id(), drafts)


def _times(rng: random.Random, remaining: int) -> tuple[int, int]:
    """Return when a session was created, and how long after that it was last active.

    A session is created every 100 seconds; `remaining` is the number of later ones. Most end
    within an hour, and one in ten is active up to a month later.
    """
    age = remaining * 100
    longest = 30 * 86_400 if rng.random() < 0.1 else 3600
    active_for = rng.randrange(50, min(longest, age))
    return NOW - age * clock.SECOND, active_for * clock.SECOND


def _usage(rng: random.Random) -> Usage:
    return Usage(
        input_tokens=rng.randrange(20_000),
        output_tokens=rng.randrange(2_000),
        cache_read_tokens=rng.randrange(50_000),
        cost=rng.randrange(100_000),
    )
