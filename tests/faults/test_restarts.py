"""A server that stops or dies at any step of a turn, and starts again."""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agents.provider import Provider, Say, Step, Use, Wait
from tests.faults.processes import TIMEOUT_SECONDS, StoreLocation
from tests.faults.restarting_server import (
    RestartingServer,
    RestClient,
    open_requests,
    stop_reason,
)

WEATHER = {
    "type": "custom",
    "name": "weather",
    "description": "The weather.",
    "input_schema": {"type": "object"},
}
KINDS = ["permission", "custom tool", "self-hosted tool", "three parallel calls"]
STEPS = [
    "prompted",
    "first model request",
    "waiting",
    "first answer",
    "answered",
    "tool",
    "second model request",
    "ended",
]
# The steps at which a killed server runs the turn or may do so, so that it is closed.
RUNNING_STEPS = {
    "permission": {*STEPS} - {"waiting", "ended"},
    "custom tool": {*STEPS} - {"waiting", "tool", "ended"},
    "self-hosted tool": {*STEPS} - {"waiting", "tool", "ended"},
    "three parallel calls": {*STEPS} - {"waiting", "first answer", "tool", "ended"},
}
UNKNOWN = ("the outcome is unknown", "ended before it did")
CASES = list(itertools.product(STEPS, ["SIGTERM", "SIGKILL"], [1, 2], ["sqlite", "postgres"]))
SAMPLE = {("tool", "SIGKILL", 1, "sqlite")}


@pytest.fixture(autouse=True)
def api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")


class Turns:
    """One turn of each kind, in a session of its own, and the provider of their model."""

    def __init__(self, provider: Provider, rest: RestClient, directory: Path, step: str) -> None:
        self._provider, self._rest, self._directory, self._step = provider, rest, directory, step
        self.sessions: dict[str, str] = {}
        self._first, self._second = {k: Wait() for k in KINDS}, {k: Wait() for k in KINDS}
        provider.otherwise = self._respond

    def _respond(self, request: dict[str, Any]) -> list[Step]:
        """Call the tools of a kind, and say "done" after their results."""
        _check_results(request)
        kind = request["messages"][0]["content"][0]["text"]
        last = request["messages"][-1]["content"]
        if any(block.get("text") == "Finish" for block in last):
            return [Say("done")]
        if any(block["type"] == "tool_result" for block in last):
            hold = [self._second[kind]] if self._step == "second model request" else []
            return [*hold, Say("done")]
        hold = [self._first[kind]] if self._step == "first model request" else []
        return [*hold, *self._uses(kind)]

    def _uses(self, kind: str) -> list[Use]:
        pause = "; sleep 1.5" if self._step == "tool" else ""
        run = Use("bash", {"command": f"echo run >> ran-{KINDS.index(kind)}.txt{pause}"})
        again = Use("bash", {"command": f"echo again >> ran-{KINDS.index(kind)}.txt"})
        weather = Use("weather", {"city": "Oslo"})
        return {"custom tool": [weather], "three parallel calls": [run, weather, again]}.get(
            kind, [run]
        )

    def release(self) -> None:
        """Let the model answer all requests."""
        for wait in [*self._first.values(), *self._second.values()]:
            wait.event.set()

    async def create(self) -> None:
        for kind in KINDS:
            hosted = kind == "self-hosted tool"
            policy = {"type": "always_allow" if hosted else "always_ask"}
            toolset = {
                "type": "agent_toolset_20260401",
                "default_config": {"permission_policy": policy},
            }
            config = {"type": "self_hosted" if hosted else "cloud"}
            self.sessions[kind] = await self._rest.session([toolset, WEATHER], config)

    async def reach(self, kind: str) -> None:
        """Prompt a session and answer its requests until its turn is at the step."""
        session, steps = self.sessions[kind], STEPS[: STEPS.index(self._step) + 1]
        await self._rest.say(session, kind)
        if self._step == "first model request":
            await self._first[kind].reached.wait()
        if "waiting" not in steps:
            return
        events = await self._rest.until_idle(session)
        assert len(open_requests(events)) == (3 if "three" in kind else 1), events
        if self._step == "first answer":
            await self._rest.send(session, _answers(events)[0])
        elif self._step == "tool":
            confirmations = [a for a in _answers(events) if "confirmation" in a["type"]]
            if confirmations:
                await self._rest.send(session, *confirmations)
                await _until(lambda: self.runs(kind))
        elif self._step == "ended":
            await self.finish(kind)
        elif self._step != "waiting":
            await self._rest.send(session, *_answers(events))
            if self._step == "second model request":
                await self._second[kind].reached.wait()

    async def finish(self, kind: str, *, after: int = 0) -> list[dict[str, Any]]:
        """Answer the requests of a turn until it has ended, and return the session's events.

        The turn ends with an idle status that follows the first `after` of them.
        """
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                events = await self._rest.until_idle(self.sessions[kind])
                if not open_requests(events) and count_idle(events) > after:
                    return events
                for answer in _answers(events):
                    await self._rest.send(self.sessions[kind], answer)
                await asyncio.sleep(0.05)

    def runs(self, kind: str) -> list[str]:
        """Return the words that the tools of a kind have written."""
        files = self._directory.rglob(f"ran-{KINDS.index(kind)}.txt")
        return [word for file in files for word in file.read_text().split()]


