"""A look at all that can be checked without changing anything: what `segue doctor` shows."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from segue.model import projection
from segue.model.errors import SegueError
from segue.model.principal import Principal
from segue.model.query import Query
from segue.model.session import Session

if TYPE_CHECKING:
    from segue.hub.sessions.catalog import Reading

RECENT = 200  # sessions whose rows are compared with their histories, unless all are
_LITTLE = 200 << 20  # bytes of free disk that are worth a word
_PAGE = 500


class Finding(NamedTuple):
    """One thing that was looked at."""

    about: str
    state: Literal["ok", "warning", "problem"]
    message: str


async def checkup(hub: Reading, principal: Principal, *, deep: bool) -> AsyncIterator[Finding]:
    """What was looked at, and how it is. `deep` looks at every session, not at the latest."""
    for finding in _directory(hub):
        yield finding
    wrong = await hub.store.check()
    for message in wrong:
        yield Finding("store", "problem", message)
    if not wrong:
        yield Finding("store", "ok", f"{_kind(hub)}: its structure is sound")
    looked = 0
    async for session in _sessions(hub, principal, None if deep else RECENT):
        looked += 1
        if problem := await _unlike_its_history(hub, session):
            yield Finding("sessions", "problem", problem)
    which = "all" if deep else "the latest"
    yield Finding("sessions", "ok", f"{which} {looked} compared with their histories")
    left = len(await hub.store.expired_leases())
    if left:
        yield Finding("turns", "warning", f"{left} were cut off; they are closed when next opened")
    for source in await hub._sources(principal):
        yield await _source(source.name, hub, principal)


def _kind(hub: Reading) -> str:
    if hub.database is None:
        return "embedded"
    from segue.store.postgres.connection import describe

    return describe(hub.database)


def _directory(hub: Reading) -> list[Finding]:
    path = hub.data_dir
    found = []
    try:
        if not os.access(path, os.W_OK):
            found.append(Finding("data", "warning", f"{path} can only be read"))
        free = shutil.disk_usage(path).free
        if free < _LITTLE:
            found.append(Finding("disk", "warning", f"only {free >> 20} MB are free at {path}"))
        for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
            if entry.is_file() and stat.S_IMODE(entry.stat().st_mode) & 0o077:
                hint = f"others can read {entry.path}; chmod 600 it"
                found.append(Finding("data", "warning", hint))
    except OSError as error:
        found.append(Finding("data", "problem", f"cannot look into {path}: {error.strerror}"))
    return found or [Finding("data", "ok", str(path))]


async def _sessions(hub: Reading, principal: Principal, most: int | None) -> AsyncIterator[Session]:
    """Native sessions on every shelf, the latest first."""
    for query in (Query(archived="include", limit=_PAGE), Query(trash=True, limit=_PAGE)):
        seen, cursor = 0, None
        while True:
            page = await hub.list(principal, query, cursor)
            for session in page.sessions:
                if most is not None and seen >= most:
                    break
                seen += 1
                yield session
            cursor = page.next
            if cursor is None or (most is not None and seen >= most):
                break


async def _unlike_its_history(hub: Reading, session: Session) -> str | None:
    stored = await hub.store.get(session.workspace, session.id)
    if stored is None:
        return None  # a source's, or purged since
    try:
        events = [event async for event in hub._read(session.workspace, session.id, None, 0)]
        if projection.project(session.workspace, session.id, events) == stored:
            return None
        # It may have grown between the two reads.
        if await hub.store.get(session.workspace, session.id) != stored:
            return None
        return f"session {session.id} is not what its history says; export and import mends it"
    except (SegueError, ValueError) as error:
        return f"the history of session {session.id} cannot be read: {error}"


async def _source(name: str, hub: Reading, principal: Principal) -> Finding:
    try:
        await hub.list(principal, Query(source=name, limit=1))
    except (SegueError, OSError) as error:
        return Finding(name, "problem", f"its sessions cannot be read: {error}")
    return Finding(name, "ok", "its sessions can be read")
