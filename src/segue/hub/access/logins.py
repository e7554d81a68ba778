"""Browsers that people come with: a login link opens one once, and it stays open for a while.

A visit is one record. It begins as a login link; whoever uses the link turns it, in one step that
succeeds once, into a browser's own secret. The store holds digests, never the secrets.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Any

from segue.hub.resources.records import Records
from segue.model import clock, ids
from segue.model.errors import Conflict, NotFound, Unauthorized
from segue.model.principal import ApiKey, Principal
from segue.model.record import Record

from .keys import Keys

LINK_LIFETIME = 3600 * clock.SECOND  # for which a login link waits to be used
LOGIN_LIFETIME = 30 * clock.DAY  # for which a browser stays signed in

_KIND = "visit"


class Logins:
    """The login links and browsers of a store."""

    def __init__(self, records: Records, keys: Keys) -> None:
        self._records = records
        self._keys = keys

    async def create_link(self, principal: Principal) -> str:
        """A token that lets one browser in, once, as this principal."""
        import secrets

        secret = secrets.token_urlsafe(32)
        body = {
            "state": "link",
            "digest": _digest(secret),
            "until": clock.now() + LINK_LIFETIME,
            "local": principal.local,
            "key_id": principal.key_id,
        }
        record = await self._records.create(principal.workspace, _KIND, body)
        return _token(record, secret)

    async def use_link(self, token: str) -> str:
        """Use a login link's token: the secret of the browser that came with it."""
        record, _ = await self._open(token, "link")
        import secrets

        secret = secrets.token_urlsafe(32)
        used = {
            "state": "browser",
            "digest": _digest(secret),
            "until": clock.now() + LOGIN_LIFETIME,
        }
        try:
            record = await self._records.update(record, record.body | used)
        except Conflict:
            raise Unauthorized(
                "this login link has been used; `segue open` makes another"
            ) from None
        return _token(record, secret)

    async def sign_in(self, key: str) -> str:
        """Let a browser in by an API key; its secret."""
        return await self.use_link(await self.create_link(await self._keys.authenticate(key)))

    async def authenticate(self, token: str) -> Principal:
        """Whom a browser's secret stands for, as long as the key it came with is valid."""
        _, principal = await self._open(token, "browser")
        return principal

    async def expires_at(self, token: str) -> int:
        """When a browser is signed out by itself: its visit ends then, or its key."""
        record, principal = await self._open(token, "browser")
        key = principal.key_id and await self._key(principal.workspace, principal.key_id)
        until = int(record.body["until"])
        return min(until, key.expires_at) if key and key.expires_at is not None else until

    async def sign_out(self, token: str) -> None:
        """Sign a browser out."""
        record, _ = await self._open(token, "browser")
        await self._records.delete(record)

    async def _open(self, token: str, state: str) -> tuple[Record, Principal]:
        workspace, _, rest = token.rpartition("~")
        id, _, secret = rest.partition(".")
        known = ids.parse(id)
        try:
            record = await self._records.get(workspace, _KIND, known or "")
        except NotFound:
            raise Unauthorized("this is no valid login") from None
        body = record.body
        if not hmac.compare_digest(str(body["digest"]), _digest(secret)):
            # A link that was used has another secret since, and says so to whoever comes again.
            used = body["state"] == "browser" and state == "link"
            why = "this login link has been used" if used else "this is no valid login"
            raise Unauthorized(f"{why}; `segue open` makes another")
        if body["state"] != state or body["until"] < clock.now():
            raise Unauthorized("this login has expired; `segue open` makes another")
        key_id = body["key_id"]
        if key_id is not None:
            key = await self._key(workspace, key_id)
            if key is None or not key.is_valid(clock.now()):
                expired = key is not None and key.revoked_at is None
                why = "has expired" if expired else "is no longer valid"
                raise Unauthorized(f"the key you signed in with {why}")
        return record, Principal(workspace=workspace, local=body["local"], key_id=key_id)

    async def _key(self, workspace: str, key_id: str) -> ApiKey | None:
        keys = await self._keys.list(workspace)
        return next((key for key in keys if key.id == key_id), None)


def _token(record: Record, secret: str) -> str:
    return f"{record.workspace}~{record.id.replace('-', '')}.{secret}"


def _digest(secret: Any) -> str:
    return sha256(str(secret).encode("utf-8", "surrogatepass")).hexdigest()
