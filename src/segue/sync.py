"""The Python door for scripts without an event loop: the same names, called plainly.

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
from functools import wraps
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from segue.interfaces import python as door
from segue.interfaces.python import Message, Options, SDKSession
from segue.interfaces.python.session import CLOSED
from segue.model.content import Block
from segue.model.errors import Conflict

__all__ = [
    "Session",
    "create_session",
    "fork_session",
    "get_session_info",
    "get_session_messages",
    "list_sessions",
    "prompt",
    "rename_session",
    "resume_session",
    "tag_session",
]

P = ParamSpec("P")
T = TypeVar("T")


def _plain(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> T:
        return asyncio.run(function(*args, **options))

    return call


list_sessions = _plain(door.list_sessions)
get_session_info = _plain(door.get_session_info)
get_session_messages = _plain(door.get_session_messages)
rename_session = _plain(door.rename_session)
tag_session = _plain(door.tag_session)
fork_session = _plain(door.fork_session)
prompt = _plain(door.prompt)


class Session:
    """One conversation, on an event loop of its own: its turns go on between calls."""

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
        """Ask something."""
        self._await(self._session.send(prompt))

    def stream(self) -> Iterator[Message]:
        """What happens until the answer is whole; `result` is the last."""
        messages = self._session.stream()
        try:
            while (message := self._await(_next(messages))) is not None:
                yield message
        finally:
            self._await(messages.aclose())

    def close(self) -> None:
        """End a turn that still runs and let go of everything. Calling it again does nothing."""
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

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        if not self._open:
            work.close()
            raise Conflict(CLOSED)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise


def create_session(
    *, model: str, cwd: str | os.PathLike[str] | None = None, **options: Unpack[Options]
) -> Session:
    """A new session; see `segue.create_session`."""
    return Session(door.create_session(model=model, cwd=cwd, **options))


def resume_session(
    session_id: str,
    *,
    model: str,
    cwd: str | os.PathLike[str] | None = None,
    **options: Unpack[Options],
) -> Session:
    """Take up a session again; see `segue.resume_session`."""
    return Session(door.resume_session(session_id, model=model, cwd=cwd, **options))


async def _next(messages: AsyncIterator[Message]) -> Message | None:
    return await anext(messages, None)
