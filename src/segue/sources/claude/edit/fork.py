"""A fork: the conversation's entries under fresh ids, in a transcript of their own."""

from __future__ import annotations

import os
import uuid
from array import array
from collections.abc import Iterable, Iterator
from typing import Any

from segue.model import clock, codec
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
from segue.sources.claude.format import jsonl, safe_io, sidecar
from segue.sources.claude.format.append import clean_title
from segue.sources.claude.format.jsonl import Entry
from segue.sources.claude.format.paths import TranscriptFile
from segue.sources.claude.sdk import quick_info

# What an entry says of the session or the process that wrote it, and not of the conversation.
_LEFT_OUT = (
    "teamName",
    "agentName",
    "slug",
    "sessionKind",
    "sourceToolAssistantUUID",
    "summarizedTurnPromptUuids",
    "droppedPromptUuids",
    "turnAttributionKey",
)
# Lines beside the conversation that hold for the fork too: the last of each, or all of them.
_LAST = frozenset({"atis-latch", "tools-used", "relocated", "history-suppression", "derived-from"})
_ALL = frozenset({"data-flow-records", "data-flow-incomplete"})
_REPLACED = "content-replacement"
_TAKEN = _LAST | _ALL | {_REPLACED}


def fork(
    place: TranscriptFile, title: str | None = None, up_to: str | None = None, id: str | None = None
) -> str:
    """Write the fork beside its source, and give its id. Raises ValueError and Unreadable.

    The new file appears whole: it is written under another name first.
    """
    title = clean_title(title or "") or default_title(place)
    id = id or str(uuid.uuid4())
    directory = os.path.dirname(place.path)
    temporary = os.path.join(directory, f".{id}.part")
    with safe_io.open_file(place.path) as (descriptor, _):
        t = entry_table.table_from_file(descriptor)
        last = None if up_to is None else _last(t, place.id, up_to)
        taken = _taken(t, last)
        if not taken:
            raise ValueError(f"Session {place.id} has no messages to fork")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | safe_io.SAFE_OPEN_FLAGS
        try:
            with os.fdopen(os.open(temporary, flags, 0o600), "wb") as out:
                entry = entry_table.EntryReader(descriptor, t)
                beside = _beside(_apart(descriptor))
                for forked in _entries(t, taken, last, place.id, id, title, entry, beside):
                    out.write(codec.encode(forked) + b"\n")
                out.flush()
                os.fsync(out.fileno())
            os.rename(temporary, os.path.join(directory, f"{id}.jsonl"))
        except BaseException:
            if os.path.lexists(temporary):
                os.unlink(temporary)
            raise
    return id


def fork_entries(
    entries: list[Entry], source: str, title: str, up_to: str | None = None
) -> tuple[str, list[Entry]]:
    """The same for entries that are already read: the fork's id, and its entries."""
    id = str(uuid.uuid4())
    t = entry_table.table_from_entries(entries)
    last = None if up_to is None else _last(t, source, up_to)
    taken = _taken(t, last)
    if not taken:
        raise ValueError(f"Session {source} has no messages to fork")
    beside = _beside(entries)
    return id, list(
        _entries(t, taken, last, source, id, title, lambda at: entries[t.starts[at]], beside)
    )


def default_title(place: TranscriptFile) -> str:
    """What a fork is called when nobody says."""
    facts = quick_info.read_facts(place.path) or quick_info.SessionFacts(0, 0)
    name = facts.custom_title or sidecar.read_title(place.path) or facts.ai_title
    return fork_title(name or facts.first_prompt or facts.command)


def fork_title(name: str | None) -> str:
    """The title of the fork of a session of that name."""
    return f"{clean_title(name or 'Forked session')} (fork)"


def _last(t: EntryTable, id: str, up_to: str) -> int:
    """The entry that a fork up to a message ends with, in the order of the file."""
    last = t.find(up_to)
    if last is None or t.marks[last] & SIDECHAIN:
        raise ValueError(f"Message {up_to} not found in session {id}")
    # A boundary without the summary that follows it would be a fork that begins with nothing.
    for boundary in reversed(t.compactions):
        if boundary <= last and not any(_speaks(t, at) for at in range(boundary, last + 1)):
            last = boundary - 1
    return last


def _taken(t: EntryTable, last: int | None) -> array[int]:
    """The entries that a fork takes over; progress is over, and agents ran elsewhere."""
    end = len(t) if last is None else last + 1
    taken = array("i", (at for at in range(end) if _is_taken(t, at)))
    return taken if any(_speaks(t, at) for at in taken) else array("i")


def _speaks(t: EntryTable, number: int) -> bool:
    return t.kinds[number] in (USER, ASSISTANT)


