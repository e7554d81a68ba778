"""`segue.serve_acp`: serve a Python agent, with or without stored sessions."""

import re
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.model.principal import LOCAL
from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.harness import Client, ErrorResponse
from tests.interfaces.acp.testbed import AcpTestbed

ROOT = Path(__file__).parent.parent.parent.parent
EXAMPLES = ROOT / "examples"
GUIDE = ROOT / "docs" / "guides" / "agent.md"
ECHO = (str(EXAMPLES / "echo_agent.py"),)
COUNTER = (str(EXAMPLES / "in_memory_agent.py"),)
SHOUT = (str(EXAMPLES / "forgetful_agent.py"),)
ARCHIVE = (str(EXAMPLES / "archive_agent.py"),)


def program(options: str) -> tuple[str, str]:
    """Return the command of an agent that calls serve_acp with options."""
    code = f"""
import segue
class Author:
    async def run(self, turn):
        await turn.send_message("yes: " + turn.text)
        return "end_turn"
segue.serve_acp(Author(), {options})
"""
    return ("-c", code)


def session_capabilities(client: Client, greeting: dict[str, Any]) -> set[str]:
    if client.version == 2:
        return set(greeting["capabilities"]["session"]) - {"prompt", "mcp"}
    capabilities = greeting["agentCapabilities"]
    loading = {"load"} if capabilities.get("loadSession") else set()
    return set(capabilities["sessionCapabilities"]) | loading


EVERYTHING = {
    *("list", "load", "resume", "close", "delete"),
    *("additionalDirectories", "fork", "title", "archive", "status"),
}


async def list_rows(client: Client, **params: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await client.request("session/list", params))["sessions"]
    return rows


# Ten lines.


def test_echo_agent_has_ten_lines() -> None:
    lines = Path(ECHO[0]).read_text().splitlines()
    assert len([line for line in lines[1:] if line.strip()]) <= 10


async def test_agent_of_the_guide_answers_prompts(testbed: AcpTestbed, version: int) -> None:
    (code,) = (
        block
        for block in re.findall(r"```py\n(.*?)```", GUIDE.read_text(), re.DOTALL)
        if "serve_acp" in block
    )
    async with testbed.connect_program(version, *("-c", code)) as (client, _):
        id = await client.new_session("/")
        await client.run_prompt(id, "Hello")
        assert ("agent", "You said: Hello") in conversation(client.updates())


