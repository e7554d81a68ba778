"""The SDK for agent authors: declarations, tools, plans, the client and hooks."""

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.model.content import Diff, FileChange
from segue.model.event import ToolResult
from segue.model.principal import LOCAL
from tests.interfaces.acp.harness import Client, ErrorResponse, selected
from tests.interfaces.acp.test_serve import EXAMPLES, program
from tests.interfaces.acp.testbed import AcpTestbed

GARDENER = EXAMPLES / "gardener_agent.py"
DECLARING = str(Path(__file__).parent / "programs" / "declaring_agent.py")
CHANGES = (Diff, FileChange)
FILES = {"fs": {"readTextFile": True, "writeTextFile": True}}


def texts(client: Client) -> list[str]:
    """Return the texts of the agent's messages."""
    return [
        part["text"]
        for update in client.updates()
        if update.kind.startswith("agent_message")
        for part in (
            [update.body["content"]] if client.version == 1 else update.body.get("content") or []
        )
    ]


def _select(option: str, params: dict[str, Any]) -> dict[str, Any]:
    return selected(option)


def tool_updates(client: Client) -> list[dict[str, Any]]:
    return [update.body for update in client.updates() if update.kind.startswith("tool_call")]


# The example.


def test_example_agent_is_short_and_imports_segue_only() -> None:
    lines = GARDENER.read_text().splitlines()
    assert len(lines) < 35
    assert [line for line in lines if "import " in line] == ["import segue"]


async def test_example_agent_plans_asks_and_shows_the_diff(
    testbed: AcpTestbed, version: int
) -> None:
    file = testbed.directory / "a.txt"
    file.write_text("one  \ntwo\n")
    async with testbed.connect_program(version, str(GARDENER)) as (client, _):
        id = await client.new_session(testbed.directory)
        assert await client.run_prompt(id, "a.txt") == "end_turn"
        assert file.read_text() == "one\ntwo\n"
        (request,) = client.permission_requests
        call = request["toolCall"] if version == 1 else request["subject"]["toolCall"]
        assert [part["type"] for part in call["content"]] == ["diff"]
        plans = [update.body for update in client.updates() if update.kind.startswith("plan")]
        assert len(plans) == 3
        assert texts(client)[-1] == "a.txt is tidy."


async def test_example_agent_obeys_a_refusal_and_its_mode(testbed: AcpTestbed) -> None:
    file = testbed.directory / "a.txt"
    file.write_text("one  \n")
    async with testbed.connect_program(1, str(GARDENER)) as (client, _):
        id = await client.new_session(testbed.directory)
        client.answer_permission = lambda params: selected("reject")
        await client.run_prompt(id, "a.txt")
        assert file.read_text() == "one  \n"
        assert tool_updates(client)[-1]["status"] == "failed"
        await client.request("session/set_mode", {"sessionId": id, "modeId": "auto"})
        await client.run_prompt(id, "a.txt")
        assert file.read_text() == "one\n" and len(client.permission_requests) == 1


# Declarations.


