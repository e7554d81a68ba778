"""Limit what each workspace stores and runs: sessions, files, bytes, schedules, turns, streams.

A quota is checked where a thing is created, for callers other than the local user. The store knows
what a workspace uses, so a check reads a few small rows and no sessions. A process counts its own
creations that are not stored yet, and has at most MAX_CONCURRENT_CREATIONS of them per workspace.
So one process never exceeds a quota, and each further process exceeds it by that number at most.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from msgspec.structs import replace

from segue.model import clock
from segue.model.errors import Conflict, InvalidInput, QuotaExceeded, QuotaInUse
from segue.model.principal import Principal
from segue.model.query import Position
from segue.model.record import Record, RecordBody
from segue.store.base import Store

UNLIMITED = "unlimited"
STREAMS = "streams"
RETRY_AFTER_SECONDS = 5
MAX_CONCURRENT_CREATIONS = 8
LIMITS_VALID_SECONDS = 5.0  # before a process reads the limits of a workspace again
MAX_CACHED_WORKSPACES = 10_000
# The records of directories' sizes. Smaller directories have none, so that adding them is cheap.
DIRECTORY_KIND = "directory"
MIN_DIRECTORY_BYTES = 1_000_000
DIRECTORIES_PER_READ = 500
_SETTING_PREFIX = "quota."
_LIMIT = re.compile(r"(\d{1,18}) *([KMGT]i?)?(B)?", re.ASCII | re.IGNORECASE)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


class Quota(NamedTuple):
    """One quota. `advice` says what a caller can do when it is used up.

    A `passing` quota limits what ends by itself, such as turns.
    """

    description: str
    advice: str
    passing: bool = False
    in_bytes: bool = False


QUOTAS: dict[str, Quota] = {
    "sessions": Quota(
        "Sessions, including archived ones and those in the trash.",
        "delete sessions that are not needed",
    ),
    "files": Quota(
        "Uploaded files, files in sessions, outputs, memories and versions of skills.",
        "delete files, memories, skills or sessions that are not needed",
    ),
    "bytes": Quota(
        "Bytes of events, files and other records, and of the directories of sessions.",
        "delete sessions or files that are not needed",
        in_bytes=True,
    ),
    "schedules": Quota(
        "Deployments with a schedule.", "archive a deployment or remove its schedule"
    ),
    "turns": Quota(
        "Turns that run, wait for an answer or wait for another turn of their session.",
        "wait until a turn has ended",
        passing=True,
    ),
    STREAMS: Quota(
        "Open event streams, of the API and the session browser.",
        "close a stream",
        passing=True,
    ),
}


class DirectoryBody(RecordBody, frozen=True):
    """The body of the record of a directory's size. Its id is that of the session."""

    bytes: int


class QuotaState(NamedTuple):
    """A quota of a workspace: its limit, if any, and its use.

    `source` says who set the limit: "workspace", "server" or None. The use of streams is known only
    to the processes that serve them.
    """

    name: str
    limit: int | None
    used: int | None
    source: str | None


