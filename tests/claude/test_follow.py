"""Followers and watchers of Claude Code's sessions receive what it writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from segue.hub import Hub
from segue.model.content import plain_text
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.sources.claude.index import discovery
from segue.sources.index import watch
from tests.claude.entries import S2, Home, S, as_line, assistant, title, user
from tests.claude.helpers import append, claude_hub, list_ids


async def following(hub: Hub, id: str) -> tuple[AsyncIterator[Any], Callable[[], Any]]:
    last = (await hub.sessions.get(LOCAL, id)).last_seq
    follower = hub.history.follow(LOCAL, id, last)

    async def following_one() -> Any:
        async with asyncio.timeout(20):
            return await anext(follower)

    return follower, following_one


@pytest.mark.parametrize("notified", [True, False])
async def test_follower_receives_what_claude_code_writes(
    home: Home, monkeypatch: pytest.MonkeyPatch, notified: bool
) -> None:
    if not notified:
        monkeypatch.setattr(watch.importlib.util, "find_spec", lambda _: None)
        monkeypatch.setattr(watch, "POLL_SECONDS", 0.05)
    path = home.write_conversation()
    async with claude_hub(home) as (hub, _):
        follower, one = await following(hub, S)
        waiting = asyncio.ensure_future(one())
        await asyncio.sleep(0.1)
        line = as_line(user("u2", "a1", "more"))
        with path.open("ab") as file:
            file.write(line[:30])
        await asyncio.sleep(0.1)
        assert not waiting.done()
        with path.open("ab") as file:
            file.write(line[30:])
        event = await waiting
        assert plain_text(event.body.content) == "more"
        append(path, assistant("a2", "u2"), user("u3", "a2"))
        assert plain_text((await one()).body.content) == "a2"
        assert plain_text((await one()).body.content) == "u3"
        await follower.aclose()  # type: ignore[attr-defined]


async def test_watched_home_is_not_compared_for_every_list(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home.write_conversation()
    comparisons: list[object] = []
    differences = discovery.find_differences
    monkeypatch.setattr(
        discovery, "find_differences", lambda *args: comparisons.append(args) or differences(*args)
    )
    async with claude_hub(home) as (hub, source):
        await list_ids(hub)
        changes = hub.history.changes(LOCAL)
        waiting = asyncio.ensure_future(anext(changes))
        while not source.current_index.watched:
            await asyncio.sleep(0.01)
        await list_ids(hub)
        comparisons.clear()
        for _ in range(3):
            assert await list_ids(hub) == [S]
        assert comparisons == []
        append(path, title("changed"))
        await waiting
        assert [one.title for one in (await hub.sessions.list(LOCAL, Query())).sessions] == [
            "changed"
        ]
        monkeypatch.setattr("segue.sources.index.current_index._WATCH_TRUST_SECONDS", 0)
        await list_ids(hub)
        assert comparisons
        await changes.aclose()  # type: ignore[attr-defined]
    assert not source.current_index.watched


async def test_watcher_is_notified_of_new_and_deleted_sessions(home: Home) -> None:
    home.write_conversation()
    async with claude_hub(home) as (hub, _):
        await list_ids(hub)
        changes = hub.history.changes(LOCAL)
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0.2)
        path = home.write_conversation(S2)
        async with asyncio.timeout(20):
            assert (await waiting).session == S2
            path.unlink()
            assert (await anext(changes)).session == S2
        await changes.aclose()  # type: ignore[attr-defined]
