"""A page of a session's messages: the way of the conversation, and only the page's lines read."""

from __future__ import annotations

from array import array
from typing import Any

from segue.sources.claude.format import safe_io
from segue.sources.claude.format.jsonl import Entry
from segue.sources.claude.sdk.sdk_types import SessionMessage

from . import active_branch, ancestry, entry_table
from .entry_table import ATTACHMENT, KINDS, Lookup, Transcript


def messages(
    path: str, limit: int | None = None, offset: int = 0, system: bool = False
) -> list[SessionMessage]:
    """The messages of the conversation in a transcript. Raises Unreadable."""
    with safe_io.opened(path) as (descriptor, _):
        t = entry_table.of_file(descriptor)
        entry = entry_table.Entries(descriptor, t)
        way = active_branch.conversation(t, entry)
        shown = array("i", (number for number in way if active_branch.is_shown(t, number, system)))
        return of_page(t, page(shown, limit, offset), entry)


def of_entries(
    entries: list[Entry],
    limit: int | None = None,
    offset: int = 0,
    agent: bool = False,
    system: bool = False,
) -> list[SessionMessage]:
    """The same of entries that are already read; for an agent all that it did."""
    t = entry_table.of_entries(entries)

    def entry(number: int) -> Entry:
        return entries[t.starts[number]]

    if agent:
        shown = array("i", (at for at in active_branch.newest(t, entry) if ancestry.is_said(t, at)))
    else:
        way = active_branch.conversation(t, entry)
        shown = array("i", (at for at in way if active_branch.is_shown(t, at, system)))
    return of_page(t, page(shown, limit, offset), entry)


def of_page(t: Transcript, numbers: array[int], entry: Lookup) -> list[SessionMessage]:
    """The messages that some entries hold."""
    found = ((number, entry(number)) for number in numbers)
    return [message(read, t.kinds[number]) for number, read in found if read]


def page(items: array[int], limit: int | None, offset: int) -> array[int]:
    """A slice as the SDK counts: no limit unless it is positive, and no offset below zero."""
    start = max(0, offset)
    return items[start : start + limit] if limit is not None and limit > 0 else items[start:]


def message(entry: Entry, kind: int) -> SessionMessage:
    """An entry as a message; one that waited while the model was busy is the user's."""
    said = entry.get("message")
    name: Any = KINDS[kind]
    if kind == ATTACHMENT:
        attached = entry.get("attachment")
        name, said = "user", {"role": "user", "content": (attached or {}).get("prompt")}
    session = entry.get("sessionId")
    return SessionMessage(name, entry["uuid"], session if isinstance(session, str) else "", said)
