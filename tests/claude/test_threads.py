"""The agents that Claude Code's sessions started: found by their words, read, and counted."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from segue.hub import Hub
from segue.model.content import plain_text
from segue.model.errors import NotFound
from segue.model.event import AgentMessage, AnyBody, ToolCall, Usage, UserMessage
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.model.session import Thread
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.source import ClaudeSource
from segue.store.memory import MemoryStore
from tests.claude.entries import VERSIONS, Home, S, as_line, assistant, user
from tests.claude.helpers import append, claude_hub, list_ids, write_session_with_subagent
from tests.claude.test_hostile import ODD

BEGUN = 1767225600_000_000
SPENT = Usage(input_tokens=7, output_tokens=2)
ASIDE: dict[str, Any] = {"isSidechain": True, "agentId": "a1b2c3"}


async def spoken(hub: Hub, thread: str) -> list[str]:
    bodies = [event.body async for event in hub.history.thread_events(LOCAL, S, thread)]
    return [
        plain_text(each.content) for each in bodies if isinstance(each, UserMessage | AgentMessage)
    ]


async def test_what_an_agent_said_finds_its_session(home: Home) -> None:
    write_session_with_subagent(home)
    async with claude_hub(home) as (hub, _):
        assert await list_ids(hub, text="kingfisher") == [S]
        assert await list_ids(hub, text="kingfisher nine") == [S]  # words of both transcripts
        (found,) = (await hub.sessions.search(LOCAL, Query(text="kingfisher"))).matches
        assert found.snippet == "A kingfisher, too"
        assert found.event is not None and found.event.body.thread == "a1b2c3"
        (call,) = await hub.history.events(LOCAL, S, types=("tool_call",))
        assert found.event.seq == call.seq  # the place of the session that leads there
        (best,) = (await hub.sessions.search(LOCAL, Query(text="kingfisher"), ranked=True)).matches
        assert best.event == found.event


@pytest.mark.parametrize("old", [False, True], ids=["in a directory", "beside the session"])
async def test_and_does_so_in_the_trash_and_when_it_is_back(home: Home, old: bool) -> None:
    path, file = write_session_with_subagent(home)
    if old:  # as versions before 2.1 have it
        lines = [{**json.loads(line), "sessionId": S} for line in file.read_bytes().splitlines()]
        shutil.rmtree(path.with_suffix(""))
        path.with_name(file.name).write_bytes(b"".join(map(as_line, lines)))
    said = ["Count them", "A kingfisher, too"]
    async with claude_hub(home) as (hub, _):
        assert await list_ids(hub, text="kingfisher") == [S]
        await hub.editor.trash(LOCAL, S)
        assert await list_ids(hub, text="kingfisher") == []
        assert await list_ids(hub, text="kingfisher", trash=True) == [S]
        (found,) = (await hub.sessions.search(LOCAL, Query(text="kingfisher", trash=True))).matches
        assert found.event is not None and found.event.body.thread == "a1b2c3"
        (thread,) = await hub.history.threads(LOCAL, S)
        assert (thread.kind, await spoken(hub, thread.id)) == (None if old else "Explore", said)
    async with claude_hub(home) as (hub, _):  # from the index
        assert await list_ids(hub, text="kingfisher", trash=True) == [S]
        await hub.editor.restore(LOCAL, S)
        assert await list_ids(hub, text="kingfisher", trash=True) == []
        assert await list_ids(hub, text="kingfisher") == [S]


async def test_an_agent_s_conversation_is_read(home: Home) -> None:
    write_session_with_subagent(home)
    async with claude_hub(home) as (hub, _):
        (call,) = await hub.history.events(LOCAL, S, types=("tool_call",))
        (thread,) = await hub.history.threads(LOCAL, S)
        assert thread == Thread(
            "a1b2c3", call.seq, None, "Explore", "count birds", BEGUN, BEGUN, SPENT
        )
        assert await spoken(hub, "a1b2c3") == ["Count them", "A kingfisher, too"]
        ids = [event.id async for event in hub.history.thread_events(LOCAL, S, "a1b2c3")]
        ids += [event.id async for event in hub.history.read(LOCAL, S)]
        assert len(set(ids)) == len(ids)
        with pytest.raises(NotFound):
            await spoken(hub, "../../x")
        with pytest.raises(NotFound):
            await hub.history.threads(LOCAL, S.replace("1", "2"))


async def test_the_session_s_own_history_and_counts_stay_as_they_are(home: Home) -> None:
    path, _ = write_session_with_subagent(home)
    async with claude_hub(home) as (hub, _):
        with_agent = [event async for event in hub.history.read(LOCAL, S)]
        session = await hub.sessions.get(LOCAL, S)
        assert session.messages == 2 and session.last_seq == with_agent[-1].seq
        # But what the agent used was used for the session.
        assert session.usage == Usage(input_tokens=7, output_tokens=2)
        assert session.models == {"small": session.usage}
        shutil.rmtree(path.with_suffix(""))
        assert [event async for event in hub.history.read(LOCAL, S)] == with_agent


async def test_what_an_agent_adds_is_found_when_its_session_goes_on(home: Home) -> None:
    path, file = write_session_with_subagent(home)
    async with claude_hub(home) as (hub, source):
        assert await list_ids(hub, text="heron") == []
        append(file, assistant("s3", "s2", [{"type": "text", "text": "And a heron"}], **ASIDE))
        append(path, user("u3", "a2", "thanks"))
        assert await list_ids(hub, text="heron") == await list_ids(hub, text="kingfisher") == [S]
        count = "SELECT count(*) FROM search WHERE search MATCH 'kingfisher'"
        assert source.index.execute(count).fetchone() == (1,)


async def test_a_new_agent_is_found_before_its_session_goes_on(home: Home) -> None:
    _, file = write_session_with_subagent(home)
    async with claude_hub(home) as (hub, _):
        assert await list_ids(hub, text="owl") == []
        other = file.with_name("agent-d4.jsonl")
        append(other, user("t1", None, "An owl", **{**ASIDE, "agentId": "d4"}))
        assert await list_ids(hub, text="owl") == [S]
        assert [thread.id for thread in await hub.history.threads(LOCAL, S)] == ["d4", "a1b2c3"]


async def test_what_an_agent_says_is_noticed_while_somebody_watches(home: Home) -> None:
    _, file = write_session_with_subagent(home)
    async with claude_hub(home) as (hub, source):
        await list_ids(hub)
        changes = hub.history.changes(LOCAL)
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0.2)
        append(file, assistant("s3", "s2", [{"type": "text", "text": "And a heron"}], **ASIDE))
        async with asyncio.timeout(20):
            assert (await waiting).session == S
        assert await list_ids(hub, text="heron") == [S]
        count = "SELECT count(*) FROM search WHERE search MATCH 'kingfisher'"
        assert source.index.execute(count).fetchone() == (1,)
        await changes.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize("gone", [True, False])
async def test_words_of_an_agent_that_is_gone_or_rewritten_are_not_kept(
    home: Home, gone: bool
) -> None:
    path, file = write_session_with_subagent(home)
    async with claude_hub(home) as (hub, _):
        assert await list_ids(hub, text="kingfisher") == [S]
        if gone:
            file.unlink()
        else:
            file.write_text("")
            append(file, user("t1", None, "Another story altogether, of owls " * 20, **ASIDE))
        append(path, user("u3", "a2", "thanks"))
        assert await list_ids(hub, text="kingfisher") == []
        assert await list_ids(hub, text="nine") == [S]


@pytest.mark.parametrize("make", ODD)
async def test_odd_files_among_the_agents_hide_nothing(
    home: Home, make: Callable[[Path], None]
) -> None:
    path, file = write_session_with_subagent(home)
    make(file.with_name("agent-odd.jsonl"))
    make(file.with_name("workflows"))
    append(path, user("u3", "a2", "more", toolUseResult={"agentId": "../../../etc/passwd"}))
    async with claude_hub(home) as (hub, _):
        for _ in range(2):
            assert await list_ids(hub, text="kingfisher") == [S]
            for thread in await hub.history.threads(LOCAL, S):
                if thread.id == "a1b2c3":
                    assert await spoken(hub, thread.id) == ["Count them", "A kingfisher, too"]
            with pytest.raises(NotFound):
                await spoken(hub, "../../../etc/passwd")
            append(path, user("u4", "u3", "and more"))


async def test_damage_in_an_agent_s_transcript_costs_its_line_alone(home: Home) -> None:
    path, file = write_session_with_subagent(home)
    half = as_line(user("s3", "s2", "An owl", **ASIDE))
    file.write_bytes(b"\xff\xfe nonsense\n" + file.read_bytes() + b"\0\0\0" + half + half[:40])
    async with claude_hub(home) as (hub, _):
        assert await list_ids(hub, text="kingfisher owl") == [S]
        with file.open("ab") as torn:
            torn.write(half[40:])
        append(path, user("u3", "a2", "more"))
        assert await spoken(hub, "a1b2c3") == [
            "Count them",
            "A kingfisher, too",
            "An owl",
            "An owl",
        ]


async def test_an_imported_session_keeps_its_agents(home: Home) -> None:
    path, _file = write_session_with_subagent(home)
    async with claude_hub(home) as (hub, _):
        await hub.sync.import_session(LOCAL, S, "claude")
        path.unlink()
        shutil.rmtree(path.with_suffix(""))
        session = await hub.sessions.get(LOCAL, S)
        assert session.messages == 2
        assert await list_ids(hub, text="kingfisher") == [S]
        (found,) = (await hub.sessions.search(LOCAL, Query(text="kingfisher"))).matches
        assert found.snippet == "A kingfisher, too"
        (call,) = await hub.history.events(LOCAL, S, types=("tool_call",))
        (thread,) = await hub.history.threads(LOCAL, S)
        assert thread == Thread(
            "a1b2c3", call.seq, None, "Explore", "count birds", BEGUN, BEGUN, SPENT
        )
        assert await spoken(hub, "a1b2c3") == ["Count them", "A kingfisher, too"]
        bodies = [event.body async for event in hub.history.conversation(LOCAL, S)]
        assert not any("kingfisher" in str(each) for each in bodies if each.thread is None)
        with pytest.raises(NotFound):
            await spoken(hub, "nobody")
        native = await hub.editor.create(LOCAL, cwd="/w")
        assert await hub.history.threads(LOCAL, native.id) == []


async def copied(tmp_path: Path, home: Path, id: str, thread: str) -> list[AnyBody]:
    """What an agent did, as an imported copy of its session tells it."""
    async with Hub(MemoryStore(), tmp_path) as hub:
        (path,) = (home / "projects").glob(f"*/{id}.jsonl")
        await hub.sync.import_session(LOCAL, str(path), "claude")
        return [event.body async for event in hub.history.thread_events(LOCAL, id, thread)]


@pytest.mark.parametrize("version", VERSIONS)
async def test_agents_of_real_homes(homes: Path, tmp_path: Path, version: str) -> None:
    """Every call that an agent answered leads to what the agent did, in every layout."""
    source = ClaudeSource(tmp_path / "index.db", ClaudeHome(str(homes / version)))
    answered = 0
    async with Hub(MemoryStore(), tmp_path, sources=[source]) as hub:
        for session in (await hub.sessions.list(LOCAL, Query(limit=1000))).sessions:
            events = {event.seq: event async for event in hub.history.read(LOCAL, session.id)}
            for thread in await hub.history.threads(LOCAL, session.id):
                begun = events[thread.seq or 0].body
                if thread.id == "sidechain":
                    assert begun.thread == thread.id
                else:
                    assert isinstance(begun, ToolCall) and begun.name in ("Task", "Agent")
                said = [
                    each async for each in hub.history.thread_events(LOCAL, session.id, thread.id)
                ]
                first = next(e.body for e in said if isinstance(e.body, UserMessage))
                words = f'"{plain_text(first.content)[:60]}"'
                results = (await hub.sessions.search(LOCAL, Query(text=words, limit=1000))).matches
                assert session.id in {one.session.id for one in results}
                answered += 1
                if thread.id != "sidechain":  # which are the session's own lines
                    copy = await copied(tmp_path, homes / version, session.id, thread.id)
                    assert copy == [each.body for each in said]
    expected = {"1.0.128": 1, "2.0.0": 1, "2.0.76": 1, "2.1.19": 1, "2.1.112": 2, "2.1.325": 2}
    assert answered == expected.get(version, 0)
