"""Processes that read transcripts for the index, where there is much to read.

Reading costs about as much as writing the full-text index does. So helpers read ahead, and the
process that asked for it writes. What passes between them are frames of MessagePack, each with
its length before it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import IO, Any

import msgspec

from segue.model import codec
from segue.model.session import Session
from segue.sources.claude.format import safe_io
from segue.sources.index.database import Item, Key, Text

from .index_entry import Lost, Taken, key_of, take

MOST = 4  # helpers; one writer keeps no more of them busy
_PIECE = 1 << 18  # bytes of text that helpers send at a time
_PIPE = 1 << 20  # bytes that helpers may be ahead
_OWN = 3 << 20  # bytes that are read here, since helpers take their time to start


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


class Helpers:
    """Processes that read transcripts ahead, each its share of them, in order."""

    def __init__(self, wanted: Sequence[tuple[str, Key]], workspace: str, count: int) -> None:
        self._helpers = [_Helper(wanted[n::count], workspace) for n in range(count)]
        self._turn = {path: n % count for n, (path, _) in enumerate(wanted)}

    def has(self, path: str) -> bool:
        """Whether a helper reads this one."""
        return path in self._turn

    def take(self, path: str) -> Taken | None:
        """A transcript, in the order in which they were asked for; None if it is unreadable.

        Raises Lost, here or while the texts are taken.
        """
        helper = self._helpers[self._turn[path]]
        first = helper.frame()
        if first.last and first.made is None:
            return None

        def texts() -> Iterator[Text]:
            frame = first
            while True:
                for seq, data, words in frame.texts:
                    yield Text(seq, data, data.decode() if words is None else words)
                if frame.last:
                    break
                frame = helper.frame()
            if (made := frame.made) is None:
                raise safe_io.UnreadableFile(path)
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
            helper.close()


def helpers_for(wanted: Sequence[tuple[str, Key]], workspace: str) -> Helpers | None:
    """Helpers for these transcripts but the first; None where there is no core or program for them.

    The first ones are left to the caller, since it takes a helper a while to begin.
    """
    count = min(MOST, (os.cpu_count() or 1) - 1)
    if count < 1 or not sys.executable:
        return None
    own, size = 0, 0
    while own < len(wanted) and size < _OWN:
        own, size = own + 1, size + wanted[own][1].size
    try:
        return Helpers(wanted[own:], workspace, count)
    except OSError:
        return None


class _Helper:
    """One process that reads its share of the transcripts."""

    def __init__(self, wanted: Sequence[tuple[str, Key]], workspace: str) -> None:
        with tempfile.TemporaryFile() as told:
            for path, key in wanted:
                _send(told, _Wanted(os.fsencode(path), key))
            told.seek(0)
            self._process = subprocess.Popen(
                # Without -P, a package of this name in the current directory would run instead.
                [sys.executable, "-P", "-m", __name__, workspace],
                stdin=told,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        assert self._process.stdout is not None
        self._told = self._process.stdout
        with suppress(ImportError, AttributeError, OSError):  # only Linux has it
            import fcntl

            fcntl.fcntl(self._told, fcntl.F_SETPIPE_SZ, _PIPE)

    def frame(self) -> _Frame:
        """The next thing that it tells. Raises Lost."""
        size = int.from_bytes(self._told.read(4))
        data = self._told.read(size)
        if not size or len(data) < size:
            raise Lost
        return _frame(data)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def _send(file: IO[bytes], value: Any) -> None:
    data = msgspec.msgpack.encode(value)
    file.write(len(data).to_bytes(4))
    file.write(data)


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
            with safe_io.open_for_reading(path) as (descriptor, status):
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
        except safe_io.UnreadableFile:
            texts = []
        _send(out, _Frame(texts, True, made))
        out.flush()


if __name__ == "__main__":
    main(sys.argv[1])
