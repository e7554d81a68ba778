"""Share sessions: anyone with a session's link can read it, until the link is revoked."""

from __future__ import annotations

import hmac

from segue.hub.resources.records import Records
from segue.model import ids
from segue.model.errors import Conflict, NotFound
from segue.model.principal import Principal
from segue.model.record import Record

_KIND = "share"
_SECRET_BYTES = 24


class Shares:
    """The shared sessions of a store. A session has one link, the same for all readers."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def get_secret(self, principal: Principal, id: str) -> str | None:
        """Return the secret in a session's link; None if the session is not shared."""
        record = await self._record(principal.workspace, id)
        return record.body["secret"] if record else None

    async def share(self, principal: Principal, id: str) -> str:
        """Share a session and return the secret in its link.

        A session that is already shared keeps its link. After a revocation the link is new.
        """
        record = await self._record(principal.workspace, id)
        if record is not None and record.body["secret"]:
            return str(record.body["secret"])
        import secrets

        body = {"session": id, "secret": secrets.token_urlsafe(_SECRET_BYTES)}
        try:
            if record is None:
                await self._records.create(principal.workspace, _KIND, body, _record_id(id))
            else:
                await self._records.update(record, body)
        except Conflict:  # another request shared it at the same time
            return await self.share(principal, id)
        return body["secret"]

    async def revoke(self, principal: Principal, id: str) -> None:
        """Make a session's link invalid."""
        record = await self._record(principal.workspace, id)
        if record is not None:
            await self._records.update(record, record.body | {"secret": None})

    async def authenticate(self, workspace: str, id: str, secret: str) -> Principal:
        """Return a principal that can read the workspace of a shared session.

        The caller must show this session only. Raises NotFound if the link is not valid.
        """
        record = await self._record(workspace, id)
        expected = record.body["secret"] if record else None
        if not expected or not hmac.compare_digest(expected.encode(), secret.encode()):
            raise NotFound("this link is not valid; it may have been revoked")
        return Principal(workspace=workspace)

    async def _record(self, workspace: str, id: str) -> Record | None:
        try:
            return await self._records.get(workspace, _KIND, _record_id(id))
        except NotFound:
            return None


def _record_id(session_id: str) -> str:
    return ids.derived_id("segue", "share", session_id)
