"""Prompts and their turns: what is shown, how they end, how they are held and cancelled."""

import asyncio
from typing import Any

import pytest

from segue.agents.base import Turn
from segue.interfaces.acp import ServedAgent
from segue.model.event import ModelCalled, Usage
from segue.model.lifecycle import StopReason
from segue.model.principal import LOCAL
from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.harness import Client, Refused, is_rest
from tests.interfaces.acp.testbed import House


async def test_a_turn_is_shown_as_it_happens(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new(house.directory)
        await client.run(id, "/think hm\n/say hi there\n/tool ls a b\n/plan one; x two")
        said = conversation(client.updates())
        if version == 2:  # where the client is told its own words too
            assert said.pop(0)[0] == "user"
        assert said == [("thought", "hm"), ("agent", "hi there"), ("tool", "ls (demo): completed")]
        plan = "plan" if version == 1 else "plan_update"
        assert client.kinds().count(plan) == 1


async def test_words_come_as_they_are_said(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        await client.run(id, "/slow 0.02\n/say one two three four five")
        chunks = [update for update in client.updates() if update.kind == "agent_message_chunk"]
        assert len(chunks) > 1
        assert len({update.body["messageId"] for update in chunks}) == 1
        assert "".join(update.body["content"]["text"] for update in chunks) == (
            "one two three four five"
        )


async def test_the_title_comes_from_the_first_prompt(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        await client.run(id, "Fix the parser")
        await client.run(id, "And the tests")
        titles = [update.body["title"] for update in client.updates() if "title" in update.body]
        assert titles == ["Fix the parser"]


async def test_the_time_of_last_activity_is_told_once_a_turn(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        await client.run(id, "/say a\n/tool b c\n/say d")
        told = [update.body for update in client.updates() if "updatedAt" in update.body]
        (row,) = (await client.ask("session/list"))["sessions"]
        assert [body["updatedAt"] for body in told] == [row["updatedAt"]]
        assert told[0]["_meta"] == {"messageCount": 3, "hasErrors": False}
        assert told[0]["_meta"].items() <= row["_meta"].items()


@pytest.mark.parametrize("reason", ["end_turn", "max_tokens", "max_turn_requests", "refusal"])
async def test_a_turn_ends_with_its_reason(house: House, version: int, reason: str) -> None:
    async with house.inside(version) as client:
        assert await client.run(await client.new("/"), f"/stop {reason}") == reason


async def test_a_failure_is_an_error_where_the_turn_is_a_request(house: House) -> None:
    async with house.inside(1) as client:
        id = await client.new("/")
        refused = await client.refusal("session/prompt", client.prompting(id, "/fail out of luck"))
        assert refused.code == -32603 and "out of luck" in refused.message
        assert await client.run(id, "better now") == "end_turn"


async def test_a_failure_is_a_state_where_the_turn_is_not_a_request(house: House) -> None:
    async with house.inside(2) as client:
        id = await client.new("/")
        sent = await client.ask("session/prompt", client.prompting(id, "/fail out of luck"))
        idle = (await client.until(is_rest)).body
        assert "messageId" in sent
        assert idle["stopReason"] == "error"
        assert idle["error"]["code"] == -32603 and "out of luck" in idle["error"]["message"]
        assert await client.run(id, "better now") == "end_turn"


async def test_that_a_model_is_asked_again_is_told_meanwhile(house: House, version: int) -> None:
    wanted = {"clientCapabilities": {"session": {"notices": {}}}} if version == 1 else {}
    async with house.inside(version, greet=False) as client:
        await client.initialize(**wanted)
        id = await client.new("/")
        assert await client.run(id, "/retry too much to do\n/say there") == "end_turn"
        (notice,) = [update.body for update in client.updates() if update.kind == "notice"]
        assert (notice["severity"], notice["title"]) == ("warning", "too much to do")


async def test_a_failure_is_a_notice_for_those_who_take_notices(house: House) -> None:
    async with house.inside(1, greet=False) as client:
        await client.initialize(clientCapabilities={"session": {"notices": {}}})
        id = await client.new("/")
        await client.refusal("session/prompt", client.prompting(id, "/fail out of luck"))
        (notice,) = [update.body for update in client.updates() if update.kind == "notice"]
        assert notice["severity"] == "error" and "out of luck" in notice["title"]
        # Notices are live only.
        assert "notice" not in [update.kind for update in await client.replay(id, "/")]


@pytest.mark.parametrize("takes", [False, True])
async def test_a_compaction_is_told_to_those_who_take_it(house: House, takes: bool) -> None:
    capabilities = {"session": {"compaction": {}}} if takes else {}
    async with house.inside(1, greet=False) as client:
        await client.initialize(clientCapabilities=capabilities)
        await client.run(await client.new("/"), "/compact in short")
        found = [update.body for update in client.updates() if update.kind == "compaction_update"]
        assert len(found) == takes
    async with house.inside(2) as client:
        await client.run(await client.new("/"), "/compact in short")
        (found,) = [u.body for u in client.updates() if u.kind == "compaction_update"]
        assert (found["status"], found["summary"]) == (
            "completed",
            [{"type": "text", "text": "in short"}],
        )


class Costly:
    async def run(self, turn: Turn) -> StopReason:
        usage = Usage(input_tokens=10, output_tokens=5, cost=250_000)
        await turn.emit(ModelCalled(usage=usage, context_used=1500, context_size=200_000))
        return "end_turn"


async def test_the_context_and_the_cost_so_far_are_told(house: House, version: int) -> None:
    async with house.inside(
        version, served_agent=ServedAgent("costly", {"kind": "demo"}, Costly())
    ) as client:
        id = await client.new("/")
        await client.run(id, "a")
        await client.run(id, "b")
        found = [update.body for update in client.updates() if update.kind == "usage_update"]
        assert [(body["used"], body["size"], body["cost"]["amount"]) for body in found] == [
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


# Which only version 2 has.
ICONS = {"icons": [{"src": "https://example.org/i.png", "sizes": ["16x16"]}]}


async def test_a_prompt_of_any_content_comes_back_as_it_was(house: House, version: int) -> None:
    blocks = list(BLOCKS)
    if version == 2:
        blocks.append({"type": "resource_link", "name": "e", "uri": "file:///e", **ICONS})
    async with house.inside(version) as client:
        id = await client.new("/")
        await client.ask("session/prompt", {"sessionId": id, "prompt": blocks, "_meta": {"x": 1}})
        if version == 2:
            await client.until(is_rest)
        updates = await client.replay(id, "/")
        mine = [update.body for update in updates if update.kind.startswith("user_message")]
        if version == 1:
            assert [body["content"] for body in mine] == blocks
            assert len({body["messageId"] for body in mine}) == 1
        else:
            assert [body["content"] for body in mine] == [blocks]


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
async def test_a_prompt_that_cannot_be_read_is_refused_whole(
    house: House, version: int, prompt: Any
) -> None:
    async with house.inside(version) as client, house.hub() as hub:
        id = await client.new("/")
        refused = await client.refusal("session/prompt", {"sessionId": id, "prompt": prompt})
        assert refused.code == -32602
        assert (await hub.sessions.get(LOCAL, id)).messages == 0
        assert client.updates() == []


# Version 2: the life of a prompt.


async def test_a_prompt_is_answered_when_its_message_is_in_the_conversation(house: House) -> None:
    async with house.inside(2) as client:
        id = await client.new("/")
        sent = await client.ask("session/prompt", client.prompting(id, "/wait 60"))
        (mine,) = [update for update in client.updates() if update.kind == "user_message"]
        assert mine.body["messageId"] == sent["messageId"]
        assert mine.body["content"] == [{"type": "text", "text": "/wait 60"}]


async def test_states_follow_the_turn(house: House) -> None:
    async with house.inside(2) as client:
        id = await client.new("/")
        await client.run(id, "/ask May I?")
        states = [update.body["state"] for update in client.updates() if "state" in update.body]
        assert states == ["running", "requires_action", "running", "idle"]
        assert is_rest(client.updates()[-1])


async def test_two_prompts_have_two_ids(house: House) -> None:
    async with house.inside(2) as client:
        id = await client.new("/")
        first = await client.ask("session/prompt", client.prompting(id, "a"))
        second = await client.ask("session/prompt", client.prompting(id, "b"))
        assert first != second


# Prompts that wait.


async def test_prompts_sent_meanwhile_wait_and_run_in_order(house: House, version: int) -> None:
    async with house.inside(version) as client, house.hub() as hub:
        id = await client.new("/")
        first = await client.begin(id, "/say one\n/wait 0.2")
        others = [
            await client.post("session/prompt", client.prompting(id, f"/say {word}"))
            for word in ("two", "three", "four")
        ]
        for request in (first, *others):
            await client.answer(request)
        answered = [item for item in client.log if item == "session/prompt"]
        assert len(answered) == 4
        if version == 2:
            for _ in range(4):
                await client.until(is_rest)
        turns = [
            event.body for event in await hub.history.events(LOCAL, id, types=["user_message"])
        ]
        texts = [body.content[0].text for body in turns]
        assert texts == ["/say one\n/wait 0.2", "/say two", "/say three", "/say four"]


async def test_a_prompt_that_joins_a_turn_is_answered_with_it(house: House, version: int) -> None:
    async with house.inside(version) as client, house.hub() as hub:
        client.choose = lambda params: None
        id = await client.new("/")
        first = await client.begin(id, "/say begun\n/ask go on?\n/more\n/say done")
        second = await client.post("session/prompt", client.prompting(id, "also this"))
        while not await hub.turns.queued(LOCAL, id):
            await asyncio.sleep(0.01)
        await client.allow()
        results = [await client.answer(first), await client.answer(second)]
        if version == 1:
            assert results == [{"stopReason": "end_turn"}] * 2
        else:
            assert results[0] != results[1]
            await client.until(is_rest)
        assert ("agent", "You added: also this") in conversation(client.updates())


async def test_a_cancel_takes_the_turn_and_what_waited_but_nothing_later(
    house: House, version: int
) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        running = await client.begin(id, "/say begun\n/wait 60")
        waiting = await client.post("session/prompt", client.prompting(id, "/say never"))
        await client.tell("session/cancel", {"sessionId": id, "_meta": {"why": "test"}})
        later = await client.post("session/prompt", client.prompting(id, "/say later"))
        if version == 1:
            assert await client.answer(running) == {"stopReason": "cancelled"}
            assert await client.answer(waiting) == {"stopReason": "cancelled"}
            assert await client.answer(later) == {"stopReason": "end_turn"}
        else:
            assert "messageId" in await client.answer(running)
            assert await withdrawn(client, waiting)
            assert "messageId" in await client.answer(later)
            idle = await client.until(lambda u: is_rest(u) and u.body["stopReason"] == "end_turn")
            assert idle == client.updates()[-1]
        said = conversation(client.updates())
        assert ("agent", "later") in said and ("agent", "never") not in said


async def withdrawn(client: Client, request: Any) -> bool:
    try:
        await client.answer(request)
    except Refused as refused:
        return refused.code == -32800
    return False


async def test_a_cancel_right_behind_its_prompt_cancels_it(house: House, version: int) -> None:
    async with house.inside(version) as client:
        for _ in range(10):
            id = await client.new("/")
            before = len(client.log)
            request = await client.post("session/prompt", client.prompting(id, "/wait 60"))
            await client.tell("session/cancel", {"sessionId": id})
            result = await client.answer(request)
            if version == 1:
                assert result == {"stopReason": "cancelled"}
            else:
                idle = await client.until(is_rest, before)
                assert idle.body["stopReason"] == "cancelled"


async def test_nothing_is_said_of_a_turn_after_its_cancelled_end(
    house: House, version: int
) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        request = await client.begin(id, "/slow 0.01\n/say " + "word " * 200)
        await client.tell("session/cancel", {"sessionId": id})
        await client.answer(request)
        if version == 2:
            await client.until(is_rest)
        before = len(client.log)
        await client.ask("session/list")
        await asyncio.sleep(0.3)
        assert client.updates(before) == []


async def test_what_was_said_before_a_cancel_is_kept(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        request = await client.begin(id, "/say kept\n/slow 0.2\n/say and this was cut off here")
        await client.tell("session/cancel", {"sessionId": id})
        await client.answer(request)
        if version == 2:
            await client.until(is_rest)
        live = conversation(client.updates())
        replayed = conversation(await client.replay(id, "/"))
        assert replayed[1:] == live[version - 1 :]
        assert replayed[1] == ("agent", "kept")


async def test_cancelling_nothing_is_nothing(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        for session in (id, "nonsense", "0198c2a4-0000-7000-8000-000000000000"):
            await client.tell("session/cancel", {"sessionId": session})
        await client.tell("session/cancel", {})
        await client.tell("session/cancel", None)
        assert await client.run(id, "hello") == "end_turn"
        assert client.refusals == []


# `$/cancel_request`.


async def test_a_held_prompt_can_be_taken_back(house: House, version: int) -> None:
    async with house.inside(version) as client:
        client.choose = lambda params: None
        id = await client.new("/")
        running = await client.begin(id, "/say begun\n/ask go on?")
        held = await client.post("session/prompt", client.prompting(id, "/say never"))
        await client.tell("$/cancel_request", {"requestId": held})
        if version == 1:
            assert await client.answer(held) == {"stopReason": "cancelled"}
        else:
            assert await withdrawn(client, held)
        await client.allow()
        if version == 1:
            assert await client.answer(running) == {"stopReason": "end_turn"}
        else:
            assert (await client.until(is_rest)).body["stopReason"] == "end_turn"
        assert ("agent", "never") not in conversation(client.updates())


async def test_taking_back_a_running_prompt_ends_the_turn_that_it_is(house: House) -> None:
    async with house.inside(1) as client:
        id = await client.new("/")
        request = await client.begin(id, "/say begun\n/wait 60")
        await client.tell("$/cancel_request", {"requestId": request})
        assert await client.answer(request) == {"stopReason": "cancelled"}
        assert await client.run(id, "again") == "end_turn"


async def test_a_prompt_that_is_in_the_conversation_is_not_taken_back(house: House) -> None:
    async with house.inside(2) as client:
        for _ in range(10):
            id = await client.new("/")
            before = len(client.log)
            request = await client.post("session/prompt", client.prompting(id, "/say hi"))
            await client.tell("$/cancel_request", {"requestId": request})
            try:
                await client.answer(request)
            except Refused as refused:
                assert refused.code == -32800
                assert "user_message" not in client.kinds(before)
            else:
                assert "user_message" in client.kinds(before)
                await client.until(is_rest, before)


@pytest.mark.parametrize("id", [None, 7, "x", {}, [], True])
async def test_taking_back_what_was_not_asked_is_nothing(
    house: House, version: int, id: Any
) -> None:
    async with house.inside(version) as client:
        await client.tell("$/cancel_request", {"requestId": id})
        await client.tell("$/cancel_request", [id])
        assert await client.ask("session/list") == {"sessions": []}


# Modes.


def mode_request(version: int, id: str, value: Any, config: str = "mode") -> dict[str, Any]:
    params = {"sessionId": id, "configId": config, "value": value}
    return params if version == 1 else {**params, "type": "id"}


async def test_setting_an_option_tells_everything_before_it_answers(
    house: House, version: int
) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        before = len(client.log)
        answer = await client.ask("session/set_config_option", mode_request(version, id, "plan"))
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


async def test_setting_a_mode_is_setting_the_option(house: House) -> None:
    async with house.inside(1) as client:
        id = await client.new("/")
        answer = await client.ask("session/set_mode", {"sessionId": id, "modeId": "acceptEdits"})
        assert answer == {}
        current = client.updates()[0].body
        assert current["currentModeId"] == "acceptEdits"
        opened = await client.open("resume", id, "/")
        assert opened["modes"]["currentModeId"] == "acceptEdits"


async def test_a_mode_is_remembered_with_the_session(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        await client.ask("session/set_config_option", mode_request(version, id, "plan"))
    async with house.inside(version) as client:
        opened = await client.open("resume", id, "/")
        assert opened["configOptions"][0]["currentValue"] == "plan"


@pytest.mark.parametrize(
    ("config", "value"), [("mode", "nonsense"), ("mode", True), ("model", "x"), ("mode", None)]
)
async def test_an_option_or_value_that_does_not_exist_changes_nothing(
    house: House, version: int, config: str, value: Any
) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        params = mode_request(version, id, value, config)
        assert (await client.refusal("session/set_config_option", params)).code == -32602
        if version == 1 and isinstance(value, str):
            params = {"sessionId": id, "modeId": "nonsense"}
            assert (await client.refusal("session/set_mode", params)).code == -32602
        opened = await client.open("resume", id, "/")
        assert opened["configOptions"][0]["currentValue"] == "default"
