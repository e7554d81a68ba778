"""Which ends of turns clients have been told lately.

A stream that opens just after a turn began also gives that turn's events, for clients that send
first and listen then. One that has been told how the turn ended is not waiting for it any more:
to it the same end again would look like the end of its next turn. The store keeps how far anybody
has been told, since the next stream may be another worker's.
"""

from __future__ import annotations

from segue.hub import Hub
from segue.model.errors import SegueError
from segue.model.principal import Principal

_MOST = 10_000


class StreamAcks:
    """The last end of a turn that was told, by session. What this process noted it need not ask."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._noted: dict[tuple[str, str], int] = {}

    async def record(self, principal: Principal, session: str, seq: int) -> None:
        """Somebody is being told of the end of a turn: once for all who are at the same time."""
        name = (principal.workspace, session)
        if self._noted.get(name, 0) >= seq:
            return
        if len(self._noted) >= _MOST:
            self._noted.clear()
        self._noted[name] = seq
        try:
            await self._hub.tell(principal, session, seq)
        except SegueError:  # gone meanwhile, or a store that takes nothing: then it is only ours
            return

    async def acked_seq(self, principal: Principal, session: str) -> int:
        noted = self._noted.get((principal.workspace, session), 0)
        return max(noted, await self._hub.told(principal, session))
