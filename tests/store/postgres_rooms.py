"""What the tests of PostgresStore share."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from segue.model import ids
from segue.model.content import as_content
from segue.model.event import AnyBody, Created, UserMessage
from segue.model.session import Session
from segue.store.base import Store
from segue.store.postgres import PostgresStore, connection

HERE = "here"


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(url)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[Any]:
    """A connection of the test's own, with the store's settings."""
    connected = await connection.connect(url)
    try:
        yield connected
    finally:
        await connected.close()


def said(text: str) -> UserMessage:
    return UserMessage(content=as_content(text))


async def make(store: Store, *more: AnyBody, **fields: Any) -> Session:
    return await store.create(HERE, ids.new_id(), [Created(cwd="/work", **fields), *more])


async def say(store: Store, session: Session, text: str) -> Session:
    after, _ = await store.change(HERE, session.id, lambda _: [said(text)])
    return after
