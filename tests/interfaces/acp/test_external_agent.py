"""`segue acp --agent acp:COMMAND`: an editor at our door, another agent behind it."""

import asyncio
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from segue.interfaces.acp import ServedAgent, server
from segue.model.principal import LOCAL
from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.test_mcp import call, stdio
from tests.interfaces.acp.testbed import House

PROGRAMS = Path(__file__).parent.parent.parent / "agents" / "acp" / "programs"
EXAMPLES = Path(__file__).parent.parent.parent.parent / "examples"
SCRIPT = "hello\n/think hm\n/say hi\n/tool ls a\n/plan one; x two\n/ask May I?"


def behind(house: House, version: int) -> str:
    """Our own agent over another store, in one version of the protocol or the other."""
    other = str(house.directory / "other")
    if version == 1:
        words = [sys.executable, str(PROGRAMS / "only_one.py"), other]
    else:
        words = [sys.executable, "-m", "segue", "acp", "--data-dir", other]
    return f"acp:{shlex.join(words)}"


def careless(house: House, *ways: str) -> str:
    words = [sys.executable, str(PROGRAMS / "careless.py"), str(house.directory / "kept"), *ways]
    return f"acp:{shlex.join(words)}"


@pytest.mark.parametrize("child", [1, 2])
async def test_an_editor_sees_another_agent_s_turn_as_it_would_ours(
    house: House, version: int, child: int
) -> None:
    seen = []
    for agent in ("demo", behind(house, child)):
        async with house.child(version, "--agent", agent) as (client, process):
            id = await client.new("/")
            assert await client.run(id, SCRIPT) == "end_turn"
            assert len(client.asked) == 1
            live = conversation(client.updates())
            await client.ask("session/close", {"sessionId": id})
            assert psutil.Process(process.pid).children(recursive=True) == []
            seen.append((live, conversation(await client.replay(id, "/"))))
    assert seen[0] == seen[1]
    async with house.hub() as hub:
        titles = [session.title for session in (await hub.sessions.list(LOCAL)).sessions]
    assert titles == ["hello", "hello"]


@pytest.mark.parametrize("child", ["echo", "segue"])
async def test_an_agent_may_keep_its_sessions_in_the_same_store(
    house: House, version: int, child: str
) -> None:
    words = [sys.executable, "-m", "segue", "acp", "--data-dir", str(house.data)]
    if child == "echo":
        words = [
            "env",
            f"SEGUE_DATA_DIR={house.data}",
            sys.executable,
            str(EXAMPLES / "echo_agent.py"),
        ]
    agent = f"acp:{shlex.join(words)}"
    async with house.child(version, "--agent", agent) as (client, _):
        id = await client.new("/")
        assert await client.run(id, "/say one") == "end_turn"
        said = conversation(client.updates())[-1]
        assert said == ("agent", "You said: /say one" if child == "echo" else "one")
    # Both have theirs, and neither has one that nobody has said anything in.
    async with house.hub() as hub:
        sessions = {session.id: session for session in (await hub.sessions.list(LOCAL)).sessions}
        own = sessions.pop(id)
        (theirs,) = sessions.values()
        assert own.native_id == theirs.id
        assert (own.messages, theirs.messages) == (2, 2)
    async with house.child(version, "--agent", agent) as (client, _):
        await client.open("resume", id, "/")
        assert await client.run(id, "/say two") == "end_turn"
    async with house.hub() as hub:
        assert (await hub.sessions.get(LOCAL, theirs.id)).messages == 4
        assert len((await hub.sessions.list(LOCAL)).sessions) == 2


