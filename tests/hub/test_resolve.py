"""Resolve an id, an id prefix or a title to one session."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from segue.hub import Hub
from segue.hub.sessions.resolve import MAX_LISTED_MATCHES, AmbiguousName
from segue.model import ids
from segue.model.errors import NotFound
from segue.model.event import Created, InfoChanged
from segue.model.principal import LOCAL, Principal
from segue.store.sqlite import SQLiteStore
from segue.testing.source import MemorySource

FIRST = "aaaa1111-0000-7000-8000-000000000001"
SECOND = "aaaa2222-0000-7000-8000-000000000002"
IN_SOURCE = "bbbb1111-0000-4000-8000-000000000003"


def with_hub(path: Path, test: Callable[[Hub], Awaitable[None]]) -> None:
    """Run a test with a hub that has two sessions in its store and one in a source."""

    async def main() -> None:
        source = MemorySource()
        store = SQLiteStore.open(path / "segue.db")
        async with Hub(store, path, sources=[source]) as hub:
            await hub.editor.create(LOCAL, id=FIRST, cwd="/", title="Fix the parser")
            await hub.editor.create(LOCAL, id=SECOND, cwd="/", title="Fix the Parser again")
            await source.create(IN_SOURCE, [Created(cwd="/"), InfoChanged(title="Über den Wolken")])
            await test(hub)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "id"),
    [
        (FIRST, FIRST),
        (FIRST.upper(), FIRST),
        (FIRST.replace("-", ""), FIRST),
        (ids.format_id("sesn", FIRST), FIRST),
        (ids.format_id("sesn", FIRST)[:22], FIRST),
        ("aaaa1", FIRST),
        ("AAAA2222-0", SECOND),
        ("bbbb", IN_SOURCE),
        ("fix  the PARSER", FIRST),
        ("parser again", SECOND),
        ("again", SECOND),
        ("parser ag", SECOND),
        ("über den", IN_SOURCE),
    ],
)
def test_name_that_matches_one_session_resolves_to_it(tmp_path: Path, name: str, id: str) -> None:
    async def test(hub: Hub) -> None:
        assert (await hub.sessions.resolve(LOCAL, name)).id == id

    with_hub(tmp_path, test)


@pytest.mark.parametrize("name", ["aaaa", "fix the", "parser"])
def test_ambiguous_name_lists_its_matches(tmp_path: Path, name: str) -> None:
    async def test(hub: Hub) -> None:
        with pytest.raises(AmbiguousName, match="matches 2 sessions") as raised:
            await hub.sessions.resolve(LOCAL, name)
        assert {session.id for session in raised.value.matches} == {FIRST, SECOND}

    with_hub(tmp_path, test)


@pytest.mark.parametrize(
    "name", ["aaa", "cccc", "arser", "", "?!", "-", '"', "sesn_01", "parse tree"]
)
def test_name_without_a_match_is_not_found(tmp_path: Path, name: str) -> None:
    async def test(hub: Hub) -> None:
        with pytest.raises(NotFound):
            await hub.sessions.resolve(LOCAL, name)

    with_hub(tmp_path, test)


def test_trashed_sessions_are_resolved_separately(tmp_path: Path) -> None:
    async def test(hub: Hub) -> None:
        await hub.editor.trash(LOCAL, SECOND)
        for name in ("aaaa", "fix the"):
            assert (await hub.sessions.resolve(LOCAL, name)).id == FIRST
            assert (await hub.sessions.resolve(LOCAL, name, trashed=True)).id == SECOND
        assert (await hub.sessions.resolve(LOCAL, SECOND)).id == SECOND
        with pytest.raises(NotFound, match="in the trash"):
            await hub.sessions.resolve(LOCAL, "aaaa1", trashed=True)

    with_hub(tmp_path, test)


def test_name_of_a_trashed_session_gets_an_error_that_names_restore(tmp_path: Path) -> None:
    async def test(hub: Hub) -> None:
        await hub.editor.trash(LOCAL, SECOND)
        title = (await hub.sessions.get(LOCAL, SECOND)).title
        assert title is not None
        for name in (SECOND[:-1], title):
            with pytest.raises(NotFound, match=f"is in the trash; run `segue restore {SECOND}`"):
                await hub.sessions.resolve(LOCAL, name)

    with_hub(tmp_path, test)


def test_archived_session_is_resolved(tmp_path: Path) -> None:
    async def test(hub: Hub) -> None:
        await hub.editor.archive(LOCAL, SECOND)
        assert (await hub.sessions.resolve(LOCAL, "again")).id == SECOND
        assert (await hub.sessions.resolve(LOCAL, "aaaa2")).id == SECOND

    with_hub(tmp_path, test)


def test_imported_copy_is_resolved_instead_of_the_source_session(tmp_path: Path) -> None:
    async def test(hub: Hub) -> None:
        await hub.editor.create(LOCAL, id=IN_SOURCE, cwd="/", title="The copy")
        assert (await hub.sessions.resolve(LOCAL, "bbbb")).title == "The copy"

    with_hub(tmp_path, test)


def test_session_of_another_workspace_is_not_resolved(tmp_path: Path) -> None:
    async def test(hub: Hub) -> None:
        other = Principal(workspace="other", local=True)
        for name in (FIRST, "aaaa1", "again", "bbbb"):
            with pytest.raises(NotFound):
                await hub.sessions.resolve(other, name)

    with_hub(tmp_path, test)


def test_ambiguous_name_lists_a_limited_number_of_matches(tmp_path: Path) -> None:
    async def test(hub: Hub) -> None:
        for _ in range(MAX_LISTED_MATCHES + 5):
            await hub.editor.create(LOCAL, cwd="/", title="Same")
        with pytest.raises(AmbiguousName) as raised:
            await hub.sessions.resolve(LOCAL, "same")
        assert len(raised.value.matches) == MAX_LISTED_MATCHES
        assert raised.value.omitted == 5

    with_hub(tmp_path, test)
