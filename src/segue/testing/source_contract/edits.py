"""Contract: sessions of a source are edited, in the tool's files if its format allows it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from segue.hub import Hub
from segue.model import ids
from segue.model.errors import NotFound
from segue.model.event import InfoChanged
from segue.model.principal import Principal
from segue.sources.base import Edit, Source
from segue.testing.helpers import message_texts

from .harness import (
    Contract,
    ToolSessions,
    create_session,
    create_sessions,
    list_ids,
    minutes,
    reopened,
    require_session,
)
from .history import create_long_session, read_all


class EditContract(Contract):
    """Edits that the source supports, which are in `edits`, and those of the overlay."""

    async def test_session_is_renamed(self, source: Source, tool: ToolSessions) -> None:
        require_edit(source, "title")
        id, other = await create_sessions(tool, 2)
        unchanged = await require_session(source, other)
        await source.change(id, InfoChanged(title="A new title"))
        assert await field_of(source, id, "title") == "A new title"
        assert (
            await reopened(tool, lambda reopened_source: field_of(reopened_source, id, "title"))
            == "A new title"
        )
        assert await source.get(other) == unchanged
        assert await list_ids(source, text="new title") == [id]

    async def test_session_is_tagged(self, source: Source, tool: ToolSessions) -> None:
        require_edit(source, "tag")
        id, _ = await create_sessions(tool, 2)
        await source.change(id, InfoChanged(tag="urgent"))
        assert await list_ids(source, tag="urgent") == [id]
        assert (
            await reopened(tool, lambda reopened_source: field_of(reopened_source, id, "tag"))
            == "urgent"
        )
        await source.change(id, InfoChanged(tag=None))
        assert await list_ids(source, tag="urgent") == []
        assert await field_of(source, id, "tag") is None

    async def test_session_is_archived_and_returned(
        self, source: Source, tool: ToolSessions
    ) -> None:
        require_edit(source, "archive")
        id, other = await create_sessions(tool, 2)
        await source.change(id, InfoChanged(archived=True))
        assert await list_ids(source) == [other]
        assert await list_ids(source, archived="only") == [id]
        assert (
            await reopened(tool, lambda reopened_source: field_of(reopened_source, id, "state"))
            == "archived"
        )
        await source.change(id, InfoChanged(archived=False))
        assert await list_ids(source) == [other, id]

    async def test_session_is_moved_to_the_trash_and_back(
        self, source: Source, tool: ToolSessions
    ) -> None:
        require_edit(source, "trash")
        id, other = await create_sessions(tool, 2)
        await source.change(id, InfoChanged(deleted=True))
        assert await list_ids(source) == [other]
        assert await list_ids(source, trash=True) == [id]
        assert (
            await reopened(tool, lambda reopened_source: field_of(reopened_source, id, "state"))
            == "trashed"
        )
        assert message_texts(await source.events(id)) == ["question 0", "reply 0"]
        await source.change(id, InfoChanged(deleted=False))
        assert await list_ids(source) == [other, id]

    async def test_edit_does_not_change_the_messages(
        self, source: Source, tool: ToolSessions
    ) -> None:
        require_edit(source, "title")
        id = await create_session(tool)
        before = await require_session(source, id)
        messages = message_texts(await source.events(id))
        await source.change(id, InfoChanged(title="A new title"))
        assert message_texts(await source.events(id)) == messages
        after = await require_session(source, id)
        assert (after.messages, after.active_at) == (before.messages, before.active_at)
        await tool.add_turn(id, "another question", "another reply", at=minutes(5))
        assert await field_of(source, id, "messages") == 4
        assert await field_of(source, id, "title") == "A new title"

    async def test_session_is_deleted(self, source: Source, tool: ToolSessions) -> None:
        require_edit(source, "delete")
        id, other = await create_sessions(tool, 2)
        await source.delete(id)
        assert await source.get(id) is None
        assert await list_ids(source) == [other]
        assert await reopened(tool, lambda reopened_source: list_ids(reopened_source)) == [other]

    async def test_session_is_forked_at_an_event(self, source: Source, tool: ToolSessions) -> None:
        require_edit(source, "fork")
        id = await create_long_session(tool)
        await source.get(id)
        original = await source.events(id)
        answer = next(event for event in original if message_texts([event]) == ["four"])
        new_id = ids.new_id()
        fork = await source.fork(id, new_id, at=answer.seq, cwd=None, title="A fork")
        assert fork.id in (new_id, ids.derived_id(new_id))
        assert (fork.title, fork.cwd) == ("A fork", await field_of(source, id, "cwd"))
        conversation = await read_all(source.conversation(fork.id))
        assert message_texts(conversation) == ["one", "two", "three", "four"]
        assert await source.events(id) == original
        complete_fork = await source.fork(id, ids.new_id(), at=None, cwd=None, title=None)
        conversation = await read_all(source.conversation(complete_fork.id))
        assert message_texts(conversation) == ["one", "two", "three", "four", "five", "six"]

    async def test_unknown_session_cannot_be_edited(
        self, source: Source, tool: ToolSessions
    ) -> None:
        await create_session(tool)
        calls = list[Awaitable[object]]()
        if "title" in source.edits:
            calls.append(source.change(ids.new_id(), InfoChanged(title="x")))
        if "delete" in source.edits:
            calls.append(source.delete(ids.new_id()))
        if "fork" in source.edits:
            calls.append(source.fork(ids.new_id(), ids.new_id(), at=None, cwd=None, title=None))
        for call in calls:
            with pytest.raises(NotFound):
                await call

    async def test_hub_edits_sessions_of_every_source(
        self, source: Source, tool: ToolSessions, hub: Hub
    ) -> None:
        """Edits that the tool's files cannot hold are in the overlay; both are shown alike."""
        principal = Principal(workspace=source.workspace)
        first, second, third = await create_sessions(tool, 3)
        await hub.editor.set_title(principal, first, "A new title")
        await hub.editor.set_tag(principal, first, "urgent")
        await hub.editor.archive(principal, second)
        await hub.editor.trash(principal, third)
        session = await hub.sessions.get(principal, first)
        assert (session.title, session.tag) == ("A new title", "urgent")
        assert await list_ids(source) == [first]
        assert await list_ids(source, archived="only") == [second]
        assert await list_ids(source, trash=True) == [third]
        await hub.editor.unarchive(principal, second)
        await hub.editor.restore(principal, third)
        assert await list_ids(source) == [third, second, first]


def require_edit(source: Source, edit: Edit) -> None:
    """Skip the test if the source does not support an edit."""
    if edit not in source.edits:
        pytest.skip(f"the tool's format has no {edit}")


async def field_of(source: Source, id: str, name: str) -> Any:
    """Return a field of a session."""
    return getattr(await require_session(source, id), name)
