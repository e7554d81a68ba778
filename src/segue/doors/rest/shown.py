"""Which ends of turns clients have been shown lately.

A stream that opens just after a turn began also gives that turn's events, for clients that send
first and listen then. One that has been shown how the turn ended is not waiting for it any more:
to it the same end again would look like the end of its next turn.
"""

from __future__ import annotations

from collections import OrderedDict

_MOST = 10_000


class Shown:
    """The last end of a turn that was sent to anybody, by session; the oldest are forgotten."""

    def __init__(self) -> None:
        self._ends: OrderedDict[tuple[str, str], int] = OrderedDict()

    def add(self, workspace: str, session: str, seq: int) -> None:
        name = (workspace, session)
        self._ends[name] = max(seq, self._ends.pop(name, 0))
        if len(self._ends) > _MOST:
            self._ends.popitem(last=False)

    def upto(self, workspace: str, session: str) -> int:
        return self._ends.get((workspace, session), 0)
