"""Share sessions: anyone with a session's link can read it, until the link is revoked."""

from __future__ import annotations

import hmac

from segue.hub.resources.records import Records
from segue.model.errors import Conflict, NotFound
from segue.model.principal import Principal
from segue.model.record import Record, RecordBody
from segue.store.base import SHARE_KIND, share_record_id

_SECRET_BYTES = 24


class ShareBody(RecordBody, frozen=True):
    """The body of a shared session's record. A revoked link has no secret."""

    session: str
    secret: str | None = None


class Shares:
    """The shared sessions of a store. A session has one link, the same for all readers."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def get_secret(self, principal: Principal, id: str) -> str | None:
        """Return the secret in a session's link; None if the session is not shared."""
        return _secret(await self._record(principal.workspace, id))

    async def share(self, principal: Principal, id: str) -> str:
        """Share a session and return the secret in its link.

        A session that is already shared keeps its link. After a revocation the link is new.
        """
        record = await self._record(principal.workspace, id)
        if secret := _secret(record):
            return secret
        import secrets

        secret = secrets.token_urlsafe(_SECRET_BYTES)
        body = ShareBody(session=id, secret=secret).encode()
        try:
            if record is None:
                await self._records.create(
                    principal.workspace, SHARE_KIND, body, share_record_id(id)
                )
            else:
                await self._records.update(record, body)
        except Conflict:  # another request shared it at the same time
            return await self.share(principal, id)
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

    async def authenticate(self, workspace: str, id: str, secret: str) -> Principal:
        """Return a principal that can read the workspace of a shared session.

        The caller must show this session only. Raises NotFound if the link is not valid.
        """
        expected = _secret(await self._record(workspace, id))
        if not expected or not hmac.compare_digest(expected.encode(), secret.encode()):
            raise NotFound("this link is not valid; it may have been revoked")
        return Principal(workspace=workspace)

    async def _record(self, workspace: str, id: str) -> Record | None:
        try:
            return await self._records.get(workspace, SHARE_KIND, share_record_id(id))
        except NotFound:
            return None


def _secret(record: Record | None) -> str | None:
    return None if record is None else ShareBody.of(record).secret
