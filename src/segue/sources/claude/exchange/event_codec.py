"""A transcript in a session's history, and back without a loss.

Each entry becomes the events that it tells (see `events`), and the first of them carries the entry
itself, in `extra["claude"]["kept"]`. Entries of the agents that a session started are kept but
not told. What a session of any other make says is composed (see `compose`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from segue.model import ids
from segue.model.event import (
    OFF_BRANCH,
    STARTS_TURN,
    AgentRef,
    AnyBody,
    ConfigChanged,
    Created,
    Draft,
    Event,
    Foreign,
    ForkPoint,
    InfoChanged,
    ModelCalled,
    UserMessage,
)
from segue.model.search_text import searchable_text
from segue.model.session import Session
from segue.sources.claude.events.translator import Translator
from segue.sources.claude.format import jsonl, sidecar
from segue.sources.claude.format.jsonl import Entry
from segue.sources.claude.format.paths import is_uuid, project_key, resolve_directory
from segue.sources.claude.format.prompt import parse_prompt

from .jsonl_writer import DIALECT
from .transcript_line import (
    TranscriptLine,
    line_uuid,
    nonempty_text,
    relocated_cwd,
)

_KEPT = "kept"
DERIVED = {DIALECT: {_KEPT: {"more": True}}}  # marks what stands for no entry of its own


# Into a history.


def creation_drafts(
    project: str,
    session: str,
    lines: Iterable[TranscriptLine],
    elsewhere: str,
    author: AgentRef | None = None,
) -> list[Draft]:
    """How a session begins: its creation and, until somebody gives it one, a title.

    `elsewhere` is its directory when the entries do not say, and `author` its agent.
    """
    cwd = moved = branch = title = at = parent = None
    aside: bool | None = None
    for entry in _entries(lines):
        aside = entry.get("isSidechain") is True if aside is None else aside
        cwd = cwd or nonempty_text(entry.get("cwd"))
        moved = relocated_cwd(entry) or moved
        at = jsonl.parse_timestamp(entry.get("timestamp")) if at is None else at
        branch = nonempty_text(entry.get("gitBranch")) or branch
        title = title or _title(entry)
        parent = parent or _parent(entry)
    cwd = moved or cwd or elsewhere
    real_cwd = resolve_directory(cwd)
    body = Created(
        cwd=cwd,
        real_cwd=None if real_cwd == cwd else real_cwd,
        origin=DIALECT,
        agent=author,
        native_id=None if is_uuid(session) else session,
        git_branch=branch,
        fork=None if parent is None else ForkPoint(session=parent, seq=1),
        extra={DIALECT: {"project": project, "session": session}},
    )
    more: list[AnyBody] = _titled(title)
    if aside:  # an agent's own, which no list shows
        more.append(InfoChanged(archived=True, by="auto", extra=DERIVED))
    return [Draft(body=body, at=at), *(Draft(body=each, at=at) for each in more)]


def session_updates(
    session: Session, project: str, lines: Iterable[TranscriptLine]
) -> list[AnyBody]:
    """What further lines say of a session as such."""
    moved = found_in = branch = title = None
    elsewhere = project_key(session.directory) != project
    for entry in _entries(lines):
        moved = relocated_cwd(entry) or moved
        cwd = nonempty_text(entry.get("cwd")) if elsewhere and found_in is None else None
        if cwd and project_key(cwd) == project:
            found_in = cwd
        branch = nonempty_text(entry.get("gitBranch")) or branch
        if session.title is None:
            title = title or _title(entry)
    found: list[AnyBody] = []
    if (cwd := moved or found_in) and resolve_directory(cwd) != session.directory:
        extra = {DIALECT: {**DERIVED[DIALECT], "project": project}}
        found.append(ConfigChanged(cwd=resolve_directory(cwd), extra=extra))
    if branch and branch != session.git_branch:
        found.append(ConfigChanged(git_branch=branch, extra=DERIVED))
    return found + _titled(title)


def drafts_from_lines(
    session: str,
    path: str,
    lines: Iterable[TranscriptLine],
    begun: int,
    taken: set[str] | None = None,
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
            bodies = _bodies(events, entry, told)
            if path:  # an agent's, which is found by its words but is not the session's to tell
                words = "\n".join(filter(None, (searchable_text(event.body) for event in events)))
                bodies = [replace(_foreign(entry, path, told), words=words)]
            elif isinstance(bodies[0], UserMessage) and sidecar.is_human_prompt(entry):
                bodies[0] = replace(bodies[0], extra={**bodies[0].extra, **STARTS_TURN})
            if line.left:
                bodies = [replace(body, extra={**body.extra, **OFF_BRANCH}) for body in bodies]
            for part, body in enumerate(bodies):
                id = _id(path, entry, body, part)
                if taken is not None and id in taken:
                    if isinstance(body, ModelCalled):
                        continue  # it was counted
                    id = None
                if taken is not None and id is not None:
                    taken.add(id)
                yield Draft(id=id, at=at, body=body)


def is_inherited(body: AnyBody) -> bool | None:
    """Whether a fork took the entry over; None for what only adds to the event before."""
    told = (body.extra.get(DIALECT) or {}).get(_KEPT) or {}
    if "more" in told:
        return None
    entry = told.get("entry") or (body.raw if isinstance(body, Foreign) else None)
    return isinstance(entry, dict) and _parent(entry) is not None


def deletion_marker(path: str) -> Foreign:
    """That an agent's transcript was deleted."""
    return _foreign(None, path, {"path": path})


