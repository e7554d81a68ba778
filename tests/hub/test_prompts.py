"""Prompts and results on their way to a turn: chosen ids, queues, other hands, handing over."""

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
from segue.model.errors import NotFound
from segue.model.event import (
    Event,
    Interrupted,
    ModelAsked,
    ModelCalled,
    PermissionAsked,
    SystemMessage,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.principal import LOCAL, Principal
from segue.store.memory import MemoryStore

MakeHub = Callable[..., Hub]
OTHER = Principal(workspace="other")


async def bodies(hub: Hub, id: str, *types: str) -> list[Any]:
    return [event.body for event in await hub.history.events(LOCAL, id, types=types)]


async def until(hub: Hub, id: str, kind: type) -> Event:
    async with asyncio.timeout(20):
        async for item in hub.history.follow(LOCAL, id):
            if isinstance(item, Event) and isinstance(item.body, kind):
                return item
    raise AssertionError("the session ended first")


class Played:
    def __init__(self, play: Callable[[Turn], Any]) -> None:
        self._play = play

    async def run(self, turn: Turn) -> Any:
        return await self._play(turn) or "end_turn"


def playing(play: Callable[[Turn], Any]) -> AgentRegistry:
    return AgentRegistry({"default": lambda _: Played(play)})


async def test_a_turn_has_the_id_that_its_caller_chose(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        chosen = ids.new_id()
        assert await hub.turns.submit(LOCAL, id, "hello", turn_id=chosen) == chosen
        assert await hub.turns.wait(LOCAL, id, chosen) == "end_turn"
        (event,) = [
            e for e in await hub.history.events(LOCAL, id) if isinstance(e.body, UserMessage)
        ]
        assert event.id == chosen
        (running, *_) = await bodies(hub, id, "status_changed")
        assert running.turn == chosen


async def test_what_waits_is_told_in_its_order_and_gone_when_it_begins(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        first = await hub.turns.submit(LOCAL, id, "/ask Go on?")
        await until(hub, id, PermissionAsked)
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


async def test_a_session_that_is_held_is_answered_by_its_holder(make_hub: MakeHub) -> None:
    async def shout(turn: Turn) -> None:
        await turn.say(turn.text.upper())

    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        hold = await hub.turns.lease(LOCAL, id, agent=Played(shout))
        await hub.turns.run(LOCAL, id, "quietly")
        await hold.close()
        await hub.turns.run(LOCAL, id, "/say quietly")
        said = [body.content[0].text for body in await bodies(hub, id, "agent_message")]
        assert said == ["QUIETLY", "quietly"]


async def test_a_result_from_outside_is_stored_under_its_own_id(make_hub: MakeHub) -> None:
    seen: list[Event] = []

    async def play(turn: Turn) -> None:
        seen.extend(await turn.result(await turn.tool("weather", custom=True)))

    async with make_hub(agent_registry=playing(play)) as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "go")
        called = await until(hub, id, ToolCall)
        assert isinstance(called.body, ToolCall) and called.body.custom
        result = ToolResult(call_id=called.body.call_id, content=as_content("rain"))
        said = SystemText(id=ids.new_id(), content=as_content("be brief"))
        given = await hub.turns.submit_tool_result(LOCAL, id, result, system=said)
        assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"
        assert [(event.id, type(event.body)) for event in seen] == [
            (given, ToolResult),
            (said.id, SystemMessage),
        ]
        session = await hub.sessions.get(LOCAL, id)
        assert (session.open_calls, session.pending) == ((), ())
        # Nothing waits for it any more, nor ever did elsewhere.
        for principal, call in ((LOCAL, called.body.call_id), (OTHER, called.body.call_id)):
            with pytest.raises(NotFound):
                await hub.turns.submit_tool_result(principal, id, ToolResult(call_id=call))


async def test_a_result_given_twice_counts_once(make_hub: MakeHub) -> None:
    async def play(turn: Turn) -> None:
        call = await turn.tool("weather", custom=True)
        await asyncio.sleep(0.1)  # both are there before either is waited for
        await turn.result(call)

    async with make_hub(agent_registry=playing(play)) as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "go")
        called = await until(hub, id, ToolCall)
        assert isinstance(called.body, ToolCall)
        for text in ("rain", "snow"):
            result = ToolResult(call_id=called.body.call_id, content=as_content(text))
            await hub.turns.submit_tool_result(LOCAL, id, result)
        assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"
        (result,) = await bodies(hub, id, "tool_result")
        assert result.content[0].text == "rain"


async def test_a_system_message_stands_after_its_prompt(make_hub: MakeHub) -> None:
    async def play(turn: Turn) -> None:
        await turn.say(turn.system[0].text)  # type: ignore[union-attr]  # a Text

    async with make_hub(agent_registry=playing(play)) as hub:
        id = (await hub.editor.create(LOCAL)).id
        said = SystemText(id=ids.new_id(), content=as_content("be brief"))
        await hub.turns.wait(LOCAL, id, await hub.turns.submit(LOCAL, id, "hello", system=said))
        events = await hub.history.events(LOCAL, id)
        place = next(i for i, event in enumerate(events) if isinstance(event.body, UserMessage))
        assert (events[place + 1].id, events[place + 1].type) == (said.id, "system_message")
        (answer,) = await bodies(hub, id, "agent_message")
        assert answer.content[0].text == "be brief"


async def test_a_hub_that_is_drained_ends_what_runs_and_begins_nothing(make_hub: MakeHub) -> None:
    hub = make_hub()
    id = (await hub.editor.create(LOCAL)).id
    await hub.turns.submit(LOCAL, id, "/say begun\n/wait 0.3\n/say done")
    await until(hub, id, UserMessage)
    later = await hub.turns.submit(LOCAL, id, "/say later")
    await hub.turns.engine.drain(20, "told to")
    assert (await hub.sessions.get(LOCAL, id)).stop_reason == "end_turn"
    said = [body.content[0].text for body in await bodies(hub, id, "agent_message")]
    assert said == ["begun", "done"]
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


async def test_what_a_drained_hub_has_to_cut_says_why(make_hub: MakeHub) -> None:
    async def play(turn: Turn) -> None:
        await turn.emit(ModelAsked())
        await turn.delta("half a")
        await turn.tool("forever")
        await asyncio.sleep(60)

    async with make_hub(agent_registry=playing(play)) as hub:
        id = (await hub.editor.create(LOCAL)).id
        await hub.turns.submit(LOCAL, id, "go")
        await until(hub, id, ToolCall)
        await hub.turns.engine.drain(0.05, "the house closes")
        (cut,) = await bodies(hub, id, "interrupted")
        assert cut == Interrupted(reason="the house closes")
        session = await hub.sessions.get(LOCAL, id)
        assert (session.status, session.stop_reason, session.open_calls) == ("idle", "error", ())
        (asked,) = [
            e for e in await hub.history.events(LOCAL, id) if isinstance(e.body, ModelAsked)
        ]
        (called,) = await bodies(hub, id, "model_called")
        assert isinstance(called, ModelCalled)
        assert (called.asked, called.is_error) == (asked.id, True)
