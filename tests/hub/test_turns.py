"""Run turns in one process: queue, deltas, permission requests, cancellation and failure."""

import asyncio
from typing import Any

import pytest

from segue.agents.base import Turn
from segue.agents.base.turn_hooks import HOOKS_KEY
from segue.hub import Hub
from segue.hub.turns.holder import holder_name
from segue.hub.turns.running import runner
from segue.model import ids
from segue.model.content import as_content
from segue.model.errors import InvalidInput, NoAgent, NotFound
from segue.model.event import (
    AgentMessage,
    AgentRef,
    AgentThought,
    Delta,
    Failed,
    PermissionAnswered,
    PermissionAsked,
    StatusChanged,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.principal import LOCAL
from tests.hub.scripted_turns import MakeHub, ScriptedAgent, read_bodies, registry_with, wait_for

DEAD_PROCESS = 2**22 + 1  # above the highest process id


async def test_turn_stores_its_events_in_order_and_ends_idle(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL, cwd="/")).id
        script = "/think hm\n/say yes\n/tool ls a b\n/usage 3 4"
        assert await hub.turns.run(LOCAL, id, script) == "end_turn"
        types = [event.type for event in await hub.history.events(LOCAL, id, after=1)]
        assert types == [
            "status_changed",
            "user_message",
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


async def test_turn_id_is_the_event_id_of_its_prompt(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "hello")
        assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"
        prompts = await hub.history.events(LOCAL, id, types=["user_message"])
        assert [event.id for event in prompts] == [turn]


async def test_first_prompt_sets_the_title_unless_a_person_changed_it(
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
        await turn.send_message(f"to {turn.text}")
        running -= 1

    async with make_hub(agent_registry=registry_with(play)) as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn_ids = [await hub.turns.submit(LOCAL, id, str(number)) for number in range(5)]
        for turn in turn_ids:
            assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"
        messages = await read_bodies(hub, id, "user_message", "agent_message")
        texts = [message.content[0].text for message in messages]
        assert texts == [text for n in range(5) for text in (str(n), f"to {n}")]


async def test_turns_of_different_sessions_run_concurrently(make_hub: MakeHub) -> None:
    barrier = asyncio.Barrier(3)

    async def play(turn: Turn) -> None:
        await barrier.wait()

    async with make_hub(agent_registry=registry_with(play)) as hub, asyncio.timeout(20):
        sessions = [await hub.editor.create(LOCAL) for _ in range(3)]
        stop_reasons = await asyncio.gather(
            *(hub.turns.run(LOCAL, session.id, "x") for session in sessions)
        )
        assert stop_reasons == ["end_turn"] * 3


async def test_agent_receives_the_history_before_its_prompt(make_hub: MakeHub) -> None:
    seen: list[list[str]] = []

    async def play(turn: Turn) -> None:
        history = await turn.history()
        seen.append([e.body.content[0].text for e in history if isinstance(e.body, UserMessage)])

    async with make_hub(agent_registry=registry_with(play)) as hub:
        id = (await hub.editor.create(LOCAL)).id
        for text in ("one", "two", "three"):
            await hub.turns.run(LOCAL, id, text)
    assert seen == [[], ["one"], ["one", "two"]]


async def test_subscriber_receives_deltas_and_then_the_complete_message(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "/slow 0.01\n/say one two three four five")
        delta_texts: dict[str, str] = {}
        async with asyncio.timeout(20):
            async for item in hub.history.follow(LOCAL, id, deltas=True):
                if isinstance(item, Delta):
                    assert item.offset == len(delta_texts.get(item.message, ""))
                    delta_texts[item.message] = delta_texts.get(item.message, "") + item.text
                elif item.type == "agent_message":
                    complete = item
                    break
        assert complete.body.content[0].text == "one two three four five"
        (message,) = delta_texts
        assert message == complete.id
        assert (
            complete.body.content[0].text.startswith(delta_texts[message])
            and len(delta_texts[message]) > 3
        )
        await hub.turns.wait(LOCAL, id, turn)
        assert await hub.store.deltas("local", id) == []


async def test_session_waits_for_an_answer_that_then_reaches_the_agent(
    make_hub: MakeHub,
) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "/ask really?")
        asked = await wait_for(hub, id, lambda body: isinstance(body, PermissionAsked))
        session = await hub.sessions.get(LOCAL, id)
        assert (session.status, session.stop_reason) == ("idle", "requires_action")
        assert session.pending == (asked.body.ask_id,) and session.turn == turn
        with pytest.raises(NotFound):
            await hub.turns.answer(LOCAL, id, "no such question", "allow")
        with pytest.raises(InvalidInput, match="has no option"):
            await hub.turns.answer(LOCAL, id, asked.body.ask_id, "no such option")
        await hub.turns.answer(LOCAL, id, asked.body.ask_id, "allow", "continue")
        assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"
        (answered,) = await read_bodies(hub, id, "permission_answered")
        assert answered == PermissionAnswered(
            ask_id=asked.body.ask_id, option="allow", note="continue"
        )
        (result,) = await read_bodies(hub, id, "tool_result")
        assert result.status == "completed"


async def test_concurrent_permission_requests_can_be_answered_in_any_order(
    make_hub: MakeHub,
) -> None:
    async def play(turn: Turn) -> None:
        answers = await asyncio.gather(
            turn.request_permission("one?"), turn.request_permission("two?")
        )
        await turn.send_message(" ".join(str(answer.allowed) for answer in answers))

    async with make_hub(agent_registry=registry_with(play)) as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "x")
        await wait_for(hub, id, lambda b: isinstance(b, StatusChanged) and len(b.pending) == 2)
        asked = {body.title: body.ask_id for body in await read_bodies(hub, id, "permission_asked")}
        await hub.turns.answer(LOCAL, id, asked["two?"], "reject")
        await wait_for(hub, id, lambda b: isinstance(b, PermissionAnswered))
        assert (await hub.sessions.get(LOCAL, id)).pending == (asked["one?"],)
        await hub.turns.answer(LOCAL, id, asked["one?"], "allow")
        assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"
        (message,) = await read_bodies(hub, id, "agent_message")
        assert message.content[0].text == "True False"


