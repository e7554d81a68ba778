"""The export file: one session as JSONL that loses nothing.

The first line is a header: the format, the session row, and the versions of its agent's record up
to the one that the session uses. Every further line is one event. A session is its events, so
reading the file gives the same session in any store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from segue.model import codec, event
from segue.model.errors import InvalidInput
from segue.model.event import Event
from segue.model.record import Record
from segue.model.session import Session

FORMAT = 1


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of an export file."""

    segue: int
    session: Session
    agents: tuple[Record, ...] = ()


class _EventLine(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    id: str
    at: int
    version: int
    body: Any


_decode_header: codec.Decoder[Header] = codec.Decoder(Header)
_decode_event_line: codec.Decoder[_EventLine] = codec.Decoder(_EventLine)


def is_export(first_line: bytes) -> bool:
    """Return whether a file with this first line is an export file."""
    return first_line.startswith(b'{"segue":')


async def write(
    session: Session, agents: Iterable[Record], events: AsyncIterator[Event]
) -> AsyncIterator[bytes]:
    """Yield the lines of an export file."""
    yield codec.encode(Header(segue=FORMAT, session=session, agents=tuple(agents))) + b"\n"
    async for stored in events:
        yield encode_event(stored)


def read(lines: Iterable[bytes]) -> tuple[Header, Iterator[Event]]:
    """Return the header of an export file and an iterator over its events.

    Both raise InvalidInput, with the line's number, for a line that is not valid.
    """
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    number, line = next(numbered, (0, b""))
    if not line:
        raise InvalidInput("the file holds no session")
    with _line_errors(number):
        header = _decode_header(line)
    if header.segue > FORMAT:
        raise InvalidInput("a newer segue wrote this file; upgrade segue to read it")
    return header, _read_events(header, numbered)


def _read_events(header: Header, lines: Iterable[tuple[int, bytes]]) -> Iterator[Event]:
    count = 0
    for count, (number, line) in enumerate(lines, 1):
        with _line_errors(number):
            stored = decode_event(line)
        if stored.seq != count:
            raise InvalidInput(f"line {number} holds event {stored.seq}, not {count}")
        yield stored
    if not count:
        raise InvalidInput("the file holds no session")
    if count < header.session.last_seq:
        raise InvalidInput(
            f"the file ends after event {count} of {header.session.last_seq}: it was cut off"
        )


@contextmanager
def _line_errors(number: int) -> Iterator[None]:
    """Raise a decoding error as InvalidInput with the line's number."""
    try:
        yield
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        # The decoder's message helps only if the line is JSON.
        why = error if isinstance(error, msgspec.ValidationError) else "it is not valid JSON"
        raise InvalidInput(f"line {number} is not from a segue export: {why}") from None


def encode_event(stored: Event) -> bytes:
    """Return an event as a line."""
    line = _EventLine(
        seq=stored.seq, id=stored.id, at=stored.at, version=event.BODY_VERSION, body=stored.body
    )
    return codec.encode(line) + b"\n"


def decode_event(data: bytes) -> Event:
    """Return the event of a line."""
    line = _decode_event_line(data)
    body = event.decode_body(codec.encode(line.body), line.version)
    if isinstance(body, event.Created):
        # An imported session is one of the store, also if a source owned the exported one.
        body = msgspec.structs.replace(body, source="segue")
    return Event(seq=line.seq, id=line.id, at=line.at, body=body)
