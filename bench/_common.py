"""What the benchmarks share: made-up sessions, interleaved timing, and the printed table.

Every claim is a ratio against something measured in the same run. Rounds are interleaved, one
call of each case after the other, so that whatever else the machine does hits all cases alike.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
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

WORKSPACE = "local"
NOW = 1_780_000_000 * clock.SECOND  # fixed, so that every run makes the same sessions
KEEP = "SEGUE_BENCH_CACHE"  # a directory in which built databases are kept between runs


# Timing.

Case = Callable[[], Awaitable[object]]


class Times(NamedTuple):
    """Seconds that one case took, call by call."""

    all: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.all)

    @property
    def worst(self) -> float:
        return max(self.all)

    def quantile(self, share: float) -> float:
        return sorted(self.all)[min(len(self.all) - 1, int(len(self.all) * share))]


async def interleaved(cases: Mapping[str, Case], rounds: int, warm: int = 3) -> dict[str, Times]:
    """Each case once a round, for some rounds, after a few that do not count.

    The order is another in every round: no case always profits from what the one before it left
    in the processor's caches.
    """
    found: dict[str, list[float]] = {name: [] for name in cases}
    chance = random.Random(0)
    order = list(cases.items())
    gc.collect()
    for number in range(-warm, rounds):
        chance.shuffle(order)
        for name, case in order:
            start = time.perf_counter()
            await case()
            took = time.perf_counter() - start
            if number >= 0:
                found[name].append(took)
    return {name: Times(took) for name, took in found.items()}


# The table.


class Bench:
    """One script's arguments, rows and verdict."""

    def __init__(self, title: str, columns: Sequence[str]) -> None:
        parser = argparse.ArgumentParser(description=title)
        parser.add_argument("--quick", action="store_true", help="small and short; no verdict")
        parser.add_argument("--json", action="store_true", help="print JSON")
        options = parser.parse_args()
        self.quick: bool = options.quick
        self._json: bool = options.json
        self._title = title
        self._columns = ("what", *columns, "target", "")
        self._rows: list[dict[str, Any]] = []
        self._notes: list[str] = []
        self._missed = 0

    def say(self, line: str) -> None:
        """Progress, for whoever watches."""
        print(f"# {line}", file=sys.stderr, flush=True)

    def note(self, line: str) -> None:
        """A line under the table."""
        self._notes.append(line)

    def row(self, what: str, target: str = "", ok: bool | None = None, **cells: Any) -> None:
        """One line; `ok` is the verdict, or None for a row that only informs."""
        verdict = "" if ok is None else "ok" if ok else "MISSED"
        self._missed += ok is False
        self._rows.append({"what": what, **cells, "target": target, "verdict": verdict})

    def finish(self) -> int:
        """Print everything; the exit code."""
        if self._json:
            made = {"title": self._title, "rows": self._rows, "notes": self._notes}
            print(json.dumps({**made, "machine": machine(), "missed": self._missed}, indent=1))
        else:
            self._print()
        return 1 if self._missed and not self.quick else 0

    def _print(self) -> None:
        lines = [self._columns]
        for row in self._rows:
            cells = [row.get(name, "") for name in self._columns[1:-2]]
            lines.append((row["what"], *map(_shown, cells), row["target"], row["verdict"]))
        widths = [max(len(line[at]) for line in lines) for at in range(len(self._columns))]
        print(f"{self._title}\n{machine()}\n")
        for line in lines:
            cells = [line[0].ljust(widths[0])]
            cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
            print("  ".join(cells).rstrip())
        for note in self._notes:
            print(f"\n{note}")
        print(flush=True)


def _shown(cell: object) -> str:
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:,.0f}" if cell >= 1000 else f"{cell:.3g}"


def machine() -> str:
    """What the numbers were taken on."""
    python = ".".join(map(str, sys.version_info[:3]))
    return f"Python {python}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} CPUs"


# Places.


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="segue-bench-") as name:
        yield Path(name)


async def built(
    bench: Bench, name: str, directory: Path, sessions: Iterator[Made], count: int
) -> Path:
    """The database of a corpus: made through the store, unless a kept one is there."""
    kept = os.environ.get(KEEP)
    path = Path(kept) / f"{name}.db" if kept else directory / f"{name}.db"
    if not path.exists():
        start = time.perf_counter()
        unfinished = path.with_suffix(".new")
        for leftover in path.parent.glob(f"{unfinished.name}*"):
            leftover.unlink()
        store = SQLiteStore.open(unfinished)
        # Some thousand at a time: the writer commits what waits for it in groups.
        while batch := [made for _, made in zip(range(4000), sessions, strict=False)]:
            await asyncio.gather(*(store.create(WORKSPACE, id, drafts) for id, drafts in batch))
        await rested(unfinished)
        await store.close()
        for suffix in ("-wal", "-shm"):
            Path(f"{unfinished}{suffix}").unlink(missing_ok=True)
        unfinished.rename(path)
        size = path.stat().st_size / 1e6
        took = time.perf_counter() - start
        bench.say(f"made {count:,} sessions in {took:.0f} s, {size:,.0f} MB")
    return path


async def rested(path: Path) -> None:
    """Wait until the store has tidied up after a flood of writes, as it does when it is left alone.

    Then the benchmarks find it as it is in daily use, and nothing of this in their way.
    """
    connection = sqlite3.connect(path)
    version = None
    while version != (version := connection.execute("PRAGMA data_version").fetchone()):
        await asyncio.sleep(1)
    connection.close()


# Sessions.


class Made(NamedTuple):
    id: str
    drafts: list[Draft]