async def test_failing_agent_ends_its_turn_with_the_reason(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        assert (
            await hub.turns.run(LOCAL, id, "/say before\n/tool x y\n/fail out of luck") == "error"
        )
        (failed,) = await read_bodies(hub, id, "failed")
        assert failed == Failed(message="DemoFailure: out of luck", code="DemoFailure")
        assert (await hub.sessions.get(LOCAL, id)).errors == 1
        assert await hub.turns.run(LOCAL, id, "again") == "end_turn"


@pytest.mark.parametrize("is_event", [True, False])
async def test_value_that_cannot_be_read_again_fails_the_turn(
    make_hub: MakeHub, is_event: bool
) -> None:
    async def answer(turn: Turn) -> Any:
        if is_event:
            await turn.emit(StatusChanged(status="idle", stop_reason="done"))  # type: ignore[arg-type]  # a mistake
        return "done"

    async with make_hub(agent_registry=registry_with(answer)) as hub:
        id = (await hub.editor.create(LOCAL)).id
        assert await hub.turns.run(LOCAL, id, "hello") == "error"
        (failed,) = await read_bodies(hub, id, "failed")
        assert "'done'" in failed.message
        assert (await hub.sessions.get(LOCAL, id)).status == "idle"


async def test_agent_can_add_new_prompts_to_its_running_turn(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "/ask wait for me\n/more")
        asked = await wait_for(hub, id, lambda body: isinstance(body, PermissionAsked))
        added = await hub.turns.submit(LOCAL, id, "one more thing")
        await hub.turns.answer(LOCAL, id, asked.body.ask_id, "allow")
        assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"
        assert await hub.turns.wait(LOCAL, id, added) == "end_turn"
        assert (await hub.sessions.get(LOCAL, id)).turns == 1
        texts = [body.content[0].text for body in await read_bodies(hub, id, "agent_message")]
        assert texts == ["You added: one more thing"]


async def test_session_with_an_unknown_agent_rejects_prompts(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        record = await hub.records.create("local", "agent", {"spec": {"kind": "exotic"}})
        id = (await hub.editor.create(LOCAL, agent=AgentRef(id=record.id))).id
        with pytest.raises(NoAgent, match="exotic"):
            await hub.turns.submit(LOCAL, id, "hello")
        assert await hub.store.inbox("local", id) == []

        async def play(turn: Turn) -> None:
            await turn.send_message("here")

        opened = await hub.turns.open(LOCAL, id, agent=ScriptedAgent(play))
        assert await hub.turns.run(LOCAL, id, "hello", opened=opened) == "end_turn"
        await opened.close()
        with pytest.raises(NoAgent):
            await hub.turns.submit(LOCAL, id, "hello")


async def test_turn_with_hooks_of_a_dead_process_does_not_block_the_queue(
    make_hub: MakeHub,
) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL, cwd="/")).id
        overrides = {"kind": "model", "model": "test:any", HOOKS_KEY: ids.new_id()}
        orphaned = await hub.turns.submit(LOCAL, id, "with hooks", overrides=overrides)
        assert await hub.turns.wait(LOCAL, id, orphaned) == "error"
        (failed,) = await read_bodies(hub, id, "failed")
        assert "hooks that only the process that started it has" in failed.message
        assert await hub.turns.run(LOCAL, id, "/say hello") == "end_turn"


