"""Other agents as children: their turns are ours, and their ends leave nothing behind."""

import asyncio
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from segue.agents.acp import AcpAgent, processes
from segue.hub import Hub
from segue.model.content import plain_text
from segue.model.event import Delta, Event, PermissionAsked
from segue.model.principal import LOCAL, Principal
from segue.store.sqlite import SQLiteStore

PROGRAMS = Path(__file__).parent / "programs"
SCRIPT = """\
hello
/think hm
/say hi there
/tool ls a b
/plan one; > two; x three
/write a.txt some text
/title Named"""


def ours(home: Path, version: int) -> str:
    """Our own agent as somebody else's."""
    if version == 1:
        return shlex.join([sys.executable, str(PROGRAMS / "only_one.py"), str(home / "child")])
    return shlex.join([sys.executable, "-m", "segue", "acp", "--data-dir", str(home / "child")])


def careless(home: Path, *ways: str) -> str:
    words = [sys.executable, str(PROGRAMS / "careless.py"), str(home / "kept.json"), *ways]
    return shlex.join(words)


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def version(request: pytest.FixtureRequest) -> int:
    chosen: int = request.param
    return chosen


@asynccontextmanager
async def hub_in(home: Path) -> AsyncIterator[Hub]:
    home.mkdir(exist_ok=True)
    async with Hub(SQLiteStore.open(home / "segue.db"), home) as hub:
        yield hub


async def opened(hub: Hub, command: str, cwd: Path, id: str | None = None) -> tuple[str, Any]:
    """A session that a child answers, and what holds it open."""
    if id is None:
        id = (await hub.editor.create(LOCAL, cwd=str(cwd))).id
    agent = await hub.agents.from_spec(LOCAL, {"kind": "acp", "command": command})
    return id, await hub.turns.lease(LOCAL, id, agent=agent)


async def said(hub: Hub, id: str) -> list[str]:
    found = await hub.history.events(LOCAL, id, types=["agent_message"])
    return [plain_text(event.body.content) for event in found]


async def opened_in_child(hub: Hub, id: str) -> list[str]:
    """The child's sessions that one of ours has been."""
    events = await hub.history.events(LOCAL, id, types=["config_changed"])
    told = [event.body.options for event in events]
    return [each["acp"]["session"] for each in told if isinstance(each, dict) and "acp" in each]


async def failure(hub: Hub, id: str) -> str:
    (event,) = await hub.history.events(LOCAL, id, types=["failed"])
    return str(event.body.message)


def shape(events: list[Event]) -> list[Any]:
    """Events without what is another every time, and without who is answering."""
    found: list[Any] = []
    for event in events:
        body = event.body
        fields = {name: getattr(body, name) for name in body.__struct_fields__}
        for name in ("call_id", "turn", "ask_id", "pending", "by", "extra", "output"):
            fields.pop(name, None)
        if event.type not in ("created", "config_changed", "permission_answered"):
            found.append((event.type, fields))
    return found


def running(command: str) -> list[psutil.Process]:
    """This process's children that are of a command, and theirs."""
    words = shlex.split(command)
    mine = psutil.Process().children(recursive=True)
    return [each for each in mine if each.is_running() and words[-1] in " ".join(each.cmdline())]


async def answering(hub: Hub, id: str, option: str) -> None:
    """Say the same to every question."""
    async for event in hub.history.follow(LOCAL, id):
        if isinstance(event, Event) and isinstance(event.body, PermissionAsked):
            await hub.turns.answer(LOCAL, id, event.body.ask_id, option)


async def test_a_child_s_turn_is_stored_as_our_own_would_be(tmp_path: Path, version: int) -> None:
    async with hub_in(tmp_path) as hub:
        found = []
        for command in (None, ours(tmp_path, version)):
            cwd = tmp_path / f"work-{command is None}"
            cwd.mkdir()
            id = (await hub.editor.create(LOCAL, cwd=str(cwd))).id
            hold = None if command is None else (await opened(hub, command, cwd, id))[1]
            asking = asyncio.create_task(answering(hub, id, "allow"))
            assert await hub.turns.run(LOCAL, id, SCRIPT) == "end_turn"
            asking.cancel()
            events = list(await hub.history.events(LOCAL, id))
            found.append(str(shape(events)).replace(str(cwd), "CWD"))
            assert (cwd / "a.txt").read_text() == "some text\n"
            assert (await hub.sessions.get(LOCAL, id)).title == "Named"
            if hold is not None:
                await hold.close()
        assert found[0] == found[1]


