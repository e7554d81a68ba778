"""Tests of ACP agents that run as child processes."""

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
from segue.model.content import FileChange, plain_text
from segue.model.event import Delta, Event, PermissionAsked, ToolResult
from segue.model.principal import LOCAL, Principal
from segue.model.tools.patches import as_diffs
from segue.model.tools.titles import call_title, request_title
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


def segue_command(home: Path, version: int) -> str:
    """Return a command that runs segue itself as the agent."""
    if version == 1:
        return shlex.join([sys.executable, str(PROGRAMS / "only_one.py"), str(home / "child")])
    return shlex.join([sys.executable, "-m", "segue", "acp", "--data-dir", str(home / "child")])


def faulty_command(home: Path, *faults: str) -> str:
    """Return a command that runs an agent with faults."""
    arguments = [sys.executable, str(PROGRAMS / "careless.py"), str(home / "kept.json"), *faults]
    return shlex.join(arguments)


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def version(request: pytest.FixtureRequest) -> int:
    version: int = request.param
    return version


@asynccontextmanager
async def opened_hub(home: Path) -> AsyncIterator[Hub]:
    home.mkdir(exist_ok=True)
    async with Hub(SQLiteStore.open(home / "segue.db"), home) as hub:
        yield hub


async def open_session(hub: Hub, command: str, cwd: Path, id: str | None = None) -> tuple[str, Any]:
    """Open a session with an agent process; return its id and the open session."""
    if id is None:
        id = (await hub.editor.create(LOCAL, cwd=str(cwd))).id
    agent = await hub.agents.from_spec(LOCAL, {"kind": "acp", "command": command})
    return id, await hub.turns.open(LOCAL, id, agent=agent)


async def message_texts(hub: Hub, id: str) -> list[str]:
    events = await hub.history.events(LOCAL, id, types=["agent_message"])
    return [plain_text(event.body.content) for event in events]


async def native_ids(hub: Hub, id: str) -> list[str]:
    """Return the native sessions that a session was bound to."""
    events = await hub.history.events(LOCAL, id, types=["config_changed"])
    options = [event.body.options for event in events]
    return [
        option["acp"]["session"]
        for option in options
        if isinstance(option, dict) and "acp" in option
    ]


async def failure_message(hub: Hub, id: str) -> str:
    (event,) = await hub.history.events(LOCAL, id, types=["failed"])
    return str(event.body.message)


def comparable_events(events: list[Event]) -> list[Any]:
    """Return events without ids, and without the fields that depend on the agent."""
    comparable: list[Any] = []
    for event in events:
        body = event.body
        fields = {name: getattr(body, name) for name in body.__struct_fields__}
        for name in ("call_id", "turn", "ask_id", "pending", "by", "extra", "output"):
            fields.pop(name, None)
        for name in ("policy", "verdict", "request", "model"):  # that only the built-in agent has
            fields.pop(name, None)
        if isinstance(event.body, ToolResult):  # a process sends the texts of a change
            blocks = event.body.content
            fields["content"] = [
                shown
                for block in blocks
                for shown in (as_diffs(block) if isinstance(block, FileChange) else [block])
            ]
        if event.type not in ("created", "config_changed", "permission_answered"):
            comparable.append((event.type, fields))
    return comparable


def running_processes(command: str) -> list[psutil.Process]:
    """Return the running descendants of this process that were started by a command."""
    arguments = shlex.split(command)
    children = psutil.Process().children(recursive=True)
    return [
        child
        for child in children
        if child.status() != psutil.STATUS_ZOMBIE and arguments[-1] in " ".join(child.cmdline())
    ]


async def answer_requests(hub: Hub, id: str, option: str) -> None:
    """Answer every permission request with the same option."""
    async for event in hub.history.follow(LOCAL, id):
        if isinstance(event, Event) and isinstance(event.body, PermissionAsked):
            await hub.turns.answer(LOCAL, id, event.body.ask_id, option)