async def test_ten_line_agent_offers_every_method(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_program(version, *ECHO, initialize=False) as (client, _):
        greeting = await client.initialize()
        info = greeting["agentInfo" if version == 1 else "info"]
        assert info == {"name": "echo", "title": "echo", "version": "0"}
        assert session_capabilities(client, greeting) == EVERYTHING
        assert greeting["authMethods"] == []
        id = await client.new_session(testbed.directory)
        await client.run_prompt(id, "Hello")
        assert ("agent", "You said: Hello") in conversation(client.updates())
        (row,) = await list_rows(client, cwd=str(testbed.directory))
        assert row["title"] == "Hello"
    async with testbed.connect_program(3 - version, *ECHO) as (client, _):
        entries = conversation(await client.replay(id, testbed.directory))
        assert entries == [("user", "Hello"), ("agent", "You said: Hello")]
        fork = (await client.open_session("fork", id, testbed.directory))["sessionId"]
        await client.run_prompt(fork, "Again")
        await client.request("session/set_title", {"sessionId": fork, "title": "Mine"})
        await client.request("session/archive", {"sessionId": fork})
        await client.request("session/delete", {"sessionId": id})
        assert [row["title"] for row in await list_rows(client, archived="include")] == ["Mine"]


async def test_segue_lists_sessions_of_a_served_agent_but_cannot_prompt_them(
    testbed: AcpTestbed,
) -> None:
    async with testbed.connect_program(1, *ECHO) as (client, _):
        id = await client.new_session("/")
        await client.run_prompt(id, "Hello")
    async with testbed.hub() as hub:
        assert (await hub.sessions.get(LOCAL, id)).title == "Hello"
        with pytest.raises(segue.SegueError, match="program:echo"):
            await hub.turns.submit(LOCAL, id, "who answers?")
    async with testbed.connect_in_process(1) as client:
        await client.open_session("resume", id, "/")
        error = await client.request_error("session/prompt", client.prompt_params(id, "and you?"))
        assert error.code == -32603 and "program:echo" in error.message


async def test_served_agent_offers_no_login(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_program(version, *ECHO) as (client, _):
        methods = ("authenticate", "logout") if version == 1 else ("auth/login", "auth/logout")
        for method in methods:
            assert (await client.request_error(method, {"methodId": "segue-local"})).code == -32601


async def test_agent_may_have_only_its_own_sessions(testbed: AcpTestbed, version: int) -> None:
    async with testbed.hub() as hub:
        other = (await hub.editor.create(LOCAL, cwd="/")).id
        await hub.turns.run(LOCAL, other, "/say of another agent")
    for options, count in (("only_own_sessions=True", 1), ("", 2)):
        async with testbed.connect_program(version, *program(options)) as (client, _):
            if count == 1:
                own = await client.new_session("/")
                await client.run_prompt(own, "Hello")
            assert len(await list_rows(client)) == count
            title = {"sessionId": other, "title": "x"}
            if count == 1:
                for method in ("load", "resume", "fork") if version == 1 else ("resume", "fork"):
                    with pytest.raises(ErrorResponse, match="no session") as error:
                        await client.open_session(method, other, "/")
                    assert error.value.data == {"sessionId": other}
                assert (await client.request_error("session/set_title", title)).code == -32002
                await client.request("session/delete", {"sessionId": other})  # as an unknown one
            else:
                assert (await client.request("session/set_title", title))["title"] == "x"


# In memory.


async def test_sessions_in_memory_end_with_the_process(testbed: AcpTestbed, version: int) -> None:
    async with testbed.connect_program(version, *COUNTER, initialize=False) as (client, _):
        assert session_capabilities(client, await client.initialize()) == EVERYTHING
        id = await client.new_session("/")
        await client.run_prompt(id, "one two")
        await client.run_prompt(id, "three")
        entries = conversation(client.updates())
        assert entries[-1] == ("agent", "So far you have said 3 words.")
        await client.request("session/close", {"sessionId": id})
        assert conversation(await client.replay(id, "/"))[-1] == entries[-1]
    async with testbed.connect_program(version, *COUNTER) as (client, _):
        assert await list_rows(client) == []
    assert not testbed.data.exists()


async def test_in_memory_agent_titles_pages_and_filters_sessions(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_program(version, *COUNTER) as (client, _):
        named = await client.new_session(testbed.directory)
        await client.run_prompt(named, "Implement session list API")
        for _ in range(50):
            await client.new_session("/")
        page = await client.request("session/list")
        assert len(page["sessions"]) == 50
        last = await client.request("session/list", {"cursor": page["nextCursor"]})
        (row,) = last["sessions"]
        assert (row["sessionId"], row["title"]) == (named, "Implement session list API")
        assert row["_meta"]["messageCount"] == 2
        assert [
            row["sessionId"] for row in await list_rows(client, cwd=str(testbed.directory))
        ] == [named]
        assert [row["sessionId"] for row in await list_rows(client, search="session list")] == [
            named
        ]


# The example with a clock that reads the days from a file, which the test changes.
MOVED = """
import runpy, sys, time
from pathlib import Path
from segue.model import clock
days = Path(sys.argv[1])
clock.now = lambda: time.time_ns() // 1000 + int(days.read_text()) * clock.DAY
runpy.run_path(sys.argv[2], run_name="__main__")
"""


async def test_in_memory_agent_deletes_sessions_idle_for_a_week(testbed: AcpTestbed) -> None:
    days = testbed.directory / "days"
    days.write_text("0")
    async with testbed.connect_program(2, *("-c", MOVED, str(days), *COUNTER)) as (client, _):
        old, used = await client.new_session("/"), await client.new_session("/")
        for id in (old, used):
            await client.run_prompt(id, "hello")
            await client.request("session/close", {"sessionId": id})
        days.write_text("6")
        await client.open_session("resume", used, "/")
        await client.run_prompt(used, "still here")
        assert len(await list_rows(client)) == 2
        days.write_text("8")
        assert [row["sessionId"] for row in await list_rows(client)] == [used]
        params = {"sessionId": old, "cwd": "/"}
        assert (await client.request_error("session/resume", params)).code == -32002


# Without memory.


async def test_agent_without_persistence_lists_no_sessions(
    testbed: AcpTestbed, version: int
) -> None:
    remaining = {"list", "close", "additionalDirectories"}
    async with testbed.connect_program(version, *SHOUT, initialize=False) as (client, _):
        assert session_capabilities(client, await client.initialize()) == remaining
        id = await client.new_session("/")
        assert await client.run_prompt(id, "hello") == "end_turn"
        assert ("agent", "HELLO") in conversation(client.updates())
        assert await client.run_prompt(id, "again") == "end_turn"
        assert await list_rows(client) == []
        assert (await client.request_error("session/list", {"cwd": "relative"})).code == -32602
        await client.request("session/close", {"sessionId": id})
        for method in ("load", "fork", "delete", "set_title", "archive", "status"):
            params = {"sessionId": id, "cwd": "/", "mcpServers": [], "title": "x"}
            assert (await client.request_error(f"session/{method}", params)).code == -32601
        # Version 2 requires resume, but there is no session to resume.
        error = await client.request_error("session/resume", {"sessionId": id, "cwd": "/"})
        assert error.code == (-32601 if version == 1 else -32002)
    assert not testbed.data.exists()


# Less than everything.


async def test_agent_without_load_and_resume_lists_sessions(
    testbed: AcpTestbed, version: int
) -> None:
    async with testbed.connect_program(version, *ECHO) as (client, _):
        id = await client.new_session("/")
        await client.run_prompt(id, "kept")
    left_out = {"load", "resume", "delete", "fork", "title", "archive"}
    async with testbed.connect_program(version, *ARCHIVE, initialize=False) as (client, _):
        assert session_capabilities(client, await client.initialize()) == EVERYTHING - left_out
        (row,) = await list_rows(client)
        assert row["sessionId"] == id and "archived" not in row
        for method in ("load", "resume", "delete", "fork", "set_title", "archive", "unarchive"):
            params = {"sessionId": id, "cwd": "/", "mcpServers": [], "title": "x"}
            # Version 2 requires resume, but this agent has no session to resume.
            code = -32002 if (version, method) == (2, "resume") else -32601
            assert (await client.request_error(f"session/{method}", params)).code == code


async def test_unsupported_additional_directories_are_rejected(
    testbed: AcpTestbed, version: int
) -> None:
    command = program('without=["additionalDirectories"]')
    async with testbed.connect_program(version, *command) as (client, _):
        params = {"cwd": "/", "mcpServers": [], "additionalDirectories": ["/tmp"]}
        assert (await client.request_error("session/new", params)).code == -32602


@pytest.mark.parametrize(
    "options",
    [{"without": ["nonsense"]}, {"keep_days": 7}, {"keep_days": 7, "persist": None}],
    ids=str,
)
def test_invalid_serve_options_raise_an_error(options: dict[str, Any]) -> None:
    class SilentAgent:
        async def run(self, turn: segue.Turn) -> segue.StopReason:
            return "end_turn"

    with pytest.raises(ValueError):
        segue.serve_acp(SilentAgent(), **options)


async def test_agent_that_prints_does_not_break_the_protocol(
    testbed: AcpTestbed, version: int
) -> None:
    code = """
import os, segue
class Loud:
    async def run(self, turn):
        print("printed", flush=True)
        os.system("echo from a child")
        return "end_turn"
segue.serve_acp(Loud())
"""
    noise = b"printed\nfrom a child\n"
    async with testbed.connect_program(version, *("-c", code), stderr=noise) as (client, _):
        assert await client.run_prompt(await client.new_session("/"), "make noise") == "end_turn"