async def test_words_are_streamed_as_they_come(tmp_path: Path, version: int) -> None:
    async with hub_in(tmp_path) as hub:
        id, hold = await opened(hub, ours(tmp_path, version), tmp_path)
        pieces = []
        turn = await hub.turns.submit(LOCAL, id, "/slow 0.05\n/say one two three four")
        async for item in hub.history.follow(LOCAL, id, deltas=True):
            if isinstance(item, Delta):
                pieces.append(item.text)
            elif item.type == "status_changed" and item.body.stop_reason:
                break
        assert len(pieces) > 1 and "".join(pieces) == "one two three four"
        assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"
        await hold.close()


@pytest.mark.parametrize(("option", "outcome"), [("allow", "completed"), ("reject", "cancelled")])
async def test_a_child_s_question_is_asked_at_our_doors(
    tmp_path: Path, version: int, option: str, outcome: str
) -> None:
    async with hub_in(tmp_path) as hub:
        id, hold = await opened(hub, ours(tmp_path, version), tmp_path)
        asking = asyncio.create_task(answering(hub, id, option))
        await hub.turns.run(LOCAL, id, "/ask May I?")
        asking.cancel()
        (asked,) = await hub.history.events(LOCAL, id, types=["permission_asked"])
        (call,) = await hub.history.events(LOCAL, id, types=["tool_call"])
        assert asked.body.title == "May I?" and asked.body.call_id == call.body.call_id
        (result,) = await hub.history.events(LOCAL, id, types=["tool_result"])
        assert (result.body.status == "completed") == (outcome == "completed")
        await hold.close()


async def test_the_child_goes_on_with_its_session_in_a_new_process(
    tmp_path: Path, version: int
) -> None:
    async with hub_in(tmp_path) as hub:
        id, hold = await opened(hub, ours(tmp_path, version), tmp_path)
        await hub.turns.run(LOCAL, id, "/say one")
        await hold.close()
        assert running(ours(tmp_path, version)) == []
    async with hub_in(tmp_path) as hub:
        id, hold = await opened(hub, ours(tmp_path, version), tmp_path, id)
        await hub.turns.run(LOCAL, id, "/history")
        assert (await said(hub, id))[-1] == "Before this turn: 1 messages of yours, 1 of mine."
        assert len(await opened_in_child(hub, id)) == 1  # it is still the same session
        # A fork of ours is a fork of the child's, too.
        fork = (await hub.editor.fork(LOCAL, id)).id
        _, other = await opened(hub, ours(tmp_path, version), tmp_path, fork)
        await hub.turns.run(LOCAL, fork, "/history")
        assert (await said(hub, fork))[-1] == "Before this turn: 2 messages of yours, 2 of mine."
        await hub.turns.run(LOCAL, id, "/history")
        assert (await said(hub, id))[-1] == "Before this turn: 2 messages of yours, 2 of mine."
        await other.close()
        assert running(ours(tmp_path, version)) != []
        await hold.close()
    assert running(ours(tmp_path, version)) == []


async def test_a_cancelled_turn_is_over_within_a_second_in_the_child_too(
    tmp_path: Path, version: int
) -> None:
    async with hub_in(tmp_path) as hub:
        id, hold = await opened(hub, ours(tmp_path, version), tmp_path)
        turn = await hub.turns.submit(LOCAL, id, "/say begun\n/wait 60")
        async for item in hub.history.follow(LOCAL, id, deltas=True):
            if isinstance(item, Delta) or item.type == "agent_message":
                break
        await hub.turns.cancel(LOCAL, id)
        async with asyncio.timeout(60):
            assert await hub.turns.wait(LOCAL, id, turn) == "cancelled"
        assert await said(hub, id) == ["begun"]
        assert await hub.turns.run(LOCAL, id, "/say again") == "end_turn"
        assert await said(hub, id) == ["begun", "again"]
        await hold.close()


# Careless ones.


async def test_one_that_says_two_and_means_one_is_understood(tmp_path: Path) -> None:
    async with hub_in(tmp_path) as hub:
        id, hold = await opened(hub, careless(tmp_path), tmp_path)
        assert await hub.turns.run(LOCAL, id, "tool") == "end_turn"
        (call,) = await hub.history.events(LOCAL, id, types=["tool_call"])
        assert (call.body.title, call.body.kind, call.body.input) == ("Edit", "edit", {"a": 1})
        (result,) = await hub.history.events(LOCAL, id, types=["tool_result"])
        (diff,) = result.body.content
        assert (diff.path, diff.old, diff.new, result.body.output) == ("/a", "x", "y", "fine")
        usage = (await hub.sessions.get(LOCAL, id)).usage
        assert (usage.cost, usage.input_tokens, usage.output_tokens) == (500_000, 3, 4)
        await hold.close()