class Quotas:
    """Check the quotas of a store's workspaces. `defaults` are the server's limits by name."""

    def __init__(self, store: Store, defaults: Mapping[str, int]) -> None:
        for name in defaults:
            _get_quota(name)
        self._store = store
        self._defaults = dict(defaults)
        self._creations: WeakValueDictionary[str, _Creations] = WeakValueDictionary()
        self._open_streams: dict[str, int] = {}
        self._cached_limits: dict[str, tuple[float, dict[str, int]]] = {}  # with their expiry
        self._cached_directory_bytes: dict[str, tuple[float, int]] = {}  # with their expiry

    async def check(self, principal: Principal, **amounts: int) -> None:
        """Raise QuotaExceeded if a caller may not create so much more of each quota."""
        limits = await self._limits_for(principal, amounts)
        if limits:
            used = await self._used(principal.workspace, limits)
            for name, limit in limits.items():
                _require(name, limit, used[name], amounts[name])

    @asynccontextmanager
    async def reserve(self, principal: Principal, **amounts: int) -> AsyncIterator[None]:
        """Check quotas, and count a creation as used until it is stored, when the block ends.

        Raises QuotaExceeded as `check` does. Reservations must not be nested: see `reserve_more`.
        """
        if not await self._limits_for(principal, amounts):
            yield
            return
        creations = self._creations.setdefault(principal.workspace, _Creations())
        async with creations.slots, self.reserve_more(principal, **amounts):
            yield

    @asynccontextmanager
    async def reserve_more(self, principal: Principal, **amounts: int) -> AsyncIterator[None]:
        """Reserve other quotas inside of a reservation, which may not have the same ones."""
        workspace = principal.workspace
        limits = await self._limits_for(principal, amounts)
        if not limits:
            yield
            return
        creations = self._creations.setdefault(workspace, _Creations())
        while next_end := await self._begin(creations, workspace, limits, amounts):
            await next_end.wait()
        try:
            yield
        finally:
            creations.end(amounts)

    async def _begin(
        self,
        creations: _Creations,
        workspace: str,
        limits: Mapping[str, int],
        amounts: Mapping[str, int],
    ) -> asyncio.Event | None:
        """Begin a creation if it fits, else return the end of another one to wait for.

        The usage that is read has all creations that ended before. Others may be in it or not, so
        all of them are added. If the sum is too high, the caller tries again when one has ended.
        Raises QuotaExceeded if the creation does not fit even without the others.
        """
        next_end = creations.next_end
        ended_before = Counter(creations.ended_amounts)
        used = await self._used(workspace, limits)
        for name, limit in limits.items():
            running = creations.begun_amounts[name] - ended_before[name]
            if used[name] + running + amounts[name] > limit:
                if running:
                    return next_end
                _require(name, limit, used[name], amounts[name])
        creations.begun_amounts.update(amounts)
        return None

    async def _used(self, workspace: str, names: Collection[str]) -> dict[str, int]:
        """Return what a workspace uses, by quota; directories are added if "bytes" is needed."""
        used: dict[str, int] = (await self._store.usage(workspace))._asdict()
        if "bytes" in names:
            used["bytes"] += await self._directory_bytes(workspace)
        return used

    async def _directory_bytes(self, workspace: str) -> int:
        """Return the bytes of a workspace's directories, as of LIMITS_VALID_SECONDS ago at most."""
        expires_at, total = self._cached_directory_bytes.get(workspace, (0.0, 0))
        if expires_at > time.monotonic():
            return total
        total, after = 0, None
        while rows := await self._store.records(
            workspace, DIRECTORY_KIND, after=after, limit=DIRECTORIES_PER_READ
        ):
            total += sum(DirectoryBody.of(row).bytes for row in rows)
            after = Position(rows[-1].created_at, rows[-1].id)
        if len(self._cached_directory_bytes) >= MAX_CACHED_WORKSPACES:
            self._cached_directory_bytes.clear()
        self._cached_directory_bytes[workspace] = (time.monotonic() + LIMITS_VALID_SECONDS, total)
        return total

    async def record_directory(self, workspace: str, id: str, bytes: int) -> None:
        """Store how many bytes a session's directory has; nothing if they are few."""
        record = await self._store.get_record(workspace, DIRECTORY_KIND, id)
        if bytes >= MIN_DIRECTORY_BYTES:
            now = clock.now()
            body = DirectoryBody(bytes=bytes).encode()
            version = 1 if record is None else record.version + 1
            first = record or Record(
                workspace=workspace,
                kind=DIRECTORY_KIND,
                id=id,
                version=version,
                created_at=now,
                updated_at=now,
                body=body,
            )
            changed = replace(first, version=version, updated_at=now, body=body)
            with suppress(Conflict):  # another process has measured it just now
                await self._store.put_record(changed, drop_earlier=True)
        elif record is not None:
            with suppress(Conflict):
                await self._store.put_records([], [record])
        self._cached_directory_bytes.pop(workspace, None)

    async def open_stream(self, principal: Principal) -> Callable[[], None]:
        """Count an open stream until the returned function is called.

        Raises QuotaInUse if the workspace has too many open streams in this process.
        """
        if principal.local:
            return lambda: None
        workspace = principal.workspace
        limits = await self._limits_for(principal, (STREAMS,))
        used = self._open_streams.get(workspace, 0)
        for name, limit in limits.items():
            _require(name, limit, used, 1)
        self._open_streams[workspace] = used + 1

        def close() -> None:
            self._open_streams[workspace] -= 1
            if not self._open_streams[workspace]:
                del self._open_streams[workspace]

        return close

    async def _limits_for(self, principal: Principal, names: Iterable[str]) -> dict[str, int]:
        """Return the limits that apply to a caller, of those quotas.

        They may be LIMITS_VALID_SECONDS old, because most creations would read the same again.
        """
        if principal.local:
            return {}
        expires_at, limits = self._cached_limits.get(principal.workspace, (0.0, {}))
        if expires_at <= time.monotonic():
            limits = await self._limits(principal.workspace)
            if len(self._cached_limits) >= MAX_CACHED_WORKSPACES:
                self._cached_limits.clear()
            expires_at = time.monotonic() + LIMITS_VALID_SECONDS
            self._cached_limits[principal.workspace] = (expires_at, limits)
        return {name: limits[name] for name in names if name in limits}

    async def _limits(self, workspace: str) -> dict[str, int]:
        """Return the limits of a workspace by name, without those that are unlimited."""
        limits: dict[str, Any] = self._defaults | await self._overrides(workspace)
        return {name: limit for name, limit in limits.items() if limit != UNLIMITED}

    async def _overrides(self, workspace: str) -> dict[str, Any]:
        """Return the limits that were set for a workspace: numbers or UNLIMITED."""
        settings = await self._store.settings(workspace)
        overrides = {name: settings.get(_SETTING_PREFIX + name) for name in QUOTAS}
        return {name: limit for name, limit in overrides.items() if limit is not None}

    async def states(self, workspace: str) -> list[QuotaState]:
        """Return all quotas of a workspace with their limits and their use."""
        overrides = await self._overrides(workspace)
        limits = await self._limits(workspace)
        used = await self._used(workspace, QUOTAS)
        states = []
        for name in QUOTAS:
            server = "server" if name in self._defaults else None
            source = "workspace" if name in overrides else server
            states.append(QuotaState(name, limits.get(name), used.get(name), source))
        return states

    async def set_limit(self, workspace: str, name: str, text: str) -> None:
        """Set a limit of a workspace from text: a number, a size or UNLIMITED."""
        value = UNLIMITED if text.strip().lower() == UNLIMITED else parse_limit(name, text)
        _get_quota(name)
        await self._store.set_setting(workspace, _SETTING_PREFIX + name, value)
        self._cached_limits.pop(workspace, None)

    async def unset_limit(self, workspace: str, name: str) -> None:
        """Remove a limit of a workspace, so that the server's limit applies again."""
        _get_quota(name)
        await self._store.set_setting(workspace, _SETTING_PREFIX + name, None)
        self._cached_limits.pop(workspace, None)


