"""Contract: a damaged session does no harm, and reads never change the tool's files."""

from __future__ import annotations

from contextlib import suppress

import pytest

from segue.hub import Hub
from segue.model import ids, search_text
from segue.model.errors import SegueError
from segue.model.principal import Principal
from segue.model.query import Query
from segue.sources.base import Examined, Source
from segue.testing.helpers import ids_of, message_texts

from .harness import (
    Contract,
    ToolSessions,
    create_sessions,
    list_ids,
    minutes,
    reopened,
    require_session,
)
from .history import read_all


class ResilienceContract(Contract):
    """Damaged sessions, and files that belong to the tool."""

    async def test_damaged_session_does_not_hide_the_others(
        self, source: Source, tool: ToolSessions
    ) -> None:
        first, damaged, third = await create_sessions(tool, 3)
        await tool.damage(damaged)
        assert [id for id in await list_ids(source) if id != damaged] == [third, first]
        assert await list_ids(source, text="question 2") == [third]
        assert message_texts(await source.events(first)) == ["question 0", "reply 0"]

    async def test_session_that_is_damaged_later_does_not_hide_the_others(
        self, source: Source, tool: ToolSessions
    ) -> None:
        first, damaged, third = await create_sessions(tool, 3)
        assert await list_ids(source) == [third, damaged, first]
        await tool.damage(damaged)
        assert [id for id in await list_ids(source) if id != damaged] == [third, first]
        await tool.add_turn(first, "more", "more", at=minutes(10))
        assert [id for id in await list_ids(source) if id != damaged] == [first, third]

    async def test_damaged_session_is_read_or_refused(
        self, source: Source, tool: ToolSessions
    ) -> None:
        """No read raises anything but an error of segue, which interfaces can show."""
        (damaged,) = await create_sessions(tool, 1)
        await tool.damage(damaged)
        await source.refresh()
        for call in (
            source.get(damaged),
            source.events(damaged),
            read_all(source.conversation(damaged)),
            source.threads(damaged),
            source.ranked(Query(text="question")),
        ):
            with suppress(SegueError):
                await call

    async def test_directory_that_cannot_be_read_keeps_its_sessions(
        self, source: Source, tool: ToolSessions
    ) -> None:
        (id,) = await create_sessions(tool, 1)
        directory = tool.listed_directory(id)
        if directory is None:
            pytest.skip("the source does not look for sessions in directories")
        assert await list_ids(source) == [id]
        directory.rename(directory.with_name("moved"))
        directory.symlink_to(directory)  # no path leads through a link to itself
        assert await list_ids(source) == [id]
        assert isinstance(source, Examined)
        (reason,) = {problem.reason for problem in (await source.examine()).problems}
        assert "symbolic links" in reason
        directory.unlink()
        assert await list_ids(source) == []

    async def test_reads_do_not_change_the_tools_files(
        self, source: Source, tool: ToolSessions, hub: Hub
    ) -> None:
        created = await create_sessions(tool, 3)
        before = tool.snapshot()
        await read_everything(source, hub, created[0])
        assert tool.snapshot() == before
        await reopened(tool, lambda reopened_source: list_ids(reopened_source))
        assert tool.snapshot() == before

    async def test_overlay_does_not_change_the_tools_files(
        self, source: Source, tool: ToolSessions
    ) -> None:
        (id,) = await create_sessions(tool, 1)
        before = tool.snapshot()
        await source.refresh()
        await source.apply_overlay({id: {"title": "Overlaid", "deleted_at": 1}})
        assert await list_ids(source, trash=True) == [id]
        assert tool.snapshot() == before

    async def test_import_does_not_change_the_tools_files(
        self, source: Source, tool: ToolSessions, hub: Hub
    ) -> None:
        (id,) = await create_sessions(tool, 1)
        principal = Principal(workspace=source.workspace)
        before = tool.snapshot()
        if source.transcripts is not None:
            await hub.sync.import_from_source(principal, await require_session(source, id))
            await hub.sync.ensure_current(principal, id)
        assert tool.snapshot() == before


async def read_everything(source: Source, hub: Hub, id: str) -> None:
    """Call every method that reads."""
    principal = Principal(workspace=source.workspace)
    await source.refresh()
    session = await require_session(source, id)
    point = await source.change_point()
    terms = search_text.terms("question")
    assert await source.page(Query())
    assert await source.page(Query(text="question"))
    await source.sweep(Query(), point, "")
    await source.in_id_range(id, id + "0", 10)
    events = await source.events(id)
    await read_all(source.conversation(id))
    await source.threads(id)
    await source.locate(id, events[0].id)
    await source.locate(id, ids.new_id())
    await source.newest_matches([session], terms)
    await source.occurrences(id, terms, None, 10)
    await source.ranked(Query(text="question"))
    assert id in ids_of((await hub.sessions.list(principal)).sessions)
    source.watch(lambda _: None)()
