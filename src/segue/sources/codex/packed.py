"""Read rollouts that Codex has compressed: rollout-….jsonl.zst."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from segue.sources import safe_io
from segue.sources.kit.reader import Unreadable

SUFFIX = ".zst"
PACKAGE = "backports.zstd"
INSTALL = f"install the Python package {PACKAGE} to read it"
_MAX_BYTES = 4 << 30  # of a file after it was decompressed


def is_packed(path: str) -> bool:
    """Return whether a rollout is compressed."""
    return path.endswith(SUFFIX)


@cache
def _zstd() -> Any:
    """Return the module that decompresses; None if it is not installed."""
    for name in ("compression.zstd", PACKAGE):  # the first one is in Python 3.14
        try:
            return import_module(name)
        except ImportError:
            continue
    return None


def can_unpack() -> bool:
    """Return whether compressed rollouts can be read."""
    return _zstd() is not None


@contextmanager
def plain_file(path: str) -> Iterator[str]:
    """Return the path of a rollout's lines: its own, or that of a copy which is not compressed.

    Raises Unreadable if a compressed rollout is damaged or cannot be decompressed.
    """
    if not is_packed(path):
        yield path
        return
    import tempfile  # few rollouts are compressed

    with tempfile.NamedTemporaryFile(prefix="segue-") as copy:
        for block in unpacked_blocks(path):
            copy.write(block)
        copy.flush()
        yield copy.name


def unpacked_blocks(path: str) -> Iterator[bytes]:
    """Return the content of a compressed file; raises Unreadable."""
    zstd = _zstd()
    if zstd is None:
        raise Unreadable(f"it is compressed; {INSTALL}")
    with (
        safe_io.open_for_reading(path) as (descriptor, _),
        os.fdopen(os.dup(descriptor), "rb") as file,
    ):
        size = 0
        try:
            with zstd.open(file) as content:
                while block := content.read(safe_io.BLOCK_BYTES):
                    size += len(block)
                    if size > _MAX_BYTES:
                        raise Unreadable(f"it has more than {_MAX_BYTES} bytes")
                    yield block
        except (zstd.ZstdError, EOFError) as error:
            raise Unreadable(f"it is damaged: {error}") from None
