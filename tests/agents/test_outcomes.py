"""Tests of outcomes: the agent works, a grader checks the work, the agent revises it."""

import asyncio
from typing import Any

import pytest

from segue.agents.model import loop
from segue.model.principal import LOCAL
from segue.model.requests.spans import request_end
from segue.model.session import Session

from .conftest import TIMEOUT_SECONDS, ModelSetup, bodies_of, message_texts, requests_of
from .provider import Fail, Say, Use, Wait


def verdict(result: str, explanation: str = "because") -> list[Any]:
    return [Use("verdict", {"result": result, "explanation": explanation})]


def tag(body: Any) -> str:
    return str(body.__struct_config__.tag)


async def reach(setup: ModelSetup, max_iterations: int = 3) -> tuple[list[Any], Session]:
    session = await setup.session()
    rubric = {"type": "text", "content": "It has two lines."}
    await setup.hub.turns.define_outcome(LOCAL, session.id, "Write a poem", rubric, max_iterations)
    bodies = await setup.collect_events(session.id, 0)
    return bodies, await setup.hub.sessions.get(LOCAL, session.id)


def steps(bodies: list[Any]) -> list[tuple[int, str]]:
    return [(body.iteration, body.result) for body in bodies_of(bodies, "outcome_evaluated")]


async def test_satisfactory_work_is_graded_once(setup: ModelSetup) -> None:
    (setup.cwd / "poem").write_text("a\nb")
    async with setup:
        read_poem = [Use("read", {"file_path": "poem"})]
        setup.add_scripts(
            [Say("Here it is.")], read_poem, verdict("satisfied", "both lines are there")
        )
        bodies, session = await reach(setup)
    assert steps(bodies) == [(0, "running"), (0, "evaluating"), (0, "satisfied")]
    (outcome,) = session.outcomes
    assert (outcome.result, outcome.iteration) == ("satisfied", 0)
    assert outcome.explanation == "both lines are there" and outcome.completed_at is not None
    assert outcome.description == "Write a poem" and session.title == "Write a poem"
    worker, grader, looked = setup.provider.requests
    assert "two lines" in worker["messages"][0]["content"][0]["text"]
    assert "Here it is." in grader["messages"][0]["content"][0]["text"]
    assert {tool["name"] for tool in grader["tools"]} == {"read", "glob", "grep", "verdict"}
    assert "a" in str(looked["messages"][-1]["content"])
    assert session.usage.output_tokens == 3 * 7  # includes the grader's
    # Each request ends before the verdict that it led to.
    kinds = ("agent_message", "model_called", "outcome_evaluated")
    *asked, last = [body for body in bodies if tag(body) in kinds]
    assert [tag(body) for body in asked] == [
        *("outcome_evaluated", "agent_message", "outcome_evaluated", "model_called", "model_called")
    ]
    called = [body for body in bodies if request_end(body) is not None]
    assert [body.usage.output_tokens for body in called] == [7] * 3
    assert all(body.asked_at is not None for body in called)
    assert not any(end.is_error for end in requests_of(bodies))
    assert last.usage.output_tokens == 2 * 7
    # The grader's messages are not part of the conversation.
    assert bodies_of(bodies, "tool_call") == [] and message_texts(bodies) == ["Here it is."]


async def test_a_long_evaluation_is_reported_as_ongoing(
    setup: ModelSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "EVALUATION_REPORT_SECONDS", 0.01)
    async with setup:
        pause = Wait()
        setup.add_scripts([Say("Here it is.")], [pause, *verdict("satisfied")])
        reaching = asyncio.create_task(reach(setup))
        await pause.reached.wait()
        await asyncio.sleep(0.1)
        pause.event.set()
        bodies, session = await reaching
    evaluated = bodies_of(bodies, "outcome_evaluated")
    ongoing = [body for body in evaluated if body.ongoing]
    assert ongoing and {body.result for body in ongoing} == {"evaluating"}
    assert evaluated[-1].result == session.outcomes[0].result == "satisfied"


async def test_the_graders_explanation_is_sent_back_to_the_worker(setup: ModelSetup) -> None:
    async with setup:
        setup.add_scripts([Say("One.")], verdict("needs_revision", "one line is missing"))
        setup.add_scripts([Say("Two.")], verdict("satisfied"))
        bodies, session = await reach(setup)
        await setup.run_prompt("Thanks", session)
    assert steps(bodies) == [
        *((0, "running"), (0, "evaluating"), (0, "needs_revision")),
        *((1, "running"), (1, "evaluating"), (1, "satisfied")),
    ]
    again = setup.provider.requests[2]["messages"]
    assert "one line is missing" in again[-1]["content"][-1]["text"]
    assert "one line is missing" in str(setup.provider.requests[-1]["messages"])


