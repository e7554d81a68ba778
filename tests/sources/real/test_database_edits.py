"""Programs that keep sessions in a database show what segue changes: it asks them to do it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from segue.hub import Hub
from segue.model.content import plain_text
from segue.model.errors import ReadOnly
from segue.model.event import AgentMessage
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.model.session import Session
from segue.sources.kit.source import KitSource
from segue.testing.helpers import message_texts

from .following import open_hub
from .programs import Home
from .scripted_model import running_model
from .tools import Goose, Opencode, Tool

pytestmark = pytest.mark.full

VERSIONS = [
    pytest.param((tool, version), id=f"{tool.name}-{version}")
    for tool in (Opencode, Goose)
    for version in tool.versions
]


@pytest.fixture(params=VERSIONS)
def tool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tool]:
    type, version = request.param
    home = Home(tmp_path)
    with running_model() as model:
        tool = type(version, home, model)
        with home.as_environment():
            yield tool


async def only_session(source: KitSource) -> Session:
    await source.refresh()
    (session,) = await source.page(Query())
    return session


async def texts(source: KitSource, id: str) -> list[str]:
    return message_texts([event async for event in source.conversation(id)])


async def test_program_shows_names_and_archive_of_segue(tool: Tool, tmp_path: Path) -> None:
    tool.prompt("A first session", {"say": "Hello."})
    async with open_hub(tool.reader(), tmp_path) as (hub, source):
        session = await only_session(source)
        native_id = session.native_id or ""
        renamed = await hub.editor.set_title(LOCAL, session.id, "A «name» of 日本 and 🐚")
        assert renamed.title == "A «name» of 日本 and 🐚"
        assert "A «name» of 日本 and 🐚" in tool.shown()
        assert (await hub.editor.archive(LOCAL, session.id)).state == "archived"
        assert tool.is_archived(native_id)
        assert (await hub.editor.unarchive(LOCAL, session.id)).state == "active"
        assert not tool.is_archived(native_id)
    async with open_hub(tool.reader(), tmp_path / "other") as (_, source):
        assert (await only_session(source)).title == "A «name» of 日本 and 🐚"


async def test_trashed_session_leaves_the_program_until_it_is_restored(
    tool: Tool, tmp_path: Path
) -> None:
    tool.prompt(
        "A first session", {"calls": [["shell", {"command": "echo ok"}]]}, {"say": "Hello."}
    )
    async with open_hub(tool.reader(), tmp_path) as (hub, source):
        session = await only_session(source)
        native_id = session.native_id or ""
        history = await texts(source, session.id)
        await hub.editor.trash(LOCAL, session.id)
        assert native_id not in tool.shown()
        assert await source.page(Query()) == []
        (trashed,) = await source.page(Query(trash=True))
        assert (trashed.id, trashed.title) == (session.id, session.title)
        assert trashed.usage == session.usage and trashed.state == "trashed"
        assert await texts(source, session.id) == history
        restored = await hub.editor.restore(LOCAL, session.id)
        assert restored.state == "active" and (restored.native_id or "") in tool.shown()
        assert (restored.title, restored.cwd) == (session.title, session.cwd)
        assert restored.usage.tokens == session.usage.tokens
        assert await texts(source, restored.id) == history
        assert await source.page(Query(trash=True)) == []
        tool.resume(restored.native_id or "", "A second prompt", {"say": "Hello again."})
        assert (await texts(source, restored.id))[-1] == "Hello again."
        await hub.editor.trash(LOCAL, restored.id)
        await hub.editor.purge(LOCAL, restored.id)
        assert await source.page(Query(trash=True)) == []
        assert (restored.native_id or "") not in tool.shown()


async def test_program_continues_a_fork_of_segue(tool: Tool, tmp_path: Path) -> None:
    tool.prompt(
        "First prompt", {"calls": [["shell", {"command": "echo ok"}]]}, {"say": "First answer."}
    )
    async with open_hub(tool.reader(), tmp_path) as (hub, source):
        session = await only_session(source)
        tool.resume(session.native_id or "", "Second prompt", {"say": "Second answer."})
        session = await only_session(source)
        events = await source.events(session.id)
        answer = next(event for event in events if is_answer(event.body, "First answer."))
        fork = await hub.editor.fork(LOCAL, session.id, at=answer.seq, title="A fork of segue")
        assert fork.fork is not None and fork.fork.session == session.id
        assert fork.title == "A fork of segue" and "A fork of segue" in tool.shown()
        assert (await texts(source, fork.id))[-1] == "First answer."
        assert fork.usage.tokens == 0
        tool.resume(fork.native_id or "", "Third prompt", {"say": "Third answer."})
        sent = "\n".join(tool.model.requests[-1].texts)
        assert "First prompt" in sent and "First answer." in sent and "Second" not in sent
        assert (await texts(source, fork.id))[-1] == "Third answer."
        whole = await hub.editor.fork(LOCAL, session.id)
        assert await texts(source, whole.id) == await texts(source, session.id)
        assert await source.get(session.id) == session


async def test_edits_without_the_program(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool.prompt("A first session", {"say": "Hello."})
    tool.prompt("A second session", {"say": "Hello."})
    async with open_hub(tool.reader(), tmp_path) as (hub, source):
        await source.refresh()
        first, second = await source.page(Query())
        await hub.editor.trash(LOCAL, first.id)
        with monkeypatch.context() as patch:
            patch.setenv("PATH", "/usr/bin:/bin")
            with pytest.raises(ReadOnly, match=f"needs the program `{tool.name}`"):
                await hub.editor.restore(LOCAL, first.id)
            await trash_in_overlay(hub, source, second)
            with pytest.raises(ReadOnly, match=f"needs the program `{tool.name}`"):
                await hub.editor.purge(LOCAL, second.id)
            await hub.editor.restore(LOCAL, second.id)
            await hub.editor.purge(LOCAL, first.id)
        assert [row.id for row in await source.page(Query())] == [second.id]
        assert await source.page(Query(trash=True)) == []


async def trash_in_overlay(hub: Hub, source: KitSource, session: Session) -> None:
    """Move a session to segue's trash, and check that its tool still has it."""
    assert (await hub.editor.trash(LOCAL, session.id)).state == "trashed"
    assert session.native_id in [ref.native_id for ref in source.reader.discover(print)]


def is_answer(body: object, text: str) -> bool:
    return isinstance(body, AgentMessage) and plain_text(body.content) == text
