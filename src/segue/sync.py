"""Sessions from Python without an event loop: the same functions, not async.

They also work where an event loop runs already, as in a notebook.

from segue import sync

with sync.create_session(model="demo") as session:
    session.send("Hello")
    for message in session.stream():
        print(message)
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from segue.interfaces import python as async_api
from segue.interfaces.python import Message, Options, SDKSession
from segue.interfaces.python.session import CLOSED
from segue.model.content import Block
from segue.model.errors import Conflict

__all__ = [
    "Session",
    "archive_session",
    "create_session",
    "delete_session",
    "fork_session",
    "get_session_info",
    "get_session_messages",
    "list_sessions",
    "prompt",
    "rename_session",
    "resume_in",
    "resume_session",
    "search_sessions",
    "tag_session",
    "unarchive_session",
]

P = ParamSpec("P")
T = TypeVar("T")


def _synchronous(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(function(*args, **options))
        # A notebook, for example, runs a loop in this thread: use one in another thread.
        with ThreadPoolExecutor(1, thread_name_prefix="segue-call") as thread:
            return thread.submit(lambda: asyncio.run(function(*args, **options))).result()

    return call


list_sessions = _synchronous(async_api.list_sessions)
get_session_info = _synchronous(async_api.get_session_info)
get_session_messages = _synchronous(async_api.get_session_messages)
rename_session = _synchronous(async_api.rename_session)
resume_in = _synchronous(async_api.resume_in)
tag_session = _synchronous(async_api.tag_session)
fork_session = _synchronous(async_api.fork_session)
archive_session = _synchronous(async_api.archive_session)
unarchive_session = _synchronous(async_api.unarchive_session)
delete_session = _synchronous(async_api.delete_session)
search_sessions = _synchronous(async_api.search_sessions)
prompt = _synchronous(async_api.prompt)


class Session:
    """One session on its own event loop in a thread, so that turns run between calls."""

    def __init__(self, session: SDKSession) -> None:
        self._session = session
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="segue-session", daemon=True
        )
        self._thread.start()
        self._open = True

    @property
    def session_id(self) -> str:
        return self._session.session_id

    def send(self, prompt: str | Block | Iterable[Block]) -> None:
        """Send a prompt; see `SDKSession.send`."""
        self._run(self._session.send(prompt))

    def stream(self) -> Iterator[Message]:
        """Yield the messages of the next turn; see `SDKSession.stream`."""
        messages = self._session.stream()
        try:
            while (message := self._run(_next(messages))) is not None:
                yield message
        finally:
            self._run(messages.aclose())

    def close(self) -> None:
        """End a turn that still runs and release everything. A second call does nothing."""
        if self._open:
            self._open = False
            try:
                asyncio.run_coroutine_threadsafe(self._session.close(), self._loop).result()
            finally:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the session's event loop and return its result."""
        if not self._open:
            coroutine.close()
            raise Conflict(CLOSED)
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise


def create_session(
    *, model: str, cwd: str | os.PathLike[str] | None = None, **options: Unpack[Options]
) -> Session:
    """Create a session; see `segue.create_session`."""
    return Session(async_api.create_session(model=model, cwd=cwd, **options))


def resume_session(
    session_id: str,
    *,
    model: str,
    cwd: str | os.PathLike[str] | None = None,
    **options: Unpack[Options],
) -> Session:
    """Resume a session; see `segue.resume_session`."""
    return Session(async_api.resume_session(session_id, model=model, cwd=cwd, **options))


async def _next(messages: AsyncIterator[Message]) -> Message | None:
    return await anext(messages, None)
