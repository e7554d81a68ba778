"""A page of a session's messages: the way of the conversation, and only the page's lines read."""

from __future__ import annotations

from array import array
from typing import Any

from segue.sources.claude.conversation import active_branch, ancestry, entry_table
from segue.sources.claude.conversation.entry_table import ATTACHMENT, KINDS, EntryLookup, EntryTable
from segue.sources.claude.format import safe_io, subagents
from segue.sources.claude.format.jsonl import Entry

from .sdk_types import SessionMessage


def read_messages(
    path: str, limit: int | None = None, offset: int = 0, system: bool = False
) -> list[SessionMessage]:
    """The messages of the conversation in a transcript. Raises Unreadable."""
    with safe_io.open_for_reading(path) as (descriptor, _):
        t = entry_table.table_from_file(descriptor)
        entry = entry_table.EntryReader(descriptor, t)
        way = active_branch.find_active_branch(t, entry)
        shown = array(
            "i", (number for number in way if active_branch.is_visible(t, number, system))
        )
        return load_messages(t, slice_page(shown, limit, offset), entry)


def read_agent_messages(
    session: str, agent: str, limit: int | None = None, offset: int = 0
) -> list[SessionMessage]:
    """The messages of one agent; empty when there is none of that id. Raises Unreadable."""
    path = next(
        (path for id, path in subagents.list_agent_transcripts(session) if id == agent), None
    )
    if path is None:
        return []
    with safe_io.open_for_reading(path) as (descriptor, _):
        t = entry_table.table_from_file(descriptor)
        entry = entry_table.EntryReader(descriptor, t)
        shown = array(
            "i",
            (at for at in active_branch.find_newest_branch(t, entry) if ancestry.is_message(t, at)),
        )
        found = load_messages(t, slice_page(shown, limit, offset), entry)
    call, parent = subagents.parse_started_by(subagents.read_metadata(path))
    for message in found:
        message.parent_tool_use_id, message.parent_agent_id = call, parent
    return found


def messages_from_entries(
    entries: list[Entry],
    limit: int | None = None,
    offset: int = 0,
    agent: bool = False,
    system: bool = False,
) -> list[SessionMessage]:
    """The same of entries that are already read; for an agent all that it did."""
    t = entry_table.table_from_entries(entries)

    def entry(number: int) -> Entry:
        return entries[t.starts[number]]

    if agent:
        shown = array(
            "i",
            (at for at in active_branch.find_newest_branch(t, entry) if ancestry.is_message(t, at)),
        )
    else:
        way = active_branch.find_active_branch(t, entry)
        shown = array("i", (at for at in way if active_branch.is_visible(t, at, system)))
    return load_messages(t, slice_page(shown, limit, offset), entry)


def load_messages(t: EntryTable, numbers: array[int], entry: EntryLookup) -> list[SessionMessage]:
    """The messages that some entries hold."""
    found = ((number, entry(number)) for number in numbers)
    return [message_from_entry(read, t.kinds[number]) for number, read in found if read]


def slice_page(items: array[int], limit: int | None, offset: int) -> array[int]:
    """A slice as the SDK counts: no limit unless it is positive, and no offset below zero."""
    start = max(0, offset)
    return items[start : start + limit] if limit is not None and limit > 0 else items[start:]


def message_from_entry(entry: Entry, kind: int) -> SessionMessage:
    """An entry as a message; one that waited while the model was busy is the user's."""
    said = entry.get("message")
    name: Any = KINDS[kind]
    if kind == ATTACHMENT:
        attached = entry.get("attachment")
        name, said = "user", {"role": "user", "content": (attached or {}).get("prompt")}
    session = entry.get("sessionId")
    return SessionMessage(name, entry["uuid"], session if isinstance(session, str) else "", said)
