"""Answers and results that arrive while another call of the same response still runs."""

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from segue.model.content import as_content
from segue.model.event import ToolCall, ToolResult
from segue.model.principal import LOCAL
from segue.model.session import Session

from .conftest import TIMEOUT_SECONDS, ModelSetup, bodies_of, message_texts
from .provider import Say, Use

WEATHER = {"type": "custom", "name": "weather", "description": "?", "input_schema": {}}
TOOLSET = {
    "type": "agent_toolset_20260401",
    "default_config": {"permission_policy": {"type": "always_allow"}},
    "configs": [{"name": "write", "permission_policy": {"type": "always_ask"}}],
}
SLOW = Use("bash", {"command": "until [ -e go ]; do sleep 0.02; done"})
WRITE = Use("write", {"file_path": "b.txt", "content": "x"})


async def start(setup: ModelSetup) -> str:
    """Start a turn with a slow call, one that needs permission and one that a client runs."""
    agent = await setup.hub.records.built_in_agent("local")
    agent = replace(agent, overrides={"tools": [TOOLSET, WEATHER]})
    session = await setup.session(agent=agent)
    setup.add_scripts([SLOW, WRITE, Use("weather", {"city": "Oslo"})], [Say("done")])
    await setup.hub.turns.submit(LOCAL, session.id, "Go")
    row = await until(setup, session.id, lambda row: row.open_asks)
    await setup.hub.turns.answer(LOCAL, session.id, row.open_asks[0], "allow")
    return session.id


async def until(setup: ModelSetup, id: str, condition: Callable[[Session], Any]) -> Session:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not condition(row := await setup.hub.sessions.get(LOCAL, id)):
            await asyncio.sleep(0.01)
    return row


async def send_weather(setup: ModelSetup, id: str) -> None:
    bodies = [event.body for event in await setup.hub.history.events(LOCAL, id)]
    (call,) = [b for b in bodies if isinstance(b, ToolCall) and b.custom]
    result = ToolResult(call_id=call.call_id, content=as_content("rain"))
    await setup.hub.turns.submit_tool_result(LOCAL, id, result)


async def finish(setup: ModelSetup, id: str) -> list[Any]:
    """Return the bodies of a session's events, once its turn has ended."""
    await until(setup, id, lambda row: row.turn is None)
    bodies = [event.body for event in await setup.hub.history.events(LOCAL, id)]
    assert message_texts(bodies) == ["done"]
    assert [b.status for b in bodies_of(bodies, "tool_result")] == ["completed"] * 3
    assert len(bodies_of(bodies, "permission_answered")) == 1
    assert len(setup.provider.requests) == 2
    return bodies


async def test_answer_and_result_are_stored_while_a_parallel_tool_runs(
    setup: ModelSetup,
) -> None:
    async with setup:
        id = await start(setup)
        await send_weather(setup, id)
        row = await until(setup, id, lambda row: not row.open_asks and len(row.open_calls) == 2)
        assert row.status == "running"
        (setup.cwd / "go").touch()
        bodies = await finish(setup, id)
        # The turn had nothing to wait for when the slow call ended.
        reasons = [body.stop_reason for body in bodies_of(bodies, "status_changed")]
        assert [reason for reason in reasons if reason] == ["end_turn"]


async def test_allowed_call_runs_while_a_client_still_runs_another(setup: ModelSetup) -> None:
    async with setup:
        id = await start(setup)
        await until(setup, id, lambda row: not row.open_asks)
        (setup.cwd / "go").touch()
        await until(setup, id, lambda row: len(row.open_calls) == 1)
        assert (setup.cwd / "b.txt").read_text() == "x"
        await until(setup, id, lambda row: row.status == "idle" and row.pending == row.open_calls)
        await send_weather(setup, id)
        await finish(setup, id)


async def test_process_that_stops_after_an_answer_does_not_leave_the_turn_running(
    setup: ModelSetup,
) -> None:
    async with setup:
        id = await start(setup)
        await send_weather(setup, id)
        await until(setup, id, lambda row: not row.open_asks and len(row.open_calls) == 2)
        await setup.hub.turns.engine.drain(0.1, "the server stops")
        row = await setup.hub.sessions.get(LOCAL, id)
        assert (row.status, row.turn) == ("idle", None)
        assert await setup.hub.store.leases() == []
