"""Reaching the database: connections and their settings, another try where one helps, errors."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg  # type: ignore[import-untyped]  # it ships no types

from segue.model import errors
from segue.store import migrations

from .migrate import prepare

T = TypeVar("T")
Connection = Any  # asyncpg.Connection
Row = Any  # asyncpg.Record: a tuple to us
Operation = Callable[[Connection], Awaitable[T]]

POOL = 10  # connections of one process, beside the one that listens
TRIES = 6
TO_CONNECT, TO_ANSWER = 15, 60  # seconds that a server may take

SETTINGS = {
    "application_name": "segue",
    # Tables of our own, whatever else the database is used for.
    "search_path": "segue",
    # Every list is written for one plan: a walk along the index that has its order. These keep
    # the planner to it where it has no statistics yet or would guess, and spare it the planning.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_sort": "off",
    "jit": "off",
    # A process that is stopped in the middle of a change must not hold up the others for long.
    "idle_in_transaction_session_timeout": "10s",
    "lock_timeout": "30s",
}
_OPTIONS: dict[str, Any] = {
    # What the database refuses us by, should a newer program close it to this one.
    "server_settings": {**SETTINGS, "segue.format": str(migrations.load("postgres")[-1].number)},
    "timeout": TO_CONNECT,
    "command_timeout": TO_ANSWER,
}

_ERRORS: dict[str, tuple[type[errors.StoreError], str]] = {
    "53100": (errors.StoreFull, "the disk is full: nothing of this change was kept in"),
    "25006": (errors.StoreReadOnly, "writing is not allowed (is it a standby?) in"),
    "42501": (errors.StoreReadOnly, "this user lacks the permission for that in"),
    "55P03": (errors.StoreLocked, "another program has been holding a lock in"),
    "57014": (errors.StoreLocked, "the request was cancelled, or took too long, in"),
    "SG001": (errors.StoreTooNew, "a newer segue closed it to this one; upgrade segue to write to"),
    "XX001": (errors.StoreCorrupt, "damaged:"),
    "XX002": (errors.StoreCorrupt, "damaged index in"),
    "28P01": (errors.StoreError, "the user name or password was refused by"),
    "28000": (errors.StoreError, "this user may not connect to"),
    "3D000": (errors.StoreError, "there is no such database:"),
    "53300": (errors.StoreError, "no connection is left for us at"),
    "57P03": (errors.StoreError, "the server is starting up or shutting down:"),
}
_CONFLICTS = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
_LOST = (
    ConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)


class Database:
    """A pool of connections to one database, with what every operation needs of it."""

    def __init__(self, url: str, pool: Any) -> None:
        self._url = url
        self._pool = pool
        self._closed = False
        self.commits = 0
        self.queued = 0  # writes that have been asked for and are not done

    @classmethod
    async def open(cls, url: str) -> Self:
        """The database at a URL, made ours or brought up to date first."""
        with translated(url):
            try:
                pool = await asyncpg.create_pool(
                    url, min_size=1, max_size=POOL, reset=_keep_as_it_is, **_OPTIONS
                )
            except ValueError:
                # Its words may repeat the URL, and so may the traceback.
                raise errors.InvalidInput("the database URL cannot be understood") from None
            try:
                async with pool.acquire() as connection:
                    await prepare(connection, describe(url))
            except BaseException:
                await pool.close()
                raise
        return cls(url, pool)

    async def close(self) -> None:
        self._closed = True
        try:
            async with asyncio.timeout(5):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        """What one statement reads."""

        async def attempt(_: _Progress) -> list[Row]:
            rows: list[Row] = await self._pool.fetch(sql, *args)
            return rows

        return await self._persist(attempt)

    async def write(self, sql: str, *args: Any) -> list[Row]:
        """What one writing statement returns: a transaction in a single round trip."""

        async def attempt(progress: _Progress) -> list[Row]:
            async with self._pool.acquire() as connection:
                progress.committing = True
                rows: list[Row] = await connection.fetch(sql, *args)
                return rows

        return await self._counted(attempt)

    async def transact(self, operation: Operation[T], isolation: str = "read_committed") -> T:
        """The operation's result, once its transaction is committed. It may be run again."""

        async def attempt(progress: _Progress) -> T:
            async with self._pool.acquire() as connection:
                async with connection.transaction(isolation=isolation):
                    result = await operation(connection)
                    progress.committing = True
                return result

        return await self._counted(attempt)

    async def _counted(self, attempt: Callable[[_Progress], Awaitable[T]]) -> T:
        self.queued += 1
        try:
            result = await self._persist(attempt)
        finally:
            self.queued -= 1
        self.commits += 1
        return result

    async def _persist(self, attempt: Callable[[_Progress], Awaitable[T]]) -> T:
        """Try again after a lost race, and after a lost connection if nothing can be kept yet."""
        if self._closed:
            raise errors.StoreError("the store is closed")
        for tried in range(TRIES):
            progress = _Progress()
            with translated(self._url):
                try:
                    return await attempt(progress)
                except _CONFLICTS:
                    if tried == TRIES - 1:
                        raise
                except _LOST as error:
                    if progress.committing:
                        raise errors.StoreError(
                            f"the connection was lost in the middle of a change, which may have"
                            f" been kept or not: {describe(self._url)}"
                        ) from error
                    if tried == TRIES - 1 or self._closed:
                        raise
            await asyncio.sleep(random.uniform(0.5, 1) * 0.02 * 2**tried)
        raise AssertionError("the last try returns or raises")


class _Progress:
    """How far an attempt has come: past `committing`, only the server knows what was kept."""

    committing = False


async def connect(url: str) -> Connection:
    """A connection beside the pool."""
    return await asyncpg.connect(url, **_OPTIONS)


async def _keep_as_it_is(_: Connection) -> None:
    """Nothing here changes a connection's settings, so the usual reset would only cost time."""


def describe(url: str) -> str:
    """Where a URL points, for people to read: nothing of its user and password."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "PostgreSQL"
    if "@" in parts.path + parts.query + parts.fragment:
        return "PostgreSQL"  # an unquoted character in the password may have led us astray
    host = parse_qs(parts.query).get("host", [host or "localhost"])[0]
    address = f"{host}:{port}" if port else host
    return f"PostgreSQL at {address}, database {unquote(parts.path[1:]) or 'unnamed'}"


@contextmanager
def translated(url: str) -> Iterator[None]:
    """The database's errors, raised as the store's, with the place they concern."""
    try:
        yield
    except asyncpg.PostgresError as error:
        state, said = error.sqlstate or "", error.args[0]
        if state[:2] in ("22", "54"):
            raise errors.InvalidInput(f"PostgreSQL cannot keep that value: {said}") from error
        kind, words = _ERRORS.get(state, (errors.StoreError, f"the store failed ({said}):"))
        raise kind(f"{words} {describe(url)}") from error
    except (asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        raise errors.StoreError(f"the connection failed ({error}): {describe(url)}") from error
    except TimeoutError as error:
        raise errors.StoreError(f"no answer in time from {describe(url)}") from error
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        raise errors.StoreError(f"cannot reach {describe(url)}: {why}") from error
