"""API keys: made, checked, listed, revoked; some expire. The store holds a digest, never a key.

A key is 256 random bits, so a plain digest is as good as a slow one: there is nothing to guess.
"""

from __future__ import annotations

from hashlib import sha256

from segue.model import clock, ids
from segue.model.errors import NotFound, Unauthorized
from segue.model.principal import ApiKey, Principal, check_workspace
from segue.store.base import Store

PREFIX = "sk-segue-"


class Keys:
    """The keys of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(
        self, workspace: str, name: str = "", *, expires_at: int | None = None
    ) -> tuple[ApiKey, str]:
        """A new key and its secret, which is shown this once."""
        import secrets

        secret = PREFIX + secrets.token_urlsafe(32)
        key = ApiKey(
            id=ids.new_id(),
            workspace=check_workspace(workspace),
            name=name,
            digest=_digest(secret),
            hint=secret[-4:],
            created_at=clock.now(),
            expires_at=expires_at,
        )
        await self._store.put_key(key)
        return key, secret

    async def authenticate(self, secret: str) -> Principal:
        """Whom a secret stands for; Unauthorized for one that is unknown, revoked or expired."""
        key = await self._store.find_key(_digest(secret))
        if key is None or not key.is_valid(clock.now()):
            raise Unauthorized("this API key is not valid here")
        return Principal(workspace=key.workspace, key_id=key.id)

    async def list(self, workspace: str | None = None) -> tuple[ApiKey, ...]:
        """The keys of a workspace, or of all."""
        return tuple(await self._store.keys(workspace))

    async def revoke(self, workspace: str, id: str) -> None:
        if not await self._store.revoke_key(workspace, id, clock.now()):
            raise NotFound(f"no key {id} in workspace {workspace} that is still valid")


def _digest(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()
