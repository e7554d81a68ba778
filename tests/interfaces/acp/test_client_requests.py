"""Requests of an external agent to its client, which segue passes to the ACP client."""

import asyncio
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from segue.model.principal import LOCAL
from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.harness import Client
from tests.interfaces.acp.testbed import AcpTestbed

PROGRAM = Path(__file__).parent.parent.parent / "agents" / "acp" / "programs" / "asking.py"
EVERYTHING = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "elicitation": {"form": {}, "url": {}},
}


def agent(arguments: object = 1) -> str:
    """Return the agent option for the program asking.py."""
    return f"acp:{shlex.join([sys.executable, str(PROGRAM)])} {arguments}"


def client_capabilities(version: int, **capabilities: Any) -> dict[str, Any]:
    """Return the parameter of `initialize` with the client's capabilities."""
    return {"clientCapabilities" if version == 1 else "capabilities": capabilities}


async def send_agent_requests(client: Client, id: str, *requests: Any) -> list[Any]:
    """Have the agent send requests to its client, and return the answers."""
    before = len(client.log)
    assert await client.run_prompt(id, json.dumps(requests)) == "end_turn"
    replies = [text for role, text in conversation(client.updates(before)) if role == "agent"]
    answers: list[Any] = json.loads(replies[-1])
    return answers


async def test_agent_reads_and_writes_files_through_the_client(testbed: AcpTestbed) -> None:
    async with testbed.connect_child(1, "--agent", agent(), initialize=False) as (client, _):
        await client.initialize(**client_capabilities(1, **EVERYTHING))
        client.request_handlers = {
            "fs/read_text_file": lambda params: {"content": "not saved yet"},
            "fs/write_text_file": lambda params: {},
        }
        id = await client.new_session(testbed.directory)
        path = str(testbed.directory / "a")
        read = {"path": path, "line": 3, "limit": 5}
        write = {"path": path, "content": "new"}
        answers = await send_agent_requests(
            client, id, ["fs/read_text_file", read], ["fs/write_text_file", write]
        )
        assert answers == [{"content": "not saved yet"}, {}]
        assert client.agent_requests == [
            ("fs/read_text_file", {"sessionId": id, **read}),
            ("fs/write_text_file", {"sessionId": id, **write}),
        ]
        assert client.permission_requests == [] and not Path(path).exists()


async def test_client_gets_only_requests_that_it_supports(testbed: AcpTestbed) -> None:
    async with testbed.connect_child(1, "--agent", agent(), initialize=False) as (client, _):
        await client.initialize(**client_capabilities(1, fs={"readTextFile": True}))
        client.request_handlers = {"fs/read_text_file": lambda params: {"content": "theirs"}}
        id = await client.new_session(testbed.directory)
        path = testbed.directory / "a"
        capabilities, read, wrote, terminal = await send_agent_requests(
            client,
            id,
            ["capabilities", {}],
            ["fs/read_text_file", {"path": str(path)}],
            ["fs/write_text_file", {"path": str(path), "content": "ours"}],
            ["terminal/create", {"command": "true"}],
        )
        assert capabilities["fs"] == {"readTextFile": True, "writeTextFile": True}
        assert capabilities["terminal"] is False and "elicitation" not in capabilities
        assert read == {"content": "theirs"} and wrote == {}
        assert path.read_text() == "ours"
        assert [request["toolCall"]["title"] for request in client.permission_requests] == [
            f"Write {path}"
        ]
        assert terminal["code"] == -32601


async def test_agent_gets_the_error_of_the_client(testbed: AcpTestbed) -> None:
    async with testbed.connect_child(1, "--agent", agent(), initialize=False) as (client, _):
        await client.initialize(**client_capabilities(1, **EVERYTHING))
        error = {"code": -32002, "message": "no such file", "data": {"uri": "/a"}}
        client.request_handlers = {"fs/read_text_file": lambda params: error}
        id = await client.new_session("/")
        assert await send_agent_requests(client, id, ["fs/read_text_file", {"path": "/a"}]) == [
            error
        ]


async def test_agent_uses_the_client_s_terminals_and_output_is_stored(testbed: AcpTestbed) -> None:
    terminal_output = {"output": "3 passed\n", "truncated": False, "exitStatus": {"exitCode": 0}}
    async with testbed.connect_child(1, "--agent", agent(), initialize=False) as (client, _):
        await client.initialize(**client_capabilities(1, **EVERYTHING))
        client.request_handlers = {
            "terminal/create": lambda params: {"terminalId": "t-7"},
            "terminal/wait_for_exit": lambda params: {"exitCode": 0},
            "terminal/output": lambda params: terminal_output,
            "terminal/kill": lambda params: {},
            "terminal/release": lambda params: {},
        }
        id = await client.new_session(testbed.directory)
        call = {"toolCallId": "c", "title": "Test"}
        begun = {"sessionUpdate": "tool_call", **call, "status": "in_progress"}
        ended = {"sessionUpdate": "tool_call_update", **call, "status": "completed"}
        content = [{"type": "terminal", "terminalId": "t-7"}]
        created = {"command": "pytest", "args": ["-q"], "cwd": str(testbed.directory)}
        answers = await send_agent_requests(
            client,
            id,
            ["terminal/create", created],
            ["session/update", {**begun, "content": content}],
            ["terminal/wait_for_exit", {"terminalId": "$"}],
            ["terminal/kill", {"terminalId": "$"}],
            ["terminal/release", {"terminalId": "$"}],
            ["session/update", ended],
        )
        assert answers == [{"terminalId": "t-7"}, {"exitCode": 0}, {}, {}]
        named = {"sessionId": id, "terminalId": "t-7"}
        assert client.agent_requests == [
            ("terminal/create", {"sessionId": id, **created}),
            ("terminal/wait_for_exit", named),
            ("terminal/kill", named),
            ("terminal/output", named),  # before the terminal is released
            ("terminal/release", named),
        ]
    async with testbed.hub() as hub:
        (result,) = await hub.history.events(LOCAL, id, types=["tool_result"])
        assert "3 passed" in str(result.body.content)


