"""Check a store and its sources without changing anything: what `segue doctor` shows."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec.structs import replace

from segue.hub.sessions.catalog import SessionCatalog
from segue.hub.sessions.lookup import SessionLookup, SourceSet
from segue.hub.turns.holder import is_dead
from segue.model import projection
from segue.model.errors import SegueError
from segue.model.principal import Principal
from segue.model.query import Query
from segue.model.session import Session
from segue.sources import registry
from segue.sources.base import Examined, Source
from segue.store.base import Store

MAX_SOURCE_PROBLEMS = 20  # shown for each source
MAX_COMPARED_SESSIONS = 200  # compared with their events unless a deep check is wanted
LOW_DISK_BYTES = 200 << 20
PAGE_SIZE = 500


class Finding(NamedTuple):
    """The result of one check."""

    about: str
    state: Literal["ok", "note", "warning", "problem"]  # a note needs no action
    message: str


class FoundTool(NamedTuple):
    """A tool whose sessions are read, whether it was used here, and how many sessions it has."""

    source: str
    found: bool
    sessions: int


class Diagnostics:
    """Check the data directory, the store, session rows, turns and sources."""

    def __init__(
        self,
        store: Store,
        data_dir: Path,
        database_url: str | None,
        sources: SourceSet,
        lookup: SessionLookup,
        sessions: SessionCatalog,
    ) -> None:
        self._store = store
        self._data_dir = data_dir
        self._database_url = database_url
        self._sources = sources
        self._lookup = lookup
        self._sessions = sessions

    async def tools(self, workspace: str) -> list[FoundTool]:
        """Return the tools whose sessions a workspace reads, those with the most sessions first."""
        tools = []
        for source in await self._sources.in_workspace(workspace):
            if isinstance(source, Examined):
                with suppress(SegueError, OSError):
                    report = await source.examine()
                    found = report.sessions > 0 or any(map(os.path.exists, report.paths))
                    tools.append(FoundTool(source.name, found, report.sessions))
        return sorted(tools, key=lambda tool: (-tool.sessions, not tool.found, tool.source))

    async def run(self, principal: Principal, *, deep: bool) -> AsyncIterator[Finding]:
        """Yield findings as they are made. `deep` checks every session, not only recent ones."""
        for finding in self._check_directory():
            yield finding
        problems = await self._store.check()
        for message in problems:
            yield Finding("store", "problem", message)
        if not problems:
            yield Finding("store", "ok", f"{self._store_kind()}: its structure is sound")
        count = 0
        async for session in self._recent(principal, None if deep else MAX_COMPARED_SESSIONS):
            count += 1
            if problem := await self._check_row(session):
                yield Finding("sessions", "problem", problem)
        which = "all" if deep else "the latest"
        yield Finding("sessions", "ok", f"{which} {count} match their events")
        cut_off = sum(is_dead(lease.holder) for lease in await self._store.leases())
        if cut_off:
            message = f"{cut_off} were cut off; each is closed when its session is next opened"
            yield Finding("turns", "warning", message)
        sources = await self._sources.in_workspace(principal.workspace)
        for source in sources:
            async for finding in self._check_source(source, principal):
                yield finding
        yield await _price_table()
        for finding in _unopened_sources({source.name for source in sources}):
            yield finding

    def _store_kind(self) -> str:
        if self._database_url is None:
            return "embedded"
        from segue.store.postgres.connection import describe

        return describe(self._database_url)

    def _check_directory(self) -> list[Finding]:
        path = self._data_dir
        findings = []
        try:
            if not os.access(path, os.W_OK):
                findings.append(Finding("data", "warning", f"{path} can only be read"))
            free = shutil.disk_usage(path).free
            if free < LOW_DISK_BYTES:
                message = f"only {free >> 20} MB are free at {path}"
                findings.append(Finding("disk", "warning", message))
            for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
                if entry.is_file() and stat.S_IMODE(entry.stat().st_mode) & 0o077:
                    message = f"others can read {entry.path}; run `chmod 600` on it"
                    findings.append(Finding("data", "warning", message))
        except OSError as error:
            message = f"cannot read {path}: {error.strerror}"
            findings.append(Finding("data", "problem", message))
        return findings or [Finding("data", "ok", str(path))]

    async def _recent(self, principal: Principal, limit: int | None) -> AsyncIterator[Session]:
        """Yield sessions in every state, the latest first, up to `limit` of each state."""
        for query in (
            Query(archived="include", limit=PAGE_SIZE),
            Query(trash=True, limit=PAGE_SIZE),
        ):
            count, cursor = 0, None
            while True:
                page = await self._sessions.list(principal, query, cursor)
                for session in page.sessions:
                    if limit is not None and count >= limit:
                        break
                    count += 1
                    yield session
                cursor = page.next
                if cursor is None or (limit is not None and count >= limit):
                    break

    async def _check_row(self, session: Session) -> str | None:
        """Return what is wrong with a session row of the store, compared with its events."""
        stored = await self._store.get(session.workspace, session.id)
        if stored is None:
            return None  # a source owns it, or it was purged since
        try:
            history = self._lookup.read(session.workspace, session.id, None)
            events = [event async for event in history]
            projected = projection.project(session.workspace, session.id, events)
            if stored.tool_calls is None:  # an older version wrote the row
                projected = replace(projected, tool_calls=None)
            if stored.lines is None:
                projected = replace(projected, lines=None)
            if projected == stored:
                return None
            # It may have grown between the two reads.
            if await self._store.get(session.workspace, session.id) != stored:
                return None
            return (
                f"the row of session {session.id} does not match its events;"
                " export and import the session to repair it"
            )
        except (SegueError, ValueError) as error:
            return f"the events of session {session.id} cannot be read: {error}"

    async def _check_source(self, source: Source, principal: Principal) -> AsyncIterator[Finding]:
        name = source.name
        try:
            await self._sessions.list(principal, Query(source=name, limit=1))
            if not isinstance(source, Examined):
                yield Finding(name, "ok", "its sessions can be read")
                return
            paths, sessions, problems = await source.examine()
        except (SegueError, OSError) as error:
            yield Finding(name, "problem", f"its sessions cannot be read: {error}")
            return
        count = "1 session" if sessions == 1 else f"{sessions} sessions"
        yield Finding(name, "ok", f"{count} in {', '.join(paths)}")
        for path, reason in problems[:MAX_SOURCE_PROBLEMS]:
            yield Finding(name, "warning", f"{path}: {reason}")
        if len(problems) > MAX_SOURCE_PROBLEMS:
            more = len(problems) - MAX_SOURCE_PROBLEMS
            yield Finding(name, "warning", f"{more} more files or records cannot be read")


async def _price_table() -> Finding:
    """Return which list prices the costs of sessions are estimated from."""
    from segue.event_loop import run_in_thread
    from segue.prices.table import table_version

    return Finding("prices", "ok", await run_in_thread(table_version))


def _unopened_sources(opened: Collection[str]) -> list[Finding]:
    """Return the sources whose tool was not used here, and those that are not selected."""
    findings = []
    for definition in registry.definitions():
        if definition.name not in opened:
            home = definition.home()
            message = f"not used here: there is no {home}"
            if os.path.exists(home):
                message = f"not selected by --sources or SEGUE_SOURCES; it has {home}"
            findings.append(Finding(definition.name, "ok", message))
    return findings
