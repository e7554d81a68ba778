"""Any session, open or not: list, delete, title, archive, status."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import UNSET

from segue.acp import v1, v2, wire
from segue.acp.rpc import INVALID_PARAMS, RpcError
from segue.interfaces.acp.attached_session import REST_SECONDS
from segue.interfaces.acp.base import Base, any_id
from segue.interfaces.acp.meta import NAMESPACE, session_meta
from segue.interfaces.acp.versions.encode_v2 import state_of
from segue.model import clock
from segue.model.errors import InvalidInput, NotFound
from segue.model.principal import Principal
from segue.model.query import Query
from segue.model.session import Session

log = logging.getLogger("segue.acp")

PAGE = 50
MOST = 1000  # rows of a page, for those who ask for more than PAGE


class Keeping(Base):
    """Looking after sessions without being in them."""

    async def session_list(self, request: wire.ListRequest) -> wire.ListSessionsResponse:
        query = _query(request)
        if not self._offers.remembers:
            return wire.ListSessionsResponse(sessions=[])
        await self._tidy()
        page = await self._hub.sessions.list(self._principal, query, request.cursor)
        return wire.ListSessionsResponse(
            sessions=[self._row(session) for session in page.sessions],
            next_cursor=UNSET if page.next is None else page.next,
        )

    def _row(self, session: Session) -> wire.SessionInfo:
        archived = session.archived_at is not None
        return wire.SessionInfo(
            session_id=session.id,
            cwd=session.cwd,
            title=session.title,
            updated_at=clock.to_rfc3339(session.active_at),
            additional_directories=list(session.roots) if session.roots else UNSET,
            archived=archived if self._offers.has("archive") else UNSET,
            meta=session_meta(session),
        )

    async def session_delete(self, request: wire.SessionRequest) -> wire.Empty:
        id = any_id(request.session_id)
        async with self._alone(id):
            try:
                await self._put_away(id, self._hub.editor.trash)
            except NotFound:
                log.info("session %s was deleted already", id)
        return wire.Empty()

    async def session_set_title(self, request: wire.SetTitleRequest) -> wire.SetTitleResponse:
        id = (await self._listed(request.session_id)).id
        session = await self._hub.editor.set_title(self._principal, id, request.title)
        if opened := self._opened.get(id):
            await opened.caught_up()
        return wire.SetTitleResponse(title=session.title or "")

    async def session_archive(self, request: wire.SessionRequest) -> wire.Empty:
        id = (await self._listed(request.session_id)).id
        async with self._alone(id):
            await self._put_away(id, self._hub.editor.archive)
        return wire.Empty()

    async def session_unarchive(self, request: wire.SessionRequest) -> wire.Empty:
        id = (await self._listed(request.session_id)).id
        await self._hub.editor.unarchive(self._principal, id)
        if opened := self._opened.get(id):
            await opened.caught_up()
        return wire.Empty()

    async def session_status(self, request: wire.SessionRequest) -> Any:
        session = await self._listed(request.session_id)
        is_open = session.id in self._opened
        if self._version == 1:
            return v1.StatusResponse(status="open" if is_open else "saved")
        state = {"state": state_of(session)}
        return v2.StatusResponse(status="open" if is_open else "saved", state=state)

    async def _put_away(self, id: str, away: Callable[[Principal, str], Awaitable[object]]) -> None:
        """Close it here, end the turn that another process may be running, and do that to it."""

        async def last() -> None:
            session = await self._hub.sessions.get(self._principal, id)
            if session.turn is not None:
                await self._hub.turns.cancel(self._principal, id)
                ended = self._hub.turns.wait(self._principal, id, session.turn)
                try:
                    await asyncio.wait_for(ended, REST_SECONDS)
                except TimeoutError:
                    log.info("session %s does not come to rest", id)  # the hub will say so
            await away(self._principal, id)

        await self._shut(id, last)


def _query(request: wire.ListRequest) -> Query:
    """The filters of a list: the protocol's own, the proposal's, and ours under `_meta`."""
    own = (request.meta or {}).get(NAMESPACE, {})
    if not isinstance(own, dict):
        raise RpcError(INVALID_PARAMS, f"_meta.{NAMESPACE} must be an object")
    if request.cwd is not None and not os.path.isabs(request.cwd):
        raise RpcError(INVALID_PARAMS, f"cwd must be an absolute path, not {request.cwd!r}")
    created = own.get("createdAfter") if request.created_after is None else request.created_after
    limit = own.get("limit", PAGE)
    try:
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST:
            raise InvalidInput(f"limit must be from 1 to {MOST}")
        return msgspec.convert(
            {
                "cwd": request.cwd,
                "worktrees": own.get("includeWorktrees", False),
                "tag": own.get("tag"),
                "text": (own.get("search") if request.search is None else request.search) or None,
                "archived": "exclude" if request.archived is None else request.archived,
                "created_gt": None if created is None else clock.from_rfc3339(created),
                "limit": limit,
            },
            Query,
        )
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise RpcError(INVALID_PARAMS, f"session/list: {error}") from None