@pytest.mark.parametrize("child", [1, 2])
async def test_client_shows_the_agent_s_forms(
    testbed: AcpTestbed, version: int, child: int
) -> None:
    async with testbed.connect_child(version, "--agent", agent(child), initialize=False) as (
        client,
        _,
    ):
        forms = {"form": {}, "url": {}}
        await client.initialize(**client_capabilities(version, elicitation=forms))
        filled = {"action": "accept", "content": {"name": "segue"}}
        client.request_handlers = {"elicitation/create": lambda params: filled}
        id = await client.new_session("/")
        name = {"type": "string", "title": "Name"}
        schema = {"properties": {"name": name}}
        form = {"mode": "form", "message": "Who?", "requestedSchema": schema}
        page = {"mode": "url", "message": "Go", "elicitationId": "e1", "url": "https://a.example/"}
        capabilities, *answers = await send_agent_requests(
            client,
            id,
            ["capabilities", {}],
            ["elicitation/create", {**form, "toolCallId": "c"}],
            ["elicitation/create", page],
            ["!elicitation/complete", {"elicitationId": "e1"}],
            ["elicitation/create", {"sessionId": None, "requestId": 1, **form}],
        )
        assert capabilities["elicitation"] == forms and ("fs" in capabilities) is (child == 1)
        assert answers == [filled, filled, {"action": "cancel"}]
        requested_schema = {"type": "object", "properties": {"name": name}}
        assert client.agent_requests == [
            ("elicitation/create", {"sessionId": id, **form, "requestedSchema": requested_schema}),
            ("elicitation/create", {"sessionId": id, **page}),
            ("elicitation/complete", {"elicitationId": "e1"}),
        ]


async def test_request_that_the_agent_cancels_is_cancelled_in_the_client(
    testbed: AcpTestbed,
) -> None:
    async with testbed.connect_child(1, "--agent", agent(), initialize=False) as (client, _):
        await client.initialize(**client_capabilities(1, **EVERYTHING))
        client.request_handlers = {"elicitation/create": lambda params: None}  # no answer yet
        id = await client.new_session("/")
        page = {"mode": "url", "message": "Go", "elicitationId": "e1", "url": "https://a.example/"}
        text = json.dumps([["elicitation/create", page]])
        request = await client.send_request("session/prompt", client.prompt_params(id, text))
        await client.wait_until(lambda: bool(client.agent_requests))
        await client.notify("session/cancel", {"sessionId": id})
        assert await client.wait_response(request) == {"stopReason": "cancelled"}
        await client.wait_until(lambda: bool(client.cancelled_requests))


async def test_form_is_cancelled_with_its_turn(testbed: AcpTestbed) -> None:
    async with testbed.connect_child(1, "--agent", agent("1 patient"), initialize=False) as (
        client,
        _,
    ):
        await client.initialize(**client_capabilities(1, **EVERYTHING))
        client.request_handlers = {"elicitation/create": lambda params: None}
        id = await client.new_session("/")
        form = {"mode": "form", "message": "Who?", "requestedSchema": {}}
        text = json.dumps([["elicitation/create", form]])
        request = await client.send_request("session/prompt", client.prompt_params(id, text))
        await client.wait_until(lambda: bool(client.agent_requests))
        await client.notify("session/cancel", {"sessionId": id})
        assert await client.wait_response(request) == {"stopReason": "cancelled"}
        await client.wait_until(lambda: bool(client.cancelled_requests))
        # The agent received an answer, and its process still runs.
        client.request_handlers["elicitation/create"] = lambda params: {"action": "decline"}
        answers = await send_agent_requests(client, id, ["elicitation/create", form], ["count", {}])
        assert answers == [{"action": "decline"}, 2]


async def test_close_cancels_open_requests_to_the_client(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_child(version, "--agent", agent(), initialize=False) as (client, _):
        await client.initialize(**client_capabilities(version, elicitation={"form": {}}))
        client.request_handlers = {"elicitation/create": lambda params: None}
        id = await client.new_session("/")
        form = {"mode": "form", "message": "Who?", "requestedSchema": {}}
        text = json.dumps([["elicitation/create", form]])
        await client.send_request("session/prompt", client.prompt_params(id, text))
        await client.wait_until(lambda: bool(client.agent_requests))
        async with asyncio.timeout(30):
            await client.request("session/close", {"sessionId": id})
        assert len(client.cancelled_requests) == 1
