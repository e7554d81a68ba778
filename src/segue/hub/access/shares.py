"""Share sessions: anyone with a session's link can read it, until it expires or is revoked."""

from __future__ import annotations

import hmac
from typing import NamedTuple

from segue.hub.history.redacted import NOTHING_HIDDEN, Redaction
from segue.hub.resources.records import Records
from segue.model import clock
from segue.model.errors import Conflict, InvalidInput, NotFound
from segue.model.principal import Principal
from segue.model.record import Record, RecordBody
from segue.store.base import SHARE_KIND, share_record_id

_SECRET_BYTES = 24
MAX_SHARE_DAYS = 3650
SECRETS_MASKED = Redaction(mask_secrets=True)


class ShareBody(RecordBody, frozen=True):
    """The body of a shared session's record. A revoked link has no secret."""

    session: str
    secret: str | None = None
    expires_at: int | None = None
    hide_tool_output: bool = False
    mask_secrets: bool = True


class Share(NamedTuple):
    """A session's link: its secret, its expiry, and what is hidden from its readers."""

    secret: str
    expires_at: int | None = None
    redaction: Redaction = NOTHING_HIDDEN

    @property
    def has_expired(self) -> bool:
        """Return whether the link is not valid any more."""
        return self.expires_at is not None and self.expires_at <= clock.now()


class Reader(NamedTuple):
    """A reader of a share link: what it may read, and the link."""

    principal: Principal
    share: Share


class Shares:
    """The shared sessions of a store. A session has one link, the same for all readers."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def get(self, principal: Principal, id: str) -> Share | None:
        """Return a session's link; None if the session is not shared. The link may have expired."""
        return _share(await self._record(principal.workspace, id))

    async def share(
        self,
        principal: Principal,
        id: str,
        *,
        days: int | None = None,
        redaction: Redaction = SECRETS_MASKED,
    ) -> str:
        """Share a session and return the secret in its link.

        A link that is valid keeps its secret and gets the new expiry, `days` from now, and
        redaction. After a revocation or its expiry the link is new.
        """
        if days is not None and not 1 <= days <= MAX_SHARE_DAYS:
            raise InvalidInput(f"a link can be valid for 1 to {MAX_SHARE_DAYS} days, not {days}")
        record = await self._record(principal.workspace, id)
        current = _share(record)
        if current is None or current.has_expired:
            import secrets

            secret = secrets.token_urlsafe(_SECRET_BYTES)
        else:
            secret = current.secret
        body = ShareBody(
            session=id,
            secret=secret,
            expires_at=None if days is None else clock.now() + days * clock.DAY,
            hide_tool_output=redaction.hide_tool_output,
            mask_secrets=redaction.mask_secrets,
        )
        try:
            if record is None:
                await self._records.create(
                    principal.workspace, SHARE_KIND, body.encode(), share_record_id(id)
                )
            elif ShareBody.of(record) != body:
                await self._records.update(record, body.encode())
        except Conflict:  # another request shared it at the same time
            return await self.share(principal, id, days=days, redaction=redaction)
        return secret

    async def revoke(self, principal: Principal, id: str) -> None:
        """Make a session's link invalid."""
        record = await self._record(principal.workspace, id)
        if record is not None:
            await self._records.update(record, ShareBody(session=id).encode())

    async def delete(self, principal: Principal, id: str) -> None:
        """Delete the link of a session that a source has deleted; the store deletes its own."""
        record = await self._record(principal.workspace, id)
        if record is not None:
            await self._records.delete(record)

    async def authenticate(self, workspace: str, id: str, secret: str) -> Reader:
        """Return a reader of a shared session, whose principal can read the workspace.

        The caller must show this session only, as the share's redaction leaves it. Raises NotFound
        if the link is not valid.
        """
        share = _share(await self._record(workspace, id))
        if share is None or not hmac.compare_digest(share.secret.encode(), secret.encode()):
            raise NotFound("this link is not valid; it may have been revoked")
        if share.has_expired:
            raise NotFound("this link has expired; ask for a new one")
        return Reader(Principal(workspace=workspace), share)

    async def _record(self, workspace: str, id: str) -> Record | None:
        try:
            return await self._records.get(workspace, SHARE_KIND, share_record_id(id))
        except NotFound:
            return None


def _share(record: Record | None) -> Share | None:
    if record is None:
        return None
    body = ShareBody.of(record)
    if body.secret is None:
        return None
    redaction = Redaction(body.hide_tool_output, body.mask_secrets)
    return Share(body.secret, body.expires_at, redaction)
