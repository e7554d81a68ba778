"""The sessions that another agent keeps, as it lists them itself: seen among ours, and taken in
when somebody opens one."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from segue.hub.resources.records import program_id
from segue.hub.sessions import directories
from segue.model import clock
from segue.model.errors import Conflict, SegueError
from segue.model.event import AgentRef, AnyBody, ConfigChanged, Created, Draft, InfoChanged
from segue.model.query import Query
from segue.model.session import Session

from .memory_source import MemorySource

if TYPE_CHECKING:
    from segue.agents.acp import AcpAgent, SessionInfo
    from segue.store.base import Store

log = logging.getLogger("segue.others")

FRESH_SECONDS = 5.0  # for which a list that the agent gave is good
LIST_SECONDS = 20.0  # that the agent has to give one
MOST_LISTS = 8  # of directories that are kept up with, those asked for last
MOST_OWN = 1000  # of our own sessions with the agent that are looked at, the latest


class OtherAgent(MemorySource):
    """A source over one agent's own list."""

    def __init__(
        self, store: Store, agent: AcpAgent, ref: AgentRef, name: str, workspace: str
    ) -> None:
        super().__init__(workspace, name)
        self._store = store
        self._agent = agent
        self._ref = ref
        self._rows: dict[str, SessionInfo] = {}
        self._lists: dict[str | None, dict[str, SessionInfo]] = {}  # by the directory asked for
        self._looking = asyncio.Lock()
        self._looked: dict[str | None, float] = {}

    async def refresh(self, cwd: str | None = None) -> None:
        async with self._looking:
            await self._look_again(cwd)
            rows = {id: row for found in self._lists.values() for id, row in found.items()}
            for id in self._rows.keys() - rows.keys():
                await self.delete(id)
            for id, row in rows.items():
                await self._see(id, row)
            self._rows = rows

    async def _look_again(self, cwd: str | None) -> None:
        """At all, at a directory, and at those asked for before, for what is gone from there."""
        asked = dict.fromkeys((None, cwd))  # some list all only if asked for each
        earlier = [each for each in self._lists if each not in asked]
        for each in earlier[:-MOST_LISTS]:
            del self._lists[each], self._looked[each]
        kept = {each: self._lists[each] for each in earlier[-MOST_LISTS:]}
        self._lists = kept | {each: self._lists.get(each, {}) for each in asked}
        answers = [await self._look(each) for each in asked]
        if all(answers):  # who does not answer is not asked for the rest
            for each in kept:
                if not await self._look(each):
                    return

    async def _look(self, cwd: str | None) -> bool:
        """Have a list that is good; False if the agent gave none."""
        now = asyncio.get_running_loop().time
        if now() - self._looked.get(cwd, float("-inf")) < FRESH_SECONDS:
            return True
        try:
            async with asyncio.timeout(LIST_SECONDS):
                rows = await self._listed(cwd)
                self._lists[cwd] = {self._agent.session_id_for(row.session_id): row for row in rows}
        except (SegueError, TimeoutError) as error:
            log.warning("%s did not list its sessions: %s", self.name, error or "no answer")
            return False
        finally:
            self._looked[cwd] = now()
        return True

    async def _listed(self, cwd: str | None) -> list[SessionInfo]:
        """What the agent lists, but for sessions that are ours under another id."""
        mine = Query(
            agent_id=program_id(self.workspace, self.name), archived="include", limit=MOST_OWN
        )
        own = {
            self._agent.native_id(session): session.id
            for session in await self._store.page(self.workspace, mine)
        }
        return [
            row
            for row in await self._agent.list_sessions(cwd)
            if own.get(row.session_id) in (None, self._agent.session_id_for(row.session_id))
        ]

    async def _see(self, id: str, row: SessionInfo) -> None:
        if self._rows.get(id) == row:
            return
        if id in self._rows:
            await self.delete(id)
        at = _time(row.updated_at)
        created = Created(
            cwd=row.cwd,
            real_cwd=real if (real := directories.real(row.cwd)) != row.cwd else None,
            source=self.name,
            native_id=row.session_id,
        )
        bodies: list[AnyBody] = [created]
        if row.title:
            bodies.append(InfoChanged(title=row.title, by="agent"))
        await self.add(id, [Draft(body=body, at=at) for body in bodies])

    async def import_session(self, session: Session) -> Session:
        """Copy a session into the store, where it goes on; from then on the copy is what counts."""
        native = session.native_id or session.id
        told = await self._agent.read_history(session, native)
        created = Created(
            cwd=session.cwd,
            real_cwd=session.real_cwd,
            origin=session.source,
            native_id=native,
            agent=self._ref,
        )
        bodies: list[AnyBody] = [created, *told]
        if session.title is not None:
            bodies.append(InfoChanged(title=session.title, by="agent"))
        bodies.append(ConfigChanged(options=self._agent.session_options(native, session.id)))
        drafts = [Draft(body=body, at=session.active_at) for body in bodies]
        try:
            return await self._store.create(self.workspace, session.id, drafts)
        except Conflict:  # another process was quicker
            return await self._store.get(self.workspace, session.id) or session


def _time(text: str | None) -> int:
    """When a session was last active; some agents leave out the zone, or all of it."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return clock.now()
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return int(found.timestamp() * clock.SECOND)
