"""How far a source's transcript has been imported into a stored session."""

from __future__ import annotations

from typing import Any

import msgspec


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The position in a source's transcript up to which a session has been imported.

    `inode`, `offset` and `tail_hash` (of the last bytes before `offset`) tell a file that grew
    from one that was replaced. A source over a database leaves them out, and keeps its own position
    in `extra`, as does a source whose sessions have several files. `seq` is the last event in the
    store that was imported.
    """

    source: str
    path: str
    inode: int = 0
    offset: int = 0
    tail_hash: str = ""
    seq: int = 0
    extra: dict[str, Any] = {}
