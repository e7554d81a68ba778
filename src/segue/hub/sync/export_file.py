"""The export file: one session as JSONL that loses nothing. docs/format.md describes it.

The first line is a header: the format, a summary of the session, and the versions of its agents'
records up to those that the events refer to. Every further line is one event. A session is its
events, so reading the file gives the same session in any store. Times are RFC 3339 text in UTC.

Files of version 1 have another header and times in microseconds. Those of version 2 have the whole
session row and complete records in the header. Both are read as well.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import IO, Annotated, Any, Final, Literal, get_args

import msgspec
from msgspec import UNSET

from segue import __version__
from segue.model import clock, codec, event
from segue.model.errors import InvalidInput
from segue.model.event import Event, ToolResult, Usage
from segue.model.record import Record
from segue.model.session import Session, decode_session

FORMAT: Final = "segue.session"
VERSION = 3
MAX_LINE_BYTES = 256_000_000  # a line is decoded in memory
_TIME = re.compile(clock.TIME_PATTERN, re.ASCII)
# The id of a session, which names directories, of an agent, and of what ID_FIELDS of Created name.
ID_PATTERN = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_ID = re.compile(ID_PATTERN, re.ASCII)
ID_FIELDS = ("environment_id", "deployment_id", "memory_store_ids", "vault_ids")
# Fields that have a default, and are written nevertheless: files of this version must have them.
EXPLICIT_FIELDS: dict[type[msgspec.Struct], tuple[str, ...]] = {
    Usage: tuple(field.name for field in msgspec.structs.fields(Usage) if field.default is None),
    ToolResult: ("status",),
}
_FIRST_LINE = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"(segue"\s*:|format"\s*:\s*"segue\.session")')
_PATH_STEP = re.compile(r"\.([^.\[]+)|\[([0-9]+)\]")
_DAMAGE = (msgspec.DecodeError, ValueError, LookupError, TypeError, AttributeError, RecursionError)

BodyVersion = Annotated[int, msgspec.Meta(ge=1)]


class Summary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a session's events add up to. All other fields of the session are in the events.

    `last_seq` is the number of events, and `usage` the sum of all model requests.
    """

    id: str
    last_seq: int
    title: str | None = None
    turns: int = 0
    messages: int = 0
    errors: int = 0
    usage: Usage = msgspec.field(default_factory=Usage)


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One version of an agent.

    `created_at` is left out for the agents that every segue has.
    """

    id: str
    version: int
    created_at: int | None = None
    updated_at: int
    archived_at: int | None = None
    body: dict[str, Any] = {}


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line of an export file.

    `harness` and `harness_version` name the program that wrote the file. `interface` names the
    interface or the tool that created the session. `agents` has the records of the agents that the
    events refer to: every version up to the newest one that an event names. Version 1 of an agent
    that every segue has may be missing: it is version 2 without the field `configured`.
    """

    format: Literal["segue.session"]
    version: int
    harness: str
    harness_version: str
    interface: str
    session: Summary
    agents: tuple[AgentRecord, ...] = ()


class EventLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line with one event of the session.

    `seq` counts from 1 without gaps, `id` is unique in the session, `at` is the time of the event.
    `version` is the format of `body`. `derived` marks the last events of a session whose process
    died: they end its turn and have the text that had arrived, but were not stored yet.
    """

    seq: int
    id: str
    at: str
    version: BodyVersion
    body: Any
    derived: bool = False


class _HeaderOf2(msgspec.Struct, frozen=True, kw_only=True):
    format: Literal["segue.session"]
    version: int
    harness: str
    harness_version: str
    interface: str
    session: Session
    agents: tuple[Record, ...] = ()


class _HeaderOf1(msgspec.Struct, frozen=True, kw_only=True):
    segue: int
    session: dict[str, Any]
    agents: tuple[Record, ...] = ()


class _EventLineOf1(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    id: str
    at: int
    version: BodyVersion
    body: Any


class InvalidLine(InvalidInput):
    """A line of an export file is not valid: its number, the field's path and the field's value.

    `path` is empty if the line as a whole is not valid; `value` is then UNSET.
    """

    def __init__(self, line: int, problem: str, path: str = "", value: Any = UNSET) -> None:
        where = f"{path}: " if path else ""
        value_text = "" if value is UNSET else f" ({shorten(value)})"
        super().__init__(f"line {line}: {where}{problem}{value_text}")
        self.line = line
        self.problem = problem
        self.path = path
        self.value = value


_decode_raw: codec.Decoder[dict[str, Any]] = codec.Decoder(dict[str, Any])
_decode_line: codec.Decoder[EventLine] = codec.Decoder(EventLine)
_decode_line_of_1: codec.Decoder[_EventLineOf1] = codec.Decoder(_EventLineOf1)


def read_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file. Raises InvalidLine for a line of more than MAX_LINE_BYTES."""
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            problem = f"the line is longer than {MAX_LINE_BYTES // 1_000_000} MB"
            raise InvalidLine(number, f"{problem}; a segue export has no such line")
        yield line


def is_export(first_line: bytes) -> bool:
    """Return whether a file with this first line is an export file."""
    return _FIRST_LINE.match(first_line) is not None


async def write(
    session: Session,
    agents: Iterable[AgentRecord],
    events: AsyncIterator[Event],
    *,
    derived: int = 0,
) -> AsyncIterator[bytes]:
    """Yield the lines of an export file. The last `derived` events are marked as not stored."""
    header = Header(
        format=FORMAT,
        version=VERSION,
        harness="segue",
        harness_version=__version__,
        interface=session.origin,
        session=_summary(session),
        agents=tuple(agents),
    )
    raw = msgspec.to_builtins(header)
    yield codec.encode(_map_times(Header, raw, lambda at, _: clock.to_rfc3339(at))) + b"\n"
    async for stored in events:
        yield encode_event(stored, derived=stored.seq > session.last_seq - derived)


def read(lines: Iterable[bytes]) -> tuple[Header, Iterator[Event]]:
    """Return the header of an export file and an iterator over its events.

    A header of version 1 or 2 is converted, and has that version. Both raise InvalidLine for a line
    that is not valid, and InvalidInput for a file without lines or of a newer version.
    """
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    number, line = next(numbered, (0, b""))
    if not line:
        raise InvalidInput("the file has no session; use a file that `segue export` wrote")
    with _line_errors(number, line):
        header = _decode_header(line)
        _check_id(header.session.id, "session.id")
        for index, record in enumerate(header.agents):
            _check_id(record.id, f"agents[{index}].id")
    return header, _read_events(header, number, numbered)


def _decode_header(line: bytes) -> Header:
    raw = _decode_raw(line)
    name, known = ("version", (2, VERSION)) if "format" in raw else ("segue", (1,))
    version = raw.get(name)
    if isinstance(version, int) and version > VERSION:
        raise InvalidInput(
            f"a newer segue wrote this file (version {version}); upgrade segue to read it"
        )
    if version is not None and version not in known:
        expected = " or ".join(map(str, known))
        raise msgspec.ValidationError(f"expected {expected} - at `$.{name}`")
    if version == 2 and "format" in raw:
        second: _HeaderOf2 = codec.convert(_map_times(_HeaderOf2, raw, _parse_time), _HeaderOf2)
        return Header(
            format=FORMAT,
            version=second.version,
            harness=second.harness,
            harness_version=second.harness_version,
            interface=second.interface,
            session=_summary(second.session),
            agents=tuple(_agents(second.agents)),
        )
    if "format" in raw:
        if isinstance(session := raw.get("session"), dict):
            _check_explicit(Usage, session.get("usage"), "session.usage")
        header: Header = codec.convert(_map_times(Header, raw, _parse_time), Header)
        return header
    first: _HeaderOf1 = codec.convert(raw, _HeaderOf1)
    for index, record in enumerate(first.agents):
        for name in time_fields(Record):
            _check_time(getattr(record, name), f"agents[{index}].{name}")
    with _errors_inside("session"):
        row = decode_session(codec.encode(first.session))
    return Header(
        format=FORMAT,
        version=first.segue,
        harness="segue",
        harness_version="",  # the file does not say
        interface=row.origin,
        session=_summary(row),
        agents=tuple(_agents(first.agents)),
    )


