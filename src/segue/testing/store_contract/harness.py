"""How the tests of a store run, and the helpers that they use.

A test is a coroutine that gets a store. No pytest plugin is needed: each coroutine is wrapped in a
function that opens the store, runs the coroutine in its own event loop and closes the store.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
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
from segue.testing.helpers import CoroutineTest, ids_of, wrap_coroutine_tests

OpenStore = Callable[[], Awaitable[Store]]

WORKSPACE = "here"  # of most tests
OTHER_WORKSPACE = "there"
NOON = 1_700_000_000 * SECOND
MINUTE = 60 * SECOND  # the lifetime of a lease that must not expire during a test
FAR_FUTURE = LATEST


class Contract:
    """Runs the coroutine tests of its subclasses with a store."""

    @pytest.fixture
    def open_store(self) -> OpenStore:
        raise NotImplementedError("give your StoreContract a fixture `open_store`")

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        wrap_coroutine_tests(cls, _run_with_store)


def _run_with_store(test: CoroutineTest) -> Callable[..., None]:
    opens_again = "open_store" in inspect.signature(test).parameters

    async def run_with_store(contract: Contract, open_store: OpenStore) -> None:
        store = await open_store()
        try:
            await (test(contract, store, open_store) if opens_again else test(contract, store))
        finally:
            await store.close()

    def run(self: Contract, open_store: OpenStore) -> None:
        asyncio.run(run_with_store(self, open_store))

    run.__doc__ = test.__doc__
    return run


def at(seconds: float) -> int:
    """Return the time so many seconds after NOON."""
    return NOON + int(seconds * SECOND)


def user_message(text: str) -> UserMessage:
    return UserMessage(content=as_content(text))


def agent_message(text: str) -> AgentMessage:
    return AgentMessage(content=as_content(text))


def title_change(title: str | None) -> InfoChanged:
    return InfoChanged(title=title)


def tag_change(tag: str | None) -> InfoChanged:
    return InfoChanged(tag=tag)


def status_change(name: Status, turn: str | None = None) -> StatusChanged:
    return StatusChanged(status=name, turn=turn)


def draft(body: AnyBody, seconds: float | None = None, id: str | None = None) -> Draft:
    """Return a draft of an event at a time after NOON, by default the current time."""
    return Draft(body=body, id=id, at=None if seconds is None else at(seconds))


async def create_session(
    store: Store,
    *events: AnyBody | Draft,
    seconds: float = 0,
    id: str | None = None,
    workspace: str = WORKSPACE,
    cwd: str = "/work",
    **fields: Any,
) -> Session:
    """Create a session at a time after NOON, with fields of Created and further events."""
    created = draft(Created(cwd=cwd, **fields), seconds)
    return await store.create(workspace, id or ids.new_id(), [created, *events])


async def append_events(store: Store, session: Session, *drafts: AnyBody | Draft) -> Session:
    """Append events to a session and return its new row."""
    after, _ = await store.change(session.workspace, session.id, lambda _: drafts)
    return after


async def read_history(store: Store, session: Session) -> list[Event]:
    """Return all events of a session."""
    return await store.events(session.workspace, session.id)


async def search_ids(store: Store, text: str, **filters: Any) -> set[str]:
    """Return the ids of the sessions that match a search."""
    return set(ids_of(await store.page(WORKSPACE, Query(text=text, limit=1000, **filters))))


async def list_ids(store: Store, **query: Any) -> list[str]:
    """Return the ids of the first page of a list."""
    return ids_of(await store.page(WORKSPACE, Query(**query)))


async def check_projection(store: Store, session: Session) -> None:
    """Check that the stored row is the projection of the stored events."""
    events = await read_history(store, session)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    row = projection.project(session.workspace, session.id, events)
    assert await store.get(session.workspace, session.id) == row


def no_events(_: Session) -> Drafts:
    """Decide to append nothing."""
    return []


def allow_purge(_: Session) -> None:
    """Allow the purge of any session."""


def refuse(_: Session) -> Any:
    """Raise Refused."""
    raise Refused


class Refused(Exception):
    """Raised by the callback of a test."""
