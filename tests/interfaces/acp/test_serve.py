"""`segue.serve_acp`: any agent as an ACP agent, with as much memory as it wants."""

import re
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.model.principal import LOCAL
from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.harness import Client
from tests.interfaces.acp.testbed import House

ROOT = Path(__file__).parent.parent.parent.parent
EXAMPLES = ROOT / "examples"
ECHO = (str(EXAMPLES / "echo_agent.py"),)
COUNTER = (str(EXAMPLES / "in_memory_agent.py"),)
SHOUT = (str(EXAMPLES / "forgetful_agent.py"),)
ARCHIVE = (str(EXAMPLES / "archive_agent.py"),)


def program(options: str) -> tuple[str, str]:
    """A program of an author's own."""
    code = f"""
import segue
class Author:
    async def run(self, turn):
        await turn.say("yes: " + turn.text)
        return "end_turn"
segue.serve_acp(Author(), {options})
"""
    return ("-c", code)


def markers(client: Client, greeting: dict[str, Any]) -> set[str]:
    if client.version == 2:
        return set(greeting["capabilities"]["session"]) - {"prompt", "mcp"}
    capabilities = greeting["agentCapabilities"]
    loading = {"load"} if capabilities.get("loadSession") else set()
    return set(capabilities["sessionCapabilities"]) | loading


EVERYTHING = {
    *("list", "load", "resume", "close", "delete"),
    *("additionalDirectories", "fork", "title", "archive", "status"),
}


async def rows(client: Client, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.ask("session/list", params))["sessions"]
    return found


# Ten lines.


def test_the_echo_agent_is_ten_lines_of_code() -> None:
    lines = Path(ECHO[0]).read_text().splitlines()
    assert len([line for line in lines[1:] if line.strip()]) <= 10


