"""Append lines to a transcript, and clean the titles and tags that go into them."""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from typing import Any

from segue.model import codec
from segue.sources import safe_io

# There is no transcript at this path: the caller looks in another directory.
_NO_TRANSCRIPT_ERRORS = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR}
_TERMINAL_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])"
)
_LINE_BREAKS = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]+")
_INVISIBLE = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\ue000-\uf8ff]")
_MAX_NORMALIZATIONS = 10


def encode_line(**fields: Any) -> bytes:
    """Return an entry as a line, with the fields in this order.

    The order matters: some readers look only at how a line begins.
    """
    return codec.encode(fields) + b"\n"


def append_lines(path: str, data: bytes) -> bool:
    """Append whole lines. Return False if there is no transcript at `path`.

    If a crash left the last line without a newline, that newline is written first: otherwise the
    new line would be lost together with the torn one.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | safe_io.SAFE_OPEN_FLAGS)
    except OSError as error:
        if error.errno in _NO_TRANSCRIPT_ERRORS:
            return False
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            return False
        if os.pread(descriptor, 1, status.st_size - 1) != b"\n":
            data = b"\n" + data
        _write_all(descriptor, data, status.st_size)
    finally:
        os.close(descriptor)
    return True


def _write_all(descriptor: int, data: bytes, size: int) -> None:
    """Write all of `data` to a file of `size` bytes, or nothing.

    If the disk is full, a partial write is truncated unless another process has appended since.
    """
    written = 0
    try:
        while written < len(data):
            written += os.write(descriptor, data[written:])
    except OSError:
        if written and os.fstat(descriptor).st_size == size + written:
            os.ftruncate(descriptor, size)
        raise


def clean_title(title: str) -> str:
    """Return a title that prints as one line.

    Control characters, terminal escape sequences and lone surrogates are removed.
    """
    text = _LINE_BREAKS.sub(" ", _TERMINAL_ESCAPES.sub("", title))
    return "".join(char for char in text if unicodedata.category(char) not in ("Cc", "Cs")).strip()


def clean_tag(tag: str) -> str:
    """Return a tag in Unicode compatibility form, without invisible characters."""
    # Removing a character may let its neighbours combine, so repeat until nothing changes.
    for _ in range(_MAX_NORMALIZATIONS):
        text = unicodedata.normalize("NFKC", tag)
        visible = (c for c in text if unicodedata.category(c) not in ("Cf", "Co", "Cn", "Cs"))
        text = _INVISIBLE.sub("", "".join(visible))
        if text == tag:
            break
        tag = text
    return tag.strip()
