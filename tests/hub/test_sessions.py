"""Create, read, edit and search sessions through the hub."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from segue.hub import Hub
from segue.hub.resources.records import built_in_environment
from segue.model import ids
from segue.model.content import as_content
from segue.model.errors import Busy, InvalidInput, NotFound, ReadOnly
from segue.model.event import (
    AgentMessage,
    AgentRef,
    ConfigChanged,
    Created,
    InfoChanged,
    StatusChanged,
    UserMessage,
)
from segue.model.principal import LOCAL, Principal
from segue.model.query import Query
from segue.testing.source import MemorySource

MakeHub = Callable[..., Hub]
OTHER = Principal(workspace="other")


async def test_session_without_a_directory_gets_its_own(make_hub: MakeHub, tmp_path: Path) -> None:
    async with make_hub() as hub:
        session = await hub.editor.create(LOCAL)
        assert session.cwd == str(tmp_path / "work" / session.id)
        assert os.path.isdir(session.cwd)


async def test_relative_directory_is_rejected(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        with pytest.raises(InvalidInput, match="absolute"):
            await hub.editor.create(LOCAL, cwd="here")
        assert (await hub.sessions.list(LOCAL)).sessions == []


async def test_every_session_has_an_agent(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        session = await hub.editor.create(LOCAL)
        assert session.agent is not None
        assert (await hub.records.get("local", "agent", session.agent.id)).version == 1
        assert session.environment_id is None  # the built-in environment
        environment = built_in_environment("local")
        assert (await hub.records.get("local", "environment", environment)).version == 1
        other = await hub.editor.create(OTHER)
        assert other.agent is not None and other.agent.id != session.agent.id
        session = await hub.editor.create(LOCAL, agent=AgentRef(id="mine", version=3))
        assert session.agent == AgentRef(id="mine", version=3)


async def test_session_of_another_workspace_does_not_exist(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL, title="secret plans")).id
        for request in (
            hub.sessions.get(OTHER, id),
            hub.history.events(OTHER, id),
            hub.editor.set_title(OTHER, id, "x"),
            hub.editor.archive(OTHER, id),
            hub.editor.trash(OTHER, id),
            hub.editor.purge(OTHER, id),
            hub.editor.fork(OTHER, id),
            hub.turns.submit(OTHER, id, "hi"),
            hub.turns.cancel(OTHER, id),
            hub.turns.open(OTHER, id),
            hub.editor.append(OTHER, id, UserMessage(content=as_content("x"))),
        ):
            with pytest.raises(NotFound) as raised:
                await request
            assert "secret" not in str(raised.value)
        with pytest.raises(NotFound):
            await anext(hub.history.follow(OTHER, id))
        with pytest.raises(NotFound):
            await anext(hub.exchange.export(OTHER, id))
        assert (await hub.sessions.list(OTHER)).sessions == []
        assert (await hub.sessions.search(OTHER, Query(text="secret"))).matches == []
        assert (await hub.sessions.search(OTHER, Query(text="secret"), ranked=True)).matches == []
        assert (await hub.sessions.get(LOCAL, id)).title == "secret plans"


async def test_title_can_be_set_and_cleared_but_not_empty(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        assert (await hub.editor.set_title(LOCAL, id, "  One  ")).title == "One"
        assert (await hub.editor.set_title(LOCAL, id, None)).title is None
        with pytest.raises(InvalidInput):
            await hub.editor.set_title(LOCAL, id, "  ")


async def test_edit_without_a_change_stores_no_event(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        session = await hub.editor.create(LOCAL, title="One", tag="t")
        for edited in (
            await hub.editor.set_title(LOCAL, session.id, "One"),
            await hub.editor.set_tag(LOCAL, session.id, "t"),
            await hub.editor.unarchive(LOCAL, session.id),
            await hub.editor.restore(LOCAL, session.id),
        ):
            assert edited == session


async def test_metadata_is_patched_by_key(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL, metadata={"a": "1", "b": "2"})).id
        session = await hub.editor.set_metadata(LOCAL, id, {"a": None, "c": "3"})
        assert session.metadata == {"b": "2", "c": "3"}


async def test_configuration_change_is_stored_as_an_event(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        change = ConfigChanged(mode="plan", options={"model": "m"}, roots=("/r",))
        session = await hub.editor.configure(LOCAL, id, change)
        assert (session.mode, session.options, session.roots) == ("plan", {"model": "m"}, ("/r",))
        assert (await hub.history.events(LOCAL, id))[-1].body == change


async def test_archive_hides_a_session_and_unarchive_shows_it(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        assert (await hub.editor.archive(LOCAL, id)).archived_at is not None
        assert (await hub.sessions.list(LOCAL)).sessions == []
        assert len((await hub.sessions.list(LOCAL, Query(archived="only"))).sessions) == 1
        assert (await hub.editor.unarchive(LOCAL, id)).archived_at is None
        assert len((await hub.sessions.list(LOCAL)).sessions) == 1


async def test_trashed_session_can_be_restored_but_not_a_purged_one(make_hub: MakeHub) -> None:
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


async def test_running_session_cannot_be_archived_or_deleted(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        await hub.editor.append(LOCAL, id, StatusChanged(status="running", turn="t"))
        for edit in (hub.editor.archive, hub.editor.trash, hub.editor.purge):
            with pytest.raises(Busy):
                await edit(LOCAL, id)
        assert (await hub.sessions.get(LOCAL, id)).state == "active"


async def test_directory_filter_compares_real_paths_and_returns_the_requested_path(
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
        for path in (str(link), str(real), f"{real}/../real"):
            listed = (await hub.sessions.list(LOCAL, Query(cwd=path))).sessions
            assert {session.id for session in listed} == {by_link.id, by_path.id}
            assert {session.cwd for session in listed} == {path}
        real.rmdir()
        assert len((await hub.sessions.list(LOCAL, Query(cwd=str(real)))).sessions) == 2


async def test_worktrees_of_a_repository_are_listed_together(
    make_hub: MakeHub, tmp_path: Path
) -> None:
    main, tree = tmp_path / "main", tmp_path / "tree"

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.invalid"]
        subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)

    git("init", str(main))
    git("-C", str(main), "commit", "--allow-empty", "-m", "first")
    git("-C", str(main), "worktree", "add", str(tree))
    async with make_hub() as hub:
        sessions = [
            await hub.editor.create(LOCAL, cwd=str(path)) for path in (main, tree, tmp_path)
        ]
        only_tree = await hub.sessions.list(LOCAL, Query(cwd=str(tree)))
        assert [session.id for session in only_tree.sessions] == [sessions[1].id]
        both = await hub.sessions.list(LOCAL, Query(cwd=str(tree), worktrees=True))
        assert {session.id for session in both.sessions} == {sessions[0].id, sessions[1].id}
        assert {session.cwd for session in both.sessions} == {str(main), str(tree)}


async def test_search_returns_a_snippet_with_the_matching_words_marked(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL, title="Parser")).id
        text = "lorem " * 60 + "the connection was Refused by the peer " + "ipsum " * 60
        await hub.editor.append(LOCAL, id, UserMessage(content=as_content(text)))
        (match,) = (await hub.sessions.search(LOCAL, Query(text="refused parser"))).matches
        assert match.session.id == id
        assert [match.snippet[mark.start : mark.stop] for mark in match.marks] == ["Refused"]
        (best,) = (
            await hub.sessions.search(LOCAL, Query(text='"was refused"'), ranked=True)
        ).matches
        assert best.score > 0
        with pytest.raises(InvalidInput):
            await hub.sessions.search(LOCAL, Query(text=" ?! "))


async def test_source_session_is_read_in_place_and_edited_in_the_source_or_the_overlay(
    make_hub: MakeHub,
) -> None:
    source = MemorySource(edits=["title"])
    async with make_hub(sources=[source]) as hub:
        id = ids.new_id()
        await source.create(id, [Created(cwd="/p"), UserMessage(content=as_content("find me"))])
        assert (await hub.sessions.get(LOCAL, id)).messages == 1
        assert len(await hub.history.events(LOCAL, id)) == 2
        assert [
            match.session.id
            for match in (await hub.sessions.search(LOCAL, Query(text="find"))).matches
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
        for request in (hub.turns.submit(LOCAL, id, "hi"), hub.editor.purge(LOCAL, id)):
            with pytest.raises(ReadOnly):
                await request
        fork = await hub.editor.fork(LOCAL, id)
        assert (fork.messages, fork.state) == (1, "active")
        assert await hub.turns.run(LOCAL, fork.id, "continue") == "end_turn"


async def test_overlay_is_applied_after_a_restart(make_hub: MakeHub) -> None:
    source = MemorySource()
    id = ids.new_id()
    await source.create(id, [Created(cwd="/p")])
    hub = make_hub(sources=[source])
    await hub.editor.set_tag(LOCAL, id, "kept")
    reopened_source = MemorySource()
    await reopened_source.create(id, [Created(cwd="/p")])
    reopened = Hub(hub.store, hub.data_dir, sources=[reopened_source])
    assert len((await reopened.sessions.list(LOCAL, Query(tag="kept"))).sessions) == 1
    await reopened.close()


async def test_agent_messages_are_counted(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        id = (await hub.editor.create(LOCAL)).id
        await hub.editor.append(LOCAL, id, AgentMessage(content=as_content("x")))
        assert (await hub.sessions.get(LOCAL, id)).messages == 1


async def test_create_does_not_block_on_a_fifo_at_git_head(
    make_hub: MakeHub, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    os.mkfifo(head := tmp_path / ".git" / "HEAD")
    # A reader that blocks on the FIFO gets this branch after two seconds, and the test fails.
    program = f"import time; time.sleep(2); open({str(head)!r}, 'w').write('ref: refs/heads/x')"
    writer = subprocess.Popen([sys.executable, "-c", program])
    try:
        session = await make_hub().editor.create(LOCAL, cwd=str(tmp_path))
    finally:
        writer.kill()
        writer.wait()
    assert session.git_branch is None


async def test_title_or_tag_that_is_too_long_is_refused_by_name(make_hub: MakeHub) -> None:
    async with make_hub() as hub:
        session = await hub.editor.create(LOCAL, title="x" * 1_000, tag="x" * 256)
        for edit in (
            hub.editor.set_title(LOCAL, session.id, "x" * 1_001),
            hub.editor.set_info(LOCAL, session.id, InfoChanged(title="x" * 1_001)),
            hub.editor.create(LOCAL, title="x" * 1_001),
            hub.editor.fork(LOCAL, session.id, title="x" * 1_001),
        ):
            with pytest.raises(InvalidInput, match="title: it has 1001 characters; at most 1000"):
                await edit
        with pytest.raises(InvalidInput, match="tag: it has 257 characters; at most 256"):
            await hub.editor.set_tag(LOCAL, session.id, "x" * 257)
