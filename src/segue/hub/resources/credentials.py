"""What a session's vaults hold for the MCP servers that its agent calls, and for its programs.

A credential is opened when a request needs it, and not before. One that has run out, or that the
server refused, is renewed where the vault knows how, and the new one is sealed in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from msgspec.structs import replace

from segue.encryption import SecretBox
from segue.model import clock
from segue.model.errors import Conflict
from segue.model.record import Record
from segue.model.session import Session

from .records import Records

MOST = 20  # in a vault
SECONDS = 30.0
# A token that has less than this left may run out on its way.
_MARGIN = 60 * clock.SECOND
_PORTS = {"http": 80, "https": 443}


def kind(vault: str) -> str:
    return f"credential:{vault}"


class Credentials:
    """The credentials in vaults, scoped by workspace."""

    def __init__(self, records: Records, secrets: SecretBox) -> None:
        self._records = records
        self._secrets = secrets
        self._renewing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def keyring(self, session: Session, *, private: bool) -> Keyring:
        """A session's; `private` says that a token may be fetched from a private address."""
        return Keyring(self, session, private)

    def seal(self, workspace: str, id: str, name: str, value: str) -> str:
        return self._secrets.seal(value, workspace, "credential", id, name)

    def _open(self, record: Record, name: str) -> str | None:
        sealed = record.body["secrets"].get(name)
        if sealed is None:
            return None
        return self._secrets.open(sealed, record.workspace, "credential", record.id, name)

    async def find(self, session: Session, url: str) -> Record | None:
        """The credential for a server: in the first of the session's vaults that has one."""
        async for record in self._of(session):
            named = record.body["auth"].get("mcp_server_url")
            if named is not None and _same(named, url):
                return record
        return None

    async def variables(self, session: Session) -> dict[str, str]:
        """What programs have in their environment: the first vault's that has one of a name.

        One that is for a few hosts only is left out: programs here cannot be kept to them.
        """
        found: dict[str, str] = {}
        async for record in self._of(session):
            auth = record.body["auth"]
            if auth["type"] != "environment_variable" or auth["secret_name"] in found:
                continue
            value = self._open(record, "secret_value")
            if value is not None and auth["networking"]["type"] == "unrestricted":
                found[auth["secret_name"]] = value
        return found

    async def _of(self, session: Session) -> AsyncIterator[Record]:
        """All that are in use, in the order of the session's vaults."""
        for vault in session.vault_ids:
            held_in = await self._records.find(session.workspace, "vault", vault)
            if held_in is not None and held_in.archived_at is None:
                for record in await self._records.list(session.workspace, kind(vault), limit=MOST):
                    yield record

    async def token(self, record: Record, refused: str | None, private: bool) -> str | None:
        """What to send to the server; None where there is nothing but what it refused."""
        if record.body["auth"]["type"] != "mcp_oauth":
            held = self._open(record, "token")
            return None if held == refused else held
        held = self._open(record, "access_token")
        if held is not None and held != refused and not _runs_out(record.body["auth"]):
            return held
        lock = self._renewing.setdefault(record.id, asyncio.Lock())
        async with lock:
            return await self._renewed(record, held, private) or (None if refused else held)

    async def _renewed(self, record: Record, held: str | None, private: bool) -> str | None:
        """A new access token, by the vault's refresh token; None if there is none to be had."""
        known = await self._records.find(record.workspace, record.kind, record.id)
        if known is None or known.archived_at is not None:
            return None
        record, now = known, self._open(known, "access_token")
        if now != held:
            return now  # somebody else was quicker
        refresh = record.body["auth"].get("refresh")
        held_refresh = self._open(record, "refresh_token")
        if refresh is None or held_refresh is None:
            return None
        secret = self._open(record, "client_secret")
        given = await _exchange(refresh, held_refresh, secret, private)
        if given is None:
            return await self._theirs(record, now)
        fresh: dict[str, str] = {"access_token": given["access_token"]}
        if given.get("refresh_token"):
            fresh["refresh_token"] = given["refresh_token"]
        sealed = {
            name: self.seal(record.workspace, record.id, name, value)
            for name, value in fresh.items()
        }
        # The exchange took its time: what was forgotten or replaced meanwhile stays so.
        while True:
            latest = await self._records.find(record.workspace, record.kind, record.id)
            if latest is None or latest.archived_at is not None:
                return None
            if latest.body["secrets"] != record.body["secrets"]:
                return self._open(latest, "access_token")
            auth = {**latest.body["auth"], "expires_at": _expiry(given)}
            body = {**latest.body, "auth": auth, "secrets": {**latest.body["secrets"], **sealed}}
            try:
                await self._records.supersede(replace(latest, body=body))
                return fresh["access_token"]
            except Conflict:  # changed this very moment
                continue

    async def _theirs(self, record: Record, held: str | None) -> str | None:
        """The token that another process fetched while we were refused one."""
        known = await self._records.find(record.workspace, record.kind, record.id)
        now = None if known is None else self._open(known, "access_token")
        return None if now == held else now