async def test_the_iterations_of_an_outcome_are_limited(setup: ModelSetup) -> None:
    async with setup:
        for _ in range(2):
            setup.add_scripts([Say("Done.")], verdict("needs_revision", "no"))
        bodies, session = await reach(setup, max_iterations=2)
    assert steps(bodies)[-1] == (1, "max_iterations_reached")
    assert (session.status, session.stop_reason) == ("idle", "end_turn")


async def test_a_grader_can_declare_an_outcome_failed(setup: ModelSetup) -> None:
    async with setup:
        setup.add_scripts([Say("I cannot.")], verdict("failed", "there is no such thing"))
        bodies, _ = await reach(setup)
    assert steps(bodies)[-1] == (0, "failed")


async def test_a_grader_without_a_verdict_is_asked_again(setup: ModelSetup) -> None:
    async with setup:
        setup.add_scripts([Say("Done.")], [Say("Nice.")], [Use("verdict", {"result": "great"})])
        setup.add_scripts(verdict("satisfied"))
        bodies, _ = await reach(setup)
    assert steps(bodies)[-1] == (0, "satisfied")


@pytest.mark.parametrize("where", ["work", "grading"])
async def test_cancelling_interrupts_the_outcome(setup: ModelSetup, where: str) -> None:
    async with setup:
        wait = Wait()
        setup.add_scripts(*([[wait]] if where == "work" else [[Say("Done.")], [wait]]))
        session = await setup.session()
        await setup.hub.turns.define_outcome(
            LOCAL, session.id, "Go", {"type": "text", "content": "x"}
        )
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await wait.reached.wait()
        await setup.hub.turns.cancel(LOCAL, session.id)
        bodies = await setup.collect_events(session.id, 0)
        after = await setup.hub.sessions.get(LOCAL, session.id)
    assert steps(bodies)[-1] == (0, "interrupted")
    assert after.outcomes[0].completed_at is not None and after.status == "idle"


async def test_a_grader_that_fills_the_context_reports_an_error(setup: ModelSetup) -> None:
    context_full = Fail(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum")
    async with setup:
        setup.add_scripts([Say("Done.")], [context_full])
        bodies, session = await reach(setup)
    assert session.stop_reason == "error"
    assert "the grader has read" in bodies_of(bodies, "failed")[0].message
    assert [end.is_error for end in requests_of(bodies)] == [False, True]


async def test_an_error_interrupts_the_outcome(setup: ModelSetup) -> None:
    async with setup:
        setup.add_scripts([Fail(401, "authentication_error", "no")])
        bodies, session = await reach(setup)
    assert steps(bodies)[-1] == (0, "interrupted") and session.stop_reason == "error"


async def test_an_outcome_fails_with_an_agent_that_cannot_grade(setup: ModelSetup) -> None:
    async with setup:
        await setup.hub.config.unset("local", "model")
        bodies, _ = await reach(setup)
    assert steps(bodies)[-1] == (0, "failed")


async def test_a_prompt_waits_for_an_earlier_outcome(setup: ModelSetup) -> None:
    async with setup:
        wait = Wait()
        setup.add_scripts([wait, Use("glob", {"pattern": "*"})])
        session = await setup.session()
        await setup.hub.turns.submit(LOCAL, session.id, "First")
        await wait.reached.wait()
        rubric = {"type": "text", "content": "x"}
        await setup.hub.turns.define_outcome(LOCAL, session.id, "Second", rubric)
        last = await setup.hub.turns.submit(LOCAL, session.id, "Third")
        setup.add_scripts([Say("first done")], [Say("second done")], verdict("satisfied"))
        wait.event.set()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await setup.hub.turns.wait(LOCAL, session.id, last)
        bodies = [event.body async for event in setup.hub.history.read(LOCAL, session.id)]
    kinds = [b.__struct_config__.tag for b in bodies]
    assert [k for k in kinds if k in ("user_message", "outcome_defined")] == [
        *("user_message", "outcome_defined", "user_message")
    ]
    assert message_texts(bodies) == ["first done", "second done", "done"]
