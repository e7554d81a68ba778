"""Credentials in vaults, for the MCP servers of agents and for the programs of sessions.

A credential is decrypted only when a request needs it. An OAuth token that has expired, or that
the server refused, is renewed with its refresh token and stored again, encrypted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from msgspec import UnsetType
from msgspec.structs import replace

from segue.encryption import SecretBox
from segue.model import clock, ids
from segue.model.errors import Conflict, InvalidInput
from segue.model.principal import Principal
from segue.model.record import Record, RecordBody
from segue.model.session import Session
from segue.model.webhooks.notices import refresh_failed
from segue.store.base import Store

from .record_ids import check_active
from .records import Records, patch_metadata, with_sent

MAX_CREDENTIALS = 20  # in a vault
TIMEOUT_SECONDS = 30.0
# A token that expires sooner is renewed, since it could expire before the server receives it.
_EXPIRY_MARGIN = 60 * clock.SECOND
_SECRET_NAMES = ("token", "secret_value", "access_token", "refresh_token", "client_secret")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def kind(vault: str) -> str:
    """Return the kind of the records of a vault's credentials."""
    return f"credential:{vault}"


class VaultBody(RecordBody, frozen=True):
    """The body of a vault's record."""

    display_name: str
    metadata: dict[str, str]


class CredentialBody(RecordBody, frozen=True):
    """The body of a credential's record.

    `auth` is what the API shows, one of several types. `secrets` has the encrypted values by name.
    `by_key` says that an API key created or changed the credential.
    """

    auth: dict[str, Any]
    secrets: dict[str, str]
    display_name: str | None
    metadata: dict[str, str]
    by_key: bool = False

    @property
    def is_oauth(self) -> bool:
        """Return whether the credential is an OAuth token, which can be renewed."""
        return bool(self.auth["type"] == "mcp_oauth")


