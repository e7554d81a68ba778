"""A page of a session's messages: the way of the conversation, and only the page's lines read."""

from __future__ import annotations

from array import array
from typing import Any

from . import chain, files, transcript, ways
from .read import Entry
from .transcript import ATTACHMENT, KINDS, Lookup, Transcript
from .values import SessionMessage


def messages(
    path: str, limit: int | None = None, offset: int = 0, system: bool = False
) -> list[SessionMessage]:
    """The messages of the conversation in a transcript. Raises Unreadable."""
    with files.opened(path) as (descriptor, _):
        t = transcript.of_file(descriptor)
        entry = transcript.Entries(descriptor, t)
        way = chain.conversation(t, entry)
        shown = array("i", (number for number in way if chain.is_shown(t, number, system)))
        return of_page(t, page(shown, limit, offset), entry)


def of_entries(
    entries: list[Entry],
    limit: int | None = None,
    offset: int = 0,
    agent: bool = False,
    system: bool = False,
) -> list[SessionMessage]:
    """The same of entries that are already read; for an agent all that it did."""
    t = transcript.of_entries(entries)

    def entry(number: int) -> Entry:
        return entries[t.starts[number]]

    if agent:
        shown = array("i", (at for at in chain.newest(t, entry) if ways.is_said(t, at)))
    else:
        way = chain.conversation(t, entry)
        shown = array("i", (at for at in way if chain.is_shown(t, at, system)))
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