async def test_the_readme_s_ten_lines_are_an_agent(house: House, version: int) -> None:
    (code,) = (
        block
        for block in re.findall(r"```py\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
        if "serve_acp" in block
    )
    async with house.child(version, program=("-c", code)) as (client, _):
        id = await client.new("/")
        await client.run(id, "Hello")
        assert ("agent", "You said: Hello") in conversation(client.updates())


async def test_ten_lines_have_every_method(house: House, version: int) -> None:
    async with house.child(version, program=ECHO, greet=False) as (client, _):
        greeting = await client.initialize()
        info = greeting["agentInfo" if version == 1 else "info"]
        assert info == {"name": "echo", "title": "echo", "version": "0"}
        assert markers(client, greeting) == EVERYTHING
        assert greeting["authMethods"] == []
        id = await client.new(house.directory)
        await client.run(id, "Hello")
        assert ("agent", "You said: Hello") in conversation(client.updates())
        (row,) = await rows(client, cwd=str(house.directory))
        assert row["title"] == "Hello"
    async with house.child(3 - version, program=ECHO) as (client, _):
        said = conversation(await client.replay(id, house.directory))
        assert said == [("user", "Hello"), ("agent", "You said: Hello")]
        fork = (await client.open("fork", id, house.directory))["sessionId"]
        await client.run(fork, "Again")
        await client.ask("session/set_title", {"sessionId": fork, "title": "Mine"})
        await client.ask("session/archive", {"sessionId": fork})
        await client.ask("session/delete", {"sessionId": id})
        assert [row["title"] for row in await rows(client, archived="include")] == ["Mine"]


async def test_its_sessions_are_seen_by_segue_and_answered_by_nobody_else(house: House) -> None:
    async with house.child(1, program=ECHO) as (client, _):
        id = await client.new("/")
        await client.run(id, "Hello")
    async with house.hub() as hub:
        assert (await hub.sessions.get(LOCAL, id)).title == "Hello"
        with pytest.raises(segue.SegueError, match="program:echo"):
            await hub.turns.submit(LOCAL, id, "who answers?")
    async with house.inside(1) as client:
        await client.open("resume", id, "/")
        refused = await client.refusal("session/prompt", client.prompting(id, "and you?"))
        assert refused.code == -32603 and "program:echo" in refused.message


async def test_logging_in_is_not_offered_where_there_is_nothing_to_log_in_to(
    house: House, version: int
) -> None:
    async with house.child(version, program=ECHO) as (client, _):
        methods = ("authenticate", "logout") if version == 1 else ("auth/login", "auth/logout")
        for method in methods:
            assert (await client.refusal(method, {"methodId": "segue-local"})).code == -32601


# In memory.


async def test_sessions_in_memory_live_as_long_as_the_process(house: House, version: int) -> None:
    async with house.child(version, program=COUNTER, greet=False) as (client, _):
        assert markers(client, await client.initialize()) == EVERYTHING
        id = await client.new("/")
        await client.run(id, "one two")
        await client.run(id, "three")
        said = conversation(client.updates())
        assert said[-1] == ("agent", "So far you have said 3 words.")
        await client.ask("session/close", {"sessionId": id})
        assert conversation(await client.replay(id, "/"))[-1] == said[-1]
    async with house.child(version, program=COUNTER) as (client, _):
        assert await rows(client) == []
    assert not house.data.exists()


async def test_the_in_memory_agent_names_pages_and_filters(house: House, version: int) -> None:
    async with house.child(version, program=COUNTER) as (client, _):
        named = await client.new(house.directory)
        await client.run(named, "Implement session list API")
        for _ in range(50):
            await client.new("/")
        page = await client.ask("session/list")
        assert len(page["sessions"]) == 50
        last = await client.ask("session/list", {"cursor": page["nextCursor"]})
        (row,) = last["sessions"]
        assert (row["sessionId"], row["title"]) == (named, "Implement session list API")
        assert row["_meta"]["messageCount"] == 2
        assert [each["sessionId"] for each in await rows(client, cwd=str(house.directory))] == [
            named
        ]
        assert [each["sessionId"] for each in await rows(client, search="session list")] == [named]


# The example under a clock that the test moves: days are in a file.
MOVED = """
import runpy, sys, time
from pathlib import Path
from segue.model import clock
days = Path(sys.argv[1])
clock.now = lambda: time.time_ns() // 1000 + int(days.read_text()) * clock.DAY
runpy.run_path(sys.argv[2], run_name="__main__")
"""


async def test_the_in_memory_agent_forgets_what_was_idle_for_a_week(house: House) -> None:
    days = house.directory / "days"
    days.write_text("0")
    async with house.child(2, program=("-c", MOVED, str(days), *COUNTER)) as (client, _):
        old, used = await client.new("/"), await client.new("/")
        for id in (old, used):
            await client.run(id, "hello")
            await client.ask("session/close", {"sessionId": id})
        days.write_text("6")
        await client.open("resume", used, "/")
        await client.run(used, "still here")
        assert len(await rows(client)) == 2
        days.write_text("8")
        assert [row["sessionId"] for row in await rows(client)] == [used]
        params = {"sessionId": old, "cwd": "/"}
        assert (await client.refusal("session/resume", params)).code == -32002


# Without memory.


async def test_an_agent_without_memory_lists_nothing_and_says_so(
    house: House, version: int
) -> None:
    kept = {"list", "close", "additionalDirectories"}
    async with house.child(version, program=SHOUT, greet=False) as (client, _):
        assert markers(client, await client.initialize()) == kept
        id = await client.new("/")
        assert await client.run(id, "hello") == "end_turn"
        assert ("agent", "HELLO") in conversation(client.updates())
        assert await client.run(id, "again") == "end_turn"
        assert await rows(client) == []
        assert (await client.refusal("session/list", {"cwd": "relative"})).code == -32602
        await client.ask("session/close", {"sessionId": id})
        for method in ("load", "fork", "delete", "set_title", "archive", "status"):
            params = {"sessionId": id, "cwd": "/", "mcpServers": [], "title": "x"}
            assert (await client.refusal(f"session/{method}", params)).code == -32601
        # Resuming is part of every version 2; there is just nothing to resume.
        refused = await client.refusal("session/resume", {"sessionId": id, "cwd": "/"})
        assert refused.code == (-32601 if version == 1 else -32002)
    assert not house.data.exists()


# Less than everything.


async def test_a_list_without_load_is_an_archive(house: House, version: int) -> None:
    async with house.child(version, program=ECHO) as (client, _):
        id = await client.new("/")
        await client.run(id, "kept")
    left_out = {"load", "resume", "delete", "fork", "title", "archive"}
    async with house.child(version, program=ARCHIVE, greet=False) as (client, _):
        assert markers(client, await client.initialize()) == EVERYTHING - left_out
        (row,) = await rows(client)
        assert row["sessionId"] == id and "archived" not in row
        for method in ("load", "resume", "delete", "fork", "set_title", "archive", "unarchive"):
            params = {"sessionId": id, "cwd": "/", "mcpServers": [], "title": "x"}
            assert (await client.refusal(f"session/{method}", params)).code == -32601


async def test_roots_that_are_not_offered_are_not_taken(house: House, version: int) -> None:
    words = program('without=["additionalDirectories"]')
    async with house.child(version, program=words) as (client, _):
        params = {"cwd": "/", "mcpServers": [], "additionalDirectories": ["/tmp"]}
        assert (await client.refusal("session/new", params)).code == -32602


@pytest.mark.parametrize(
    "options",
    [{"without": ["nonsense"]}, {"keep_days": 7}, {"keep_days": 7, "persist": None}],
    ids=str,
)
def test_options_that_make_no_sense_are_refused_at_once(options: dict[str, Any]) -> None:
    class Nobody:
        async def run(self, turn: segue.Turn) -> segue.StopReason:
            return "end_turn"

    with pytest.raises(ValueError):
        segue.serve_acp(Nobody(), **options)


async def test_an_agent_that_prints_disturbs_nothing(house: House, version: int) -> None:
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
    async with house.child(version, program=("-c", code), stderr=noise) as (client, _):
        assert await client.run(await client.new("/"), "make noise") == "end_turn"
