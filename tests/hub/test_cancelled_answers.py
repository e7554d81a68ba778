"""An answer that was accepted before its turn ends is stored; a later one is refused."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from segue.agents.base import Turn
from segue.agents.base.ports import ALLOW, REJECT, PermissionRequest
from segue.hub import Hub
from segue.hub.turns.engine import TurnEngine
from segue.hub.turns.running import runner
from segue.hub.turns.running.turn_inbox import TurnInbox
from segue.model.content import as_content
from segue.model.errors import NotFound
from segue.model.event import Event, Interrupted, PermissionAnswered, PermissionAsked, ToolResult
from segue.model.principal import LOCAL
from segue.store.base import InboxItem
from tests.agents.provider import Provider
from tests.faults.idle import assert_idle
from tests.faults.processes import TIMEOUT_SECONDS
from tests.faults.takeover import WORKSPACE, read_events
from tests.faults.test_waiting_turns import MODEL, WAITING, create_session, until_waiting

from .test_turns import registry_with, wait_for

MakeHub = Callable[..., Hub]


def one(events: list[Event], type: type) -> Event:
    (event,) = (event for event in events if isinstance(event.body, type))
    return event


@asynccontextmanager
async def turn_that_asks(
    make_hub: MakeHub, play: Callable[[Turn], Awaitable[None]]
) -> AsyncIterator[tuple[Hub, str, str, str]]:
    """Run a turn until it requests a permission; yield the ids of session, turn and request."""
    async with (
        make_hub(agent_registry=registry_with(play)) as hub,
        asyncio.timeout(TIMEOUT_SECONDS),
    ):
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "x")
        asked = await wait_for(hub, id, lambda body: isinstance(body, PermissionAsked))
        yield hub, id, turn, asked.id


async def test_answer_before_the_cancel_of_a_running_turn_is_stored(
    make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, allowed, handle_items = asyncio.Event(), [], TurnInbox.handle_items
    reads.set()

    async def handle_later(inbox: TurnInbox) -> InboxItem | None:
        await reads.wait()
        return await handle_items(inbox)

    async def play(turn: Turn) -> None:
        allowed.append((await turn.request_permission("run?")).allowed)

    monkeypatch.setattr(TurnInbox, "handle_items", handle_later)
    async with turn_that_asks(make_hub, play) as (hub, id, turn, asked):
        reads.clear()
        answer = await hub.turns.answer(LOCAL, id, asked, "allow")
        cancel = await hub.turns.cancel(LOCAL, id)
        with pytest.raises(NotFound):
            await hub.turns.answer(LOCAL, id, asked, "reject")
        reads.set()
        assert await hub.turns.wait(LOCAL, id, turn) == "cancelled"
        events = list(await hub.history.events(LOCAL, id))
        answered = one(events, PermissionAnswered)
        assert isinstance(answered.body, PermissionAnswered) and answered.body.option == "allow"
        assert (answered.id, one(events, Interrupted).id) == (answer, cancel)
        assert allowed == []
        assert await hub.store.inbox(WORKSPACE, id) == []


async def test_answer_after_the_cancel_of_a_running_turn_is_refused(
    make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled, ends = asyncio.Event(), asyncio.Event()

    async def play(turn: Turn) -> None:
        try:
            await turn.request_permission("run?")
        except asyncio.CancelledError:
            cancelled.set()
            await ends.wait()

    async with turn_that_asks(make_hub, play) as (hub, id, turn, asked):
        await hub.turns.cancel(LOCAL, id)
        await cancelled.wait()
        with pytest.raises(NotFound):
            await hub.turns.answer(LOCAL, id, asked, "allow")
        ends.set()
        assert await hub.turns.wait(LOCAL, id, turn) == "cancelled"
        answered = one(list(await hub.history.events(LOCAL, id)), PermissionAnswered)
        assert isinstance(answered.body, PermissionAnswered) and answered.body.option is None


async def test_answers_that_arrive_while_a_turn_ends_by_itself_are_stored(
    make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, ends, handle_items = asyncio.Event(), asyncio.Event(), TurnInbox.handle_items
    reads.set()

    async def handle_later(inbox: TurnInbox) -> InboxItem | None:
        await reads.wait()
        return await handle_items(inbox)

    async def play(turn: Turn) -> None:
        await turn.start_tool("ask_user", custom=True)
        question = asyncio.ensure_future(turn.request_permission("run?"))
        await ends.wait()
        question.cancel()

    monkeypatch.setattr(TurnInbox, "handle_items", handle_later)
    async with turn_that_asks(make_hub, play) as (hub, id, turn, asked):
        (call,) = (await hub.sessions.get(LOCAL, id)).open_calls
        reads.clear()
        answer = await hub.turns.answer(LOCAL, id, asked, "allow")
        sent = ToolResult(call_id=call, content=as_content("seven"))
        result = await hub.turns.submit_tool_result(LOCAL, id, sent)
        ends.set()
        await asyncio.sleep(0)
        reads.set()
        assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"
        events = list(await hub.history.events(LOCAL, id))
        answered, stored = one(events, PermissionAnswered), one(events, ToolResult)
        assert isinstance(answered.body, PermissionAnswered) and answered.body.option == "allow"
        assert isinstance(stored.body, ToolResult) and stored.body.status == "completed"
        assert (answered.id, stored.id) == (answer, result)
        assert await hub.store.inbox(WORKSPACE, id) == []


async def test_answer_is_refused_once_a_turn_has_begun_to_end(
    make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, ends, close = asyncio.Event(), asyncio.Event(), runner.close_requests

    async def close_slowly(*args: Any) -> Any:
        closing = await close(*args)
        closed.set()
        await ends.wait()
        return closing

    async def play(turn: Turn) -> None:
        await turn.ask([PermissionRequest(title="run?", options=(ALLOW, REJECT))])

    monkeypatch.setattr(runner, "close_requests", close_slowly)
    async with turn_that_asks(make_hub, play) as (hub, id, turn, asked):
        await closed.wait()
        with pytest.raises(NotFound):
            await hub.turns.answer(LOCAL, id, asked, "allow")
        ends.set()
        assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"
        answered = one(list(await hub.history.events(LOCAL, id)), PermissionAnswered)
        assert isinstance(answered.body, PermissionAnswered) and answered.body.option is None


async def test_answer_that_an_agent_waits_for_no_more_is_stored(make_hub: MakeHub) -> None:
    ends = asyncio.Event()

    async def play(turn: Turn) -> None:
        question = asyncio.ensure_future(turn.request_permission("run?"))
        await asyncio.wait([question], timeout=0.05)
        question.cancel()
        await ends.wait()

    async with turn_that_asks(make_hub, play) as (hub, id, turn, asked):
        await asyncio.sleep(0.1)
        answer = await hub.turns.answer(LOCAL, id, asked, "allow")
        ends.set()
        assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"
        assert one(list(await hub.history.events(LOCAL, id)), PermissionAnswered).id == answer


async def test_answers_before_the_cancel_of_a_stored_turn_are_stored(
    make_hub: MakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    async with (
        Provider(WAITING["three parallel calls"]) as provider,
        make_hub() as hub,
        asyncio.timeout(TIMEOUT_SECONDS),
    ):
        await hub.config.set(WORKSPACE, "model", MODEL)
        await hub.config.set(WORKSPACE, "model.base_url", provider.url)
        session = await create_session(hub, tmp_path / "work", hosted=False)
        turn = await hub.turns.submit(LOCAL, session, "Go")
        row = await until_waiting(hub, session)
        await hub.turns.engine.wait_idle()
        kick = TurnEngine.kick
        with monkeypatch.context() as patch:
            # No process acts on the inbox for a while.
            patch.setattr(TurnEngine, "kick", lambda *_: asyncio.sleep(0))
            answer = await hub.turns.answer(LOCAL, session, row.open_asks[0], "allow")
            result = ToolResult(call_id=row.open_calls[1], content=as_content("sent"))
            sent = await hub.turns.submit_tool_result(LOCAL, session, result)
            cancel = await hub.turns.cancel(LOCAL, session)
            with pytest.raises(NotFound):
                await hub.turns.answer(LOCAL, session, row.open_asks[1], "allow")
        await kick(hub.turns.engine, (WORKSPACE, session))
        assert await hub.turns.wait(LOCAL, session, turn) == "cancelled"
        events = await read_events(hub, session)
        assert_idle(await hub.sessions.get(LOCAL, session), events)
        options = {e.id: e.body.option for e in events if isinstance(e.body, PermissionAnswered)}
        assert options.pop(answer) == "allow" and list(options.values()) == [None]
        results = {e.id: e.body.status for e in events if isinstance(e.body, ToolResult)}
        assert results.pop(sent) == "completed"
        assert list(results.values()) == ["cancelled", "cancelled"]
        assert one(events, Interrupted).id == cancel
        assert not (tmp_path / "work" / "ran.txt").exists()
        assert len(provider.requests) == 1