async def test_an_agent_process_stores_the_same_events_as_the_built_in_agent(
    tmp_path: Path, version: int
) -> None:
    async with opened_hub(tmp_path) as hub:
        histories = []
        for command in (None, segue_command(tmp_path, version)):
            cwd = tmp_path / f"work-{command is None}"
            cwd.mkdir()
            id = (await hub.editor.create(LOCAL, cwd=str(cwd))).id
            opened = None if command is None else (await open_session(hub, command, cwd, id))[1]
            answering = asyncio.create_task(answer_requests(hub, id, "allow"))
            assert await hub.turns.run(LOCAL, id, SCRIPT, opened=opened) == "end_turn"
            answering.cancel()
            events = list(await hub.history.events(LOCAL, id))
            histories.append(str(comparable_events(events)).replace(str(cwd), "CWD"))
            assert (cwd / "a.txt").read_text() == "some text\n"
            assert (await hub.sessions.get(LOCAL, id)).title == "Named"
            if opened is not None:
                await opened.close()
        assert histories[0] == histories[1]


async def test_text_is_streamed_as_it_arrives(tmp_path: Path, version: int) -> None:
    async with opened_hub(tmp_path) as hub:
        id, opened = await open_session(hub, segue_command(tmp_path, version), tmp_path)
        deltas = []
        turn = await hub.turns.submit(
            LOCAL, id, "/slow 0.05\n/say one two three four", opened=opened
        )
        async for item in hub.history.follow(LOCAL, id, deltas=True):
            if isinstance(item, Delta):
                deltas.append(item.text)
            elif item.type == "status_changed" and item.body.stop_reason:
                break
        assert len(deltas) > 1 and "".join(deltas) == "one two three four"
        assert await hub.turns.wait(LOCAL, id, turn) == "end_turn"
        await opened.close()


@pytest.mark.parametrize(("option", "outcome"), [("allow", "completed"), ("reject", "cancelled")])
async def test_a_permission_request_of_the_process_reaches_segues_clients(
    tmp_path: Path, version: int, option: str, outcome: str
) -> None:
    async with opened_hub(tmp_path) as hub:
        id, opened = await open_session(hub, segue_command(tmp_path, version), tmp_path)
        answering = asyncio.create_task(answer_requests(hub, id, option))
        await hub.turns.run(LOCAL, id, "/ask May I?", opened=opened)
        answering.cancel()
        (request,) = await hub.history.events(LOCAL, id, types=["permission_asked"])
        (call,) = await hub.history.events(LOCAL, id, types=["tool_call"])
        assert request_title(request.body, call.body) == "May I?"
        assert request.body.call_id == call.body.call_id
        (result,) = await hub.history.events(LOCAL, id, types=["tool_result"])
        assert (result.body.status == "completed") == (outcome == "completed")
        await opened.close()


async def test_a_new_process_continues_the_native_session(tmp_path: Path, version: int) -> None:
    async with opened_hub(tmp_path) as hub:
        id, opened = await open_session(hub, segue_command(tmp_path, version), tmp_path)
        await hub.turns.run(LOCAL, id, "/say one", opened=opened)
        await opened.close()
        assert running_processes(segue_command(tmp_path, version)) == []
    async with opened_hub(tmp_path) as hub:
        id, opened = await open_session(hub, segue_command(tmp_path, version), tmp_path, id)
        await hub.turns.run(LOCAL, id, "/history", opened=opened)
        assert (await message_texts(hub, id))[
            -1
        ] == "Before this turn: 1 messages of yours, 1 of mine."
        assert len(await native_ids(hub, id)) == 1  # the native session is still the same
        # A fork in segue forks the native session too.
        fork = (await hub.editor.fork(LOCAL, id)).id
        _, other = await open_session(hub, segue_command(tmp_path, version), tmp_path, fork)
        await hub.turns.run(LOCAL, fork, "/history")
        assert (await message_texts(hub, fork))[
            -1
        ] == "Before this turn: 2 messages of yours, 2 of mine."
        await hub.turns.run(LOCAL, id, "/history", opened=opened)
        assert (await message_texts(hub, id))[
            -1
        ] == "Before this turn: 2 messages of yours, 2 of mine."
        await other.close()
        assert running_processes(segue_command(tmp_path, version)) != []
        await opened.close()
    assert running_processes(segue_command(tmp_path, version)) == []


