"""Contract: sessions of a source are found, listed, filtered and paged through."""

from __future__ import annotations

from typing import Literal

from segue.hub import Hub
from segue.model import ids
from segue.model.principal import Principal
from segue.model.query import Position, Query, position
from segue.sources.base import Source
from segue.testing.helpers import ids_of

from .harness import (
    CWD,
    Contract,
    ToolSessions,
    create_session,
    create_sessions,
    list_ids,
    minutes,
    reopened,
    require_definition,
    require_session,
)

ORDERS: tuple[Literal["active", "created"], ...] = ("active", "created")


class ListContract(Contract):
    """Lists, positions and change points."""

    async def test_session_has_the_facts_of_the_tool(
        self, source: Source, tool: ToolSessions
    ) -> None:
        id = await create_session(tool)
        await tool.add_turn(id, "another question", "another reply", at=minutes(5))
        session = await require_session(source, id)
        assert session.id == id == ids.parse(id)
        assert (session.source, session.workspace) == (source.name, source.workspace)
        assert (session.cwd, session.state, session.status) == (CWD, "active", "idle")
        assert session.messages == 4
        assert session.created_at == _microseconds(0)
        assert session.active_at == _microseconds(5)

    async def test_unknown_session_is_none(self, source: Source, tool: ToolSessions) -> None:
        await create_session(tool)
        assert await source.get(ids.new_id()) is None

    async def test_source_without_sessions_lists_nothing(self, source: Source) -> None:
        assert await list_ids(source) == []

    async def test_list_begins_with_the_newest_session(
        self, source: Source, tool: ToolSessions
    ) -> None:
        created = await create_sessions(tool, 4)
        assert await list_ids(source) == created[::-1]

    async def test_list_has_the_rows_that_get_returns(
        self, source: Source, tool: ToolSessions
    ) -> None:
        created = await create_sessions(tool, 3)
        await source.refresh()
        rows = await source.page(Query(descending=False))
        assert rows == [await source.get(id) for id in created]

    async def test_list_is_in_the_order_of_the_query(
        self, source: Source, tool: ToolSessions
    ) -> None:
        created = await create_sessions(tool, 3)
        await tool.add_turn(created[0], "more", "more", at=minutes(10))
        by_activity = [created[1], created[2], created[0]]
        assert await list_ids(source, descending=False) == by_activity
        assert await list_ids(source) == by_activity[::-1]
        assert await list_ids(source, order="created", descending=False) == created
        assert await list_ids(source, order="created") == created[::-1]

    async def test_sessions_of_the_same_time_are_in_the_order_of_their_ids(
        self, source: Source, tool: ToolSessions
    ) -> None:
        created = [await create_session(tool, f"question {number}") for number in range(4)]
        for order in ORDERS:
            assert await list_ids(source, order=order, descending=False) == sorted(created)
            assert await list_ids(source, order=order) == sorted(created, reverse=True)

    async def test_pages_continue_after_a_position(
        self, source: Source, tool: ToolSessions
    ) -> None:
        await create_sessions(tool, 5)
        await source.refresh()
        for order in ORDERS:
            for descending in (False, True):
                query = Query(order=order, descending=descending, limit=2)
                every = ids_of(await source.page(Query(order=order, descending=descending)))
                pages, after = [], None
                while rows := await source.page(query, after):
                    pages.append(ids_of(rows))
                    after = position(rows[-1], order)
                assert pages == [every[:2], every[2:4], every[4:]]

    async def test_backward_page_ends_before_a_position(
        self, source: Source, tool: ToolSessions
    ) -> None:
        await create_sessions(tool, 5)
        await source.refresh()
        for order in ORDERS:
            rows = await source.page(Query(order=order))
            before = position(rows[3], order)
            page = await source.page(Query(order=order, limit=2), before, backward=True)
            assert page == rows[1:3]

    async def test_page_continues_after_a_position_that_no_session_has(
        self, source: Source, tool: ToolSessions
    ) -> None:
        created = await create_sessions(tool, 3)
        await source.refresh()
        rows = await source.page(Query(), Position(_microseconds(1.5), ids.new_id()))
        assert ids_of(rows) == [created[1], created[0]]

    async def test_list_selects_a_directory(self, source: Source, tool: ToolSessions) -> None:
        inside = await create_session(tool)
        other = await tool.create("question", "reply", cwd="/work/other", at=minutes(1))
        assert await list_ids(source, directories=(CWD,)) == [inside]
        assert await list_ids(source, directories=(CWD, "/work/other")) == [other, inside]
        assert await list_ids(source, directories=("/work",)) == []

    async def test_list_selects_times_and_the_source(
        self, source: Source, tool: ToolSessions
    ) -> None:
        created = await create_sessions(tool, 3)
        assert await list_ids(source, created_gt=_microseconds(0)) == [created[2], created[1]]
        assert await list_ids(source, created_lte=_microseconds(1)) == [created[1], created[0]]
        assert await list_ids(source, active_after=_microseconds(1)) == [created[2]]
        assert await list_ids(source, active_before=_microseconds(1)) == [created[0]]
        assert await list_ids(source, source=source.name) == created[::-1]
        assert await list_ids(source, source="another-tool") == []
        assert await list_ids(source, statuses=("running",)) == []

    async def test_id_range_has_both_its_ends(self, source: Source, tool: ToolSessions) -> None:
        first, second, third = sorted(await create_sessions(tool, 3))
        assert ids_of(await source.in_id_range(first, second, 10)) == [first, second]
        assert ids_of(await source.in_id_range(first, third, 1)) == [first]
        assert await source.in_id_range(third, first, 10) == []

    async def test_changes_of_the_tool_are_listed_after_a_refresh(
        self, source: Source, tool: ToolSessions
    ) -> None:
        first, second = await create_sessions(tool, 2)
        assert await list_ids(source) == [second, first]
        third = await create_session(tool, minute=3)
        await tool.add_turn(first, "more", "more", at=minutes(4))
        assert await list_ids(source) == [first, third, second]
        assert (await require_session(source, first)).messages == 4

    async def test_session_that_the_tool_deleted_is_no_longer_listed(
        self, source: Source, tool: ToolSessions
    ) -> None:
        first, second = await create_sessions(tool, 2)
        assert await list_ids(source) == [second, first]
        await tool.delete(first)
        assert await list_ids(source) == [second]
        assert await source.get(first) is None

    async def test_reopened_source_lists_the_same_rows(
        self, source: Source, tool: ToolSessions
    ) -> None:
        await create_sessions(tool, 3)
        await source.refresh()
        rows = await source.page(Query())

        async def list_rows(reopened_source: Source) -> object:
            return await reopened_source.page(Query())

        assert await reopened(tool, list_rows) == rows

    async def test_sweep_returns_changed_sessions_in_the_order_of_their_ids(
        self, source: Source, tool: ToolSessions
    ) -> None:
        created = await create_sessions(tool, 4)
        await source.refresh()
        point = await source.change_point()
        assert await source.sweep(Query(), point, "") == []
        changed = sorted(created[1:])
        for id in created[1:]:
            await tool.add_turn(id, "more", "more", at=minutes(10))
        await create_session(tool, minute=11)  # new sessions are on the first page anyway
        await source.refresh()
        assert ids_of(await source.sweep(Query(), point, "")) == changed
        assert ids_of(await source.sweep(Query(limit=2), point, "")) == changed[:2]
        assert ids_of(await source.sweep(Query(), point, changed[0])) == changed[1:]
        assert await source.sweep(Query(), await source.change_point(), "") == []

    async def test_session_that_moves_while_a_client_pages_is_on_one_of_the_pages(
        self, source: Source, tool: ToolSessions, hub: Hub
    ) -> None:
        principal = Principal(workspace=source.workspace)
        created = await create_sessions(tool, 5)
        query = Query(limit=2)
        page = await hub.sessions.list(principal, query)
        seen = set(ids_of(page.sessions))
        await tool.add_turn(created[0], "more", "more", at=minutes(10))
        await source.refresh()
        while page.next is not None:
            page = await hub.sessions.list(principal, query, page.next)
            seen |= set(ids_of(page.sessions))
        assert seen == set(created)

    async def test_overlay_changes_rows_and_filters(
        self, source: Source, tool: ToolSessions
    ) -> None:
        first, second, third, fourth = await create_sessions(tool, 4)
        await source.refresh()
        title = (await require_session(source, first)).title
        await source.apply_overlay(
            {
                first: {"title": "Overlaid", "tag": "urgent"},
                second: {"archived_at": _microseconds(20)},
                third: {"deleted_at": _microseconds(20)},
            }
        )
        session = await require_session(source, first)
        assert (session.title, session.tag) == ("Overlaid", "urgent")
        assert await list_ids(source) == [fourth, first]
        assert await list_ids(source, tag="urgent") == [first]
        assert await list_ids(source, archived="only") == [second]
        assert await list_ids(source, trash=True) == [third]
        await source.apply_overlay({})
        session = await require_session(source, first)
        assert (session.title, session.tag) == (title, None)
        assert set(await list_ids(source)) == {first, second, third, fourth}

    async def test_overlay_of_an_unknown_session_is_ignored(
        self, source: Source, tool: ToolSessions
    ) -> None:
        id = await create_session(tool)
        await source.apply_overlay({ids.new_id(): {"title": "Nothing"}})
        assert await list_ids(source) == [id]

    async def test_definition_agrees_with_the_source(
        self, source: Source, tool: ToolSessions
    ) -> None:
        definition = require_definition(tool)
        assert (definition.name, definition.label) == (source.name, source.label)
        assert len(definition.symbol) == 1
        assert (definition.answer_setting is None) == (definition.agent is None)


def _microseconds(minute: float) -> int:
    """Return a time of the tests as the model has it."""
    return int(minutes(minute).timestamp() * 1_000_000)