class Words:
    """A vocabulary as natural text has it: few words are common, most are rare, the common ones
    are short, and many words begin alike."""

    SIZE = 50_000

    def __init__(self, seed: int = 1) -> None:
        chance = random.Random(seed)
        onsets = [*"strlncdpmbfghwv", "st", "tr", "pr", "pl", "ch"]
        starts = ["con", "in", "re", "de", "ex", "un", "com", "pre", "inter", "pro", *onsets]
        vowels = [*"aeiouaeio", "ea", "ou"]
        codas = [*[""] * 10, *"nrstldm", "ng", "st", "ck"]
        weights = [1 / (rank + 4) for rank in range(len(starts))]

        def syllable(place: int) -> str:
            first = onsets if place else starts
            onset: str = chance.choices(first, weights[: len(first)])[0]
            return onset + chance.choice(vowels) + chance.choice(codas)

        found: dict[str, None] = {}
        while len(found) < self.SIZE:
            # One syllable for the hundred commonest, two for the next thousands, then three …
            syllables = 1 + sum(len(found) >= bound for bound in (100, 4000, 25_000))
            word = "".join(syllable(place) for place in range(syllables))
            found.setdefault(word)
        self.all = list(found)
        # Zipf's law as Mandelbrot bent it: the very first words are less extreme.
        self._weights = list(accumulate((rank + 2.7) ** -1.07 for rank in range(self.SIZE)))

    def text(self, chance: random.Random, low: int = 20, high: int = 200) -> str:
        """Some sentences' worth of words: short messages are more usual than long ones."""
        length = int(low * (high / low) ** chance.random())
        return " ".join(chance.choices(self.all, cum_weights=self._weights, k=length))


AGENTS = [ids.derived_id("bench", "agent", str(number)) for number in range(5)]
ENVIRONMENT = ids.derived_id("bench", "environment")
MEMORY = ids.derived_id("bench", "memory")
DEPLOYMENT = ids.derived_id("bench", "deployment")
TAG = "review"


def listed(count: int, seed: int = 2) -> Iterator[Made]:
    """Sessions for lists: every filter has values that a fair share of the sessions match."""
    chance = random.Random(seed)
    words = Words()
    for number in range(count):
        made_at, spent = _times(chance, count - number)
        # What a few sessions have, others do without: a fifth has each of these.
        kind = number % 5
        created = Created(
            cwd=f"/home/ada/src/project-{chance.randrange(5)}",
            agent=AgentRef(id=AGENTS[chance.randrange(5)], version=1 + number % 2),
            environment_id=ENVIRONMENT,
            deployment_id=DEPLOYMENT if kind == 0 else None,
            memory_store_ids=(MEMORY,) if kind == 1 else (),
            metadata={"ticket": f"T-{number}"} if kind == 2 else {},
            source="segue" if kind == 3 else "claude",
            origin="acp",
        )
        drafts = [
            Draft(body=created, at=made_at),
            Draft(body=UserMessage(content=(Text(text=words.text(chance, 5, 20)),)), at=made_at),
            Draft(body=ModelCalled(usage=_usage(chance)), at=made_at + spent),
            Draft(
                body=AgentMessage(content=(Text(text=words.text(chance, 5, 20)),)),
                at=made_at + spent,
            ),
            Draft(
                body=InfoChanged(
                    title=words.text(chance, 4, 8), tag=TAG if kind == 4 else UNSET, by="auto"
                ),
                at=made_at + spent,
            ),
        ]
        if chance.random() < 0.2:
            body = StatusChanged(status="running", turn=ids.derived_id("bench", str(number)))
            drafts.append(Draft(body=body, at=made_at + spent))
        shelf = chance.random()
        if shelf < 0.15:
            drafts.append(Draft(body=InfoChanged(archived=True), at=made_at + spent))
        elif shelf < 0.3:
            drafts.append(Draft(body=InfoChanged(deleted=True), at=made_at + spent))
        yield Made(ids.new_id(), drafts)


def searched(count: int, words: Words, *, shuffled: bool = False, seed: int = 3) -> Iterator[Made]:
    """Sessions for searches: four to six events, of which two to four are messages.

    `shuffled` sessions were last active in an order that has nothing to do with the order they
    were made in, which is the hardest case for a search by activity.
    """
    chance = random.Random(seed)
    for number in range(count):
        made_at, spent = _times(chance, count - number)
        if shuffled:
            spent = NOW + chance.randrange(count) * clock.SECOND - made_at
        created = Created(cwd=f"/home/ada/src/project-{number % 20}", environment_id=ENVIRONMENT)
        drafts = [Draft(body=created, at=made_at)]
        for turn in range(chance.randrange(2, 5)):
            kind = AgentMessage if turn % 2 else UserMessage
            at = made_at if turn == 0 else made_at + spent
            drafts.append(Draft(body=kind(content=(Text(text=words.text(chance)),)), at=at))
        title = InfoChanged(title=words.text(chance, 4, 8), by="auto")
        drafts.append(Draft(body=title, at=made_at + spent))
        yield Made(ids.new_id(), drafts)


def _times(chance: random.Random, left: int) -> tuple[int, int]:
    """When a session was made, with so many to come, and how long after that it was active.

    One is made every hundred seconds. Most are done within the hour, some are taken up days later.
    """
    age = left * 100
    longest = 30 * 86_400 if chance.random() < 0.1 else 3600
    spent = chance.randrange(50, min(longest, age))
    return NOW - age * clock.SECOND, spent * clock.SECOND


def _usage(chance: random.Random) -> Usage:
    return Usage(
        input_tokens=chance.randrange(20_000),
        output_tokens=chance.randrange(2_000),
        cache_read_tokens=chance.randrange(50_000),
        cost=chance.randrange(100_000),
    )
