"""Codex shows what segue changes in its threads, and segue follows Codex while it works."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from segue.model.errors import Busy, Conflict
from segue.model.event import AgentMessage
from segue.model.principal import LOCAL
from segue.model.query import Query

from .codex import VERSIONS, Codex
from .following import LONG_TURN, PROMPT, Follower, check_followed, open_hub, witness
from .programs import Home
from .scripted_model import running_model, script

pytestmark = pytest.mark.full


@pytest.fixture(params=VERSIONS)
def codex(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Codex]:
    with running_model() as model:
        codex = Codex(request.param, Home(tmp_path), model)
        with codex.home.as_environment():
            yield codex


async def test_codex_shows_names_that_segue_gives(codex: Codex, tmp_path: Path) -> None:
    thread = codex.prompt("A thread", {"say": "Hello."})
    other = codex.prompt("Another thread", {"say": "Hello."})
    async with open_hub(codex.reader(), tmp_path) as (hub, _):
        for name in ("A first name", "A «second» name\u2028with 日本 and 🐚"):
            session = await hub.editor.set_title(LOCAL, thread, name)
            assert session.title == name
            assert shown_name(codex, thread) == name
        await hub.editor.archive(LOCAL, thread)
        session = await hub.editor.set_title(LOCAL, thread, "A name in the archive")
        assert (session.title, session.state) == ("A name in the archive", "archived")
        assert shown_name(codex, thread) == "A name in the archive"
    threads = codex.threads()
    assert threads[thread].archived and threads[other].name is None


def shown_name(codex: Codex, thread: str) -> str | None:
    """Return the name that Codex shows; 0.101 lists no names, and reads them from this file."""
    if codex.has_database:
        return codex.threads()[thread].name
    return codex.names_in_file()[thread]


async def test_codex_shows_the_archive_of_segue(codex: Codex, tmp_path: Path) -> None:
    thread = codex.prompt("A thread", {"say": "Hello."})
    async with open_hub(codex.reader(), tmp_path) as (hub, _):
        assert (await hub.editor.archive(LOCAL, thread)).state == "archived"
        assert codex.threads()[thread].archived
        assert (await hub.editor.unarchive(LOCAL, thread)).state == "active"
        assert not codex.threads()[thread].archived
    codex.resume(thread, "Again", {"say": "Hello again."})


async def test_trashed_thread_leaves_codex_until_it_is_restored(
    codex: Codex, tmp_path: Path
) -> None:
    thread = codex.prompt("A thread", {"say": "Hello."})
    other = codex.prompt("Another thread", {"say": "Hello."})
    async with open_hub(codex.reader(), tmp_path) as (hub, source):
        before = await hub.sessions.get(LOCAL, thread)
        await hub.editor.trash(LOCAL, thread)
        assert codex.threads().keys() == {other}
        assert [row.id for row in await source.page(Query(trash=True))] == [thread]
        assert (await hub.editor.restore(LOCAL, thread)) == before
        assert codex.threads().keys() == {thread, other}
        codex.resume(thread, "Again", {"say": "Hello again."})
        await hub.editor.trash(LOCAL, thread)
        await hub.editor.purge(LOCAL, thread)
        assert codex.threads().keys() == {other}
        assert await source.get(thread) is None
    assert not list(codex.directory.rglob(f"rollout-*{thread}*"))


async def test_codex_continues_a_fork_of_segue(codex: Codex, tmp_path: Path) -> None:
    thread = codex.prompt(
        "First prompt", {"calls": [["shell", {"command": "echo ok"}]]}, {"say": "First answer."}
    )
    codex.resume(thread, "Second prompt", {"say": "Second answer."})
    async with open_hub(codex.reader(), tmp_path) as (hub, source):
        await source.refresh()
        events = await source.events(thread)
        answer = next(event for event in events if isinstance(event.body, AgentMessage))
        fork = await hub.editor.fork(LOCAL, thread, at=answer.seq, title="A fork of segue")
        assert fork.fork is not None and fork.fork.session == thread
        shown = codex.threads()[fork.id]
        assert shown.preview.startswith("First prompt")
        assert shown_name(codex, fork.id) == "A fork of segue"
        codex.resume(fork.id, "Third prompt", {"say": "Third answer."})
        texts = "\n".join(codex.model.requests[-1].texts)
        assert "First prompt" in texts and "First answer." in texts and "Second" not in texts
        session = await hub.sessions.get(LOCAL, fork.id)
        assert session.messages == 4 and session.usage.output_tokens == 11
        whole = await hub.editor.fork(LOCAL, fork.id)
        codex.resume(whole.id, "Fourth prompt", {"say": "Fourth answer."})
        texts = "\n".join(codex.model.requests[-1].texts)
        assert "First answer." in texts and "Third answer." in texts
        assert (await hub.sessions.get(LOCAL, whole.id)).usage.output_tokens == 11


async def test_thread_that_a_fork_needs_is_not_deleted(codex: Codex, tmp_path: Path) -> None:
    thread = codex.prompt("A thread", {"say": "Hello."})
    fork = codex.call("thread/fork", threadId=thread)["thread"]["id"]
    codex.resume(fork, "In the fork", {"say": "Hello."})
    async with open_hub(codex.reader(), tmp_path) as (hub, _):
        if "history_base" not in codex.first_line(fork):
            await hub.editor.trash(LOCAL, thread)
            codex.resume(fork, "In the fork again", {"say": "Hello."})
            return
        with pytest.raises(Conflict, match=fork):
            await hub.editor.trash(LOCAL, thread)
        await hub.editor.trash(LOCAL, fork)
        await hub.editor.trash(LOCAL, thread)
        assert codex.threads() == {}


async def test_running_thread_is_neither_archived_nor_trashed(codex: Codex, tmp_path: Path) -> None:
    codex.prompt("An older thread", {"say": "Hello."})
    prompt = script("A thread", {"say": "This answer does not end", "hang": True})
    async with open_hub(codex.reader(), tmp_path) as (hub, _):
        with codex.running(prompt) as (thread, _):
            session = await hub.sessions.get(LOCAL, thread)
            assert session.status == "running"
            for edit in (hub.editor.archive, hub.editor.trash):
                with pytest.raises(Busy):
                    await edit(LOCAL, thread)


async def test_messages_are_followed_while_codex_works(codex: Codex, tmp_path: Path) -> None:
    older = codex.prompt("An older thread", {"say": "Hello."})
    async with open_hub(codex.reader(), tmp_path) as (hub, source):
        follower = Follower(hub, {older})
        await follower.wait_until_watching()
        with witness(source.session_paths()) as observer:
            thread = await asyncio.to_thread(codex.prompt, PROMPT, *LONG_TURN)
        received = await follower.stop()
        assert follower.session == thread
        conversation = [event async for event in source.conversation(thread)]
    check_followed(received, conversation, observer.seen)
