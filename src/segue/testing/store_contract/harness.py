"""How the tests are run, and the few words that they are written in.

A test is a coroutine that is given a store. No pytest plugin is needed: each coroutine is wrapped
in a plain function that opens the store, runs it in an event loop of its own and closes the store.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import pytest

from segue.model import ids, projection
from segue.model.clock import LATEST, SECOND
from segue.model.content import as_content
from segue.model.event import (
    AgentMessage,
    AnyBody,
    Created,
    Draft,
    Drafts,
    Event,
    InfoChanged,
    StatusChanged,
    UserMessage,
)
from segue.model.lifecycle import Status
from segue.model.query import Query
from segue.model.session import Session
from segue.store.base import Store

OpenStore = Callable[[], Awaitable[Store]]

HERE = "here"  # the workspace of most tests
THERE = "there"  # another one
NOON = 1_700_000_000 * SECOND  # times are given as seconds from here
MINUTE = 60 * SECOND  # how long a lease lasts that must not expire
FAR = LATEST  # a time that does not come during a test


class Contract:
    """Turns the async tests of its subclasses into ones that pytest can run."""

    @pytest.fixture
    def open_store(self) -> OpenStore:
        raise NotImplementedError("give your StoreContract a fixture `open_store`")

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, test in list(vars(cls).items()):
            if name.startswith("test_") and inspect.iscoroutinefunction(test):
                setattr(cls, name, _plain(test))


def _plain(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    reopens = "open_store" in inspect.signature(test).parameters

    async def main(self: Contract, open_store: OpenStore) -> None:
        store = await open_store()
        try:
            await (test(self, store, open_store) if reopens else test(self, store))
        finally:
            await store.close()

    def run(self: Contract, open_store: OpenStore) -> None:
        asyncio.run(main(self, open_store))

    run.__doc__ = test.__doc__
    return run


def at(seconds: float) -> int:
    return NOON + int(seconds * SECOND)


def user(text: str) -> UserMessage:
    return UserMessage(content=as_content(text))


def agent(text: str) -> AgentMessage:
    return AgentMessage(content=as_content(text))


def titled(title: str | None) -> InfoChanged:
    return InfoChanged(title=title)


def tagged(tag: str | None) -> InfoChanged:
    return InfoChanged(tag=tag)


def status(name: Status, turn: str | None = None) -> StatusChanged:
    return StatusChanged(status=name, turn=turn)


def draft(body: AnyBody, seconds: float | None = None, id: str | None = None) -> Draft:
    return Draft(body=body, id=id, at=None if seconds is None else at(seconds))


async def make(
    store: Store,
    *more: AnyBody | Draft,
    seconds: float = 0,
    id: str | None = None,
    workspace: str = HERE,
    cwd: str = "/work",
    **fields: Any,
) -> Session:
    """A session created at a time, with these fields and further events."""
    created = draft(Created(cwd=cwd, **fields), seconds)
    return await store.create(workspace, id or ids.new_id(), [created, *more])


async def add(store: Store, session: Session, *drafts: AnyBody | Draft) -> Session:
    """The session after some more events."""
    after, _ = await store.change(session.workspace, session.id, lambda _: drafts)
    return after


async def history(store: Store, session: Session) -> list[Event]:
    """All its events, of which a test has few."""
    return await store.events(session.workspace, session.id)


async def found(store: Store, text: str, **filters: Any) -> set[str]:
    """The ids of the sessions that a search finds."""
    return set(ids_of(await store.page(HERE, Query(text=text, limit=1000, **filters))))


async def listed(store: Store, **query: Any) -> list[str]:
    """The ids of a first page."""
    return ids_of(await store.page(HERE, Query(**query)))


async def check_fold(store: Store, session: Session) -> None:
    """The row that is stored is what the stored events come to."""
    events = await history(store, session)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    row = projection.project(session.workspace, session.id, events)
    assert await store.get(session.workspace, session.id) == row


def ids_of(things: Iterable[Session | Event]) -> list[str]:
    return [thing.id for thing in things]


def texts(events: Sequence[Event]) -> list[str]:
    """What the messages among some events say."""
    bodies = [event.body for event in events]
    return [
        getattr(block, "text", "")
        for body in bodies
        if isinstance(body, UserMessage | AgentMessage)
        for block in body.content
    ]


def nothing(_: Session) -> Drafts:
    return []


def anyway(_: Session) -> None:
    """A guard that lets everything be purged."""


def refuse(_: Session) -> Any:
    raise Refused


class Refused(Exception):
    """What a test's own callback raises."""
