"""The subagents of Claude Code's sessions: searched, read, and counted."""

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

STARTED_AT = 1767225600_000_000
USAGE = Usage(input_tokens=7, output_tokens=2)
SIDECHAIN: dict[str, Any] = {"isSidechain": True, "agentId": "a1b2c3"}


async def thread_texts(hub: Hub, thread: str) -> list[str]:
    bodies = [event.body async for event in hub.history.thread_events(LOCAL, S, thread)]
    return [
        plain_text(body.content) for body in bodies if isinstance(body, UserMessage | AgentMessage)
    ]


async def test_search_finds_a_session_by_the_words_of_its_subagent(home: Home) -> None:
    write_session_with_subagent(home)
    async with claude_hub(home) as (hub, _):
        assert await list_ids(hub, text="kingfisher") == [S]
        assert await list_ids(hub, text="kingfisher nine") == [S]  # words of both transcripts
        (match,) = (await hub.sessions.search(LOCAL, Query(text="kingfisher"))).matches
        assert match.snippet == "A kingfisher, too"
        assert match.event is not None and match.event.body.thread == "a1b2c3"
        (call,) = await hub.history.events(LOCAL, S, types=("tool_call",))
        assert match.event.seq == call.seq  # the event that started the subagent
        (best,) = (await hub.sessions.search(LOCAL, Query(text="kingfisher"), ranked=True)).matches
        assert best.event == match.event


@pytest.mark.parametrize("old", [False, True], ids=["in a directory", "next to the session"])
async def test_search_finds_subagents_of_trashed_and_restored_sessions(
    home: Home, old: bool
) -> None:
    path, file = write_session_with_subagent(home)
    if old:  # the layout before version 2.1
        lines = [{**json.loads(line), "sessionId": S} for line in file.read_bytes().splitlines()]
        shutil.rmtree(path.with_suffix(""))
        path.with_name(file.name).write_bytes(b"".join(map(as_line, lines)))
    texts = ["Count them", "A kingfisher, too"]
    async with claude_hub(home) as (hub, _):
        assert await list_ids(hub, text="kingfisher") == [S]
        await hub.editor.trash(LOCAL, S)
        assert await list_ids(hub, text="kingfisher") == []
        assert await list_ids(hub, text="kingfisher", trash=True) == [S]
        (match,) = (await hub.sessions.search(LOCAL, Query(text="kingfisher", trash=True))).matches
        assert match.event is not None and match.event.body.thread == "a1b2c3"
        (thread,) = await hub.history.threads(LOCAL, S)
        assert (thread.kind, await thread_texts(hub, thread.id)) == (
            None if old else "Explore",
            texts,
        )
    async with claude_hub(home) as (hub, _):  # from the index
        assert await list_ids(hub, text="kingfisher", trash=True) == [S]
        await hub.editor.restore(LOCAL, S)
        assert await list_ids(hub, text="kingfisher", trash=True) == []
        assert await list_ids(hub, text="kingfisher") == [S]


async def test_thread_of_a_subagent_is_read(home: Home) -> None:
    write_session_with_subagent(home)
    async with claude_hub(home) as (hub, _):
        (call,) = await hub.history.events(LOCAL, S, types=("tool_call",))
        (thread,) = await hub.history.threads(LOCAL, S)
        assert thread == Thread(
            "a1b2c3", call.seq, None, "Explore", "count birds", STARTED_AT, STARTED_AT, USAGE
        )
        assert await thread_texts(hub, "a1b2c3") == ["Count them", "A kingfisher, too"]
        ids = [event.id async for event in hub.history.thread_events(LOCAL, S, "a1b2c3")]
        ids += [event.id async for event in hub.history.read(LOCAL, S)]
        assert len(set(ids)) == len(ids)
        with pytest.raises(NotFound):
            await thread_texts(hub, "../../x")
        with pytest.raises(NotFound):
            await hub.history.threads(LOCAL, S.replace("1", "2"))


