"""Contract: what a workspace uses of what quotas limit."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from segue.model import codec, ids
from segue.model.errors import Conflict
from segue.model.event import AnyBody, Created, Draft, StatusChanged
from segue.model.record import Record
from segue.model.session import Session
from segue.store.base import Store, Usage

from .harness import (
    OTHER_WORKSPACE,
    WORKSPACE,
    Contract,
    Refused,
    agent_message,
    allow_purge,
    append_events,
    at,
    create_session,
    no_events,
    read_history,
    refuse,
    status_change,
    title_change,
    user_message,
)
from .records import new_record

LONG_TEXT = "many words " * 2_000


async def event_bytes(store: Store, *sessions: Session) -> int:
    """Return the bytes of the bodies of all events of some sessions."""
    events = [event for session in sessions for event in await read_history(store, session)]
    return sum(len(codec.encode(event.body)) for event in events)


def record_bytes(*records: Record) -> int:
    return sum(len(codec.encode(record)) for record in records)


class UsageContract(Contract):
    async def test_a_workspace_without_anything_uses_nothing(self, store: Store) -> None:
        assert await store.usage("nowhere") == Usage(0, 0, 0, 0, 0)

    async def test_sessions_and_their_events_are_counted_until_they_are_purged(
        self, store: Store
    ) -> None:
        first = await create_session(store, user_message("one"))
        second = await create_session(store, agent_message(LONG_TEXT))
        await create_session(store, workspace=OTHER_WORKSPACE)
        await append_events(store, first, user_message("two"), title_change("a title"))
        await store.change(WORKSPACE, first.id, no_events)
        expected = Usage(sessions=2, bytes=await event_bytes(store, first, second))
        assert await store.usage(WORKSPACE) == expected
        remaining = await event_bytes(store, second)
        await store.purge(WORKSPACE, first.id, allow_purge)
        assert await store.usage(WORKSPACE) == Usage(sessions=1, bytes=remaining)
        await store.purge(WORKSPACE, second.id, allow_purge)
        assert await store.usage(WORKSPACE) == Usage()
        assert (await store.usage(OTHER_WORKSPACE)).sessions == 1

    async def test_forks_and_imported_sessions_are_counted(self, store: Store) -> None:
        parent = await create_session(store, user_message("one"), agent_message(LONG_TEXT))

        def tail(_: Session) -> list[AnyBody]:
            return [title_change("a fork")]

        created = Draft(body=Created(cwd="/work"))
        fork = await store.fork(WORKSPACE, parent.id, ids.new_id(), 2, created, tail)
        copy = await store.load(WORKSPACE, ids.new_id(), await read_history(store, parent))
        expected = Usage(sessions=3, bytes=await event_bytes(store, parent, fork, copy))
        assert await store.usage(WORKSPACE) == expected

    async def test_refused_changes_are_not_counted(self, store: Store) -> None:
        session = await create_session(store, user_message("one"))
        record = await store.put_record(new_record(kind="file"))
        before = await store.usage(WORKSPACE)
        with pytest.raises(Refused):
            await store.change(WORKSPACE, session.id, refuse)
        with pytest.raises(Refused):
            await store.purge(WORKSPACE, session.id, refuse)
        with pytest.raises(Conflict):
            await create_session(store, id=session.id)
        with pytest.raises(Conflict):
            await store.put_records([new_record(kind="file"), replace(record, version=3)])
        assert await store.usage(WORKSPACE) == before

    async def test_records_of_files_memories_and_schedules_are_counted_once_each(
        self, store: Store
    ) -> None:
        kinds = ("file", "archive", "memory:of-a-store", "schedule", "agent", "memory_path:x")
        records = [
            await store.put_record(new_record(kind=kind, body={"text": kind * 9})) for kind in kinds
        ]
        expected = Usage(files=3, schedules=1, bytes=record_bytes(*records))
        assert await store.usage(WORKSPACE) == expected

    async def test_all_versions_of_a_record_have_bytes_but_are_one_file(self, store: Store) -> None:
        first = await store.put_record(new_record(kind="memory:x", body={"text": "one"}))
        second = replace(first, version=2, body={"text": "longer " * 50})
        await store.put_record(second)
        assert await store.usage(WORKSPACE) == Usage(files=1, bytes=record_bytes(first, second))
        amended = replace(second, body={"text": "short"})
        await store.put_record(amended, amend=True)
        assert await store.usage(WORKSPACE) == Usage(files=1, bytes=record_bytes(first, amended))
        third = replace(first, version=3, body={"text": "last"})
        await store.put_record(third, drop_earlier=True)
        assert await store.usage(WORKSPACE) == Usage(files=1, bytes=record_bytes(third))
        archived = replace(third, version=4, archived_at=at(9))
        await store.put_record(archived, drop_earlier=True)
        assert await store.usage(WORKSPACE) == Usage(files=1, bytes=record_bytes(archived))
        await store.put_records([], drop=[archived])
        assert await store.usage(WORKSPACE) == Usage()

    async def test_parts_of_files_are_counted_even_without_a_record(self, store: Store) -> None:
        await store.put_part(WORKSPACE, "file", 0, b"\0" * 3000)
        await store.put_part(WORKSPACE, "file", 1, b"end")
        await store.put_part(OTHER_WORKSPACE, "file", 0, b"elsewhere")
        assert await store.usage(WORKSPACE) == Usage(bytes=3003)
        await store.put_part(WORKSPACE, "file", 0, b"again")
        assert await store.usage(WORKSPACE) == Usage(bytes=8)
        await store.drop_parts(WORKSPACE, "file")
        assert await store.usage(WORKSPACE) == Usage()
        assert await store.usage(OTHER_WORKSPACE) == Usage(bytes=9)

    async def test_a_turn_is_counted_from_its_prompt_until_it_ends(self, store: Store) -> None:
        session = await create_session(store)

        async def turns() -> int:
            return (await store.usage(WORKSPACE)).turns

        item = await store.put_inbox(WORKSPACE, session.id, "prompt", ids.new_id(), {})
        await store.put_inbox(WORKSPACE, session.id, "cancel", ids.new_id(), {})
        assert await turns() == 1
        lease = await store.acquire(WORKSPACE, session.id, "a process")
        begun = [status_change("running", turn="t")]
        name = (WORKSPACE, session.id)
        await store.change(*name, lambda _: begun, lease=lease, consume=[item.number])
        assert await turns() == 1
        waiting = await store.put_inbox(*name, "prompt", ids.new_id(), {})
        assert await turns() == 2
        await store.drop_inbox(*name, [waiting.number])
        waits = StatusChanged(status="idle", stop_reason="requires_action")
        await append_events(store, session, waits)
        assert await turns() == 1
        await append_events(store, session, status_change("idle"))
        assert await turns() == 0
        assert (await store.usage(OTHER_WORKSPACE)).turns == 0

    async def test_concurrent_changes_are_all_counted(self, store: Store) -> None:
        sessions = await asyncio.gather(*(create_session(store) for _ in range(30)))
        await asyncio.gather(
            *(append_events(store, session, user_message("hello")) for session in sessions),
            *(store.put_record(new_record(kind="file")) for _ in range(10)),
            *(store.put_part(WORKSPACE, str(number), 0, b"x") for number in range(10)),
        )
        gone, left = sessions[:10], sessions[10:]
        await asyncio.gather(*(store.purge(WORKSPACE, row.id, allow_purge) for row in gone))
        usage = await store.usage(WORKSPACE)
        records = await store.records(WORKSPACE, "file")
        expected_bytes = await event_bytes(store, *left) + record_bytes(*records) + 10
        assert usage == Usage(sessions=20, files=10, bytes=expected_bytes)
