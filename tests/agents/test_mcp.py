"""Tests of the model agent with real MCP servers, for local and remote callers."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from segue.acp.wire import HttpMcpServer, StdioMcpServer
from segue.agents.mcp import McpServers
from segue.agents.sandbox import launch
from segue.agents.tools import PathGuard, ToolContext
from segue.model.event import AgentRef
from segue.model.principal import LOCAL
from tests import small_mcp_server

from .conftest import ModelSetup, bodies_of, message_texts
from .provider import Use
from .test_model import REMOTE_CALLER, spec

PROGRAM = str(Path(__file__).parents[1] / "interfaces" / "acp" / "programs" / "adder.py")


@asynccontextmanager
async def over_http() -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, PROGRAM, "http", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}/mcp"
    finally:
        process.kill()
        await process.wait()


def stdio() -> StdioMcpServer:
    return StdioMcpServer(name="adder", command=sys.executable, args=[PROGRAM])


async def test_the_model_calls_a_tool_of_the_clients_server(setup: ModelSetup) -> None:
    async with setup:
        servers = await McpServers.connect([stdio()], str(setup.cwd), sandbox=None)
        assert servers.failures == {}
        session = await setup.session()
        opened = await setup.hub.turns.open(LOCAL, session.id, tools=servers)
        setup.add_scripts([Use("mcp__adder__add", {"a": 2, "b": 40})])
        bodies = await setup.run_prompt("Add", session, opened=opened)
        await setup.run_prompt("Add", session, principal=REMOTE_CALLER, opened=opened)
        await servers.close()
    assert "mcp__adder__add" not in str(
        setup.provider.requests[-1]["tools"]
    )  # remote callers cannot use them
    (call,), (result,) = bodies_of(bodies, "tool_call"), bodies_of(bodies, "tool_result")
    assert (call.server, call.name) == ("adder", "add")
    assert result.content[0].text == "42"
    assert (
        len(bodies_of(bodies, "permission_asked")) == 1
    )  # tools of the client's servers ask for permission
    offered = {tool["name"] for tool in setup.provider.requests[0]["tools"]}
    assert {"mcp__adder__add", "mcp__adder__fail", "read"} <= offered


async def agent(setup: ModelSetup, url: str, **toolset: Any) -> AgentRef:
    tools = [{"type": "mcp_toolset", "mcp_server_name": "adder", **toolset}]
    servers = [{"type": "url", "name": "adder", "url": url}]
    return await spec(setup, tools=tools, mcp_servers=servers)


async def test_an_agents_server_is_connected_over_http_with_its_policies(
    setup: ModelSetup,
) -> None:
    allowed = {
        "default_config": {"enabled": False},
        "configs": [
            {"name": "add", "enabled": True, "permission_policy": {"type": "always_allow"}}
        ],
    }
    async with over_http() as url, setup:
        session = await setup.session(agent=await agent(setup, url, **allowed))
        setup.add_scripts([Use("mcp__adder__add", {"a": 2, "b": 40})])
        bodies = await setup.run_prompt("Add", session)
        again = await setup.run_prompt("And again", session)
    assert bodies_of(bodies, "tool_result")[0].content[0].text == "42"
    assert bodies_of(bodies, "permission_asked") == []
    assert [tool["name"] for tool in setup.provider.requests[0]["tools"]] == ["mcp__adder__add"]
    assert message_texts(again) == ["done"]


async def test_a_remote_callers_agent_cannot_use_a_private_server_address(
    setup: ModelSetup,
) -> None:
    async with over_http() as url, setup:
        session = await setup.session(agent=await agent(setup, url))
        bodies = await setup.run_prompt("Add", session, principal=REMOTE_CALLER)
        await setup.hub.config.set("local", "web.private", "true")
        opened = await setup.run_prompt("Add", session, principal=REMOTE_CALLER)
    (failed,) = bodies_of(bodies, "failed")
    assert failed.code == "mcp_connection_failed_error" and "adder" in failed.message
    assert "tools" not in setup.provider.requests[0] and message_texts(bodies) == ["done"]
    assert bodies_of(opened, "failed") == []


async def test_an_unreachable_server_is_reported_and_the_turn_continues(setup: ModelSetup) -> None:
    async with setup:
        session = await setup.session(agent=await agent(setup, "http://127.0.0.1:9/mcp"))
        bodies = await setup.run_prompt("Add", session)
    assert bodies_of(bodies, "failed")[0].code == "mcp_connection_failed_error"
    assert message_texts(bodies) == ["done"]


async def test_a_server_program_of_a_remote_caller_runs_in_a_sandbox_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bash = StdioMcpServer(
        name="b", command="/bin/bash", args=["-c", f"touch {tmp_path}/out; sleep 5"]
    )
    inside = tmp_path / "inside"
    inside.mkdir()
    context = ToolContext("session", PathGuard([str(inside)]), local=False, config={})
    monkeypatch.setattr("segue.agents.mcp.CONNECT_SECONDS", 1.0)
    if launch.backend(isolated=True) is not None:
        failures = (await McpServers.connect([bash], str(inside), sandbox=context)).failures
        assert set(failures) == {"b"} and not (tmp_path / "out").exists()
    monkeypatch.setattr(launch, "backend", lambda *, isolated: None)
    failures = (await McpServers.connect([bash], str(inside), sandbox=context)).failures
    assert "only its local user" in failures["b"] and not (tmp_path / "out").exists()
    await McpServers.connect([bash], str(inside), sandbox=None)
    assert (tmp_path / "out").exists()


@pytest.mark.parametrize(("code", "warnings"), [(-32603, 1), (-32601, 0)])
async def test_tools_that_cannot_be_listed_are_logged(
    code: int, warnings: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(request: BaseHTTPRequestHandler, body: bytes) -> None:
        message = json.loads(body)
        response = small_mcp_server.answer(message)
        if message["method"] == "tools/list":
            error = {"code": code, "message": "the tools are locked"}
            response = {"jsonrpc": "2.0", "id": message["id"], "error": error}
        small_mcp_server.send(request, 200 if response else 202, response)

    with small_mcp_server.http_server(handle) as url:
        server = HttpMcpServer(name="adder", url=url)
        servers = await McpServers.connect([server], str(tmp_path), sandbox=None)
        try:
            assert await servers.offered() == []
        finally:
            await servers.close()
    assert servers.failures == {}
    messages = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    expected = "the tools of the MCP server adder cannot be listed: the tools are locked"
    assert [message for message in messages if "adder" in message] == [expected] * warnings