def _bodies(events: Sequence[Event], entry: Entry, told: dict[str, Any]) -> list[AnyBody]:
    first, *rest = (event.body for event in events)
    if not (isinstance(first, Foreign) and first.raw is entry):
        told = {**told, "entry": entry}
    bodies: list[AnyBody] = [replace(first, extra={DIALECT: {_KEPT: told}})]
    return bodies + [replace(body, extra=DERIVED) for body in rest]


def _foreign(raw: Any, path: str, told: dict[str, Any]) -> Foreign:
    return Foreign(dialect=DIALECT, raw=raw, thread=path or None, extra={DIALECT: {_KEPT: told}})


def line_event_id(line: TranscriptLine) -> str | None:
    """The id of the first event of a line with one entry."""
    uuid = line_uuid(line)
    return uuid.lower() if uuid and is_uuid(uuid) else None


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


def _entries(lines: Iterable[TranscriptLine]) -> Iterator[Entry]:
    return (entry for line in lines for entry in line.entries)


def _title(entry: Entry) -> str | None:
    """What a session may be called by, if an entry is a prompt."""
    if entry.get("type") != "user" or entry.get("isMeta"):
        return None
    said = parse_prompt(entry.get("message"))
    return said.text or said.command or None


def _titled(title: str | None) -> list[AnyBody]:
    return [] if title is None else [InfoChanged(title=title, by="auto", extra=DERIVED)]


def _parent(entry: Entry) -> str | None:
    """The session that an entry was forked from."""
    told = entry.get("forkedFrom")
    id = nonempty_text(told.get("sessionId")) if isinstance(told, dict) else None
    return id.lower() if id and is_uuid(id) else None


# Out of a history.


def subagent_lines(events: Iterable[Event]) -> dict[str, list[TranscriptLine]]:
    """The lines of each agent's transcript, by its path."""
    found: dict[str, list[TranscriptLine]] = {}
    for event, path in subagent_events(events):
        if is_deletion_marker(event.body):
            found.pop(path, None)
        else:
            found.setdefault(path, []).append(restore_line(event.body, line_info(event) or {}))
    return found


def subagent_paths(events: Iterable[Event], known: Iterable[str] = ()) -> list[str]:
    """The paths of agents' transcripts, those known before and those of further events."""
    found = dict.fromkeys(known)
    for event, path in subagent_events(events):
        if is_deletion_marker(event.body):
            found.pop(path, None)
        else:
            found[path] = None
    return list(found)


def native_session_id(session: Session) -> str:
    """What Claude Code calls a session."""
    told: str = (session.extra.get(DIALECT) or {}).get("session") or session.id
    return told


def project_of(session: Session) -> str:
    """The project that Claude Code counts a session to."""
    told: str | None = (session.extra.get(DIALECT) or {}).get("project")
    return project_key(session.directory) if told is None else told


def line_info(event: Event) -> dict[str, Any] | None:
    """What says that an event comes from a transcript, and how its line is found."""
    told: dict[str, Any] | None = (event.body.extra.get(DIALECT) or {}).get(_KEPT)
    return told


def subagent_events(events: Iterable[Event]) -> Iterator[tuple[Event, str]]:
    for event in events:
        told = line_info(event) or {}
        if "path" in told and "glued" not in told:
            yield event, told["path"]


def is_deletion_marker(body: AnyBody) -> bool:
    return isinstance(body, Foreign) and body.raw is None


def restore_line(body: AnyBody, told: dict[str, Any]) -> TranscriptLine:
    """The line that an event carries."""
    if (text := told.get("line")) is not None:
        return TranscriptLine(
            tuple(jsonl.parse_entries(text.encode("utf-8", "surrogateescape"))), text
        )
    if isinstance(body, Foreign) and "entry" not in told:
        return TranscriptLine((body.raw,))
    return TranscriptLine((told["entry"],))
