"""However a turn of the model agent ends, the session is at rest, whole, and can go on.

It is killed at every step it takes in the store, cancelled at every such step, and cancelled in the
middle of everything that takes time.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.hub import Hub
from segue.hub.turns import engine
from segue.model import clock
from segue.model.errors import NotFound
from segue.model.event import ConfigChanged, Event, PermissionAsked, StatusChanged
from segue.model.principal import LOCAL
from segue.store.memory import MemoryStore
from segue.store.sqlite import SQLiteStore
from tests.faults.rest import at_rest
from tests.faults.takeover import recovered

from .conftest import PATIENCE, House, of, said
from .provider import Fail, Say, Script, Step, Think, Use, Wait
from .test_model import spec

SHORT = 5 * clock.SECOND  # a lease: what a dead process holds is free so soon
NEVER = 10**6


def script(request: dict[str, Any]) -> Sequence[Step]:
    """Work on "Go" with two tools, then say so; one sentence for anything else."""
    last = request["messages"][-1]["content"][-1]
    if last["type"] == "tool_result":
        return [Say("All is done.")]
    if last["text"] == "Go":
        return [
            Think("two things"),
            Say("I begin."),
            Use("write", {"file_path": "a.txt", "content": "x"}),
            Use("bash", {"command": "cat a.txt"}),
        ]
    return [Say("Going on.")]


def well_formed(request: dict[str, Any]) -> None:
    """A request that every provider takes: sides alternate, and every call has its result."""
    messages = request["messages"]
    assert [m["role"] for m in messages] == [
        "assistant" if n % 2 else "user" for n in range(len(messages))
    ]
    for message, following in zip(messages, [*messages[1:], {"content": []}], strict=True):
        calls = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
        results = [b["tool_use_id"] for b in following["content"] if b["type"] == "tool_result"]
        assert sorted(calls) == sorted(results)


async def goes_on(house: House, session: str) -> list[Event]:
    """The session is at rest, and a next prompt is answered; its events before that."""
    row = await house.hub.sessions.get(LOCAL, session)
    events = [event async for event in house.hub.history.read(LOCAL, session)]
    at_rest(row, events)
    house.provider.scripts.clear()
    bodies = await house.play("And now?", row)
    assert said(bodies) == ["Going on."]
    well_formed(house.provider.requests[-1])
    return events


@asynccontextmanager
async def answering(hub: Hub, session: str) -> AsyncIterator[None]:
    async def answer() -> None:
        async for event in hub.history.follow(LOCAL, session):
            if isinstance(event, Event) and isinstance(event.body, PermissionAsked):
                with suppress(NotFound):  # withdrawn meanwhile
                    await hub.turns.answer(LOCAL, session, event.body.ask_id, "allow")

    task = asyncio.create_task(answer())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# The default tier takes some of the steps, the full one all.
stepping = pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.full)])


@stepping
async def test_a_turn_killed_at_every_step_leaves_a_session_that_goes_on(
    house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, every: int
) -> None:
    monkeypatch.setattr(engine, "ABANDONED", SHORT)
    house.hub = Hub(SQLiteStore.open(tmp_path / "segue.db"), tmp_path, lease=SHORT)
    house.provider.otherwise = script
    async with house, AsyncExitStack() as stack, asyncio.timeout(PATIENCE):
        mortal = await asyncio.create_subprocess_exec(
            *(sys.executable, str(Path(__file__).parent / "children" / "dying.py")),
            *(str(tmp_path), str(SHORT)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(next(iter(segue.__path__))).parent)},
        )
        assert mortal.stdin is not None and mortal.stdout is not None
        stack.push_async_callback(mortal.wait)
        stack.callback(mortal.stdin.close)
        await mortal.stdout.readline()

        async def die(step: int) -> tuple[str, dict[str, Any]]:
            session = (await house.session()).id
            async with answering(house.hub, session):
                order = json.dumps({"session": session, "step": step})
                mortal.stdin.write(order.encode() + b"\n")  # type: ignore[union-attr]
                said = json.loads(await mortal.stdout.readline())  # type: ignore[union-attr]
            return session, said

        _, lived = await die(NEVER)
        assert lived["reason"] == "end_turn" and lived["steps"] > 12
        deaths = [await die(step) for step in range(2, lived["steps"] + 1, every)]
        assert sum(said["says"] == "died" for _, said in deaths) > 12 // every
        await asyncio.sleep(SHORT / clock.SECOND)
        for session, _ in deaths:
            async with answering(house.hub, session):
                await recovered(house.hub, session)
        for session, _ in deaths:
            events = await goes_on(house, session)
            begun = [event for event in events if event.type == "user_message"]
            assert len(begun) <= 1, "a begun turn was run again"


class Counted(MemoryStore):
    """A store in which something happens just before the n-th change."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0
        self.at = 0
        self.act: Any = None

    async def change(self, *arguments: Any, **options: Any) -> Any:
        if options.get("lease") is not None:
            self.changes += 1
            if self.changes == self.at:
                await self.act()
        return await super().change(*arguments, **options)


