"""Tool calls that workers must not run: those that are denied or have a `user.tool_result`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from segue.agents.base import Turn
from segue.agents.base.turn_hooks import (
    HOOKS_KEY,
    HookedCall,
    PostToolDecision,
    PreToolDecision,
    TurnHooks,
)
from segue.model import ids
from segue.model.event import ToolResult
from tests.agents.provider import Provider, Say, Use
from tests.interfaces.rest.api import Api, message, open_api
from tests.interfaces.rest.test_work import create_environment

TOOLS = {
    "type": "agent_toolset_20260401",
    "configs": [
        {"name": "bash", "enabled": False},
        {"name": "write", "permission_policy": {"type": "always_ask"}},
    ],
}


class RefusingHooks:
    """Hooks that refuse every tool call."""

    async def before_tool(self, turn: Turn, call: HookedCall) -> PreToolDecision:
        return PreToolDecision(refusal="not that")

    async def after_tool(
        self, turn: Turn, call: HookedCall, result: ToolResult
    ) -> PostToolDecision:
        return PostToolDecision()

    async def before_compaction(self, turn: Turn) -> None: ...

    async def before_stop(self, turn: Turn, *, continued: bool) -> str | None: ...


@asynccontextmanager
async def open_with_worker(directory: Path, model: Provider) -> AsyncIterator[tuple[Api, str]]:
    """Return a session whose tools a worker runs."""
    async with model, open_api(directory) as api:
        await api.hub.config.set("local", "model", "anthropic:claude-sonnet-4-6")
        await api.hub.config.set("local", "model.base_url", model.url)
        environment_path = (await create_environment(api)).rpartition("/")[2]
        agent = await api.agent(tools=[TOOLS])
        session = await api.session(agent=agent["id"], environment_id=environment_path)
        yield api, session["id"]


async def wait_for_calls(api: Api, session: str, count: int) -> list[dict[str, Any]]:
    """Wait for a number of tool calls, and return them."""
    async with asyncio.timeout(30):
        while len(events := await api.events(session, **{"types[]": "agent.tool_use"})) < count:
            await asyncio.sleep(0.01)
    return events


async def wait_for_pending(api: Api, session: str) -> None:
    async with asyncio.timeout(30):
        while not (await api.hub.sessions.get(api.principal, ids.parse(session) or "")).pending:
            await asyncio.sleep(0.01)


async def test_unknown_tools_and_calls_that_a_hook_refuses_are_denied(
    tmp_path: Path, model: Provider
) -> None:
    async with open_with_worker(tmp_path, model) as (api, session):
        off, unreadable = Use("bash", {"command": "true"}), Use("read", {}, raw="[1]")
        model.scripts += [[off, Use("delete", {}), unreadable], [Say("no?")]]
        await api.say(session, "on")
        hooks_id = api.hub.agent_registry.hooks.register(TurnHooks(hooks=RefusingHooks()))
        model.scripts += [[Use("glob", {"pattern": "*"})], [Say("no?")]]
        id = ids.parse(session) or ""
        turn = await api.hub.turns.submit(api.principal, id, "on", overrides={HOOKS_KEY: hooks_id})
        await api.hub.turns.wait(api.principal, id, turn)
        called = await wait_for_calls(api, session, 4)
        assert [item["evaluated_permission"] for item in called] == ["deny"] * 4
        for item in called:
            denied = {"type": "deny", "reason_code": "not_permitted"}
            assert item["evaluation"] == {"type": "auto", "evaluated_permission": denied}
        for item in called:
            sent = {"events": [{"type": "user.tool_result", "tool_use_id": item["id"]}]}
            events = await api.fails(400, "POST", f"/v1/sessions/{session}/events", sent)
            assert "does not wait" in events


async def test_call_of_an_ended_turn_has_a_result(tmp_path: Path, model: Provider) -> None:
    async with open_with_worker(tmp_path, model) as (api, session):
        model.scripts.append([Use("read", {"file_path": "a"})])
        await api.send(session, message("on"))
        (call,) = await wait_for_calls(api, session, 1)
        assert call["evaluated_permission"] == "allow"
        await wait_for_pending(api, session)
        await api.send(session, {"type": "user.interrupt"})
        await api.hub.turns.engine.wait_idle()
        (result,) = await api.events(session, **{"types[]": "agent.tool_result"})
        assert (result["tool_use_id"], result["is_error"]) == (call["id"], True)
        # The server writes nothing in a client's name.
        assert not await api.events(session, **{"types[]": "user.tool_result"})


async def test_call_allowed_with_another_input_does_not_run_with_the_original_input(
    tmp_path: Path, model: Provider
) -> None:
    async with open_with_worker(tmp_path, model) as (api, session):
        model.scripts += [[Use("write", {"file_path": "a", "content": "b"})], [Say("no?")]]
        await api.send(session, message("on"))
        (call,) = await wait_for_calls(api, session, 1)
        assert call["evaluated_permission"] == "ask"
        await wait_for_pending(api, session)
        results = await api.hub.sessions.get(api.principal, ids.parse(session) or "")
        (ask,) = results.open_asks
        changed = {"file_path": "c", "content": "d"}
        await api.hub.turns.answer(api.principal, results.id, ask, "allow", input=changed)
        async with asyncio.timeout(30):
            await api.hub.turns.engine.wait_idle()
        (sent,) = await api.events(session, **{"types[]": "user.tool_confirmation"})
        assert (sent["tool_use_id"], sent["result"]) == (call["id"], "deny")
        assert "runs on a remote worker" in str(model.requests[1]["messages"])
