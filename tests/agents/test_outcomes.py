"""Outcomes: work, be graded by another conversation, work on it again."""

import asyncio
from typing import Any

import pytest

from segue.model.principal import LOCAL
from segue.model.session import Session

from .conftest import PATIENCE, House, of, said
from .provider import Fail, Say, Use, Wait


def verdict(result: str, why: str = "because") -> list[Any]:
    return [Use("verdict", {"result": result, "explanation": why})]


def tag(body: Any) -> str:
    return str(body.__struct_config__.tag)


async def reach(house: House, most: int = 3) -> tuple[list[Any], Session]:
    session = await house.session()
    rubric = {"type": "text", "content": "It has two lines."}
    await house.hub.turns.define_outcome(LOCAL, session.id, "Write a poem", rubric, most)
    bodies = await house.rest(session.id, 0)
    return bodies, await house.hub.sessions.get(LOCAL, session.id)


def steps(bodies: list[Any]) -> list[tuple[int, str]]:
    return [(body.iteration, body.result) for body in of(bodies, "outcome_evaluated")]


async def test_work_that_satisfies_is_done_after_one_look(house: House) -> None:
    (house.place / "poem").write_text("a\nb")
    async with house:
        look = [Use("read", {"file_path": "poem"})]
        house.answers([Say("Here it is.")], look, verdict("satisfied", "both lines are there"))
        bodies, session = await reach(house)
    assert steps(bodies) == [(0, "running"), (0, "evaluating"), (0, "satisfied")]
    (outcome,) = session.outcomes
    assert (outcome.result, outcome.iteration) == ("satisfied", 0)
    assert outcome.explanation == "both lines are there" and outcome.completed_at is not None
    assert outcome.description == "Write a poem" and session.title == "Write a poem"
    worker, grader, looked = house.provider.requests
    assert "two lines" in worker["messages"][0]["content"][0]["text"]
    assert "Here it is." in grader["messages"][0]["content"][0]["text"]
    assert {tool["name"] for tool in grader["tools"]} == {"read", "glob", "grep", "verdict"}
    assert "a" in str(looked["messages"][-1]["content"])
    assert session.usage.output_tokens == 3 * 7  # the grader's are the session's too
    # Each request ends, as it went, before the verdict that it led to.
    kinds = ("model_asked", "model_called", "outcome_evaluated")
    *asked, last = [body for body in bodies if tag(body) in kinds]
    assert [tag(body) for body in asked] == [
        *("outcome_evaluated", "model_asked", "model_called", "outcome_evaluated"),
        *("model_asked", "model_called", "model_asked", "model_called"),
    ]
    called = of(bodies, "model_called")
    assert [(body.is_error, body.usage.output_tokens) for body in called] == [(False, 7)] * 3
    assert last.usage.output_tokens == 2 * 7
    # What the grader reads and says is not part of the conversation.
    assert of(bodies, "tool_call") == [] and said(bodies) == ["Here it is."]


async def test_what_is_missing_goes_back_to_the_worker(house: House) -> None:
    async with house:
        house.answers([Say("One.")], verdict("needs_revision", "one line is missing"))
        house.answers([Say("Two.")], verdict("satisfied"))
        bodies, session = await reach(house)
        await house.play("Thanks", session)
    assert steps(bodies) == [
        *((0, "running"), (0, "evaluating"), (0, "needs_revision")),
        *((1, "running"), (1, "evaluating"), (1, "satisfied")),
    ]
    again = house.provider.requests[2]["messages"]
    assert "one line is missing" in again[-1]["content"][-1]["text"]
    assert "one line is missing" in str(house.provider.requests[-1]["messages"])


async def test_there_is_a_most_to_the_iterations(house: House) -> None:
    async with house:
        for _ in range(2):
            house.answers([Say("Done.")], verdict("needs_revision", "no"))
        bodies, session = await reach(house, most=2)
    assert steps(bodies)[-1] == (1, "max_iterations_reached")
    assert (session.status, session.stop_reason) == ("idle", "end_turn")


async def test_a_grader_may_give_up_on_it(house: House) -> None:
    async with house:
        house.answers([Say("I cannot.")], verdict("failed", "there is no such thing"))
        bodies, _ = await reach(house)
    assert steps(bodies)[-1] == (0, "failed")


async def test_a_grader_that_does_not_say_is_asked_until_it_must(house: House) -> None:
    async with house:
        house.answers([Say("Done.")], [Say("Nice.")], [Use("verdict", {"result": "great"})])
        house.answers(verdict("satisfied"))
        bodies, _ = await reach(house)
    assert steps(bodies)[-1] == (0, "satisfied")


@pytest.mark.parametrize("where", ["work", "grading"])
async def test_what_is_cancelled_is_interrupted(house: House, where: str) -> None:
    async with house:
        wait = Wait()
        house.answers(*([[wait]] if where == "work" else [[Say("Done.")], [wait]]))
        session = await house.session()
        await house.hub.turns.define_outcome(
            LOCAL, session.id, "Go", {"type": "text", "content": "x"}
        )
        async with asyncio.timeout(PATIENCE):
            await wait.reached.wait()
        await house.hub.turns.cancel(LOCAL, session.id)
        bodies = await house.rest(session.id, 0)
        after = await house.hub.sessions.get(LOCAL, session.id)
    assert steps(bodies)[-1] == (0, "interrupted")
    assert after.outcomes[0].completed_at is not None and after.status == "idle"


async def test_a_grader_that_reads_too_much_says_so(house: House) -> None:
    full = Fail(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum")
    async with house:
        house.answers([Say("Done.")], [full])
        bodies, session = await reach(house)
    assert session.stop_reason == "error"
    assert "the grader has read" in of(bodies, "failed")[0].message
    assert [body.is_error for body in of(bodies, "model_called")] == [False, True]


async def test_an_error_interrupts_it_too(house: House) -> None:
    async with house:
        house.answers([Fail(401, "authentication_error", "no")])
        bodies, session = await reach(house)
    assert steps(bodies)[-1] == (0, "interrupted") and session.stop_reason == "error"


async def test_an_agent_that_cannot_grade_says_that_it_failed(house: House) -> None:
    async with house:
        await house.hub.config.unset("local", "model")
        bodies, _ = await reach(house)
    assert steps(bodies)[-1] == (0, "failed")


async def test_a_prompt_sent_meanwhile_waits_for_an_outcome_before_it(house: House) -> None:
    async with house:
        wait = Wait()
        house.answers([wait, Use("glob", {"pattern": "*"})])
        session = await house.session()
        await house.hub.turns.submit(LOCAL, session.id, "First")
        await wait.reached.wait()
        rubric = {"type": "text", "content": "x"}
        await house.hub.turns.define_outcome(LOCAL, session.id, "Second", rubric)
        last = await house.hub.turns.submit(LOCAL, session.id, "Third")
        house.answers([Say("first done")], [Say("second done")], verdict("satisfied"))
        wait.event.set()
        async with asyncio.timeout(PATIENCE):
            await house.hub.turns.wait(LOCAL, session.id, last)
        bodies = [event.body async for event in house.hub.history.read(LOCAL, session.id)]
    kinds = [b.__struct_config__.tag for b in bodies]
    assert [k for k in kinds if k in ("user_message", "outcome_defined")] == [
        *("user_message", "outcome_defined", "user_message")
    ]
    assert said(bodies) == ["first done", "second done", "done"]
