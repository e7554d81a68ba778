"""Taking a transcript in: what the index keeps of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec

from segue.model import codec, search_text
from segue.sources.claude.events import subagent_threads
from segue.sources.index.database import Item, Key, Text
from segue.sources.index.writer import tokens

from . import discovery, transcript_summary
from .transcript_summary import Known

_known_of: codec.Decoder[Known] = codec.Decoder(Known)


class Taken:
    """A transcript being read: its texts, and, when all of them were taken, what it comes to."""

    def __init__(self, more: bool, texts: Iterable[Text]) -> None:
        self.more = more  # whether the texts come to those that are known
        self.texts = texts
        self.item: Item | None = None

    def made(self) -> Item:
        assert self.item is not None, "there are texts left"
        return self.item


def known_of(state: bytes) -> Known:
    """What a state says; nothing where it cannot be read, which makes the file be read anew."""
    try:
        return _known_of(state)
    except msgspec.DecodeError:
        return Known()


class Lost(Exception):
    """A helper went away; what it was to read is still to be read."""


def take(descriptor: int, path: str, key: Key, state: bytes | None, workspace: str) -> Taken:
    """Read an open transcript on from a state, or from its beginning."""
    known = transcript_summary.begin(descriptor, known_of(state) if state else None)
    beside = key.beside_ns > 0
    if not subagent_threads.is_whole(path, known, beside):
        known = Known()

    def texts() -> Iterator[Text]:
        own = transcript_summary.scan(descriptor, known)
        for seq, body in chain(own, subagent_threads.read(path, known, beside)):
            if words := search_text.searchable_text(body):
                yield Text(seq, words.encode("utf-8", "surrogatepass"), tokens(words))
        taken.item = _item(path, key, known, workspace)

    taken = Taken(known.end > 0, texts())
    return taken


def _item(path: str, key: Key, known: Known, workspace: str) -> Item:
    id, trashed_at = discovery.named(path)
    session = transcript_summary.session(known, id, path, workspace, beside=key.beside_ns > 0)
    if session is not None and trashed_at is not None:
        session = msgspec.structs.replace(session, deleted_at=trashed_at)
    onward = None
    if known.continued_in is not None:
        onward = os.path.join(os.path.dirname(path), f"{known.continued_in}.jsonl")
    return Item(key=key, state=codec.encode(known), session=session, next=onward)


def key_of(status: os.stat_result, seen: Key) -> Key:
    """The key of what is read now, which may be newer than what was seen."""
    return Key(status.st_ino, status.st_size, status.st_mtime_ns, seen.beside_ns)
