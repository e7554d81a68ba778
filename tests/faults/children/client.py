"""Do random things with a store until the end, and report when each began and ended.

    client.py DIRECTORY URL LEASE_MICROSECONDS NAME SEED [DEFECT]

Every report has the time of the machine's monotonic clock, which all processes share. The system
clock of this process jumps by up to an hour now and then. The store gets a DEFECT of defects.py.
"""

import asyncio
import random
import sys
import time
from pathlib import Path
from typing import Any

from common import WORKSPACE, open_location, report, run
from defects import break_store

from segue.hub import Hub
from segue.hub.turns import engine
from segue.model import clock, ids
from segue.model.content import as_content
from segue.model.errors import SegueError
from segue.model.event import Draft, UserMessage
from segue.model.principal import LOCAL
from segue.model.query import Query

TASKS = 3
MAX_SESSIONS = 30  # that one process uses at a time
PAUSE_SECONDS = 0.02  # of a task after each operation
TAIL = 20  # events that are read at once
HOUR = 3600 * clock.SECOND
engine.RECOVER_SECONDS = 0.3  # looks for abandoned turns sooner than it would


class Client:
    """One process's random operations. Each returns what is to be checked of its result."""

    def __init__(self, hub: Hub, name: str, chance: random.Random) -> None:
        self._hub = hub
        self._name = name
        self._chance = chance
        self._sessions: list[str] = []
        self.operations = {
            self.create: 2,
            self.append: 10,
            self.prompt: 6,
            self.read: 6,
            self.tail: 3,
            self.page: 2,
            self.cancel: 1,
            self.jump: 1,
        }

    async def one(self) -> None:
        """Do one thing, and report it before and after."""
        operations = list(self.operations)
        weights = list(self.operations.values())
        operation = self._chance.choices(operations, weights)[0]
        if not self._sessions and operation is not self.create:
            operation = self.create
        number = f"{self._name}-{ids.new_id()}"
        begun: dict[str, Any] = {"number": number, "do": operation.__name__}
        begun["session"] = self._chance.choice(self._sessions) if self._sessions else ""
        begun["id"] = ids.new_id()  # of what it stores
        report("begun", at=time.monotonic(), **begun)
        try:
            result = await operation(begun["session"], begun["id"])
        except SegueError as error:
            report("failed", at=time.monotonic(), number=number, error=str(error))
            await asyncio.sleep(0.05)
        else:
            report("ok", at=time.monotonic(), number=number, **result)

    async def create(self, _: str, id: str) -> dict[str, Any]:
        if len(self._sessions) >= MAX_SESSIONS:
            if self._chance.random() < 0.98:
                return await self.page("", "")
            self._sessions.remove(self._chance.choice(self._sessions))
        await self._hub.editor.create(LOCAL, cwd="/work", id=id)
        self._sessions.append(id)
        return {"created": id}

    async def append(self, session: str, id: str) -> dict[str, Any]:
        draft = Draft(id=id, body=UserMessage(content=as_content(self._name)))
        _, events = await self._hub.store.change(WORKSPACE, session, lambda _: [draft])
        return {"seq": events[0].seq}

    async def prompt(self, session: str, id: str) -> dict[str, Any]:
        text = self._chance.choice(["/say hello", "/slow 0.01\n/say one two three", "/tool look"])
        await self._hub.turns.submit(LOCAL, session, text, turn_id=id)
        return {"prompted": id}

    async def read(self, session: str, _: str) -> dict[str, Any]:
        return {"last_seq": (await self._hub.sessions.get(LOCAL, session)).last_seq}

    async def tail(self, session: str, _: str) -> dict[str, Any]:
        last_seq = (await self._hub.sessions.get(LOCAL, session)).last_seq
        after = max(0, last_seq - TAIL)
        events = await self._hub.store.events(WORKSPACE, session, after=after, limit=TAIL + 5)
        assert [event.seq for event in events][:1] == [after + 1], "the first event is missing"
        return {"events": [(event.seq, event.id) for event in events]}

    async def page(self, _: str, __: str) -> dict[str, Any]:
        listed: list[str] = []
        cursor, query = None, Query(limit=self._chance.choice([5, 20, 100]))
        while True:
            page = await self._hub.sessions.list(LOCAL, query, cursor)
            listed += [session.id for session in page.sessions]
            cursor = page.next
            if cursor is None:
                return {"listed": listed}

    async def cancel(self, session: str, _: str) -> dict[str, Any]:
        await self._hub.turns.cancel(LOCAL, session)
        return {"cancelled": session}

    async def jump(self, _: str, __: str) -> dict[str, Any]:
        offset = self._chance.randrange(-HOUR, HOUR)
        clock.now = lambda: time.time_ns() // 1000 + offset
        return {"offset": offset}

    def know(self, sessions: list[str]) -> None:
        """Use sessions of other processes."""
        self._sessions += [id for id in sessions if id not in self._sessions]


async def main() -> None:
    directory, url, lease, name, seed, *defects = sys.argv[1:]
    chance = random.Random(int(seed))
    store = await open_location(directory, url)
    for defect in defects:
        break_store(store, defect, chance)
    hub = Hub(store, Path(directory), lease=int(lease))
    client = Client(hub, name, chance)
    page = await hub.sessions.list(LOCAL, Query(limit=100))
    client.know([session.id for session in page.sessions])
    hub.turns.engine.start()
    report("ready")

    async def work() -> None:
        while True:
            await client.one()
            await asyncio.sleep(PAUSE_SECONDS)

    await asyncio.gather(*(work() for _ in range(TASKS)))


if __name__ == "__main__":
    run(main)
