"""A search shows a text that a fork has from its parent once; documents show where it ends."""

from pathlib import Path

import pytest

import segue
from segue.hub import Hub
from segue.model.content import as_content
from segue.model.event import AgentMessage, UserMessage
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.render import documents
from tests.sources.writing.tool_sessions import use_homes


def prompt(text: str) -> UserMessage:
    return UserMessage(content=as_content(text))


def answer(text: str) -> AgentMessage:
    return AgentMessage(content=as_content(text))


async def found(
    hub: Hub, text: str, *, ranked: bool = False, **filters: str
) -> dict[str, set[str]]:
    """Return the sessions that a search finds, each with its copies."""
    page = await hub.sessions.search(LOCAL, Query(text=text, **filters), ranked=ranked)  # type: ignore[arg-type]
    return {match.session.id: {copy.id for copy in match.copies} for match in page.matches}


@pytest.mark.parametrize("ranked", [False, True])
async def test_text_that_a_fork_copied_is_found_once(tmp_path: Path, ranked: bool) -> None:
    async with await segue.open_hub(tmp_path, sources="none") as hub:
        parent = await hub.editor.create(LOCAL, cwd="/p")
        await hub.editor.append(LOCAL, parent.id, prompt("a quince"), answer("yes"))
        fork = await hub.editor.fork(LOCAL, parent.id)
        again = await hub.editor.fork(LOCAL, fork.id)
        await hub.editor.append(LOCAL, again.id, prompt("and a medlar"))
        assert await found(hub, "quince", ranked=ranked) == {parent.id: {fork.id, again.id}}
        assert await found(hub, "medlar", ranked=ranked) == {again.id: set()}
        # A fork that says it again, or whose parent is no result, is a result itself.
        await hub.editor.append(LOCAL, fork.id, prompt("quince once more"))
        assert await found(hub, "quince", ranked=ranked) == {parent.id: set(), fork.id: {again.id}}
        await hub.editor.trash(LOCAL, parent.id)
        assert await found(hub, "quince", ranked=ranked) == {fork.id: {again.id}}


async def test_text_of_a_session_that_continues_in_another_tool_is_found_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_homes(monkeypatch, tmp_path)
    async with await segue.open_hub(tmp_path / "store", lasting=True) as hub:
        parent = await hub.editor.create(LOCAL, cwd=str(tmp_path))
        await hub.editor.append(LOCAL, parent.id, prompt("a quince"), answer("yes"))
        new, _, _ = await hub.continuing.continue_in(LOCAL, parent.id, "codex")
        native, _, _ = await hub.continuing.continue_in(LOCAL, new.id, "codex")
        assert await found(hub, "quince") == {parent.id: {new.id, native.id}}
        assert await found(hub, "quince", source="codex") == {new.id: {native.id}}


async def test_document_of_a_fork_shows_where_its_own_part_begins(tmp_path: Path) -> None:
    async with await segue.open_hub(tmp_path, sources="none") as hub:
        parent = await hub.editor.create(LOCAL, cwd="/p")
        await hub.editor.append(LOCAL, parent.id, prompt("first"), answer("second"))
        fork = await hub.editor.fork(LOCAL, parent.id)
        await hub.editor.append(LOCAL, fork.id, prompt("third"))
        text = await document(hub, fork.id)
        mark = "*Continued from here; everything above is from the original session.*"
        assert text.count(mark) == 1
        assert text.index("second") < text.index(mark) < text.index("third")
        assert mark not in await document(hub, parent.id)


async def document(hub: Hub, id: str) -> str:
    session = await hub.sessions.get(LOCAL, id)
    return "".join([part async for part in documents.markdown(hub.history, LOCAL, session)])
