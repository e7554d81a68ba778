"""What another agent asks of its client, passed on to the editor at our door."""

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
from tests.interfaces.acp.testbed import House

PROGRAM = Path(__file__).parent.parent.parent / "agents" / "acp" / "programs" / "asking.py"
EVERYTHING = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "elicitation": {"form": {}, "url": {}},
}


def agent(told: object = 1) -> str:
    return f"acp:{shlex.join([sys.executable, str(PROGRAM)])} {told}"


def saying(version: int, **capabilities: Any) -> dict[str, Any]:
    """What a client says of itself when it greets."""
    return {"clientCapabilities" if version == 1 else "capabilities": capabilities}


async def asking(client: Client, id: str, *requests: Any) -> list[Any]:
    """What the agent was answered."""
    before = len(client.log)
    assert await client.run(id, json.dumps(requests)) == "end_turn"
    said = [words for who, words in conversation(client.updates(before)) if who == "agent"]
    found: list[Any] = json.loads(said[-1])
    return found


async def test_an_editor_s_files_are_read_and_written_there(house: House) -> None:
    async with house.child(1, "--agent", agent(), greet=False) as (client, _):
        await client.initialize(**saying(1, **EVERYTHING))
        client.can = {
            "fs/read_text_file": lambda params: {"content": "not saved yet"},
            "fs/write_text_file": lambda params: {},
        }
        id = await client.new(house.directory)
        path = str(house.directory / "a")
        read = {"path": path, "line": 3, "limit": 5}
        write = {"path": path, "content": "new"}
        found = await asking(client, id, ["fs/read_text_file", read], ["fs/write_text_file", write])
        assert found == [{"content": "not saved yet"}, {}]
        assert client.wanted == [
            ("fs/read_text_file", {"sessionId": id, **read}),
            ("fs/write_text_file", {"sessionId": id, **write}),
        ]
        assert client.asked == [] and not Path(path).exists()


async def test_each_is_asked_of_the_editor_only_if_it_can(house: House) -> None:
    async with house.child(1, "--agent", agent(), greet=False) as (client, _):
        await client.initialize(**saying(1, fs={"readTextFile": True}))
        client.can = {"fs/read_text_file": lambda params: {"content": "theirs"}}
        id = await client.new(house.directory)
        path = house.directory / "a"
        given, read, wrote, terminal = await asking(
            client,
            id,
            ["capabilities", {}],
            ["fs/read_text_file", {"path": str(path)}],
            ["fs/write_text_file", {"path": str(path), "content": "ours"}],
            ["terminal/create", {"command": "true"}],
        )
        assert given["fs"] == {"readTextFile": True, "writeTextFile": True}
        assert given["terminal"] is False and "elicitation" not in given
        assert read == {"content": "theirs"} and wrote == {}
        assert path.read_text() == "ours"
        assert [each["toolCall"]["title"] for each in client.asked] == [f"Write {path}"]
        assert terminal["code"] == -32601


async def test_what_the_editor_refuses_the_agent_is_refused(house: House) -> None:
    async with house.child(1, "--agent", agent(), greet=False) as (client, _):
        await client.initialize(**saying(1, **EVERYTHING))
        gone = {"code": -32002, "message": "no such file", "data": {"uri": "/a"}}
        client.can = {"fs/read_text_file": lambda params: gone}
        id = await client.new("/")
        assert await asking(client, id, ["fs/read_text_file", {"path": "/a"}]) == [gone]


async def test_terminals_are_the_editor_s_and_what_they_show_is_kept(house: House) -> None:
    shown = {"output": "3 passed\n", "truncated": False, "exitStatus": {"exitCode": 0}}
    async with house.child(1, "--agent", agent(), greet=False) as (client, _):
        await client.initialize(**saying(1, **EVERYTHING))
        client.can = {
            "terminal/create": lambda params: {"terminalId": "t-7"},
            "terminal/wait_for_exit": lambda params: {"exitCode": 0},
            "terminal/output": lambda params: shown,
            "terminal/kill": lambda params: {},
            "terminal/release": lambda params: {},
        }
        id = await client.new(house.directory)
        call = {"toolCallId": "c", "title": "Test"}
        begun = {"sessionUpdate": "tool_call", **call, "status": "in_progress"}
        ended = {"sessionUpdate": "tool_call_update", **call, "status": "completed"}
        content = [{"type": "terminal", "terminalId": "t-7"}]
        created = {"command": "pytest", "args": ["-q"], "cwd": str(house.directory)}
        found = await asking(
            client,
            id,
            ["terminal/create", created],
            ["session/update", {**begun, "content": content}],
            ["terminal/wait_for_exit", {"terminalId": "$"}],
            ["terminal/kill", {"terminalId": "$"}],
            ["terminal/release", {"terminalId": "$"}],
            ["session/update", ended],
        )
        assert found == [{"terminalId": "t-7"}, {"exitCode": 0}, {}, {}]
        named = {"sessionId": id, "terminalId": "t-7"}
        assert client.wanted == [
            ("terminal/create", {"sessionId": id, **created}),
            ("terminal/wait_for_exit", named),
            ("terminal/kill", named),
            ("terminal/output", named),  # before it is gone
            ("terminal/release", named),
        ]
    async with house.hub() as hub:
        (result,) = await hub.history.events(LOCAL, id, types=["tool_result"])
        assert "3 passed" in str(result.body.content)