async def test_closing_a_session_cancels_its_own_turns_only(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        mine, other = [await hub.turns.open(LOCAL, id) for _ in range(2)]
        turn = await hub.turns.submit(LOCAL, id, "/wait 60", opened=mine)
        queued = await hub.turns.submit(LOCAL, id, "mine too", opened=mine)
        theirs = await hub.turns.submit(LOCAL, id, "/wait 0.2", opened=other)
        await wait_for(hub, id, lambda body: isinstance(body, UserMessage))
        await mine.close()
        assert await hub.turns.wait(LOCAL, id, turn) == "cancelled"
        assert await hub.turns.wait(LOCAL, id, queued) == "cancelled"
        await wait_for(hub, id, lambda body: isinstance(body, UserMessage) and "0.2" in str(body))
        await mine.close()
        assert await hub.turns.wait(LOCAL, id, theirs) == "end_turn"


async def test_session_that_is_closed_twice_at_once_is_closed(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        opened = await hub.turns.open(LOCAL, id)
        turn = await hub.turns.submit(LOCAL, id, "/wait 60", opened=opened)
        await wait_for(hub, id, lambda body: isinstance(body, UserMessage))
        # A client closes it, and the end of its turn does too.
        await asyncio.gather(opened.close(), opened.close(cancel=False))
        assert hub.turns.engine.opened(opened.id) is None
        assert await hub.turns.wait(LOCAL, id, turn) in ("cancelled", "end_turn")


async def test_open_session_without_a_turn_has_no_lease(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        opened = await hub.turns.open(LOCAL, id)
        assert await hub.store.lease_of("local", id) is None
        assert await hub.turns.run(LOCAL, id, "/say hello", opened=opened) == "end_turn"
        await hub.turns.engine.wait_idle()
        assert await hub.store.lease_of("local", id) is None


async def test_closing_the_engine_cancels_its_turns(make_hub: MakeHub) -> None:
    hub = make_hub()
    id = (await hub.editor.create(LOCAL)).id
    await hub.turns.submit(LOCAL, id, "/wait 60")
    await wait_for(hub, id, lambda body: isinstance(body, UserMessage))
    await hub.turns.engine.close()
    session = await hub.sessions.get(LOCAL, id)
    assert (session.status, session.turn, session.stop_reason) == ("idle", None, "cancelled")
    await hub.close()


async def test_closing_the_hub_waits_for_a_cancelled_agent_that_ends_slowly(
    make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "GRACE_SECONDS", 0.01)
    begun, ended = asyncio.Event(), []

    async def play(turn: Turn) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.3)  # as if it waited for the end of its program
            ended.append(turn.id)

    async with make_hub(agent_registry=registry_with(play)) as hub:
        id = (await hub.editor.create(LOCAL)).id
        turn = await hub.turns.submit(LOCAL, id, "x")
        await begun.wait()
        await hub.turns.cancel(LOCAL, id)
        assert await hub.turns.wait(LOCAL, id, turn) == "cancelled"
        assert ended == []
    assert ended == [turn]


async def test_purge_ends_the_turn_and_the_subscriptions(make_hub: MakeHub) -> None:
    async with make_hub() as hub, asyncio.timeout(20):
        id = (await hub.editor.create(LOCAL)).id
        await hub.turns.submit(LOCAL, id, "/ask wait")
        await wait_for(hub, id, lambda b: isinstance(b, StatusChanged) and bool(b.pending))
        events = [event async for event in _follow_and_purge(hub, id)]
        assert events


async def _follow_and_purge(hub: Hub, id: str) -> Any:
    async for item in hub.history.follow(LOCAL, id):
        if isinstance(item.body, StatusChanged) and item.body.pending:
            await hub.editor.purge(LOCAL, id)
        yield item


async def test_prompt_unarchives_a_session(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        await hub.editor.archive(LOCAL, id)
        await hub.turns.run(LOCAL, id, "hello")
        assert (await hub.sessions.get(LOCAL, id)).state == "active"


async def test_empty_prompt_and_prompt_to_a_terminated_session_are_rejected(
    make_hub: MakeHub,
) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        with pytest.raises(InvalidInput):
            await hub.turns.submit(LOCAL, id, [])
        await hub.editor.append(LOCAL, id, StatusChanged(status="terminated"))
        with pytest.raises(InvalidInput, match="terminated"):
            await hub.turns.submit(LOCAL, id, "hello")


async def test_turn_of_a_dead_process_is_ended_and_not_repeated(
    make_hub: MakeHub,
) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        dead = holder_name(DEAD_PROCESS, "1", "x")
        lease = await hub.store.acquire("local", id, dead)
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
        reasons = [body.stop_reason for body in await read_bodies(hub, id, "status_changed")]
        assert reasons == [None, "error", None, "end_turn"]
        assert len(await read_bodies(hub, id, "interrupted")) == 1
        assert len(await read_bodies(hub, id, "agent_message")) == 1


async def test_every_event_of_a_turn_names_its_turn_and_a_response_its_request(
    make_hub: MakeHub,
) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL, cwd="/")).id
        script = "/model\n/think so\n/say one\n/tool ls a\n/usage 3 4\n/say later"
        await hub.turns.run(LOCAL, id, script)
        await hub.turns.run(LOCAL, id, "two")
        events = await hub.history.events(LOCAL, id)
        first, second = [event.id for event in events if isinstance(event.body, UserMessage)]
        (called,) = await read_bodies(hub, id, "model_called")
        asked = called.asked
        assert asked is not None
        named = [
            (event.type, event.body.turn, getattr(event.body, "request", None))
            for event in events
            if isinstance(
                event.body, UserMessage | AgentMessage | AgentThought | ToolCall | ToolResult
            )
        ]
        assert named == [
            ("user_message", first, None),
            ("agent_thought", first, asked),
            ("agent_message", first, asked),
            ("tool_call", first, asked),
            ("tool_result", first, None),
            ("agent_message", first, None),
            ("user_message", second, None),
            ("agent_message", second, None),
        ]
        messages = [event.body for event in events if isinstance(event.body, AgentMessage)]
        assert [message.model for message in messages] == ["demo", None, None]
        # The first event of the response says when the request began.
        begun = [event.type for event in events if getattr(event.body, "asked_at", None)]
        assert begun == ["agent_thought"]


async def test_failure_of_an_agent_has_its_traceback_in_the_log_and_not_in_the_session(
    make_hub: MakeHub, caplog: pytest.LogCaptureFixture
) -> None:
    async def raise_by_mistake(turn: Turn) -> None:
        {}["missing"]

    async def refuse(turn: Turn) -> None:
        raise InvalidInput("this agent answers on Mondays")

    for play, is_logged in ((raise_by_mistake, True), (refuse, False)):
        caplog.clear()
        async with make_hub(agent_registry=registry_with(play)) as hub:
            id = (await hub.editor.create(LOCAL, cwd="/")).id
            assert await hub.turns.run(LOCAL, id, "hi") == "error"
            (failure,) = await read_bodies(hub, id, "failed")
        assert "Traceback" not in failure.message
        assert ("raise_by_mistake" in caplog.text) is is_logged
    assert failure.message == "this agent answers on Mondays"