class _Creations:
    """The creations of a workspace in this process, as amounts by quota since it was made."""

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(MAX_CONCURRENT_CREATIONS)
        self.begun_amounts: Counter[str] = Counter()
        self.ended_amounts: Counter[str] = Counter()
        self.next_end = asyncio.Event()

    def end(self, amounts: Mapping[str, int]) -> None:
        self.ended_amounts.update(amounts)
        self.next_end.set()
        self.next_end = asyncio.Event()


def parse_limits(assignments: Iterable[str]) -> dict[str, int]:
    """Return limits by name from texts such as `sessions=1000`. Raises InvalidInput."""
    limits = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise InvalidInput(f"{assignment!r} is not a quota; use NAME=LIMIT, such as bytes=10GB")
        limits[name] = parse_limit(name, text)
    return limits


def parse_limit(name: str, text: str) -> int:
    """Return the limit of a text. Raises InvalidInput if the quota `name` cannot have it."""
    quota = _get_quota(name)
    match = _LIMIT.fullmatch(text.strip())
    if match is None or (not quota.in_bytes and (match[2] or match[3])):
        example = "a size such as 500MB, 10GB or 1TiB" if quota.in_bytes else "a whole number"
        raise InvalidInput(f"{name}: {text!r} is not a limit; use {example}")
    unit = (match[2] or "").lower()
    factor = 1024 if unit.endswith("i") else 1000
    return int(match[1]) * int(factor ** _POWERS.get(unit[:1], 0))


def format_amount(name: str, amount: int) -> str:
    """Return an amount for people: with separators, and in bytes with a rounded size."""
    text = f"{amount:,}"
    if not QUOTAS[name].in_bytes:
        return text
    for unit, power in (("TB", 4), ("GB", 3), ("MB", 2), ("kB", 1)):
        if amount >= 1000**power:
            return f"{text} bytes ({amount / 1000**power:.3g} {unit})"
    return f"{text} bytes"


def _require(name: str, limit: int, used: int, more: int) -> None:
    """Raise QuotaExceeded if `used` and `more` together exceed a limit."""
    if used + more <= limit:
        return
    quota = QUOTAS[name]
    message = (
        f"the quota {name!r} of this workspace is used up: {format_amount(name, used)} of"
        f" {format_amount(name, limit)}; {quota.advice}, or ask the operator of this server for a"
        " higher limit"
    )
    details = {"quota": name, "limit": limit, "used": used}
    if quota.passing:
        headers = [(b"retry-after", b"%d" % RETRY_AFTER_SECONDS)]
        raise QuotaInUse(message, details=details, headers=headers)
    raise QuotaExceeded(message, details=details)


def _get_quota(name: str) -> Quota:
    if name not in QUOTAS:
        raise InvalidInput(f"there is no quota {name!r}; the quotas are {', '.join(QUOTAS)}")
    return QUOTAS[name]