def _summary(session: Session) -> Summary:
    return Summary(**{name: getattr(session, name) for name in Summary.__struct_fields__})


def _agents(records: Iterable[Record]) -> Iterator[AgentRecord]:
    for record in records:
        if record.kind == "agent":
            names = AgentRecord.__struct_fields__
            yield AgentRecord(**{name: getattr(record, name) for name in names})


def _read_events(
    header: Header, number: int, lines: Iterable[tuple[int, bytes]]
) -> Iterator[Event]:
    decode = _decode_event_of_1 if header.version == 1 else decode_event
    count, expected = 0, header.session.last_seq
    for count, (number, line) in enumerate(lines, 1):
        with _line_errors(number, line):
            stored = decode(line)
        if stored.seq != count:
            problem = f"expected event {count} here, because events have no gaps"
            raise InvalidLine(number, problem, "seq", stored.seq)
        if count > expected and header.version > 1:
            problem = f"the header says that the session has {expected} events"
            raise InvalidLine(number, problem, "seq", stored.seq)
        yield stored
    if count < expected:
        problem = f"the file ends after event {count} of {expected}: it was cut off"
        raise InvalidLine(number + 1, problem)
    if not count:
        raise InvalidInput("the file has no session; use a file that `segue export` wrote")


@contextmanager
def _line_errors(number: int, line: bytes) -> Iterator[None]:
    """Raise a decoding error as InvalidLine, with the path and the value that does not fit."""
    try:
        yield
    except msgspec.ValidationError as error:
        path, problem = codec.split_error(error)
        raise InvalidLine(number, problem, path, _value_at(line, path)) from None
    except InvalidInput:
        raise
    except _DAMAGE as error:
        is_json = not isinstance(error, msgspec.DecodeError | ValueError | RecursionError)
        why = "its body cannot be converted" if is_json else "it is not valid JSON"
        problem = f"this is not from a segue export: {why}"
        raise InvalidLine(number, problem) from None


def _value_at(line: bytes, path: str) -> Any:
    """Return the value at a path such as `body.content[0].text`; UNSET if there is none."""
    if not path:
        return UNSET
    try:
        value: Any = _decode_raw(line)
    except _DAMAGE:  # only the part before the value was read
        return UNSET
    try:
        for name, index in _PATH_STEP.findall(f".{path}"):
            value = value[name] if name else value[int(index)]
    except (LookupError, TypeError):
        return UNSET
    return value


def shorten(value: Any) -> str:
    """Return a value as JSON for a message, cut after 80 characters."""
    text = codec.encode(value).decode()
    return text if len(text) <= 80 else f"{text[:79]}…"


def encode_event(stored: Event, *, derived: bool = False) -> bytes:
    """Return an event as a line."""
    try:
        at = clock.to_rfc3339(stored.at)
    except OverflowError:
        raise InvalidInput(f"the time of event {stored.seq} has no year: {stored.at}") from None
    line = EventLine(
        seq=stored.seq,
        id=stored.id,
        at=at,
        version=event.BODY_VERSION,
        body=stored.body,
        derived=derived,
    )
    return codec.encode(line) + b"\n"


def decode_event(data: bytes) -> Event:
    """Return the event of a line."""
    line = _decode_line(data)
    at = _parse_time(line.at, "at")
    return Event(seq=line.seq, id=line.id, at=at, body=_decode_body(line.body, line.version))


def _decode_event_of_1(data: bytes) -> Event:
    line = _decode_line_of_1(data)
    _check_time(line.at, "at")
    return Event(seq=line.seq, id=line.id, at=line.at, body=_decode_body(line.body, line.version))


