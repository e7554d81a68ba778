"""Pair tool calls with results, and permission requests with answers."""

from pathlib import Path

from segue.hub import Hub
from segue.model.event import (
    Event,
    PermissionAnswered,
    PermissionAsked,
    StatusChanged,
    ToolCall,
    ToolResult,
)
from segue.model.principal import LOCAL
from segue.model.session import Session
from segue.render.items import build_items
from segue.render.pairing import PairTracker, pair_events, read_pairs
from segue.store.memory import MemoryStore

CALL = ToolCall(call_id="c", name="ls")
REQUEST = PermissionAsked(ask_id="q", title="May I?", options=())
ANSWER = PermissionAnswered(ask_id="q")
RESULT = ToolResult(call_id="c")


async def create_session(hub: Hub) -> tuple[Session, list[Event]]:
    """Return a session with one pair inside the other, and the four events."""
    id = (await hub.editor.create(LOCAL)).id
    events = list(await hub.editor.append(LOCAL, id, CALL, REQUEST, ANSWER, RESULT))
    return await hub.sessions.get(LOCAL, id), events


async def test_events_of_one_window_are_paired_with_each_other(tmp_path: Path) -> None:
    async with Hub(MemoryStore(), tmp_path) as hub:
        session, events = await create_session(hub)
        call, request, answer, result = events
        items = build_items(session, events, pair_events(events))
        assert [(item.event, item.outcome) for item in items] == [(call, result), (request, answer)]


async def test_a_window_finds_the_other_halves_around_it(tmp_path: Path) -> None:
    async with Hub(MemoryStore(), tmp_path) as hub:
        session, (call, request, answer, result) = await create_session(hub)
        after, before = request.seq, result.seq
        pairs = await read_pairs(hub.history, LOCAL, session, [call], after=0, before=request.seq)
        assert list(pairs.outcomes.values()) == [result] and pairs.openings == {}
        pairs = await read_pairs(hub.history, LOCAL, session, [answer], after=after, before=before)
        assert list(pairs.openings.values()) == [request]
        assert build_items(session, [answer], pairs) == []


async def test_a_live_result_finds_its_call_in_the_stream_or_the_history(
    tmp_path: Path,
) -> None:
    async with Hub(MemoryStore(), tmp_path) as hub:
        session, (call, request, answer, result) = await create_session(hub)
        tracker = PairTracker(hub.history, LOCAL, session.id)
        assert await tracker.find_opening(request) is None
        assert await tracker.find_opening(answer) == request  # seen in the stream
        assert await tracker.find_opening(result) == call  # read from the history
        created = (await hub.history.events(LOCAL, session.id, limit=1))[0]
        assert await tracker.find_opening(created) is None


async def test_pause_before_another_attempt_names_no_cause(tmp_path: Path) -> None:
    """The failure before it has the cause: a model that is busy, or one that is not reached."""
    async with Hub(MemoryStore(), tmp_path) as hub:
        id = (await hub.editor.create(LOCAL)).id
        pause = StatusChanged(status="rescheduling")
        events = list(await hub.editor.append(LOCAL, id, StatusChanged(status="running"), pause))
        session = await hub.sessions.get(LOCAL, id)
        items = build_items(session, events, pair_events(events))
    assert [item.text for item in items] == ["Trying again"]
