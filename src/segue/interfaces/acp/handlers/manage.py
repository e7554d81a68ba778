"""Handle the methods for any session, attached or not: list, delete, title, archive, status."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from segue.acp import wire
from segue.acp.rpc import INVALID_PARAMS, RpcError
from segue.hub import Hub
from segue.interfaces.acp.attached_session import TURN_END_SECONDS
from segue.interfaces.acp.attached_sessions import AttachedSessions
from segue.interfaces.acp.capabilities import AgentProfile
from segue.interfaces.acp.errors import invalid_params
from segue.interfaces.acp.meta import NAMESPACE, session_meta
from segue.interfaces.acp.versions.policy import VersionPolicy
from segue.model import clock, codec, ids
from segue.model.errors import NotFound
from segue.model.principal import Principal
from segue.model.query import Query
from segue.model.session import Session

from .session_access import SessionAccess

log = logging.getLogger("segue.acp")
T = TypeVar("T")

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 1000
_ARCHIVED_FILTERS: dict[str | None, Literal["exclude", "include", "only"]] = {
    None: "exclude",
    "exclude": "exclude",
    "include": "include",
    "only": "only",
}


class _OwnFilters(msgspec.Struct, frozen=True, rename="camel"):
    """The filters of `session/list` in segue's `_meta`."""

    search: str | None = None
    created_after: str | None = None
    tag: str | None = None
    include_worktrees: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE_SIZE)] = DEFAULT_PAGE_SIZE


class _DeleteOptions(msgspec.Struct, frozen=True, rename="camel"):
    """The options of `session/delete` in segue's `_meta`."""

    permanently: bool = False


class ManageHandlers:
    """Lists and manages the sessions that the client may use."""

    def __init__(
        self,
        hub: Hub,
        principal: Principal,
        attached: AttachedSessions,
        access: SessionAccess,
        policy: VersionPolicy,
        profile: AgentProfile,
    ) -> None:
        self._hub = hub
        self._principal = principal
        self._attached = attached
        self._access = access
        self._policy = policy
        self._profile = profile

    async def list(self, request: wire.ListRequest) -> wire.ListSessionsResponse:
        """Answer `session/list`."""
        query = replace(_parse_query(request), agent_id=self._access.agent_id)
        if not self._profile.persistent or not self._profile.has("list"):
            if request.cursor is not None:
                raise RpcError(INVALID_PARAMS, "cursor: this list has one page")
            return wire.ListSessionsResponse(sessions=[])
        await self._access.purge_expired()
        page = await self._hub.sessions.list(self._principal, query, request.cursor)
        return wire.ListSessionsResponse(
            sessions=[self._session_info(session) for session in page.sessions],
            next_cursor=UNSET if page.next is None else page.next,
        )

    async def delete(self, request: wire.SessionRequest) -> wire.Empty:
        """Answer `session/delete`. Deleting a session that does not exist succeeds."""
        options = _own_fields(request.meta, _DeleteOptions)
        editor = self._hub.editor
        session_id = ids.parse(request.session_id, "sesn")
        if session_id is None:  # no session can have this id
            return wire.Empty()
        async with self._attached.lock(session_id):
            try:
                delete = editor.purge if options.permanently else editor.trash
                await self._close_and(delete, session_id)
            except NotFound:
                log.info("session %s does not exist; nothing to delete", session_id)
        return wire.Empty()

    async def set_title(self, request: wire.SetTitleRequest) -> wire.SetTitleResponse:
        """Answer `session/set_title`."""
        session_id = (await self._access.sync_and_get(request.session_id)).id
        session = await self._hub.editor.set_title(self._principal, session_id, request.title)
        await self._wait_sent(session_id)
        return wire.SetTitleResponse(title=session.title or "")

    async def archive(self, request: wire.SessionRequest) -> wire.Empty:
        """Answer `session/archive`."""
        session_id = (await self._access.sync_and_get(request.session_id)).id
        async with self._attached.lock(session_id):
            await self._close_and(self._hub.editor.archive, session_id)
        return wire.Empty()

    async def unarchive(self, request: wire.SessionRequest) -> wire.Empty:
        """Answer `session/unarchive`."""
        session_id = (await self._access.sync_and_get(request.session_id)).id
        await self._hub.editor.unarchive(self._principal, session_id)
        await self._wait_sent(session_id)
        return wire.Empty()

    async def status(self, request: wire.SessionRequest) -> Any:
        """Answer `session/status`."""
        session = await self._access.sync_and_get(request.session_id)
        return self._policy.status_response(session, attached=session.id in self._attached)

    def _session_info(self, session: Session) -> wire.SessionInfo:
        archived = session.archived_at is not None
        return wire.SessionInfo(
            session_id=session.id,
            cwd=session.cwd,
            title=session.title,
            updated_at=clock.to_rfc3339(session.active_at),
            additional_directories=[*session.roots] if session.roots else UNSET,
            archived=archived if self._profile.has("archive") else UNSET,
            meta=session_meta(session),
        )

    async def _wait_sent(self, session_id: str) -> None:
        """Wait until the client has received the events of a session, if it is attached."""
        if attached_session := self._attached.get(session_id):
            await attached_session.wait_sent()

    async def _close_and(
        self, edit: Callable[[Principal, str], Awaitable[object]], session_id: str
    ) -> None:
        """Close a session, end a turn that another process may be running, and edit the session."""

        async def end_turn_and_edit() -> None:
            session = await self._hub.sessions.get(self._principal, session_id)
            self._access.check_agent(session)
            if session.turn is not None:
                await self._hub.turns.cancel(self._principal, session_id)
                turn_end = self._hub.turns.wait(self._principal, session_id, session.turn)
                try:
                    await asyncio.wait_for(turn_end, TURN_END_SECONDS)
                except TimeoutError:
                    # The edit raises an error that says that a turn is running.
                    log.info("session %s: the cancelled turn does not end", session_id)
            await edit(self._principal, session_id)

        await self._attached.detach(session_id, end_turn_and_edit)