class Credentials:
    """Create, change, read and renew the credentials in vaults."""

    def __init__(self, store: Store, records: Records, secrets: SecretBox) -> None:
        self._store = store
        self._records = records
        self._secrets = secrets
        self._renewing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def keyring(self, session: Session, *, private: bool, local: bool) -> Keyring:
        """Return the credentials of a session for a turn, which is the local user's if `local`.

        With `private`, tokens may be fetched from private addresses.
        """
        return Keyring(self, session, private=private, local=local)

    async def create(
        self,
        principal: Principal,
        vault: Record,
        auth: Mapping[str, Any],
        *,
        display_name: str | None,
        metadata: Mapping[str, str],
    ) -> Record:
        """Create a credential in a vault, with its secrets encrypted.

        `auth` is as a request has it, with the secrets. Raises InvalidInput if the vault is
        archived or full, Conflict if it has a credential for
        the same server or variable.
        """
        public_fields, secrets = _split_secrets(auth)
        check_active(vault, "vault_id")
        active = await self._records.list(vault.workspace, kind(vault.id), limit=MAX_CREDENTIALS)
        if len(active) >= MAX_CREDENTIALS:
            raise InvalidInput(f"a vault holds at most {MAX_CREDENTIALS} credentials")
        target = _target(auth)
        if any(_target(CredentialBody.of(record).auth) == target for record in active):
            raise Conflict(f"the vault has a credential for {target} already")
        id = ids.new_id()
        body = CredentialBody(
            auth=public_fields,
            secrets=self._seal_all(vault.workspace, id, secrets),
            display_name=display_name,
            metadata=dict(metadata),
            by_key=not principal.local,
        )
        return await self._records.create(vault.workspace, kind(vault.id), body.encode(), id)

    async def change(
        self,
        principal: Principal,
        record: Record,
        auth: Mapping[str, Any] | None,
        *,
        display_name: str | UnsetType | None,
        metadata: Mapping[str, str | None] | UnsetType | None,
    ) -> Record:
        """Change the fields and secrets of a credential that a request sent.

        Earlier versions are deleted, since they have the old secrets. Raises InvalidInput if
        `auth` is for another type of credential.
        """

        def edit(current: Record) -> dict[str, Any]:
            body = CredentialBody.of(current)
            patched, secrets = (body.auth, {}) if auth is None else _patch_auth(body.auth, auth)
            return with_sent(
                body,
                auth=patched,
                secrets={**body.secrets, **self._seal_all(current.workspace, current.id, secrets)},
                display_name=display_name,
                metadata=patch_metadata(body.metadata, metadata),
                by_key=body.by_key or not principal.local,
            ).encode()

        return await self._records.change(record, edit, drop_earlier=True)

    async def archive(self, record: Record) -> Record:
        """Archive a credential and delete its secrets."""
        return await self._records.retire(record, {"secrets": {}})

    async def archive_vault(self, vault: Record) -> Record:
        """Archive a vault and its credentials."""
        archived = await self._records.retire(vault)
        async for credential in self._records.all(vault.workspace, kind(vault.id)):
            await self.archive(credential)
        return archived

    async def delete_vault(self, vault: Record) -> None:
        """Delete a vault and its credentials."""
        await self._records.delete(vault)
        async for credential in self._records.all(vault.workspace, kind(vault.id)):
            await self._records.delete(credential)

    def has_refresh_token(self, record: Record) -> bool:
        """Return whether an OAuth credential has a refresh token.

        Raises InvalidInput for another type of credential.
        """
        body = CredentialBody.of(record)
        if not body.is_oauth:
            raise InvalidInput("only an mcp_oauth credential can be validated")
        return "refresh_token" in body.secrets

    def _seal_all(self, workspace: str, id: str, secrets: Mapping[str, str]) -> dict[str, str]:
        return {name: self.seal(workspace, id, name, value) for name, value in secrets.items()}

    def seal(self, workspace: str, id: str, name: str, value: str) -> str:
        """Return a secret of a credential, encrypted."""
        return self._secrets.seal(value, workspace, "credential", id, name)

    def _open(self, record: Record, name: str) -> str | None:
        sealed = CredentialBody.of(record).secrets.get(name)
        if sealed is None:
            return None
        return self._secrets.open(sealed, record.workspace, "credential", record.id, name)

    async def find(self, session: Session, url: str) -> Record | None:
        """Return the credential for a server, from the session's first vault that has one."""
        async for record in self._active(session):
            server_url = CredentialBody.of(record).auth.get("mcp_server_url")
            if server_url is not None and _comparable(server_url) == _comparable(url):
                return record
        return None

    async def variables(self, session: Session, *, local: bool) -> dict[str, str]:
        """Return the environment variables of a session's programs, earlier vaults first.

        A variable for some hosts only is left out: programs here cannot be limited to them. For
        the local user's turns, those of API keys are left out: one such as PATH or LD_PRELOAD
        decides which code a program runs.
        """
        variables: dict[str, str] = {}
        async for record in self._active(session):
            body = CredentialBody.of(record)
            auth = body.auth
            if local and body.by_key:
                continue
            if auth["type"] != "environment_variable" or auth["secret_name"] in variables:
                continue
            value = self._open(record, "secret_value")
            if value is not None and auth["networking"]["type"] == "unrestricted":
                variables[auth["secret_name"]] = value
        return variables

    async def _active(self, session: Session) -> AsyncIterator[Record]:
        """Yield the credentials that are not archived, in the order of the session's vaults."""
        for vault_id in session.vault_ids:
            vault = await self._records.find(session.workspace, "vault", vault_id)
            if vault is not None and vault.archived_at is None:
                for record in await self._records.list(
                    session.workspace, kind(vault_id), limit=MAX_CREDENTIALS
                ):
                    yield record

    async def token(self, record: Record, refused: str | None, *, private: bool) -> str | None:
        """Return the token to send to a server, or None if there is only the `refused` one.

        An OAuth token that has expired or was refused is renewed.
        """
        body = CredentialBody.of(record)
        if not body.is_oauth:
            token = self._open(record, "token")
            return None if token == refused else token
        token = self._open(record, "access_token")
        if token is not None and token != refused and not _expires_soon(body.auth):
            return token
        lock = self._renewing.setdefault(record.id, asyncio.Lock())
        async with lock:
            renewed = await self._renew(record, token, private=private)
            return renewed or (None if refused else token)

    async def _renew(self, record: Record, token: str | None, *, private: bool) -> str | None:
        """Return a new access token for the refresh token, or None if there is none."""
        latest = await self._records.find(record.workspace, record.kind, record.id)
        if latest is None or latest.archived_at is not None:
            return None
        record, current = latest, self._open(latest, "access_token")
        if current != token:
            return current  # renewed concurrently
        refresh = CredentialBody.of(record).auth.get("refresh")
        refresh_token = self._open(record, "refresh_token")
        if refresh is None or refresh_token is None:
            return None
        secret = self._open(record, "client_secret")
        response = await _exchange(refresh, refresh_token, secret, private=private)
        if response is None:
            token_of_others = await self._token_of_others(record, current)
            if token_of_others is None:
                await self._store.notify(record.workspace, [refresh_failed(record)])
            return token_of_others
        return await self._store_renewed(record, response)

    async def _store_renewed(self, record: Record, response: Mapping[str, Any]) -> str | None:
        """Store a token endpoint's response and return the credential's access token.

        A credential that was archived, deleted or replaced during the request stays so.
        """
        secrets: dict[str, str] = {"access_token": response["access_token"]}
        if response.get("refresh_token"):
            secrets["refresh_token"] = response["refresh_token"]
        sealed = self._seal_all(record.workspace, record.id, secrets)
        while True:
            latest = await self._records.find(record.workspace, record.kind, record.id)
            if latest is None or latest.archived_at is not None:
                return None
            body = CredentialBody.of(latest)
            if body.secrets != CredentialBody.of(record).secrets:
                return self._open(latest, "access_token")
            renewed = replace(
                body,
                auth={**body.auth, "expires_at": _expiry(response)},
                secrets={**body.secrets, **sealed},
            )
            try:
                await self._records.supersede(replace(latest, body=renewed.encode()))
                return secrets["access_token"]
            except Conflict:  # changed concurrently
                continue

    async def _token_of_others(self, record: Record, token: str | None) -> str | None:
        """Return the token that another process has stored instead of `token`, or None."""
        latest = await self._records.find(record.workspace, record.kind, record.id)
        current = None if latest is None else self._open(latest, "access_token")
        return None if current == token else current


