"""What an external agent sends reaches a client as it is, if both use the same version."""

import asyncio
import json
import shlex
import sys
from typing import Any

import pytest

from segue.interfaces.acp import ServedAgent
from segue.model.content import plain_text
from segue.model.event import ToolCall, ToolCallChanged, ToolResult
from segue.model.principal import LOCAL
from segue.model.tools.changes import apply_change
from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.harness import Client, Update, is_idle, selected
from tests.interfaces.acp.test_client_requests import (
    EVERYTHING,
    PROGRAM,
    client_capabilities,
    send_agent_requests,
)
from tests.interfaces.acp.testbed import AcpTestbed
from tests.interfaces.acp.traces import trace

META = {"vendor": {"parent": "p"}}
CALL = "call_0123456789abcdef"
OPTIONS = [
    {"optionId": "allow", "name": "Yes", "kind": "allow_once", "_meta": META},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]
DIFF_V1 = {"type": "diff", "path": "/a", "oldText": "x", "newText": "y", "_meta": META}
PATCH = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n"
DIFF_V2 = {
    "type": "diff",
    "changes": [{"operation": "modify", "path": "/a"}],
    "patch": {"format": "git_patch", "text": PATCH},
}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value, "annotations": {"priority": 0.5}}


def update(kind: str, /, **fields: Any) -> list[Any]:
    return ["session/update", {"sessionUpdate": kind, **fields}]


def script(version: int) -> list[Any]:
    """Return a turn with a tool call that changes until it ends."""
    first = "tool_call" if version == 1 else "tool_call_update"
    diff = DIFF_V1 if version == 1 else DIFF_V2
    call: dict[str, Any] = {"toolCallId": CALL, "rawInput": {"command": "ls", "path": "/a"}}
    request: dict[str, Any] = {"options": OPTIONS, "_meta": META}
    asked = {**call, "title": "Change /a", "content": [diff], "locations": [{"path": "/a"}]}
    if version == 1:
        request["toolCall"] = asked
    else:
        subject = {"type": "tool_call", "toolCall": asked, "_meta": META}
        request |= {"title": "May I?", "description": "It *changes* a file.", "subject": subject}
    content = {"type": "content", "content": text("one\n")}
    more = {"type": "content", "content": text("one\ntwo\n")}
    entry = {"content": "Look", "priority": "high", "status": "pending", "_meta": META}
    plan = update("plan", entries=[entry], _meta=META)
    if version == 2:
        plan = update("plan_update", plan={"type": "items", "planId": "p", "entries": [entry]})
    return [
        update("agent_thought_chunk", content=text("hm"), messageId="t", _meta=META),
        update("agent_message_chunk", content=text("I "), messageId="a"),
        update("agent_message_chunk", content=text("look."), messageId="a", _meta=META),
        plan,
        update(first, toolCallId=CALL, title="Terminal", status="pending", rawInput={}, _meta=META),
        update("tool_call_update", **call, kind="edit", name="Edit"),
        ["session/request_permission", request],
        update("tool_call_update", toolCallId=CALL, status="in_progress", content=[content]),
        update("tool_call_update", toolCallId=CALL, content=[more], rawOutput={"n": 2}),
        update("tool_call_update", toolCallId=CALL, title="Changed /a", status="completed"),
        update("usage_update", used=7, size=100, cost={"amount": 0.5, "currency": "USD"}),
        update("session_info_update", title="A title", _meta=META),
        update("_vendor_update", anything={"at": "all"})
        if version == 2
        else update("user_message_chunk", content=text("Do it differently"), _meta=META),
        update("agent_message_chunk", content=text("Done."), messageId="b"),
    ]


def served(version: int, *arguments: str) -> ServedAgent:
    """Return the program asking.py as the agent that segue serves."""
    command = shlex.join([sys.executable, str(PROGRAM), str(version), *arguments])
    return ServedAgent("acp:asking", {"kind": "acp", "command": command})


def direct(version: int) -> tuple[str, ...]:
    return (str(PROGRAM), str(version))


