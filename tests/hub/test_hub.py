"""The hub's operations on sessions."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from segue.hub import Hub
from segue.hub.sessions.retention import RetentionPolicy
from segue.model import clock, ids
from segue.model.content import as_content
from segue.model.errors import Busy, Conflict, InvalidInput, NotFound, ReadOnly, Unauthorized
from segue.model.event import (
    AgentMessage,
    AgentRef,
    ConfigChanged,
    Created,
    Draft,
    InfoChanged,
    StatusChanged,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.principal import LOCAL, Principal
from segue.model.query import Query
from segue.testing.source import MemorySource

MakeHub = Callable[..., Hub]
OTHER = Principal(workspace="other")


async def test_a_session_without_a_directory_gets_one_of_its_own(
    make_hub: MakeHub, tmp_path: Path
) -> None:
    async with make_hub() as hub:
        session = await hub.editor.create(LOCAL)
        assert session.cwd == str(tmp_path / "work" / session.id)
        assert os.path.isdir(session.cwd)


async def test_a_relative_directory_is_refused(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        with pytest.raises(InvalidInput, match="absolute"):
            await hub.editor.create(LOCAL, cwd="here")
        assert (await hub.sessions.list(LOCAL)).sessions == []


async def test_every_session_has_an_agent_and_an_environment(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        session = await hub.editor.create(LOCAL)
        assert session.agent is not None and session.environment_id is not None
        agent = await hub.records.get("local", "agent", session.agent.id)
        environment = await hub.records.get("local", "environment", session.environment_id)
        assert (agent.version, environment.version) == (1, 1)
        other = await hub.editor.create(OTHER)
        assert other.agent is not None and other.agent.id != session.agent.id
        given = await hub.editor.create(LOCAL, agent=AgentRef(id="mine", version=3))
        assert given.agent == AgentRef(id="mine", version=3)


async def test_a_session_of_another_workspace_does_not_exist(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL, title="secret plans")).id
        for call in (
            hub.sessions.get(OTHER, id),
            hub.history.events(OTHER, id),
            hub.editor.set_title(OTHER, id, "x"),
            hub.editor.archive(OTHER, id),
            hub.editor.trash(OTHER, id),
            hub.editor.purge(OTHER, id),
            hub.editor.fork(OTHER, id),
            hub.turns.submit(OTHER, id, "hi"),
            hub.turns.cancel(OTHER, id),
            hub.turns.lease(OTHER, id),
            hub.editor.append(OTHER, id, UserMessage(content=as_content("x"))),
        ):
            with pytest.raises(NotFound) as caught:
                await call
            assert "secret" not in str(caught.value)
        with pytest.raises(NotFound):
            await anext(hub.history.follow(OTHER, id))
        with pytest.raises(NotFound):
            await anext(hub.exchange.export(OTHER, id))
        assert (await hub.sessions.list(OTHER)).sessions == []
        assert (await hub.sessions.search(OTHER, Query(text="secret"))).matches == []
        assert (await hub.sessions.search(OTHER, Query(text="secret"), ranked=True)).matches == []
        assert (await hub.sessions.get(LOCAL, id)).title == "secret plans"


async def test_a_title_is_set_and_cleared_and_never_empty(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        assert (await hub.editor.set_title(LOCAL, id, "  One  ")).title == "One"
        assert (await hub.editor.set_title(LOCAL, id, None)).title is None
        with pytest.raises(InvalidInput):
            await hub.editor.set_title(LOCAL, id, "  ")


async def test_what_changes_nothing_leaves_no_event(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        session = await hub.editor.create(LOCAL, title="One", tag="t")
        for again in (
            await hub.editor.set_title(LOCAL, session.id, "One"),
            await hub.editor.set_tag(LOCAL, session.id, "t"),
            await hub.editor.unarchive(LOCAL, session.id),
            await hub.editor.restore(LOCAL, session.id),
        ):
            assert again == session


async def test_metadata_is_patched_by_key(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL, metadata={"a": "1", "b": "2"})).id
        session = await hub.editor.set_metadata(LOCAL, id, {"a": None, "c": "3"})
        assert session.metadata == {"b": "2", "c": "3"}


async def test_configuration_changes_are_part_of_the_history(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        change = ConfigChanged(mode="plan", options={"model": "m"}, roots=("/r",))
        session = await hub.editor.configure(LOCAL, id, change)
        assert (session.mode, session.options, session.roots) == ("plan", {"model": "m"}, ("/r",))
        assert (await hub.history.events(LOCAL, id))[-1].body == change


async def test_archive_hides_and_unarchive_shows(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        assert (await hub.editor.archive(LOCAL, id)).archived_at is not None
        assert (await hub.sessions.list(LOCAL)).sessions == []
        assert len((await hub.sessions.list(LOCAL, Query(archived="only"))).sessions) == 1
        assert (await hub.editor.unarchive(LOCAL, id)).archived_at is None
        assert len((await hub.sessions.list(LOCAL)).sessions) == 1


async def test_the_trash_gives_back_and_purge_does_not(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        await hub.editor.trash(LOCAL, id)
        assert (await hub.sessions.list(LOCAL, Query(archived="include"))).sessions == []
        assert len((await hub.sessions.list(LOCAL, Query(trash=True))).sessions) == 1
        with pytest.raises(InvalidInput, match="restore"):
            await hub.turns.submit(LOCAL, id, "hi")
        await hub.editor.restore(LOCAL, id)
        assert len((await hub.sessions.list(LOCAL)).sessions) == 1
        await hub.editor.purge(LOCAL, id)
        with pytest.raises(NotFound):
            await hub.sessions.get(LOCAL, id)


async def test_a_running_session_is_not_archived_or_deleted(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        await hub.editor.append(LOCAL, id, StatusChanged(status="running", turn="t"))
        for verb in (hub.editor.archive, hub.editor.trash, hub.editor.purge):
            with pytest.raises(Busy):
                await verb(LOCAL, id)
        assert (await hub.sessions.get(LOCAL, id)).state == "active"


async def test_a_directory_is_matched_by_its_real_path_and_spelt_as_asked(
    make_hub: MakeHub, tmp_path: Path
) -> None:
    real = tmp_path / "real"
    real.mkdir()
    link = tmp_path / "link"
    link.symlink_to(real)
    async with make_hub() as hub:
        by_link = await hub.editor.create(LOCAL, cwd=str(link))
        by_path = await hub.editor.create(LOCAL, cwd=f"{real}/")
        await hub.editor.create(LOCAL, cwd=str(real / "below"))
        for spelt in (str(link), str(real), f"{real}/../real"):
            listed = (await hub.sessions.list(LOCAL, Query(cwd=spelt))).sessions
            assert {session.id for session in listed} == {by_link.id, by_path.id}
            assert {session.cwd for session in listed} == {spelt}
        real.rmdir()
        assert len((await hub.sessions.list(LOCAL, Query(cwd=str(real)))).sessions) == 2


async def test_worktrees_of_a_repository_are_listed_together(
    make_hub: MakeHub, tmp_path: Path
) -> None:
    main, tree = tmp_path / "main", tmp_path / "tree"

    def git(*words: str) -> None:
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.invalid"]
        subprocess.run(["git", *identity, *words], check=True, capture_output=True)

    git("init", str(main))
    git("-C", str(main), "commit", "--allow-empty", "-m", "first")
    git("-C", str(main), "worktree", "add", str(tree))
    async with make_hub() as hub:
        made = [await hub.editor.create(LOCAL, cwd=str(path)) for path in (main, tree, tmp_path)]
        alone = await hub.sessions.list(LOCAL, Query(cwd=str(tree)))
        assert [session.id for session in alone.sessions] == [made[1].id]
        both = await hub.sessions.list(LOCAL, Query(cwd=str(tree), worktrees=True))
        assert {session.id for session in both.sessions} == {made[0].id, made[1].id}
        assert {session.cwd for session in both.sessions} == {str(main), str(tree)}


async def test_a_search_shows_where_and_marks_the_words(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL, title="Parser")).id
        text = "lorem " * 60 + "the connection was Refused by the peer " + "ipsum " * 60
        await hub.editor.append(LOCAL, id, UserMessage(content=as_content(text)))
        (found,) = (await hub.sessions.search(LOCAL, Query(text="refused parser"))).matches
        assert found.session.id == id
        assert [found.snippet[mark.start : mark.stop] for mark in found.marks] == ["Refused"]
        (best,) = (
            await hub.sessions.search(LOCAL, Query(text='"was refused"'), ranked=True)
        ).matches
        assert best.score > 0
        with pytest.raises(InvalidInput):
            await hub.sessions.search(LOCAL, Query(text=" ?! "))


async def test_a_fork_takes_the_history_up_to_an_event_and_closes_what_was_open(
    make_hub: MakeHub,
) -> None:
    async with make_hub() as hub:
        parent = await hub.editor.create(LOCAL, cwd="/p", title="Plans", metadata={"k": "v"})
        await hub.editor.append(
            LOCAL,
            parent.id,
            StatusChanged(status="running", turn="t"),
            UserMessage(content=as_content("do it")),
            ToolCall(call_id="c", name="bash"),
            ToolResult(call_id="c"),
            StatusChanged(status="idle", stop_reason="end_turn", turn="t"),
        )
        whole = await hub.editor.fork(LOCAL, parent.id)
        assert (whole.title, whole.cwd, whole.metadata) == ("Plans (fork)", "/p", {"k": "v"})
        assert whole.fork is not None and whole.fork.session == parent.id
        call = next(
            event
            for event in await hub.history.events(LOCAL, parent.id)
            if event.type == "tool_call"
        )
        cut = await hub.editor.fork(LOCAL, parent.id, at=call.seq, title="Cut", cwd="/q")
        assert (cut.status, cut.turn, cut.open_calls, cut.title) == ("idle", None, (), "Cut")
        results = [
            e.body for e in await hub.history.events(LOCAL, cut.id) if e.type == "tool_result"
        ]
        assert [(body.call_id, body.status) for body in results] == [("c", "cancelled")]
        with pytest.raises(InvalidInput):
            await hub.editor.fork(LOCAL, parent.id, at=99)


@pytest.mark.parametrize("place", ["work/..", "work/mine", "work/.", "mine/work"])
async def test_a_purged_fork_takes_no_directory_with_it_that_segue_did_not_make(
    make_hub: MakeHub, tmp_path: Path, place: str
) -> None:
    kept = tmp_path / "work" / "mine" / "kept"
    kept.parent.mkdir(parents=True)
    kept.touch()
    (tmp_path / "mine" / "work").mkdir(parents=True)
    async with make_hub() as hub:
        session = await hub.editor.create(LOCAL, cwd="/")
        fork = await hub.editor.fork(LOCAL, session.id, cwd=f"{tmp_path}/{place}")
        await hub.editor.purge(LOCAL, fork.id)
        assert kept.exists() and (tmp_path / "mine" / "work").exists()


async def test_the_last_fork_takes_the_directory_with_it_however_it_spells_it(
    make_hub: MakeHub, tmp_path: Path
) -> None:
    async with make_hub() as hub:
        session = await hub.editor.create(LOCAL)
        Path(f"{session.cwd}.json").write_text("{}")
        fork = await hub.editor.fork(LOCAL, session.id, cwd=f"{session.cwd}/")
        await hub.editor.purge(LOCAL, session.id)
        assert os.path.isdir(fork.cwd)
        await hub.editor.purge(LOCAL, fork.id)
        assert list((tmp_path / "work").iterdir()) == []


async def test_a_fork_of_an_archived_session_is_live(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        parent = await hub.editor.create(LOCAL)
        await hub.editor.archive(LOCAL, parent.id)
        assert (await hub.editor.fork(LOCAL, parent.id)).state == "active"


async def test_a_fork_of_a_terminated_session_goes_on(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        parent = await hub.editor.create(LOCAL)
        await hub.editor.append(LOCAL, parent.id, StatusChanged(status="terminated"))
        fork = await hub.editor.fork(LOCAL, parent.id)
        assert (fork.status, fork.terminated_at) == ("idle", None)
        assert await hub.turns.run(LOCAL, fork.id, "go on") == "end_turn"


async def test_a_source_s_session_is_read_in_place_and_takes_changes_where_it_can(
    make_hub: MakeHub,
) -> None:
    source = MemorySource(can=["title"])
    async with make_hub(sources=[source]) as hub:
        id = ids.new_id()
        await source.add(id, [Created(cwd="/p"), UserMessage(content=as_content("find me"))])
        assert (await hub.sessions.get(LOCAL, id)).messages == 1
        assert len(await hub.history.events(LOCAL, id)) == 2
        assert [
            hit.session.id for hit in (await hub.sessions.search(LOCAL, Query(text="find"))).matches
        ]
        renamed = await hub.editor.set_title(LOCAL, id, "Named")
        assert renamed.title == "Named"
        assert await hub.store.overlays("local", "memory") == {id: {}}
        assert (await hub.editor.set_tag(LOCAL, id, "later")).tag == "later"
        assert (await hub.store.overlays("local", "memory"))[id] == {"tag": "later"}
        await hub.editor.archive(LOCAL, id)
        assert (await hub.sessions.list(LOCAL)).sessions == []
        assert (
            len((await hub.sessions.list(LOCAL, Query(archived="only", tag="later"))).sessions) == 1
        )
        for refused in (hub.turns.submit(LOCAL, id, "hi"), hub.editor.purge(LOCAL, id)):
            with pytest.raises(ReadOnly):
                await refused
        fork = await hub.editor.fork(LOCAL, id)
        assert (fork.messages, fork.state) == (1, "active")
        assert await hub.turns.run(LOCAL, fork.id, "go on") == "end_turn"


async def test_what_the_overlay_says_is_there_again_after_a_restart(make_hub: MakeHub) -> None:
    source = MemorySource()
    id = ids.new_id()
    await source.add(id, [Created(cwd="/p")])
    hub = make_hub(sources=[source])
    await hub.editor.set_tag(LOCAL, id, "kept")
    fresh = MemorySource()
    await fresh.add(id, [Created(cwd="/p")])
    again = Hub(hub.store, hub.data_dir, sources=[fresh])
    assert len((await again.sessions.list(LOCAL, Query(tag="kept"))).sessions) == 1
    await again.close()


# Keys and records.


async def test_a_key_opens_its_workspace_until_it_expires(
    make_hub: MakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make_hub() as hub:
        now = clock.now()
        _, secret = await hub.keys.create("team", expires_at=now + clock.SECOND)
        assert (await hub.keys.authenticate(secret)).workspace == "team"
        monkeypatch.setattr(clock, "now", lambda: now + clock.SECOND)
        with pytest.raises(Unauthorized):
            await hub.keys.authenticate(secret)


async def test_a_key_opens_its_workspace_until_it_is_revoked(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        key, secret = await hub.keys.create("team", "ci")
        principal = await hub.keys.authenticate(secret)
        assert (principal.workspace, principal.local, principal.key_id) == ("team", False, key.id)
        assert secret.encode() not in repr(await hub.keys.list()).encode()
        with pytest.raises(NotFound):
            await hub.keys.revoke("local", key.id)
        await hub.keys.revoke("team", key.id)
        for wrong in (secret, secret[:-1], "", "\ud800"):
            with pytest.raises(Unauthorized):
                await hub.keys.authenticate(wrong)
        assert [each.revoked_at is None for each in await hub.keys.list("team")] == [False]
        assert await hub.keys.list("local") == ()


async def test_a_stale_update_of_a_record_is_a_conflict(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        record = await hub.records.create("local", "agent", {"n": 1})
        newer = await hub.records.update(record, {"n": 2})
        with pytest.raises(Conflict):
            await hub.records.update(record, {"n": 3})
        assert (await hub.records.get("local", "agent", record.id)).body == {"n": 2}
        assert (await hub.records.get("local", "agent", record.id, 1)).body == {"n": 1}
        archived = await hub.records.archive(newer)
        assert archived.version == 2
        assert record.id not in {each.id for each in await hub.records.list("local", "agent")}


# Retention.


async def _aged(hub: Hub, days: int, *bodies: object) -> str:
    at = clock.now() - days * clock.DAY
    id = ids.new_id()
    drafts = [Draft(body=body, at=at) for body in (Created(cwd="/p"), *bodies)]
    await hub.store.create("local", id, drafts)
    return id


async def test_retention_is_off_until_somebody_turns_it_on(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        await _aged(hub, 4000)
        await _aged(hub, 4000, InfoChanged(archived=True))
        assert await hub.retention.prune(LOCAL) == []


async def test_retention_archives_deletes_and_empties_the_trash_by_age(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        await hub.retention.set_policy(
            LOCAL, RetentionPolicy(archive_after=30, delete_after=60, purge_after=7)
        )
        idle, fresh = await _aged(hub, 31), await _aged(hub, 29)
        running = await _aged(hub, 31, StatusChanged(status="running", turn="t"))
        shelved = await _aged(hub, 61, InfoChanged(archived=True))
        dropped = await _aged(hub, 8, InfoChanged(deleted=True))
        kept = await _aged(hub, 6, InfoChanged(deleted=True))
        expected = {("archive", idle), ("delete", shelved), ("purge", dropped)}
        dry = await hub.retention.prune(LOCAL, dry_run=True)
        assert {(step.action, step.session.id) for step in dry} == expected
        assert (await hub.sessions.get(LOCAL, idle)).state == "active"
        done = await hub.retention.prune(LOCAL)
        assert {(step.action, step.session.id) for step in done} == expected
        shelves = {
            id: (await hub.sessions.get(LOCAL, id)).state for id in (idle, fresh, running, shelved)
        }
        assert list(shelves.values()) == ["archived", "active", "active", "trashed"]
        assert (await hub.sessions.get(LOCAL, kept)).state == "trashed"
        with pytest.raises(NotFound):
            await hub.sessions.get(LOCAL, dropped)
        assert await hub.retention.prune(OTHER) == []


async def test_a_retention_of_no_days_is_refused() -> None:
    with pytest.raises(InvalidInput):
        RetentionPolicy(archive_after=0)


async def test_messages_of_an_agent_are_counted(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        await hub.editor.append(LOCAL, id, AgentMessage(content=as_content("x")))
        assert (await hub.sessions.get(LOCAL, id)).messages == 1


async def test_a_pipe_in_the_place_of_a_branch_holds_nobody_up(
    make_hub: MakeHub, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    os.mkfifo(head := tmp_path / ".git" / "HEAD")
    # Whoever waited at it would be let go, and found out.
    program = f"import time; time.sleep(2); open({str(head)!r}, 'w').write('ref: refs/heads/x')"
    freeing = subprocess.Popen([sys.executable, "-c", program])
    try:
        made = await make_hub().editor.create(LOCAL, cwd=str(tmp_path))
    finally:
        freeing.kill()
        freeing.wait()
    assert made.git_branch is None