async def test_cancelling_ends_the_turn_in_the_process_too(tmp_path: Path, version: int) -> None:
    async with opened_hub(tmp_path) as hub:
        id, opened = await open_session(hub, segue_command(tmp_path, version), tmp_path)
        turn = await hub.turns.submit(LOCAL, id, "/say begun\n/wait 60", opened=opened)
        async for item in hub.history.follow(LOCAL, id, deltas=True):
            if isinstance(item, Delta) or item.type == "agent_message":
                break
        await hub.turns.cancel(LOCAL, id)
        async with asyncio.timeout(60):
            assert await hub.turns.wait(LOCAL, id, turn) == "cancelled"
        assert await message_texts(hub, id) == ["begun"]
        assert await hub.turns.run(LOCAL, id, "/say again", opened=opened) == "end_turn"
        assert await message_texts(hub, id) == ["begun", "again"]
        await opened.close()


# Faulty agents.


async def test_an_agent_that_mixes_protocol_versions_is_understood(tmp_path: Path) -> None:
    async with opened_hub(tmp_path) as hub:
        id, opened = await open_session(hub, faulty_command(tmp_path), tmp_path)
        assert await hub.turns.run(LOCAL, id, "tool", opened=opened) == "end_turn"
        (call,) = await hub.history.events(LOCAL, id, types=["tool_call"])
        assert (call_title(call.body), call.body.kind) == ("Edit", "edit")
        assert (call.body.title, call.body.input) == (None, {"a": 1})  # the title is the name
        (result,) = await hub.history.events(LOCAL, id, types=["tool_result"])
        (diff,) = result.body.content
        assert (diff.path, diff.old, diff.new, result.body.output) == ("/a", "x", "y", "fine")
        usage = (await hub.sessions.get(LOCAL, id)).usage
        assert (usage.cost, usage.input_tokens, usage.output_tokens) == (500_000, 3, 4)
        await opened.close()


async def test_invalid_updates_are_ignored(tmp_path: Path) -> None:
    async with opened_hub(tmp_path) as hub:
        id, opened = await open_session(hub, faulty_command(tmp_path), tmp_path)
        assert await hub.turns.run(LOCAL, id, "odd", opened=opened) == "end_turn"
        (plan,) = await hub.history.events(LOCAL, id, types=["plan_changed"])
        assert [(entry.content, entry.status) for entry in plan.body.entries] == [("a", "pending")]
        assert (await hub.sessions.get(LOCAL, id)).open_calls == ()
        await opened.close()


async def test_terminal_output_becomes_the_result_of_the_call(tmp_path: Path) -> None:
    async with opened_hub(tmp_path) as hub:
        id, opened = await open_session(hub, faulty_command(tmp_path), tmp_path)
        assert await hub.turns.run(LOCAL, id, "terminal", opened=opened) == "end_turn"
        (result,) = await hub.history.events(LOCAL, id, types=["tool_result"])
        assert plain_text(result.body.content) == "grün\nmore"
        await opened.close()


@pytest.mark.parametrize(
    ("option", "outcome"),
    [("go", {"outcome": "selected", "optionId": "go"}), (None, {"outcome": "cancelled"})],
)
async def test_an_option_of_an_unknown_kind_does_not_count_as_approval(
    tmp_path: Path, option: str | None, outcome: Any
) -> None:
    async with opened_hub(tmp_path) as hub:
        id, opened = await open_session(hub, faulty_command(tmp_path), tmp_path)
        answering = asyncio.create_task(answer_requests(hub, id, option))  # type: ignore[arg-type]
        await hub.turns.run(LOCAL, id, "ask", opened=opened)
        answering.cancel()
        (request,) = await hub.history.events(LOCAL, id, types=["permission_asked"])
        kinds = {choice.id: choice.kind for choice in request.body.options}
        assert kinds == {"go": "allow_once", "odd": "reject_once"}
        assert json.loads((await message_texts(hub, id))[0]) == {"outcome": outcome}
        await opened.close()


