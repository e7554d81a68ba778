"""`segue acp --agent acp:COMMAND`: a client whose prompts an external agent answers."""

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
from tests import small_mcp_server
from tests.command_server import CommandServer, ForkedCommand
from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.test_mcp import call, stdio
from tests.interfaces.acp.testbed import AcpTestbed

PROGRAMS = Path(__file__).parent.parent.parent / "agents" / "acp" / "programs"
EXAMPLES = Path(__file__).parent.parent.parent.parent / "examples"
SCRIPT = "hello\n/think hm\n/say hi\n/tool ls a\n/plan one; x two\n/ask May I?"


def segue_agent(testbed: AcpTestbed, version: int) -> str:
    """Return the agent option for segue over another store, with one protocol version."""
    other = str(testbed.directory / "other")
    if version == 1:
        command = [sys.executable, str(PROGRAMS / "only_one.py"), other]
    else:
        command = [sys.executable, "-m", "segue", "acp", "--data-dir", other]
    return f"acp:{shlex.join(command)}"


def careless_agent(testbed: AcpTestbed, *options: str) -> str:
    """Return the agent option for the program careless.py."""
    store = str(testbed.directory / "kept")
    command = [sys.executable, str(PROGRAMS / "careless.py"), store, *options]
    return f"acp:{shlex.join(command)}"


@pytest.mark.parametrize("child", [1, 2])
async def test_client_sees_the_turn_of_an_external_agent(
    testbed: AcpTestbed, version: int, child: int
) -> None:
    conversations = []
    for agent in ("demo", segue_agent(testbed, child)):
        async with testbed.connect_child(version, "--agent", agent) as (client, process):
            id = await client.new_session("/")
            assert await client.run_prompt(id, SCRIPT) == "end_turn"
            assert len(client.permission_requests) == 1
            live = conversation(client.updates())
            await client.request("session/close", {"sessionId": id})
            assert psutil.Process(process.pid).children(recursive=True) == []
            conversations.append((live, conversation(await client.replay(id, "/"))))
    assert conversations[0] == conversations[1]
    async with testbed.hub() as hub:
        titles = [session.title for session in (await hub.sessions.list(LOCAL)).sessions]
    assert titles == ["hello", "hello"]


@pytest.mark.parametrize("child", ["echo", "segue"])
async def test_external_agent_may_use_the_same_store(
    testbed: AcpTestbed, version: int, child: str
) -> None:
    command = [sys.executable, "-m", "segue", "acp", "--data-dir", str(testbed.data)]
    if child == "echo":
        command = [
            "env",
            f"SEGUE_DATA_DIR={testbed.data}",
            sys.executable,
            str(EXAMPLES / "echo_agent.py"),
        ]
    agent = f"acp:{shlex.join(command)}"
    async with testbed.connect_child(version, "--agent", agent) as (client, _):
        id = await client.new_session("/")
        assert await client.run_prompt(id, "/say one") == "end_turn"
        entries = conversation(client.updates())[-1]
        assert entries == ("agent", "You said: /say one" if child == "echo" else "one")
    # Each agent has one session, and no session is empty.
    async with testbed.hub() as hub:
        sessions = {session.id: session for session in (await hub.sessions.list(LOCAL)).sessions}
        own_session = sessions.pop(id)
        (external_session,) = sessions.values()
        assert own_session.native_id == external_session.id
        assert (own_session.messages, external_session.messages) == (2, 2)
    async with testbed.connect_child(version, "--agent", agent) as (client, _):
        await client.open_session("resume", id, "/")
        assert await client.run_prompt(id, "/say two") == "end_turn"
    async with testbed.hub() as hub:
        assert (await hub.sessions.get(LOCAL, external_session.id)).messages == 4
        assert len((await hub.sessions.list(LOCAL)).sessions) == 2


