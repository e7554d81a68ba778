"""Measure the delay until a subscriber receives an event of another process.

A child process appends to one session at irregular times, and prints when it called append and
when the append was committed. This process follows the session.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from pathlib import Path

from _common import Bench, Times, temporary_directory

from segue.hub import Hub
from segue.model.content import Text
from segue.model.event import Event, UserMessage
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore

MAX_DELAY_MS = 100.0


async def append_messages(path: Path, id: str, count: int) -> None:
    """Append messages; print the seq, the time of the call and of the commit (the child)."""
    rng = random.Random(7)
    async with Hub(SQLiteStore.open(path), path.parent) as hub:
        for number in range(count):
            # Irregular, so that the appends do not follow the rhythm of a timer.
            await asyncio.sleep(rng.uniform(0.01, 0.15))
            called_at = time.monotonic_ns()
            body = UserMessage(content=(Text(text=f"message {number}"),))
            (event,) = await hub.editor.append(LOCAL, id, body)
            print(event.seq, called_at, time.monotonic_ns(), flush=True)


async def measure_delays(path: Path, count: int) -> tuple[Times, Times]:
    """Return the delays from the call and from the commit until an event arrives."""
    async with Hub(SQLiteStore.open(path), path.parent) as hub:
        session = await hub.editor.create(LOCAL, cwd="/home/ada/src/project")
        command = [sys.executable, __file__, "--write", str(path), session.id, str(count)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        received_at: dict[int, int] = {}
        async for event in hub.history.follow(LOCAL, session.id, session.last_seq):
            assert isinstance(event, Event)
            received_at[event.seq] = time.monotonic_ns()
            if len(received_at) == count:
                break
        output, _ = child.communicate()
    delays_from_call, delays_from_commit = [], []
    for line in output.splitlines():
        seq, called_at, committed_at = map(int, line.split())
        delays_from_call.append((received_at[seq] - called_at) / 1e9)
        # The event may arrive before the child's event loop learns of the commit.
        delays_from_commit.append(max(0, received_at[seq] - committed_at) / 1e9)
    return Times(delays_from_call), Times(delays_from_commit)


async def main() -> int:
    bench = Bench(
        "Delay from an append in another process to a subscriber, in ms", ("median", "max")
    )
    with temporary_directory() as directory:
        delays_from_call, delays_from_commit = await measure_delays(
            directory / "segue.db", 30 if bench.quick else 300
        )
    for label, times in (
        ("from the commit", delays_from_commit),
        ("from the call", delays_from_call),
    ):
        bench.row(
            label,
            target=f"≤ {MAX_DELAY_MS:g} ms",
            ok=times.worst * 1e3 <= MAX_DELAY_MS,
            median=times.median * 1e3,
            max=times.worst * 1e3,
        )
    return bench.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        asyncio.run(append_messages(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
    else:
        sys.exit(asyncio.run(main()))