def _split_secrets(sent: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields of `auth` that the API shows, and the secrets."""
    auth = dict(sent)
    if auth["type"] == "static_bearer":
        return auth, {"token": auth.pop("token")}
    if auth["type"] == "environment_variable":
        auth["injection_location"] = _injection_location(auth["injection_location"])
        return auth, {"secret_value": auth.pop("secret_value")}
    auth["expires_at"] = _parse_time(auth["expires_at"])
    secrets = {"access_token": auth.pop("access_token")}
    if auth["refresh"] is not None:
        refresh = auth["refresh"] = dict(auth["refresh"])
        secrets["refresh_token"] = refresh.pop("refresh_token")
        endpoint_auth = refresh["token_endpoint_auth"] = dict(refresh["token_endpoint_auth"])
        if "client_secret" in endpoint_auth:
            secrets["client_secret"] = endpoint_auth.pop("client_secret")
    return auth, secrets


def _patch_auth(
    auth: dict[str, Any], patch: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return `auth` after an update, and the secrets that the update replaces.

    Raises InvalidInput if the update is for another type of credential.
    """
    if patch["type"] != auth["type"]:
        raise InvalidInput(f"auth.type: is {auth['type']}, and cannot be changed")
    auth = dict(auth)
    sent = dict(patch)
    if auth["type"] == "environment_variable":
        auth["injection_location"] = _injection_location(patch["injection_location"])
        auth["networking"] = patch["networking"] or auth["networking"]
    if "expires_at" in patch:
        auth["expires_at"] = _parse_time(patch["expires_at"])
    if patch.get("refresh") is not None:
        auth["refresh"] = _patch_refresh(auth["refresh"], patch["refresh"])
        sent |= patch["refresh"]
        sent |= patch["refresh"]["token_endpoint_auth"] or {}
    return auth, {name: sent[name] for name in _SECRET_NAMES if sent.get(name) is not None}


def _patch_refresh(refresh: dict[str, Any] | None, patch: Mapping[str, Any]) -> dict[str, Any]:
    if refresh is None:
        raise InvalidInput("auth.refresh: the credential has no refresh token to change")
    takes_secret = refresh["token_endpoint_auth"]["type"] != "none"
    if patch["token_endpoint_auth"] is not None and not takes_secret:
        raise InvalidInput("auth.refresh: the token endpoint takes no secret")
    return refresh if patch["scope"] is None else {**refresh, "scope": patch["scope"] or None}


def _injection_location(sent: Mapping[str, bool | None] | None) -> dict[str, bool]:
    """Return where the value of a variable may be sent. Raises InvalidInput for a restriction.

    Programs get the value itself, so segue cannot restrict its use.
    """
    for name, value in (sent or {}).items():
        if value is False:
            raise InvalidInput(
                f"injection_location.{name}: cannot be disabled: programs get the value itself"
            )
    return {"header": True, "body": True}


def _parse_time(text: str | None) -> str | None:
    """Return a time in UTC. Raises InvalidInput if it is not an RFC 3339 time."""
    if text is None:
        return None
    try:
        return clock.to_rfc3339(clock.from_rfc3339(text))
    except (ValueError, OverflowError):
        raise InvalidInput("expires_at: must be an RFC 3339 time") from None


def _target(auth: Mapping[str, Any]) -> str:
    """Return the server or variable of a credential. A vault has one credential for each."""
    target: str = auth.get("mcp_server_url") or auth["secret_name"]
    return target


class Keyring:
    """The credentials of one session, for the agent of a turn."""

    def __init__(
        self, credentials: Credentials, session: Session, *, private: bool, local: bool
    ) -> None:
        self._credentials = credentials
        self._session = session
        self._private = private
        self._local = local

    async def token(self, url: str, refused: str | None = None) -> str | None:
        """Return the token for an MCP server. `refused` is a token that the server rejected."""
        record = await self._credentials.find(self._session, url)
        if record is None:
            return None
        own = self._local and not CredentialBody.of(record).by_key
        return await self._credentials.token(record, refused, private=self._private or own)

    async def variables(self) -> dict[str, str]:
        """Return the environment variables of the session's programs."""
        return await self._credentials.variables(self._session, local=self._local)


async def _exchange(
    refresh: Mapping[str, Any], token: str, secret: str | None, *, private: bool
) -> dict[str, Any] | None:
    """Return the token endpoint's response for a refresh token, or None if the request fails."""
    import httpx2

    from segue.agents.tools.web import make_transport

    form = {"grant_type": "refresh_token", "refresh_token": token}
    form |= {name: refresh[name] for name in ("scope", "resource") if refresh.get(name)}
    method = refresh["token_endpoint_auth"]["type"]
    auth = None
    if method == "client_secret_basic":
        auth = httpx2.BasicAuth(refresh["client_id"], secret or "")
    else:
        form["client_id"] = refresh["client_id"]
    if method == "client_secret_post":
        form["client_secret"] = secret or ""
    transport = None if private else make_transport(allow_private=False)
    try:
        async with httpx2.AsyncClient(
            transport=transport, timeout=TIMEOUT_SECONDS, trust_env=private, auth=auth
        ) as client:
            response = await client.post(
                refresh["token_endpoint"], data=form, headers={"accept": "application/json"}
            )
            fields = response.json() if response.status_code == 200 else None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError):
        return None
    if not isinstance(fields, dict) or not isinstance(fields.get("access_token"), str):
        return None
    renewed = fields.get("refresh_token")
    return {**fields, "refresh_token": renewed if isinstance(renewed, str) else None}


def _expiry(response: Mapping[str, Any]) -> str | None:
    seconds = response.get("expires_in")
    if not isinstance(seconds, int | float) or not 0 < seconds < 10 * 365 * 86_400:
        return None
    return clock.to_rfc3339(clock.now() + int(seconds * clock.SECOND))


def _expires_soon(auth: Mapping[str, Any]) -> bool:
    at = auth.get("expires_at")
    return at is not None and clock.from_rfc3339(at) <= clock.now() + _EXPIRY_MARGIN


def _comparable(url: str) -> tuple[str, str, int | None, str, str]:
    """Return the parts of a URL without case, default ports and a trailing slash."""
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return "", url, None, "", ""
    return parts.scheme, parts.hostname or "", port, parts.path.rstrip("/"), parts.query
