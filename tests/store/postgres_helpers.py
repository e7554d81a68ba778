"""Helpers of the tests of PostgresStore."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from segue.model import ids
from segue.model.content import as_content
from segue.model.event import AnyBody, Created, UserMessage
from segue.model.session import Session
from segue.store.base import Store
from segue.store.postgres import PostgresStore, connection

WORKSPACE = "here"


@asynccontextmanager
async def open_store(url: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(url)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[Any]:
    """Open a connection with the store's settings."""
    opened_connection = await connection.connect(url)
    try:
        yield opened_connection
    finally:
        await opened_connection.close()


def user_message(text: str) -> UserMessage:
    return UserMessage(content=as_content(text))


async def create_session(store: Store, *events: AnyBody, **fields: Any) -> Session:
    return await store.create(WORKSPACE, ids.new_id(), [Created(cwd="/work", **fields), *events])


async def append_message(store: Store, session: Session, text: str) -> Session:
    changed, _ = await store.change(WORKSPACE, session.id, lambda _: [user_message(text)])
    return changed
