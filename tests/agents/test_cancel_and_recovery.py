"""However a turn of the model agent ends, the session is idle and complete, and can continue.

The tests kill a turn before each of its writes to the store, cancel it at the same points, and
cancel it during every operation that takes time.
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
from segue.model import clock
from segue.model.errors import NotFound
from segue.model.event import ConfigChanged, Event, PermissionAsked, StatusChanged
from segue.model.principal import LOCAL
from segue.store.memory import MemoryStore
from segue.store.sqlite import SQLiteStore
from tests.faults.idle import assert_idle
from tests.faults.takeover import recover_sessions

from .conftest import TIMEOUT_SECONDS, ModelSetup, bodies_of, message_texts
from .provider import Fail, Say, Script, Step, Think, Use, Wait
from .test_model import spec

LEASE = 5 * clock.SECOND  # short, so that the sessions of a killed process are free soon
NEVER = 10**6


def script(request: dict[str, Any]) -> Sequence[Step]:
    """Answer "Go" with two tool calls and a message, and other prompts with a message."""
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
    return [Say("Continuing.")]


def assert_well_formed(request: dict[str, Any]) -> None:
    """Assert that roles alternate and that every tool call has its result."""
    messages = request["messages"]
    assert [m["role"] for m in messages] == [
        "assistant" if n % 2 else "user" for n in range(len(messages))
    ]
    for message, following in zip(messages, [*messages[1:], {"content": []}], strict=True):
        calls = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
        results = [b["tool_use_id"] for b in following["content"] if b["type"] == "tool_result"]
        assert sorted(calls) == sorted(results)


async def continue_session(setup: ModelSetup, session: str) -> list[Event]:
    """Assert that the session is idle and answers a prompt; return its events before that."""
    row = await setup.hub.sessions.get(LOCAL, session)
    events = [event async for event in setup.hub.history.read(LOCAL, session)]
    assert_idle(row, events)
    setup.provider.scripts.clear()
    bodies = await setup.run_prompt("And now?", row)
    assert message_texts(bodies) == ["Continuing."]
    assert_well_formed(setup.provider.requests[-1])
    return events


@asynccontextmanager
async def allowing(hub: Hub, session: str) -> AsyncIterator[None]:
    """Allow every tool call of a session."""

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


# The default tier tests every sixth step, the full tier all.
stepping = pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.full)])


@stepping
async def test_a_session_continues_after_its_turn_was_killed_at_any_step(
    setup: ModelSetup, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, every: int
) -> None:
    setup.hub = Hub(SQLiteStore.open(tmp_path / "segue.db"), tmp_path, lease=LEASE)
    setup.provider.otherwise = script
    async with setup, AsyncExitStack() as stack, asyncio.timeout(TIMEOUT_SECONDS):
        runner = await asyncio.create_subprocess_exec(
            *(sys.executable, str(Path(__file__).parent / "children" / "killed_turns.py")),
            *(str(tmp_path), str(LEASE)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(next(iter(segue.__path__))).parent)},
        )
        assert runner.stdin is not None and runner.stdout is not None
        stack.push_async_callback(runner.wait)
        stack.callback(runner.stdin.close)
        await runner.stdout.readline()

        async def run_and_kill(step: int) -> tuple[str, dict[str, Any]]:
            session = (await setup.session()).id
            order = json.dumps({"session": session, "step": step})
            runner.stdin.write(order.encode() + b"\n")  # type: ignore[union-attr]
            report = json.loads(await runner.stdout.readline())  # type: ignore[union-attr]
            return session, report

        _, complete = await run_and_kill(NEVER)
        assert complete["reason"] == "end_turn" and complete["steps"] > 12
        runs = [await run_and_kill(step) for step in range(2, complete["steps"] + 1, every)]
        assert sum(report["says"] == "died" for _, report in runs) > 12 // every
        await asyncio.sleep(LEASE / clock.SECOND)
        for session, _ in runs:
            async with allowing(setup.hub, session):
                await recover_sessions(setup.hub, session)
        for session, _ in runs:
            events = await continue_session(setup, session)
            prompts = [event for event in events if event.type == "user_message"]
            assert len(prompts) <= 1, "a started turn ran again"


class CountingStore(MemoryStore):
    """A store that calls a function before its n-th change."""

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
async def test_a_session_continues_after_its_turn_was_cancelled_at_any_step(
    setup: ModelSetup, tmp_path: Path, every: int
) -> None:
    store = CountingStore()
    setup.hub = Hub(store, tmp_path)
    setup.provider.otherwise = script
    async with setup:
        await setup.run_prompt("Go")
        steps = store.changes
        assert steps > 8
        for step in range(2, steps + 1, every):
            session = await setup.session()
            store.changes, store.at = 0, step

            async def cancel(id: str = session.id) -> None:
                await setup.hub.turns.cancel(LOCAL, id)

            store.act = cancel
            await setup.run_prompt("Go", session)
            store.at = 0
            events = await continue_session(setup, session.id)
            ends = [e.body for e in events if isinstance(e.body, StatusChanged)]
            assert ends[-1].stop_reason in ("cancelled", "end_turn"), step


def _slow_scripts(wait: Wait) -> dict[str, list[Script]]:
    return {
        "before the first text": [[wait]],
        "in the middle of a sentence": [[Say("Once upon"), wait, Say(" a time")]],
        "in the middle of a thought": [[Think("hm"), wait]],
        "before a tool call": [[Say("Look."), wait, Use("glob", {"pattern": "*"})]],
        "between two requests": [[Use("glob", {"pattern": "*"})], [wait]],
        "during a compaction": [[Say("long")], [wait]],
    }


@pytest.mark.parametrize("moment", _slow_scripts(Wait()))
async def test_a_turn_with_a_slow_model_can_be_cancelled(setup: ModelSetup, moment: str) -> None:
    wait = Wait()
    scripts = _slow_scripts(wait)[moment]
    setup.provider.otherwise = script
    async with setup, asyncio.timeout(TIMEOUT_SECONDS):
        session = await setup.session()
        if "compaction" in moment:
            await setup.hub.config.set("local", "model.context", "10000")
            setup.provider.input_tokens = 9000
            setup.add_scripts(scripts.pop(0))
            await setup.run_prompt("First", session)
            setup.provider.input_tokens = 10
        setup.add_scripts(*scripts)
        turn = await setup.hub.turns.submit(LOCAL, session.id, "Second")
        await wait.reached.wait()
        if "sentence" in moment:
            await _wait_for_delta(setup, session.id, "Once upon")
        await setup.hub.turns.cancel(LOCAL, session.id)
        assert await setup.hub.turns.wait(LOCAL, session.id, turn) == "cancelled"
        await setup.hub.config.unset("local", "model.context")
        events = await continue_session(setup, session.id)
    bodies = [event.body for event in events]
    if "sentence" in moment:
        (partial,) = bodies_of(bodies, "agent_message")
        assert partial.partial and partial.content[0].text == "Once upon"
        messages = setup.provider.requests[-1]["messages"]
        assert "Once upon" in str(messages) and "interrupted" in str(messages[-1])
        # The usage up to the cancellation is stored.
        assert partial.usage.input_tokens == 10
    assert bodies_of(bodies, "tool_call") == [] or moment == "between two requests"


async def _wait_for_delta(setup: ModelSetup, session: str, text: str) -> None:
    streamed = ""
    async for item in setup.hub.history.follow(LOCAL, session, deltas=True):
        streamed += getattr(item, "text", "")
        if text in streamed:
            return


@pytest.mark.parametrize(
    "call",
    [
        Use("bash", {"command": "touch begun; sleep 300"}),
        Use("grep", {"pattern": "(a+)+$"}),
    ],
)
async def test_a_turn_with_a_slow_tool_can_be_cancelled(setup: ModelSetup, call: Use) -> None:
    setup.provider.otherwise = script
    (setup.cwd / "a.txt").write_text("a" * 60 + "!")
    async with setup, asyncio.timeout(TIMEOUT_SECONDS):
        setup.add_scripts([call])
        session = await setup.session()
        await setup.hub.editor.configure(LOCAL, session.id, ConfigChanged(mode="bypassPermissions"))
        turn = await setup.hub.turns.submit(LOCAL, session.id, "Work")
        while not (await setup.hub.sessions.get(LOCAL, session.id)).open_calls or (
            call.name == "bash" and not (setup.cwd / "begun").exists()
        ):
            await asyncio.sleep(0.01)
        await setup.hub.turns.cancel(LOCAL, session.id)
        assert await setup.hub.turns.wait(LOCAL, session.id, turn) == "cancelled"
        events = await continue_session(setup, session.id)
    (result,) = bodies_of([event.body for event in events], "tool_result")
    assert result.status == "cancelled"


async def test_a_permission_request_and_a_retry_pause_can_be_cancelled(setup: ModelSetup) -> None:
    setup.provider.otherwise = script
    async with setup, asyncio.timeout(TIMEOUT_SECONDS):
        for scripts, awaited in (
            ([[Use("bash", {"command": "true"})]], "idle"),
            ([[Fail(529)]], "rescheduling"),
        ):
            setup.add_scripts(*scripts)
            session = await setup.session(agent=await spec(setup, backoff=60))
            turn = await setup.hub.turns.submit(LOCAL, session.id, "Work")
            while True:
                row = await setup.hub.sessions.get(LOCAL, session.id)
                if row.status == awaited and (row.open_asks or awaited != "idle"):
                    break
                await asyncio.sleep(0.01)
            await setup.hub.turns.cancel(LOCAL, session.id)
            assert await setup.hub.turns.wait(LOCAL, session.id, turn) == "cancelled"
            await continue_session(setup, session.id)
