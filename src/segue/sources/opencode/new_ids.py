"""Make ids of opencode: a prefix, the time and random characters."""

from __future__ import annotations

import secrets
import string

from segue.model import clock

_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase


class NewIds:
    """Ids of a new session, of its messages and parts, which sort in their order."""

    def __init__(self) -> None:
        self._ticks = (clock.now() // 1000) << 12
        self.session = _make_id("ses", ~self._ticks)
        self._ids: dict[str, str] = {}

    def next(self, prefix: str) -> str:
        """Return a new id."""
        self._ticks += 1
        return _make_id(prefix, self._ticks)

    def of(self, old_id: str) -> str:
        """Return the new id for an old one."""
        if old_id not in self._ids:
            self._ids[old_id] = self.next(old_id.partition("_")[0])
        return self._ids[old_id]


def _make_id(prefix: str, ticks: int) -> str:
    rest = "".join(secrets.choice(_BASE62) for _ in range(14))
    return f"{prefix}_{ticks & (1 << 48) - 1:012x}{rest}"
