"""Connect to the database: settings, retries, and its errors as the store's own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg  # type: ignore[import-untyped]  # it ships no types

from segue.model import errors
from segue.redact import redact_url
from segue.store import migrations

from .migrate import prepare
from .outage import OutageLog, quiet_pool

T = TypeVar("T")
Connection = Any  # asyncpg.Connection
Row = Any  # asyncpg.Record: a tuple to us
Operation = Callable[[Connection], Awaitable[T]]

POOL_SIZE = 10  # connections of one process, in addition to the one that listens
MAX_ATTEMPTS = 6
CONNECT_SECONDS, ANSWER_SECONDS = 15, 60  # how long a server may take

SETTINGS = {
    "application_name": "segue",
    # segue's own tables, whatever else the database is used for.
    "search_path": "segue",
    # Every list is written for one plan: a scan of the index that has its order. These settings
    # make the planner use it even without statistics, and save planning time.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_sort": "off",
    "jit": "off",
    # A process that is stopped in the middle of a change must not block others for long.
    "idle_in_transaction_session_timeout": "10s",
    "lock_timeout": "30s",
}
_OPTIONS: dict[str, Any] = {
    # The database rejects writes if a newer program has migrated it beyond this format.
    "server_settings": {**SETTINGS, "segue.format": str(migrations.load("postgres")[-1].number)},
    "timeout": CONNECT_SECONDS,
    "command_timeout": ANSWER_SECONDS,
}

_ERRORS: dict[str, tuple[type[errors.StoreError], str]] = {
    "53100": (errors.StoreFull, "the disk is full: nothing of this change was kept in"),
    "25006": (errors.StoreReadOnly, "writing is not allowed (is it a standby?) in"),
    "42501": (errors.StoreReadOnly, "this user lacks the permission for that in"),
    "55P03": (errors.StoreLocked, "another program has been holding a lock in"),
    "57014": (errors.StoreLocked, "the request was cancelled, or took too long, in"),
    "SG001": (errors.StoreTooNew, "a newer segue has migrated it; upgrade segue to write to"),
    "XX001": (errors.StoreCorrupt, "damaged:"),
    "XX002": (errors.StoreCorrupt, "damaged index in"),
    "28P01": (errors.StoreError, "the user name or password was refused by"),
    "28000": (errors.StoreError, "this user may not connect to"),
    "3D000": (errors.StoreError, "there is no such database:"),
    "53300": (errors.StoreUnreachable, "no connection is left for us at"),
    "57P01": (errors.StoreUnreachable, "the server is shutting down:"),
    "57P02": (errors.StoreUnreachable, "the server has crashed:"),
    "57P03": (errors.StoreUnreachable, "the server is starting up or shutting down:"),
}
_HINTS = {  # what to do
    "42501": "; let this user own the schema `segue` and its tables, or let it make them with"
    " `GRANT CREATE ON DATABASE … TO …`",
    "28P01": "; set PGPASSWORD, or write postgresql://USER:PASSWORD@HOST/DATABASE, with %40 for @",
    "3D000": "; create it with `createdb`",
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
    """A pool of connections to one database, with retries and error translation."""

    def __init__(self, url: str, pool: Any) -> None:
        self._url = url
        self._pool = pool
        self._closed = False
        self._outage = OutageLog(describe(url))
        self.commits = 0
        self.queued = 0  # writes that are not done yet

    @classmethod
    async def open(cls, url: str) -> Self:
        """Return the database at a URL, whose tables are created or migrated first."""
        quiet_pool()
        if url.partition("://")[2].partition("/")[0].count("@") > 1:
            raise errors.InvalidInput(
                "the database URL has more than one @ before its path; in a user name or password,"
                " write %40 for @, %2F for /, %3A for : and %25 for %"
            )
        with translated(url):
            try:
                pool = await asyncpg.create_pool(
                    url, min_size=1, max_size=POOL_SIZE, reset=_skip_reset, **_OPTIONS
                )
            except ValueError:
                # The message and the traceback may contain the URL with its password.
                raise errors.InvalidInput(
                    "the database URL is not valid; use postgresql://USER@HOST/DATABASE"
                ) from None
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
        """Return the rows that one statement reads."""

        async def attempt(_: _Progress) -> list[Row]:
            rows: list[Row] = await self._pool.fetch(sql, *args)
            return rows

        return await self._with_retries(attempt)

    async def write(self, sql: str, *args: Any) -> list[Row]:
        """Return the rows of one writing statement: a transaction in a single round trip."""

        async def attempt(progress: _Progress) -> list[Row]:
            async with self._pool.acquire() as connection:
                progress.committing = True
                rows: list[Row] = await connection.fetch(sql, *args)
                return rows

        return await self._counted(attempt)

    async def transact(self, operation: Operation[T], isolation: str = "read_committed") -> T:
        """Return the operation's result, once it is committed. The operation may run again."""

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
            result = await self._with_retries(attempt)
        finally:
            self.queued -= 1
        self.commits += 1
        return result

    async def _with_retries(self, attempt: Callable[[_Progress], Awaitable[T]]) -> T:
        """Try an operation, and log whether the database answers."""
        if self._closed:
            raise errors.StoreError("the store is closed")
        try:
            result = await self._try_repeatedly(attempt)
        except errors.StoreUnreachable as error:
            if not self._closed:
                self._outage.failed(error)
            raise
        self._outage.worked()
        return result

    async def _try_repeatedly(self, attempt: Callable[[_Progress], Awaitable[T]]) -> T:
        """Retry after a lost race, and after a lost connection if no commit was sent yet."""
        for tried in range(MAX_ATTEMPTS):
            progress = _Progress()
            with translated(self._url):
                try:
                    return await attempt(progress)
                except _CONFLICTS:
                    if tried == MAX_ATTEMPTS - 1:
                        raise
                except _LOST as error:
                    if progress.committing:
                        raise errors.StoreError(
                            f"the connection to {describe(self._url)} was lost during a change;"
                            " read again whether it is stored"
                        ) from error
                    if tried == MAX_ATTEMPTS - 1 or self._closed:
                        raise
            await asyncio.sleep(random.uniform(0.5, 1) * 0.02 * 2**tried)
        raise AssertionError("the last try returns or raises")


