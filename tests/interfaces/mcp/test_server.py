"""Agents search and read sessions over MCP: the package's own client, in both transports."""

import os
import re
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

from segue.hub import Hub
from segue.hub.tools import mcp_caller
from segue.interfaces.mcp import catalog
from segue.interfaces.mcp.caller import Call
from segue.interfaces.mcp.scope import Caller, McpSettings, SessionScope
from segue.interfaces.mcp.server import McpServer
from segue.model.content import Diff, Text, as_content
from segue.model.event import (
    AgentMessage,
    AnyBody,
    PlanChanged,
    PlanEntry,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.principal import LOCAL, Principal
from segue.model.session import Session
from segue.secrets import Secret, find_secrets
from segue.store.sqlite import SQLiteStore

EVERYTHING = McpSettings(scope="all")
KEY = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
OTHER = Principal(workspace="other")
READ_TOOLS = [
    "search_sessions",
    "read_session",
    "sessions_touching",
    "recent_work",
    "find_command",
    "similar_failures",
]
WORK: list[AnyBody] = [
    UserMessage(
        content=as_content(f"Fix the retry loop, the key is {KEY}"), extra={"begins": True}
    ),
    ToolCall(call_id="1", name="bash", kind="execute", input={"command": "pytest tests/retry"}),
    ToolResult(
        call_id="1",
        status="failed",
        exit_code=1,
        content=(Text(text="ConnectionResetError: peer closed the walrus socket"),),
    ),
    ToolCall(
        call_id="2",
        name="edit",
        kind="edit",
        input={"file_path": "/p/src/retry.py"},
        content=(Diff(path="/p/src/retry.py", old="a = 1\n", new="a = 2\n"),),
    ),
    ToolResult(call_id="2"),
    AgentMessage(content=as_content("I raised the limit of the retry loop.")),
    PlanChanged(entries=(PlanEntry(content="document the limit"),)),
    UserMessage(content=as_content("And the tests?"), extra={"begins": True}),
    AgentMessage(content=as_content("They pass now.")),
]


@asynccontextmanager
async def open_hub(tmp_path: Path) -> AsyncIterator[Hub]:
    async with Hub(SQLiteStore.open(tmp_path / "segue.db"), tmp_path) as hub:
        yield hub


async def add_session(
    hub: Hub, principal: Principal = LOCAL, cwd: str = "/p", title: str = "Retries"
) -> Session:
    session = await hub.editor.create(principal, cwd=cwd, title=title)
    await hub.editor.append(principal, session.id, *WORK)
    return session


def connect(hub: Hub, principal: Principal = LOCAL, settings: McpSettings = EVERYTHING) -> Client:
    async def get_hub() -> Hub:
        return hub

    return Client(McpServer(get_hub, lambda context: principal, settings).protocol)


async def call(client: Client, tool: str, /, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    (content,) = result.content
    assert content.type == "text"
    return f"ERROR {content.text}" if result.is_error else content.text


ARGUMENTS: dict[str, dict[str, Any]] = {
    "search_sessions": {"words": "walrus socket"},
    "read_session": {},
    "sessions_touching": {"path": "src/retry.py"},
    "recent_work": {},
    "find_command": {"words": "pytest retry"},
    "similar_failures": {"error": "ConnectionResetError: peer closed the walrus socket"},
}


async def test_every_tool_answers_with_the_session_and_without_its_secrets(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        session = await add_session(hub)
        async with connect(hub) as client:
            listed = await client.list_tools()
            assert [tool.name for tool in listed.tools] == READ_TOOLS
            assert all(
                tool.annotations and tool.annotations.read_only_hint for tool in listed.tools
            )
            answers = {}
            for tool, arguments in ARGUMENTS.items():
                if tool == "read_session":
                    arguments = {"session": session.id}
                answers[tool] = await call(client, tool, **arguments)
                assert session.id in answers[tool], (tool, answers[tool])
                assert KEY not in answers[tool]
    assert "walrus socket" in answers["search_sessions"]
    assert (
        "1. (event 3) Fix the retry loop, the key is ghp_…8B4a [masked]" in answers["read_session"]
    )
    assert "-a = 1" in answers["sessions_touching"] and "+a = 2" in answers["sessions_touching"]
    assert "Open: plan: document the limit" in answers["recent_work"]
    assert "Changed: /p/src/retry.py" in answers["recent_work"]
    assert "pytest tests/retry" in answers["find_command"]
    assert "I raised the limit" in answers["similar_failures"]


async def test_a_session_is_read_by_turn_by_prompts_and_around_an_event(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        session = await add_session(hub)
        async with connect(hub) as client:
            turn = await call(client, "read_session", session=session.id, part="turn", turn=2)
            assert "They pass now." in turn and "raised the limit" not in turn
            prompts = await call(client, "read_session", session=session.id, part="prompts")
            assert "And the tests?" in prompts and "They pass now." not in prompts
            around = await call(
                client, "read_session", session=session.id, part="around", event=7, window=1
            )
            assert "raised the limit" in around and "They pass now." not in around
            missing = await call(client, "read_session", session=session.id, part="turn", turn=9)
            assert missing.startswith("ERROR") and "no turn 9" in missing


async def test_a_turn_or_an_event_says_which_part_is_read(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        session = await add_session(hub)
        async with connect(hub) as client:
            read = partial(call, client, "read_session", session=session.id)
            assert await read(turn=2) == await read(part="turn", turn=2)
            assert await read(event=7) == await read(part="around", event=7)
            assert "no turn 99" in await read(turn=99)
            assert await read(part="outline", turn=1) == (
                "ERROR turn: part=outline has no turn; use part=turn"
            )
            assert (await read(part="turn", event=7)).startswith("ERROR event: part=turn")
            assert (await read(turn=1, event=7)).startswith("ERROR event: give turn or event")


@pytest.mark.parametrize("part", ["prompts", "outline"])
async def test_cursors_lead_past_prompts_that_do_not_fit(tmp_path: Path, part: str) -> None:
    async with open_hub(tmp_path) as hub:
        session = await hub.editor.create(LOCAL, cwd="/p", title="long " * 60)
        await hub.editor.set_metadata(LOCAL, session.id, {"note": "remember " * 200})
        for number in range(4):
            prompt = as_content(f"prompt {number} {'word ' * 400}")
            answer = AgentMessage(content=as_content("word " * 200))
            await hub.editor.append(LOCAL, session.id, UserMessage(content=prompt), answer)
        seen: list[str] = []
        cursor: dict[str, str] = {}
        async with connect(hub) as client:
            while len(seen) < 20:
                text = await call(
                    client, "read_session", session=session.id, part=part, max_chars=500, **cursor
                )
                assert len(text) < 800
                seen += re.findall(r"prompt (\d)", text)
                if "cursor=" not in text:
                    break
                cursor = {"cursor": text.rsplit("cursor=", 1)[1]}
    assert seen == ["0", "1", "2", "3"]


@pytest.mark.parametrize("tool", [tool for tool in READ_TOOLS if tool != "read_session"])
async def test_cursors_of_short_answers_lead_to_every_session_once(
    tmp_path: Path, tool: str
) -> None:
    arguments = {**ARGUMENTS[tool], "limit": 4, "max_chars": 700}
    if tool == "search_sessions":
        arguments["order"] = "newest"
    if tool in ("search_sessions", "recent_work"):
        arguments["since"] = "7d"
    async with open_hub(tmp_path) as hub:
        ids = sorted([(await add_session(hub)).id for _ in range(7)])
        seen: list[str] = []
        cursor: dict[str, str] = {}
        async with connect(hub) as client:
            while len(seen) < 20:
                answer = await call(client, tool, **arguments, **cursor)
                seen += [id for id in ids if id in answer]
                if "cursor=" not in answer:
                    break
                cursor = {"cursor": answer.rsplit("cursor=", 1)[1]}
    assert sorted(seen) == ids


async def test_the_snippet_of_a_corrected_search_has_the_corrected_word(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub, connect(hub) as client:
        session = await hub.editor.create(LOCAL, cwd="/p")
        text = f"{'Nothing of interest. ' * 50}The walrus returns."
        await hub.editor.append(LOCAL, session.id, UserMessage(content=as_content(text)))
        answer = await call(client, "search_sessions", words="walrsu")
    assert "These match 'walrus'" in answer
    assert "The walrus returns." in answer


async def test_empty_optional_arguments_are_none(tmp_path: Path) -> None:
    empty = {"project": "", "tool": None, "since": "", "branch": "", "cursor": "", "limit": None}
    async with open_hub(tmp_path) as hub:
        session = await add_session(hub)
        async with connect(hub) as client:
            result = await client.call_tool("search_sessions", {"words": "walrus", **empty})
            assert session.id in str(result.content)


@pytest.mark.parametrize("time", ["99999999999999w", "9999-12-31", "-5d", "soon"])
async def test_a_time_that_is_none_is_refused_with_an_explanation(
    tmp_path: Path, time: str
) -> None:
    async with open_hub(tmp_path) as hub, connect(hub) as client:
        assert "is no age" in await call(client, "search_sessions", until=time)


async def test_filters_that_match_nothing_are_refused_by_name(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub, connect(hub) as client:
        unknown = await call(client, "search_sessions", tool="zzz")
        assert unknown.startswith("ERROR tool: 'zzz' is not one of segue, claude, codex")
        assert await call(client, "search_sessions", tool="codex") == "No session matches."
        empty = await call(client, "search_sessions", since="2026-02-02", until="2026-02-01")
        assert empty == "ERROR since: '2026-02-02' is not before until: '2026-02-01'"
        day = await call(client, "search_sessions", since="2026-02-01", until="2026-02-01")
        assert day == "No session matches."


@pytest.mark.parametrize("id", ["zzz", "sesn_01zzzzzzzz", "sesn_0123456789012345678901234567"])
async def test_a_missing_session_is_answered_with_the_tools_that_list_ids(
    tmp_path: Path, id: str
) -> None:
    async with open_hub(tmp_path) as hub, connect(hub) as client:
        answer = await call(client, "read_session", session=id)
        assert answer.startswith("ERROR") and "search_sessions" in answer
        assert "`segue" not in answer


async def test_long_answers_are_cut_and_continue_at_the_cursor(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        session = await hub.editor.create(LOCAL, cwd="/p")
        text = "\n".join(f"line {number}" for number in range(300))
        prompt = UserMessage(content=as_content(text), extra={"begins": True})
        await hub.editor.append(LOCAL, session.id, prompt)
        lines: list[str] = []
        async with connect(hub) as client:
            cursor: dict[str, str] = {}
            while True:
                answer = await call(
                    client, "read_session", session=session.id, part="turn", max_chars=800, **cursor
                )
                assert len(answer) < 1000
                lines += [line for line in answer.splitlines() if line.startswith("line ")]
                if "cursor=" not in answer:
                    break
                cursor = {"cursor": answer.rsplit("cursor=", 1)[1]}
    assert lines == text.splitlines()


async def test_pages_of_a_search_list_every_session_once(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        expected = {(await add_session(hub)).id for _ in range(5)}
        listed: list[str] = []
        async with connect(hub) as client:
            cursor: dict[str, str] = {}
            while True:
                answer = await call(
                    client, "search_sessions", words="walrus", order="newest", limit=2, **cursor
                )
                listed += [part.split("`")[1] for part in answer.split("\n") if "`" in part]
                if "cursor=" not in answer:
                    break
                cursor = {"cursor": answer.rsplit("cursor=", 1)[1]}
    assert len(listed) == 5 and set(listed) == expected


@pytest.mark.parametrize("tool", READ_TOOLS)
async def test_no_tool_shows_sessions_of_another_workspace(tmp_path: Path, tool: str) -> None:
    async with open_hub(tmp_path) as hub:
        session = await add_session(hub, OTHER, title="Quokka")
        arguments = ARGUMENTS[tool] or {"session": session.id}
        if tool == "recent_work":
            arguments = {}
        async with connect(hub) as client:
            answer = await call(client, tool, **arguments)
            assert "Quokka" not in answer and "walrus socket" not in answer.replace("'", "")
            with pytest.raises(MCPError):
                await client.read_resource(f"segue://session/{session.id}")
            with pytest.raises(MCPError):
                await client.get_prompt("continue_from", {"session": session.id})
            assert not (await client.list_resources()).resources
        async with connect(hub, OTHER) as client:
            assert session.id in await call(client, tool, **arguments)


async def test_the_scope_limits_every_tool_to_the_repository(tmp_path: Path) -> None:
    repository, elsewhere = tmp_path / "repo", tmp_path / "elsewhere"
    (repository / ".git").mkdir(parents=True)
    (repository / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (repository / "deep").mkdir()
    elsewhere.mkdir()
    async with open_hub(tmp_path) as hub:
        inside = await add_session(hub, cwd=str(repository))
        deeper = await add_session(hub, cwd=str(repository / "deep"))
        outside = await add_session(hub, cwd=str(elsewhere))
        settings = McpSettings(scope="repo", directory=str(repository / "deep"))
        async with connect(hub, settings=settings) as client:
            for tool, arguments in ARGUMENTS.items():
                if arguments or tool == "recent_work":
                    answer = await call(client, tool, **arguments)
                    assert inside.id in answer and deeper.id in answer, tool
                    assert outside.id not in answer, tool
            refused = await call(client, "read_session", session=outside.id)
            assert refused.startswith("ERROR") and "--scope all" in refused
        settings = settings._replace(scope="directory")
        async with connect(hub, settings=settings) as client:
            answer = await call(client, "recent_work")
            assert deeper.id in answer and inside.id not in answer


async def test_the_calling_session_is_left_out(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        earlier, calling = await add_session(hub), await add_session(hub)
        arguments = {"words": "walrus"}
        name = "mcp__segue__search_sessions"
        tool_call = ToolCall(call_id="9", name=name, input=arguments, server="segue")
        await hub.editor.append(LOCAL, calling.id, tool_call)
        async with connect(hub) as client:
            answer = await call(client, "search_sessions", **arguments)
            assert earlier.id in answer and calling.id not in answer
            answer = await call(client, "search_sessions", words="walrus socket")
            assert calling.id in answer  # another call: this session does not wait for it


def test_programs_name_their_session_in_a_call_or_a_variable() -> None:
    assert mcp_caller({"agent-session-id": "a"}, {}) == "a"
    assert mcp_caller({"x-codex-turn-metadata": {"session_id": "b"}}, {}) == "b"
    assert mcp_caller({}, {"CLAUDE_CODE_SESSION_ID": "c"}) == "c"
    assert mcp_caller({}, {}) is None


async def test_only_allow_write_offers_tools_that_change_sessions(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        session = await add_session(hub)
        async with connect(hub) as client:
            with pytest.raises(MCPError, match="there is no tool"):
                await client.call_tool("set_title", {"session": session.id, "title": "x"})
        writing = McpSettings(scope="all", allow_write=True)
        async with connect(hub, settings=writing) as client:
            await call(client, "set_title", session=session.id, title="Renamed")
            await call(client, "set_tag", session=session.id, tag="done")
            await call(client, "add_note", session=session.id, note="see the wiki")
            assert "Note: see the wiki" in await call(client, "recent_work")
        changed = await hub.sessions.get(LOCAL, session.id)
        assert (changed.title, changed.tag) == ("Renamed", "done")


async def test_resources_and_prompts_have_the_session(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        session = await add_session(hub)
        uri = f"segue://session/{session.id}"
        async with connect(hub) as client:
            assert [r.uri for r in (await client.list_resources()).resources] == [uri]
            templates = (await client.list_resource_templates()).resource_templates
            assert [t.uri_template for t in templates] == [
                "segue://session/{id}",
                "segue://session/{id}/turn/{number}",
            ]
            outline = (await client.read_resource(uri)).contents[0]
            turn = (await client.read_resource(f"{uri}/turn/2")).contents[0]
            assert "Fix the retry loop" in outline.text and KEY not in outline.text  # type: ignore[union-attr]
            assert "They pass now." in turn.text  # type: ignore[union-attr]
            for prompt in (await client.list_prompts()).prompts:
                (message,) = (
                    await client.get_prompt(prompt.name, {"session": session.id})
                ).messages
                assert "And the tests?" in message.content.text  # type: ignore[union-attr]


async def test_unknown_arguments_are_refused_by_name(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub, connect(hub) as client:
        assert "colour" in await call(client, "recent_work", colour="red")
        assert "since" in await call(client, "search_sessions", words="x", since="last week")
        assert "cursor" in await call(client, "search_sessions", words="x", cursor="zzz")


@pytest.mark.parametrize(
    ("tool", "name"),
    [("search_sessions", "since"), ("search_sessions", "order"), ("read_session", "session")],
)
async def test_an_error_does_not_repeat_a_long_value(tmp_path: Path, tool: str, name: str) -> None:
    async with open_hub(tmp_path) as hub, connect(hub) as client:
        answer = await call(client, tool, **{name: "x" * 200_000})
        assert answer.startswith("ERROR") and len(answer) < 2100


async def test_long_texts_are_masked_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main, threads = threading.current_thread(), []

    def find(text: str) -> list[Secret]:
        if len(text) > 10_000:
            threads.append(threading.current_thread())
        return find_secrets(text)

    monkeypatch.setattr("segue.secrets.masks.find_secrets", find)
    async with open_hub(tmp_path) as hub:
        session = await add_session(hub)
        long = "walrus socket pytest retry ConnectionResetError " * 400
        for body in (
            UserMessage(content=as_content(long), extra={"begins": True}),
            AgentMessage(content=as_content(long)),
            ToolCall(call_id="9", name="bash", kind="execute", input={"command": long}),
            ToolResult(call_id="9", content=as_content(long), status="failed"),
        ):
            await hub.editor.append(LOCAL, session.id, body)
        async with connect(hub) as client:
            for tool, arguments in ARGUMENTS.items():
                if tool == "read_session":
                    arguments = {"session": session.id, "part": "turn", "turn": 3}
                await call(client, tool, **arguments)
    assert threads and main not in threads


async def test_a_search_reads_only_the_neighbours_of_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore.open(tmp_path / "segue.db")
    async with Hub(store, tmp_path) as hub:
        for number in range(10):
            session = await hub.editor.create(LOCAL)
            prompt, answer = (as_content(f"{word} {number}") for word in ("walrus", "otter"))
            await hub.editor.append(LOCAL, session.id, UserMessage(content=prompt))
            await hub.editor.append(LOCAL, session.id, AgentMessage(content=answer))
            await hub.editor.append(LOCAL, session.id, UserMessage(content=as_content("Thanks.")))
        caller = Caller("another session")
        tool = catalog.tools(allow_write=False)["search_sessions"]
        reads: list[str] = []
        for name in ("get", "events", "page", "newest_matches"):
            read = getattr(store, name)

            def counted(*arguments: Any, name: str = name, read: Any = read, **options: Any) -> Any:
                reads.append(name)
                return read(*arguments, **options)

            monkeypatch.setattr(store, name, counted)
        neighbours = ["events"] * 2 * 10
        for words, events in (("walrus", []), ("otter", neighbours)):
            reads.clear()
            call = Call(hub, LOCAL, EVERYTHING, SessionScope(EVERYTHING), caller)
            answer = await tool.run(call, {"words": words, "order": "newest"})
            assert answer.count(f"> {words}") == 10
            assert reads == ["page", "newest_matches", *events]


@pytest.mark.full
async def test_the_command_answers_the_client_over_standard_streams(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        session = await add_session(hub)
    arguments = ["-m", "segue", "mcp", "--scope", "all", "--data-dir", str(tmp_path)]
    environment = {**os.environ, "SEGUE_SOURCES": "none"}
    server = StdioServerParameters(command=sys.executable, args=arguments, env=environment)
    async with Client(server) as client:
        assert session.id in await call(client, "search_sessions", words="walrus")
        assert KEY not in await call(client, "read_session", session=session.id)