def count_idle(events: list[dict[str, Any]]) -> int:
    """Return how often a session became idle."""
    return sum(event["type"] == "session.status_idle" for event in events)


@pytest.mark.parametrize(
    ("step", "how", "workers", "make_locations"),
    [pytest.param(*c, marks=() if c in SAMPLE else pytest.mark.full) for c in CASES],
    indirect=["make_locations"],
)
async def test_turns_survive_a_restart_at_any_step(
    location: StoreLocation, step: str, how: str, workers: int
) -> None:
    async with Provider() as provider:
        restarting = RestartingServer(location, workers)
        await restarting.use_model(provider.url)
        rest = RestClient(restarting)
        turns = Turns(provider, rest, location.directory, step)
        async with restarting:
            await turns.create()
            async with asyncio.timeout(TIMEOUT_SECONDS), asyncio.TaskGroup() as group:
                for kind in KINDS:
                    group.create_task(turns.reach(kind))
            before = {kind: await rest.events(turns.sessions[kind]) for kind in KINDS}
            await restarting.restart(how, then=turns.release)
            if step == "waiting":
                for kind in KINDS:
                    assert await rest.events(turns.sessions[kind]) == before[kind]
            for kind in KINDS:
                events = await turns.finish(kind)
                assert [e["id"] for e in events][: len(before[kind])] == [
                    e["id"] for e in before[kind]
                ]
                errors = [event for event in events if event["type"] == "session.error"]
                if errors:
                    assert how == "SIGKILL" and step in RUNNING_STEPS[kind], errors
                    await rest.say(turns.sessions[kind], "Finish")
                    events = await turns.finish(kind, after=count_idle(events))
                check_history(kind, events, turns.runs(kind), interrupted=bool(errors))


def check_history(
    kind: str, events: list[dict[str, Any]], runs: list[str], *, interrupted: bool
) -> None:
    """Check that each call has one result, and that each tool ran once or its result says why."""
    assert stop_reason(events) == {"type": "end_turn"}
    texts = [e["content"][0]["text"] for e in events if e["type"] == "agent.message"]
    assert texts[-1] == "done"
    uses = {e["id"]: e for e in events if e["type"].endswith("tool_use")}
    results = [e for e in events if e["type"].endswith("tool_result")]
    subjects = [_subject(result) for result in results]
    assert sorted(subjects) == sorted(uses), (uses, results)
    confirmed = [e["tool_use_id"] for e in events if e["type"] == "user.tool_confirmation"]
    assert len(confirmed) == len(set(confirmed))
    if not interrupted:
        assert len(uses) == (3 if "three" in kind else 1)
    ran = {"run": 0, "again": 0}
    for result in results:
        text = "".join(block.get("text", "") for block in result["content"] or [])
        if result["type"] != "agent.tool_result":
            assert text == "sent"  # no process writes a result in a client's name
            continue
        command = uses[_subject(result)]["input"]["command"]
        word = command.split()[1]
        count = runs.count(word)
        if any(words in text for words in UNKNOWN):
            assert count <= 1
        else:
            assert not result["is_error"] and count == 1, (text, runs)
        ran[word] = count
    assert len(runs) == sum(ran.values())


def _answers(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a client's answers to the open requests of a session."""
    uses = {e["id"]: e for e in events if e["type"].endswith("tool_use")}
    answers = []
    for id in open_requests(events):
        content = [{"type": "text", "text": "sent"}]
        if uses[id]["type"] == "agent.custom_tool_use":
            result = {"type": "user.custom_tool_result", "custom_tool_use_id": id}
            answers.append({**result, "content": content})
        elif uses[id]["evaluated_permission"] == "ask":
            confirmation = {"type": "user.tool_confirmation", "tool_use_id": id}
            answers.append({**confirmation, "result": "allow"})
        else:
            answers.append({"type": "user.tool_result", "tool_use_id": id, "content": content})
    return answers


def _subject(result: dict[str, Any]) -> str:
    return str(result.get("custom_tool_use_id") or result["tool_use_id"])


def _check_results(request: dict[str, Any]) -> None:
    """Check that the results of each message's tool calls are in the next message, once each."""
    messages = request["messages"]
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            uses = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
            following = messages[index + 1]["content"]
            results = [b["tool_use_id"] for b in following if b["type"] == "tool_result"]
            assert sorted(uses) == sorted(results), request


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not condition():
            await asyncio.sleep(0.05)
