"""Cancel turns: what is stored, what the agent can still do, and what the queue keeps."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from segue.agents.base import Turn
from segue.hub import Hub
from segue.model import ids
from segue.model.errors import LeaseLost, StoreUnreachable
from segue.model.event import (
    AgentRef,
    Delta,
    PermissionAsked,
    ToolCall,
    UserMessage,
)
from segue.model.principal import LOCAL
from segue.store.base import InboxItem
from segue.store.memory import MemoryStore
from tests.hub.scripted_turns import MakeHub, read_bodies, registry_with, wait_for


async def test_cancel_stores_the_partial_message(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "/slow 0.02\n/say " + "word " * 500)
        async with asyncio.timeout(20):
            async for item in hub.history.follow(LOCAL, id, deltas=True):
                if isinstance(item, Delta):
                    break
        await hub.turns.cancel(LOCAL, id)
        assert await hub.turns.wait(LOCAL, id, turn) == "cancelled"
        *_, message, interrupted, rest = await hub.history.events(LOCAL, id)
        assert message.body.partial and message.body.content[0].text.startswith("word ")
        assert (interrupted.type, rest.body.stop_reason) == ("interrupted", "cancelled")
        session = await hub.sessions.get(LOCAL, id)
        assert (session.status, session.turn) == ("idle", None)
        assert await hub.turns.run(LOCAL, id, "and now?") == "end_turn"


async def test_cancel_ends_open_calls_and_permission_requests(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "/ask really?")
        await wait_for(hub, id, lambda body: isinstance(body, PermissionAsked))
        await hub.turns.cancel(LOCAL, id)
        assert await hub.turns.wait(LOCAL, id, turn) == "cancelled"
        session = await hub.sessions.get(LOCAL, id)
        assert (session.open_calls, session.open_asks, session.pending) == ((), (), ())


async def test_cancel_removes_queued_prompts_but_not_later_ones(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        running = await hub.turns.submit(LOCAL, id, "/wait 60")
        waiting = await hub.turns.submit(LOCAL, id, "queued")
        await wait_for(hub, id, lambda body: isinstance(body, UserMessage))
        await hub.turns.cancel(LOCAL, id)
        later = await hub.turns.submit(LOCAL, id, "later")
        stop_reasons = [await hub.turns.wait(LOCAL, id, turn) for turn in (running, waiting, later)]
        assert stop_reasons == ["cancelled", "cancelled", "end_turn"]
        texts = [body.content[0].text for body in await read_bodies(hub, id, "user_message")]
        assert texts == ["/wait 60", "later"]


async def test_cancel_without_a_turn_does_nothing(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        session = await hub.editor.create(LOCAL)
        await hub.turns.cancel(LOCAL, session.id)
        assert await hub.sessions.get(LOCAL, session.id) == session
        assert await hub.turns.run(LOCAL, session.id, "hello") == "end_turn"


async def test_queued_prompt_can_be_withdrawn_but_not_a_running_one(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        running = await hub.turns.submit(LOCAL, id, "/wait 60")
        waiting = await hub.turns.submit(LOCAL, id, "never")
        await wait_for(hub, id, lambda body: isinstance(body, UserMessage))
        assert await hub.turns.withdraw(LOCAL, id, waiting)
        assert not await hub.turns.withdraw(LOCAL, id, running)
        assert await hub.turns.wait(LOCAL, id, waiting) == "cancelled"
        await hub.turns.cancel(LOCAL, id)
        assert await hub.turns.wait(LOCAL, id, running) == "cancelled"


async def test_agent_that_ignores_its_cancellation_cannot_write_afterwards(
    make_hub: MakeHub,
) -> None:
    late: list[type[BaseException]] = []
    begun, released = asyncio.Event(), asyncio.Event()

    async def play(turn: Turn) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await released.wait()
            try:
                await turn.send_message("too late")
            except LeaseLost:
                late.append(LeaseLost)

    async with make_hub(agent_registry=registry_with(play)) as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "x")
        await begun.wait()
        await hub.turns.cancel(LOCAL, id)
        assert await hub.turns.wait(LOCAL, id, turn) == "cancelled"
        released.set()
        while not late:
            await asyncio.sleep(0)
        assert await read_bodies(hub, id, "agent_message") == []


async def test_change_that_the_store_runs_late_is_not_part_of_a_cancelled_turn(
    make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may run a change although its caller was cancelled meanwhile."""
    emitting, late = asyncio.Event(), asyncio.Event()
    tasks: list[asyncio.Task[Any]] = []

    async def play(turn: Turn) -> None:
        emitting.set()
        await turn.emit(ToolCall(call_id="c", name="look"))

    async with make_hub(agent_registry=registry_with(play)) as hub:
        change, release = hub.store.change, hub.store.release

        async def change_late(*args: Any, consume: Any = (), **options: Any) -> Any:
            if consume or not emitting.is_set():
                return await change(*args, consume=consume, **options)

            async def wait_and_change() -> Any:
                await late.wait()
                return await change(*args, **options)

            tasks.append(asyncio.create_task(wait_and_change()))
            return await asyncio.shield(tasks[-1])

        async def change_and_release(*args: Any) -> None:
            late.set()
            await asyncio.gather(*tasks, return_exceptions=True)
            await release(*args)

        id = (await hub.editor.create(LOCAL)).id
        monkeypatch.setattr(hub.store, "change", change_late)
        monkeypatch.setattr(hub.store, "release", change_and_release)
        turn = await hub.turns.submit(LOCAL, id, "x")
        await emitting.wait()
        await hub.turns.cancel(LOCAL, id)
        assert await hub.turns.wait(LOCAL, id, turn) == "cancelled"
        while not tasks or not tasks[0].done():
            await asyncio.sleep(0)
        assert isinstance(tasks[0].exception(), LeaseLost)
        assert await read_bodies(hub, id, "tool_call") == []


