"""Turns in one process: the queue, streaming, questions, cancelling, failing."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from segue.agents.base import Turn
from segue.agents.registry import AgentRegistry
from segue.agents.turn_hooks import HOOKS_KEY
from segue.hub import Hub
from segue.hub.turns import engine
from segue.model import ids
from segue.model.content import as_content
from segue.model.errors import InvalidInput, LeaseLost, NoAgent, NotFound
from segue.model.event import (
    AgentRef,
    Delta,
    Event,
    Failed,
    PermissionAnswered,
    PermissionAsked,
    StatusChanged,
    UserMessage,
)
from segue.model.lifecycle import StopReason
from segue.model.principal import LOCAL

MakeHub = Callable[..., Hub]


async def events_of(hub: Hub, id: str, *types: str) -> list[Any]:
    return [event.body for event in await hub.history.events(LOCAL, id, types=types)]


async def until(hub: Hub, id: str, seen: Callable[[Any], bool], after: int = 0) -> Event:
    async with asyncio.timeout(20):
        async for item in hub.history.follow(LOCAL, id, after):
            if isinstance(item, Event) and seen(item.body):
                return item
    raise AssertionError("the session ended first")


class Scripted:
    """An agent made of one coroutine function."""

    def __init__(self, play: Callable[[Turn], Any]) -> None:
        self._play = play

    async def run(self, turn: Turn) -> StopReason:
        return await self._play(turn) or "end_turn"


def playing(play: Callable[[Turn], Any]) -> AgentRegistry:
    return AgentRegistry({"default": lambda _: Scripted(play)})


async def test_a_turn_is_stored_in_order_and_comes_to_rest(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL, cwd="/")).id
        script = "/think hm\n/say yes\n/tool ls a b\n/usage 3 4"
        assert await hub.turns.run(LOCAL, id, script) == "end_turn"
        types = [event.type for event in await hub.history.events(LOCAL, id, after=1)]
        assert types == [
            "status_changed",
            "user_message",
            "info_changed",
            "agent_thought",
            "agent_message",
            "tool_call",
            "tool_result",
            "model_called",
            "status_changed",
        ]
        session = await hub.sessions.get(LOCAL, id)
        assert (session.status, session.turn, session.turns) == ("idle", None, 1)
        assert (session.usage.input_tokens, session.usage.output_tokens) == (3, 4)


async def test_the_turn_s_id_is_its_prompt_s_event_id(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "hello")
        assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"
        found = await hub.history.events(LOCAL, id, types=["user_message"])
        assert [event.id for event in found] == [turn]


async def test_the_first_prompt_gives_the_title_and_a_person_s_title_stays(
    make_hub: MakeHub,
) -> None:
    async with make_hub() as hub:
        untitled = await hub.editor.create(LOCAL)
        await hub.turns.run(LOCAL, untitled.id, "\n```\n# Fix the   parser \nplease")
        assert (await hub.sessions.get(LOCAL, untitled.id)).title == "Fix the parser"
        await hub.turns.run(LOCAL, untitled.id, "something else")
        assert (await hub.sessions.get(LOCAL, untitled.id)).title == "Fix the parser"
        cleared = await hub.editor.create(LOCAL, title="Mine")
        await hub.editor.set_title(LOCAL, cleared.id, None)
        await hub.turns.run(LOCAL, cleared.id, "not this")
        assert (await hub.sessions.get(LOCAL, cleared.id)).title is None


async def test_prompts_are_answered_one_at_a_time_in_order(make_hub: MakeHub) -> None:
    running = 0

    async def play(turn: Turn) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0.01)
        await turn.say(f"to {turn.text}")
        running -= 1

    async with make_hub(agent_registry=playing(play)) as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn_ids = [await hub.turns.submit(LOCAL, id, str(number)) for number in range(5)]
        for turn in turn_ids:
            assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"
        said = await events_of(hub, id, "user_message", "agent_message")
        texts = [body.content[0].text for body in said]
        assert texts == [text for n in range(5) for text in (str(n), f"to {n}")]


async def test_sessions_run_side_by_side(make_hub: MakeHub) -> None:
    meeting = asyncio.Barrier(3)

    async def play(turn: Turn) -> None:
        await meeting.wait()

    async with make_hub(agent_registry=playing(play)) as hub, asyncio.timeout(20):
        made = [await hub.editor.create(LOCAL) for _ in range(3)]
        done = await asyncio.gather(*(hub.turns.run(LOCAL, session.id, "x") for session in made))
        assert done == ["end_turn"] * 3


async def test_an_agent_is_given_the_history_before_its_prompt(make_hub: MakeHub) -> None:
    seen: list[list[str]] = []

    async def play(turn: Turn) -> None:
        history = await turn.history()
        seen.append([e.body.content[0].text for e in history if isinstance(e.body, UserMessage)])

    async with make_hub(agent_registry=playing(play)) as hub:
        id = (await hub.editor.create(LOCAL)).id
        for text in ("one", "two", "three"):
            await hub.turns.run(LOCAL, id, text)
    assert seen == [[], ["one"], ["one", "two"]]


async def test_a_follower_gets_deltas_then_the_whole_message(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "/slow 0.01\n/say one two three four five")
        pieces: dict[str, str] = {}
        async with asyncio.timeout(20):
            async for item in hub.history.follow(LOCAL, id, deltas=True):
                if isinstance(item, Delta):
                    assert item.offset == len(pieces.get(item.message, ""))
                    pieces[item.message] = pieces.get(item.message, "") + item.text
                elif item.type == "agent_message":
                    whole = item
                    break
        assert whole.body.content[0].text == "one two three four five"
        (message,) = pieces
        assert message == whole.id
        assert whole.body.content[0].text.startswith(pieces[message]) and len(pieces[message]) > 3
        await hub.turns.wait(LOCAL, id, turn)
        assert await hub.store.deltas("local", id) == []


async def test_cancel_keeps_what_had_arrived_and_marks_it(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "/slow 0.02\n/say " + "word " * 500)
        async with asyncio.timeout(20):
            async for item in hub.history.follow(LOCAL, id, deltas=True):
                if isinstance(item, Delta):
                    break
        await hub.turns.cancel(LOCAL, id)
        assert await hub.turns.wait(LOCAL, id, turn) == "cancelled"
        *_, message, interrupted, rest = await hub.history.events(LOCAL, id)
        assert message.body.partial and message.body.content[0].text.startswith("word ")
        assert (interrupted.type, rest.body.stop_reason) == ("interrupted", "cancelled")
        session = await hub.sessions.get(LOCAL, id)
        assert (session.status, session.turn) == ("idle", None)
        assert await hub.turns.run(LOCAL, id, "and now?") == "end_turn"


async def test_cancel_closes_open_calls_and_questions(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "/ask really?")
        await until(hub, id, lambda body: isinstance(body, PermissionAsked))
        await hub.turns.cancel(LOCAL, id)
        assert await hub.turns.wait(LOCAL, id, turn) == "cancelled"
        session = await hub.sessions.get(LOCAL, id)
        assert (session.open_calls, session.open_asks, session.pending) == ((), (), ())


async def test_cancel_takes_waiting_prompts_with_it_but_not_later_ones(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        running = await hub.turns.submit(LOCAL, id, "/wait 60")
        waiting = await hub.turns.submit(LOCAL, id, "held")
        await until(hub, id, lambda body: isinstance(body, UserMessage))
        await hub.turns.cancel(LOCAL, id)
        later = await hub.turns.submit(LOCAL, id, "later")
        ends = [await hub.turns.wait(LOCAL, id, turn) for turn in (running, waiting, later)]
        assert ends == ["cancelled", "cancelled", "end_turn"]
        texts = [body.content[0].text for body in await events_of(hub, id, "user_message")]
        assert texts == ["/wait 60", "later"]


async def test_cancel_of_nothing_does_nothing(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        session = await hub.editor.create(LOCAL)
        await hub.turns.cancel(LOCAL, session.id)
        assert await hub.sessions.get(LOCAL, session.id) == session
        assert await hub.turns.run(LOCAL, session.id, "hello") == "end_turn"


async def test_a_waiting_prompt_can_be_withdrawn_and_a_begun_one_not(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        running = await hub.turns.submit(LOCAL, id, "/wait 60")
        waiting = await hub.turns.submit(LOCAL, id, "never")
        await until(hub, id, lambda body: isinstance(body, UserMessage))
        assert await hub.turns.withdraw(LOCAL, id, waiting)
        assert not await hub.turns.withdraw(LOCAL, id, running)
        assert await hub.turns.wait(LOCAL, id, waiting) == "cancelled"
        await hub.turns.cancel(LOCAL, id)
        assert await hub.turns.wait(LOCAL, id, running) == "cancelled"


async def test_an_agent_that_ignores_its_cancel_writes_nothing_afterwards(
    make_hub: MakeHub,
) -> None:
    late: list[type[BaseException]] = []
    released = asyncio.Event()

    async def play(turn: Turn) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await released.wait()
            try:
                await turn.say("too late")
            except LeaseLost:
                late.append(LeaseLost)

    async with make_hub(agent_registry=playing(play)) as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "x")
        await until(hub, id, lambda body: isinstance(body, UserMessage))
        await hub.turns.cancel(LOCAL, id)
        assert await hub.turns.wait(LOCAL, id, turn) == "cancelled"
        released.set()
        while not late:
            await asyncio.sleep(0)
        assert await events_of(hub, id, "agent_message") == []


async def test_a_session_that_was_taken_over_hears_nothing_of_the_configured_model(
    make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make_hub() as hub:
        session = await hub.editor.create(LOCAL)
        await hub.config.set("local", "model", "anthropic:claude-haiku-4-5")
        look = hub.records.built_in_agent

        async def slow(workspace: str) -> AgentRef:
            lease = await hub.store.lease_of("local", session.id)
            assert lease is not None
            await hub.store.release(lease)
            assert await hub.store.acquire(
                "local", session.id, "another", engine.LEASE_MICROSECONDS
            )
            return await look(workspace)

        monkeypatch.setattr(hub.records, "built_in_agent", slow)
        await hub.turns.submit(LOCAL, session.id, "x")
        await hub.turns.engine.rest()
        assert (await look("local")).version == 2
        assert await hub.sessions.get(LOCAL, session.id) == session


async def test_an_answer_reaches_the_agent_and_the_session_waits_meanwhile(
    make_hub: MakeHub,
) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "/ask really?")
        asked = await until(hub, id, lambda body: isinstance(body, PermissionAsked))
        session = await hub.sessions.get(LOCAL, id)
        assert (session.status, session.stop_reason) == ("idle", "requires_action")
        assert session.pending == (asked.body.ask_id,) and session.turn == turn
        with pytest.raises(NotFound):
            await hub.turns.answer(LOCAL, id, "no such question", "allow")
        await hub.turns.answer(LOCAL, id, asked.body.ask_id, "no such option")
        await hub.turns.answer(LOCAL, id, asked.body.ask_id, "allow", "go on")
        assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"
        (answered,) = await events_of(hub, id, "permission_answered")
        assert answered == PermissionAnswered(
            ask_id=asked.body.ask_id, option="allow", note="go on"
        )
        (result,) = await events_of(hub, id, "tool_result")
        assert result.status == "completed"


async def test_questions_asked_at_once_are_answered_in_any_order(make_hub: MakeHub) -> None:
    async def play(turn: Turn) -> None:
        answers = await asyncio.gather(
            turn.request_permission("one?"), turn.request_permission("two?")
        )
        await turn.say(" ".join(str(answer.allowed) for answer in answers))

    async with make_hub(agent_registry=playing(play)) as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "x")
        await until(hub, id, lambda b: isinstance(b, StatusChanged) and len(b.pending) == 2)
        asked = {body.title: body.ask_id for body in await events_of(hub, id, "permission_asked")}
        await hub.turns.answer(LOCAL, id, asked["two?"], "reject")
        await until(hub, id, lambda b: isinstance(b, PermissionAnswered))
        assert (await hub.sessions.get(LOCAL, id)).pending == (asked["one?"],)
        await hub.turns.answer(LOCAL, id, asked["one?"], "allow")
        assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"
        (said,) = await events_of(hub, id, "agent_message")
        assert said.content[0].text == "True False"


async def test_a_failing_agent_ends_its_turn_with_the_reason(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        assert (
            await hub.turns.run(LOCAL, id, "/say before\n/tool x y\n/fail out of luck") == "error"
        )
        (failed,) = await events_of(hub, id, "failed")
        assert failed == Failed(message="DemoFailure: out of luck", code="DemoFailure")
        assert (await hub.sessions.get(LOCAL, id)).errors == 1
        assert await hub.turns.run(LOCAL, id, "again") == "end_turn"


async def test_an_agent_may_take_in_prompts_sent_meanwhile(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "/ask wait for me\n/more")
        asked = await until(hub, id, lambda body: isinstance(body, PermissionAsked))
        added = await hub.turns.submit(LOCAL, id, "one more thing")
        await hub.turns.answer(LOCAL, id, asked.body.ask_id, "allow")
        assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"
        assert await hub.turns.wait(LOCAL, id, added) == "end_turn"
        assert (await hub.sessions.get(LOCAL, id)).turns == 1
        said = [body.content[0].text for body in await events_of(hub, id, "agent_message")]
        assert said == ["You added: one more thing"]


async def test_a_session_whose_agent_nobody_has_refuses_a_prompt(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        record = await hub.records.create("local", "agent", {"spec": {"kind": "exotic"}})
        id = (await hub.editor.create(LOCAL, agent=AgentRef(id=record.id))).id
        with pytest.raises(NoAgent, match="exotic"):
            await hub.turns.submit(LOCAL, id, "hello")
        assert await hub.store.inbox("local", id) == []

        async def play(turn: Turn) -> None:
            await turn.say("here")

        hold = await hub.turns.lease(LOCAL, id, agent=Scripted(play))
        assert await hub.turns.run(LOCAL, id, "hello") == "end_turn"
        await hold.close()
        with pytest.raises(NoAgent):
            await hub.turns.submit(LOCAL, id, "hello")


async def test_what_only_a_program_that_is_gone_could_answer_blocks_nobody(
    make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL, cwd="/")).id
        overrides = {"kind": "model", "model": "test:any", HOOKS_KEY: ids.new_id()}
        taken = await hub.turns.submit(LOCAL, id, "with hooks", overrides=overrides)
        await hub.turns.submit(LOCAL, id, "behind it")
        await hub.turns.cancel(LOCAL, id)
        assert await hub.turns.wait(LOCAL, id, taken) == "cancelled"
        assert await hub.turns.queued(LOCAL, id) == []

        monkeypatch.setattr(engine, "ORPHANED_MICROSECONDS", 0)
        left = await hub.turns.submit(LOCAL, id, "with hooks", overrides=overrides)
        assert await hub.turns.wait(LOCAL, id, left) == "error"
        (failed,) = await events_of(hub, id, "failed")
        assert "hooks that only the process that started it has" in failed.message
        assert await hub.turns.run(LOCAL, id, "/say on") == "end_turn"


async def test_closing_a_held_session_cancels_its_turn(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        hold = await hub.turns.lease(LOCAL, id)
        turn = await hub.turns.submit(LOCAL, id, "/wait 60")
        await until(hub, id, lambda body: isinstance(body, UserMessage))
        await hold.close()
        assert await hub.turns.wait(LOCAL, id, turn) == "cancelled"
        assert await hub.store.lease_of("local", id) is None


async def test_closing_the_hub_brings_its_turns_to_rest(make_hub: MakeHub) -> None:
    hub = make_hub()
    id = (await hub.editor.create(LOCAL)).id
    await hub.turns.submit(LOCAL, id, "/wait 60")
    await until(hub, id, lambda body: isinstance(body, UserMessage))
    await hub.turns.engine.close()
    session = await hub.sessions.get(LOCAL, id)
    assert (session.status, session.turn, session.stop_reason) == ("idle", None, "cancelled")
    await hub.close()


async def test_a_purged_session_ends_its_turn_and_its_followers(make_hub: MakeHub) -> None:
    async with make_hub() as hub, asyncio.timeout(20):
        id = (await hub.editor.create(LOCAL)).id
        await hub.turns.submit(LOCAL, id, "/ask wait")
        await until(hub, id, lambda b: isinstance(b, StatusChanged) and bool(b.pending))
        followed = [event async for event in _drain(hub, id)]
        assert followed


async def _drain(hub: Hub, id: str) -> Any:
    async for item in hub.history.follow(LOCAL, id):
        if isinstance(item.body, StatusChanged) and item.body.pending:
            await hub.editor.purge(LOCAL, id)
        yield item


async def test_an_archived_session_that_is_prompted_is_live_again(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        await hub.editor.archive(LOCAL, id)
        await hub.turns.run(LOCAL, id, "hello")
        assert (await hub.sessions.get(LOCAL, id)).state == "active"


async def test_an_empty_or_late_prompt_is_refused(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        with pytest.raises(InvalidInput):
            await hub.turns.submit(LOCAL, id, [])
        await hub.editor.append(LOCAL, id, StatusChanged(status="terminated"))
        with pytest.raises(InvalidInput, match="terminated"):
            await hub.turns.submit(LOCAL, id, "hello")


async def test_a_turn_left_open_by_a_dead_process_is_closed_and_not_run_again(
    make_hub: MakeHub,
) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        lease = await hub.store.acquire("local", id, "somebody else", 1)
        assert lease is not None
        turn = ids.new_id()
        await hub.editor.append(
            LOCAL,
            id,
            StatusChanged(status="running", turn=turn),
            UserMessage(content=as_content("never again")),
        )
        await hub.store.put_inbox(
            "local",
            id,
            "prompt",
            waiting := ids.new_id(),
            {"content": [{"type": "text", "text": "x"}]},
        )
        await hub.turns.engine.recover()
        assert await hub.turns.wait(LOCAL, id, waiting) == "end_turn"
        reasons = [body.stop_reason for body in await events_of(hub, id, "status_changed")]
        assert reasons == [None, "error", None, "end_turn"]
        assert len(await events_of(hub, id, "interrupted")) == 1
        assert len(await events_of(hub, id, "agent_message")) == 1