async def run_script(client: Client, version: int, cwd: Any, turn: list[Any]) -> list[Any]:
    """Run a turn, and return what the client received in it."""
    await client.initialize(**client_capabilities(version, **EVERYTHING))
    id = await client.new_session(cwd)
    await asyncio.sleep(0)
    before = len(client.log)
    prompt = json.dumps(turn)
    assert await client.run_prompt(id, prompt) == "end_turn"
    return trace(client, prompt, before)


async def test_client_receives_the_same_messages_as_without_segue(
    testbed: AcpTestbed, version: int
) -> None:
    turn = script(version)
    async with testbed.connect_program(version, *direct(version), initialize=False) as (client, _):
        expected = await run_script(client, version, "/", turn)
    async with testbed.connect_in_process(
        version, initialize=False, served_agent=served(version)
    ) as client:
        assert await run_script(client, version, "/", turn) == expected


async def test_a_tool_call_is_stored_as_it_was_when_it_ended(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(
        version, initialize=False, served_agent=served(version)
    ) as client:
        await run_script(client, version, "/", script(version))
        (id,) = {item.session for item in client.updates()}
        replayed = [item.body for item in await client.replay(id, "/")]
    async with testbed.hub() as hub:
        events = [event.body for event in await hub.history.events(LOCAL, id)]
    calls = [body for body in events if isinstance(body, ToolCall)]
    assert [(call.call_id, call.name, call.kind) for call in calls] == [(CALL, "Edit", "edit")]
    assert calls[0].input == {"command": "ls", "path": "/a"}
    call = calls[0]
    for body in events:
        if isinstance(body, ToolCallChanged):
            call = apply_change(call, body)
    assert call.title == "Changed /a" and call.locations[0].path == "/a"
    (result,) = [body for body in events if isinstance(body, ToolResult)]
    assert (result.status, result.output) == ("completed", {"n": 2})
    assert plain_text(result.content) == "one\ntwo\n"
    # Another client gets the same call from the store, with the fields that only its agent knows.
    shown: dict[str, Any] = {}
    for body in replayed:
        if body.get("toolCallId") == CALL:
            shown |= body
    assert (shown["title"], shown["status"], shown["_meta"]) == ("Changed /a", "completed", META)
    assert shown["rawInput"] == call.input and shown["rawOutput"] == {"n": 2}


async def test_messages_have_the_same_ids_live_and_in_a_replay(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2, initialize=False, served_agent=served(2)) as client:
        await run_script(client, 2, "/", script(2))
        live = {item.body["messageId"] for item in client.updates() if "messageId" in item.body}
        (id,) = {item.session for item in client.updates()}
        replayed = await client.replay(id, "/")
        assert {item.body["messageId"] for item in replayed if "messageId" in item.body} == live


async def test_a_message_id_in_another_turn_is_another_message(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version, served_agent=served(version)) as client:
        id = await client.new_session("/")
        for _ in range(2):
            assert await client.run_prompt(id, "[]") == "end_turn"
        replayed = conversation(await client.replay(id, "/"))
    assert replayed == [("user", "[]"), ("agent", "[]")] * 2


async def test_a_client_of_the_other_version_sees_the_tool_call_change(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(
        version, initialize=False, served_agent=served(3 - version)
    ) as client:
        await run_script(client, version, "/", script(3 - version))
        updates = [item.body for item in client.updates() if item.body.get("toolCallId") == CALL]
        (request,) = client.permission_requests
    assert updates[0]["rawInput"] == {"command": "ls", "path": "/a"}
    assert [body["title"] for body in updates if "title" in body][-1] == "Changed /a"
    assert updates[-1]["status"] == "completed"
    call = request["toolCall"] if version == 1 else request["subject"]["toolCall"]
    assert call["rawInput"] == {"command": "ls", "path": "/a"}
    assert call["locations"] == [{"path": "/a"}] and call["content"][-1]["type"] == "diff"


async def test_updates_after_a_turn_reach_the_client_and_the_store(
    testbed: AcpTestbed, version: int
) -> None:
    message = {"content": text("One more thing."), "messageId": "late", "_meta": META}
    late = [
        update("session_info_update", title="Named later")[1],
        update("agent_message_chunk", **message)[1],
    ]
    turn = [["later", {"seconds": 0.2, "updates": late}]]
    async with testbed.connect_in_process(
        version, initialize=False, served_agent=served(version)
    ) as client:
        await run_script(client, version, "/", turn)
        received = await client.wait_for_update(lambda item: item.body.get("_meta") == META)
        assert received.body["content"] == message["content"]
        titles = [item.body.get("title") for item in client.updates()]
        assert titles.count("Named later") == 1
        await client.run_prompt(received.session, "[]")  # which stores the message
        chunks = [item for item in client.updates() if item.kind == "agent_message_chunk"]
        assert str(chunks).count("One more thing.") == 1
    async with testbed.hub() as hub:
        assert (await hub.sessions.get(LOCAL, received.session)).title == "Named later"
        events = await hub.history.events(LOCAL, received.session, types=["agent_message"])
    assert "One more thing." in [plain_text(event.body.content) for event in events]


async def test_commands_reach_the_client_whenever_they_arrive(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(
        version, served_agent=served(version, "commands")
    ) as client:
        opened = await client.request("session/new", {"cwd": "/", "mcpServers": []})
        id = opened["sessionId"]
        if "availableCommands" not in opened:  # they arrive 0.3 s after the session
            received = await client.wait_for_update(
                lambda item: item.kind == "available_commands_update", session=id
            )
            assert [command["name"] for command in received.body["availableCommands"]] == ["go"]
    async with testbed.hub() as hub:
        offered = (await hub.sessions.get(LOCAL, id)).options["offered"]
        assert [command["name"] for command in offered["commands"]] == ["go"]


async def test_changed_modes_reach_the_client_during_the_turn(
    testbed: AcpTestbed, version: int
) -> None:
    option = {
        "name": "Model",
        "type": "select",
        "currentValue": "b",
        "options": [{"value": "a", "name": "A", "_meta": META}, {"value": "b", "name": "B"}],
    }
    option["id" if version == 1 else "configId"] = "model"
    turn = [
        update("config_option_update", configOptions=[option], _meta=META),
        update("agent_message_chunk", content=text("Then"), messageId="b"),
    ]
    async with testbed.connect_in_process(
        version, initialize=False, served_agent=served(version)
    ) as client:
        messages = await run_script(client, version, "/", turn)
    assert messages[0]["_meta"] == META
    mode, model = messages[0]["configOptions"]
    assert (mode["category"], model) == ("mode", option)
    assert messages[1]["content"] == text("Then")


MARK = {"vendor": {"steering": True}}
SOUND = {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}


async def received(client: Client, id: str) -> dict[str, Any]:
    """Return the parameters of the last request of each method that the agent has received."""
    (requests,) = await send_agent_requests(client, id, ["received", {}])
    assert isinstance(requests, dict)
    return requests


async def test_client_and_agent_know_each_other(testbed: AcpTestbed, version: int) -> None:
    fields = client_capabilities(version, _meta=MARK, **EVERYTHING)
    fields["clientInfo" if version == 1 else "info"] = {"name": "editor", "version": "3"}
    async with testbed.connect_in_process(
        version, initialize=False, served_agent=served(version, "capable")
    ) as client:
        answer = await client.initialize(**fields, _meta=META)
        id = await client.new_session("/")
        requests = await received(client, id)
    sent = requests["initialize"]
    assert sent["protocolVersion"] == version
    assert sent["clientInfo" if version == 1 else "info"] == {"name": "editor", "version": "3"}
    assert sent["clientCapabilities" if version == 1 else "capabilities"]["_meta"] == MARK
    assert sent["_meta"]["vendor"] == META["vendor"] and sent["_meta"]["segue"]["version"]
    assert answer["_meta"] == MARK
    info = answer["agentInfo" if version == 1 else "info"]
    assert (info["name"], info["title"]) == ("segue", "asking (segue)")
    assert info["_meta"]["segue"]["agent"] == {"name": "asking", "version": "0"}
    if version == 1:
        capabilities = answer["agentCapabilities"]
        expected = {"audio": True, "image": False, "embeddedContext": False}
        assert {**expected, **capabilities["promptCapabilities"]} == expected
        assert capabilities["_meta"] == MARK
    else:
        assert answer["capabilities"]["session"]["prompt"] == {"audio": {}}
        assert answer["capabilities"]["_meta"] == MARK


async def test_meta_of_requests_and_responses_is_passed_on(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(
        version, initialize=False, served_agent=served(version, "capable")
    ) as client:
        await client.initialize(**client_capabilities(version, **EVERYTHING))
        directories = {"additionalDirectories": [str(testbed.directory)]}
        params = {"cwd": "/", "mcpServers": [], "_meta": META, **directories}
        opened = await client.request("session/new", params)
        assert opened["_meta"] == {"heard": META}
        blocks = [{"type": "text", "text": "[]"}, SOUND]
        prompt = {"sessionId": opened["sessionId"], "prompt": blocks, "_meta": META}
        answer = await client.request("session/prompt", prompt)
        if version == 1:
            assert answer == {"stopReason": "end_turn", "_meta": {"heard": META}}
        else:
            await client.wait_for_update(is_idle)
        answered = {**selected("allow"), "_meta": META}
        client.answer_permission = lambda params: answered
        call = {"toolCallId": CALL, "title": "x"}
        request: dict[str, Any] = {"options": OPTIONS, "toolCall": call}
        if version == 2:
            request = {"options": OPTIONS, "title": "May I?"}
        requests, answer = await send_agent_requests(
            client, opened["sessionId"], ["received", {}], ["session/request_permission", request]
        )
        assert answer == answered
    assert requests["session/new"]["additionalDirectories"] == [str(testbed.directory)]
    # The prompt before this one is replaced; its blocks are in the store as they were.
    async with testbed.hub() as hub:
        (first, _) = await hub.history.events(LOCAL, opened["sessionId"], types=["user_message"])
    assert first.body.extra == {"acp": {"_meta": META}}


async def test_meta_of_opening_forking_and_configuring_is_passed_on(
    testbed: AcpTestbed, version: int
) -> None:
    heard = {"heard": META}
    capabilities = client_capabilities(version, **EVERYTHING)
    async with testbed.connect_in_process(
        version, initialize=False, served_agent=served(version, "capable")
    ) as client:
        await client.initialize(**capabilities)
        id = await client.new_session("/")
        assert await client.run_prompt(id, "[]") == "end_turn"
    async with testbed.connect_in_process(
        version, initialize=False, served_agent=served(version, "capable")
    ) as client:
        await client.initialize(**capabilities)
        named = {"sessionId": id, "_meta": META}
        for method in ("session/resume", "session/load" if version == 1 else "session/resume"):
            opening = {**named, "cwd": "/", "mcpServers": []}
            opened = await client.request(method, opening)
            assert opened["_meta"] == heard
            mark = {"vendor": {"steering": True}}
            assert opened["configOptions"][-1]["_meta"] == mark
            if version == 1:
                assert opened["modes"]["availableModes"][0]["_meta"] == mark
        value = {"configId": "speed", "value": "fast"} | ({"type": "id"} if version == 2 else {})
        answer = await client.request("session/set_config_option", {**named, **value})
        assert answer["_meta"] == heard
        (option,) = [o for o in answer["configOptions"] if "speed" in o.values()]
        assert option["currentValue"] == "fast"
        if version == 1:
            answer = await client.request("session/set_mode", {**named, "modeId": "auto"})
            assert answer == {"_meta": heard}
        fork = await client.request("session/fork", {**named, "cwd": "/", "mcpServers": []})
        assert fork["_meta"] == heard
        requests = await received(client, id)
    methods = ["session/resume", "session/set_config_option", "session/fork"]
    for method in [*methods, *(["session/set_mode"] if version == 1 else [])]:
        assert requests[method]["sessionId"] == "s1" and requests[method]["_meta"] == META


async def test_agent_reopens_a_session_that_another_process_has_prompted(
    testbed: AcpTestbed, version: int
) -> None:
    capabilities = client_capabilities(version, **EVERYTHING)
    agent = served(version, "capable")
    async with (
        testbed.connect_in_process(version, initialize=False, served_agent=agent) as one,
        testbed.connect_in_process(version, initialize=False, served_agent=agent) as two,
    ):
        await one.initialize(**capabilities)
        await two.initialize(**capabilities)
        id = await one.new_session("/")
        await one.run_prompt(id, "[]")
        await two.open_session("resume", id, "/")
        await one.run_prompt(id, "[]")
        requests = await received(two, id)
        again = await received(one, id)
    for sent in (requests, again):
        assert len(sent["session/prompt"]["prompt"]) == 1  # without the history as text
    assert requests["session/resume"]["sessionId"] == "s1" and "session/new" not in requests
    assert again["session/resume"]["sessionId"] == "s1"


async def test_meta_of_cancels_and_closes_is_passed_on(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(
        version, initialize=False, served_agent=served(version, "capable")
    ) as client:
        await client.initialize(**client_capabilities(version, **EVERYTHING))
        client.request_handlers = {"_editor/ask": lambda params: None}
        first, second = await client.new_session("/"), await client.new_session("/")
        prompt = client.prompt_params(first, json.dumps([["_editor/ask", {}]]))
        request = await client.send_request("session/prompt", prompt)
        await client.wait_until(lambda: bool(client.agent_requests))
        await client.notify("session/cancel", {"sessionId": first, "_meta": META})
        if version == 1:
            await client.wait_response(request)
        else:
            await client.wait_for_update(is_idle, session=first)
        await client.request("session/close", {"sessionId": first, "_meta": META})
        requests = await received(client, second)
    for method in ("session/cancel", "session/close"):
        assert requests[method] == {"sessionId": "s1", "_meta": META}


async def test_unstable_methods_of_the_agent_are_announced_and_forwarded(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(
        version, initialize=False, served_agent=served(version, "capable")
    ) as client:
        client.request_handlers = {"mcp/message": lambda params: {"result": params["method"]}}
        answer = await client.initialize(**client_capabilities(version, **EVERYTHING))
        capabilities = answer["agentCapabilities" if version == 1 else "capabilities"]
        session = capabilities["sessionCapabilities" if version == 1 else "session"]
        mcp = capabilities["mcpCapabilities"] if version == 1 else session["mcp"]
        assert (session["systemPrompt"], mcp["acp"]) == ({}, True if version == 1 else {})
        assert (capabilities["auth"]["status"], capabilities["providers"]) == ({}, {})
        prompt = {"mode": "append", "content": [{"type": "text", "text": "Be brief."}]}
        server = {"type": "acp", "name": "mine", "serverId": "s"}
        params = {"cwd": "/", "mcpServers": [server], "systemPrompt": prompt}
        id = (await client.request("session/new", params))["sessionId"]
        status = await client.request("auth/status", {})
        assert status == {"state": "authenticated", "accounts": [{"label": "Max"}]}
        assert (await client.request("providers/list", {}))["providers"]
        disabled = {"providerId": "main"}
        assert await client.request("providers/disable", disabled) == {}
        await client.notify("mcp/message", {"serverId": "s", "requestId": "1", "method": "x"})
        message = {"serverId": "s", "requestId": "1", "method": "tools/list"}
        requests, answered = await send_agent_requests(
            client, id, ["received", {}], ["mcp/message", message]
        )
        override = {**params, "systemPrompt": {**prompt, "mode": "override"}}
        error = await client.request_error("session/new", override)
        assert error.code == -32602 and "systemPrompt.mode" in error.message
    assert answered == {"result": "tools/list"}
    assert requests["session/new"]["systemPrompt"] == prompt
    assert requests["session/new"]["mcpServers"] == [server]
    assert requests["providers/disable"] == disabled
    assert requests["mcp/message"]["method"] == "x"


async def test_agent_without_unstable_capabilities_announces_none(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(
        version, initialize=False, served_agent=served(version)
    ) as client:
        answer = await client.initialize(**client_capabilities(version, **EVERYTHING))
        capabilities = answer["agentCapabilities" if version == 1 else "capabilities"]
        assert "providers" not in capabilities and "status" not in capabilities["auth"]
        assert "systemPrompt" not in json.dumps(capabilities)
        for method in ("auth/status", "providers/list"):
            assert (await client.request_error(method, {})).code == -32601
        prompt = {"mode": "append", "content": [{"type": "text", "text": "Be brief."}]}
        for field in ({"systemPrompt": prompt}, {"mcpServers": [{"type": "acp", "name": "m"}]}):
            params = {"cwd": "/", "mcpServers": [], **field}
            assert (await client.request_error("session/new", params)).code == -32602


async def test_updates_of_plans_and_subagents_need_the_client_s_capability(
    testbed: AcpTestbed,
) -> None:
    said = {"sessionUpdate": "agent_message_chunk", "content": text("I am the child.")}
    turn = [
        update("plan_removed", planId="p"),
        update("subagent_update", sessionId="child", title="A child"),
        ["child_update", {"sessionId": "child", "update": said}],
    ]
    for capabilities in ({}, {"plan": {}, "subagents": {}}):
        async with testbed.connect_in_process(
            1, initialize=False, served_agent=served(1)
        ) as client:
            client.checked = False
            await client.initialize(**client_capabilities(1, **EVERYTHING, **capabilities))
            id = await client.new_session("/")
            before = len(client.log)
            await client.run_prompt(id, json.dumps(turn))
            updates = [
                item for item in client.updates(before) if item.kind != "session_info_update"
            ]
        expected = [(id, "plan_removed"), (id, "subagent_update"), ("child", said["sessionUpdate"])]
        received = [(item.session, item.kind) for item in updates]
        answer = (id, "agent_message_chunk")  # which ends each turn of the agent
        own = (id, "session_info_update")
        shown = [item for item in received if item not in (answer, own)]
        assert shown == (expected if capabilities else [])


async def test_agent_without_additional_directories_refuses_them(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version, served_agent=served(version)) as client:
        params = {"cwd": "/", "mcpServers": [], "additionalDirectories": ["/tmp"]}
        error = await client.request_error("session/new", params)
        assert error.code == -32602 and "additionalDirectories" in error.message


async def test_extension_methods_are_forwarded_both_ways(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version, served_agent=served(version)) as client:
        client.request_handlers = {"_editor/ask": lambda params: {"yes": params["n"]}}
        id = await client.new_session("/")
        answer = await client.request("_vendor/echo", {"sessionId": id, "n": 1})
        assert answer == {"heard": {"sessionId": "s1", "n": 1}}
        await client.notify("_vendor/note", {"sessionId": id, "n": 2})
        requests, answer = await send_agent_requests(
            client,
            id,
            ["received", {}],
            ["_editor/ask", {"n": 3}],
            ["!_editor/note", {"sessionId": "s1", "n": 4}],
        )
        assert requests["_vendor/note"] == {"sessionId": "s1", "n": 2}
        assert answer == {"yes": 3}
        await client.wait_until(lambda: len(client.agent_requests) == 2)
        assert client.agent_requests == [
            ("_editor/ask", {"sessionId": id, "n": 3}),
            ("_editor/note", {"sessionId": id, "n": 4}),
        ]


async def test_client_gets_the_error_of_the_agent_with_its_data(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version, served_agent=served(version)) as client:
        id = await client.new_session("/")
        if version == 1:
            error = await client.request_error("session/prompt", client.prompt_params(id, "fail"))
            fields: Any = (error.code, error.message, error.data)
        else:
            await client.run_prompt(id, "fail")
            idle = await client.wait_for_update(is_idle)
            fields = tuple(idle.body["error"][name] for name in ("code", "message", "data"))
        assert fields == (-32099, "too busy", ["retry", 7])


async def test_client_gets_the_end_of_a_turn_as_the_agent_sends_it(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2, served_agent=served(2)) as client:
        id = await client.new_session("/")
        error = {"code": -31000, "message": "too busy", "data": ["retry", 7]}
        for end in ({"stopReason": "error", "error": error}, {"stopReason": "_vendor_pause"}):
            end = {"state": "idle", **end, "_meta": META}
            await client.run_prompt(id, json.dumps([update("state_update", **end)]))
            idle = [item for item in client.log if isinstance(item, Update) and is_idle(item)]
            assert idle[-1].body == {"sessionUpdate": "state_update", **end}


async def test_terminal_of_the_client_is_shown_in_its_call(testbed: AcpTestbed) -> None:
    content = [{"type": "terminal", "terminalId": "t-7", "_meta": META}]
    turn = [
        update("tool_call", toolCallId=CALL, title="Run", status="in_progress", content=content),
        update("tool_call_update", toolCallId=CALL, status="completed"),
    ]
    async with testbed.connect_in_process(1, initialize=False, served_agent=served(1)) as client:
        await run_script(client, 1, "/", turn)
        (call,) = [item.body for item in client.updates() if item.kind == "tool_call"]
    assert call["content"] == content


@pytest.mark.parametrize("answer", ["allow", "no"])
async def test_permission_request_for_an_unannounced_call_is_announced_and_ended(
    testbed: AcpTestbed, version: int, answer: str
) -> None:
    asked = {"toolCallId": CALL, "title": "May I?"}
    request: dict[str, Any] = {"options": OPTIONS, "toolCall": asked}
    if version == 2:
        subject = {"type": "tool_call", "toolCall": asked}
        request = {"options": OPTIONS, "title": "May I?", "subject": subject}
    async with testbed.connect_in_process(version, served_agent=served(version)) as client:
        client.answer_permission = lambda params: selected(answer)
        id = await client.new_session("/")
        await send_agent_requests(client, id, ["session/request_permission", request])
        announced, *_, ended = [
            update for update in client.updates() if update.body.get("toolCallId") == CALL
        ]
        assert announced.kind == ("tool_call" if version == 1 else "tool_call_update")
        assert (announced.body["title"], announced.body["status"]) == ("May I?", "pending")
        assert ended.kind == "tool_call_update"
        assert ended.body["status"] == ("completed" if answer == "allow" else "failed")
    async with testbed.hub() as hub:
        (result,) = await hub.history.events(LOCAL, id, types=["tool_result"])
    text = plain_text(result.body.content)
    assert text == ("" if answer == "allow" else "the permission was not given")


async def test_call_that_the_agent_announces_after_its_request_ends_as_the_agent_says(
    testbed: AcpTestbed,
) -> None:
    request = {"options": OPTIONS, "toolCall": {"toolCallId": CALL, "title": "May I?"}}
    async with testbed.connect_in_process(1, served_agent=served(1)) as client:
        client.answer_permission = lambda params: selected("allow")
        id = await client.new_session("/")
        await send_agent_requests(
            client,
            id,
            ["session/request_permission", request],
            update("tool_call", toolCallId=CALL, title="Run", status="in_progress"),
            update("tool_call_update", toolCallId=CALL, status="failed"),
        )
        calls = [update for update in client.updates() if update.body.get("toolCallId") == CALL]
        assert [(call.kind, call.body["status"]) for call in calls] == [
            ("tool_call", "pending"),
            ("tool_call_update", "in_progress"),
            ("tool_call_update", "failed"),
        ]
    async with testbed.hub() as hub:
        (result,) = await hub.history.events(LOCAL, id, types=["tool_result"])
    assert result.body.status == "failed"
