"""Read one page of a conversation's messages; only the lines of that page are parsed in full."""

from __future__ import annotations

from array import array
from typing import Any

from segue.model.anthropic.sdk_types import SessionMessage, page_slice
from segue.sources import safe_io
from segue.sources.claude.conversation import active_branch, ancestry, entry_table
from segue.sources.claude.conversation.entry_table import (
    ATTACHMENT,
    KINDS,
    EntryLookup,
    EntryTable,
)
from segue.sources.claude.format import subagents
from segue.sources.claude.format.jsonl import Entry, parse_text


def read_messages(
    path: str, limit: int | None = None, offset: int = 0, *, include_system: bool = False
) -> list[SessionMessage]:
    """Return the messages of the conversation in a transcript. Raise UnreadableFile."""
    with safe_io.open_for_reading(path) as (descriptor, _):
        table = entry_table.table_from_file(descriptor)
        read_entry = entry_table.EntryReader(descriptor, table)
        numbers = _visible_numbers(table, read_entry, include_system=include_system)
        return load_messages(table, numbers[page_slice(limit, offset)], read_entry)


def read_agent_messages(
    session: str, agent: str, limit: int | None = None, offset: int = 0
) -> list[SessionMessage]:
    """Return the messages of one subagent; empty if it is unknown. Raise UnreadableFile."""
    transcripts = subagents.list_agent_transcripts(session)
    path = next((path for id, path in transcripts if id == agent), None)
    if path is None:
        return []
    with safe_io.open_for_reading(path) as (descriptor, _):
        table = entry_table.table_from_file(descriptor)
        read_entry = entry_table.EntryReader(descriptor, table)
        numbers = _agent_numbers(table, read_entry)[page_slice(limit, offset)]
        messages = load_messages(table, numbers, read_entry)
    tool_use_id, parent_agent_id = subagents.parse_started_by(subagents.read_metadata(path))
    for message in messages:
        message.parent_tool_use_id, message.parent_agent_id = tool_use_id, parent_agent_id
    return messages


def messages_from_entries(
    entries: list[Entry],
    limit: int | None = None,
    offset: int = 0,
    *,
    is_agent: bool = False,
    include_system: bool = False,
) -> list[SessionMessage]:
    """Return the messages of parsed entries: a session's conversation, or all of a subagent's."""
    table = entry_table.table_from_entries(entries)

    def read_entry(number: int) -> Entry:
        return entries[table.starts[number]]

    if is_agent:
        numbers = _agent_numbers(table, read_entry)
    else:
        numbers = _visible_numbers(table, read_entry, include_system=include_system)
    return load_messages(table, numbers[page_slice(limit, offset)], read_entry)


def _visible_numbers(
    table: EntryTable, read_entry: EntryLookup, *, include_system: bool
) -> array[int]:
    branch = active_branch.find_active_branch(table, read_entry)
    return array(
        "i",
        (n for n in branch if active_branch.is_visible(table, n, include_system=include_system)),
    )


def _agent_numbers(table: EntryTable, read_entry: EntryLookup) -> array[int]:
    branch = active_branch.find_newest_branch(table, read_entry)
    return array("i", (number for number in branch if ancestry.is_message(table, number)))


def load_messages(
    table: EntryTable, numbers: array[int], read_entry: EntryLookup
) -> list[SessionMessage]:
    """Return the messages of some entries, without those that can no longer be read."""
    entries = ((number, read_entry(number)) for number in numbers)
    return [message_from_entry(entry, table.kinds[number]) for number, entry in entries if entry]


def message_from_entry(entry: Entry, kind: int) -> SessionMessage:
    """Return an entry as a message. A prompt that was queued while the model worked is a user's."""
    message = entry.get("message")
    name: Any = KINDS[kind]
    if kind == ATTACHMENT:
        attachment = entry.get("attachment")
        name, message = "user", {"role": "user", "content": (attachment or {}).get("prompt")}
    return SessionMessage(name, entry["uuid"], parse_text(entry.get("sessionId")) or "", message)
