"""Claude Code's sessions in the hub: listed, searched, read and changed in place."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from segue import claude
from segue.hub import Hub
from segue.model import clock
from segue.model.content import plain_text
from segue.model.errors import Busy, Conflict, InvalidInput, NotFound, ReadOnly
from segue.model.event import AgentMessage, ModelCalled, StatusChanged, Usage, UserMessage
from segue.model.principal import LOCAL, Principal
from segue.model.query import Query
from segue.model.session import ChangedLines
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.source import ClaudeSource
from segue.store.memory import MemoryStore
from tests.claude.entries import S2, VERSIONS, Home, S, assistant, title, user
from tests.claude.helpers import S3, append, claude_hub, list_ids, timed_user
from tests.claude.test_golden import golden


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_session_of_a_real_home_is_listed_and_searchable(
    homes: Path, tmp_path: Path, version: str
) -> None:
    source = ClaudeSource(tmp_path / "index.db", ClaudeHome(str(homes / version)))
    async with Hub(MemoryStore(), tmp_path, sources=[source]) as hub:
        rows = {row["sessionId"]: row for row in golden(homes, version, "ts")["list"]}
        sessions = (await hub.sessions.list(LOCAL, Query(limit=1000))).sessions
        assert {session.id for session in sessions} == rows.keys()
        assert sessions == sorted(sessions, key=lambda one: (one.active_at, one.id), reverse=True)
        for session in sessions:
            assert (session.source, session.workspace) == ("claude", "local")
            history = [event async for event in hub.history.read(LOCAL, session.id)]
            assert history[-1].seq == session.last_seq
            prompts = [e.body for e in history if isinstance(e.body, UserMessage)]
            words = (
                " ".join(plain_text(prompts[0].content).split()[:4]).replace('"', "")
                if prompts
                else ""
            )
            if any(char.isalnum() for char in words):
                results = await hub.sessions.search(LOCAL, Query(text=f'"{words}"', limit=1000))
                assert session.id in {one.session.id for one in results.matches}


async def test_list_applies_filters_and_orders(home: Home) -> None:
    home.write([timed_user("u1", None, "one", "2026-01-03T00:00:00Z", cwd="/a")], S)
    home.write([timed_user("u1", None, "two", "2026-01-02T00:00:00Z", cwd="/b")], S2)
    lines = [timed_user("u1", None, "three", "2026-01-01T00:00:00Z", cwd="/a")]
    late = assistant("a1", "u1", timestamp="2026-01-04T00:00:00Z")
    home.write([*lines, late, {"type": "tag", "tag": "exp", "sessionId": S3}], S3)
    async with claude_hub(home) as (hub, _):
        assert await list_ids(hub) == [S3, S, S2]
        assert await list_ids(hub, order="created") == [S, S2, S3]
        assert await list_ids(hub, descending=False) == [S2, S, S3]
        assert await list_ids(hub, cwd="/a") == [S3, S]
        assert await list_ids(hub, cwd="/a", tag="exp") == [S3]
        assert await list_ids(hub, tag="exp") == [S3]
        assert await list_ids(hub, tag="none") == []
        assert await list_ids(hub, created_gte=1767312000_000_000) == [S, S2]
        assert await list_ids(hub, active_after=1767398400_000_000) == [S3]
        assert await list_ids(hub, text="thr") == [S3]
        assert await list_ids(hub, text="two", cwd="/a") == []
        assert await list_ids(hub, source="claude") == [S3, S, S2]
        assert await list_ids(hub, source="segue") == []
        assert await list_ids(hub, statuses=("running",)) == []
        assert await list_ids(hub, statuses=("idle",)) == [S3, S, S2]
        assert await list_ids(hub, agent_id="x") == []
        assert await list_ids(hub, limit=1) == [S3]


async def test_file_with_only_a_summary_is_listed_last(home: Home) -> None:
    home.write([{"type": "summary", "summary": "Of another", "leafUuid": "u1"}], S2)
    home.write([timed_user("u1", None, "old", "2025-06-01T00:00:00Z")], S)
    async with claude_hub(home) as (hub, _):
        assert await list_ids(hub) == await list_ids(hub, order="created") == [S, S2]
        await hub.editor.set_title(LOCAL, S2, "Named")
        assert await list_ids(hub) == [S, S2]
    assert claude.list_sessions()[0].session_id == S2  # the SDK sorts by the times of the files


async def test_other_workspace_does_not_see_the_sessions(home: Home) -> None:
    home.write_conversation()
    async with claude_hub(home) as (hub, _):
        other = Principal(workspace="other")
        assert (await hub.sessions.list(other, Query())).sessions == []
        with pytest.raises(NotFound):
            await hub.sessions.get(other, S)


async def test_worktrees_are_listed_with_their_repository(home: Home, tmp_path: Path) -> None:
    repo, tree = tmp_path / "repo", tmp_path / "tree"
    git = "git -c user.email=a@b -c user.name=n -C"
    os.system(f"git init -q {repo} && {git} {repo} commit -q --allow-empty -m x")
    os.system(f"{git} {repo} worktree add -q {tree} 2>/dev/null")
    home.write_conversation(S, cwd=str(repo))
    home.write_conversation(S2, cwd=str(tree))
    async with claude_hub(home) as (hub, _):
        assert await list_ids(hub, cwd=str(repo)) == [S]
        assert sorted(await list_ids(hub, cwd=str(repo), worktrees=True)) == [S, S2]


async def test_titles_and_tags_are_found_anywhere_in_a_file(home: Home) -> None:
    long = [user(f"u{n}", None, "x" * 1000) for n in range(200)]
    tag = {"type": "tag", "tag": "deep", "sessionId": S}
    home.write([*long, title("Between"), tag, *long])
    async with claude_hub(home) as (hub, _):
        assert (await hub.sessions.get(LOCAL, S)).title == "Between"
        assert await list_ids(hub, tag="deep") == [S]


async def test_search_returns_a_snippet_with_marked_words(home: Home) -> None:
    home.write([user("u1", None, "find the needle here"), assistant("a1", "u1"), user("u2", "a1")])
    home.write_conversation(S2, prompt="hay")
    async with claude_hub(home) as (hub, _):
        (match,) = (await hub.sessions.search(LOCAL, Query(text="needle"))).matches
        assert match.session.id == S and match.snippet == "find the needle here"
        assert [match.snippet[mark.start : mark.stop] for mark in match.marks] == ["needle"]
        (best,) = (await hub.sessions.search(LOCAL, Query(text="needle"), ranked=True)).matches
        assert (best.session.id, best.event) == (S, match.event)
        assert (await hub.sessions.search(LOCAL, Query(text="needle hay"))).matches == []


async def test_list_shows_what_was_written_since_the_last_list(home: Home) -> None:
    path = home.write_conversation()
    async with claude_hub(home) as (hub, _):
        assert await list_ids(hub) == [S]
        append(path, timed_user("u2", "a1", "later", "2026-02-01T00:00:00Z"), title("Named"))
        home.write_conversation(S2)
        assert await list_ids(hub) == [S, S2]
        assert await list_ids(hub, text="later") == [S]
        session = await hub.sessions.get(LOCAL, S)
        assert (session.title, session.messages) == ("Named", 3)
        append(path, title("Again"))
        assert (await hub.sessions.get(LOCAL, S)).title == "Again"
        (home.projects / "-w" / f"{S2}.jsonl").unlink()
        assert await list_ids(hub) == [S]
        with pytest.raises(NotFound):
            await hub.sessions.get(LOCAL, S2)


async def test_get_finds_a_session_before_any_list(home: Home) -> None:
    home.write_conversation(S.replace("1", "A"))
    async with claude_hub(home) as (hub, _):
        session = await hub.sessions.get(LOCAL, S.replace("1", "a"))
        assert session.native_id == S.replace("1", "A")


async def test_newest_of_several_copies_is_listed(home: Home) -> None:
    home.write_conversation(prompt="old", project="-a")
    home.write_conversation(prompt="new", project="-b")
    home.touch(S, 1_000_000_000, "-a")
    async with claude_hub(home) as (hub, _):
        assert (await hub.sessions.get(LOCAL, S)).title == "new"
        assert await list_ids(hub) == [S]
        (home.projects / "-b" / f"{S}.jsonl").unlink()
        assert (await hub.sessions.get(LOCAL, S)).title == "old"


async def test_session_that_was_continued_in_another_is_hidden(home: Home) -> None:
    onward = {"type": "continued-in", "sessionId": S, "continuedInSessionId": S2}
    home.write([user("u1", None, "first"), onward])
    async with claude_hub(home) as (hub, _):
        assert await list_ids(hub) == [S]
        home.write_conversation(S2)
        assert await list_ids(hub) == [S2]
        (home.projects / "-w" / f"{S2}.jsonl").unlink()
        assert await list_ids(hub) == [S]


async def test_copy_in_the_store_replaces_the_file_in_lists(home: Home) -> None:
    home.write_conversation()
    async with claude_hub(home) as (hub, _):
        lines = [line async for line in hub.exchange.export(LOCAL, S)]
        copy = await hub.exchange.import_session(LOCAL, lines)
        assert copy.id == S
        assert await list_ids(hub) == [S]
        renamed = await hub.editor.set_title(LOCAL, S, "The copy")
        assert renamed.title == "The copy"
        assert claude.get_session_info(S).custom_title is None  # type: ignore[union-attr]


async def test_titles_tags_and_archive_marks_have_the_format_of_claude_code(home: Home) -> None:
    home.write_conversation()
    async with claude_hub(home) as (hub, _):
        assert (await hub.editor.set_title(LOCAL, S, "Mine")).title == "Mine"
        assert (await hub.editor.set_tag(LOCAL, S, "exp")).tag == "exp"
        info = claude.get_session_info(S)
        assert info and (info.custom_title, info.tag) == ("Mine", "exp")
        assert (await hub.editor.set_tag(LOCAL, S, None)).tag is None
        assert (await hub.editor.set_title(LOCAL, S, None)).title == "hi"
        assert (await hub.editor.archive(LOCAL, S)).archived_at is not None
        assert claude.get_session_info(S).archived is True  # type: ignore[union-attr]
        assert await list_ids(hub) == []
        assert await list_ids(hub, archived="only") == [S]
        assert (await hub.editor.unarchive(LOCAL, S)).archived_at is None
        assert await list_ids(hub) == [S]
        with pytest.raises(InvalidInput):
            await hub.editor.set_title(LOCAL, S, "\x1b[0m\x07")
        with pytest.raises(ReadOnly):
            await hub.editor.set_metadata(LOCAL, S, {"a": "b"})


async def test_prompt_unarchives_a_session(home: Home) -> None:
    path = home.write_conversation()
    async with claude_hub(home) as (hub, _):
        await hub.editor.archive(LOCAL, S)
        append(path, timed_user("u2", "a1", "again", "2099-01-01T00:00:00Z"))
        assert await list_ids(hub) == [S]


async def test_renaming_does_not_move_a_session_in_the_list(home: Home) -> None:
    home.write([timed_user("u1", None, "one", "2026-01-01T00:00:00Z")], S)
    home.write([timed_user("u1", None, "two", "2026-01-02T00:00:00Z")], S2)
    async with claude_hub(home) as (hub, _):
        await hub.editor.set_title(LOCAL, S, "Renamed")
        assert await list_ids(hub) == [S2, S]


async def test_trash_and_restore_move_all_files(home: Home) -> None:
    path = home.write_conversation()
    subagents = path.with_suffix("") / "subagents"
    subagents.mkdir(parents=True)
    async with claude_hub(home) as (hub, _):
        assert (await hub.editor.trash(LOCAL, S)).deleted_at is not None
        assert not path.exists() and not subagents.exists()
        assert claude.list_sessions() == []
        assert await list_ids(hub) == [] and await list_ids(hub, trash=True) == [S]
        assert [e.type async for e in hub.history.read(LOCAL, S)][1] == "user_message"
        with pytest.raises(Conflict):
            await hub.editor.archive(LOCAL, S)
        assert (await hub.editor.restore(LOCAL, S)).deleted_at is None
        assert path.exists() and subagents.exists()
        assert await list_ids(hub) == [S] and await list_ids(hub, trash=True) == []
        await hub.editor.trash(LOCAL, S)
        await hub.editor.purge(LOCAL, S)
        assert await list_ids(hub, trash=True) == []
        assert list((home.root / "segue-trash").iterdir()) == []


async def test_purge_deletes_all_files(home: Home) -> None:
    path = home.write_conversation()
    async with claude_hub(home) as (hub, _):
        await hub.editor.purge(LOCAL, S)
        assert not path.exists() and list((home.root / "segue-trash").iterdir()) == []
        with pytest.raises(NotFound):
            await hub.sessions.get(LOCAL, S)


async def test_trash_and_purge_refuse_an_open_session(home: Home) -> None:
    path = home.write_conversation()
    (home.root / "sessions").mkdir()
    entry = {"pid": os.getpid(), "sessionId": S}
    (home.root / "sessions" / "1.json").write_text(json.dumps(entry))
    async with claude_hub(home) as (hub, _):
        with pytest.raises(Busy):
            await hub.editor.trash(LOCAL, S)
        with pytest.raises(Busy):
            await hub.editor.purge(LOCAL, S)
        assert path.exists() and await list_ids(hub) == [S]


async def test_fork_is_a_transcript_that_claude_code_can_resume(home: Home) -> None:
    home.write([user("u1", None, "one", cwd="/w"), assistant("a1", "u1"), user("u2", "a1", "two")])
    async with claude_hub(home) as (hub, _):
        fork = await hub.editor.fork(LOCAL, S, title="Other branch")
        assert (fork.source, fork.title, fork.cwd) == ("claude", "Other branch", "/w")
        messages = claude.get_session_messages(fork.id)
        assert [message.message["content"] for message in messages][::2] == ["one", "two"]
        history = [event async for event in hub.history.read(LOCAL, S)]
        short = await hub.editor.fork(LOCAL, S, at=history[1].seq)
        assert len(claude.get_session_messages(short.id)) == 1
        moved = await hub.editor.fork(LOCAL, S, cwd="/elsewhere")
        assert moved.cwd == "/elsewhere"
        assert claude.get_session_info(moved.id, "/elsewhere") is not None
        assert set(await list_ids(hub)) == {S, fork.id, short.id, moved.id}


async def test_fork_is_active_at_the_time_of_the_fork(home: Home) -> None:
    notice = {"type": "system", "uuid": "s1", "parentUuid": "u1", "content": "done"}
    home.write([user("u1", None, "one"), notice | {"timestamp": "2026-01-01T00:00:01Z"}])
    async with claude_hub(home) as (hub, _):
        before = clock.now() // clock.SECOND * clock.SECOND
        fork = await hub.editor.fork(LOCAL, S)
        assert fork.active_at >= before > (await hub.sessions.get(LOCAL, S)).active_at


async def test_fork_at_an_unknown_event_is_rejected(home: Home) -> None:
    home.write([user("u1", None, "one"), user("u2", "u1", "two")])
    async with claude_hub(home) as (hub, _):
        first, last = [e.seq for e in await hub.history.events(LOCAL, S, types=["user_message"])]
        for here in (True, False):
            with pytest.raises(InvalidInput, match=f"no event {last - 1}; .* is {first}$"):
                await hub.editor.fork(LOCAL, S, at=last - 1, in_store=here)
            with pytest.raises(InvalidInput, match=f"not {last + 1000}$"):
                await hub.editor.fork(LOCAL, S, at=last + 1000, in_store=here)
        assert len(await list_ids(hub)) == 1


async def test_fork_has_its_parent_and_only_its_own_usage(home: Home) -> None:
    spent = {"model": "m", "usage": {"input_tokens": 5}}
    answer = assistant("a1", "u1", id="m1")
    answer["message"] |= spent
    home.write([user("u1", None, "one"), answer])
    async with claude_hub(home) as (hub, _):
        fork = await hub.editor.fork(LOCAL, S)
        assert fork.fork is not None and fork.fork.session == S
        events = [event async for event in hub.history.read(LOCAL, fork.id)]
        inherited = [event for event in events if 1 < event.seq <= fork.fork.seq]
        assert [event.type for event in inherited] == [
            "user_message",
            "agent_message",
            "model_called",
        ]
        # The parent has the usage of the inherited messages.
        assert (fork.usage, fork.messages, fork.days) == (Usage(), 2, {})
        path = home.projects / "-w" / f"{fork.id}.jsonl"
        reply = assistant("a2", None, id="m2", timestamp="2026-02-01T00:00:00Z")
        reply["message"] |= spent
        append(path, reply)
        grown = await hub.sessions.get(LOCAL, fork.id)
        assert grown.fork == fork.fork and grown.usage.input_tokens == 5
        assert (await hub.sessions.get(LOCAL, S)).fork is None
        lines = [line async for line in hub.exchange.export(LOCAL, fork.id)]
        copy = await hub.exchange.import_session(LOCAL, lines, new_id=True)
        assert copy.fork is not None and (copy.fork.session, copy.fork.seq) == (S, 4)
        assert (copy.usage, copy.days, copy.messages) == (grown.usage, grown.days, 3)
        here = await hub.editor.fork(LOCAL, S, in_store=True)
        assert here.fork is not None and here.fork.session == S


async def test_fork_into_the_store_has_the_active_branch(home: Home) -> None:
    home.write(
        [user("u1", None, "one"), user("x1", "u1", "left"), assistant("a1", "u1"), title("T")]
    )
    async with claude_hub(home) as (hub, _):
        fork = await hub.editor.fork(LOCAL, S, in_store=True)
        assert (fork.source, fork.title) == ("segue", "T (fork)")
        bodies = [e.body async for e in hub.history.read(LOCAL, fork.id)]
        shown = [b for b in bodies if isinstance(b, UserMessage | AgentMessage)]
        assert [plain_text(body.content) for body in shown] == ["one", "a1"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_imported_copy_has_the_title_and_totals_of_the_original(
    homes: Path, tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(homes / version))
    source = ClaudeSource(tmp_path / "index.db", ClaudeHome(str(homes / version)), writable=False)
    async with Hub(MemoryStore(), tmp_path, sources=[source]) as hub:
        await hub.config.set(LOCAL.workspace, "model", "demo")
        for row in (await hub.sessions.list(LOCAL, Query(limit=1000))).sessions:
            copy = await hub.turns.prepare_for_prompt(LOCAL, row.id)
            assert (copy.title, copy.title_by) == (row.title, row.title_by)
            assert (copy.usage, copy.models) == (row.usage, row.models)
            assert copy.messages == row.messages
            assert copy.active_at == row.active_at or not row.messages


async def test_export_keeps_a_title_that_no_event_has(home: Home) -> None:
    home.write_conversation()
    async with claude_hub(home) as (hub, _):
        row = await hub.sessions.get(LOCAL, S)
        lines = [line async for line in hub.exchange.export(LOCAL, S)]
        copy = await hub.exchange.import_session(LOCAL, lines, new_id=True)
        assert row.title is not None and copy.title == row.title


async def test_follower_of_a_file_receives_events_of_its_imported_copy(home: Home) -> None:
    path = home.write_conversation()
    before = path.read_bytes()
    async with claude_hub(home) as (hub, _):
        last = (await hub.sessions.get(LOCAL, S)).last_seq
        async with aclosing(hub.history.follow(LOCAL, S, last)) as follower:
            coming = asyncio.ensure_future(anext(follower))
            await asyncio.sleep(0)
            await hub.turns.submit(LOCAL, S, "/say Yes.")
            seen = [await coming]
            while not (isinstance(seen[-1].body, StatusChanged) and seen[-1].body.status == "idle"):
                seen.append(await anext(follower))
        assert [event.type for event in seen] == [
            "status_changed",
            "user_message",
            "agent_message",
            "status_changed",
        ]
        assert await hub.sessions.owner(LOCAL, S) is None
        assert await list_ids(hub) == [S]
    assert path.read_bytes() == before


async def test_edits_of_a_read_only_home_are_stored_in_the_overlay(home: Home) -> None:
    path = home.write_conversation()
    before = path.read_bytes()
    async with claude_hub(home, writable=False) as (hub, source):
        assert (await hub.editor.set_title(LOCAL, S, "Mine")).title == "Mine"
        await hub.editor.set_tag(LOCAL, S, "exp")
        assert await list_ids(hub, tag="exp") == [S]
        await hub.editor.trash(LOCAL, S)
        assert await list_ids(hub) == [] and await list_ids(hub, trash=True) == [S]
        assert path.read_bytes() == before
        source.current_index.index.reset()
        assert await list_ids(hub, trash=True) == [S]  # from the overlay in the store
        await hub.editor.restore(LOCAL, S)
        assert (await hub.sessions.get(LOCAL, S)).title == "Mine"


# Usage and cost.


def response(
    uuid: str, id: str, output_tokens: int, model: str = "m", **fields: Any
) -> dict[str, Any]:
    entry = assistant(uuid, "u1", id=id, **fields)
    entry["message"] |= {
        "model": model,
        "usage": {"input_tokens": 10, "output_tokens": output_tokens},
    }
    return entry


async def test_usage_of_a_response_is_its_highest_report(home: Home) -> None:
    long_prompt = user("f1", "u1", "x" * 100_000)
    path = home.write(
        [
            user("u1", None),
            response("a1", "r1", 1),
            response("a2", "r1", 30),
            long_prompt,
            response("a3", "r1", 30),  # some versions copy lines when a session is resumed
            response("a4", "r2", 5, "other"),
        ]
    )
    async with claude_hub(home) as (hub, _):
        session = await hub.sessions.get(LOCAL, S)
        assert session.usage == Usage(input_tokens=20, output_tokens=35)
        assert session.models["m"] == Usage(input_tokens=10, output_tokens=30)
        assert session.agent is not None and session.agent.overrides == {"model": "other"}
        append(path, response("a5", "r2", 9, "other"), response("a6", "r3", 1))
        session = await hub.sessions.get(LOCAL, S)
        assert session.usage == Usage(input_tokens=30, output_tokens=40)
        assert not session.usage.is_priced


async def test_cost_is_the_one_that_claude_code_reports(home: Home) -> None:
    old = response("a1", "r1", 3, costUSD=0.25)
    home.write([user("u1", None), old, {**old, "uuid": "a2"}], S2)
    path = home.write([user("u1", None), response("a1", "r1", 3)])
    cost_state = {"type": "cost-state", "sessionId": S}
    append(path, {**cost_state, "modelUsage": {"m": {"costUSD": 0.1}}})
    append(path, {**cost_state, "modelUsage": {"m": {"costUSD": 0.5}, "tiny": {"costUSD": 0.01}}})
    async with claude_hub(home) as (hub, _):
        session = await hub.sessions.get(LOCAL, S)
        assert (session.usage.cost, session.models["m"].cost) == (510_000, 500_000)
        assert session.models["tiny"] == Usage(cost=10_000)
        assert (await hub.sessions.get(LOCAL, S2)).usage.cost == 250_000


async def test_cost_that_claude_code_does_not_report_is_estimated(home: Home) -> None:
    model = "claude-sonnet-4-5-20250929"
    final = response("a2", "r1", 30, model)
    tokens = {"cache_read_input_tokens": 1000, "cache_creation_input_tokens": 100}
    final["message"]["usage"] |= tokens
    first = response("a1", "r1", 1, model)
    first["message"]["usage"] |= tokens
    path = home.write([user("u1", None), first, final, {**final, "uuid": "a3"}])
    async with claude_hub(home) as (hub, _):
        session = await hub.sessions.get(LOCAL, S)
        # In millionths of a dollar: 3 for a token, 15 for output, 0.3 and 3.75 for the cache.
        cost = 10 * 3 + 30 * 15 + 1000 * 3 // 10 + 100 * 375 // 100
        assert (session.usage.cost, session.usage.estimated_cost) == (cost, cost)
        assert session.has_full_cost
        events = await hub.history.events(LOCAL, S, types=["model_called"])
        (called,) = [event.body for event in events if isinstance(event.body, ModelCalled)]
        assert called.usage.cost == called.usage.estimated_cost == cost - 29 * 15
        append(path, response("a4", "r2", 2, "a-local-model"))
        session = await hub.sessions.get(LOCAL, S)
        assert (session.usage.cost, session.has_full_cost) == (cost, False)
        append(path, {"type": "cost-state", "modelUsage": {model: {"costUSD": 0.5}}})
        session = await hub.sessions.get(LOCAL, S)
        assert session.models[model].cost == 500_000
        assert session.usage.estimated_cost is UNSET


async def test_imported_session_has_the_cost_and_the_calls_of_its_original(home: Home) -> None:
    model = "claude-sonnet-4-5-20250929"
    changed = {"file_path": "/p/a.py", "old_string": "a\nb", "new_string": "a\nc\nd"}
    call = {"type": "tool_use", "id": "t1", "name": "Edit", "input": changed}
    calling = assistant("a1", "u1", [call], id="r0")
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "x"}
    lines = [user("u1", None), calling, user("u2", "a1", [result]), response("a2", "r1", 9, model)]
    home.write(lines)
    path = home.write([*lines, response("a3", "r1", 20, model)], S2)
    async with claude_hub(home) as (hub, _):
        for id in (S, S2):
            original = await hub.sessions.get(LOCAL, id)
            await hub.sync.import_session(LOCAL, id, "claude")
            copy = await hub.sessions.get(LOCAL, id)
            assert (copy.owner, copy.usage, copy.models) == (
                "segue",
                original.usage,
                original.models,
            )
            assert copy.tool_calls == original.tool_calls == 1
            assert copy.lines == original.lines == ChangedLines(added=2, removed=1)
        # Only the second response has tokens that its first line does not report.
        for id, count in ((S, 1), (S2, 2)):
            assert len(await hub.history.events(LOCAL, id, types=["model_called"])) == count
    assert path.exists()


async def test_cost_of_a_real_session_includes_its_subagent(homes: Path, tmp_path: Path) -> None:
    source = ClaudeSource(tmp_path / "index.db", ClaudeHome(str(homes / "2.1.325")))
    async with Hub(MemoryStore(), tmp_path, sources=[source]) as hub:
        session = await hub.sessions.get(LOCAL, "3446002d-a985-49f9-a2e2-b9d224d5eb1f")
        # As Claude Code itself counted, including its subagent.
        assert session.usage == Usage(
            input_tokens=43663,
            output_tokens=83,
            cache_read_tokens=0,
            cache_write_tokens=0,
            cost=176_312,
        )
        tally = await hub.sessions.stats(LOCAL, 0, 36500, hub.history.events)
        assert tally.totals["model"]["claude-opus-5-5"].usage == tally.total.usage
        assert tally.total.unpriced == 0


@pytest.mark.parametrize("writable", [True, False])
async def test_purged_copy_leaves_its_original_in_the_trash(home: Home, writable: bool) -> None:
    home.write_conversation()
    async with claude_hub(home, writable=writable) as (hub, _):
        await hub.turns.run(LOCAL, S, "/say Yes.")
        await hub.editor.trash(LOCAL, S)
        month = clock.now() + 31 * clock.DAY
        assert [step.action for step in await hub.retention.prune(LOCAL, now=month)] == ["purge"]
        assert await list_ids(hub) == []
        assert await list_ids(hub, trash=True) == [S]
        assert (await hub.editor.restore(LOCAL, S)).source == "claude"
        assert await list_ids(hub) == [S]


async def test_purge_refuses_a_copy_of_an_open_session(home: Home) -> None:
    home.write_conversation()
    async with claude_hub(home) as (hub, _):
        await hub.turns.run(LOCAL, S, "/say Yes.")
        home.write_process_file()
        with pytest.raises(Busy):
            await hub.editor.purge(LOCAL, S)
        assert (await hub.sessions.get(LOCAL, S)).owner == "segue"