async def test_process_that_lost_its_lease_does_not_update_the_session_model(
    make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make_hub() as hub:
        session = await hub.editor.create(LOCAL)
        await hub.config.set("local", "model", "anthropic:claude-haiku-4-5")
        built_in_agent = hub.records.built_in_agent

        async def lose_lease(workspace: str) -> AgentRef:
            lease = await hub.store.lease_of("local", session.id)
            assert lease is not None
            await hub.store.release(lease)
            assert await hub.store.acquire("local", session.id, "another")
            return await built_in_agent(workspace)

        monkeypatch.setattr(hub.records, "built_in_agent", lose_lease)
        turn = await hub.turns.submit(LOCAL, session.id, "x")
        while (lease := await hub.store.lease_of("local", session.id)) is None or (
            lease.holder != "another" or hub.turns.engine.running
        ):
            await asyncio.sleep(0.01)
        await hub.turns.withdraw(LOCAL, session.id, turn)
        await hub.turns.engine.wait_idle()
        assert (await built_in_agent("local")).version == 2
        assert await hub.sessions.get(LOCAL, session.id) == session


class UnreachableInbox(MemoryStore):
    """A store whose inbox cannot be read while `is_down` is set."""

    is_down = False

    async def inbox(self, workspace: str, id: str) -> list[InboxItem]:
        if self.is_down:
            raise StoreUnreachable("the database does not answer")
        return await super().inbox(workspace, id)


async def test_agent_stops_when_the_store_cannot_be_reached(tmp_path: Path) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def agent(turn: Turn) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    store = UnreachableInbox()
    async with Hub(store, tmp_path, agent_registry=registry_with(agent)) as hub:
        id = (await hub.editor.create(LOCAL)).id
        await hub.turns.submit(LOCAL, id, "go")
        async with asyncio.timeout(20):
            await started.wait()
            store.is_down = True
            await store.put_inbox("local", id, "cancel", ids.new_id(), {})  # wakes the turn
            await stopped.wait()
        store.is_down = False