class _Progress:
    """The progress of an attempt: once `committing`, only the server knows the result."""

    committing = False


async def connect(url: str) -> Connection:
    """Return a connection that is not in the pool."""
    return await asyncpg.connect(url, **_OPTIONS)


async def _skip_reset(_: Connection) -> None:
    """Reset nothing: no operation changes a connection's settings."""


def describe(url: str) -> str:
    """Return the server and database of a URL, without its user and password."""
    redacted = redact_url(url)
    if redacted is None:
        return "PostgreSQL"
    parts = urlsplit(redacted)
    try:
        port = parts.port
    except ValueError:  # several hosts, or a port out of range
        return "PostgreSQL"
    host = parse_qs(parts.query).get("host", [parts.hostname or "localhost"])[0]
    address = f"{host}:{port}" if port else host
    return f"PostgreSQL at {address}, database {unquote(parts.path[1:]) or 'unnamed'}"


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Raise the database's errors as the store's, with the address they concern."""
    try:
        yield
    except asyncpg.PostgresError as error:
        state, message = error.sqlstate or "", error.args[0]
        if state[:2] in ("22", "23", "54"):  # a value that is too large, or an id twice
            raise errors.InvalidInput(f"PostgreSQL cannot store this value: {message}") from error
        kind, prefix = _ERRORS.get(state, (errors.StoreError, f"the store failed ({message}):"))
        raise kind(f"{prefix} {describe(url)}{_HINTS.get(state, '')}") from error
    except (asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        raise errors.StoreUnreachable(
            f"the connection failed ({error}): {describe(url)}"
        ) from error
    except TimeoutError as error:
        raise errors.StoreUnreachable(f"no answer in time from {describe(url)}") from error
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        raise errors.StoreUnreachable(f"cannot reach {describe(url)}: {why}") from error