@stepping
async def test_a_turn_cancelled_at_every_step_leaves_a_session_that_goes_on(
    house: House, tmp_path: Path, every: int
) -> None:
    store = Counted()
    house.hub = Hub(store, tmp_path)
    house.provider.otherwise = script
    async with house:
        await house.play("Go")
        steps = store.changes
        assert steps > 8
        for step in range(2, steps + 1, every):
            session = await house.session()
            store.changes, store.at = 0, step

            async def cancel(id: str = session.id) -> None:
                await house.hub.turns.cancel(LOCAL, id)

            store.act = cancel
            await house.play("Go", session)
            store.at = 0
            events = await goes_on(house, session.id)
            ends = [e.body for e in events if isinstance(e.body, StatusChanged)]
            assert ends[-1].stop_reason in ("cancelled", "end_turn"), step


def _slow(wait: Wait) -> dict[str, list[Script]]:
    return {
        "before the first word": [[wait]],
        "in the middle of a sentence": [[Say("Once upon"), wait, Say(" a time")]],
        "in the middle of a thought": [[Think("hm"), wait]],
        "while a call is being written": [[Say("Look."), wait, Use("glob", {"pattern": "*"})]],
        "between two requests": [[Use("glob", {"pattern": "*"})], [wait]],
        "while the conversation is summed up": [[Say("long")], [wait]],
    }


@pytest.mark.parametrize("moment", _slow(Wait()))
async def test_a_model_that_is_slow_can_be_cancelled(house: House, moment: str) -> None:
    wait = Wait()
    scripts = _slow(wait)[moment]
    house.provider.otherwise = script
    async with house, asyncio.timeout(PATIENCE):
        session = await house.session()
        if "summed up" in moment:
            await house.hub.config.set("local", "model.context", "10000")
            house.provider.input_tokens = 9000
            house.answers(scripts.pop(0))
            await house.play("First", session)
            house.provider.input_tokens = 10
        house.answers(*scripts)
        turn = await house.hub.turns.submit(LOCAL, session.id, "Second")
        await wait.reached.wait()
        if "sentence" in moment:
            await _shown(house, session.id, "Once upon")
        await house.hub.turns.cancel(LOCAL, session.id)
        assert await house.hub.turns.wait(LOCAL, session.id, turn) == "cancelled"
        await house.hub.config.unset("local", "model.context")
        events = await goes_on(house, session.id)
    bodies = [event.body for event in events]
    if "sentence" in moment:
        (partial,) = of(bodies, "agent_message")
        assert partial.partial and partial.content[0].text == "Once upon"
        told = house.provider.requests[-1]["messages"]
        assert "Once upon" in str(told) and "interrupted" in str(told[-1])
        # What had been said was paid for.
        assert of(bodies, "model_called")[-1].usage.input_tokens == 10
    assert of(bodies, "tool_call") == [] or moment == "between two requests"


async def _shown(house: House, session: str, text: str) -> None:
    seen = ""
    async for item in house.hub.history.follow(LOCAL, session, deltas=True):
        seen += getattr(item, "text", "")
        if text in seen:
            return


@pytest.mark.parametrize(
    "call",
    [
        Use("bash", {"command": "touch begun; sleep 300"}),
        Use("grep", {"pattern": "(a+)+$"}),
    ],
)
async def test_a_tool_that_is_slow_can_be_cancelled(house: House, call: Use) -> None:
    house.provider.otherwise = script
    (house.place / "a.txt").write_text("a" * 60 + "!")
    async with house, asyncio.timeout(PATIENCE):
        house.answers([call])
        session = await house.session()
        await house.hub.editor.configure(LOCAL, session.id, ConfigChanged(mode="bypassPermissions"))
        turn = await house.hub.turns.submit(LOCAL, session.id, "Work")
        while not (await house.hub.sessions.get(LOCAL, session.id)).open_calls or (
            call.name == "bash" and not (house.place / "begun").exists()
        ):
            await asyncio.sleep(0.01)
        await house.hub.turns.cancel(LOCAL, session.id)
        assert await house.hub.turns.wait(LOCAL, session.id, turn) == "cancelled"
        events = await goes_on(house, session.id)
    (result,) = of([event.body for event in events], "tool_result")
    assert result.status == "cancelled"


async def test_a_question_and_a_pause_can_be_cancelled(house: House) -> None:
    house.provider.otherwise = script
    async with house, asyncio.timeout(PATIENCE):
        for scripts, awaited in (
            ([[Use("bash", {"command": "true"})]], "idle"),
            ([[Fail(529)]], "rescheduling"),
        ):
            house.answers(*scripts)
            session = await house.session(agent=await spec(house, backoff=60))
            turn = await house.hub.turns.submit(LOCAL, session.id, "Work")
            while True:
                row = await house.hub.sessions.get(LOCAL, session.id)
                if row.status == awaited and (row.open_asks or awaited != "idle"):
                    break
                await asyncio.sleep(0.01)
            await house.hub.turns.cancel(LOCAL, session.id)
            assert await house.hub.turns.wait(LOCAL, session.id, turn) == "cancelled"
            await goes_on(house, session.id)
