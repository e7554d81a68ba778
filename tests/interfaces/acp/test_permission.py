"""Permission questions: asked, answered well or badly, withdrawn, and not asked at all."""

from typing import Any

import pytest

from segue.model.principal import LOCAL
from tests.interfaces.acp.harness import Client, is_rest, selected
from tests.interfaces.acp.testbed import House

ASKED = "/say begun\n/ask May I?"


def outcome_of(client: Client) -> tuple[str, str]:
    """How the asking tool call ended: its status, and what the agent was told."""
    result = [u.body for u in client.updates() if u.kind == "tool_call_update"][-1]
    return result["status"], result["content"][0]["content"]["text"]


async def test_a_question_shows_the_call_and_its_options(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new(house.directory)
        await client.run(id, "/write a.txt hello")
        (asked,) = client.asked
        kinds = [option["kind"] for option in asked["options"]]
        assert kinds == ["allow_once", "allow_always", "reject_once"]
        shown = asked["toolCall"] if version == 1 else asked["subject"]["toolCall"]
        assert shown["kind"] == "edit"
        assert shown["rawInput"] == {"path": "a.txt", "content": "hello"}
        calls = [u.body["toolCallId"] for u in client.updates() if u.body.get("kind") == "edit"]
        assert calls == [shown["toolCallId"]]
        if version == 2:
            assert asked["title"] == "Write a.txt?"
        assert (house.directory / "a.txt").read_text() == "hello\n"


async def test_a_rejected_call_is_not_made(house: House, version: int) -> None:
    async with house.inside(version) as client:
        client.choose = lambda params: selected("reject")
        await client.run(await client.new(house.directory), "/write a.txt hello")
        assert outcome_of(client) == ("failed", "the user did not allow this")
        assert not (house.directory / "a.txt").exists()


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
async def test_what_is_no_clear_yes_is_no_approval(house: House, version: int, answer: Any) -> None:
    async with house.inside(version) as client:
        client.choose = lambda params: answer
        assert await client.run(await client.new("/"), ASKED) == "end_turn"
        assert outcome_of(client) == ("failed", "no answer")


async def test_a_cancelled_turn_takes_its_question_back(house: House, version: int) -> None:
    async with house.inside(version) as client:
        client.choose = lambda params: None
        id = await client.new("/")
        request = await client.begin(id, ASKED)
        await client.eventually(lambda: bool(client.asked))
        await client.tell("session/cancel", {"sessionId": id})
        result = await client.answer(request)
        await client.eventually(lambda: bool(client.withdrawn))
        if version == 1:
            assert result == {"stopReason": "cancelled"}
        else:
            assert (await client.until(is_rest)).body["stopReason"] == "cancelled"
        # An answer that comes too late is heard by nobody.
        await client.respond(client.withdrawn[0], selected("allow"))
        assert await client.run(id, "/say on") == "end_turn"


async def test_closing_takes_the_question_back_before_it_answers(
    house: House, version: int
) -> None:
    async with house.inside(version) as client:
        client.choose = lambda params: None
        id = await client.new("/")
        await client.begin(id, ASKED)
        await client.eventually(lambda: bool(client.asked))
        await client.ask("session/close", {"sessionId": id})
        assert len(client.withdrawn) == 1


async def test_everybody_is_asked_and_the_first_answer_counts(house: House, version: int) -> None:
    async with house.inside(version) as mine, house.inside(version) as theirs:
        mine.choose = lambda params: None
        theirs.choose = lambda params: selected("allow_always")
        id = await mine.new("/")
        await theirs.open("resume", id, "/")
        assert await mine.run(id, ASKED) == "end_turn"
        assert outcome_of(mine) == ("completed", "Always allow ask here")
        assert len(mine.asked) == len(theirs.asked) == 1
        # The other one hears that it need not ask its user any more.
        await mine.eventually(lambda: bool(mine.withdrawn))


async def test_an_answer_from_another_door_takes_the_question_back(
    house: House, version: int
) -> None:
    async with house.inside(version) as client, house.hub() as hub:
        client.choose = lambda params: None
        id = await client.new("/")
        request = await client.begin(id, ASKED)
        await client.eventually(lambda: bool(client.asked))
        (ask,) = (await hub.sessions.get(LOCAL, id)).open_asks
        await hub.turns.answer(LOCAL, id, ask, "allow")
        await client.answer(request)
        await client.eventually(lambda: bool(client.withdrawn))
        if version == 2:
            await client.until(is_rest)
        assert outcome_of(client) == ("completed", "Allow")


async def test_who_comes_later_is_asked_too(house: House, version: int) -> None:
    async with house.inside(version) as first, house.inside(version) as second:
        first.choose = lambda params: None
        id = await first.new(house.directory)
        request = await first.post("session/prompt", first.prompting(id, "/write a.txt hello"))
        await first.eventually(lambda: bool(first.asked))
        await second.open("resume", id, house.directory)
        await first.answer(request)
        await second.eventually(lambda: bool(second.asked))
        assert second.asked == first.asked


async def set_mode(client: Client, id: str, mode: str) -> None:
    params = {"sessionId": id, "configId": "mode", "value": mode}
    if client.version == 2:
        params["type"] = "id"
    await client.ask("session/set_config_option", params)


async def test_in_the_mode_that_never_asks_nobody_is_asked(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new(house.directory)
        await set_mode(client, id, "bypassPermissions")
        await client.run(id, "/write a.txt hello")
        assert client.asked == []
        assert (house.directory / "a.txt").read_text() == "hello\n"
        await set_mode(client, id, "default")
        await client.run(id, ASKED)
        assert len(client.asked) == 1


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "plan"])
async def test_in_every_other_mode_somebody_is(house: House, version: int, mode: str) -> None:
    async with house.inside(version) as client:
        id = await client.new("/")
        await set_mode(client, id, mode)
        await client.run(id, ASKED)
        assert len(client.asked) == 1


async def test_the_modes_mean_what_they_say(house: House, version: int) -> None:
    async with house.inside(version) as client:
        id = await client.new(house.directory)
        await set_mode(client, id, "acceptEdits")
        await client.run(id, "/write a.txt hello")
        assert client.asked == []
        assert (house.directory / "a.txt").read_text() == "hello\n"
        await set_mode(client, id, "plan")
        await client.run(id, "/write a.txt other")
        assert client.asked == []
        status, why = outcome_of(client)
        assert status == "failed" and "plan mode" in why
        assert (house.directory / "a.txt").read_text() == "hello\n"
        await set_mode(client, id, "default")
        client.choose = lambda params: selected("allow_always")
        await client.run(id, "/write a.txt asked")
        await client.run(id, "/write a.txt unasked")
        assert len(client.asked) == 1  # always is always
        assert (house.directory / "a.txt").read_text() == "unasked\n"


async def test_a_mode_set_in_the_middle_of_a_turn_counts_from_there(
    house: House, version: int
) -> None:
    async with house.inside(version) as client:
        client.choose = lambda params: None
        id = await client.new("/")
        request = await client.begin(id, "/say begun\n/ask One?\n/ask Two?")
        await client.eventually(lambda: bool(client.asked))
        await set_mode(client, id, "bypassPermissions")
        await client.allow()
        await client.answer(request)
        if version == 2:
            await client.until(is_rest)
        assert len(client.asked) == 1
        assert outcome_of(client) == ("completed", "Allow")
