"""Prompts and turns: updates, stop reasons, waiting and cancelling."""

import asyncio
from typing import Any

import pytest

from segue.agents.base import Turn
from segue.interfaces.acp import ServedAgent
from segue.model.content import as_content
from segue.model.event import AgentMessage, Failed, ModelCalled, Usage
from segue.model.lifecycle import StopReason
from segue.model.principal import LOCAL
from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.harness import Client, ErrorResponse, is_idle
from tests.interfaces.acp.testbed import AcpTestbed


async def test_turn_sends_updates_as_they_happen(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session(testbed.directory)
        await client.run_prompt(id, "/think hm\n/say hi there\n/tool ls a b\n/plan one; x two")
        entries = conversation(client.updates())
        if version == 2:  # which sends the client its own prompt too
            assert entries.pop(0)[0] == "user"
        assert entries == [
            ("thought", "hm"),
            ("agent", "hi there"),
            ("tool", "ls (demo): completed"),
        ]
        plan = "plan" if version == 1 else "plan_update"
        assert client.kinds().count(plan) == 1


async def test_message_is_streamed_in_chunks(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        await client.run_prompt(id, "/slow 0.02\n/say one two three four five")
        chunks = [update for update in client.updates() if update.kind == "agent_message_chunk"]
        assert len(chunks) > 1
        assert len({update.body["messageId"] for update in chunks}) == 1
        assert "".join(update.body["content"]["text"] for update in chunks) == (
            "one two three four five"
        )


async def test_first_prompt_sets_the_title(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        await client.run_prompt(id, "Fix the parser")
        await client.run_prompt(id, "And the tests")
        titles = [update.body["title"] for update in client.updates() if "title" in update.body]
        assert titles == ["Fix the parser"]


async def test_turn_sends_the_time_of_last_activity_once(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        await client.run_prompt(id, "/say a\n/tool b c\n/say d")
        bodies = [update.body for update in client.updates() if "updatedAt" in update.body]
        (row,) = (await client.request("session/list"))["sessions"]
        assert [body["updatedAt"] for body in bodies] == [row["updatedAt"]]
        assert bodies[0]["_meta"] == {"messageCount": 3, "hasErrors": False}
        assert bodies[0]["_meta"].items() <= row["_meta"].items()


@pytest.mark.parametrize("reason", ["end_turn", "max_tokens", "max_turn_requests", "refusal"])
async def test_turn_ends_with_its_stop_reason(
    testbed: AcpTestbed, version: int, reason: str
) -> None:
    async with testbed.connect_in_process(version) as client:
        assert await client.run_prompt(await client.new_session("/"), f"/stop {reason}") == reason


async def test_failed_turn_v1_gets_an_error_response(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        id = await client.new_session("/")
        error = await client.request_error(
            "session/prompt", client.prompt_params(id, "/fail out of luck")
        )
        assert error.code == -32603 and "out of luck" in error.message
        assert await client.run_prompt(id, "better now") == "end_turn"


async def test_failed_turn_v2_ends_with_an_error_state(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        id = await client.new_session("/")
        sent = await client.request("session/prompt", client.prompt_params(id, "/fail out of luck"))
        idle = (await client.wait_for_update(is_idle)).body
        assert "messageId" in sent
        assert idle["stopReason"] == "error"
        assert idle["error"]["code"] == -32603 and "out of luck" in idle["error"]["message"]
        assert await client.run_prompt(id, "better now") == "end_turn"


async def test_model_retry_sends_a_notice(testbed: AcpTestbed, version: int) -> None:
    capabilities = {"clientCapabilities": {"session": {"notices": {}}}} if version == 1 else {}
    async with testbed.connect_in_process(version, initialize=False) as client:
        await client.initialize(**capabilities)
        id = await client.new_session("/")
        assert await client.run_prompt(id, "/retry too much to do\n/say there") == "end_turn"
        (notice,) = [update.body for update in client.updates() if update.kind == "notice"]
        assert (notice["severity"], notice["title"]) == ("warning", "too much to do")


async def test_failure_is_reported_once(testbed: AcpTestbed) -> None:
    def notices(client: Client) -> list[dict[str, Any]]:
        return [update.body for update in client.updates() if update.kind == "notice"]

    async with (
        testbed.connect_in_process(1, initialize=False) as client,
        testbed.connect_in_process(1, initialize=False) as watcher,
    ):
        for connected in (client, watcher):
            await connected.initialize(clientCapabilities={"session": {"notices": {}}})
        id = await client.new_session("/")
        await watcher.open_session("resume", id, "/")
        error = await client.request_error(
            "session/prompt", client.prompt_params(id, "/fail out of luck")
        )
        assert "out of luck" in error.message and notices(client) == []
        await watcher.wait_until(lambda: bool(notices(watcher)))
        (notice,) = notices(watcher)
        assert notice["severity"] == "error" and "out of luck" in notice["title"]
        # Notices are live only.
        assert "notice" not in [update.kind for update in await watcher.replay(id, "/")]


async def test_replay_says_how_turns_failed(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        id = await client.new_session("/")
        await client.request_error("session/prompt", client.prompt_params(id, "/fail no luck"))
        prompt = await client.start_prompt(id, "/say begun\n/wait 60")
        await client.notify("session/cancel", {"sessionId": id})
        await client.wait_response(prompt)
        await client.run_prompt(id, "/say fine")
        assert "segue" not in str([update.body.get("_meta") for update in client.updates()])
        marked = [
            (update.body["content"]["text"], update.body["_meta"]["segue"]["stopReason"])
            for update in await client.replay(id, "/")
            if "segue" in update.body.get("_meta", {})
        ]
    assert [reason for _, reason in marked] == ["error", "cancelled"]
    assert marked[0][0].startswith("[The turn failed: ") and "no luck" in marked[0][0]


class FailsOnTheWay:
    """Emits errors after which its turn continues."""

    async def run(self, turn: Turn) -> StopReason:
        await turn.emit(Failed(message="first"))
        await turn.emit(Failed(message="second"))
        await turn.emit(AgentMessage(content=as_content("still here")))
        await turn.emit(Failed(message="third"))
        return "end_turn"


async def test_failures_of_a_turn_that_continues_are_notices(testbed: AcpTestbed) -> None:
    served = ServedAgent("fails", {"kind": "demo"}, FailsOnTheWay())
    async with testbed.connect_in_process(1, initialize=False, served_agent=served) as client:
        await client.initialize(clientCapabilities={"session": {"notices": {}}})
        id = await client.new_session("/")
        assert await client.run_prompt(id, "Go") == "end_turn"
        titles = [update.body["title"] for update in client.updates() if update.kind == "notice"]
        assert titles == ["first", "second", "third"]


@pytest.mark.parametrize("supported", [False, True])
async def test_compaction_is_sent_to_clients_that_support_it(
    testbed: AcpTestbed, supported: bool
) -> None:
    capabilities = {"session": {"compaction": {}}} if supported else {}
    async with testbed.connect_in_process(1, initialize=False) as client:
        await client.initialize(clientCapabilities=capabilities)
        await client.run_prompt(await client.new_session("/"), "/compact in short")
        bodies = [update.body for update in client.updates() if update.kind == "compaction_update"]
        assert len(bodies) == supported
    async with testbed.connect_in_process(2) as client:
        await client.run_prompt(await client.new_session("/"), "/compact in short")
        (body,) = [u.body for u in client.updates() if u.kind == "compaction_update"]
        assert (body["status"], body["summary"]) == (
            "completed",
            [{"type": "text", "text": "in short"}],
        )


class Costly:
    async def run(self, turn: Turn) -> StopReason:
        usage = Usage(input_tokens=10, output_tokens=5, cost=250_000)
        await turn.emit(ModelCalled(usage=usage, context_used=1500, context_size=200_000))
        return "end_turn"


async def test_usage_update_has_context_and_cost(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(
        version, served_agent=ServedAgent("costly", {"kind": "demo"}, Costly())
    ) as client:
        id = await client.new_session("/")
        await client.run_prompt(id, "a")
        await client.run_prompt(id, "b")
        bodies = [update.body for update in client.updates() if update.kind == "usage_update"]
        assert [(body["used"], body["size"], body["cost"]["amount"]) for body in bodies] == [
            (1500, 200_000, 0.25),
            (1500, 200_000, 0.5),
        ]


BLOCKS: list[dict[str, Any]] = [
    {"type": "text", "text": "look", "annotations": {"priority": 0.5}, "_meta": {"k": 1}},
    {"type": "image", "data": "aGk=", "mimeType": "image/png", "uri": "file:///a.png"},
    {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
    {"type": "resource_link", "name": "a", "uri": "file:///a", "title": "A", "size": 3},
    {"type": "resource", "resource": {"uri": "file:///b", "text": "b", "mimeType": "text/plain"}},
    {"type": "resource", "resource": {"uri": "file:///d", "text": "d", "_meta": {"k": 3}}},
    {"type": "resource", "resource": {"uri": "file:///c", "blob": "aGk="}, "_meta": {"k": 2}},
]


# Version 2 only.
ICONS = {"icons": [{"src": "https://example.org/i.png", "sizes": ["16x16"]}]}


async def test_prompt_content_is_replayed_unchanged(testbed: AcpTestbed, version: int) -> None:
    blocks = list(BLOCKS)
    if version == 2:
        blocks.append({"type": "resource_link", "name": "e", "uri": "file:///e", **ICONS})
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        await client.request(
            "session/prompt", {"sessionId": id, "prompt": blocks, "_meta": {"x": 1}}
        )
        if version == 2:
            await client.wait_for_update(is_idle)
        updates = await client.replay(id, "/")
        user_messages = [
            update.body for update in updates if update.kind.startswith("user_message")
        ]
        if version == 1:
            assert [body["content"] for body in user_messages] == blocks
            assert len({body["messageId"] for body in user_messages}) == 1
        else:
            assert [body["content"] for body in user_messages] == [blocks]


@pytest.mark.parametrize(
    "prompt",
    [
        [],
        "hello",
        None,
        ["hello"],
        [{}],
        [{"type": "text"}],
        [{"type": "text", "text": 7}],
        [{"type": "video", "data": "x"}],
        [{"type": "_custom"}],
        [{"type": "resource", "resource": {"uri": "file:///x"}}],
        [{"type": "resource", "resource": {"uri": "file:///x", "text": "a", "blob": "b"}}],
    ],
    ids=str,
)
async def test_invalid_prompt_is_rejected(testbed: AcpTestbed, version: int, prompt: Any) -> None:
    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        id = await client.new_session("/")
        error = await client.request_error("session/prompt", {"sessionId": id, "prompt": prompt})
        assert error.code == -32602
        assert (await hub.sessions.get(LOCAL, id)).messages == 0
        assert client.updates() == []


# Version 2: the life of a prompt.


async def test_prompt_v2_is_answered_when_its_message_is_stored(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        id = await client.new_session("/")
        sent = await client.request("session/prompt", client.prompt_params(id, "/wait 60"))
        (user_message,) = [update for update in client.updates() if update.kind == "user_message"]
        assert user_message.body["messageId"] == sent["messageId"]
        assert user_message.body["content"] == [{"type": "text", "text": "/wait 60"}]


async def test_state_updates_follow_the_turn(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        id = await client.new_session("/")
        await client.run_prompt(id, "/ask May I?")
        states = [update.body["state"] for update in client.updates() if "state" in update.body]
        assert states == ["running", "requires_action", "running", "idle"]
        assert is_idle(client.updates()[-1])


async def test_two_prompts_have_different_message_ids(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        id = await client.new_session("/")
        first = await client.request("session/prompt", client.prompt_params(id, "a"))
        second = await client.request("session/prompt", client.prompt_params(id, "b"))
        assert first != second


# Prompts that wait.


async def test_prompts_during_a_turn_wait_and_run_in_order(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        id = await client.new_session("/")
        first = await client.start_prompt(id, "/say one\n/wait 0.2")
        others = [
            await client.send_request("session/prompt", client.prompt_params(id, f"/say {word}"))
            for word in ("two", "three", "four")
        ]
        for request in (first, *others):
            await client.wait_response(request)
        answered = [item for item in client.log if item == "session/prompt"]
        assert len(answered) == 4
        if version == 2:
            for _ in range(4):
                await client.wait_for_update(is_idle)
        turns = [
            event.body for event in await hub.history.events(LOCAL, id, types=["user_message"])
        ]
        texts = [body.content[0].text for body in turns]
        assert texts == ["/say one\n/wait 0.2", "/say two", "/say three", "/say four"]


async def test_prompt_that_joins_a_turn_is_answered_with_it(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as client, testbed.hub() as hub:
        client.answer_permission = lambda params: None
        id = await client.new_session("/")
        first = await client.start_prompt(id, "/say begun\n/ask continue?\n/more\n/say done")
        second = await client.send_request("session/prompt", client.prompt_params(id, "also this"))
        while not await hub.turns.queued(LOCAL, id):
            await asyncio.sleep(0.01)
        await client.allow_last_request()
        results = [await client.wait_response(first), await client.wait_response(second)]
        if version == 1:
            assert results == [{"stopReason": "end_turn"}] * 2
        else:
            assert results[0] != results[1]
            await client.wait_for_update(is_idle)
        assert ("agent", "You added: also this") in conversation(client.updates())


async def test_cancel_ends_the_turn_and_waiting_prompts_only(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        running = await client.start_prompt(id, "/say begun\n/wait 60")
        waiting = await client.send_request(
            "session/prompt", client.prompt_params(id, "/say never")
        )
        await client.notify("session/cancel", {"sessionId": id, "_meta": {"why": "test"}})
        later = await client.send_request("session/prompt", client.prompt_params(id, "/say later"))
        if version == 1:
            assert await client.wait_response(running) == {"stopReason": "cancelled"}
            assert await client.wait_response(waiting) == {"stopReason": "cancelled"}
            assert await client.wait_response(later) == {"stopReason": "end_turn"}
        else:
            assert "messageId" in await client.wait_response(running)
            assert await is_withdrawn(client, waiting)
            assert "messageId" in await client.wait_response(later)
            idle = await client.wait_for_update(
                lambda u: is_idle(u) and u.body["stopReason"] == "end_turn"
            )
            assert idle == client.updates()[-1]
        entries = conversation(client.updates())
        assert ("agent", "later") in entries and ("agent", "never") not in entries


async def is_withdrawn(client: Client, request: Any) -> bool:
    try:
        await client.wait_response(request)
    except ErrorResponse as error:
        return error.code == -32800
    return False


async def test_cancel_directly_after_a_prompt_cancels_it(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        for _ in range(10):
            id = await client.new_session("/")
            before = len(client.log)
            request = await client.send_request(
                "session/prompt", client.prompt_params(id, "/wait 60")
            )
            await client.notify("session/cancel", {"sessionId": id})
            result = await client.wait_response(request)
            if version == 1:
                assert result == {"stopReason": "cancelled"}
            else:
                idle = await client.wait_for_update(is_idle, before)
                assert idle.body["stopReason"] == "cancelled"


async def test_no_update_follows_a_cancelled_turn(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        request = await client.start_prompt(id, "/slow 0.01\n/say " + "word " * 200)
        await client.notify("session/cancel", {"sessionId": id})
        await client.wait_response(request)
        if version == 2:
            await client.wait_for_update(is_idle)
        before = len(client.log)
        await client.request("session/list")
        await asyncio.sleep(0.3)
        assert client.updates(before) == []


async def test_text_before_a_cancel_is_stored(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        request = await client.start_prompt(
            id, "/say kept\n/slow 0.2\n/say and this was cut off here"
        )
        await client.notify("session/cancel", {"sessionId": id})
        await client.wait_response(request)
        if version == 2:
            await client.wait_for_update(is_idle)
        live = conversation(client.updates())
        replayed = conversation(await client.replay(id, "/"))
        # In version 1 only a response says live how the turn ended.
        ended = [("agent", "[The turn was cancelled.]")] if version == 1 else []
        assert replayed[1:] == [*live[version - 1 :], *ended]
        assert replayed[1] == ("agent", "kept")


async def test_cancel_without_a_turn_does_nothing(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        for session in (id, "nonsense", "0198c2a4-0000-7000-8000-000000000000"):
            await client.notify("session/cancel", {"sessionId": session})
        await client.notify("session/cancel", {})
        await client.notify("session/cancel", None)
        assert await client.run_prompt(id, "hello") == "end_turn"
        assert client.unmatched_errors == []


# `$/cancel_request`.


async def test_waiting_prompt_can_be_withdrawn(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        client.answer_permission = lambda params: None
        id = await client.new_session("/")
        running = await client.start_prompt(id, "/say begun\n/ask continue?")
        waiting = await client.send_request(
            "session/prompt", client.prompt_params(id, "/say never")
        )
        await client.notify("$/cancel_request", {"requestId": waiting})
        if version == 1:
            assert await client.wait_response(waiting) == {"stopReason": "cancelled"}
        else:
            assert await is_withdrawn(client, waiting)
        await client.allow_last_request()
        if version == 1:
            assert await client.wait_response(running) == {"stopReason": "end_turn"}
        else:
            assert (await client.wait_for_update(is_idle)).body["stopReason"] == "end_turn"
        assert ("agent", "never") not in conversation(client.updates())


async def test_cancelling_a_running_prompt_request_ends_its_turn_in_v1(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        id = await client.new_session("/")
        request = await client.start_prompt(id, "/say begun\n/wait 60")
        await client.notify("$/cancel_request", {"requestId": request})
        assert await client.wait_response(request) == {"stopReason": "cancelled"}
        assert await client.run_prompt(id, "again") == "end_turn"


async def test_stored_prompt_is_not_withdrawn(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(2) as client:
        for _ in range(10):
            id = await client.new_session("/")
            before = len(client.log)
            request = await client.send_request(
                "session/prompt", client.prompt_params(id, "/say hi")
            )
            await client.notify("$/cancel_request", {"requestId": request})
            try:
                await client.wait_response(request)
            except ErrorResponse as error:
                assert error.code == -32800
                assert "user_message" not in client.kinds(before)
            else:
                assert "user_message" in client.kinds(before)
                await client.wait_for_update(is_idle, before)


@pytest.mark.parametrize("id", [None, 7, "x", {}, [], True])
async def test_cancelling_an_unknown_request_does_nothing(
    testbed: AcpTestbed, version: int, id: Any
) -> None:
    async with testbed.connect_in_process(version) as client:
        await client.notify("$/cancel_request", {"requestId": id})
        await client.notify("$/cancel_request", [id])
        assert await client.request("session/list") == {"sessions": []}


# Modes.


def mode_request(version: int, id: str, value: Any, config: str = "mode") -> dict[str, Any]:
    params = {"sessionId": id, "configId": config, "value": value}
    return params if version == 1 else {**params, "type": "id"}


async def test_config_update_precedes_the_response(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        before = len(client.log)
        answer = await client.request(
            "session/set_config_option", mode_request(version, id, "plan")
        )
        (option,) = answer["configOptions"]
        assert option["currentValue"] == "plan"
        expected = (
            ["config_option_update"]
            if version == 2
            else [
                "current_mode_update",
                "config_option_update",
            ]
        )
        assert client.kinds(before) == expected
        assert client.updates()[-1].body["configOptions"] == [option]
        assert client.log[-1] == "session/set_config_option"


async def test_set_mode_sets_the_mode_option(testbed: AcpTestbed) -> None:
    async with testbed.connect_in_process(1) as client:
        id = await client.new_session("/")
        answer = await client.request(
            "session/set_mode", {"sessionId": id, "modeId": "acceptEdits"}
        )
        assert answer == {}
        current = client.updates()[0].body
        assert current["currentModeId"] == "acceptEdits"
        response = await client.open_session("resume", id, "/")
        assert response["modes"]["currentModeId"] == "acceptEdits"


async def test_mode_is_stored_with_the_session(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        await client.request("session/set_config_option", mode_request(version, id, "plan"))
    async with testbed.connect_in_process(version) as client:
        response = await client.open_session("resume", id, "/")
        assert response["configOptions"][0]["currentValue"] == "plan"


@pytest.mark.parametrize(
    ("config", "value"), [("mode", "nonsense"), ("mode", True), ("model", "x"), ("mode", None)]
)
async def test_unknown_option_or_value_changes_nothing(
    testbed: AcpTestbed, version: int, config: str, value: Any
) -> None:
    async with testbed.connect_in_process(version) as client:
        id = await client.new_session("/")
        params = mode_request(version, id, value, config)
        assert (await client.request_error("session/set_config_option", params)).code == -32602
        if version == 1 and isinstance(value, str):
            params = {"sessionId": id, "modeId": "nonsense"}
            assert (await client.request_error("session/set_mode", params)).code == -32602
        response = await client.open_session("resume", id, "/")
        assert response["configOptions"][0]["currentValue"] == "default"
