"""A process dies at any step of a turn; another process makes the session idle again."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from segue.hub import Hub
from segue.hub.turns.driver import SessionDriver
from segue.model.content import plain_text
from segue.model.errors import NotFound
from segue.model.event import (
    AgentMessage,
    Delta,
    Event,
    Interrupted,
    PermissionAsked,
    StatusChanged,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.principal import LOCAL
from tests.faults.idle import assert_idle, ends
from tests.faults.processes import TIMEOUT_SECONDS, StoreLocation, child
from tests.faults.stream import FollowerCheck
from tests.faults.takeover import bodies, read_events, recover_sessions

WORKSPACE = "local"
SHORT = 2_000_000  # a lease, in microseconds: what a dead process holds is free so soon
LEASE = 15_000_000  # a process that died is noticed long before
NEVER = 10**6
STREAM = "/slow 0.03\n/say " + " ".join(f"word{number}" for number in range(1000))
NEXT = "/say the next one"


# Every step that a turn takes in the store.


def test_turn_killed_at_any_step_leaves_an_idle_session(location: StoreLocation) -> None:
    async def main() -> None:
        async with Hub(await location.open(), location.directory, lease=SHORT) as hub:
            lived = await die(hub, location, NEVER)
            assert lived["reason"] == "end_turn" and lived["steps"] > 12
            some_at_once = asyncio.Semaphore(4)

            async def one(step: int) -> dict[str, Any]:
                async with some_at_once:
                    return await die(hub, location, step)

            deaths = await asyncio.gather(*map(one, range(1, lived["steps"] + 1)))
            assert len([death for death in deaths if death["says"] == "dying"]) > 12
            sessions = [death["session"] for death in deaths]
            async with answering(hub, *sessions):
                await recover_sessions(hub, *sessions)
            for death in deaths:
                await check_death(hub, death)

    asyncio.run(main())


async def die(hub: Hub, location: StoreLocation, step: int) -> dict[str, Any]:
    """Run a turn in a process that dies before one step, and return its last lines."""
    session = (await hub.editor.create(LOCAL, cwd="/work")).id
    report: dict[str, Any] = {"session": session, "step": step}
    async with (
        answering(hub, session),
        child("dying.py", *location.arguments, SHORT, session, step) as mortal,
    ):
        while (message := await mortal.read_line()) is not None:
            report |= message
    return report


@asynccontextmanager
async def answering(hub: Hub, *sessions: str) -> AsyncIterator[None]:
    """Answer every permission request of these sessions."""

    async def answer(session: str) -> None:
        async for event in hub.history.follow(LOCAL, session):
            if isinstance(event, Event) and isinstance(event.body, PermissionAsked):
                with suppress(NotFound):  # withdrawn meanwhile
                    await hub.turns.answer(LOCAL, session, event.body.ask_id, "allow")

    tasks = [asyncio.create_task(answer(session)) for session in sessions]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def check_death(hub: Hub, death: dict[str, Any]) -> None:
    events = await read_events(hub, death["session"])
    row = await hub.sessions.get(LOCAL, death["session"])
    # Shown if the test fails.
    print(death, *(f"{event.seq} {event.body}" for event in events), sep="\n")
    assert_idle(row, events)
    prompts = [event.id for event in events if isinstance(event.body, UserMessage)]
    if death.get("at") == "put_inbox":
        assert prompts == []  # it was never given
        return
    assert len(prompts) == 1, "a begun turn was run again, or a prompt was lost"
    (ended,) = [body for body in bodies(events, StatusChanged) if ends(body)]
    # The first steps are to put the prompt, to acquire the session and to begin the turn.
    through = death["says"] == "lived" or death["at"] == "release"
    if death["step"] <= 3 or through:
        assert ended.stop_reason == "end_turn"
        assert bodies(events, Interrupted) == []
    else:
        assert ended.stop_reason == "error"
        assert len(bodies(events, Interrupted)) == 1
    messages = bodies(events, AgentMessage)
    assert [body.partial for body in messages] in ([], [True], [False], [False, False])
    assert "word by word".startswith("".join(plain_text(body.content) for body in messages[:1]))


# The moments between steps, when a turn waits for something.

WAITING: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "just after it began": ("/wait 60", lambda it: isinstance(it, UserMessage)),
    "while streaming": (STREAM, lambda it: isinstance(it, Delta) and it.offset > 20),
    "between tool call and result": ("/mcp stuck tool", lambda it: isinstance(it, ToolCall)),
    "while waiting for an answer": ("/ask May I?", lambda it: isinstance(it, PermissionAsked)),
    "after its last message": ("/say bye\n/wait 60", lambda it: isinstance(it, AgentMessage)),
}


@pytest.mark.parametrize("moment", WAITING)
def test_a_turn_killed_while_it_waits_is_closed_and_the_next_prompt_runs(
    location: StoreLocation, moment: str
) -> None:
    text, arrived = WAITING[moment]

    async def main() -> None:
        async with Hub(await location.open(), location.directory, lease=SHORT) as hub:
            session = (await hub.editor.create(LOCAL, cwd="/work")).id
            screen = FollowerCheck()
            async with child("holder.py", *location.arguments, SHORT) as other:
                await other.request(do="hold", session=session)
                turn = (await other.request(do="prompt", session=session, text=text))["turn"]
                later = await other.request(do="prompt", session=session, text=NEXT, plain=True)
                next_turn = later["turn"]
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    async for item in hub.history.follow(LOCAL, session, deltas=True):
                        screen.show(item)
                        if arrived(item.body if isinstance(item, Event) else item):
                            break
                other.kill()
                await other.ended()
            await recover_sessions(hub, session)
            events = await read_events(hub, session)
            assert_idle(await hub.sessions.get(LOCAL, session), events)
            assert [e.id for e in events if isinstance(e.body, UserMessage)] == [turn, next_turn]
            cut, ran = [body for body in bodies(events, StatusChanged) if ends(body)]
            assert (cut.turn, cut.stop_reason) == (turn, "error")
            assert (ran.turn, ran.stop_reason) == (next_turn, "end_turn")
            assert "ended before it did" in cut.message
            (interrupted,) = bodies(events, Interrupted)
            assert "ended before it did" in interrupted.reason
            messages = [(plain_text(b.content), b.partial) for b in bodies(events, AgentMessage)]
            assert messages.pop() == ("the next one", False)
            if moment == "while streaming":
                ((streamed, partial),) = messages
                (shown,) = screen.pieces.values()
                assert partial and streamed.startswith("".join(shown))
                assert STREAM.split("/say ")[1].startswith(streamed) and "word999" not in streamed
            elif moment == "after its last message":
                assert messages == [("bye", False)]
            else:
                assert messages == []
            for result in bodies(events, ToolResult):
                assert result.status == "cancelled"
            assert await hub.store.deltas(WORKSPACE, session) == []

    asyncio.run(main())


def test_turn_of_a_dead_process_is_closed_although_the_process_that_took_it_over_stops(
    location: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_over, run_prompts = asyncio.Event(), SessionDriver._run_prompts

    async def stop_at_once(driver: SessionDriver) -> None:
        driver.retire()
        await run_prompts(driver)
        taken_over.set()

    async def main() -> None:
        async with Hub(await location.open(), location.directory) as hub:
            session = (await hub.editor.create(LOCAL, cwd="/work")).id
            async with child("holder.py", *location.arguments, LEASE) as other:
                answer = await other.request(do="prompt", session=session, text="/wait 60")
                await hub.turns.wait_started(LOCAL, session, answer["turn"])
                other.kill()
                await other.ended()
            with monkeypatch.context() as patch:
                patch.setattr(SessionDriver, "_run_prompts", stop_at_once)
                hub.turns.engine.start()
                await asyncio.wait_for(taken_over.wait(), TIMEOUT_SECONDS)
        async with Hub(await location.open(), location.directory) as hub:
            await recover_sessions(hub, session)
            events = await read_events(hub, session)
            assert_idle(await hub.sessions.get(LOCAL, session), events)
            assert len(bodies(events, Interrupted)) == 1

    asyncio.run(main())