async def test_subagent_does_not_change_the_history_of_its_session(home: Home) -> None:
    path, _ = write_session_with_subagent(home)
    async with claude_hub(home) as (hub, _):
        with_agent = [event async for event in hub.history.read(LOCAL, S)]
        session = await hub.sessions.get(LOCAL, S)
        assert session.messages == 2 and session.last_seq == with_agent[-1].seq
        # The usage of the subagent counts for the session.
        assert session.usage == Usage(input_tokens=7, output_tokens=2)
        assert session.models == {"small": session.usage}
        shutil.rmtree(path.with_suffix(""))
        assert [event async for event in hub.history.read(LOCAL, S)] == with_agent


async def test_search_finds_what_a_subagent_appended(home: Home) -> None:
    path, file = write_session_with_subagent(home)
    async with claude_hub(home) as (hub, source):
        assert await list_ids(hub, text="heron") == []
        append(file, assistant("s3", "s2", [{"type": "text", "text": "And a heron"}], **SIDECHAIN))
        append(path, user("u3", "a2", "thanks"))
        assert await list_ids(hub, text="heron") == await list_ids(hub, text="kingfisher") == [S]
        count = "SELECT count(*) FROM search WHERE search MATCH 'kingfisher'"
        assert source.current_index.index.execute(count).fetchone() == (1,)


async def test_search_finds_a_new_subagent_before_its_session_changes(home: Home) -> None:
    _, file = write_session_with_subagent(home)
    async with claude_hub(home) as (hub, _):
        assert await list_ids(hub, text="owl") == []
        other = file.with_name("agent-d4.jsonl")
        append(other, user("t1", None, "An owl", **{**SIDECHAIN, "agentId": "d4"}))
        assert await list_ids(hub, text="owl") == [S]
        assert [thread.id for thread in await hub.history.threads(LOCAL, S)] == ["d4", "a1b2c3"]


async def test_watcher_is_notified_of_messages_of_a_subagent(home: Home) -> None:
    _, file = write_session_with_subagent(home)
    async with claude_hub(home) as (hub, source):
        await list_ids(hub)
        changes = hub.history.changes(LOCAL)
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0.2)
        append(file, assistant("s3", "s2", [{"type": "text", "text": "And a heron"}], **SIDECHAIN))
        async with asyncio.timeout(20):
            assert (await waiting).session == S
        assert await list_ids(hub, text="heron") == [S]
        count = "SELECT count(*) FROM search WHERE search MATCH 'kingfisher'"
        assert source.current_index.index.execute(count).fetchone() == (1,)
        await changes.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize("gone", [True, False])
async def test_index_deletes_texts_of_a_deleted_or_rewritten_subagent(
    home: Home, gone: bool
) -> None:
    path, file = write_session_with_subagent(home)
    async with claude_hub(home) as (hub, _):
        assert await list_ids(hub, text="kingfisher") == [S]
        if gone:
            file.unlink()
        else:
            file.write_text("")
            append(file, user("t1", None, "Another story altogether, of owls " * 20, **SIDECHAIN))
        append(path, user("u3", "a2", "thanks"))
        assert await list_ids(hub, text="kingfisher") == []
        assert await list_ids(hub, text="nine") == [S]


