"""A transcript in a session's history, and back without a loss.

Each entry becomes the events that it tells (see `events`), and the first of them carries the entry
itself, in `extra["claude"]["kept"]`. Entries of the agents that a session started are kept but
not told. What a session of any other make says is composed (see `compose`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from ...model import codec, ids
from ...model.event import (
    AnyBody,
    ConfigChanged,
    Created,
    Draft,
    Event,
    Foreign,
    InfoChanged,
    ModelCalled,
)
from ...model.session import Session
from . import read
from .compose import DIALECT, Composer
from .events import Translator
from .layout import is_uuid, project_key, real
from .prompt import prompt
from .read import Entry

_KEPT = "kept"
MORE = {DIALECT: {_KEPT: {"more": True}}}  # marks what stands for no entry of its own


class Line(NamedTuple):
    """A line of a transcript: its entry; none if it cannot be read, several if lines are glued.

    `text` is there only where the line is not just what its entry would be written as.
    """

    entries: tuple[Entry, ...]
    text: str | None = None

    def data(self) -> bytes:
        """The line as it is in a file, without its end."""
        if self.text is not None:
            return self.text.encode("utf-8", "surrogateescape")
        return codec.encode(self.entries[0])


def line(data: bytes) -> Line:
    """A line of a file."""
    found = tuple(read.entries(data))
    if len(found) == 1 and codec.encode(found[0]) == data:
        return Line(found)
    return Line(found, data.decode("utf-8", "surrogateescape"))


# Into a history.


def created(project: str, session: str, lines: Sequence[Line], elsewhere: str) -> list[Draft]:
    """How a session begins: its creation and, until somebody gives it one, a title.

    `elsewhere` is its directory when the entries do not say.
    """
    said = list(_entries(lines))
    cwd = next(filter(None, (_text(entry.get("cwd")) for entry in said)), elsewhere)
    times = (read.moment(entry.get("timestamp")) for entry in said)
    at = next((at for at in times if at is not None), None)
    real_cwd = real(cwd)
    body = Created(
        cwd=cwd,
        real_cwd=None if real_cwd == cwd else real_cwd,
        origin=DIALECT,
        source=DIALECT,
        native_id=None if is_uuid(session) else session,
        git_branch=_branch(said),
        extra={DIALECT: {"project": project, "session": session}},
    )
    more = _title(said)
    if said and said[0].get("isSidechain") is True:  # an agent's own, which no list shows
        more.append(InfoChanged(archived=True, by="auto", extra=MORE))
    return [Draft(body=body, at=at), *(Draft(body=each, at=at) for each in more)]


def noted(session: Session, project: str, lines: Sequence[Line]) -> list[AnyBody]:
    """What further lines say of a session as such."""
    said, found = list(_entries(lines)), list[AnyBody]()
    if project_key(session.directory) != project:
        for cwd in (_text(entry.get("cwd")) for entry in said):
            if cwd and project_key(cwd) == project:
                found.append(ConfigChanged(cwd=real(cwd), extra=MORE))
                break
    branch = _branch(said)
    if branch and branch != session.git_branch:
        found.append(ConfigChanged(git_branch=branch, extra=MORE))
    return found + (_title(said) if session.title is None else [])


def drafts(
    session: str, path: str, lines: Iterable[Line], begun: int, taken: set[str] | None = None
) -> Iterator[Draft]:
    """The events of some lines; with `path`, of an agent's transcript.

    Their ids are made of those of the entries, so that a history takes an entry once. With
    `taken` it takes each: an id in there counts as none, and the new ones are put in.
    """
    translator = Translator(session, begun)
    place = {"path": path} if path else {}
    at = begun
    for number, line in enumerate(lines):
        if not line.entries:
            told: dict[str, Any] = {**place, "line": line.text}
            yield Draft(at=at, body=_foreign(line.text, path, told))
        for nth, entry in enumerate(line.entries):
            events = translator.line(number, b"", [entry])
            at = events[0].at
            told = {**place, **({"glued": True} if nth else {})}
            if line.text is not None and not nth:
                told["line"] = line.text
            bodies = [_foreign(entry, path, told)] if path else _bodies(events, entry, told)
            for part, body in enumerate(bodies):
                id = _id(path, entry, body, part)
                if taken is not None and id in taken:
                    if isinstance(body, ModelCalled):
                        continue  # it was counted
                    id = None
                if taken is not None and id is not None:
                    taken.add(id)
                yield Draft(id=id, at=at, body=body)


def forgotten(path: str) -> Foreign:
    """That an agent's transcript was deleted."""
    return _foreign(None, path, {"path": path})


def _bodies(events: Sequence[Event], entry: Entry, told: dict[str, Any]) -> list[AnyBody]:
    first, *rest = (event.body for event in events)
    if not (isinstance(first, Foreign) and first.raw is entry):
        told = {**told, "entry": entry}
    bodies: list[AnyBody] = [replace(first, extra={DIALECT: {_KEPT: told}})]
    return bodies + [replace(body, extra=MORE) for body in rest]


def _foreign(raw: Any, path: str, told: dict[str, Any]) -> Foreign:
    return Foreign(dialect=DIALECT, raw=raw, thread=path or None, extra={DIALECT: {_KEPT: told}})