class Keyring:
    """One session's credentials, for its agent."""

    def __init__(self, credentials: Credentials, session: Session, private: bool) -> None:
        self._credentials = credentials
        self._session = session
        self._private = private

    async def token(self, url: str, refused: str | None = None) -> str | None:
        """The token for an MCP server; `refused` is one that the server did not take."""
        record = await self._credentials.find(self._session, url)
        if record is None:
            return None
        return await self._credentials.token(record, refused, self._private)

    async def variables(self) -> dict[str, str]:
        """What the session's programs have in their environment."""
        return await self._credentials.variables(self._session)


async def _exchange(
    refresh: Mapping[str, Any], token: str, secret: str | None, private: bool
) -> dict[str, Any] | None:
    """What the token endpoint gives for a refresh token; None if it gives nothing."""
    import httpx2

    from segue.agents.tools.web import make_transport

    form = {"grant_type": "refresh_token", "refresh_token": token}
    form |= {name: refresh[name] for name in ("scope", "resource") if refresh.get(name)}
    how = refresh["token_endpoint_auth"]["type"]
    auth = None
    if how == "client_secret_basic":
        auth = httpx2.BasicAuth(refresh["client_id"], secret or "")
    else:
        form["client_id"] = refresh["client_id"]
    if how == "client_secret_post":
        form["client_secret"] = secret or ""
    way = None if private else make_transport(allow_private=False)
    try:
        async with httpx2.AsyncClient(
            transport=way, timeout=SECONDS, trust_env=private, auth=auth
        ) as client:
            answer = await client.post(
                refresh["token_endpoint"], data=form, headers={"accept": "application/json"}
            )
            given = answer.json() if answer.status_code == 200 else None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError):
        return None
    if not isinstance(given, dict) or not isinstance(given.get("access_token"), str):
        return None
    renewed = given.get("refresh_token")
    return {**given, "refresh_token": renewed if isinstance(renewed, str) else None}


def _expiry(given: Mapping[str, Any]) -> str | None:
    seconds = given.get("expires_in")
    if not isinstance(seconds, int | float) or not 0 < seconds < 10 * 365 * 86_400:
        return None
    return clock.to_rfc3339(clock.now() + int(seconds * clock.SECOND))


def _runs_out(auth: Mapping[str, Any]) -> bool:
    at = auth.get("expires_at")
    return at is not None and clock.from_rfc3339(at) <= clock.now() + _MARGIN


def _same(one: str, other: str) -> bool:
    return _plain(one) == _plain(other)


def _plain(url: str) -> tuple[str, str, int | None, str, str]:
    """An address as it is compared: case, default ports and a last slash do not count."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return "", url, None, "", ""
    return parts.scheme, parts.hostname or "", port, parts.path.rstrip("/"), parts.query