@pytest.mark.parametrize("make", ODD)
async def test_odd_files_in_the_subagents_directory_hide_no_subagent(
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
                    assert await thread_texts(hub, thread.id) == ["Count them", "A kingfisher, too"]
            with pytest.raises(NotFound):
                await thread_texts(hub, "../../../etc/passwd")
            append(path, user("u4", "u3", "and more"))


async def test_damaged_line_of_a_subagent_hides_no_other_line(home: Home) -> None:
    path, file = write_session_with_subagent(home)
    half = as_line(user("s3", "s2", "An owl", **SIDECHAIN))
    file.write_bytes(b"\xff\xfe nonsense\n" + file.read_bytes() + b"\0\0\0" + half + half[:40])
    async with claude_hub(home) as (hub, _):
        assert await list_ids(hub, text="kingfisher owl") == [S]
        with file.open("ab") as torn:
            torn.write(half[40:])
        append(path, user("u3", "a2", "more"))
        assert await thread_texts(hub, "a1b2c3") == [
            "Count them",
            "A kingfisher, too",
            "An owl",
            "An owl",
        ]


async def test_imported_session_keeps_its_subagents(home: Home) -> None:
    path, _file = write_session_with_subagent(home)
    async with claude_hub(home) as (hub, _):
        await hub.sync.import_session(LOCAL, S, "claude")
        path.unlink()
        shutil.rmtree(path.with_suffix(""))
        session = await hub.sessions.get(LOCAL, S)
        assert session.messages == 2
        assert await list_ids(hub, text="kingfisher") == [S]
        (match,) = (await hub.sessions.search(LOCAL, Query(text="kingfisher"))).matches
        assert match.snippet == "A kingfisher, too"
        (call,) = await hub.history.events(LOCAL, S, types=("tool_call",))
        (thread,) = await hub.history.threads(LOCAL, S)
        assert thread == Thread(
            "a1b2c3", call.seq, None, "Explore", "count birds", STARTED_AT, STARTED_AT, USAGE
        )
        assert await thread_texts(hub, "a1b2c3") == ["Count them", "A kingfisher, too"]
        bodies = [event.body async for event in hub.history.conversation(LOCAL, S)]
        assert not any("kingfisher" in str(body) for body in bodies if body.thread is None)
        with pytest.raises(NotFound):
            await thread_texts(hub, "unknown")
        native = await hub.editor.create(LOCAL, cwd="/w")
        assert await hub.history.threads(LOCAL, native.id) == []


async def copied(tmp_path: Path, home: Path, id: str, thread: str) -> list[AnyBody]:
    """Return the events of a subagent in an imported copy of its session."""
    async with Hub(MemoryStore(), tmp_path) as hub:
        (path,) = (home / "projects").glob(f"*/{id}.jsonl")
        await hub.sync.import_session(LOCAL, str(path), "claude")
        return [event.body async for event in hub.history.thread_events(LOCAL, id, thread)]


@pytest.mark.parametrize("version", VERSIONS)
async def test_threads_of_real_homes_lead_to_the_events_of_their_subagents(
    homes: Path, tmp_path: Path, version: str
) -> None:
    """Every call of a subagent leads to the subagent's events, in every layout of files."""
    source = ClaudeSource(tmp_path / "index.db", ClaudeHome(str(homes / version)))
    answered = 0
    async with Hub(MemoryStore(), tmp_path, sources=[source]) as hub:
        for session in (await hub.sessions.list(LOCAL, Query(limit=1000))).sessions:
            events = {event.seq: event async for event in hub.history.read(LOCAL, session.id)}
            for thread in await hub.history.threads(LOCAL, session.id):
                opening = events[thread.seq or 0].body
                if thread.id == "sidechain":
                    assert opening.thread == thread.id
                else:
                    assert isinstance(opening, ToolCall) and opening.name in ("Task", "Agent")
                said = [
                    each async for each in hub.history.thread_events(LOCAL, session.id, thread.id)
                ]
                first = next(e.body for e in said if isinstance(e.body, UserMessage))
                words = f'"{plain_text(first.content)[:60]}"'
                results = (await hub.sessions.search(LOCAL, Query(text=words, limit=1000))).matches
                assert session.id in {one.session.id for one in results}
                answered += 1
                if thread.id != "sidechain":  # the session's own transcript has its lines
                    copy = await copied(tmp_path, homes / version, session.id, thread.id)
                    assert copy == [each.body for each in said]
    expected = {"1.0.128": 1, "2.0.0": 1, "2.0.76": 1, "2.1.19": 1, "2.1.112": 2, "2.1.325": 2}
    assert answered == expected.get(version, 0)