async def test_a_crashed_process_is_reported_and_restarted(tmp_path: Path) -> None:
    async with opened_hub(tmp_path) as hub:
        id, opened = await open_session(hub, faulty_command(tmp_path), tmp_path)
        await hub.turns.run(LOCAL, id, "first", opened=opened)
        assert await hub.turns.run(LOCAL, id, "die", opened=opened) == "error"
        assert await message_texts(hub, id) == ["going"]
        assert "exit code 3: out of luck" in await failure_message(hub, id)
        await hub.turns.run(LOCAL, id, "seen", opened=opened)
        assert json.loads((await message_texts(hub, id))[-1]) == ["first", "die", "seen"]
        await opened.close()


async def test_an_agent_without_the_history_receives_it_with_the_prompt(tmp_path: Path) -> None:
    async with opened_hub(tmp_path) as hub:
        id, opened = await open_session(hub, faulty_command(tmp_path, "forgetful"), tmp_path)
        await hub.turns.run(LOCAL, id, "remember the milk", opened=opened)
        await opened.close()
        _, opened = await open_session(hub, faulty_command(tmp_path, "forgetful"), tmp_path, id)
        await hub.turns.run(LOCAL, id, "seen", opened=opened)
        (prompt,) = json.loads((await message_texts(hub, id))[-1])
        assert "User: remember the milk" in prompt and prompt.startswith("seen")
        await opened.close()


ECHO = shlex.join([sys.executable, str(Path(__file__).parents[3] / "examples" / "echo_agent.py")])


@pytest.mark.parametrize("titled", [False, True])
async def test_a_session_title_comes_from_the_users_prompt(
    tmp_path: Path, titled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEGUE_DATA_DIR", str(tmp_path / "child"))
    async with opened_hub(tmp_path) as hub:
        id = (await hub.editor.create(LOCAL, cwd=str(tmp_path))).id
        await hub.turns.run(LOCAL, id, "Plan a garden" if titled else "***")
        _, opened = await open_session(hub, ECHO, tmp_path, id)
        await hub.turns.run(LOCAL, id, "Where do the beans go?", opened=opened)
        await opened.close()
        title = "Plan a garden" if titled else "Where do the beans go?"
        assert (await hub.sessions.get(LOCAL, id)).title == title
        agent = await hub.agents.from_spec(LOCAL, {"kind": "acp", "command": ECHO})
        assert isinstance(agent, AcpAgent)
        assert [row.title for row in await agent.list_sessions()] == ["Where do the beans go?"]


async def test_a_process_that_ignores_a_cancel_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segue.agents.acp.agent.STUCK_SECONDS", 0.1)
    async with opened_hub(tmp_path) as hub:
        id, opened = await open_session(hub, faulty_command(tmp_path), tmp_path)
        turn = await hub.turns.submit(LOCAL, id, "ignore_cancel", opened=opened)
        async for item in hub.history.follow(LOCAL, id, deltas=True):
            if isinstance(item, Delta):
                break
        await hub.turns.cancel(LOCAL, id)
        async with asyncio.timeout(60):
            assert await hub.turns.wait(LOCAL, id, turn) == "cancelled"
        (began,) = await message_texts(hub, id)
        grandchild = psutil.Process(int(began.split()[1]))
        await hub.turns.run(LOCAL, id, "seen", opened=opened)
        assert json.loads((await message_texts(hub, id))[-1]) == ["ignore_cancel", "seen"]
        assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE
        await opened.close()


async def test_a_required_login_is_reported_with_its_methods(tmp_path: Path) -> None:
    async with opened_hub(tmp_path) as hub:
        id, opened = await open_session(hub, faulty_command(tmp_path, "login"), tmp_path)
        assert await hub.turns.run(LOCAL, id, "hello", opened=opened) == "error"
        assert "requires a login" in (message := await failure_message(hub, id))
        assert "Sign in with your face" in message
        await opened.close()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("/no/such/program", "could not be started"),
        (f"{sys.executable} -c pass", "not a working ACP agent"),
        (f"{sys.executable} -c 'print(7)'", "not a working ACP agent"),
    ],
)
async def test_a_command_that_is_not_an_agent_is_reported(
    tmp_path: Path, command: str, message: str
) -> None:
    async with opened_hub(tmp_path) as hub:
        id, opened = await open_session(hub, command, tmp_path)
        assert await hub.turns.run(LOCAL, id, "hello", opened=opened) == "error"
        assert message in await failure_message(hub, id)
        await opened.close()