async def test_it_goes_on_where_it_was_in_any_process(house: House, version: int) -> None:
    agent = behind(house, 2)
    async with house.child(version, "--agent", agent) as (client, _):
        id = await client.new("/")
        await client.run(id, "/say one")
    # The session knows its agent, so it need not be named again; nor must it be an editor.
    async with house.child(3 - version) as (client, _):
        await client.open("resume", id, "/")
        await client.run(id, "/history")
        told = "Before this turn: 1 messages of yours, 1 of mine."
        assert ("agent", told) in conversation(client.updates())
    command = [sys.executable, "-m", "segue", "prompt", "--data-dir", str(house.data), id]
    process = await asyncio.create_subprocess_exec(
        *command, "/history", stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert b"Before this turn: 2 messages of yours, 2 of mine." in output


async def test_a_cancel_reaches_it(house: House, version: int) -> None:
    async with house.child(version, "--agent", behind(house, 2)) as (client, _):
        id = await client.new("/")
        request = await client.begin(id, "/say begun\n/wait 60")
        await client.tell("session/cancel", {"sessionId": id})
        if version == 1:
            assert await client.answer(request) == {"stopReason": "cancelled"}
        assert await client.run(id, "/say again") == "end_turn"


def started(process: asyncio.subprocess.Process) -> int:
    """How many MCP servers run below a process."""
    below = psutil.Process(process.pid).children(recursive=True)
    return sum("adder.py" in " ".join(each.cmdline()) for each in below)


@pytest.mark.parametrize("child", [1, 2])
async def test_the_editor_s_servers_are_its_servers(house: House, child: int) -> None:
    async with house.child(2, "--agent", behind(house, child)) as (client, process):
        id = await client.new(house.directory, mcpServers=[stdio(2)])
        assert await call(client, id, "add", '{"a": 2, "b": 40}') == ("completed", "42")
        assert started(process) == 1  # by the other agent, and not once more by us
    async with house.child(2) as (client, process):  # where the session's own agent answers
        await client.open("resume", id, house.directory, mcpServers=[stdio(2)])
        assert await call(client, id, "add", '{"a": 2, "b": 40}') == ("completed", "42")
        assert started(process) == 1


async def test_directories_are_passed_on(house: House) -> None:
    more = house.directory / "more"
    more.mkdir()
    (more / "a.txt").write_text("found")
    async with house.child(2, "--agent", behind(house, 2)) as (client, _):
        id = await client.new(house.directory / "data", additionalDirectories=[str(more)])
        await client.run(id, f"/read {more}/a.txt")
        assert "found" in str(client.updates())


@pytest.mark.parametrize("agent", ["acp:", "acp:/no/such/program --x", "acp:'", "nonsense"])
async def test_a_command_that_cannot_be_is_refused_at_once(house: House, agent: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "segue", "acp", "--agent", agent),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, complaints = await process.communicate()
    assert (process.returncode, output) == (2, b"")
    assert b"--agent" in complaints and b"Traceback" not in complaints


async def kept_elsewhere(house: House, version: int) -> str:
    """A session that the other agent has had with somebody else."""
    other = House(house.directory / "elsewhere")
    other.directory.mkdir()
    other.data = house.directory / "other"
    async with other.child(version) as (client, _):
        id = await client.new("/")
        await client.run(id, SCRIPT)
        await client.ask("session/set_title", {"sessionId": id, "title": "Elsewhere"})
    return id


@pytest.mark.parametrize("child", [1, 2])
async def test_its_own_sessions_are_listed_loaded_and_continued(
    house: House, version: int, child: int
) -> None:
    theirs = await kept_elsewhere(house, child)
    agent = behind(house, child)
    async with house.child(version, "--agent", agent) as (client, _):
        mine = await client.new("/")
        await client.run(mine, "/say mine")
        rows = (await client.ask("session/list"))["sessions"]
        assert [(row["sessionId"], row["title"]) for row in rows] == [
            (mine, "/say mine"),
            (theirs, "Elsewhere"),
        ]
        assert [row["_meta"]["source"] for row in rows] == ["segue", agent]
        said = conversation(await client.replay(theirs, "/"))
        assert said == [
            ("user", SCRIPT),
            ("agent", "hello"),
            ("thought", "hm"),
            ("agent", "hi"),
            ("tool", "ls (demo): completed"),
            ("tool", "May I?: completed"),
        ]
        await client.run(theirs, "/history")
        told = "Before this turn: 1 messages of yours, 2 of mine."
        assert conversation(client.updates())[-1] == ("agent", told)
        fork = (await client.open("fork", theirs, "/"))["sessionId"]
        await client.run(fork, "/history")
        told = "Before this turn: 2 messages of yours, 3 of mine."
        assert conversation(client.updates())[-1] == ("agent", told)
        rows = (await client.ask("session/list"))["sessions"]
        assert {row["sessionId"] for row in rows} == {mine, theirs, fork}
    # In a new process, too: each is one session, whatever the other agent calls it.
    async with house.child(version, "--agent", agent) as (client, _):
        rows = (await client.ask("session/list"))["sessions"]
        assert {row["sessionId"] for row in rows} == {mine, theirs, fork}
    # What was opened is here from then on, for every door.
    async with house.hub() as hub:
        assert (await hub.sessions.get(LOCAL, theirs)).title == "Elsewhere"
        assert (await hub.sessions.get(LOCAL, theirs)).messages == 5


async def test_a_new_session_is_the_same_on_both_sides(house: House, version: int) -> None:
    async with house.child(version, "--agent", behind(house, 2)) as (client, _):
        id = await client.new("/")
    other = House(house.directory)
    other.data = house.directory / "other"
    async with other.hub() as hub:
        assert (await hub.sessions.get(LOCAL, id)).id == id


async def test_one_that_counts_its_sessions_anew_is_not_confused(
    house: House, version: int
) -> None:
    agent = careless(house, "forgetful")
    async with house.child(version, "--agent", agent) as (client, _):
        first = await client.new("/")
        await client.run(first, "one")
    async with house.child(version, "--agent", agent) as (client, _):
        second = await client.new("/")  # which it calls as it called the first
        assert second != first
        await client.run(second, "two")
        await client.open("resume", first, "/")
        await client.run(first, "seen")
        told = [each for each in conversation(client.updates()) if each[0] == "agent"]
        assert "one" in told[-1][1] and "two" not in told[-1][1]
        await client.run(second, "seen")
        told = [each for each in conversation(client.updates()) if each[0] == "agent"]
        assert told[-1][1] == '["two", "seen"]'


async def test_a_new_session_is_refused_where_one_must_log_in_first(
    house: House, version: int
) -> None:
    async with house.child(version, "--agent", careless(house, "login")) as (client, _):
        refused = await client.refusal("session/new", {"cwd": "/", "mcpServers": []})
        assert refused.code == -32000 and "Sign in with your face" in refused.message
        assert (await client.ask("session/list"))["sessions"] == []


@pytest.mark.parametrize("terminal", [False, True])
async def test_its_ways_to_log_in_are_ours(house: House, version: int, terminal: bool) -> None:
    name = "id" if version == 1 else "methodId"
    agent = careless(house, "login")
    auth: Any = {"terminal": terminal} if version == 1 else {"terminal": {} if terminal else None}
    told = {"clientCapabilities" if version == 1 else "capabilities": {"auth": auth}}
    async with house.child(version, "--agent", agent, greet=False) as (client, _):
        methods = (await client.initialize(**told))["authMethods"]
        assert [each[name] for each in methods] == (["x", "t"] if terminal else ["x"])
        assert methods[0]["name"] == "Sign in with your face"
        refused = await client.refusal("session/new", {"cwd": "/", "mcpServers": []})
        assert refused.code == -32000
        log_in = "authenticate" if version == 1 else "auth/login"
        for unknown in ("t", "segue-local"):
            refused = await client.refusal(log_in, {"methodId": unknown})
            assert refused.code == -32602
        await client.ask(log_in, {"methodId": "x"})
        id = await client.new("/")
        assert await client.run(id, "hello") == "end_turn"
    if terminal:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "segue", "acp", "--agent", agent, *methods[1]["args"]),
            env={**os.environ, "FACE": "mine"},
            stdout=asyncio.subprocess.PIPE,
        )
        assert (await process.communicate())[0] == b"signed in with mine\n"


