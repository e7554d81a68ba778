"""Tool calls, terminals, compactions and background work of an agent of version 2."""

import json
from typing import Any

import pytest

from segue.model.content import plain_text
from segue.model.event import Compacted, ToolResult
from segue.model.principal import LOCAL
from tests.interfaces.acp.test_client_requests import (
    EVERYTHING,
    client_capabilities,
    send_agent_requests,
)
from tests.interfaces.acp.test_forwarding import (
    META,
    OPTIONS,
    direct,
    run_script,
    served,
    text,
    update,
)
from tests.interfaces.acp.testbed import AcpTestbed

CANCEL = {"cancel": {"_meta": META}}
RUN = {"toolCallId": "c1", "title": "Run", "status": "in_progress", "capabilities": CANCEL}
COMMAND = {
    "type": "command",
    "command": "rm -r build",
    "cwd": "/p",
    "toolCallId": "c1",
    "terminalId": "t1",
}
REQUEST = {
    "title": "Run it?",
    "description": "It *deletes*.",
    "subject": COMMAND,
    "options": OPTIONS,
}
BACKGROUND = [{"type": "terminal", "terminalId": "t1"}]
TURN = [
    update("tool_call_update", **RUN),
    update("terminal_update", terminalId="t1", command="rm", cwd="/p", capabilities=CANCEL),
    update("terminal_output_chunk", terminalId="t1", data="b25lCg=="),
    update(
        "tool_call_content_chunk",
        toolCallId="c1",
        content={"type": "terminal", "terminalId": "t1", "_meta": META},
    ),
    ["session/request_permission", REQUEST],
    update("terminal_output_chunk", terminalId="t1", data="dHdv", _meta=META),
    update("terminal_update", terminalId="t1", exitStatus={"exitCode": 0}, capabilities=None),
    update("tool_call_update", toolCallId="c1", status="completed", capabilities=None),
    update("compaction_update", compactionId="k", status="in_progress"),
    update("compaction_summary_chunk", compactionId="k", content=text("All ")),
    update("compaction_summary_chunk", compactionId="k", content=text("is well.")),
    update("compaction_update", compactionId="k", status="completed"),
]


async def test_client_receives_the_same_entities_as_without_segue(testbed: AcpTestbed) -> None:
    async with testbed.connect_program(2, *direct(2), initialize=False) as (client, _):
        expected = await run_script(client, 2, "/", TURN)
    async with testbed.connect_in_process(2, initialize=False, served_agent=served(2)) as client:
        received = await run_script(client, 2, "/", TURN)
        (id,) = {item.session for item in client.updates()}
    assert received == expected
    async with testbed.hub() as hub:
        bodies = [event.body for event in await hub.history.events(LOCAL, id)]
    (result,) = [body for body in bodies if isinstance(body, ToolResult)]
    assert plain_text(result.content) == "one\ntwo"
    (compacted,) = [body for body in bodies if isinstance(body, Compacted)]
    assert plain_text(compacted.summary) == "All is well."


@pytest.mark.parametrize("client_version", [1, 2])
async def test_compaction_of_a_version_1_agent_is_stored_and_translated(
    testbed: AcpTestbed, client_version: int
) -> None:
    turn = [item for item in TURN if "compaction" in str(item)]
    async with testbed.connect_in_process(
        client_version, initialize=False, served_agent=served(1)
    ) as client:
        # A client of version 1 has to say that it supports compactions; this one does not.
        await client.initialize()
        id = await client.new_session("/")
        assert await client.run_prompt(id, json.dumps(turn)) == "end_turn"
        updates = [u.body for u in client.updates() if "compaction" in u.kind]
        (sent,) = await send_agent_requests(client, id, ["received", {}])
    async with testbed.hub() as hub:
        bodies = [event.body for event in await hub.history.events(LOCAL, id)]
    (compacted,) = [body for body in bodies if isinstance(body, Compacted)]
    assert plain_text(compacted.summary) == "All is well."
    assert sent["initialize"]["clientCapabilities"]["session"]["compaction"] == {}
    if client_version == 1:
        assert updates == []
    else:
        assert [(u["status"], u["summary"][0]["text"]) for u in updates] == [
            ("completed", "All is well.")
        ]


