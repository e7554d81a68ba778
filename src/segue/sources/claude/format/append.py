"""Appending to a transcript: titles, tags and moves, as Claude Code itself writes them."""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from typing import Any

from segue.model import codec

from . import safe_io

# Not where the file ought to be: the caller looks elsewhere.
_NOT_HERE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR}
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_BREAKS = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]+")
_UNSEEN = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\ue000-\uf8ff]")


def encode_line(**fields: Any) -> bytes:
    """An entry as a line, its fields in this order: some readers look at how a line begins."""
    return codec.encode(fields) + b"\n"


def append_lines(path: str, data: bytes) -> bool:
    """Add whole lines at the end; False when there is no transcript here to add to.

    A file that a crash left in the middle of a line gets that line ended first, or the new one
    would be lost with it.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | safe_io.SAFE_OPEN_FLAGS)
    except OSError as error:
        if error.errno in _NOT_HERE:
            return False
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            return False
        if os.pread(descriptor, 1, status.st_size - 1) != b"\n":
            data = b"\n" + data
        _write(descriptor, data, status.st_size)
    finally:
        os.close(descriptor)
    return True


def _write(descriptor: int, data: bytes, end: int) -> None:
    """All of it, or nothing: what a full disk cuts short is taken back if it is still the end."""
    wrote = 0
    try:
        while wrote < len(data):
            wrote += os.write(descriptor, data[wrote:])
    except OSError:
        if wrote and os.fstat(descriptor).st_size == end + wrote:
            os.ftruncate(descriptor, end)
        raise


def clean_title(title: str) -> str:
    """A title that prints as one line: no control characters, escape sequences, half characters."""
    text = _BREAKS.sub(" ", _ESCAPES.sub("", title))
    return "".join(char for char in text if unicodedata.category(char) not in ("Cc", "Cs")).strip()


def clean_tag(tag: str) -> str:
    """A tag in its compatibility form, without characters that nobody sees."""
    for _ in range(10):  # until nothing changes; what is left out may let others combine
        text = unicodedata.normalize("NFKC", tag)
        seen = (char for char in text if unicodedata.category(char) not in ("Cf", "Co", "Cn", "Cs"))
        text = _UNSEEN.sub("", "".join(seen))
        if text == tag:
            break
        tag = text
    return tag.strip()
