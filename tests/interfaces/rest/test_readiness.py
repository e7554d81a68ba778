"""`/readyz` answers 503 when the store cannot be written."""

import asyncio
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest

from segue.interfaces.rest import readiness
from segue.model import errors
from tests.interfaces.rest.api import Api, open_api


@pytest.fixture
def probe_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "PROBE_INTERVAL_SECONDS", 0.0)


async def ready(api: Api) -> tuple[int, str]:
    answer = await api.client.get("/readyz")
    return answer.status_code, answer.text


@contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """Let no file of this process grow beyond the size of a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("probe_every_time")
async def test_a_full_disk_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_api(tmp_path) as api:
        assert await ready(api) == (200, "ready\n")
        with full_disk(tmp_path / "segue.db-wal"):
            status, text = await ready(api)
        assert status == 503 and "full" in text and str(tmp_path) not in text
        assert str(tmp_path) in caplog.text
        assert await ready(api) == (200, "ready\n")


@pytest.mark.usefixtures("probe_every_time")
async def test_a_read_only_database_is_reported(tmp_path: Path, fresh_database_url: str) -> None:
    async with open_api(tmp_path, database=fresh_database_url) as api:
        assert await ready(api) == (200, "ready\n")
        admin = await asyncpg.connect(fresh_database_url)
        try:
            name = await admin.fetchval("SELECT current_database()")
            await admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
            await admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid != pg_backend_pid()"
            )
            status, text = await ready(api)
            assert (status, text) == (503, "the store is read-only\n")
        finally:
            await admin.execute("SET default_transaction_read_only = off")
            await admin.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
            await admin.close()


@pytest.mark.usefixtures("probe_every_time")
async def test_a_locked_store_is_reported_without_waiting_for_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "MAX_WAIT_SECONDS", 0.05)
    async with open_api(tmp_path) as api:
        with closing(sqlite3.connect(tmp_path / "segue.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for _ in range(2):
                assert await ready(api) == (503, "the store does not answer\n")
            other.execute("ROLLBACK")
        monkeypatch.setattr(readiness, "MAX_WAIT_SECONDS", 60.0)
        assert await ready(api) == (200, "ready\n")


async def test_many_requests_share_one_test_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "PROBE_INTERVAL_SECONDS", 3600.0)
    async with open_api(tmp_path) as api:
        before = api.hub.store.vitals()["commits"]
        answers = await asyncio.gather(*(ready(api) for _ in range(20)))
        assert set(answers) == {(200, "ready\n")}
        assert api.hub.store.vitals()["commits"] == before + 1


@pytest.mark.usefixtures("probe_every_time")
async def test_test_writes_do_not_grow_the_store(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        await ready(api)
        with closing(sqlite3.connect(tmp_path / "segue.db")) as database:
            pages, rows = "PRAGMA page_count", "SELECT count(*) FROM meta"
            before = [database.execute(sql).fetchone() for sql in (pages, rows)]
            for _ in range(50):
                await ready(api)
            assert [database.execute(sql).fetchone() for sql in (pages, rows)] == before


async def test_a_read_error_is_reported(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:

        async def fail(*_: object, **__: object) -> None:
            raise errors.StoreCorrupt("damaged: /srv/segue.db")

        api.hub.sessions.list = fail  # type: ignore[method-assign, assignment]
        assert await ready(api) == (
            503,
            "the store is damaged; the server's log has the details\n",
        )