async def test_agent_offers_only_what_it_declares(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_program(version, *program(""), initialize=False) as (client, _):
        greeting = await client.initialize()
        assert greeting["authMethods"] == []
        if version == 1:
            assert not any(greeting["agentCapabilities"].get("promptCapabilities", {}).values())
        else:
            assert greeting["capabilities"]["session"].get("prompt", {}) == {}
        created = await client.request("session/new", {"cwd": "/", "mcpServers": []})
        assert set(created) == {"sessionId"}
        id = created["sessionId"]
        assert await client.run_prompt(id, "hello") == "end_turn"
        kinds = {update.kind for update in client.updates()}
        assert not kinds & {"available_commands_update", "config_option_update"}
        methods = {"session/set_config_option": {"configId": "mode", "value": "plan"}}
        if version == 1:
            methods["session/set_mode"] = {"modeId": "plan"}
        for method, params in methods.items():
            error = await client.request_error(method, {"sessionId": id, **params})
            assert error.code == -32601
        block = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
        params = {"sessionId": id, "prompt": [block]}
        error = await client.request_error("session/prompt", params)
        assert error.code == -32602 and "prompt[0]" in error.message


async def test_declared_options_are_offered_stored_and_restored(
    testbed: AcpTestbed, version: int
) -> None:
    id_field = "id" if version == 1 else "configId"
    capabilities = {"session": {"configOptions": {"boolean": {}}}}
    more = {"clientCapabilities": capabilities} if version == 1 else {}
    async with testbed.connect_program(version, DECLARING, initialize=False, stderr=None) as (
        client,
        _,
    ):
        await client.initialize(**more)
        created = await client.request("session/new", {"cwd": "/", "mcpServers": []})
        id, options = created["sessionId"], created["configOptions"]
        assert [option[id_field] for option in options] == ["mode", "model", "tests"]
        assert [option["currentValue"] for option in options] == ["ask", "small", True]
        (group,) = options[1]["options"]
        assert [choice["value"] for choice in group["options"]] == ["small", "big"]
        typed = {} if version == 1 else {"type": "id"}
        for option, value, kind in (("model", "big", typed), ("tests", False, {"type": "boolean"})):
            params = {"sessionId": id, "configId": option, "value": value, **kind}
            await client.request("session/set_config_option", params)
        params = {"sessionId": id, "configId": "mode", "value": "forbidden", **typed}
        error = await client.request_error("session/set_config_option", params)
        assert error.code == -32602 and "not this one" in error.message
        await client.run_prompt(id, "options")
        assert texts(client)[-1].startswith("ask big {")
    async with testbed.connect_program(version, DECLARING, initialize=False, stderr=None) as (
        client,
        _,
    ):
        await client.initialize(**more)
        resumed = await client.open_session("resume", id, "/")
        values = [option["currentValue"] for option in resumed["configOptions"]]
        assert values == ["ask", "big", False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": ["video"]}, "video"),
        ({"modes": {"a": "A"}, "options": [segue.Switch("mode", "Mode")]}, "mode"),
        ({"options": [segue.Select("x", "X", {"a": "A"}, value="b")]}, "'b'"),
        ({"commands": {"two words": "no"}}, "two words"),
        ({"logins": [segue.LoginMethod(id="key", name="Key")]}, "log_in"),
    ],
    ids=["prompt", "repeated", "value", "command", "login"],
)
def test_invalid_declarations_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    class Silent:
        async def run(self, turn: segue.Turn) -> segue.StopReason:
            return "end_turn"

    with pytest.raises(ValueError, match=message):
        segue.serve_acp(Silent(), **options)