def _own_fields(meta: Mapping[str, Any] | None, type: type[T]) -> T:
    """Return segue's own fields of a request's `_meta`. Raises RpcError if one is invalid."""
    try:
        return codec.convert((meta or {}).get(NAMESPACE, {}), type)
    except msgspec.ValidationError as error:
        raise invalid_params(error, f"_meta.{NAMESPACE}") from None


def _parse_query(request: wire.ListRequest) -> Query:
    """Return the filters of a list.

    They are in the protocol's fields, in fields of a proposed extension, or in segue's `_meta`.
    Raises RpcError if one of them is invalid.
    """
    own_filters = _own_fields(request.meta, _OwnFilters)
    if request.cwd is not None and not os.path.isabs(request.cwd):
        raise RpcError(INVALID_PARAMS, f"cwd must be an absolute path, not {request.cwd!r}")
    archived = _ARCHIVED_FILTERS.get(request.archived)
    if archived is None:
        message = f"archived must be exclude, include or only, not {request.archived!r}"
        raise RpcError(INVALID_PARAMS, message)
    if request.created_after is None:
        created_gt = _parse_time(own_filters.created_after, f"_meta.{NAMESPACE}.createdAfter")
    else:
        created_gt = _parse_time(request.created_after, "createdAfter")
    text = own_filters.search if request.search is None else request.search
    return Query(
        cwd=request.cwd,
        worktrees=own_filters.include_worktrees,
        tag=own_filters.tag,
        text=text or None,
        archived=archived,
        created_gt=created_gt,
        limit=own_filters.limit,
    )


def _parse_time(text: str | None, path: str) -> int | None:
    try:
        return None if text is None else clock.from_rfc3339(text)
    except ValueError:
        message = f"{path} must be a time such as 2026-01-31T12:00:00Z, not {text!r}"
        raise RpcError(INVALID_PARAMS, message) from None
