"""Permission requests: sent, answered, withdrawn, and not sent in some modes."""

from typing import Any

import pytest

from segue.model.principal import LOCAL
from tests.interfaces.acp.harness import Client, is_idle, selected
from tests.interfaces.acp.testbed import AcpTestbed

ASKED = "/say begun\n/ask May I?"


def last_result(client: Client) -> tuple[str, str]:
    """Return the status and text of the last tool result."""
    result = [u.body for u in client.updates() if u.kind == "tool_call_update"][-1]
    return result["status"], result["content"][0]["content"]["text"]


async def test_permission_request_has_the_call_and_its_options(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session(testbed.directory)
        await client.run_prompt(id, "/write a.txt hello")
        (request,) = client.permission_requests
        kinds = [option["kind"] for option in request["options"]]
        assert kinds == ["allow_once", "allow_always", "reject_once"]
        call = request["toolCall"] if version == 1 else request["subject"]["toolCall"]
        assert call["kind"] == "edit"
        assert call["rawInput"] == {"path": "a.txt", "content": "hello"}
        calls = [u.body["toolCallId"] for u in client.updates() if u.body.get("kind") == "edit"]
        assert calls == [call["toolCallId"]]
        if version == 2:
            assert request["title"] == "Write a.txt?"
        assert (testbed.directory / "a.txt").read_text() == "hello\n"


async def test_rejected_tool_call_does_not_run(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        client.answer_permission = lambda params: selected("reject")
        await client.run_prompt(await client.new_session(testbed.directory), "/write a.txt hello")
        assert last_result(client) == ("failed", "the user did not allow this")
        assert not (testbed.directory / "a.txt").exists()


@pytest.mark.parametrize(
    "answer",
    [
        {"outcome": {"outcome": "cancelled"}},
        selected("nonsense"),
        {"outcome": {"outcome": "selected"}},
        {"outcome": {"outcome": "_later", "optionId": "allow"}},
        {"outcome": {"outcome": "approved", "optionId": "allow"}},
        {"outcome": "allow"},
        {"optionId": "allow"},
        {},
        {"code": -32601, "message": "no such method"},
    ],
    ids=str,
)
async def test_only_a_selected_allow_option_approves(
    testbed: AcpTestbed, version: int, answer: Any
) -> None:
    async with testbed.connect_in_process(version) as client:
        client.answer_permission = lambda params: answer
        assert await client.run_prompt(await client.new_session("/"), ASKED) == "end_turn"
        assert last_result(client) == ("failed", "no answer")


async def test_cancelled_turn_withdraws_its_permission_request(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as client:
        client.answer_permission = lambda params: None
        id = await client.new_session("/")
        request = await client.start_prompt(id, ASKED)
        await client.wait_until(lambda: bool(client.permission_requests))
        await client.notify("session/cancel", {"sessionId": id})
        result = await client.wait_response(request)
        await client.wait_until(lambda: bool(client.cancelled_requests))
        if version == 1:
            assert result == {"stopReason": "cancelled"}
        else:
            assert (await client.wait_for_update(is_idle)).body["stopReason"] == "cancelled"
        # A late answer has no effect.
        await client.respond(client.cancelled_requests[0], selected("allow"))
        assert await client.run_prompt(id, "/say on") == "end_turn"


async def test_close_withdraws_the_permission_request_before_its_response(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as client:
        client.answer_permission = lambda params: None
        id = await client.new_session("/")
        await client.start_prompt(id, ASKED)
        await client.wait_until(lambda: bool(client.permission_requests))
        await client.request("session/close", {"sessionId": id})
        assert len(client.cancelled_requests) == 1


async def test_all_clients_are_asked_and_the_first_answer_counts(
    testbed: AcpTestbed, version: int
) -> None:
    async with (
        testbed.connect_in_process(version) as first,
        testbed.connect_in_process(version) as second,
    ):
        first.answer_permission = lambda params: None
        second.answer_permission = lambda params: selected("allow_always")
        id = await first.new_session("/")
        await second.open_session("resume", id, "/")
        assert await first.run_prompt(id, ASKED) == "end_turn"
        assert last_result(first) == ("completed", "Always allow ask here")
        assert len(first.permission_requests) == len(second.permission_requests) == 1
        # The request to the other client is cancelled.
        await first.wait_until(lambda: bool(first.cancelled_requests))


@pytest.mark.parametrize("answer", [{"outcome": {"outcome": "cancelled"}}, {"code": -32601}])
async def test_request_stays_open_if_a_client_that_only_follows_dismisses_it(
    testbed: AcpTestbed, version: int, answer: Any
) -> None:
    async with (
        testbed.connect_in_process(version) as first,
        testbed.connect_in_process(version) as second,
        testbed.hub() as hub,
    ):
        first.answer_permission = lambda params: None
        second.answer_permission = lambda params: {"message": "not here", **answer}
        id = await first.new_session("/")
        await second.open_session("resume", id, "/")
        request = await first.start_prompt(id, ASKED)
        for client in (first, second):
            await client.wait_until(lambda client=client: bool(client.permission_requests))
        await second.request("session/list", {})  # the answer arrived before this request
        (ask,) = (await hub.sessions.get(LOCAL, id)).open_asks
        await hub.turns.answer(LOCAL, id, ask, "allow")
        await first.wait_response(request)
        if version == 2:
            await first.wait_for_update(is_idle)
        assert last_result(first) == ("completed", "Allow")


async def test_answer_from_another_interface_withdraws_the_request(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        client.answer_permission = lambda params: None
        id = await client.new_session("/")
        request = await client.start_prompt(id, ASKED)
        await client.wait_until(lambda: bool(client.permission_requests))
        (ask,) = (await hub.sessions.get(LOCAL, id)).open_asks
        await hub.turns.answer(LOCAL, id, ask, "allow")
        await client.wait_response(request)
        await client.wait_until(lambda: bool(client.cancelled_requests))
        if version == 2:
            await client.wait_for_update(is_idle)
        assert last_result(client) == ("completed", "Allow")


async def test_client_that_attaches_later_gets_the_permission_request(
    testbed: AcpTestbed, version: int
) -> None:
    async with (
        testbed.connect_in_process(version) as first,
        testbed.connect_in_process(version) as second,
    ):
        first.answer_permission = lambda params: None
        id = await first.new_session(testbed.directory)
        request = await first.send_request(
            "session/prompt", first.prompt_params(id, "/write a.txt hello")
        )
        await first.wait_until(lambda: bool(first.permission_requests))
        await second.open_session("resume", id, testbed.directory)
        await first.wait_response(request)
        await second.wait_until(lambda: bool(second.permission_requests))
        assert second.permission_requests == first.permission_requests


async def set_mode(client: Client, id: str, mode: str) -> None:
    params = {"sessionId": id, "configId": "mode", "value": mode}
    if client.version == 2:
        params["type"] = "id"
    await client.request("session/set_config_option", params)


async def test_bypass_mode_sends_no_permission_request(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session(testbed.directory)
        await set_mode(client, id, "bypassPermissions")
        await client.run_prompt(id, "/write a.txt hello")
        assert client.permission_requests == []
        assert (testbed.directory / "a.txt").read_text() == "hello\n"
        await set_mode(client, id, "default")
        await client.run_prompt(id, ASKED)
        assert len(client.permission_requests) == 1


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "plan"])
async def test_other_modes_send_a_permission_request(
    testbed: AcpTestbed, version: int, mode: str
) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        await set_mode(client, id, mode)
        await client.run_prompt(id, ASKED)
        assert len(client.permission_requests) == 1


async def test_each_mode_asks_for_the_described_tools(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session(testbed.directory)
        await set_mode(client, id, "acceptEdits")
        await client.run_prompt(id, "/write a.txt hello")
        assert client.permission_requests == []
        assert (testbed.directory / "a.txt").read_text() == "hello\n"
        await set_mode(client, id, "plan")
        await client.run_prompt(id, "/write a.txt other")
        assert client.permission_requests == []
        status, why = last_result(client)
        assert status == "failed" and "plan mode" in why
        assert (testbed.directory / "a.txt").read_text() == "hello\n"
        await set_mode(client, id, "default")
        client.answer_permission = lambda params: selected("allow_always")
        await client.run_prompt(id, "/write a.txt asked")
        await client.run_prompt(id, "/write a.txt unasked")
        assert len(client.permission_requests) == 1  # "always" covers the second call
        assert (testbed.directory / "a.txt").read_text() == "unasked\n"


async def test_mode_change_takes_effect_during_the_turn(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        client.answer_permission = lambda params: None
        id = await client.new_session("/")
        request = await client.start_prompt(id, "/say begun\n/ask One?\n/ask Two?")
        await client.wait_until(lambda: bool(client.permission_requests))
        await set_mode(client, id, "bypassPermissions")
        await client.allow_last_request()
        await client.wait_response(request)
        if version == 2:
            await client.wait_for_update(is_idle)
        assert len(client.permission_requests) == 1
        assert last_result(client) == ("completed", "Allow")
