"""A session as one JSONL file that loses nothing, and back.

The first line is a header: the format, the session as it was shown, and the versions of the agent
record up to the one it was made with. Every further line is one event, whole. A session is its
events; so what is read back is the same session, whatever store it comes to.
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
    """The first line."""

    segue: int
    session: Session
    agents: tuple[Record, ...] = ()


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    id: str
    at: int
    version: int
    body: Any


_decode_header: codec.Decoder[Header] = codec.Decoder(Header)
_decode_line: codec.Decoder[_Line] = codec.Decoder(_Line)


def is_export(first_line: bytes) -> bool:
    """Whether a file that begins so is one of these."""
    return first_line.startswith(b'{"segue":')


async def write(
    session: Session, agents: Iterable[Record], events: AsyncIterator[Event]
) -> AsyncIterator[bytes]:
    """The file's lines, one by one."""
    yield codec.encode(Header(segue=FORMAT, session=session, agents=tuple(agents))) + b"\n"
    async for each in events:
        yield line_of(each)


def read(lines: Iterable[bytes]) -> tuple[Header, Iterator[Event]]:
    """The header of a file, and its events as they are taken.

    InvalidInput, with the line's number, for any other file, wherever that shows.
    """
    rest = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    number, line = next(rest, (0, b""))
    if not line:
        raise InvalidInput("the file holds no session")
    with _told(number):
        header = _decode_header(line)
    if header.segue > FORMAT:
        raise InvalidInput("this file was written by a newer segue; upgrade to read it")
    return header, _events(header, rest)


def _events(header: Header, lines: Iterable[tuple[int, bytes]]) -> Iterator[Event]:
    count = 0
    for count, (number, line) in enumerate(lines, 1):
        with _told(number):
            found = event_of(line)
        if found.seq != count:
            raise InvalidInput(f"line {number} holds event {found.seq}, not {count}")
        yield found
    if not count:
        raise InvalidInput("the file holds no session")
    if count < header.session.last_seq:
        raise InvalidInput(
            f"the file ends after event {count} of {header.session.last_seq}: it was cut off"
        )


@contextmanager
def _told(number: int) -> Iterator[None]:
    """What is wrong with a line, as the user is told."""
    try:
        yield
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        # Of what is no JSON, the decoder's words say nothing to a person.
        why = error if isinstance(error, msgspec.ValidationError) else "it is no whole JSON"
        raise InvalidInput(f"line {number} is not of a segue export: {why}") from None


def line_of(each: Event) -> bytes:
    """An event as a line."""
    line = _Line(seq=each.seq, id=each.id, at=each.at, version=event.BODY_VERSION, body=each.body)
    return codec.encode(line) + b"\n"


def event_of(data: bytes) -> Event:
    """And back."""
    line = _decode_line(data)
    body = event.decode_body(codec.encode(line.body), line.version)
    if isinstance(body, event.Created):
        body = msgspec.structs.replace(body, source="segue")  # whoever kept it there
    return Event(seq=line.seq, id=line.id, at=line.at, body=body)
