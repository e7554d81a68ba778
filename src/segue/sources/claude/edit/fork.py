"""Fork a session: copy its conversation under new ids into a new transcript."""

from __future__ import annotations

import os
import uuid
from array import array
from collections.abc import Iterable, Iterator
from typing import Any

from segue.model import clock, codec
from segue.sources import safe_io
from segue.sources.claude.conversation import active_branch, entry_table
from segue.sources.claude.conversation.ancestry import nearest_ancestor
from segue.sources.claude.conversation.entry_table import (
    ASSISTANT,
    PROGRESS,
    SIDECHAIN,
    USER,
    EntryLookup,
    EntryTable,
)
from segue.sources.claude.format import jsonl, sidecar
from segue.sources.claude.format.append import clean_title
from segue.sources.claude.format.facts import SessionFacts
from segue.sources.claude.format.jsonl import Entry
from segue.sources.claude.format.paths import TranscriptFile
from segue.sources.claude.sdk import quick_info

# Fields about the session or process that wrote an entry, not about the conversation.
_DROPPED_FIELDS = (
    "teamName",
    "agentName",
    "slug",
    "sessionKind",
    "sourceToolAssistantUUID",
    "summarizedTurnPromptUuids",
    "droppedPromptUuids",
    "turnAttributionKey",
)
# Types of entries outside the conversation that a fork copies: the last of each type, or all.
_COPY_LAST = frozenset(
    {"atis-latch", "tools-used", "relocated", "history-suppression", "derived-from"}
)
_COPY_ALL = frozenset({"data-flow-records", "data-flow-incomplete"})
_REPLACEMENT = "content-replacement"
_COPIED_TYPES = _COPY_LAST | _COPY_ALL | {_REPLACEMENT}
_PRESERVED = ("preservedMessages", "preservedSegment")
_MAX_METADATA_DEPTH = 8


def fork(
    transcript: TranscriptFile,
    title: str | None = None,
    up_to: str | None = None,
    id: str | None = None,
) -> str:
    """Write a fork next to its source and return its id. Raise ValueError or UnreadableFile.

    The fork is written under a temporary name first, so it appears complete.
    """
    title = clean_title(title or "") or _default_title(transcript)
    id = id or str(uuid.uuid4())
    directory = os.path.dirname(transcript.path)
    temporary = os.path.join(directory, f".{id}.part")
    with safe_io.open_file(transcript.path) as (descriptor, _):
        table = entry_table.table_from_file(descriptor)
        plan = _ForkPlan(table, transcript.id, id, title, up_to)
        entries = plan.entries(
            entry_table.EntryReader(descriptor, table), _entries_outside_conversation(descriptor)
        )
        try:
            safe_io.write_file(temporary, (codec.encode(entry) + b"\n" for entry in entries))
            os.rename(temporary, os.path.join(directory, f"{id}.jsonl"))
        except BaseException:
            if os.path.lexists(temporary):
                os.unlink(temporary)
            raise
    return id


def fork_entries(
    entries: list[Entry], source: str, title: str, up_to: str | None = None
) -> tuple[str, list[Entry]]:
    """Fork parsed entries. Return the id and the entries of the fork. Raise ValueError."""
    id = str(uuid.uuid4())
    table = entry_table.table_from_entries(entries)
    plan = _ForkPlan(table, source, id, title, up_to)
    return id, list(plan.entries(lambda number: entries[table.starts[number]], entries))


def _default_title(transcript: TranscriptFile) -> str:
    facts = quick_info.read_facts(transcript.path) or SessionFacts()
    facts.custom_title = facts.custom_title or sidecar.read_title(transcript.path)
    return fork_title(facts)


def fork_title(facts: SessionFacts) -> str:
    """Return the title of a fork for which the caller names none."""
    title = facts.custom_title or facts.ai_title or facts.prompt
    return f"{clean_title(title or 'Forked session')} (fork)"


class _ForkPlan:
    """Which entries a fork copies. Raise ValueError if there are none."""

    def __init__(
        self, table: EntryTable, source: str, id: str, title: str, up_to: str | None
    ) -> None:
        self._table = table
        self._source, self._id, self._title = source, id, title
        self._last = None if up_to is None else _find_last(table, source, up_to)
        self._copied = _copied_numbers(table, self._last)
        if not self._copied:
            raise ValueError(f"Session {source} has no messages to fork")

    def entries(self, read_entry: EntryLookup, source: Iterable[Entry]) -> Iterator[Entry]:
        """Yield the entries of the fork. `source` has the source's entries outside of the tree."""
        now = jsonl.format_timestamp(clock.now())
        ids = _ForkIds(self._table, self._copied)
        for number in self._copied:
            is_last = number == self._copied[-1]
            yield self._fork_entry(number, read_entry(number), ids, now if is_last else None)
        stamp = {"uuid": str(uuid.uuid4()), "timestamp": now}
        for entry in _copied_outside_conversation(source):
            is_replacement = entry["type"] == _REPLACEMENT
            yield {**entry, "sessionId": self._id, **(stamp if is_replacement else {})}
        stamp["uuid"] = str(uuid.uuid4())
        title = {"type": "custom-title", "sessionId": self._id, "customTitle": self._title}
        yield {**title, **stamp}

    def _fork_entry(self, number: int, entry: Entry, ids: _ForkIds, timestamp: str | None) -> Entry:
        parent = ids.parent_of(number)
        forked = {"parentUuid": parent, **entry, "isSidechain": False}
        forked |= {"uuid": ids.id_of(number), "parentUuid": parent, "sessionId": self._id}
        if entry.get("logicalParentUuid"):
            forked["logicalParentUuid"] = ids.replacement_for(entry["logicalParentUuid"])
        if number in self._table.compactions:
            forked["compactMetadata"] = ids.replace_in(self._compaction_metadata(number))
        if timestamp is not None:
            forked["timestamp"] = timestamp
        for name in _DROPPED_FIELDS:
            forked.pop(name, None)
        forked["forkedFrom"] = {"sessionId": self._source, "messageUuid": entry.get("uuid")}
        return forked

    def _compaction_metadata(self, boundary: int) -> Entry:
        """Return the metadata of a compaction boundary.

        A fork that ends with the summary leaves out the messages that were preserved after it.
        """
        metadata = self._table.compactions[boundary]
        anchor = active_branch.preserved_anchor(self._table, boundary)
        if self._last is None or anchor != self._last:
            return metadata
        return {name: value for name, value in metadata.items() if name not in _PRESERVED}


