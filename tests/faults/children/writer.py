"""Write to a store with several tasks until killed, and print each committed change.

writer.py DIRECTORY URL SEED
"""

import asyncio
import random
import sys
from typing import Any

from common import WORKSPACE, open_location, report, run

from segue.hub.turns.end_turn import fork_tail_events
from segue.model import ids
from segue.model.content import as_content
from segue.model.errors import NotFound
from segue.model.event import AnyBody, Created, Draft, Event, ForkPoint, InfoChanged, UserMessage
from segue.model.query import Query
from segue.store.base import Store

TASKS = 6
SESSIONS = 30  # above this, one goes for each that comes


def brief(events: list[Event]) -> list[tuple[int, str]]:
    return [(event.seq, event.id) for event in events]


def group_of(event: Event) -> Any:
    return event.body.extra.get("test", {}).get("group", event.id)


class Writing:
    def __init__(self, store: Store, seed: int, sessions: list[str]) -> None:
        self.store = store
        self.random = random.Random(seed)
        self.sessions = sessions

    async def write_until_killed(self) -> None:
        acts = [self.create, self.append, self.shelve, self.fork, self.purge, self.put]
        while True:
            (act,) = self.random.choices(acts, [15, 50, 8, 8, 9, 10])
            if len(self.sessions) < 5:
                act = self.create
            elif len(self.sessions) > SESSIONS:
                act = self.purge
            try:
                await act()
            except NotFound:
                continue  # another task has purged it

    def any(self) -> str:
        return self.random.choice(self.sessions)

    def group(self) -> list[Draft]:
        """Three events that are stored together or not at all; they share a word that says so."""
        word = ids.new_id().replace("-", "")
        text = f"group {word} says " + " ".join(
            self.random.choices(["abc", "déf", "ghi", "日本"], k=5)
        )
        body = UserMessage(content=as_content(text), extra={"test": {"group": word}})
        return [Draft(id=ids.new_id(), body=body) for _ in range(3)]

    async def create(self) -> None:
        id = ids.new_id()
        stores = tuple(self.random.sample(["m1", "m2", "m3"], self.random.randrange(3)))
        created = Created(cwd="/work", memory_store_ids=stores)
        await self.store.create(WORKSPACE, id, [created, *self.group()])
        report("create", session=id)
        self.sessions.append(id)

    async def append(self) -> None:
        id, drafts = self.any(), self.group()
        _, events = await self.store.change(WORKSPACE, id, lambda _: drafts)
        report("append", session=id, events=brief(events))

    async def shelve(self) -> None:
        id = self.any()

        def decide(session: Any) -> list[AnyBody]:
            return [InfoChanged(archived=session.archived_at is None, tag="tagged")]

        _, events = await self.store.change(WORKSPACE, id, decide)
        report("append", session=id, events=brief(events))

    async def fork(self) -> None:
        id, new_id = self.any(), ids.new_id()
        session = await self.store.get(WORKSPACE, id)
        if session is None:
            raise NotFound(f"no session {id}")
        events = await self.store.events(WORKSPACE, id)
        groups = [group_of(event) for event in events]
        # A group that the fork cuts would look like one that is half there.
        group_ends = [at for at in range(len(groups)) if groups[at] != (*groups, None)[at + 1]]
        upto = events[self.random.choice([0, *group_ends])].seq
        created = Created(
            cwd="/work",
            memory_store_ids=session.memory_store_ids,
            fork=ForkPoint(session=id, seq=upto),
        )
        await self.store.fork(WORKSPACE, id, new_id, upto, Draft(body=created), fork_tail_events)
        report("fork", session=new_id, of=id, upto=upto)
        self.sessions.append(new_id)

    async def purge(self) -> None:
        id = self.any()
        self.sessions.remove(id)
        # Printed first: after a kill in the middle it is unknown whether it was done.
        report("purging", session=id)
        await self.store.purge(WORKSPACE, id, lambda _: None)
        report("purge", session=id)

    async def put(self) -> None:
        id, item = self.any(), ids.new_id()
        await self.store.put_inbox(WORKSPACE, id, "prompt", item, {"content": []})
        report("put", session=id, item=item)


async def main() -> None:
    directory, url, seed = sys.argv[1:]
    report("opening")
    store = await open_location(directory, url)
    sessions = await store.page(WORKSPACE, Query(archived="include", limit=1000))
    writing = Writing(store, int(seed), [session.id for session in sessions])
    await asyncio.gather(*(writing.write_until_killed() for _ in range(TASKS)))


if __name__ == "__main__":
    run(main)
