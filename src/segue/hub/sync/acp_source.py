"""The sessions that another ACP agent lists; a session is imported when a client opens it."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from segue.hub.resources.records import program_id
from segue.hub.sessions import directories
from segue.model import clock, ids
from segue.model.errors import Conflict, SegueError
from segue.model.event import AgentRef, AnyBody, ConfigChanged, Created, Draft, InfoChanged
from segue.model.query import Query
from segue.model.session import Session

from .memory_source import MemorySource
from .overlay_edits import overlay_edits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from segue.agents.acp import AcpAgent, SessionInfo
    from segue.sources.base import Source
    from segue.store.base import Store

log = logging.getLogger("segue.sync")

FRESH_SECONDS = 5.0  # after which the agent is asked for a list again
LIST_TIMEOUT_SECONDS = 20.0
MAX_DIRECTORY_LISTS = 8  # besides the requested one, the most recently requested
MAX_STORED_SESSIONS = 1000  # with the agent, of which the native ids are known, the newest


class AcpSource(MemorySource):
    """The sessions that one ACP agent lists."""

    def __init__(
        self,
        store: Store,
        agent: AcpAgent,
        ref: AgentRef,
        name: str,
        workspace: str,
        sources: Iterable[Source] = (),
    ) -> None:
        """Create a source; it leaves out the sessions that one of `sources` has as well."""
        super().__init__(workspace, name)
        self._sources = sources
        self._imports = store
        self._agent = agent
        self._ref = ref
        self._rows: dict[str, SessionInfo] = {}
        self._lists: dict[str | None, dict[str, SessionInfo]] = {}  # by directory; None is all
        self._listed_at: dict[str | None, float] = {}
        self._refresh_lock = asyncio.Lock()

    async def refresh(self, cwd: str | None = None) -> None:
        async with self._refresh_lock:
            await self._update_lists(cwd)
            rows = {id: row for listed in self._lists.values() for id, row in listed.items()}
            for id in self._rows.keys() - rows.keys():
                await self.delete(id)
            for id, row in rows.items():
                await self._update_session(id, row)
            self._rows = rows

    async def _update_lists(self, cwd: str | None) -> None:
        """Update the list of all sessions, that of a directory, and those requested earlier.

        The earlier ones show which sessions were deleted.
        """
        requested = dict.fromkeys((None, cwd))  # some agents list a session only by its directory
        earlier = [directory for directory in self._lists if directory not in requested]
        for directory in earlier[:-MAX_DIRECTORY_LISTS]:
            del self._lists[directory], self._listed_at[directory]
        kept_lists = {
            directory: self._lists[directory] for directory in earlier[-MAX_DIRECTORY_LISTS:]
        }
        self._lists = kept_lists | {
            directory: self._lists.get(directory, {}) for directory in requested
        }
        answered = [await self._update_list(directory) for directory in requested]
        if all(answered):  # an agent that does not answer is not asked again
            for directory in kept_lists:
                if not await self._update_list(directory):
                    return

    async def _update_list(self, cwd: str | None) -> bool:
        """Update one list unless it is fresh; return False if the agent did not answer."""
        time = asyncio.get_running_loop().time
        if time() - self._listed_at.get(cwd, float("-inf")) < FRESH_SECONDS:
            return True
        try:
            async with asyncio.timeout(LIST_TIMEOUT_SECONDS):
                rows = await self._request_list(cwd)
                self._lists[cwd] = {
                    self._agent.native.session_id_for(row.session_id): row for row in rows
                }
        except (SegueError, TimeoutError) as error:
            log.warning("%s did not list its sessions: %s", self.name, error or "no answer")
            return False
        finally:
            self._listed_at[cwd] = time()
        return True

    async def _request_list(self, cwd: str | None) -> list[SessionInfo]:
        """Return what the agent lists, without the sessions that are listed already.

        They are stored under another id, or in the files that another source reads.
        """
        query = Query(
            agent_id=program_id(self.workspace, self.name),
            archived="include",
            limit=MAX_STORED_SESSIONS,
        )
        stored_ids = {
            self._agent.native.native_id(session): session.id
            for session in await self._imports.page(self.workspace, query)
        }
        listed = await self._agent.list_sessions(cwd)
        # A source gives a session whose native id is not a UUID an id of its own.
        elsewhere: set[tuple[str | None, str]] = set()
        if any(ids.parse(row.session_id) is None for row in listed):
            elsewhere = await self._native_ids_elsewhere(cwd)
        rows = []
        for row in listed:
            id = self._agent.native.session_id_for(row.session_id)
            is_known = stored_ids.get(row.session_id) not in (None, id)
            is_known = is_known or (row.session_id, directories.real(row.cwd)) in elsewhere
            if not is_known and not await self._is_in_another_source(id):
                rows.append(row)
        return rows

    @property
    def _other_sources(self) -> Iterator[Source]:
        for source in self._sources:
            if source is not self and source.workspace == self.workspace:
                yield source

    async def _is_in_another_source(self, id: str) -> bool:
        for source in self._other_sources:
            if await source.get(id):
                return True
        return False

    async def _native_ids_elsewhere(self, cwd: str | None) -> set[tuple[str | None, str]]:
        """Return the native ids and directories of the newest sessions of each other source."""
        query = Query(cwd=cwd, archived="include", limit=MAX_STORED_SESSIONS)
        copied_ids = set()
        for source in self._other_sources:
            for session in await source.page(query):
                copied_ids.add((session.native_id, session.directory))
        return copied_ids

    async def _update_session(self, id: str, row: SessionInfo) -> None:
        """Create a session from its row, or replace it if the row changed."""
        if self._rows.get(id) == row:
            return
        if id in self._rows:
            await self.delete(id)
        at = _parse_time(row.updated_at)
        created = Created(
            cwd=row.cwd,
            real_cwd=real if (real := directories.real(row.cwd)) != row.cwd else None,
            source=self.name,
            native_id=row.session_id,
            agent=self._ref,
            extra=_row_extra(row),
        )
        bodies: list[AnyBody] = [created]
        if row.title:
            bodies.append(InfoChanged(title=row.title, by="agent"))
        await self.create(id, [Draft(body=body, at=at) for body in bodies])

    async def import_session(self, session: Session) -> Session:
        """Copy a session into the store, where it continues, and return the copy."""
        native_id = session.native_id or session.id
        history = await self._agent.read_history(session, native_id)
        created = Created(
            cwd=session.cwd,
            real_cwd=session.real_cwd,
            origin=session.source,
            native_id=native_id,
            agent=self._ref,
            extra=session.extra,
        )
        drafts = [Draft(body=created), *history]
        if session.title is not None:
            drafts.append(Draft(body=InfoChanged(title=session.title, by="agent")))
        options = self._agent.native.session_options(native_id, session.id)
        drafts.append(Draft(body=ConfigChanged(options=options)))
        drafts = [replace(draft, at=session.active_at) for draft in drafts]
        overlays = await self._imports.overlays(self.workspace, self.name)
        drafts += overlay_edits(overlays.get(session.id, {}))
        try:
            return await self._imports.create(self.workspace, session.id, drafts)
        except Conflict:  # another process imported it a moment ago
            return await self._imports.get(self.workspace, session.id) or session


def _row_extra(row: SessionInfo) -> dict[str, Any]:
    """Return the fields of a row that only clients of the agent's protocol know."""
    return {} if row.meta is None else {"acp": {"_meta": row.meta}}


def _parse_time(text: str | None) -> int:
    """Return when a session was last active: UTC without a zone, now without a valid time."""
    try:
        time = datetime.fromisoformat(text or "")
    except ValueError:
        return clock.now()
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return int(time.timestamp() * clock.SECOND)
