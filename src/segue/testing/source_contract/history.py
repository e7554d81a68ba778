"""Contract: the history of a source's sessions is read, searched and followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from segue.hub import Hub
from segue.model import ids, search_text
from segue.model.errors import NotFound
from segue.model.event import Created, Event
from segue.model.principal import Principal
from segue.model.query import Query
from segue.sources.base import Source
from segue.testing.helpers import ids_of, message_texts

from .harness import (
    CWD,
    Contract,
    ToolSessions,
    create_session,
    create_sessions,
    list_ids,
    minutes,
    require_session,
)

NOTICE_SECONDS = 20.0  # in which a watcher must notice a change


class HistoryContract(Contract):
    """Events, conversations, threads and watchers."""

    async def test_history_has_the_messages_in_their_order(
        self, source: Source, tool: ToolSessions
    ) -> None:
        id = await create_long_session(tool)
        await source.get(id)
        events = await source.events(id)
        assert isinstance(events[0].body, Created) and events[0].body.cwd == CWD
        assert message_texts(events) == ["one", "two", "three", "four", "five", "six"]
        assert sorted(event.seq for event in events) == [event.seq for event in events]
        assert len({event.seq for event in events}) == len(events)
        assert len(set(ids_of(events))) == len(events)

    async def test_history_is_read_in_windows(self, source: Source, tool: ToolSessions) -> None:
        id = await create_long_session(tool)
        await source.get(id)
        events = await source.events(id)
        middle = events[len(events) // 2].seq
        later = [event for event in events if event.seq > middle]
        earlier = [event for event in events if event.seq < middle]
        assert await source.events(id, after=middle) == later
        assert await source.events(id, before=middle) == earlier
        assert await source.events(id, after=middle, limit=1) == later[:1]
        assert await source.events(id, backward=True, limit=2) == events[-2:]
        assert await source.events(id, before=middle, backward=True, limit=1) == earlier[-1:]
        assert await source.events(id, after=events[-1].seq) == []

    async def test_history_is_read_by_types_and_times(
        self, source: Source, tool: ToolSessions
    ) -> None:
        id = await create_long_session(tool)
        await source.get(id)
        events = await source.events(id)
        prompts = await source.events(id, types=("user_message",))
        assert message_texts(prompts) == ["one", "three", "five"]
        time = prompts[1].at
        assert await source.events(id, since=time) == [
            event for event in events if event.at >= time
        ]
        assert await source.events(id, until=time) == [
            event for event in events if event.at <= time
        ]

    async def test_seqs_and_ids_stay_the_same_when_the_tool_appends(
        self, source: Source, tool: ToolSessions
    ) -> None:
        id = await create_session(tool)
        await source.get(id)
        before = await source.events(id)
        await tool.add_turn(id, "another question", "another reply", at=minutes(5))
        await source.get(id)
        after = await source.events(id)
        assert after[: len(before)] == before
        assert message_texts(after[len(before) :]) == ["another question", "another reply"]
        assert await source.events(id, after=before[-1].seq) == after[len(before) :]

    async def test_conversation_has_the_messages(self, source: Source, tool: ToolSessions) -> None:
        id = await create_long_session(tool)
        await source.get(id)
        events = await read_all(source.conversation(id))
        assert message_texts(events) == ["one", "two", "three", "four", "five", "six"]

    async def test_events_are_located_by_their_ids(
        self, source: Source, tool: ToolSessions
    ) -> None:
        id = await create_long_session(tool)
        await source.get(id)
        for event in await source.events(id):
            assert await source.locate(id, event.id) == event.seq
        assert await source.locate(id, ids.new_id()) is None

    async def test_session_without_subagents_has_no_threads(
        self, source: Source, tool: ToolSessions
    ) -> None:
        id = await create_session(tool)
        assert await source.threads(id) == []
        with pytest.raises(NotFound):
            await read_all(source.thread(id, ids.new_id()))

    async def test_history_of_an_unknown_session_is_not_found(
        self, source: Source, tool: ToolSessions
    ) -> None:
        await create_session(tool)
        await source.refresh()
        unknown = ids.new_id()
        for call in (
            source.events(unknown),
            source.locate(unknown, ids.new_id()),
            source.threads(unknown),
            read_all(source.conversation(unknown)),
            read_all(source.thread(unknown, ids.new_id())),
        ):
            with pytest.raises(NotFound):
                await call

    # Search.

    async def test_search_finds_words_of_prompts_and_answers(
        self, source: Source, tool: ToolSessions
    ) -> None:
        zebra = await create_session(tool, "where do zebras live", "in the savanna")
        lemur = await create_session(tool, "where do lemurs live", "in Madagascar", minute=1)
        assert await list_ids(source, text="zebras") == [zebra]
        assert await list_ids(source, text="madagascar") == [lemur]
        assert await list_ids(source, text="where live") == [lemur, zebra]
        assert await list_ids(source, text="where giraffes live") == []

    async def test_search_finds_what_the_tool_appended(
        self, source: Source, tool: ToolSessions
    ) -> None:
        id = await create_session(tool)
        assert await list_ids(source, text="okapi") == []
        await tool.add_turn(id, "and the okapi?", "in the forest", at=minutes(5))
        assert await list_ids(source, text="okapi") == [id]

    async def test_ranked_search_shows_an_event_with_the_words(
        self, source: Source, tool: ToolSessions
    ) -> None:
        zebra = await create_session(tool, "where do zebras live", "in the savanna")
        await create_session(tool, "where do lemurs live", "in Madagascar", minute=1)
        (hit,) = await source.ranked(Query(text="savanna"))
        assert hit.session.id == zebra
        assert hit.event is not None and message_texts([hit.event]) == ["in the savanna"]
        assert await source.ranked(Query(text="giraffes")) == []

    async def test_newest_match_of_each_session_is_found(
        self, source: Source, tool: ToolSessions
    ) -> None:
        first = await create_session(tool, "zebra one", "zebra two")
        second = await create_session(tool, "lemur", "lemur", minute=1)
        await source.refresh()
        sessions = [await require_session(source, id) for id in (first, second)]
        match, no_match = await source.newest_matches(sessions, search_text.terms("zebra"))
        assert match is not None and message_texts([match]) == ["zebra two"]
        assert no_match is None

    async def test_occurrences_are_the_newest_first(
        self, source: Source, tool: ToolSessions
    ) -> None:
        id = await create_session(tool, "zebra one", "no such animal")
        await tool.add_turn(id, "zebra two", "zebra three", at=minutes(1))
        await source.refresh()
        terms = search_text.terms("zebra")
        seqs = await source.occurrences(id, terms, None, 10)
        texts = {event.seq: message_texts([event]) for event in await source.events(id)}
        assert [texts[seq] for seq in seqs] == [["zebra three"], ["zebra two"], ["zebra one"]]
        assert await source.occurrences(id, terms, seqs[0], 1) == seqs[1:2]

    # Watching.

    async def test_watcher_is_called_with_the_session_that_changed(
        self, source: Source, tool: ToolSessions
    ) -> None:
        first, _ = await create_sessions(tool, 2)
        await source.refresh()
        changed: asyncio.Queue[str] = asyncio.Queue()
        stop = source.watch(changed.put_nowait)
        try:
            await _turn_until_noticed(tool, first, changed)
        finally:
            stop()
        while not changed.empty():
            changed.get_nowait()
        await tool.add_turn(first, "more", "more", at=minutes(30))
        await source.refresh()
        assert changed.empty(), "a watcher that was stopped is still called"

    async def test_session_is_followed(self, source: Source, tool: ToolSessions, hub: Hub) -> None:
        principal = Principal(workspace=source.workspace)
        id = await create_session(tool)
        texts: list[str] = []
        events = hub.history.follow(principal, id)
        async with asyncio.timeout(NOTICE_SECONDS):
            async for event in events:
                assert isinstance(event, Event)
                texts += message_texts([event])
                if texts[-1:] == ["reply"]:
                    await tool.add_turn(id, "another question", "the end", at=minutes(5))
                if texts[-1:] == ["the end"]:
                    break
        await events.aclose()
        assert texts == ["question", "reply", "another question", "the end"]


async def create_long_session(tool: ToolSessions) -> str:
    """Write a session of three turns and return its id."""
    id = await create_session(tool, "one", "two")
    await tool.add_turn(id, "three", "four", at=minutes(2))
    await tool.add_turn(id, "five", "six", at=minutes(4))
    return id


async def read_all(events: AsyncIterator[Event]) -> list[Event]:
    """Return all events of an iterator."""
    return [event async for event in events]


async def _turn_until_noticed(tool: ToolSessions, id: str, changed: asyncio.Queue[str]) -> None:
    """Append turns until a watcher was called with the session: it may not be ready at once."""
    async with asyncio.timeout(NOTICE_SECONDS):
        for number in range(1000):
            await tool.add_turn(id, f"turn {number}", "done", at=minutes(10 + number / 60))
            try:
                async with asyncio.timeout(1):
                    while await changed.get() != id:
                        pass
                    return
            except TimeoutError:
                continue