class _ForkIds:
    """The new ids of a fork's entries."""

    def __init__(self, table: EntryTable, copied: array[int]) -> None:
        self._table = table
        self._is_copied = bytearray(len(table))
        for number in copied:
            self._is_copied[number] = 1
        self._parents = active_branch.repair_parents(table)
        self._known_ancestors: dict[int, int] = {}
        self._random = os.urandom(16 * len(table))

    def id_of(self, number: int) -> str:
        """Return the new id of an entry."""
        number = self._table.last(number)
        return str(uuid.UUID(bytes=self._random[16 * number : 16 * number + 16], version=4))

    def parent_of(self, number: int) -> str | None:
        """Return the new id of the nearest ancestor that is copied, or None."""
        ancestor = nearest_ancestor(
            self._parents,
            self._parents[number],
            self._is_copied.__getitem__,
            self._known_ancestors,
        )
        return self.id_of(ancestor) if ancestor >= 0 else None

    def replacement_for(self, old_id: Any) -> str | None:
        """Return the new id for an old one; None if that entry is not copied."""
        number = self._table.find(old_id)
        return self.id_of(number) if number is not None and self._is_copied[number] else None

    def replace_in(self, value: Any, depth: int = _MAX_METADATA_DEPTH) -> Any:
        """Return a value with every old id replaced. Lists lose the ids that are not copied."""
        if isinstance(value, dict) and depth:
            return {name: self.replace_in(item, depth - 1) for name, item in value.items()}
        if isinstance(value, list) and depth:
            items = [
                item
                for item in value
                if self._table.find(item) is None or self.replacement_for(item)
            ]
            return [self.replace_in(item, depth - 1) for item in items]
        return self.replacement_for(value) or value


def _find_last(table: EntryTable, id: str, up_to: str) -> int:
    """Return the last entry, in file order, of a fork up to a message."""
    last = table.find(up_to)
    if last is None or table.marks[last] & SIDECHAIN:
        raise ValueError(f"Message {up_to} not found in session {id}")
    # A boundary without the summary that follows it would start the fork with no context.
    for boundary in reversed(table.compactions):
        if boundary <= last and not any(_is_turn(table, n) for n in range(boundary, last + 1)):
            last = boundary - 1
    return last


def _copied_numbers(table: EntryTable, last: int | None) -> array[int]:
    """Return the entries that a fork copies; none if there is no message among them."""
    end = len(table) if last is None else last + 1
    copied = array("i", (number for number in range(end) if _is_copied(table, number)))
    return copied if any(_is_turn(table, number) for number in copied) else array("i")


def _is_turn(table: EntryTable, number: int) -> bool:
    return table.kinds[number] in (USER, ASSISTANT)


def _is_copied(table: EntryTable, number: int) -> bool:
    # Progress reports are over, and subagents have transcripts of their own.
    is_main = table.kinds[number] != PROGRESS and not table.marks[number] & SIDECHAIN
    return is_main and number not in table.replaced


def _entries_outside_conversation(descriptor: int) -> Iterator[Entry]:
    """Yield the entries of an open transcript that are of a type that a fork copies."""
    for _, size, data in safe_io.read_lines(descriptor):
        if size != len(data) or data.startswith(b'{"parentUuid":'):
            continue
        headers = entry_table.header_decoder.decode_line(data)
        types = {header.type for header in headers if isinstance(header.type, str)}
        if not types.isdisjoint(_COPIED_TYPES):
            yield from jsonl.parse_entries(data)


def _copied_outside_conversation(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries outside the conversation that a fork copies, with one replacement entry."""
    last_of_type: dict[str, Entry] = {}
    all_of_type: list[Entry] = []
    replacements: list[Any] = []
    for entry in entries:
        kind = entry.get("type")
        if not isinstance(kind, str):
            continue
        if kind == _REPLACEMENT and isinstance(entry.get("replacements"), list):
            replacements += entry["replacements"]
        elif kind in _COPY_LAST:
            last_of_type[kind] = entry
        elif kind in _COPY_ALL:
            all_of_type.append(entry)
    if replacements:
        yield {"type": _REPLACEMENT, "replacements": replacements}
    yield from all_of_type
    yield from last_of_type.values()