async def test_updates_that_make_no_sense_are_passed_over(tmp_path: Path) -> None:
    async with hub_in(tmp_path) as hub:
        id, hold = await opened(hub, careless(tmp_path), tmp_path)
        assert await hub.turns.run(LOCAL, id, "odd") == "end_turn"
        (plan,) = await hub.history.events(LOCAL, id, types=["plan_changed"])
        assert [(entry.content, entry.status) for entry in plan.body.entries] == [("a", "pending")]
        assert (await hub.sessions.get(LOCAL, id)).open_calls == ()
        await hold.close()


async def test_what_is_seen_in_a_terminal_is_the_call_s_result(tmp_path: Path) -> None:
    async with hub_in(tmp_path) as hub:
        id, hold = await opened(hub, careless(tmp_path), tmp_path)
        assert await hub.turns.run(LOCAL, id, "terminal") == "end_turn"
        (result,) = await hub.history.events(LOCAL, id, types=["tool_result"])
        assert plain_text(result.body.content) == "grün\nmore"
        await hold.close()


@pytest.mark.parametrize(
    ("option", "told"),
    [("go", {"outcome": "selected", "optionId": "go"}), (None, {"outcome": "cancelled"})],
)
async def test_an_option_of_no_known_kind_is_no_approval(
    tmp_path: Path, option: str | None, told: Any
) -> None:
    async with hub_in(tmp_path) as hub:
        id, hold = await opened(hub, careless(tmp_path), tmp_path)
        asking = asyncio.create_task(answering(hub, id, option))  # type: ignore[arg-type]
        await hub.turns.run(LOCAL, id, "ask")
        asking.cancel()
        (asked,) = await hub.history.events(LOCAL, id, types=["permission_asked"])
        kinds = {each.id: each.kind for each in asked.body.options}
        assert kinds == {"go": "allow_once", "odd": "reject_once"}
        assert json.loads((await said(hub, id))[0]) == {"outcome": told}
        await hold.close()


async def test_one_that_dies_says_why_and_is_begun_anew(tmp_path: Path) -> None:
    async with hub_in(tmp_path) as hub:
        id, hold = await opened(hub, careless(tmp_path), tmp_path)
        await hub.turns.run(LOCAL, id, "first")
        assert await hub.turns.run(LOCAL, id, "die") == "error"
        assert await said(hub, id) == ["going"]
        assert "exit code 3: out of luck" in await failure(hub, id)
        await hub.turns.run(LOCAL, id, "seen")
        assert json.loads((await said(hub, id))[-1]) == ["first", "die", "seen"]
        await hold.close()


async def test_one_that_forgot_is_told_what_was_said(tmp_path: Path) -> None:
    async with hub_in(tmp_path) as hub:
        id, hold = await opened(hub, careless(tmp_path, "forgetful"), tmp_path)
        await hub.turns.run(LOCAL, id, "remember the milk")
        await hold.close()
        _, hold = await opened(hub, careless(tmp_path, "forgetful"), tmp_path, id)
        await hub.turns.run(LOCAL, id, "seen")
        (told,) = json.loads((await said(hub, id))[-1])
        assert "User: remember the milk" in told and told.startswith("seen")
        await hold.close()


ECHO = shlex.join([sys.executable, str(Path(__file__).parents[3] / "examples" / "echo_agent.py")])