async def test_declared_logins_reach_the_agent(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_program(version, DECLARING, initialize=False, stderr=None) as (
        client,
        _,
    ):
        more: dict[str, Any] = (
            {"clientCapabilities": {"auth": {"terminal": True}}}
            if version == 1
            else {"capabilities": {"auth": {"terminal": {}}}}
        )
        methods = (await client.initialize(**more))["authMethods"]
        assert [method.get("args") for method in methods] == [None, ["--setup"]]
        log_in, log_out = (
            ("authenticate", "logout") if version == 1 else ("auth/login", "auth/logout")
        )
        assert (await client.request_error(log_in, {"methodId": "shell"})).code == -32602
        await client.request(log_out, {})
        setup = {"cwd": "/", "mcpServers": []}
        assert (await client.request_error("session/new", setup)).code == -32000
        await client.request(log_in, {"methodId": "key"})
        await client.new_session("/")
        notes = (await client.request("_example/notes", {"x": 1}))["notes"]
        assert notes[:2] == ["logout", "login key"]


# Hooks and extensions.


async def test_agent_hears_of_opened_configured_and_closed_sessions(
    testbed: AcpTestbed, version: int
) -> None:
    stderr = f"closed {testbed.directory}\nclosed /\n".encode()
    async with testbed.connect_program(version, DECLARING, initialize=False, stderr=stderr) as (
        client,
        _,
    ):
        info = {"clientInfo" if version == 1 else "info": {"name": "ed", "version": "1"}}
        greeting = await client.initialize(**info)
        field = "agentCapabilities" if version == 1 else "capabilities"
        assert greeting[field]["_meta"] == {"example": {"notes": True}}
        refused = await client.request_error("session/new", {"cwd": "/private", "mcpServers": []})
        assert refused.code == -32000 and "log in first" in refused.message
        assert (await client.request("session/list"))["sessions"] == []
        id, _ = await client.new_session(testbed.directory), await client.new_session("/")
        typed = {} if version == 1 else {"type": "id"}
        params = {"sessionId": id, "configId": "mode", "value": "auto", **typed}
        await client.request("session/set_config_option", params)
        await client.notify("_example/hint", {"y": 2})
        await client.request("session/close", {"sessionId": id})
        answer = await client.request("_example/notes", {"x": 1})
        assert answer == {
            "notes": ["opened by ed", "opened by ed", "mode=auto", "_example/hint {'y': 2}"],
            "params": {"x": 1},
        }
        assert (await client.request_error("_example/other", {})).code == -32601


# The turn.


async def test_turn_sets_title_usage_mode_and_commands(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_program(version, DECLARING, stderr=None) as (client, _):
        id = await client.new_session("/")
        before = len(client.log)
        await client.run_prompt(id, "facts")
        updates = {update.kind: update.body for update in client.updates(before)}
        usage = updates["usage_update"]
        assert (usage["used"], usage["size"], usage["cost"]["amount"]) == (10, 100, 0.5)
        (command,) = updates["available_commands_update"]["availableCommands"]
        assert command["input"]["hint"] == "what"
        assert updates["config_option_update"]["configOptions"][0]["currentValue"] == "auto"
        (row,) = (await client.request("session/list"))["sessions"]
        assert row["title"] == "A fine title"


async def test_tool_call_shows_progress_changes_and_failure(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_program(version, DECLARING, stderr=None) as (client, _):
        id = await client.new_session("/")
        await client.run_prompt(id, "progress")
        first, *changes = tool_updates(client)
        assert (first["title"], first["_meta"]) == ("Count", {"example": 1})
        contents = [
            [part["content"]["text"] for part in change["content"]]
            for change in changes
            if "content" in change
        ]
        assert contents == [["1 of 2"], []]
        assert [change["rawInput"] for change in changes if "rawInput" in change] == [{"to": 2}]
        assert changes[-1]["status"] == "completed" and changes[-1]["rawOutput"] == {"n": 2}
        if version == 1:
            error = await client.request_error("session/prompt", client.prompt_params(id, "broken"))
            assert "it broke" in error.message
        else:
            assert await client.run_prompt(id, "broken") == "error"
        last = tool_updates(client)[-1]
        assert last["status"] == "failed"
        assert "it broke" in str(last["content"])


async def test_proposed_diff_is_a_change_only_if_it_is_allowed_and_made(
    testbed: AcpTestbed,
) -> None:
    endings = [
        ("fails", "reject"),
        ("returns", "reject"),
        ("raises", "allow"),
        ("returns", "allow"),
    ]
    async with testbed.connect_program(1, DECLARING, stderr=None) as (client, _):
        id = await client.new_session("/")
        for ending, option in endings:
            client.answer_permission = partial(_select, option)
            with suppress(ErrorResponse):
                await client.run_prompt(id, f"edit {ending}")
        shown = [request["toolCall"]["content"] for request in client.permission_requests]
        assert [[part["type"] for part in content] for content in shown] == [["diff"]] * 4
    async with testbed.hub() as hub:
        bodies = [event.body async for event in hub.history.read(LOCAL, id)]
    results = [body.content for body in bodies if isinstance(body, ToolResult)]
    paths = [[block.path for block in blocks if isinstance(block, CHANGES)] for blocks in results]
    assert paths == [[], [], [], ["/a"]]


async def test_tool_that_is_always_allowed_is_not_asked_about_again(testbed: AcpTestbed) -> None:
    async with testbed.connect_program(1, DECLARING, stderr=None) as (client, _):
        id = await client.new_session("/")
        client.answer_permission = partial(_select, "allow_always")
        await client.run_prompt(id, "always count")
        await client.run_prompt(id, "always count")
        assert len(client.permission_requests) == 1
        client.answer_permission = partial(_select, "reject")
        await client.run_prompt(id, "always other")
        assert texts(client) == ["count True", "count True", "other False"]
        other = await client.new_session("/")
        await client.run_prompt(other, "always count")
        assert len(client.permission_requests) == 3


async def test_turn_reads_capabilities_and_meta_of_its_client(
    testbed: AcpTestbed, version: int
) -> None:
    field = "clientCapabilities" if version == 1 else "capabilities"
    async with testbed.connect_program(version, DECLARING, initialize=False, stderr=None) as (
        client,
        _,
    ):
        await client.initialize(**{field: {"_meta": {"c": 1}}, "_meta": {"i": 2}})
        id = await client.new_session("/")
        params = {**client.prompt_params(id, "meta"), "_meta": {"p": 3}}
        await client.request("session/prompt", params)
        await client.wait_for_update(lambda update: "{'p': 3}" in str(update.body))
        assert texts(client)[-1] == "{'p': 3} {'i': 2} {'_meta': {'c': 1}}"


async def test_turn_uses_the_files_and_terminals_of_its_client(testbed: AcpTestbed) -> None:
    async with testbed.connect_program(1, DECLARING, initialize=False, stderr=None) as (client, _):
        await client.initialize(clientCapabilities={**FILES, "terminal": True})
        client.request_handlers = {
            "fs/read_text_file": lambda params: {"content": "second"},
            "fs/write_text_file": lambda params: {},
            "terminal/create": lambda params: {"terminalId": "t1"},
            "terminal/wait_for_exit": lambda params: {"exitCode": 3},
            "terminal/output": lambda params: {"output": "listed", "truncated": False},
            "terminal/release": lambda params: {},
        }
        id = await client.new_session("/")
        await client.run_prompt(id, "files /a.txt")
        await client.run_prompt(id, "shell ls")
        requests = [
            (method, {key: value for key, value in params.items() if key != "sessionId"})
            for method, params in client.agent_requests
        ]
        assert requests == [
            ("fs/read_text_file", {"path": "/a.txt", "line": 2, "limit": 1}),
            ("fs/write_text_file", {"path": "/a.txt", "content": "SECOND"}),
            (
                "terminal/create",
                {"command": "ls", "args": ["-l"], "env": [{"name": "A", "value": "b"}], "cwd": "/"},
            ),
            ("terminal/wait_for_exit", {"terminalId": "t1"}),
            ("terminal/output", {"terminalId": "t1"}),
            ("terminal/release", {"terminalId": "t1"}),
        ]
        shown = [part for body in tool_updates(client) for part in body.get("content", ())]
        assert {"type": "terminal", "terminalId": "t1"} in shown
        before = len(client.log)
        await client.open_session("load", id, "/")
        assert not [update for update in client.updates(before) if "t1" in str(update.body)]


async def test_turn_cannot_use_what_its_client_does_not_offer(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_program(version, DECLARING, stderr=None) as (client, _):
        id = await client.new_session("/")
        for prompt, method in (
            ("files /a", "fs/read_text_file"),
            ("form", "elicitation/create"),
        ):
            if version == 1:
                params = client.prompt_params(id, prompt)
                message = (await client.request_error("session/prompt", params)).message
            else:
                assert await client.run_prompt(id, prompt) == "error"
                message = str(client.updates()[-1].body)
            assert f"the client does not support {method}" in message
        assert client.agent_requests == []


async def test_turn_shows_forms_and_pages(testbed: AcpTestbed, version: int) -> None:
    field = "clientCapabilities" if version == 1 else "capabilities"
    async with testbed.connect_program(version, DECLARING, initialize=False, stderr=None) as (
        client,
        _,
    ):
        await client.initialize(**{field: {"elicitation": {"form": {}, "url": {}}}})
        client.request_handlers = {
            "elicitation/create": lambda params: {"action": "accept", "content": {"name": "Ada"}},
            "_example/ask": lambda params: {"answer": params["b"]},
        }
        id = await client.new_session("/")
        await client.run_prompt(id, "form")
        assert texts(client)[-1] == "{'name': 'Ada'} True"
        (_, form), (_, page), (method, complete) = client.agent_requests
        assert form["requestedSchema"] == {
            "type": "object",
            "properties": {"name": {"type": "string"}},
        }
        assert method == "elicitation/complete"
        assert complete == {"elicitationId": page["elicitationId"]}
        await client.run_prompt(id, "extend")
        assert texts(client)[-1] == "{'answer': 2}"
        assert client.agent_requests[-2] == ("_example/began", {"a": 1})


def test_process_without_the_agent_of_a_session_says_how_to_continue_it() -> None:
    with pytest.raises(segue.errors.NoAgent, match="continue the session in the program"):
        segue.AgentRegistry().build({"kind": "program:tidy"})
