"""The PostgreSQL store: concurrent starts, races, change points, signals and errors."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest

from segue.model import errors, ids, projection
from segue.model.event import AgentRef, Created, Draft, Drafts, InfoChanged
from segue.model.query import Query
from segue.model.session import Session
from segue.store.base import Signal, fork_event
from segue.store.migrations import load
from segue.store.postgres import PostgresStore, appends, groups
from segue.store.postgres import connection as connections
from segue.store.postgres import watch as watching
from segue.store.postgres.outage import OutageLog
from tests.postgres import running_server

from .postgres_helpers import (
    WORKSPACE,
    append_message,
    connect,
    create_session,
    open_store,
    user_message,
)


@pytest.fixture
def url(migrated_database_url: str) -> str:
    return migrated_database_url


# Starting.


def test_concurrent_processes_create_one_store(fresh_database_url: str) -> None:
    url = fresh_database_url
    program = "import asyncio, sys; from segue.store.postgres import PostgresStore as P\n"
    program += "async def main():\n  await (await P.open(sys.argv[1])).close()\n"
    program += "asyncio.run(main())"
    command = [sys.executable, "-W", "error", "-c", program, url]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(6)]
    assert [process.communicate()[1] for process in started] == [""] * 6

    async def migrations() -> list[int]:
        async with connect(url) as connection:
            rows = await connection.fetch("SELECT number FROM migrations ORDER BY number")
            return [number for (number,) in rows]

    numbers = asyncio.run(migrations())
    assert numbers == [migration.number for migration in load("postgres")]


async def test_store_of_a_newer_segue_is_refused_unless_it_is_compatible(url: str) -> None:
    async with open_store(url), connect(url) as connection:
        await connection.execute("INSERT INTO migrations VALUES (998, 'later', 1)")
        async with open_store(url) as store:
            await create_session(store)
        await connection.execute("INSERT INTO migrations VALUES (999, 'last', 999)")
        with pytest.raises(errors.StoreTooNew, match="format 999"):
            await PostgresStore.open(url)


async def test_connection_with_an_older_format_cannot_write(url: str) -> None:
    oldest = max(migration.compat for migration in load("postgres"))  # that may write
    async with open_store(url) as store, connect(url) as connection:
        await create_session(store)
        for known in (oldest, oldest - 1):
            await connection.execute(f"SET segue.format = {known}")
            try:
                await connection.execute("UPDATE sessions SET row = row")
            except asyncpg.PostgresError as error:
                assert (known, error.sqlstate) == (oldest - 1, "SG001")
            else:
                assert known == oldest


async def test_tables_of_other_programs_are_not_touched(url: str) -> None:
    async with connect(url) as connection:
        await connection.execute("CREATE TABLE public.sessions (mine text)")
        async with open_store(url) as store:
            await create_session(store)
        assert await connection.fetch("SELECT mine FROM public.sessions") == []


async def test_user_without_create_permission_can_use_an_existing_schema(
    fresh_database_url: str,
) -> None:
    url = fresh_database_url
    async with connect(url) as connection:
        role = f"guest_{ids.new_id()[:8]}_{ids.new_id()[-4:]}"
        await connection.execute(f"CREATE ROLE {role} LOGIN")
        try:
            guest = url.replace("postgres@", f"{role}@")
            with pytest.raises(errors.StoreReadOnly, match=r"permission.*GRANT CREATE ON DATABASE"):
                await PostgresStore.open(guest)
            await connection.execute(f"CREATE SCHEMA segue AUTHORIZATION {role}")
            async with open_store(guest) as store:
                await create_session(store)
        finally:
            await connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_restored_copy_of_a_database_is_swept_like_the_original(url: str) -> None:
    async with open_store(url) as store:
        touched, untouched = await create_session(store), await create_session(store)
    async with connect(url) as connection:  # as if its transactions had been numbered elsewhere
        await connection.execute("UPDATE sessions SET change = change + 1e12, born = born + 1e12")
    async with open_store(url) as store:
        point = await store.change_point(WORKSPACE)
        await append_message(store, touched, "more")
        swept = await store.sweep(WORKSPACE, Query(), point, "")
        assert [session.id for session in swept] == [touched.id]
        assert await store.get(WORKSPACE, untouched.id) == untouched


async def test_close_closes_every_connection(url: str) -> None:
    async with open_store(url) as store:
        session = await create_session(store)
        await asyncio.gather(*(append_message(store, session, str(i)) for i in range(30)))
        store.watch(lambda _: None)
    with pytest.raises(errors.StoreError, match="closed"):
        await store.get(WORKSPACE, session.id)
    async with connect(url) as connection:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        async with asyncio.timeout(60):
            while await connection.fetchval(sql) > 1:
                await asyncio.sleep(0.02)


# Writing.


async def test_append_takes_four_round_trips_and_create_one(url: str) -> None:
    async with open_store(url) as store:
        session = await create_session(store)
        queries: list[str] = []
        async with store._database._pool.acquire() as connection:
            connection.add_query_logger(lambda record: queries.append(record.query.split()[0]))
        await append_message(store, session, "hello")
        assert [word.strip(";") for word in queries] == ["BEGIN", "SELECT", "WITH", "COMMIT"]
        queries.clear()
        await create_session(store, user_message("hello"))
        assert queries == ["WITH"]


async def test_events_beyond_one_statement_are_all_written(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appends, "MAX_STATEMENT_BYTES", 50_000)
    async with open_store(url) as store:
        session = await create_session(
            store, *(user_message(f"{number} word") for number in range(20))
        )
        session, _ = await store.change(
            WORKSPACE,
            session.id,
            lambda _: [user_message("x" * 200_000), *map(user_message, "abcdefghijkl")],
        )
        events = await store.events(WORKSPACE, session.id)
        assert [event.seq for event in events] == list(range(1, session.last_seq + 1))
        assert projection.project(WORKSPACE, session.id, events) == session
        copy = await store.load("there", session.id, events)
        assert await store.events("there", copy.id) == events
        created = Draft(body=Created(cwd="/fork"))
        fork = await store.fork(
            WORKSPACE, session.id, ids.new_id(), 30, created, lambda _: [user_message("z")]
        )
        copies = [fork_event(event, fork.id) for event in events[1:30]]
        assert (await store.events(WORKSPACE, fork.id))[1:30] == copies
        assert {row.id for row in await store.page(WORKSPACE, Query(text="19 h "))} == {
            session.id,
            fork.id,
        }


async def test_concurrent_writers_lose_no_events(url: str) -> None:
    async with open_store(url) as one, open_store(url) as two:
        rows = [await create_session(one) for _ in range(5)]
        writers = [
            append_message((one, two)[number % 2], rows[number % 5], f"{number} {turn}")
            for number in range(50)
            for turn in range(4)
        ]
        await asyncio.gather(*writers)
        for row in rows:
            events = await one.events(WORKSPACE, row.id)
            assert [event.seq for event in events] == list(range(1, 42))
            after = await one.get(WORKSPACE, row.id)
            assert after is not None and after.messages == 40


async def test_session_under_change_does_not_block_others(url: str) -> None:
    async with open_store(url) as store, connect(url) as connection:
        busy, other = await create_session(store), await create_session(store)
        async with connection.transaction():
            sql = "SELECT FROM sessions WHERE id = $1 FOR NO KEY UPDATE"
            await connection.execute(sql, busy.id)
            waiting = asyncio.create_task(append_message(store, busy, "later"))
            await append_message(store, other, "now")
            assert await store.get(WORKSPACE, busy.id) == busy
            await store.put_inbox(WORKSPACE, busy.id, "prompt", "p", {})
            assert await store.acquire(WORKSPACE, busy.id, "holder") is not None
            created = Draft(body=Created(cwd="/fork"))
            await store.fork(WORKSPACE, busy.id, ids.new_id(), 1, created, lambda _: [])
            assert not waiting.done()
        assert (await waiting).messages == 1


@pytest.mark.parametrize("error", [asyncpg.DeadlockDetectedError, asyncpg.SerializationError])
async def test_change_is_retried_after_a_serialization_error(
    url: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    write_changes = groups.write_changes

    async def fail_once(connection: Any, changes: Sequence[appends.Change]) -> None:
        if len(seen) == 1:
            raise error("as the server says it")
        await write_changes(connection, changes)

    def decide(session: Session) -> Drafts:
        seen.append(session.last_seq)
        return [user_message("hello")]

    monkeypatch.setattr(groups, "write_changes", fail_once)
    async with open_store(url) as store:
        session = await create_session(store)
        after, _ = await store.change(WORKSPACE, session.id, decide)
        assert (after.messages, seen) == (1, [1, 1])


async def test_change_is_retried_after_a_lost_connection(url: str) -> None:
    async with open_store(url) as store:
        session = await create_session(store)
        calls = 0

        def decide(_: Session) -> Drafts:
            nonlocal calls
            calls += 1
            if calls == 1:
                breaking = threading.Thread(target=asyncio.run, args=(end_others(url),))
                breaking.start()
                breaking.join()
            return [user_message("hello")]

        after, _ = await store.change(WORKSPACE, session.id, decide)
        assert (after.messages, calls) == (1, 2)
        assert len(await store.events(WORKSPACE, session.id)) == 2


async def end_others(url: str) -> None:
    """End every other connection to the database, as an administrator can."""
    async with connect(url) as connection:
        await connection.execute("""
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()
        """)


# Change points.


async def test_transaction_that_began_before_the_change_point_is_swept(url: str) -> None:
    async with open_store(url) as store, connect(url) as connection:
        slow, quick = await create_session(store), await create_session(store)
        transaction = connection.transaction()
        await transaction.start()
        sql = "UPDATE sessions SET change = pg_current_xact_id()::text::bigint WHERE id = $1"
        await connection.execute(sql, slow.id)
        await append_message(store, quick, "before the change point, by a later transaction")
        point = await store.change_point(WORKSPACE)
        new = await create_session(store)
        await transaction.commit()
        await append_message(store, new, "created after the change point")
        swept = {session.id for session in await store.sweep(WORKSPACE, Query(), point, "")}
        assert slow.id in swept
        assert new.id not in swept
        later = await store.change_point(WORKSPACE)
        assert await store.sweep(WORKSPACE, Query(), later, "") == []


# Signals.


class SignalRecorder:
    def __init__(self, store: PostgresStore) -> None:
        self.signals: list[Signal] = []
        store.watch(self.signals.append)

    async def wait_for(self, *signals: Signal) -> None:
        async with asyncio.timeout(60):
            while not set(signals) <= set(self.signals):
                await asyncio.sleep(0.005)


async def end_listening(connection: Any, store: PostgresStore) -> None:
    pid = store._watcher._connection.get_server_pid()
    assert await connection.fetchval("SELECT pg_terminate_backend($1, 5000)", pid)


async def test_reconnected_watcher_gets_the_signals_that_it_missed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "FIRST_PAUSE_SECONDS", 0.3)
    async with open_store(url) as writer, open_store(url) as reader, connect(url) as connection:
        changed, gone, queries = [await create_session(writer) for _ in range(3)]
        recorder = SignalRecorder(reader)
        refused: list[int] = []

        async def refuse_first(url: str) -> Any:
            if len(refused) < 2:
                refused.append(1)
                raise ConnectionRefusedError
            return await connections.connect(url)

        monkeypatch.setattr(watching, "connect", refuse_first)
        await end_listening(connection, reader)
        await append_message(writer, changed, "more")
        await writer.purge(WORKSPACE, gone.id, lambda _: None)
        await writer.put_inbox(WORKSPACE, queries.id, "prompt", "p", {})
        await recorder.wait_for(
            Signal("events", WORKSPACE, changed.id),
            Signal("purged", WORKSPACE, gone.id),
            Signal("inbox", WORKSPACE, queries.id),
        )
        assert len(refused) == 2
        recorder.signals.clear()
        await append_message(writer, changed, "and more")
        await recorder.wait_for(Signal("events", WORKSPACE, changed.id))


async def test_disconnected_store_sends_its_signals_after_it_reconnects(url: str) -> None:
    async with open_store(url) as writer, open_store(url) as reader, connect(url) as connection:
        session = await create_session(writer)
        near, far = SignalRecorder(writer), SignalRecorder(reader)
        await end_listening(connection, writer)
        await append_message(writer, session, "more")
        await near.wait_for(Signal("events", WORKSPACE, session.id))
        await far.wait_for(Signal("events", WORKSPACE, session.id))


async def test_changes_of_a_process_that_died_before_its_signal_are_noticed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "RESCAN_SECONDS", 0.05)
    async with open_store(url) as dying, open_store(url) as reader:
        recorder = SignalRecorder(reader)
        monkeypatch.setattr(dying._watcher, "publish", lambda _: None)
        session = await create_session(dying)
        await recorder.wait_for(Signal("events", WORKSPACE, session.id))


async def test_process_gets_one_signal_of_its_own_change(url: str) -> None:
    async with open_store(url) as store, open_store(url) as other:
        recorder = SignalRecorder(store)
        own = await create_session(store)
        other_session = await create_session(other)
        await recorder.wait_for(Signal("events", WORKSPACE, other_session.id))
        assert recorder.signals.count(Signal("events", WORKSPACE, own.id)) == 1


async def test_close_sends_all_signals_first(url: str) -> None:
    async with open_store(url) as reader:
        recorder = SignalRecorder(reader)
        async with open_store(url) as brief:
            session = await create_session(brief)
        await recorder.wait_for(Signal("events", WORKSPACE, session.id))


async def test_commits_wait_for_the_disk_after_a_notification_did_not(url: str) -> None:
    async with open_store(url) as store, open_store(url) as reader:
        recorder = SignalRecorder(reader)
        session = await create_session(store)
        await recorder.wait_for(Signal("events", WORKSPACE, session.id))
        sql = "SELECT current_setting('synchronous_commit')"
        assert await store._database.fetch(sql) == [("on",)]
        assert await store._watcher._connection.fetch(sql) == [("on",)]


async def test_signals_of_a_short_time_share_a_notification(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads: list[str] = []
    async with open_store(url) as writer, open_store(url) as reader, connect(url) as connection:
        sessions = [await create_session(writer) for _ in range(200)]
        monkeypatch.setattr(watching, "SEND_PAUSE_SECONDS", 1.0)
        await connection.add_listener(watching.CHANNEL, lambda *args: payloads.append(args[3]))
        recorder = SignalRecorder(reader)
        for session in sessions[:40]:
            await append_message(writer, session, "one after another")
        await asyncio.gather(*(append_message(writer, row, "at once") for row in sessions))
        await recorder.wait_for(*(Signal("events", WORKSPACE, row.id) for row in sessions))
    assert len(payloads) < 20


def test_payload_of_a_notification_is_within_the_limit_of_postgres() -> None:
    signals = [Signal("events", "wörkspace", ids.new_id()) for _ in range(500)]
    payloads = watching._payloads(signals)
    assert max(len(payload.encode()) for payload in payloads) < 8_000
    assert [entry for payload in payloads for entry in json.loads(payload)] == [
        list(signal) for signal in signals
    ]


async def test_notifications_of_other_programs_are_ignored(url: str) -> None:
    async with open_store(url) as store, connect(url) as connection:
        recorder = SignalRecorder(store)
        for payload in ("hello", "", "[1]", '[["later", "here", "x"]]'):
            await connection.execute("SELECT pg_notify($1, $2)", watching.CHANNEL, payload)
        session = await create_session(store)
        await recorder.wait_for(Signal("events", WORKSPACE, session.id))
        assert {signal.session for signal in recorder.signals} == {session.id}


# Errors are clear and never contain the password.


async def refused(url: str) -> errors.SegueError:
    with pytest.raises(errors.SegueError) as caught:
        await PostgresStore.open(url)
    chain: BaseException | None = caught.value
    while chain is not None:
        assert "secret" not in str(chain)
        chain = chain.__cause__
    return caught.value


async def test_unreachable_server_is_a_clear_error() -> None:
    error = await refused("postgresql://me:secret@127.0.0.1:1/segue")
    assert type(error) is errors.StoreUnreachable
    assert error.message.startswith("cannot reach PostgreSQL at 127.0.0.1:1, database segue: ")


async def test_an_unknown_database_is_a_clear_error(url: str) -> None:
    error = await refused(url.replace("/segue_", "/no_"))
    assert type(error) is errors.StoreError
    assert error.message.startswith("there is no such database: PostgreSQL at ")
    assert error.message.endswith("create it with `createdb`")


async def test_at_sign_in_a_password_is_an_error_that_says_how_to_write_it() -> None:
    error = await refused("postgresql://me:p@secret@127.0.0.1:1/segue")
    assert type(error) is errors.InvalidInput
    assert "write %40 for @" in error.message


async def test_a_wrong_password_is_a_clear_error(url: str) -> None:
    async with connect(url) as connection:
        path = await connection.fetchval("SHOW hba_file")
        rules = await connection.fetchval("SELECT pg_read_file($1)", path)
        lines = [line for line in rules.splitlines() if line and not line.startswith("#")]
        role = f"guest_{ids.new_id()[-8:]}"
        await connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'right'")
        try:
            await replace_file(connection, path, [f"local all {role} scram-sha-256", *lines])
            error = await refused(url.replace("postgres@", f"{role}:secret@"))
            assert type(error) is errors.StoreError
            assert error.message.startswith("the user name or password was refused by PostgreSQL")
            assert "set PGPASSWORD" in error.message
            error = await refused(url.replace("postgres@", f"{role}@"))
            assert type(error) is errors.StoreError
        finally:
            await replace_file(connection, path, lines)
            await connection.execute(f"DROP ROLE {role}")


async def replace_file(connection: Any, path: str, lines: Sequence[str]) -> None:
    """Replace a configuration file of the server, and wait until the server has read it."""
    load_time = "SELECT pg_conf_load_time()"
    before = await connection.fetchval(load_time)
    quoted = ", ".join("'" + line.replace("'", "''") + "'" for line in lines)
    await connection.execute(f"COPY (SELECT unnest(ARRAY[{quoted}])) TO '{path}'")
    await connection.execute("SELECT pg_reload_conf()")
    async with asyncio.timeout(60):
        while await connection.fetchval(load_time) == before:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "bad",
    [
        "postgresql://me:secret@here:port/segue",
        "postgresql://me:12secret/34@host/segue",
        "postgresql://me:[secret@host/segue",
        "postgresql://me@host/segue?sslmode=secret",
    ],
)
async def test_error_does_not_repeat_an_invalid_url(bad: str) -> None:
    error = await refused(bad)
    assert isinstance(error, errors.InvalidInput | errors.StoreError)


async def test_full_disk_stores_nothing_and_is_a_clear_error(url: str) -> None:
    async with open_store(url) as store, connect(url) as connection:
        session = await create_session(store)
        await connection.execute("""
            CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
              $$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = '53100'; END $$;
            CREATE TRIGGER full_disk BEFORE INSERT ON search EXECUTE FUNCTION full_disk();
        """)
        with pytest.raises(errors.StoreFull, match="the disk is full: nothing of this change"):
            await append_message(store, session, "too much")
        with pytest.raises(errors.StoreFull):
            await create_session(store, user_message("too much"))
        await connection.execute("DROP TRIGGER full_disk ON search")
        assert await store.get(WORKSPACE, session.id) == session
        assert (await append_message(store, session, "again")).last_seq == 2


async def test_read_only_database_is_a_clear_error(url: str) -> None:
    async with open_store(url) as store:
        session = await create_session(store)
    async with connect(url) as connection:
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    async with open_store(url) as store:
        assert store.read_only
        assert await store.get(WORKSPACE, session.id) == session
        with pytest.raises(errors.StoreReadOnly, match="writing is not allowed"):
            await append_message(store, session, "more")


async def test_store_reconnects_to_a_restarted_server(url: str) -> None:
    async with open_store(url) as store:
        session = await create_session(store)
        await end_others(url)
        assert await store.get(WORKSPACE, session.id) == session
        await end_others(url)
        assert (await append_message(store, session, "more")).messages == 1


async def test_stopped_server_is_a_clear_error_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with running_server(durable=False) as url:
        store = await PostgresStore.open(url)
        session = await create_session(store)
    with pytest.raises(errors.StoreUnreachable, match="cannot reach PostgreSQL at "):
        await store.get(WORKSPACE, session.id)
    with pytest.raises(errors.StoreUnreachable, match="cannot reach PostgreSQL at "):
        await append_message(store, session, "more")
    await store.close()
    (line,) = caplog.messages
    assert "cannot reach PostgreSQL at " in line and "until it answers again" in line


def test_outage_is_logged_at_its_beginning_and_end_and_rarely_between(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times = iter(range(10_000))
    outages = OutageLog("PostgreSQL at db", lambda: next(times))
    error = errors.StoreUnreachable("cannot reach PostgreSQL at db")
    outages.worked()
    assert caplog.messages == []
    for _ in range(2):
        caplog.clear()
        for _ in range(2_000):
            outages.failed(error)
        outages.worked()
        outages.worked()
        assert caplog.messages == [
            "cannot reach PostgreSQL at db; operations fail until it answers again",
            "cannot reach PostgreSQL at db, for 15 minutes now",
            "cannot reach PostgreSQL at db, for 30 minutes now",
            "PostgreSQL at db answers again, after 2000 s",
        ]


async def test_value_that_postgres_cannot_store_is_refused(url: str) -> None:
    async with open_store(url) as store:
        with pytest.raises(errors.InvalidInput):
            await create_session(store, agent=AgentRef(id="a\0b"))
        with pytest.raises(errors.InvalidInput):
            await create_session(store, agent=AgentRef(id="a\ud800b"))
        await create_session(store, InfoChanged(tag="\0\ud800"), user_message("\0 \ud800"))
        assert len(await store.page(WORKSPACE, Query(tag="\0\ud800"))) == 1


async def test_the_words_of_a_long_message_are_collected_in_a_thread(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    vectors = appends.vectors

    def record_thread(tokens: Sequence[str]) -> Any:
        threads.append(threading.current_thread())
        return vectors(tokens)

    async with open_store(url) as store:
        session = await create_session(store)
        monkeypatch.setattr(appends, "vectors", record_thread)
        await append_message(store, session, "short")
        await append_message(store, session, "long " * appends.LONG_TEXT_CHARACTERS)
    assert [thread is threading.current_thread() for thread in threads] == [True, False]
