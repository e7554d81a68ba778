"""Send the updates of one session to one client, and remember the position of the last update."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from segue.acp.rpc import Connection
from segue.model.event import Delta, Event
from segue.model.session import Session
from segue.model.tools.prompt_titles import title_change

from .position import ALL_UPDATES, Position
from .versions.forwarding import forwarded_fields, is_shown
from .versions.policy import VersionPolicy


class UpdateSender:
    """Sends `session/update`. Each message carries the position after it as a cursor.

    `session_id` is the id of the session that the client uses.
    """

    def __init__(
        self, connection: Connection, policy: VersionPolicy, session: Session, session_id: str
    ) -> None:
        self.encoder = policy.create_encoder()
        self.encoder.note_settings(session)
        self.position = Position(session.last_seq, ALL_UPDATES)  # of what was sent
        self._connection = connection
        self._session_id = session_id

    def encode(self, event: Event, session: Session, *, is_sent: bool = True) -> Iterator[Any]:
        """Encode a new event and the title that it gives the session.

        If the client shows the event by itself, None takes the place of each update.
        """
        updates = self.encoder.encode_event(event, session)
        for update in updates if is_shown(event) else ():
            yield update if is_sent else None
        if (named := title_change(event.body)) is not None:
            yield from self.encoder.encode_event(replace(event, body=named), session)

    async def send_event(
        self,
        event: Event,
        updates: Iterable[Any],
        after: Position | None = None,
        *,
        replayed: bool = False,
    ) -> None:
        """Send the updates of an event, apart from those up to the position `after`."""
        streamed = self.position.streamed
        if event.id in streamed and (after is None or event.seq > after.seq):
            streamed = {message: n for message, n in streamed.items() if message != event.id}
        for index, update in enumerate(updates, 1):
            if update is None:
                continue
            if after is None or (event.seq, index) > (after.seq, after.sent):
                self.position = Position(event.seq, index, replayed, streamed)
                await self._send(update)
        if after is None or event.seq >= after.seq:
            self.position = Position(event.seq, ALL_UPDATES, replayed, streamed)

    async def send_delta(self, delta: Delta) -> None:
        """Send the part of a delta that the client has not received."""
        received = self.position.streamed.get(delta.message, 0)
        if delta.offset < received:
            text = delta.text[received - delta.offset :]
            delta = replace(delta, offset=received, text=text)
        if delta.text:
            self._note_streamed(delta.message, delta.offset + len(delta.text))
            await self.send_all(self.encoder.encode_delta(delta))

    async def forward(self, payload: dict[str, Any], session: Session) -> None:
        """Send an update of the session's agent, which uses the client's protocol version."""
        if message := payload.get("message"):
            self._note_streamed(message, payload["end"])
        updates = self.encoder.encode_forwarded(payload, session)
        await self.send_all(updates, **forwarded_fields(payload))

    def restore_streamed(self, position: Position) -> None:
        """Tell the encoder how much of unfinished messages the client has received."""
        for message, length in position.streamed.items():
            if message in self.position.streamed:
                self.encoder.resume_message(message, length)

    async def send_all(self, updates: Iterable[Any], **more: Any) -> None:
        """Send updates that have no position of their own."""
        for update in updates:
            await self._send(update, **more)

    def _note_streamed(self, message: str, length: int) -> None:
        streamed = {**self.position.streamed, message: length}
        self.position = self.position._replace(streamed=streamed)

    async def _send(self, update: Any, **more: Any) -> None:
        await self._connection.notify(
            "session/update",
            {"sessionId": self._session_id, "update": update, **more},
            cursor=self.position,
        )
