"""Page through Claude Code's sessions while their files change between the pages."""

from __future__ import annotations

import asyncio
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from segue.hub import Hub
from segue.model import clock, ids
from segue.model.content import as_content
from segue.model.event import Created, Draft, UserMessage
from segue.model.principal import LOCAL
from segue.model.query import Query, matches
from segue.model.session import Session
from segue.sources.claude.edit import trash
from segue.sources.claude.format.paths import ClaudeHome, ProjectDirectory, TranscriptFile
from segue.sources.claude.source import ClaudeSource
from segue.store.memory import MemoryStore
from tests.claude.entries import Home, as_line, user

BEGINNING = 1_767_225_600
LATER = clock.now() // clock.SECOND - BEGINNING + 3600  # than any index is made
times = st.integers(1, 4)  # few, so that many tie
rows = st.tuples(times, st.sampled_from(["/a", "/b"]), st.sampled_from([None, "t"]), st.booleans())
queries = st.builds(
    Query,
    limit=st.integers(1, 4),
    order=st.sampled_from(["active", "active", "created"]),
    descending=st.booleans(),
    tag=st.sampled_from([None, None, "t"]),
    directories=st.sampled_from([(), (), ("/a",), ("/a", "/b")]),
    text=st.sampled_from([None, None, "word"]),
)
KINDS = [
    "grow",
    "grow",
    "grow",
    "new",
    "name",
    "tag",
    "trash",
    "restore",
    "unlink",
    "copy",
    "renew",
]
steps = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 30), times), min_size=1, max_size=3
)


class World:
    """A home with a hub and a store, and what happened to every session."""

    def __init__(self, directory: str) -> None:
        self.home = Home(Path(directory) / "claude")
        self.claude = ClaudeHome(str(self.home.root))
        self.source = ClaudeSource(Path(directory) / "index", self.claude)
        self.hub = Hub(MemoryStore(), Path(directory), sources=[self.source])
        self.paths: dict[str, Path] = {}
        self.trashed: set[str] = set()
        self.touched: set[str] = set()

    async def make(self, at: int, cwd: str, tag: str | None, stored: bool = False) -> None:
        id = ids.new_id()
        if stored:
            drafts = [
                Draft(body=Created(cwd=cwd), at=at * 1_000_000),
                Draft(body=UserMessage(content=as_content("a word")), at=at * 1_000_000),
            ]
            await self.hub.store.create("local", id, drafts)
            return
        lines: list[Any] = [user("u1", None, "a word", cwd=cwd, timestamp=moment(at))]
        if tag is not None:
            lines.append({"type": "tag", "tag": tag, "sessionId": id})
        self.paths[id] = self.home.write(lines, id, f"-p{at % 2}")

    async def step(self, kind: str, which: int, at: int) -> None:
        there = sorted(self.paths.keys() - self.trashed)
        if kind == "new" or not there:
            await self.make(LATER + at, "/a", "t")
            return
        if kind == "renew":
            self.source.current_index.index.reset()
            self.touched |= self.paths.keys()  # a rebuilt index may list them again
            return
        if kind == "restore":
            for id in sorted(self.trashed)[:1]:
                trash.restore_session(self.claude, id)
                self.trashed.discard(id)
                self.touched.add(id)
            return
        id = there[which % len(there)]
        path = self.paths[id]
        self.touched.add(id)
        if kind == "trash":
            trash.move_to_trash(
                self.claude, TranscriptFile(id, str(path), ProjectDirectory(str(path.parent)))
            )
            self.trashed.add(id)
        elif kind == "unlink":
            path.unlink()
            del self.paths[id]
        elif kind == "copy":
            target = self.home.projects / "-moved" / path.name
            target.parent.mkdir(exist_ok=True)
            os.rename(path, target)
            self.paths[id] = target
        else:
            lines = {
                "grow": user("u2", "u1", "again", timestamp=moment(at + 2)),
                "name": {"type": "custom-title", "customTitle": f"T{at}", "sessionId": id},
                "tag": {"type": "tag", "tag": "t", "sessionId": id},
            }
            with path.open("ab") as file:
                file.write(as_line(lines[kind]))

    async def matching(self, query: Query) -> set[str]:
        """Return the matching sessions according to a second source with an empty index."""
        with tempfile.TemporaryDirectory(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")) as directory:
            fresh = ClaudeSource(Path(directory) / "index", self.claude)
            await fresh.refresh()
            every: list[Session] = await fresh.page(Query(limit=1000, archived="include"))
            await fresh.close()
        return {session.id for session in every if matches(query, session)}


def moment(at: int) -> str:
    return datetime.fromtimestamp(BEGINNING + at, UTC).isoformat()


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(rows, min_size=4, max_size=12), queries, st.lists(steps, min_size=2, max_size=6))
def test_session_that_exists_throughout_is_on_some_page(
    start: list[Any], query: Query, between: list[list[Any]]
) -> None:
    asyncio.run(_page_through(start, query, between))


async def _page_through(start: list[Any], query: Query, between: list[list[Any]]) -> None:
    with tempfile.TemporaryDirectory(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")) as directory:
        world = World(directory)
        async with world.hub:
            for row in start:
                await world.make(*row)
            throughout = await world.matching(query)
            seen: list[str] = []
            token: str | None = None
            for number in range(200):
                page = await world.hub.sessions.list(LOCAL, query, token)
                assert len(page.sessions) <= query.limit
                assert page.sessions or page.next is None, "an empty page must be the last"
                seen += [session.id for session in page.sessions]
                token = page.next
                if token is None:
                    break
                if number < len(between):
                    for step in between[number]:
                        await world.step(*step)
                    throughout &= await world.matching(query)
            else:
                pytest.fail("paging did not end")
            assert throughout <= set(seen)
            twice = {id for id in seen if seen.count(id) > 1}
            assert twice <= world.touched


@pytest.mark.parametrize("descending", [False, True])
async def test_session_created_after_its_index_was_deleted_is_new_to_lists(
    tmp_path: Path, descending: bool
) -> None:
    world = World(str(tmp_path))
    async with world.hub:
        for at in range(1, 5):
            await world.make(at, "/a", None)
        old = set(world.paths)
        query = Query(limit=3, descending=descending)
        first = await world.hub.sessions.list(LOCAL, query)
        os.unlink(tmp_path / "index")
        await world.make(LATER, "/a", None)
        (new,) = world.paths.keys() - old
        seen, token = [*first.sessions], first.next
        while token is not None:
            page = await world.hub.sessions.list(LOCAL, query, token)
            seen, token = [*seen, *page.sessions], page.next
        assert [session.id for session in seen].count(new) == (0 if descending else 1)


async def test_change_point_is_that_of_a_complete_index(tmp_path: Path) -> None:
    """Though it was thrown away a moment before: else the whole list would come a second time."""
    world = World(str(tmp_path))
    async with world.hub:
        await world.make(1, "/a", None)
        await world.source.refresh()
        os.unlink(tmp_path / "index")
        mark = await world.source.change_point()
        assert await world.source.sweep(Query(), mark, "") == []
