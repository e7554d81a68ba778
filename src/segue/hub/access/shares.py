"""Sessions that anybody with a link may read, until the link is revoked."""

from __future__ import annotations

import hmac

from segue.hub.resources.records import Records
from segue.model import ids
from segue.model.errors import Conflict, NotFound
from segue.model.principal import Principal
from segue.model.record import Record

_KIND = "share"


class Shares:
    """The shared sessions of a store: one link a session, the same for all readers."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def get_secret(self, principal: Principal, id: str) -> str | None:
        """What a session's link ends with, if it is shared."""
        record = await self._record(principal.workspace, id)
        return record.body["secret"] if record else None

    async def share(self, principal: Principal, id: str) -> str:
        """Share a session. Its link is new each time it was revoked in between."""
        record = await self._record(principal.workspace, id)
        if record is not None and record.body["secret"]:
            return str(record.body["secret"])
        import secrets

        body = {"session": id, "secret": secrets.token_urlsafe(24)}
        try:
            if record is None:
                await self._records.create(principal.workspace, _KIND, body, _name(id))
            else:
                await self._records.update(record, body)
        except Conflict:  # somebody else shared it just now
            return await self.share(principal, id)
        return body["secret"]

    async def revoke(self, principal: Principal, id: str) -> None:
        """Make a session's link worthless."""
        record = await self._record(principal.workspace, id)
        if record is not None:
            await self._records.update(record, record.body | {"secret": None})

    async def authenticate(self, workspace: str, id: str, secret: str) -> Principal:
        """Who reads by a link: somebody of the workspace, to be shown this session alone."""
        record = await self._record(workspace, id)
        known = record.body["secret"] if record else None
        if not known or not hmac.compare_digest(known.encode(), secret.encode()):
            raise NotFound("this link leads nowhere; it may have been revoked")
        return Principal(workspace=workspace)

    async def _record(self, workspace: str, id: str) -> Record | None:
        try:
            return await self._records.get(workspace, _KIND, _name(id))
        except NotFound:
            return None


def _name(id: str) -> str:
    return ids.derived_id("segue", "share", id)