def _id(path: str, entry: Entry, body: AnyBody, part: int) -> str | None:
    message = entry.get("message")
    response = message.get("id") if isinstance(message, dict) else None
    if isinstance(body, ModelCalled) and isinstance(response, str):
        return ids.derived_id(DIALECT, "response", response)  # of which there are several lines
    uuid = entry.get("uuid")
    if not uuid or not isinstance(uuid, str):
        return None
    own = uuid.lower() if is_uuid(uuid) and not path else ids.derived_id(DIALECT, path, uuid)
    return own if part == 0 else ids.derived_id(DIALECT, own, str(part))


def _entries(lines: Iterable[Line]) -> Iterator[Entry]:
    return (entry for line in lines for entry in line.entries)


def _title(entries: Iterable[Entry]) -> list[AnyBody]:
    for entry in entries:
        if entry.get("type") == "user" and not entry.get("isMeta"):
            said = prompt(entry.get("message"))
            if name := said.text or said.command:
                return [InfoChanged(title=name, by="auto", extra=MORE)]
    return []


def _branch(entries: Sequence[Entry]) -> str | None:
    found = (_text(entry.get("gitBranch")) for entry in reversed(entries))
    return next(filter(None, found), None)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


# Out of a history.


def lines(session: Session, events: Iterable[Event], *, joined: bool = True) -> Iterator[Line]:
    """The lines of a session's own transcript.

    Claude Code does not know what was said here since it wrote a line, and goes on behind that
    line. `joined` it goes on behind what was said here: else that would be a branch that was left.
    """
    composer = Composer(name(session), session.cwd, session.git_branch)
    native: list[Event] = []
    followed: dict[str, str] = {}  # entries behind which something was said here: the last of it
    for event in events:
        told = _told(event)
        if told is None:
            native.append(event)
        elif not told.keys() & {"path", "more", "glued"}:
            before = composer.last
            yield from _composed(composer, native)
            if before and composer.last and before != composer.last:
                followed[before] = composer.last
            native = []
            kept = _line(event.body, told)
            if joined and followed:
                kept = _behind(kept, followed)
            if session.fork is not None:
                kept = _renamed(kept, name(session))
            for entry in kept.entries:
                composer.passed(entry)
            yield kept
    yield from _composed(composer, native)


def told_here(events: Iterable[Event]) -> Callable[[Line], bool]:
    """Whether Claude Code said a line to us, too, so that its event is here and no line of it."""
    ids = {event.id for event in events if _told(event) is None}

    def told(line: Line) -> bool:
        uuids = [_text(entry.get("uuid")) for entry in line.entries]
        return bool(uuids) and all(uuid is not None and uuid.lower() in ids for uuid in uuids)

    return told


def agents(events: Iterable[Event]) -> dict[str, list[Line]]:
    """The lines of each agent's transcript, by its path."""
    found: dict[str, list[Line]] = {}
    for event, path in _of_agents(events):
        if _is_end(event.body):
            found.pop(path, None)
        else:
            found.setdefault(path, []).append(_line(event.body, _told(event) or {}))
    return found


def paths(events: Iterable[Event], known: Iterable[str] = ()) -> list[str]:
    """The paths of agents' transcripts, those known before and those of further events."""
    found = dict.fromkeys(known)
    for event, path in _of_agents(events):
        if _is_end(event.body):
            found.pop(path, None)
        else:
            found[path] = None
    return list(found)


def name(session: Session) -> str:
    """What Claude Code calls a session."""
    told: str = (session.extra.get(DIALECT) or {}).get("session") or session.id
    return told


def project(session: Session) -> str:
    """The project that Claude Code counts a session to."""
    told: str | None = (session.extra.get(DIALECT) or {}).get("project")
    return project_key(session.directory) if told is None else told


def _told(event: Event) -> dict[str, Any] | None:
    """What says that an event comes from a transcript, and how its line is found."""
    told: dict[str, Any] | None = (event.body.extra.get(DIALECT) or {}).get(_KEPT)
    return told


def _of_agents(events: Iterable[Event]) -> Iterator[tuple[Event, str]]:
    for event in events:
        told = _told(event) or {}
        if "path" in told and "glued" not in told:
            yield event, told["path"]


def _is_end(body: AnyBody) -> bool:
    return isinstance(body, Foreign) and body.raw is None


def _line(body: AnyBody, told: dict[str, Any]) -> Line:
    """The line that an event carries."""
    if (text := told.get("line")) is not None:
        return Line(tuple(read.entries(text.encode("utf-8", "surrogateescape"))), text)
    if isinstance(body, Foreign) and "entry" not in told:
        return Line((body.raw,))
    return Line((told["entry"],))


def _renamed(line: Line, session: str) -> Line:
    """A line that a fork took over, with the fork's id."""
    entries = [
        {**entry, "sessionId": session} if "sessionId" in entry else entry for entry in line.entries
    ]
    return Line(tuple(entries)) if len(entries) == 1 else line


def _behind(line: Line, followed: Mapping[str, str]) -> Line:
    """A line that goes on behind an entry, behind what followed that."""
    parent = _text(line.entries[0].get("parentUuid")) if len(line.entries) == 1 else None
    if parent is None or parent not in followed:
        return line
    while parent in followed:
        parent = followed[parent]
    return Line(({**line.entries[0], "parentUuid": parent},))


def _composed(composer: Composer, events: Sequence[Event]) -> Iterator[Line]:
    return (Line((entry,)) for entry in composer.entries(events))
