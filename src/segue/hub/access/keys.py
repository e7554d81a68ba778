"""Create, check, list and revoke API keys.

The store holds a digest of each key, never the key. A key is 256 random bits, so it cannot be
guessed from a fast digest.
"""

from __future__ import annotations

from hashlib import sha256

from segue.model import clock, ids
from segue.model.errors import NotFound, Unauthorized
from segue.model.principal import ApiKey, Principal, check_workspace
from segue.store.base import Store

PREFIX = "sk-segue-"
_SECRET_BYTES = 32
_HINT_LENGTH = 4


class Keys:
    """The API keys of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(
        self, workspace: str, name: str = "", *, expires_at: int | None = None
    ) -> tuple[ApiKey, str]:
        """Create a key. Return it with its secret, which cannot be read again."""
        import secrets

        secret = PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        key = ApiKey(
            id=ids.new_id(),
            workspace=check_workspace(workspace),
            name=name,
            digest=_digest(secret),
            hint=secret[-_HINT_LENGTH:],
            created_at=clock.now(),
            expires_at=expires_at,
        )
        await self._store.put_key(key)
        return key, secret

    async def authenticate(self, secret: str) -> Principal:
        """Return the principal of a secret.

        Raises Unauthorized if the key is unknown, revoked or expired.
        """
        key = await self._store.find_key(_digest(secret))
        if key is None or not key.is_valid(clock.now()):
            raise Unauthorized("this API key is not valid: it is unknown, revoked or expired")
        return Principal(workspace=key.workspace, key_id=key.id)

    async def list(self, workspace: str | None = None) -> tuple[ApiKey, ...]:
        """Return the keys of one workspace, or of all."""
        return tuple(await self._store.keys(workspace))

    async def revoke(self, workspace: str, id: str) -> None:
        """Revoke a key. Raises NotFound if the workspace has no valid key with this id."""
        if not await self._store.revoke_key(workspace, id, clock.now()):
            raise NotFound(f"workspace {workspace} has no valid key {id}")


def _digest(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()