async def test_external_agent_resumes_its_session_in_another_process(
    testbed: AcpTestbed, version: int
) -> None:
    agent = segue_agent(testbed, 2)
    async with testbed.connect_child(version, "--agent", agent) as (client, _):
        id = await client.new_session("/")
        await client.run_prompt(id, "/say one")
    # The session records its agent, so no option is needed, and the CLI can prompt it too.
    async with testbed.connect_child(3 - version) as (client, _):
        await client.open_session("resume", id, "/")
        await client.run_prompt(id, "/history")
        expected = "Before this turn: 1 messages of yours, 1 of mine."
        assert ("agent", expected) in conversation(client.updates())
    command = [sys.executable, "-m", "segue", "prompt", "--data-dir", str(testbed.data), id]
    process = await asyncio.create_subprocess_exec(
        *command, "/history", stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert b"Before this turn: 2 messages of yours, 2 of mine." in output


async def test_cancel_reaches_the_external_agent(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_child(version, "--agent", segue_agent(testbed, 2)) as (client, _):
        id = await client.new_session("/")
        request = await client.start_prompt(id, "/say begun\n/wait 60")
        await client.notify("session/cancel", {"sessionId": id})
        if version == 1:
            assert await client.wait_response(request) == {"stopReason": "cancelled"}
        assert await client.run_prompt(id, "/say again") == "end_turn"


def count_mcp_servers(process: ForkedCommand) -> int:
    """Return the number of MCP servers among the descendants of a process."""
    descendants = psutil.Process(process.pid).children(recursive=True)
    return sum(small_mcp_server.PROGRAM in " ".join(process.cmdline()) for process in descendants)


@pytest.mark.parametrize("child", [1, 2])
async def test_external_agent_gets_the_mcp_servers_of_the_client(
    testbed: AcpTestbed, child: int
) -> None:
    async with testbed.connect_child(2, "--agent", segue_agent(testbed, child)) as (
        client,
        process,
    ):
        id = await client.new_session(testbed.directory, mcpServers=[stdio(2)])
        assert await call(client, id, "add", '{"a": 2, "b": 40}') == ("completed", "42")
        assert count_mcp_servers(process) == 1  # by the external agent only
    # Without the option, the session's own agent answers.
    async with testbed.connect_child(2) as (client, process):
        await client.open_session("resume", id, testbed.directory, mcpServers=[stdio(2)])
        assert await call(client, id, "add", '{"a": 2, "b": 40}') == ("completed", "42")
        assert count_mcp_servers(process) == 1


async def test_external_agent_gets_the_additional_directories(testbed: AcpTestbed) -> None:
    directory = testbed.directory / "more"
    directory.mkdir()
    (directory / "a.txt").write_text("found")
    async with testbed.connect_child(2, "--agent", segue_agent(testbed, 2)) as (client, _):
        id = await client.new_session(
            testbed.directory / "data", additionalDirectories=[str(directory)]
        )
        await client.run_prompt(id, f"/read {directory}/a.txt")
        assert "found" in str(client.updates())


@pytest.mark.parametrize("agent", ["acp:", "acp:/no/such/program --x", "acp:'", "nonsense"])
async def test_invalid_agent_command_is_rejected_at_start(testbed: AcpTestbed, agent: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "segue", "acp", "--agent", agent),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert (process.returncode, output) == (2, b"")
    assert b"--agent" in errors and b"Traceback" not in errors


async def create_external_session(
    testbed: AcpTestbed, command_server: CommandServer, version: int
) -> str:
    """Create a session of the external agent with another client, and return its id."""
    other = AcpTestbed(testbed.directory / "elsewhere", command_server)
    other.directory.mkdir()
    other.data = testbed.directory / "other"
    async with other.connect_child(version) as (client, _):
        id = await client.new_session("/")
        await client.run_prompt(id, SCRIPT)
        await client.request("session/set_title", {"sessionId": id, "title": "Elsewhere"})
    return id


@pytest.mark.parametrize("child", [1, 2])
async def test_sessions_of_the_external_agent_are_listed_loaded_and_prompted(
    testbed: AcpTestbed, command_server: CommandServer, version: int, child: int
) -> None:
    external_session = await create_external_session(testbed, command_server, child)
    agent = segue_agent(testbed, child)
    async with testbed.connect_child(version, "--agent", agent) as (client, _):
        own_id = await client.new_session("/")
        await client.run_prompt(own_id, "/say mine")
        rows = (await client.request("session/list"))["sessions"]
        assert [(row["sessionId"], row["title"]) for row in rows] == [
            (own_id, "/say mine"),
            (external_session, "Elsewhere"),
        ]
        assert [row["_meta"]["source"] for row in rows] == ["segue", agent]
        entries = conversation(await client.replay(external_session, "/"))
        assert entries == [
            ("user", SCRIPT),
            ("agent", "hello"),
            ("thought", "hm"),
            ("agent", "hi"),
            ("tool", "ls (demo): completed"),
            ("tool", "May I?: completed"),
        ]
        await client.run_prompt(external_session, "/history")
        expected = "Before this turn: 1 messages of yours, 2 of mine."
        assert conversation(client.updates())[-1] == ("agent", expected)
        fork = (await client.open_session("fork", external_session, "/"))["sessionId"]
        await client.run_prompt(fork, "/history")
        expected = "Before this turn: 2 messages of yours, 3 of mine."
        assert conversation(client.updates())[-1] == ("agent", expected)
        rows = (await client.request("session/list"))["sessions"]
        assert {row["sessionId"] for row in rows} == {own_id, external_session, fork}
    # A new process lists each session once, too, whatever id the external agent uses.
    async with testbed.connect_child(version, "--agent", agent) as (client, _):
        rows = (await client.request("session/list"))["sessions"]
        assert {row["sessionId"] for row in rows} == {own_id, external_session, fork}
    # A session that was opened is in the store, for every interface.
    async with testbed.hub() as hub:
        assert (await hub.sessions.get(LOCAL, external_session)).title == "Elsewhere"
        assert (await hub.sessions.get(LOCAL, external_session)).messages == 5


async def test_new_session_has_the_same_id_in_the_external_agent(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_child(version, "--agent", segue_agent(testbed, 2)) as (client, _):
        id = await client.new_session("/")
    other = AcpTestbed(testbed.directory)
    other.data = testbed.directory / "other"
    async with other.hub() as hub:
        assert (await hub.sessions.get(LOCAL, id)).id == id


async def test_reused_session_ids_of_an_external_agent_do_not_collide(
    testbed: AcpTestbed, version: int
) -> None:
    agent = careless_agent(testbed, "forgetful")
    async with testbed.connect_child(version, "--agent", agent) as (client, _):
        first = await client.new_session("/")
        await client.run_prompt(first, "one")
    async with testbed.connect_child(version, "--agent", agent) as (client, _):
        second = await client.new_session("/")  # the agent uses the id of the first session
        assert second != first
        await client.run_prompt(second, "two")
        await client.open_session("resume", first, "/")
        await client.run_prompt(first, "seen")
        replies = [text for role, text in conversation(client.updates()) if role == "agent"]
        assert "one" in replies[-1] and "two" not in replies[-1]
        await client.run_prompt(second, "seen")
        replies = [text for role, text in conversation(client.updates()) if role == "agent"]
        assert replies[-1] == '["two", "seen"]'


async def test_new_session_fails_until_the_user_logs_in(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_child(version, "--agent", careless_agent(testbed, "login")) as (
        client,
        _,
    ):
        error = await client.request_error("session/new", {"cwd": "/", "mcpServers": []})
        assert error.code == -32000 and "Sign in with your face" in error.message
        assert (await client.request("session/list"))["sessions"] == []


@pytest.mark.parametrize("terminal", [False, True])
async def test_client_gets_the_login_methods_of_the_external_agent(
    testbed: AcpTestbed, version: int, terminal: bool
) -> None:
    name = "id" if version == 1 else "methodId"
    agent = careless_agent(testbed, "login")
    auth: Any = {"terminal": terminal} if version == 1 else {"terminal": {} if terminal else None}
    capabilities = {"clientCapabilities" if version == 1 else "capabilities": {"auth": auth}}
    async with testbed.connect_child(version, "--agent", agent, initialize=False) as (client, _):
        methods = (await client.initialize(**capabilities))["authMethods"]
        assert [item[name] for item in methods] == (["x", "t"] if terminal else ["x"])
        assert methods[0]["name"] == "Sign in with your face"
        error = await client.request_error("session/new", {"cwd": "/", "mcpServers": []})
        assert error.code == -32000
        log_in = "authenticate" if version == 1 else "auth/login"
        for unknown in ("t", "segue-local"):
            error = await client.request_error(log_in, {"methodId": unknown})
            assert error.code == -32602
        await client.request(log_in, {"methodId": "x"})
        id = await client.new_session("/")
        assert await client.run_prompt(id, "hello") == "end_turn"
    if terminal:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "segue", "acp", "--agent", agent, *methods[1]["args"]),
            env={**os.environ, "FACE": "mine"},
            stdout=asyncio.subprocess.PIPE,
        )
        assert (await process.communicate())[0] == b"signed in with mine\n"


async def test_initialize_does_not_wait_for_an_agent_that_does_not_start(
    testbed: AcpTestbed, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LOGIN_METHODS_SECONDS", 0.1)
    served_agent = ServedAgent("acp:mute", {"kind": "acp", "command": "sleep 600"})
    async with testbed.connect_in_process(
        version, initialize=False, served_agent=served_agent
    ) as client:
        (method,) = (await client.initialize())["authMethods"]
        assert "segue-local" in method.values()
    own_id = [item.cmdline() for item in psutil.Process().children()]
    assert ["sleep", "600"] not in own_id


async def test_client_can_set_boolean_options_of_the_external_agent(
    testbed: AcpTestbed, version: int
) -> None:
    name = "id" if version == 1 else "configId"
    known = {"session": {"configOptions": {"boolean": {}}}}
    capabilities = {"clientCapabilities": known} if version == 1 else {}

    def switch(answer: Any) -> Any:
        (option,) = [item for item in answer["configOptions"] if item["type"] == "boolean"]
        assert (option[name], option["name"]) == ("fast", "Fast") and "options" not in option
        return option["currentValue"]

    async with testbed.connect_child(
        version, "--agent", careless_agent(testbed), initialize=False
    ) as (
        client,
        _,
    ):
        await client.initialize(**capabilities)
        response = await client.request("session/new", {"cwd": "/", "mcpServers": []})
        assert switch(response) is False
        params = {"sessionId": response["sessionId"], "configId": "fast", "type": "boolean"}
        answer = await client.request("session/set_config_option", {**params, "value": True})
        assert switch(answer) is True
        for wrong in ({"value": "yes"}, {"value": True, "type": "id"}):
            error = await client.request_error("session/set_config_option", {**params, **wrong})
            assert error.code == -32602
        await client.run_prompt(response["sessionId"], "hello")
    if version == 1:  # clients of version 1 must announce that they support switches
        async with testbed.connect_child(version, "--agent", careless_agent(testbed)) as (
            client,
            _,
        ):
            response = await client.request("session/new", {"cwd": "/", "mcpServers": []})
            assert {item["type"] for item in response["configOptions"]} == {"select"}


async def test_options_of_the_external_agent_are_offered_and_set(
    testbed: AcpTestbed, version: int
) -> None:
    agent = careless_agent(testbed)
    name = "id" if version == 1 else "configId"

    def chosen(answer: Any) -> dict[str, str]:
        selects = [option for option in answer["configOptions"] if option["type"] == "select"]
        return {option[name]: option["currentValue"] for option in selects}

    async with testbed.connect_child(version, "--agent", agent) as (client, _):
        response = await client.request("session/new", {"cwd": "/", "mcpServers": []})
        id = response["sessionId"]
        assert chosen(response) == {"mode": "ask", "model": "small"}
        if version == 1:
            assert response["modes"]["currentModeId"] == "ask"
        update = await client.wait_for_update(lambda update: "availableCommands" in update.body)
        commands = update.body["availableCommands"]
        names = ["plan", "two words"] if version == 1 else ["plan"]  # version 2 allows no spaces
        assert [command["name"] for command in commands] == names
        typed = {"type": "id"} if version == 2 else {}
        params = {"sessionId": id, "configId": "model", "value": "large", **typed}
        answer = await client.request("session/set_config_option", params)
        assert chosen(answer) == {"mode": "ask", "model": "large"}
        params = {"sessionId": id, "configId": "mode", "value": "go", **typed}
        answer = await client.request("session/set_config_option", params)
        assert chosen(answer) == {"mode": "go", "model": "large"}
        error = await client.request_error("session/set_config_option", {**params, "value": "huge"})
        assert error.code == -32602 and "ask, go" in error.message
        await client.run_prompt(id, "hello")
        await client.request("session/close", {"sessionId": id})
        again = await client.open_session("resume", id, "/")
        assert chosen(again) == {"mode": "go", "model": "large"}
