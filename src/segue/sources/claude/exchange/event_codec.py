"""Convert transcript lines to events that carry them, and find the lines in events again.

Each entry becomes one or several events (see `events.translator`). The first of them carries the
entry itself in `extra["claude"]["kept"]`, so that an export restores the line byte for byte.
Entries of subagents become events of type "foreign" that can be searched but are not rendered.
Events without a line are composed into one by `jsonl_writer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from segue.model import ids
from segue.model.anthropic.content_blocks import DIALECT
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
from segue.sources.claude.format.facts import SessionFacts, facts_of_entries, fork_parent
from segue.sources.claude.format.jsonl import Entry
from segue.sources.claude.format.paths import is_uuid, project_key, resolve_directory

from .transcript_line import TranscriptLine, line_uuid

_LINE_INFO = "kept"  # the key of the line information in an event's extra
# The extra of an event that has no entry of its own.
DERIVED = {DIALECT: {_LINE_INFO: {"more": True}}}


# From lines to events.


def creation_drafts(
    project: str,
    native_id: str,
    lines: Iterable[TranscriptLine],
    default_cwd: str,
    agent: AgentRef | None = None,
) -> list[Draft]:
    """Return the first events of an imported session: its creation and a title.

    `default_cwd` is its working directory if no line has one.
    """
    facts = facts_of_entries(_entries(lines))
    cwd = facts.directory or default_cwd
    real_cwd = resolve_directory(cwd)
    created = Created(
        cwd=cwd,
        real_cwd=None if real_cwd == cwd else real_cwd,
        origin=DIALECT,
        agent=agent,
        native_id=None if is_uuid(native_id) else native_id,
        git_branch=facts.git_branch,
        fork=None if facts.forked_from is None else ForkPoint(session=facts.forked_from, seq=1),
        extra={DIALECT: {"project": project, "session": native_id}},
    )
    bodies: list[AnyBody] = [created, *_title_changes(facts)]
    if facts.is_sidechain:  # a subagent's own transcript, which lists leave out
        bodies.append(InfoChanged(archived=True, by="auto", extra=DERIVED))
    return [Draft(body=body, at=facts.created_at) for body in bodies]


def session_updates(
    session: Session, project: str, lines: Iterable[TranscriptLine]
) -> list[AnyBody]:
    """Return the changes of directory, git branch and title that further lines imply."""
    facts, cwd_of_project = SessionFacts(), None
    is_other_project = project_key(session.directory) != project
    for entry in _entries(lines):
        facts.learn_entry(entry)
        if is_other_project and cwd_of_project is None:
            cwd = jsonl.parse_text(entry.get("cwd"))
            cwd_of_project = cwd if cwd and project_key(cwd) == project else None
    cwd = facts.relocated_cwd or cwd_of_project
    changes: list[AnyBody] = []
    if cwd and resolve_directory(cwd) != session.directory:
        extra = {DIALECT: {**DERIVED[DIALECT], "project": project}}
        changes.append(ConfigChanged(cwd=resolve_directory(cwd), extra=extra))
    if facts.git_branch and facts.git_branch != session.git_branch:
        changes.append(ConfigChanged(git_branch=facts.git_branch, extra=DERIVED))
    return changes + (_title_changes(facts) if session.title is None else [])


def drafts_from_lines(
    native_id: str,
    path: str,
    lines: Iterable[TranscriptLine],
    default_time: int,
    used_ids: set[str] | None = None,
    *,
    context: Iterable[TranscriptLine] = (),
) -> Iterator[Draft]:
    """Return the events of some lines of one transcript.

    `path` is the subagent's path, empty for the session's own transcript. `context` are the lines
    just before. An event's id is derived from its entry's uuid, so importing a line twice gives
    the same id. With `used_ids`, drafts pass through `drop_used_ids`.
    """
    encoder = _LineEncoder(native_id, path, default_time)
    for line in context:
        encoder.note(line)
    drafts = (draft for line in lines for draft in encoder.encode(line))
    return drafts if used_ids is None else drop_used_ids(drafts, used_ids)


def drop_used_ids(drafts: Iterable[Draft], used_ids: set[str]) -> Iterator[Draft]:
    """Return the drafts without ids that are used already, and add the new ids to `used_ids`.

    Several lines of one response report its cost; only the first of those drafts is returned. Any
    other draft with a used id comes from a repeated line, and loses its id.
    """
    for draft in drafts:
        if draft.id is not None and draft.id in used_ids:
            if isinstance(draft.body, ModelCalled):
                continue
            draft = replace(draft, id=None)
        elif draft.id is not None:
            used_ids.add(draft.id)
        yield draft


class _LineEncoder:
    """Convert the lines of one transcript to drafts, in order."""

    def __init__(self, native_id: str, path: str, default_time: int) -> None:
        self._translator = Translator(native_id, default_time)
        self._path = path
        self._path_info: dict[str, Any] = {"path": path} if path else {}
        self._time = default_time  # of the last entry
        self._line_number = 0

    def note(self, line: TranscriptLine) -> None:
        """Remember what later lines need to know of a line that is imported already."""
        for entry in line.entries:
            self._translate(entry)
        self._line_number += 1

    def encode(self, line: TranscriptLine) -> Iterator[Draft]:
        if not line.entries:
            yield Draft(at=self._time, body=self._foreign(line.text, {"line": line.text}))
        for index, entry in enumerate(line.entries):
            events = self._translate(entry)
            bodies = self._bodies(line, index, events)
            if line.inactive:
                bodies = [replace(body, extra={**body.extra, **OFF_BRANCH}) for body in bodies]
            for part, body in enumerate(bodies):
                yield Draft(id=_event_id(self._path, entry, body, part), at=self._time, body=body)
        self._line_number += 1

    def _translate(self, entry: Entry) -> list[Event]:
        events = self._translator.translate_line(self._line_number, b"", [entry])
        self._time = events[0].at
        return events

    def _bodies(self, line: TranscriptLine, index: int, events: Sequence[Event]) -> list[AnyBody]:
        """Return the bodies of an entry's events, with the information that restores its line."""
        entry, info = line.entries[index], dict[str, Any]()
        if index:
            info["glued"] = True
        elif line.text is not None:
            info["line"] = line.text
        if self._path:
            search_words = "\n".join(
                filter(None, (searchable_text(event.body) for event in events))
            )
            return [replace(self._foreign(entry, info), words=search_words)]
        first, *further_bodies = (event.body for event in events)
        if not (isinstance(first, Foreign) and first.raw is entry):
            info["entry"] = entry
        extra: dict[str, Any] = {DIALECT: {_LINE_INFO: info}}
        if isinstance(first, UserMessage) and sidecar.is_human_prompt(entry):
            extra |= STARTS_TURN
        return [
            replace(first, extra=extra),
            *(replace(body, extra=DERIVED) for body in further_bodies),
        ]

    def _foreign(self, raw: Any, info: dict[str, Any]) -> Foreign:
        return _foreign_body(raw, self._path, {**self._path_info, **info})


