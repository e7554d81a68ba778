"""Taking a transcript in: what the index keeps of it, made here or by helpers.

Reading costs about as much as writing the full-text index does. So where there is much to read,
processes of their own read ahead, and this one writes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import IO, Any

import msgspec

from ...model import codec, text
from ...model.session import Session
from ..index import Item, Key, Text, tokens
from . import files, gather, scan
from .scan import Known

MOST = 4  # helpers; one writer keeps no more of them busy
_PIECE = 1 << 18  # bytes of text that helpers send at a time
_PIPE = 1 << 20
_decode: codec.Decoder[Known] = codec.Decoder(Known)


class Taken:
    """A transcript being read: its texts, and, when all of them were taken, what it comes to."""

    def __init__(self, more: bool, texts: Iterable[Text]) -> None:
        self.more = more  # whether the texts come to those that are known
        self.texts = texts
        self.item: Item | None = None

    def made(self) -> Item:
        assert self.item is not None, "there are texts left"
        return self.item


def take(descriptor: int, path: str, key: Key, state: bytes | None, workspace: str) -> Taken:
    """Read an open transcript on from a state, or from its beginning."""
    known = scan.begin(descriptor, _decode(state) if state else None)

    def texts() -> Iterator[Text]:
        for seq, body in scan.scan(descriptor, known):
            if words := text.searchable(body):
                yield Text(seq, words.encode("utf-8", "surrogatepass"), tokens(words))
        taken.item = _item(path, key, known, workspace)

    taken = Taken(known.end > 0, texts())
    return taken


def _item(path: str, key: Key, known: Known, workspace: str) -> Item:
    id, trashed_at = gather.named(path)
    session = scan.session(known, id, path, workspace, beside=key.beside_ns > 0)
    if session is not None and trashed_at is not None:
        session = msgspec.structs.replace(session, deleted_at=trashed_at)
    onward = None
    if known.continued_in is not None:
        onward = os.path.join(os.path.dirname(path), f"{known.continued_in}.jsonl")
    return Item(key=key, state=codec.encode(known), session=session, next=onward)


def key_of(status: os.stat_result, seen: Key) -> Key:
    """The key of what is read now, which may be newer than what was seen."""
    return Key(status.st_ino, status.st_size, status.st_mtime_ns, seen.beside_ns)


# Helpers. What passes between are frames of MessagePack, each with its length before it.


class _Wanted(msgspec.Struct, array_like=True):
    path: bytes
    key: Key


class _Made(msgspec.Struct, array_like=True):
    key: Key
    state: bytes
    session: bytes | None
    next: bytes | None


class _Frame(msgspec.Struct, array_like=True):
    """Some texts; the last frame of a transcript says what it comes to, if it was readable."""

    texts: list[tuple[int, bytes, str | None]]
    last: bool
    made: _Made | None = None


class Lost(Exception):
    """A helper went away; what it was to read is still to be read."""


class Helpers:
    """Processes that read transcripts ahead, each its share of them, in order."""

    def __init__(self, wanted: Sequence[tuple[str, Key]], workspace: str, count: int) -> None:
        self._helpers = [_begin(wanted[n::count], workspace) for n in range(count)]
        self._turn = {path: n % count for n, (path, _) in enumerate(wanted)}

    def take(self, path: str) -> Taken | None:
        """A transcript, in the order in which they were asked for; None if it is unreadable.

        Raises Lost, here or while the texts are taken.
        """
        helper = self._helpers[self._turn[path]]
        assert helper.stdout is not None
        first = _receive(helper.stdout)
        if first.last and first.made is None:
            return None

        def texts() -> Iterator[Text]:
            frame = first
            while True:
                for seq, data, words in frame.texts:
                    yield Text(seq, data, data.decode() if words is None else words)
                if frame.last:
                    break
                assert helper.stdout is not None
                frame = _receive(helper.stdout)
            if (made := frame.made) is None:
                raise files.Unreadable(path)
            taken.item = Item(
                key=made.key,
                state=made.state,
                session=None if made.session is None else _session(made.session),
                next=None if made.next is None else os.fsdecode(made.next),
            )

        taken = Taken(False, texts())
        return taken

    def close(self) -> None:
        for helper in self._helpers:
            helper.kill()
            helper.communicate()


def helpers_for(wanted: Sequence[tuple[str, Key]], workspace: str) -> Helpers | None:
    """Helpers for these transcripts; None where there is no core or no program for them."""
    count = min(MOST, (os.cpu_count() or 1) - 1)
    if count < 1 or not sys.executable:
        return None
    try:
        return Helpers(wanted, workspace, count)
    except OSError:
        return None


def _begin(wanted: Sequence[tuple[str, Key]], workspace: str) -> subprocess.Popen[bytes]:
    with tempfile.TemporaryFile() as told:
        for path, key in wanted:
            _send(told, _Wanted(os.fsencode(path), key))
        told.seek(0)
        helper = subprocess.Popen(
            [sys.executable, "-m", __name__, workspace],
            stdin=told,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    assert helper.stdout is not None
    with suppress(ImportError, AttributeError, OSError):  # only Linux has it
        import fcntl

        fcntl.fcntl(helper.stdout, fcntl.F_SETPIPE_SZ, _PIPE)
    return helper


def _send(file: IO[bytes], value: Any) -> None:
    data = msgspec.msgpack.encode(value)
    file.write(len(data).to_bytes(4))
    file.write(data)


def _receive(file: IO[bytes]) -> _Frame:
    size = int.from_bytes(file.read(4))
    data = file.read(size)
    if not size or len(data) < size:
        raise Lost
    return _frame(data)


_frame = msgspec.msgpack.Decoder(_Frame).decode
_session: codec.Decoder[Session] = codec.Decoder(Session)


def main(workspace: str) -> None:
    """Be a helper: read what standard input names, and tell of it on standard output."""
    wanted = msgspec.msgpack.Decoder(_Wanted)
    while size := int.from_bytes(sys.stdin.buffer.read(4)):
        one = wanted.decode(sys.stdin.buffer.read(size))
        out, path = sys.stdout.buffer, os.fsdecode(one.path)
        texts: list[tuple[int, bytes, str | None]] = []
        held = 0
        made: _Made | None = None
        try:
            with files.opened(path) as (descriptor, status):
                taken = take(descriptor, path, key_of(status, one.key), None, workspace)
                for seq, data, words in taken.texts:
                    # Most are indexed as they are, and need not be sent twice.
                    same = data.isascii() and data == words.encode()
                    texts.append((seq, data, None if same else words))
                    held += len(data)
                    if held > _PIECE:
                        _send(out, _Frame(texts, False))
                        texts, held = [], 0
                item = taken.made()
                made = _Made(
                    item.key,
                    item.state,
                    None if item.session is None else codec.encode(item.session),
                    None if item.next is None else os.fsencode(item.next),
                )
        except files.Unreadable:
            texts = []
        _send(out, _Frame(texts, True, made))
        out.flush()


if __name__ == "__main__":
    main(sys.argv[1])
