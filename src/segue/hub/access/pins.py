"""Pin sessions: a workspace's choice of sessions that its lists can show alone."""

from __future__ import annotations

from segue.model.principal import Principal
from segue.store.base import Store

_OVERLAY = "pinned"  # no source has this name


class Pins:
    """The pinned sessions of a store, whichever tool they belong to."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def ids(self, principal: Principal) -> frozenset[str]:
        """Return the ids of the pinned sessions. A session that is gone may be among them."""
        overlays = await self._store.overlays(principal.workspace, _OVERLAY)
        return frozenset(id for id, patch in overlays.items() if patch)

    async def pin(self, principal: Principal, id: str) -> None:
        """Pin a session."""
        await self._store.set_overlay(principal.workspace, _OVERLAY, id, {"pinned": True})

    async def unpin(self, principal: Principal, id: str) -> None:
        """Remove a session's pin, if it has one."""
        await self._store.set_overlay(principal.workspace, _OVERLAY, id, {})