async def test_only_the_local_user_is_answered(tmp_path: Path) -> None:
    async with opened_hub(tmp_path) as hub:
        id, opened = await open_session(hub, faulty_command(tmp_path), tmp_path)
        assert (
            await hub.turns.run(
                Principal(workspace="local", local=False), id, "hello", opened=opened
            )
            == "error"
        )
        assert "local user" in await failure_message(hub, id)
        assert not (tmp_path / "kept.json").exists()
        await opened.close()


async def test_an_idle_process_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "IDLE_SECONDS", 0.2)
    command = faulty_command(tmp_path)
    async with opened_hub(tmp_path) as hub:
        id, opened = await open_session(hub, command, tmp_path)
        await hub.turns.run(LOCAL, id, "first", opened=opened)
        async with asyncio.timeout(60):
            while running_processes(command):
                await asyncio.sleep(0.05)
        await hub.turns.run(LOCAL, id, "seen", opened=opened)
        assert json.loads((await message_texts(hub, id))[-1]) == ["first", "seen"]
        await opened.close()
    assert os.path.exists(tmp_path / "kept.json")


async def test_the_next_turn_waits_for_a_late_end_of_a_cancelled_turn(tmp_path: Path) -> None:
    command = shlex.join([sys.executable, str(PROGRAMS / "late.py")])
    async with opened_hub(tmp_path) as hub:
        id, opened = await open_session(hub, command, tmp_path)
        turn = await hub.turns.submit(LOCAL, id, "wait", opened=opened)
        async for item in hub.history.follow(LOCAL, id, deltas=True):
            if isinstance(item, Delta):
                break
        await hub.turns.cancel(LOCAL, id)
        async with asyncio.timeout(60):
            assert await hub.turns.wait(LOCAL, id, turn) == "cancelled"
        assert await hub.turns.run(LOCAL, id, "again", opened=opened) == "end_turn"
        first, second = [text.split() for text in await message_texts(hub, id)]
        assert (first[0], second[0]) == ("wait", "again")
        assert first[1] == second[1]  # the same process answered
        await opened.close()


async def test_a_prompt_imports_and_continues_a_native_session(tmp_path: Path) -> None:
    """segue imports the session with its history first; then the process answers."""
    command = segue_command(tmp_path, 2)
    async with opened_hub(tmp_path / "child") as child:
        native = (await child.editor.create(LOCAL, cwd=str(tmp_path))).id
        await child.turns.run(LOCAL, native, "/say one")
    async with opened_hub(tmp_path / "here") as hub:
        await hub.agents.register_agent(LOCAL, "acp:other", {"kind": "acp", "command": command})
        (row,) = (await hub.sessions.list(LOCAL)).sessions
        assert row.source == "acp:other"
        assert await hub.turns.run(LOCAL, row.id, "/say two") == "end_turn"
        assert await message_texts(hub, row.id) == ["one", "two"]
        assert await hub.sessions.owner(LOCAL, row.id) is None
    async with opened_hub(tmp_path / "child") as child:
        assert await message_texts(child, native) == ["one", "two"]