@pytest.mark.parametrize("child", [1, 2])
async def test_forms_are_shown_by_the_editor(house: House, version: int, child: int) -> None:
    async with house.child(version, "--agent", agent(child), greet=False) as (client, _):
        forms = {"form": {}, "url": {}}
        await client.initialize(**saying(version, elicitation=forms))
        filled = {"action": "accept", "content": {"name": "segue"}}
        client.can = {"elicitation/create": lambda params: filled}
        id = await client.new("/")
        name = {"type": "string", "title": "Name"}
        schema = {"properties": {"name": name}}
        form = {"mode": "form", "message": "Who?", "requestedSchema": schema}
        page = {"mode": "url", "message": "Go", "elicitationId": "e1", "url": "https://a.example/"}
        given, *found = await asking(
            client,
            id,
            ["capabilities", {}],
            ["elicitation/create", {**form, "toolCallId": "c"}],
            ["elicitation/create", page],
            ["!elicitation/complete", {"elicitationId": "e1"}],
            ["elicitation/create", {"sessionId": None, "requestId": 1, **form}],
        )
        assert given["elicitation"] == forms and ("fs" in given) is (child == 1)
        assert found == [filled, filled, {"action": "cancel"}]
        asked = {"type": "object", "properties": {"name": name}}
        assert client.wanted == [
            ("elicitation/create", {"sessionId": id, **form, "requestedSchema": asked}),
            ("elicitation/create", {"sessionId": id, **page}),
            ("elicitation/complete", {"elicitationId": "e1"}),
        ]


async def test_what_the_agent_takes_back_is_taken_back_there(house: House) -> None:
    async with house.child(1, "--agent", agent(), greet=False) as (client, _):
        await client.initialize(**saying(1, **EVERYTHING))
        client.can = {"elicitation/create": lambda params: None}  # somebody is still thinking
        id = await client.new("/")
        page = {"mode": "url", "message": "Go", "elicitationId": "e1", "url": "https://a.example/"}
        text = json.dumps([["elicitation/create", page]])
        request = await client.post("session/prompt", client.prompting(id, text))
        await client.eventually(lambda: bool(client.wanted))
        await client.tell("session/cancel", {"sessionId": id})
        assert await client.answer(request) == {"stopReason": "cancelled"}
        await client.eventually(lambda: bool(client.withdrawn))


async def test_a_form_goes_with_the_turn_that_it_belongs_to(house: House) -> None:
    async with house.child(1, "--agent", agent("1 patient"), greet=False) as (client, _):
        await client.initialize(**saying(1, **EVERYTHING))
        client.can = {"elicitation/create": lambda params: None}
        id = await client.new("/")
        form = {"mode": "form", "message": "Who?", "requestedSchema": {}}
        text = json.dumps([["elicitation/create", form]])
        request = await client.post("session/prompt", client.prompting(id, text))
        await client.eventually(lambda: bool(client.wanted))
        await client.tell("session/cancel", {"sessionId": id})
        assert await client.answer(request) == {"stopReason": "cancelled"}
        await client.eventually(lambda: bool(client.withdrawn))
        # The agent had its answer, and is still the same.
        client.can["elicitation/create"] = lambda params: {"action": "decline"}
        found = await asking(client, id, ["elicitation/create", form], ["count", {}])
        assert found == [{"action": "decline"}, 2]


async def test_closing_takes_back_what_is_still_asked(house: House, version: int) -> None:
    async with house.child(version, "--agent", agent(), greet=False) as (client, _):
        await client.initialize(**saying(version, elicitation={"form": {}}))
        client.can = {"elicitation/create": lambda params: None}
        id = await client.new("/")
        form = {"mode": "form", "message": "Who?", "requestedSchema": {}}
        text = json.dumps([["elicitation/create", form]])
        await client.post("session/prompt", client.prompting(id, text))
        await client.eventually(lambda: bool(client.wanted))
        async with asyncio.timeout(30):
            await client.ask("session/close", {"sessionId": id})
        assert len(client.withdrawn) == 1
