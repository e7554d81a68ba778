"""How far a source's transcript has been imported into a stored session."""

from __future__ import annotations

from typing import Any

import msgspec


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The position in a source's transcript up to which a session has been imported.

    `inode`, `offset` and `tail_hash` (of the last bytes before `offset`) tell a file that grew
    from one that was replaced. `seq` is the last event in the store that was imported. `extra`
    holds positions of the source's own, for example of several files.
    """

    source: str
    path: str
    inode: int
    offset: int
    tail_hash: str
    seq: int = 0
    extra: dict[str, Any] = {}
