"""Sign browsers in: a login link works once, and the browser then stays signed in for a while.

A login is one record. It begins as a link. The first browser that uses the link replaces the
link's secret with a secret of its own, so a second use fails. The store holds digests, never the
secrets.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

from msgspec.structs import replace

from segue.hub.resources.records import Records
from segue.model import clock, ids
from segue.model.errors import Conflict, NotFound, Unauthorized
from segue.model.principal import ApiKey, Principal
from segue.model.record import Record, RecordBody

from .keys import Keys

LINK_LIFETIME = 3600 * clock.SECOND
LOGIN_LIFETIME = 30 * clock.DAY
CLEANUP_INTERVAL = 3600 * clock.SECOND

_KIND = "login"
_SECRET_BYTES = 32
_LINK = "link"  # states of a login
_BROWSER = "browser"


class LoginBody(RecordBody, frozen=True):
    """The body of a login's record. `digest` is that of the secret of the link or the browser."""

    state: str
    digest: str
    expires_at: int
    local: bool
    key_id: str | None = None


class Logins:
    """The login links and signed-in browsers of a store.

    A token names the workspace and the login, and contains the secret of the link or the browser.
    """

    def __init__(self, records: Records, keys: Keys) -> None:
        self._records = records
        self._keys = keys
        self._cleaned_at: dict[str, int] = {}  # by workspace

    async def create_link(self, principal: Principal) -> str:
        """Return a link's token. It signs one browser in as this principal, once.

        Also deletes the expired logins of the workspace, at most once an hour.
        """
        await self._delete_expired(principal.workspace)
        secret = _new_secret()
        body = LoginBody(
            state=_LINK,
            digest=_digest(secret),
            expires_at=clock.now() + LINK_LIFETIME,
            local=principal.local,
            key_id=principal.key_id,
        )
        record = await self._records.create(principal.workspace, _KIND, body.encode())
        return _token(record, secret)

    async def _delete_expired(self, workspace: str) -> None:
        now = clock.now()
        if now - self._cleaned_at.get(workspace, 0) < CLEANUP_INTERVAL:
            return
        self._cleaned_at[workspace] = now
        logins = [record async for record in self._records.all(workspace, _KIND)]
        for record in logins:
            if LoginBody.of(record).expires_at < now:
                await self._records.delete(record)

    async def use_link(self, token: str) -> str:
        """Use a link's token. Return the token of the browser.

        Raises Unauthorized if the link was used before, has expired or does not exist.
        """
        record, _ = await self._find(token, _LINK)
        secret = _new_secret()
        signed_in = replace(
            LoginBody.of(record),
            state=_BROWSER,
            digest=_digest(secret),
            expires_at=clock.now() + LOGIN_LIFETIME,
        )
        try:
            record = await self._records.update(record, signed_in.encode())
        except Conflict:  # another browser used it first
            raise _unauthorized("this login link was already used") from None
        return _token(record, secret)

    async def sign_in(self, key: str) -> str:
        """Sign a browser in with an API key. Return the token of the browser."""
        return await self.use_link(await self.create_link(await self._keys.authenticate(key)))

    async def authenticate(self, token: str) -> Principal:
        """Return the principal of a browser's token.

        Raises Unauthorized if the login, or the API key that it was made with, is not valid.
        """
        _, principal = await self._find(token, _BROWSER)
        return principal

    async def expires_at(self, token: str) -> int:
        """Return when a browser is signed out: when its login or its API key expires."""
        record, principal = await self._find(token, _BROWSER)
        key = principal.key_id and await self._key(principal.workspace, principal.key_id)
        expires_at = LoginBody.of(record).expires_at
        return min(expires_at, key.expires_at) if key and key.expires_at is not None else expires_at

    async def sign_out(self, token: str) -> None:
        """Sign a browser out."""
        record, _ = await self._find(token, _BROWSER)
        await self._records.delete(record)

    async def _find(self, token: str, state: str) -> tuple[Record, Principal]:
        """Return the login of a token and its principal; raises Unauthorized if it is not valid."""
        workspace, _, id_and_secret = token.rpartition("~")
        id, _, secret = id_and_secret.partition(".")
        try:
            record = await self._records.get(workspace, _KIND, ids.parse(id) or "")
        except NotFound:
            raise _unauthorized("this login is not valid") from None
        login = LoginBody.of(record)
        if not hmac.compare_digest(login.digest, _digest(secret)):
            used = login.state == _BROWSER and state == _LINK
            problem = "this login link was already used" if used else "this login is not valid"
            raise _unauthorized(problem)
        if login.state != state or login.expires_at < clock.now():
            raise _unauthorized("this login has expired")
        if login.key_id is not None:
            await self._check_key(workspace, login.key_id)
        return record, Principal(workspace=workspace, local=login.local, key_id=login.key_id)

    async def _check_key(self, workspace: str, key_id: str) -> None:
        key = await self._key(workspace, key_id)
        if key is None or not key.is_valid(clock.now()):
            expired = key is not None and key.revoked_at is None
            problem = "has expired" if expired else "is no longer valid"
            raise Unauthorized(f"the key you signed in with {problem}")

    async def _key(self, workspace: str, key_id: str) -> ApiKey | None:
        keys = await self._keys.list(workspace)
        return next((key for key in keys if key.id == key_id), None)


def _new_secret() -> str:
    import secrets

    return secrets.token_urlsafe(_SECRET_BYTES)


def _unauthorized(problem: str) -> Unauthorized:
    return Unauthorized(f"{problem}; run `segue open` to sign in")


def _token(record: Record, secret: str) -> str:
    return f"{record.workspace}~{record.id.replace('-', '')}.{secret}"


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
