"""Following across processes: the delay until a follower sees another process's append.

A child process appends to one session of a store file at irregular moments, and says when it asked
for each append and when it had been committed. This process follows that session.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from pathlib import Path

from _common import Bench, Times, scratch

from segue.hub import Hub
from segue.model.content import Text
from segue.model.event import Event, UserMessage
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore

MOST_MS = 100.0


async def write(path: Path, id: str, count: int) -> None:
    """The child: appends, and prints seq, when it asked, and when that was committed."""
    chance = random.Random(7)
    async with Hub(SQLiteStore.open(path), path.parent) as hub:
        for number in range(count):
            # Irregular, so that nothing falls in step with a timer of the follower.
            await asyncio.sleep(chance.uniform(0.01, 0.15))
            asked = time.monotonic_ns()
            body = UserMessage(content=(Text(text=f"message {number}"),))
            (event,) = await hub.editor.append(LOCAL, id, body)
            print(event.seq, asked, time.monotonic_ns(), flush=True)


async def follow(path: Path, count: int) -> tuple[Times, Times]:
    """Seconds from the other process's call, and from its commit, until the event is seen here."""
    async with Hub(SQLiteStore.open(path), path.parent) as hub:
        session = await hub.editor.create(LOCAL, cwd="/home/ada/src/project")
        command = [sys.executable, __file__, "--write", str(path), session.id, str(count)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        seen: dict[int, int] = {}
        async for event in hub.history.follow(LOCAL, session.id, session.last_seq):
            assert isinstance(event, Event)
            seen[event.seq] = time.monotonic_ns()
            if len(seen) == count:
                break
        printed, _ = child.communicate()
    called, committed = [], []
    for line in printed.splitlines():
        seq, asked, done = map(int, line.split())
        called.append((seen[seq] - asked) / 1e9)
        # It may be seen here before the child's own event loop hears that it is committed.
        committed.append(max(0, seen[seq] - done) / 1e9)
    return Times(called), Times(committed)


async def main() -> int:
    bench = Bench("From an append in another process to its follower, in ms", ("median", "max"))
    with scratch() as directory:
        called, committed = await follow(directory / "segue.db", 30 if bench.quick else 300)
    for what, times in (("from the commit", committed), ("from the call of append", called)):
        bench.row(
            what,
            target=f"≤ {MOST_MS:g} ms",
            ok=times.worst * 1e3 <= MOST_MS,
            median=times.median * 1e3,
            max=times.worst * 1e3,
        )
    return bench.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        asyncio.run(write(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
    else:
        sys.exit(asyncio.run(main()))