async def test_one_that_does_not_start_keeps_nobody_waiting(
    house: House, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LOGIN_METHODS_SECONDS", 0.1)
    served_agent = ServedAgent("acp:mute", {"kind": "acp", "command": "sleep 600"})
    async with house.inside(version, greet=False, served_agent=served_agent) as client:
        (method,) = (await client.initialize())["authMethods"]
        assert "segue-local" in method.values()
    mine = [each.cmdline() for each in psutil.Process().children()]
    assert ["sleep", "600"] not in mine


async def test_what_it_switches_on_and_off_can_be_switched(house: House, version: int) -> None:
    name = "id" if version == 1 else "configId"
    known = {"session": {"configOptions": {"boolean": {}}}}
    told = {"clientCapabilities": known} if version == 1 else {}

    def switch(answer: Any) -> Any:
        (found,) = [each for each in answer["configOptions"] if each["type"] == "boolean"]
        assert (found[name], found["name"]) == ("fast", "Fast") and "options" not in found
        return found["currentValue"]

    async with house.child(version, "--agent", careless(house), greet=False) as (client, _):
        await client.initialize(**told)
        made = await client.ask("session/new", {"cwd": "/", "mcpServers": []})
        assert switch(made) is False
        params = {"sessionId": made["sessionId"], "configId": "fast", "type": "boolean"}
        answer = await client.ask("session/set_config_option", {**params, "value": True})
        assert switch(answer) is True
        for wrong in ({"value": "yes"}, {"value": True, "type": "id"}):
            refused = await client.refusal("session/set_config_option", {**params, **wrong})
            assert refused.code == -32602
        await client.run(made["sessionId"], "hello")
    if version == 1:  # whose clients must say that they know of switches
        async with house.child(version, "--agent", careless(house)) as (client, _):
            made = await client.ask("session/new", {"cwd": "/", "mcpServers": []})
            assert {each["type"] for each in made["configOptions"]} == {"select"}


async def test_what_it_offers_is_offered_and_what_is_chosen_reaches_it(
    house: House, version: int
) -> None:
    agent = careless(house)
    name = "id" if version == 1 else "configId"

    def chosen(answer: Any) -> dict[str, str]:
        selects = [option for option in answer["configOptions"] if option["type"] == "select"]
        return {option[name]: option["currentValue"] for option in selects}

    async with house.child(version, "--agent", agent) as (client, _):
        made = await client.ask("session/new", {"cwd": "/", "mcpServers": []})
        id = made["sessionId"]
        assert chosen(made) == {"mode": "ask", "model": "small"}
        if version == 1:
            assert made["modes"]["currentModeId"] == "ask"
            told = await client.until(lambda update: "availableCommands" in update.body)
            commands = told.body["availableCommands"]
        else:
            commands = made["availableCommands"]
        assert [command["name"] for command in commands] == ["plan"]
        typed = {"type": "id"} if version == 2 else {}
        params = {"sessionId": id, "configId": "model", "value": "large", **typed}
        answer = await client.ask("session/set_config_option", params)
        assert chosen(answer) == {"mode": "ask", "model": "large"}
        params = {"sessionId": id, "configId": "mode", "value": "go", **typed}
        answer = await client.ask("session/set_config_option", params)
        assert chosen(answer) == {"mode": "go", "model": "large"}
        refused = await client.refusal("session/set_config_option", {**params, "value": "huge"})
        assert refused.code == -32602 and "ask, go" in refused.message
        await client.run(id, "hello")
        await client.ask("session/close", {"sessionId": id})
        again = await client.open("resume", id, "/")
        assert chosen(again) == {"mode": "go", "model": "large"}