def _foreign_body(raw: Any, path: str, info: dict[str, Any]) -> Foreign:
    extra = {DIALECT: {_LINE_INFO: info}}
    return Foreign(dialect=DIALECT, raw=raw, thread=path or None, extra=extra)


def _event_id(path: str, entry: Entry, body: AnyBody, part: int) -> str | None:
    """Return the id of an entry's event number `part`; None if the entry has no uuid."""
    message = entry.get("message")
    response_id = message.get("id") if isinstance(message, dict) else None
    if isinstance(body, ModelCalled) and isinstance(response_id, str):
        return ids.derived_id(DIALECT, "response", response_id)  # several lines share it
    uuid = entry.get("uuid")
    if not uuid or not isinstance(uuid, str):
        return None
    first_id = uuid.lower() if is_uuid(uuid) and not path else ids.derived_id(DIALECT, path, uuid)
    return first_id if part == 0 else ids.derived_id(DIALECT, first_id, str(part))


def line_event_id(line: TranscriptLine) -> str | None:
    """Return the id of the first event of a line with one entry."""
    uuid = line_uuid(line)
    return uuid.lower() if uuid and is_uuid(uuid) else None


def deletion_marker(path: str) -> Foreign:
    """Return the event body that records that a subagent's transcript was deleted."""
    return _foreign_body(None, path, {"path": path})