@pytest.mark.parametrize("titled", [False, True])
async def test_titles_are_of_the_user_s_own_words(
    tmp_path: Path, titled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEGUE_DATA_DIR", str(tmp_path / "child"))
    async with hub_in(tmp_path) as hub:
        id = (await hub.editor.create(LOCAL, cwd=str(tmp_path))).id
        await hub.turns.run(LOCAL, id, "Plan a garden" if titled else "***")
        _, hold = await opened(hub, ECHO, tmp_path, id)
        await hub.turns.run(LOCAL, id, "Where do the beans go?")
        await hold.close()
        title = "Plan a garden" if titled else "Where do the beans go?"
        assert (await hub.sessions.get(LOCAL, id)).title == title
        agent = await hub.agents.from_spec(LOCAL, {"kind": "acp", "command": ECHO})
        assert isinstance(agent, AcpAgent)
        assert [row.title for row in await agent.list_sessions()] == ["Where do the beans go?"]


async def test_one_that_does_not_obey_is_ended_with_all_that_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segue.agents.acp.agent.STUCK_SECONDS", 0.1)
    async with hub_in(tmp_path) as hub:
        id, hold = await opened(hub, careless(tmp_path), tmp_path)
        turn = await hub.turns.submit(LOCAL, id, "deaf")
        async for item in hub.history.follow(LOCAL, id, deltas=True):
            if isinstance(item, Delta):
                break
        await hub.turns.cancel(LOCAL, id)
        async with asyncio.timeout(60):
            assert await hub.turns.wait(LOCAL, id, turn) == "cancelled"
        (began,) = await said(hub, id)
        grandchild = psutil.Process(int(began.split()[1]))
        await hub.turns.run(LOCAL, id, "seen")
        assert json.loads((await said(hub, id))[-1]) == ["deaf", "seen"]
        assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE
        await hold.close()


async def test_one_that_wants_a_login_says_how(tmp_path: Path) -> None:
    async with hub_in(tmp_path) as hub:
        id, hold = await opened(hub, careless(tmp_path, "login"), tmp_path)
        assert await hub.turns.run(LOCAL, id, "hello") == "error"
        assert "log in first" in (why := await failure(hub, id))
        assert "Sign in with your face" in why
        await hold.close()


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("/no/such/program", "could not be started"),
        (f"{sys.executable} -c pass", "not a working ACP agent"),
        (f"{sys.executable} -c 'print(7)'", "not a working ACP agent"),
    ],
)
async def test_what_is_no_agent_is_said_to_be_none(tmp_path: Path, command: str, why: str) -> None:
    async with hub_in(tmp_path) as hub:
        id, hold = await opened(hub, command, tmp_path)
        assert await hub.turns.run(LOCAL, id, "hello") == "error"
        assert why in await failure(hub, id)
        await hold.close()


async def test_nobody_but_the_local_user_is_answered(tmp_path: Path) -> None:
    async with hub_in(tmp_path) as hub:
        id, hold = await opened(hub, careless(tmp_path), tmp_path)
        assert (
            await hub.turns.run(Principal(workspace="local", local=False), id, "hello") == "error"
        )
        assert "local user" in await failure(hub, id)
        assert not (tmp_path / "kept.json").exists()
        await hold.close()


async def test_a_child_that_nobody_needs_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "IDLE_SECONDS", 0.2)
    command = careless(tmp_path)
    async with hub_in(tmp_path) as hub:
        id, hold = await opened(hub, command, tmp_path)
        await hub.turns.run(LOCAL, id, "first")
        async with asyncio.timeout(60):
            while running(command):
                await asyncio.sleep(0.05)
        await hub.turns.run(LOCAL, id, "seen")
        assert json.loads((await said(hub, id))[-1]) == ["first", "seen"]
        await hold.close()
    assert os.path.exists(tmp_path / "kept.json")


async def test_one_that_ends_a_cancelled_turn_late_is_waited_for(tmp_path: Path) -> None:
    command = shlex.join([sys.executable, str(PROGRAMS / "late.py")])
    async with hub_in(tmp_path) as hub:
        id, hold = await opened(hub, command, tmp_path)
        turn = await hub.turns.submit(LOCAL, id, "wait")
        async for item in hub.history.follow(LOCAL, id, deltas=True):
            if isinstance(item, Delta):
                break
        await hub.turns.cancel(LOCAL, id)
        async with asyncio.timeout(60):
            assert await hub.turns.wait(LOCAL, id, turn) == "cancelled"
        assert await hub.turns.run(LOCAL, id, "again") == "end_turn"
        first, second = [text.split() for text in await said(hub, id)]
        assert (first[0], second[0]) == ("wait", "again")
        assert first[1] == second[1]  # by the same process
        await hold.close()


async def test_a_prompt_goes_on_with_a_session_of_the_child_s_own(tmp_path: Path) -> None:
    """From any door: it is taken in first, with what was said in it, and the child answers."""
    command = ours(tmp_path, 2)
    async with hub_in(tmp_path / "child") as child:
        native = (await child.editor.create(LOCAL, cwd=str(tmp_path))).id
        await child.turns.run(LOCAL, native, "/say one")
    async with hub_in(tmp_path / "here") as hub:
        await hub.agents.register_agent(LOCAL, "acp:other", {"kind": "acp", "command": command})
        (row,) = (await hub.sessions.list(LOCAL)).sessions
        assert row.source == "acp:other"
        assert await hub.turns.run(LOCAL, row.id, "/say two") == "end_turn"
        assert await said(hub, row.id) == ["one", "two"]
        assert await hub.sessions.owner(LOCAL, row.id) is None
    async with hub_in(tmp_path / "child") as child:
        assert await said(child, native) == ["one", "two"]
