"""Receive the converted updates of an agent process that belong to no turn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from segue.agents.base import Answer, SessionPort, StreamKind
from segue.model.content import Text
from segue.model.event import AnyBody, Draft, Option
from segue.model.session import Session

from .update_handler import BODY_TYPES

FLUSH_SECONDS = 0.5  # after which a message that is streamed between turns is stored


class EventCollector:
    """Joins streamed text to messages, and passes events to a port."""

    def __init__(
        self,
        session: Session,
        port: SessionPort,
        *,
        turn: str | None = None,
        flush_seconds: float | None = FLUSH_SECONDS,
    ) -> None:
        """Create a collector. `turn` is the turn that earlier updates belonged to."""
        self.id = turn or session.id
        self.session = session
        self._port = port
        self._flush_seconds = flush_seconds
        self._flusher: asyncio.Task[None] | None = None
        self._stream: tuple[StreamKind, str | None, dict[str, Any], list[str]] | None = None

    async def emit(self, *bodies: AnyBody | Draft) -> None:
        """Store the streamed message and these events."""
        drafts = [*self._take_stream(), *bodies]
        if drafts:
            await self._port.append(*drafts)

    def _take_stream(self) -> list[Draft]:
        stream, self._stream = self._stream, None
        if stream is None:
            return []
        kind, id, extra, parts = stream
        body = BODY_TYPES[kind](content=(Text(text="".join(parts)),), extra=extra)
        return [Draft(id=id, body=body)]

    async def delta(
        self,
        text: str,
        kind: StreamKind = "message",
        *,
        message_id: str | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        """Add text to the message that is being streamed."""
        if self._stream is None or self._stream[0] != kind:
            await self.emit()
            self._stream = (kind, message_id, extra or {}, [])
        self._stream[3].append(text)
        if self._flush_seconds is not None and (self._flusher is None or self._flusher.done()):
            flush = self._flush_later(self._flush_seconds)
            self._flusher = asyncio.get_running_loop().create_task(flush)

    async def _flush_later(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.emit()

    async def request_permission(
        self,
        title: str,
        options: Sequence[Option] = (),
        call_id: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Refuse: no turn waits for an answer."""
        return Answer()

    def publish(self, payload: Any) -> None:
        """Send a message of the agent to clients that use its protocol."""
        self._port.publish(payload)

    async def close(self) -> None:
        """Store the streamed message."""
        if self._flusher is not None:
            self._flusher.cancel()
        await self.emit()


class HistoryRecorder:
    """A port that keeps the events of a conversation that an agent replays."""

    def __init__(self) -> None:
        self.drafts: list[Draft] = []

    async def append(self, *bodies: AnyBody | Draft) -> None:
        """Keep events."""
        self.drafts += [body if isinstance(body, Draft) else Draft(body=body) for body in bodies]

    def publish(self, payload: Any) -> None:
        """Ignore a message: no client follows a replay."""