def _is_taken(t: EntryTable, number: int) -> bool:
    kept = t.kinds[number] != PROGRESS and not t.marks[number] & SIDECHAIN
    return kept and number not in t.replaced


def _entries(
    t: EntryTable,
    taken: array[int],
    last: int | None,
    source: str,
    id: str,
    title: str,
    read_entry: EntryLookup,
    beside: Iterable[Entry],
) -> Iterator[Entry]:
    now = clock.to_rfc3339(clock.now())[:-4] + "Z"
    fresh = _Fresh(t, taken)
    for number in taken:
        entry, parent = read_entry(number), fresh.parent(number)
        forked = {"parentUuid": parent, **entry, "isSidechain": False}
        forked |= {"uuid": fresh.id(number), "parentUuid": parent, "sessionId": id}
        if entry.get("logicalParentUuid"):
            forked["logicalParentUuid"] = fresh.of(entry["logicalParentUuid"])
        if number in t.compactions:
            forked["compactMetadata"] = fresh.renamed(_compaction(t, number, last))
        if number == taken[-1]:
            forked["timestamp"] = now
        for name in _LEFT_OUT:
            forked.pop(name, None)
        forked["forkedFrom"] = {"sessionId": source, "messageUuid": entry.get("uuid")}
        yield forked
    stamp = {"uuid": str(uuid.uuid4()), "timestamp": now}
    for entry in beside:
        yield {**entry, "sessionId": id, **(stamp if entry["type"] == _REPLACED else {})}
    stamp["uuid"] = str(uuid.uuid4())
    yield {"type": "custom-title", "sessionId": id, "customTitle": title, **stamp}


class _Fresh:
    """The ids that the entries of a fork get."""

    def __init__(self, t: EntryTable, taken: array[int]) -> None:
        self._t = t
        self._taken = bytearray(len(t))
        for number in taken:
            self._taken[number] = 1
        self._parents = active_branch.repair_parents(t)
        self._known: dict[int, int] = {}
        self._random = os.urandom(16 * len(t))

    def id(self, number: int) -> str:
        number = self._t.last(number)
        return str(uuid.UUID(bytes=self._random[16 * number : 16 * number + 16], version=4))

    def parent(self, number: int) -> str | None:
        """The id of the nearest entry above that is taken over."""
        start = self._parents[number]
        at = nearest_ancestor(self._parents, start, self._taken.__getitem__, self._known)
        return self.id(at) if at >= 0 else None

    def of(self, old: Any) -> str | None:
        """The id that stands for an old one."""
        number = self._t.find(old)
        return self.id(number) if number is not None and self._taken[number] else None

    def renamed(self, value: Any, depth: int = 8) -> Any:
        """A value with every old id in it exchanged; lists leave out the ids that went."""
        if isinstance(value, dict) and depth:
            return {name: self.renamed(item, depth - 1) for name, item in value.items()}
        if isinstance(value, list) and depth:
            known = [item for item in value if self._t.find(item) is None or self.of(item)]
            return [self.renamed(item, depth - 1) for item in known]
        return self.of(value) or value


def _compaction(t: EntryTable, boundary: int, last: int | None) -> Entry:
    """What a boundary says of its compaction.

    A fork that ends with the summary leaves out the messages that were kept behind it.
    """
    told = t.compactions[boundary]
    if last is None or active_branch.preserved_anchor(t, boundary) != last:
        return told
    kept = ("preservedMessages", "preservedSegment")
    return {name: value for name, value in told.items() if name not in kept}


def _apart(descriptor: int) -> Iterator[Entry]:
    """The entries of an open transcript that are no part of the conversation."""
    for _, size, data in safe_io.read_lines(descriptor):
        if size != len(data) or data.startswith(b'{"parentUuid":'):
            continue
        kinds = {
            found.type for found in entry_table.header_decoder(data) if isinstance(found.type, str)
        }
        if not kinds.isdisjoint(_TAKEN):
            yield from jsonl.parse_entries(data)


def _beside(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries beside the conversation that a fork takes over, replaced contents as one."""
    last: dict[str, Entry] = {}
    every: list[Entry] = []
    replaced: list[Any] = []
    for entry in entries:
        kind = entry.get("type")
        if not isinstance(kind, str):
            continue
        if kind == _REPLACED and isinstance(entry.get("replacements"), list):
            replaced += entry["replacements"]
        elif kind in _LAST:
            last[kind] = entry
        elif kind in _ALL:
            every.append(entry)
    if replaced:
        yield {"type": _REPLACED, "replacements": replaced}
    yield from every
    yield from last.values()
