"""MCP servers with the model agent: real ones over pipes and HTTP, for the local user and not."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from segue.acp.wire import StdioMcpServer
from segue.agents.mcp import McpServers
from segue.agents.tools import sandbox
from segue.model.event import AgentRef
from segue.model.principal import LOCAL

from .conftest import House, of, said
from .provider import Use
from .test_model import STRANGER, spec

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


async def test_the_model_calls_a_tool_of_a_server_that_the_client_brought(house: House) -> None:
    async with house:
        servers, failures = await McpServers.connect([stdio()], str(house.place), local=True)
        assert failures == {}
        session = await house.session()
        await house.hub.turns.lease(LOCAL, session.id, tools=servers)
        house.answers([Use("adder__add", {"a": 2, "b": 40})])
        bodies = await house.play("Add", session)
        await house.play("Add", session, principal=STRANGER)
        await servers.close()
    assert "adder__add" not in str(house.provider.requests[-1]["tools"])  # they are not theirs
    (call,), (result,) = of(bodies, "tool_call"), of(bodies, "tool_result")
    assert (call.server, call.name) == ("adder", "add")
    assert result.content[0].text == "42"
    assert len(of(bodies, "permission_asked")) == 1  # servers that clients bring ask first
    offered = {tool["name"] for tool in house.provider.requests[0]["tools"]}
    assert {"adder__add", "adder__fail", "read"} <= offered


async def agent(house: House, url: str, **toolset: Any) -> AgentRef:
    tools = [{"type": "mcp_toolset", "mcp_server_name": "adder", **toolset}]
    servers = [{"type": "url", "name": "adder", "url": url}]
    return await spec(house, tools=tools, mcp_servers=servers)


async def test_an_agent_s_own_server_is_connected_over_http_with_its_policies(
    house: House,
) -> None:
    allowed = {
        "default_config": {"enabled": False},
        "configs": [
            {"name": "add", "enabled": True, "permission_policy": {"type": "always_allow"}}
        ],
    }
    async with over_http() as url, house:
        session = await house.session(agent=await agent(house, url, **allowed))
        house.answers([Use("adder__add", {"a": 2, "b": 40})])
        bodies = await house.play("Add", session)
        again = await house.play("And again", session)
    assert of(bodies, "tool_result")[0].content[0].text == "42"
    assert of(bodies, "permission_asked") == []
    assert [tool["name"] for tool in house.provider.requests[0]["tools"]] == ["adder__add"]
    assert said(again) == ["done"]


async def test_a_stranger_s_agent_reaches_no_server_at_a_private_address(house: House) -> None:
    async with over_http() as url, house:
        session = await house.session(agent=await agent(house, url))
        bodies = await house.play("Add", session, principal=STRANGER)
        await house.hub.config.set("local", "web.private", "true")
        opened = await house.play("Add", session, principal=STRANGER)
    (failed,) = of(bodies, "failed")
    assert failed.code == "mcp_connection_failed_error" and "adder" in failed.message
    assert "tools" not in house.provider.requests[0] and said(bodies) == ["done"]
    assert of(opened, "failed") == []


async def test_a_server_that_is_not_there_is_told_and_the_turn_goes_on(house: House) -> None:
    async with house:
        session = await house.session(agent=await agent(house, "http://127.0.0.1:9/mcp"))
        bodies = await house.play("Add", session)
    assert of(bodies, "failed")[0].code == "mcp_connection_failed_error"
    assert said(bodies) == ["done"]


async def test_for_a_stranger_a_program_runs_confined_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bash = StdioMcpServer(
        name="b", command="/bin/bash", args=["-c", f"touch {tmp_path}/out; sleep 5"]
    )
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.setattr("segue.agents.mcp.CONNECT_SECONDS", 1.0)
    if sandbox.backend(isolated=True) is not None:
        _, failures = await McpServers.connect([bash], str(inside), local=False)
        assert set(failures) == {"b"} and not (tmp_path / "out").exists()
    monkeypatch.setattr(sandbox, "backend", lambda *, isolated: None)
    _, failures = await McpServers.connect([bash], str(inside), local=False)
    assert "only its local user" in failures["b"] and not (tmp_path / "out").exists()
    _, failures = await McpServers.connect([bash], str(inside), local=True)
    assert (tmp_path / "out").exists()
