"""A turn that runs in one process, driven and watched from another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from segue.hub import Hub
from segue.model.clock import SECOND
from segue.model.content import plain_text
from segue.model.event import (
    AgentMessage,
    Delta,
    Event,
    PermissionAnswered,
    PermissionAsked,
    StatusChanged,
    ToolResult,
    UserMessage,
)
from segue.model.principal import LOCAL
from tests.faults.processes import TIMEOUT_SECONDS, Child, StoreLocation, child
from tests.faults.stream import FollowerCheck
from tests.faults.takeover import wait_until_idle

LEASE = 15 * SECOND


class Scene:
    """A hub here, a session, and another process that holds the session open."""

    def __init__(self, hub: Hub, other: Child, session: str) -> None:
        self.hub = hub
        self.other = other
        self.session = session
        self.screen = FollowerCheck()
        self.follower = hub.history.follow(LOCAL, session, deltas=True)

    async def prompt(self, text: str) -> str:
        """Send a prompt in the other process, and return the turn."""
        turn: str = (await self.other.request(do="prompt", session=self.session, text=text))["turn"]
        return turn

    async def until(self, kind: type, **fields: Any) -> Any:
        """Watch until an event of a kind, or a piece of a message."""
        while True:
            item = await asyncio.wait_for(anext(self.follower), TIMEOUT_SECONDS)
            self.screen.show(item)
            body = item.body if isinstance(item, Event) else item
            if isinstance(body, kind) and all(
                getattr(body, name) == value for name, value in fields.items()
            ):
                return body


@asynccontextmanager
async def scene(location: StoreLocation) -> AsyncIterator[Scene]:
    async with (
        Hub(await location.open(), location.directory, lease=LEASE) as hub,
        child("holder.py", *location.arguments, LEASE) as other,
    ):
        session = await hub.editor.create(LOCAL, cwd="/work")
        await other.request(do="hold", session=session.id)
        scene = Scene(hub, other, session.id)
        yield scene
        await scene.follower.aclose()
        # An open session without a turn has no lease.
        await wait_until_idle(hub, session.id)


def test_prompt_from_another_process_runs_and_its_deltas_arrive(location: StoreLocation) -> None:
    async def main() -> None:
        async with scene(location) as there:
            slow = "/slow 0.04\n/say one two three four five six seven eight nine ten\n/slow 0"
            quick = "\n".join(f"/say quick words of message {number}" for number in range(30))
            thought = "/think a thought\n/slow 0.03\n/think a slower thought, word by word"
            turn = await there.prompt(f"{slow}\n{quick}\n{thought}")
            ended = await there.until(StatusChanged, status="idle")
            assert ended.stop_reason == "end_turn"
            # A little more of the stream, for pieces that come too late.
            await there.other.request(do="run", session=there.session, text="/slow 0.1\n/say a b c")
            await there.until(StatusChanged, status="idle")
            screen = there.screen
            assert next(e.id for e in screen.events if isinstance(e.body, UserMessage)) == turn
            replies = [
                plain_text(body.content) for body in screen.bodies if isinstance(body, AgentMessage)
            ]
            assert replies[0] == "one two three four five six seven eight nine ten"
            assert replies[1:31] == [f"quick words of message {number}" for number in range(30)]
            first = next(e.id for e in screen.events if isinstance(e.body, AgentMessage))
            assert len(screen.pieces[first]) >= 3, screen.pieces

    asyncio.run(main())


def test_paused_follower_gets_a_message_before_deltas_of_the_next(location: StoreLocation) -> None:
    async def main() -> None:
        async with scene(location) as there:
            slow = FollowerCheck()
            pausing = there.hub.history.follow(LOCAL, there.session, deltas=True)
            text = "/wait 0.3\n/say first\n/slow 0.05\n/say " + "second " * 100
            await there.prompt(text)
            # It has taken the last event that there is, and does not ask for more ...
            while not slow.events or not isinstance(slow.bodies[-1], UserMessage):
                slow.show(await anext(pausing))
            # ... until the first message is stored and the next one is being written.
            await there.until(AgentMessage)
            await there.until(Delta)
            while slow.writing is None or not isinstance(slow.bodies[-1], AgentMessage):
                slow.show(await asyncio.wait_for(anext(pausing), TIMEOUT_SECONDS))
            await pausing.aclose()
            await there.hub.turns.cancel(LOCAL, there.session)
            await there.until(StatusChanged, status="idle")

    asyncio.run(main())


def test_cancel_from_another_process_ends_the_turn(location: StoreLocation) -> None:
    async def main() -> None:
        async with scene(location) as there:
            text = "/slow 0.05\n/say " + "word " * 1000
            await there.prompt(text)
            await there.until(Delta)
            await there.hub.turns.cancel(LOCAL, there.session)
            ended = await there.until(StatusChanged, status="idle")
            assert ended.stop_reason == "cancelled"
            (partial,) = [body for body in there.screen.bodies if isinstance(body, AgentMessage)]
            assert partial.partial and plain_text(partial.content).startswith("word ")
            session = await there.hub.sessions.get(LOCAL, there.session)
            assert (session.status, session.turn) == ("idle", None)
            # The other process is none the worse for it.
            turn = await there.prompt("/say hello")
            assert await there.hub.turns.wait(LOCAL, there.session, turn) == "end_turn"

    asyncio.run(main())


def test_answer_from_another_process_reaches_the_permission_request(
    location: StoreLocation,
) -> None:
    async def main() -> None:
        async with scene(location) as there:
            turn = await there.prompt("/ask May I?\n/ask And this?")
            request = await there.until(PermissionAsked)
            await there.hub.turns.answer(LOCAL, there.session, request.ask_id, "allow", "do")
            second = await there.until(PermissionAsked)
            await there.hub.turns.answer(LOCAL, there.session, second.ask_id, "reject")
            assert await there.hub.turns.wait(LOCAL, there.session, turn) == "end_turn"
            await there.until(StatusChanged, stop_reason="end_turn")
            answers = [b for b in there.screen.bodies if isinstance(b, PermissionAnswered)]
            assert [(b.ask_id, b.option, b.note) for b in answers] == [
                (request.ask_id, "allow", "do"),
                (second.ask_id, "reject", None),
            ]
            results = [b.status for b in there.screen.bodies if isinstance(b, ToolResult)]
            assert results == ["completed", "failed"]

    asyncio.run(main())


def test_prompts_from_another_process_queue_and_run_in_order(location: StoreLocation) -> None:
    async def main() -> None:
        async with scene(location) as there:
            first = await there.prompt("/wait 0.2\n/say first")
            await there.until(UserMessage)
            turns = [await there.prompt(f"/say {n}") for n in range(5)]
            for turn in (first, *turns):
                assert await there.hub.turns.wait(LOCAL, there.session, turn) == "end_turn"
            for _ in (first, *turns):
                await there.until(StatusChanged, status="idle")
            prompts = [e.id for e in there.screen.events if isinstance(e.body, UserMessage)]
            assert prompts == [first, *turns]

    asyncio.run(main())