def is_inherited(body: AnyBody) -> bool | None:
    """Return whether a fork copied the event's entry from its parent session.

    None for an event without an entry of its own: it belongs to the event before.
    """
    info = (body.extra.get(DIALECT) or {}).get(_LINE_INFO) or {}
    if "more" in info:
        return None
    entry = info.get("entry") or (body.raw if isinstance(body, Foreign) else None)
    return isinstance(entry, dict) and fork_parent(entry) is not None


def _entries(lines: Iterable[TranscriptLine]) -> Iterator[Entry]:
    return (entry for line in lines for entry in line.entries)


def _title_changes(facts: SessionFacts) -> list[AnyBody]:
    title = facts.prompt
    return [] if title is None else [InfoChanged(title=title, by="auto", extra=DERIVED)]


# From events to lines.


def native_session_id(session: Session) -> str:
    """Return the id that Claude Code uses for a session."""
    native_id: str = (session.extra.get(DIALECT) or {}).get("session") or session.id
    return native_id


def project_of(session: Session) -> str:
    """Return the key of the Claude Code project that a session belongs to."""
    project: str | None = (session.extra.get(DIALECT) or {}).get("project")
    return project_key(session.directory) if project is None else project


def line_info(event: Event) -> dict[str, Any] | None:
    """Return what restores an imported event's line; None for an event that was not imported.

    The keys: `path` of a subagent, `entry`, `line` (text that is not plain JSON), `glued` (not
    the first entry of its line), `more` (no entry of its own).
    """
    info: dict[str, Any] | None = (event.body.extra.get(DIALECT) or {}).get(_LINE_INFO)
    return info


def restore_line(body: AnyBody, info: dict[str, Any]) -> TranscriptLine:
    """Return the line that an event carries."""
    if (text := info.get("line")) is not None:
        entries = jsonl.parse_entries(text.encode("utf-8", "surrogateescape"))
        return TranscriptLine(tuple(entries), text)
    if isinstance(body, Foreign) and "entry" not in info:
        return TranscriptLine((body.raw,))
    return TranscriptLine((info["entry"],))


def subagent_events(events: Iterable[Event]) -> Iterator[tuple[Event, str]]:
    """Return the events that carry lines of subagents, each with the subagent's path."""
    for event in events:
        info = line_info(event) or {}
        if "path" in info and "glued" not in info:
            yield event, info["path"]


def is_deletion_marker(body: AnyBody) -> bool:
    """Return whether a subagent's event records that its transcript was deleted."""
    return isinstance(body, Foreign) and body.raw is None


def subagent_lines(events: Iterable[Event]) -> dict[str, list[TranscriptLine]]:
    """Return the lines of each subagent's transcript, by the subagent's path."""
    transcripts: dict[str, list[TranscriptLine]] = {}
    for event, path in subagent_events(events):
        if is_deletion_marker(event.body):
            transcripts.pop(path, None)
        else:
            line = restore_line(event.body, line_info(event) or {})
            transcripts.setdefault(path, []).append(line)
    return transcripts


def subagent_paths(events: Iterable[Event], known_paths: Iterable[str] = ()) -> list[str]:
    """Return the known paths of subagents, updated by further events."""
    paths = dict.fromkeys(known_paths)
    for event, path in subagent_events(events):
        if is_deletion_marker(event.body):
            paths.pop(path, None)
        else:
            paths[path] = None
    return list(paths)