async def test_client_cancels_tool_calls_and_terminals_that_advertise_it(
    testbed: AcpTestbed,
) -> None:
    async with testbed.connect_in_process(2, initialize=False, served_agent=served(2)) as client:
        await client.initialize(**client_capabilities(2, **EVERYTHING))
        client.answer_permission = lambda params: None
        id = await client.new_session("/")
        await client.send_request("session/prompt", client.prompt_params(id, json.dumps(TURN)))
        await client.wait_until(lambda: bool(client.permission_requests))
        (call,) = {u.body["toolCallId"] for u in client.updates() if "toolCallId" in u.body}
        assert await client.request("tool_call/cancel", cancel(id, toolCallId=call)) == {}
        assert await client.request("terminal/cancel", cancel(id, terminalId="t1")) == {}
        for method, field in (
            ("tool_call/cancel", "toolCallId"),
            ("terminal/cancel", "terminalId"),
        ):
            error = await client.request_error(method, cancel(id, **{field: "unknown"}))
            assert (error.code, error.data) == (-32602, {field: "unknown"})
        await client.allow_last_request()
        await client.wait_for_update(lambda u: u.body.get("stopReason") is not None)
        error = await client.request_error("tool_call/cancel", cancel(id, toolCallId=call))
        assert error.code == -32602  # it has ended
        (requests,) = await send_agent_requests(client, id, ["received", {}])
    assert requests["tool_call/cancel"] == {"sessionId": "s1", "toolCallId": "c1", "_meta": META}
    assert requests["terminal/cancel"] == {"sessionId": "s1", "terminalId": "t1", "_meta": META}


def cancel(id: str, **fields: str) -> dict[str, Any]:
    """Return the parameters of a request to cancel a tool call or a terminal."""
    return {"sessionId": id, **fields, "_meta": META}


async def test_version_1_has_no_method_to_cancel_a_tool_call(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1, served_agent=served(1)) as client:
        id = await client.new_session("/")
        error = await client.request_error("tool_call/cancel", cancel(id, toolCallId="x"))
        assert error.code == -32601


async def test_background_work_is_reported_during_and_after_a_turn(testbed: AcpTestbed) -> None:
    running = update("state_update", state="running", background=BACKGROUND)
    ended = update("state_update", state="idle", background=[])[1]
    turn = [running, ["later", {"seconds": 0.2, "updates": [ended]}]]
    async with testbed.connect_in_process(2, initialize=False, served_agent=served(2)) as client:
        await run_script(client, 2, "/", turn)
        await client.wait_for_update(lambda item: item.body.get("background") == [])
        states = [item.body for item in client.updates() if "background" in item.body]
    assert states == [running[1], ended]


async def test_client_of_version_1_sees_the_command_and_its_description(
    testbed: AcpTestbed,
) -> None:
    turn = [["session/request_permission", REQUEST]]
    async with testbed.connect_in_process(1, initialize=False, served_agent=served(2)) as client:
        await run_script(client, 1, "/", turn)
        (request,) = client.permission_requests
    call = request["toolCall"]
    assert (call["title"], call["kind"]) == ("Run it?", "execute")
    assert call["rawInput"] == {"command": "rm -r build", "cwd": "/p"}
    assert call["content"][0]["content"]["text"] == "It *deletes*."


@pytest.mark.parametrize("agent_version", [1, 2])
async def test_groups_of_an_option_are_kept(
    testbed: AcpTestbed, version: int, agent_version: int
) -> None:
    def option(version: int) -> dict[str, Any]:
        values = [{"value": "a", "name": "A"}, {"value": "b", "name": "B"}]
        large = [{"value": "c", "name": "C", "description": "Large"}]
        group = "group" if version == 1 else "groupId"
        return {
            "id" if version == 1 else "configId": "model",
            "name": "Model",
            "type": "select",
            "currentValue": "b",
            "options": [
                {group: "g0", "name": "All", "options": values},
                {group: "g1", "name": "More", "options": large},
            ],
        }

    turn = [update("config_option_update", configOptions=[option(agent_version)])]
    async with testbed.connect_in_process(
        version, initialize=False, served_agent=served(agent_version)
    ) as client:
        await run_script(client, version, "/", turn)
        (id,) = {item.session for item in client.updates()}
        opened = await client.open_session("resume", id, "/")
    (shown,) = [item for item in opened["configOptions"] if item["name"] == "Model"]
    assert shown == option(version)
