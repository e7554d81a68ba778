"""Submit prompts and tool results to turns: ids, the queue, leases and draining."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from segue.agents.base import Turn
from segue.agents.registry import AgentRegistry
from segue.hub import Hub
from segue.hub.turns.inbox import SystemText
from segue.model import ids
from segue.model.content import as_content
from segue.model.errors import InvalidInput, NotFound
from segue.model.event import (
    Event,
    Interrupted,
    ModelCalled,
    PermissionAsked,
    SystemMessage,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from segue.model.principal import LOCAL, Principal
from segue.store.memory import MemoryStore

MakeHub = Callable[..., Hub]
OTHER = Principal(workspace="other")


async def read_bodies(hub: Hub, id: str, *types: str) -> list[Any]:
    return [event.body for event in await hub.history.events(LOCAL, id, types=types)]


async def wait_for(hub: Hub, id: str, kind: type) -> Event:
    async with asyncio.timeout(20):
        async for item in hub.history.follow(LOCAL, id):
            if isinstance(item, Event) and isinstance(item.body, kind):
                return item
    raise AssertionError("the session ended first")


class ScriptedAgent:
    def __init__(self, play: Callable[[Turn], Any]) -> None:
        self._play = play

    async def run(self, turn: Turn) -> Any:
        return await self._play(turn) or "end_turn"


def registry_with(play: Callable[[Turn], Any]) -> AgentRegistry:
    return AgentRegistry({"default": lambda _: ScriptedAgent(play)})


async def test_turn_has_the_id_that_the_caller_chose(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn_id = ids.new_id()
        assert await hub.turns.submit(LOCAL, id, "hello", turn_id=turn_id) == turn_id
        assert await hub.turns.wait(LOCAL, id, turn_id) == "end_turn"
        (event,) = [
            event
            for event in await hub.history.events(LOCAL, id)
            if isinstance(event.body, UserMessage)
        ]
        assert event.id == turn_id
        (running, *_) = await read_bodies(hub, id, "status_changed")
        assert running.turn == turn_id


async def test_queued_prompts_are_listed_in_order_until_they_begin(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        first = await hub.turns.submit(LOCAL, id, "/ask Continue?")
        await wait_for(hub, id, PermissionAsked)
        later = [await hub.turns.submit(LOCAL, id, f"/say {number}") for number in range(2)]
        assert list(await hub.turns.queued(LOCAL, id)) == later
        with pytest.raises(NotFound):
            await hub.turns.queued(OTHER, id)
        assert not await hub.turns.was_withdrawn(LOCAL, id, first)  # it has begun
        assert not await hub.turns.was_withdrawn(LOCAL, id, later[1])  # it waits
        assert await hub.turns.withdraw(LOCAL, id, later[0])
        assert not await hub.turns.withdraw(LOCAL, id, later[0])
        assert await hub.turns.was_withdrawn(LOCAL, id, later[0])
        assert await hub.turns.wait(LOCAL, id, later[0]) == "cancelled"
        (ask,) = (await hub.sessions.get(LOCAL, id)).open_asks
        await hub.turns.answer(LOCAL, id, ask, "allow")
        assert await hub.turns.wait(LOCAL, id, later[1]) == "end_turn"
        assert list(await hub.turns.queued(LOCAL, id)) == []


async def test_agent_of_an_open_session_answers_until_it_is_closed(make_hub: MakeHub) -> None:
    async def shout(turn: Turn) -> None:
        await turn.send_message(turn.text.upper())

    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        opened = await hub.turns.open(LOCAL, id, agent=ScriptedAgent(shout))
        await hub.turns.run(LOCAL, id, "quietly", opened=opened)
        await opened.close()
        await hub.turns.run(LOCAL, id, "/say quietly")
        texts = [body.content[0].text for body in await read_bodies(hub, id, "agent_message")]
        assert texts == ["QUIETLY", "quietly"]


async def test_submitted_tool_result_is_stored_under_its_own_id(make_hub: MakeHub) -> None:
    seen: list[Event] = []

    async def play(turn: Turn) -> None:
        seen.extend(await turn.result(await turn.start_tool("weather", custom=True)))

    async with make_hub(agent_registry=registry_with(play)) as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "go")
        called = await wait_for(hub, id, ToolCall)
        assert isinstance(called.body, ToolCall) and called.body.custom
        result = ToolResult(call_id=called.body.call_id, content=as_content("rain"))
        system = SystemText(id=ids.new_id(), content=as_content("be brief"))
        result_id = await hub.turns.submit_tool_result(LOCAL, id, result, system=system)
        assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"
        assert [(event.id, type(event.body)) for event in seen] == [
            (result_id, ToolResult),
            (system.id, SystemMessage),
        ]
        session = await hub.sessions.get(LOCAL, id)
        assert (session.open_calls, session.pending) == ((), ())
        # The call has another result, and other workspaces do not have it.
        for principal, error in ((LOCAL, InvalidInput), (OTHER, NotFound)):
            with pytest.raises(error):
                await hub.turns.submit_tool_result(
                    principal, id, ToolResult(call_id=called.body.call_id)
                )


async def test_second_result_of_a_call_is_refused(make_hub: MakeHub) -> None:
    submitted = asyncio.Event()

    async def play(turn: Turn) -> None:
        call = await turn.start_tool("weather", custom=True)
        await submitted.wait()
        await turn.result(call)

    async with make_hub(agent_registry=registry_with(play)) as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "go")
        called = await wait_for(hub, id, ToolCall)
        assert isinstance(called.body, ToolCall)
        rain, snow = [
            ToolResult(call_id=called.body.call_id, content=as_content(text))
            for text in ("rain", "snow")
        ]
        await hub.turns.submit_tool_result(LOCAL, id, rain)
        with pytest.raises(InvalidInput, match="has another result already"):
            await hub.turns.submit_tool_result(LOCAL, id, snow)
        submitted.set()
        assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"
        (result,) = await read_bodies(hub, id, "tool_result")
        assert result.content[0].text == "rain"


async def test_system_message_follows_its_prompt(make_hub: MakeHub) -> None:
    async def play(turn: Turn) -> None:
        await turn.send_message(turn.system[0].text)  # type: ignore[union-attr]  # a Text

    async with make_hub(agent_registry=registry_with(play)) as hub:
        id = (await hub.editor.create(LOCAL)).id
        system = SystemText(id=ids.new_id(), content=as_content("be brief"))
        await hub.turns.wait(LOCAL, id, await hub.turns.submit(LOCAL, id, "hello", system=system))
        events = await hub.history.events(LOCAL, id)
        index = next(i for i, event in enumerate(events) if isinstance(event.body, UserMessage))
        assert (events[index + 1].id, events[index + 1].type) == (system.id, "system_message")
        (answer,) = await read_bodies(hub, id, "agent_message")
        assert answer.content[0].text == "be brief"


async def test_drained_hub_finishes_running_turns_and_begins_none(make_hub: MakeHub) -> None:
    hub = make_hub()
    id = (await hub.editor.create(LOCAL)).id
    await hub.turns.submit(LOCAL, id, "/say begun\n/wait 0.3\n/say done")
    await wait_for(hub, id, UserMessage)
    later = await hub.turns.submit(LOCAL, id, "/say later")
    await hub.turns.engine.drain(20, "shutdown")
    assert (await hub.sessions.get(LOCAL, id)).stop_reason == "end_turn"
    texts = [body.content[0].text for body in await read_bodies(hub, id, "agent_message")]
    assert texts == ["begun", "done"]
    assert list(await hub.turns.queued(LOCAL, id)) == [later]
    lease = await hub.store.lease_of("local", id)
    assert lease is None or not lease.holder
    if isinstance(hub.store, MemoryStore):
        await hub.close()
        return
    await hub.close()
    async with make_hub() as other:
        await other.turns.engine.recover()
        await other.turns.engine.kick(("local", id))
        assert await other.turns.wait(LOCAL, id, later) == "end_turn"


async def test_turn_interrupted_by_draining_stores_the_reason(make_hub: MakeHub) -> None:
    requests: list[str] = []

    async def play(turn: Turn) -> None:
        requests.append(await turn.begin_request())
        await turn.delta("half a")
        await turn.start_tool("forever")
        await asyncio.sleep(60)

    async with make_hub(agent_registry=registry_with(play)) as hub:
        id = (await hub.editor.create(LOCAL)).id
        await hub.turns.submit(LOCAL, id, "go")
        await wait_for(hub, id, ToolCall)
        await hub.turns.engine.drain(0.05, "the server stops")
        (interrupted,) = await read_bodies(hub, id, "interrupted")
        assert interrupted == Interrupted(reason="the server stops")
        session = await hub.sessions.get(LOCAL, id)
        assert (session.status, session.stop_reason, session.open_calls) == ("idle", "error", ())
        (called,) = await read_bodies(hub, id, "model_called")
        assert isinstance(called, ModelCalled)
        assert ([called.asked], called.is_error) == (requests, True)
        # The message, not the end, says when the request began. Nothing says what it used.
        (message,) = await read_bodies(hub, id, "agent_message")
        assert message.asked_at is not None and called.asked_at is None
        assert called.usage == Usage()