def _decode_body(raw: Any, version: int) -> event.AnyBody:
    with _errors_inside("body"):
        body = event.decode_body(codec.encode(raw), version)
    if version == event.BODY_VERSION:
        _check_explicit(type(body), raw, "body")
        if isinstance(getattr(body, "usage", None), Usage):
            _check_explicit(Usage, raw.get("usage"), "body.usage")
    if isinstance(body, event.Response | event.ModelCalled) and body.asked_at is not None:
        _parse_time(body.asked_at, "body.asked_at")
    if isinstance(body, event.Created):
        _check_references(body)
        # An imported session is one of the store, also if a source owned the exported one.
        body = msgspec.structs.replace(body, source="segue")
    return body


def _check_explicit(cls: type[msgspec.Struct], raw: Any, path: str) -> None:
    """Raise ValidationError if the plain values of a struct lack one of its explicit fields."""
    for name in EXPLICIT_FIELDS.get(cls, ()) if isinstance(raw, dict) else ():
        if name not in raw:
            raise msgspec.ValidationError(f"Object missing required field `{name}` - at `$.{path}`")


def _check_id(id: str, path: str) -> None:
    if not _ID.fullmatch(id):
        raise msgspec.ValidationError(f"expected a UUID in lower case - at `$.{path}`")


def _check_references(created: event.Created) -> None:
    """Raise ValidationError if a resource of the session has an id that no resource can have."""
    named = {name: getattr(created, name) for name in ID_FIELDS}
    for name, value in named.items():
        for id in value if isinstance(value, tuple) else (value,):
            if id is not None:
                _check_id(id, f"body.{name}")


@contextmanager
def _errors_inside(field: str) -> Iterator[None]:
    """Raise msgspec's errors with a path that begins with a field."""
    try:
        yield
    except msgspec.ValidationError as error:
        message = str(error)
        if " - at " not in message:
            message += " - at `$`"
        raise msgspec.ValidationError(message.replace("`$", f"`$.{field}", 1)) from None


# Times.


@cache
def time_fields(cls: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct] | None]:
    """Return the fields that are times, and those that hold structs with times, by name."""
    fields: dict[str, type[msgspec.Struct] | None] = {}
    for field in msgspec.structs.fields(cls):
        inner = get_args(field.type)[0] if get_args(field.type) else field.type
        if field.name.endswith(("_at", "_since")) and field.type in (int, int | None):
            fields[field.name] = None
        elif isinstance(inner, type) and issubclass(inner, msgspec.Struct) and time_fields(inner):
            fields[field.name] = inner
    return fields


def _map_times(
    cls: type[msgspec.Struct], raw: Any, convert: Callable[[Any, str], Any], path: str = ""
) -> Any:
    """Return a struct's plain values with `convert(time, path)` for each time in them."""
    if not isinstance(raw, dict):
        return raw
    changed: dict[str, Any] = {}
    for name, inner in time_fields(cls).items():
        value, field_path = raw.get(name), f"{path}.{name}".removeprefix(".")
        if inner is None and value is not None:
            changed[name] = convert(value, field_path)
        elif inner is not None and isinstance(value, list | tuple):
            changed[name] = [
                _map_times(inner, item, convert, f"{field_path}[{index}]")
                for index, item in enumerate(value)
            ]
        elif inner is not None and value is not None:
            changed[name] = _map_times(inner, value, convert, field_path)
    return {**raw, **changed}


def _check_time(at: int | None, path: str) -> None:
    """Raise ValidationError for a time of version 1 that no calendar has."""
    try:
        clock.to_rfc3339(at or 0)
    except OverflowError:
        raise msgspec.ValidationError(
            f"expected microseconds of the years 1 to 9999 - at `$.{path}`"
        ) from None


def _parse_time(text: Any, path: str) -> int:
    try:
        if isinstance(text, str) and _TIME.match(text):
            return clock.from_rfc3339(text)
    except ValueError:
        pass  # such as the 30th of February
    raise msgspec.ValidationError(
        f"expected a time such as 2026-01-31T12:00:00.000000Z - at `$.{path}`"
    )
