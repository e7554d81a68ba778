"""What only PostgreSQL can get wrong: starting together, races, marks, signals, errors."""

import asyncio
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
from segue.store.postgres import PostgresStore, sessions
from segue.store.postgres import connection as connections
from segue.store.postgres import watch as watching
from tests.postgres import running_server

from .postgres_rooms import HERE, make, opened, raw, said, say


@pytest.fixture
def url(migrated_database_url: str) -> str:
    return migrated_database_url


# Starting.


def test_many_processes_that_start_at_once_make_one_store(fresh_database_url: str) -> None:
    url = fresh_database_url
    program = "import asyncio, sys; from segue.store.postgres import PostgresStore as P\n"
    program += "async def main():\n  await (await P.open(sys.argv[1])).close()\n"
    program += "asyncio.run(main())"
    command = [sys.executable, "-W", "error", "-c", program, url]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(6)]
    assert [process.communicate()[1] for process in started] == [""] * 6

    async def migrations() -> list[int]:
        async with raw(url) as connection:
            rows = await connection.fetch("SELECT number FROM migrations ORDER BY number")
            return [number for (number,) in rows]

    numbers = asyncio.run(migrations())
    assert numbers == [migration.number for migration in load("postgres")]


async def test_a_store_of_a_newer_program_is_refused_unless_it_says_otherwise(url: str) -> None:
    async with opened(url), raw(url) as connection:
        await connection.execute("INSERT INTO migrations VALUES (998, 'later', 1)")
        async with opened(url) as store:
            await make(store)
        await connection.execute("INSERT INTO migrations VALUES (999, 'last', 999)")
        with pytest.raises(errors.StoreTooNew, match="format 999"):
            await PostgresStore.open(url)


async def test_a_connection_that_knows_only_an_older_format_may_not_write(url: str) -> None:
    async with opened(url) as store, raw(url) as connection:
        await make(store)
        for known in (10, 9):
            await connection.execute(f"SET segue.format = {known}")
            try:
                await connection.execute("UPDATE sessions SET row = row")
            except asyncpg.PostgresError as error:
                assert (known, error.sqlstate) == (9, "SG001")
            else:
                assert known == 10


async def test_tables_of_others_are_left_alone(url: str) -> None:
    async with raw(url) as connection:
        await connection.execute("CREATE TABLE public.sessions (mine text)")
        async with opened(url) as store:
            await make(store)
        assert await connection.fetch("SELECT mine FROM public.sessions") == []


async def test_a_schema_that_was_made_for_us_will_do(fresh_database_url: str) -> None:
    url = fresh_database_url
    async with raw(url) as connection:
        role = f"guest_{ids.new_id()[:8]}_{ids.new_id()[-4:]}"
        await connection.execute(f"CREATE ROLE {role} LOGIN")
        try:
            guest = url.replace("postgres@", f"{role}@")
            with pytest.raises(errors.StoreReadOnly, match="lacks the permission"):
                await PostgresStore.open(guest)
            await connection.execute(f"CREATE SCHEMA segue AUTHORIZATION {role}")
            async with opened(guest) as store:
                await make(store)
        finally:
            await connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_a_copy_on_another_server_is_swept_as_the_original(url: str) -> None:
    async with opened(url) as store:
        touched, untouched = await make(store), await make(store)
    async with raw(url) as connection:  # as if its transactions had been numbered elsewhere
        await connection.execute("UPDATE sessions SET change = change + 1e12, born = born + 1e12")
    async with opened(url) as store:
        mark = await store.change_point(HERE)
        await say(store, touched, "more")
        swept = await store.sweep(HERE, Query(), mark, "")
        assert [session.id for session in swept] == [touched.id]
        assert await store.get(HERE, untouched.id) == untouched


async def test_closing_gives_every_connection_back(url: str) -> None:
    async with opened(url) as store:
        made = await make(store)
        await asyncio.gather(*(say(store, made, str(i)) for i in range(30)))
        store.watch(lambda _: None)
    with pytest.raises(errors.StoreError, match="closed"):
        await store.get(HERE, made.id)
    async with raw(url) as connection:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        async with asyncio.timeout(60):
            while await connection.fetchval(sql) > 1:
                await asyncio.sleep(0.02)


# Writing.


async def test_an_append_is_four_round_trips_and_a_new_session_one(url: str) -> None:
    async with opened(url) as store:
        made = await make(store)
        asked: list[str] = []
        async with store._database._pool.acquire() as connection:
            connection.add_query_logger(lambda record: asked.append(record.query.split()[0]))
        await say(store, made, "hello")
        assert [word.strip(";") for word in asked] == ["BEGIN", "SELECT", "WITH", "COMMIT"]
        asked.clear()
        await make(store, said("hello"))
        assert asked == ["WITH"]


async def test_more_events_than_one_statement_carries_are_written_whole(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_BATCH_BYTES", 50_000)
    async with opened(url) as store:
        made = await make(store, *(said(f"{number} word") for number in range(20)))
        made, _ = await store.change(
            HERE, made.id, lambda _: [said("x" * 200_000), *map(said, "abcdefghijkl")]
        )
        events = await store.events(HERE, made.id)
        assert [event.seq for event in events] == list(range(1, made.last_seq + 1))
        assert projection.project(HERE, made.id, events) == made
        copy = await store.load("there", made.id, events)
        assert await store.events("there", copy.id) == events
        created = Draft(body=Created(cwd="/fork"))
        fork = await store.fork(HERE, made.id, ids.new_id(), 30, created, lambda _: [said("z")])
        copies = [fork_event(event, fork.id) for event in events[1:30]]
        assert (await store.events(HERE, fork.id))[1:30] == copies
        assert {row.id for row in await store.page(HERE, Query(text="19 h "))} == {made.id, fork.id}


async def test_many_writers_lose_nothing(url: str) -> None:
    async with opened(url) as one, opened(url) as two:
        rows = [await make(one) for _ in range(5)]
        writers = [
            say((one, two)[number % 2], rows[number % 5], f"{number} {turn}")
            for number in range(50)
            for turn in range(4)
        ]
        await asyncio.gather(*writers)
        for row in rows:
            events = await one.events(HERE, row.id)
            assert [event.seq for event in events] == list(range(1, 42))
            after = await one.get(HERE, row.id)
            assert after is not None and after.messages == 40


async def test_a_session_that_is_being_changed_holds_up_no_other(url: str) -> None:
    async with opened(url) as store, raw(url) as connection:
        busy, other = await make(store), await make(store)
        async with connection.transaction():
            sql = "SELECT FROM sessions WHERE id = $1 FOR NO KEY UPDATE"
            await connection.execute(sql, busy.id)
            waiting = asyncio.create_task(say(store, busy, "later"))
            await say(store, other, "now")
            assert await store.get(HERE, busy.id) == busy
            await store.put_inbox(HERE, busy.id, "prompt", "p", {})
            assert await store.acquire(HERE, busy.id, "holder", 1_000_000) is not None
            created = Draft(body=Created(cwd="/fork"))
            await store.fork(HERE, busy.id, ids.new_id(), 1, created, lambda _: [])
            assert not waiting.done()
        assert (await waiting).messages == 1


@pytest.mark.parametrize("error", [asyncpg.DeadlockDetectedError, asyncpg.SerializationError])
async def test_a_change_that_lost_a_race_is_made_again(url: str, error: type[Exception]) -> None:
    async with opened(url) as store:
        made = await make(store)
        seen: list[int] = []

        def decide(session: Session) -> Drafts:
            seen.append(session.last_seq)
            if len(seen) == 1:
                raise error("as the server says it")
            return [said("hello")]

        after, _ = await store.change(HERE, made.id, decide)
        assert (after.messages, seen) == (1, [1, 1])


async def test_a_change_whose_connection_breaks_is_made_again(url: str) -> None:
    async with opened(url) as store:
        made = await make(store)
        calls = 0

        def decide(_: Session) -> Drafts:
            nonlocal calls
            calls += 1
            if calls == 1:
                breaking = threading.Thread(target=asyncio.run, args=(end_others(url),))
                breaking.start()
                breaking.join()
            return [said("hello")]

        after, _ = await store.change(HERE, made.id, decide)
        assert (after.messages, calls) == (1, 2)
        assert len(await store.events(HERE, made.id)) == 2


async def end_others(url: str) -> None:
    """End every other connection to the database, as an administrator can."""
    async with raw(url) as connection:
        await connection.execute("""
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()
        """)


async def test_leases_go_by_the_clock_of_the_server(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(url) as store, raw(url) as connection:
        made = await make(store)
        monkeypatch.setattr("segue.model.clock.now", lambda: 4_000_000_000_000_000)
        lease = await store.acquire(HERE, made.id, "holder", 60_000_000)
        assert lease is not None
        now = await connection.fetchval("SELECT extract(epoch FROM now())::float8")
        assert now < lease.expires_at / 1e6 < now + 120
        assert await store.acquire(HERE, made.id, "other", 60_000_000) is None
        assert await store.expired_leases() == []


# Marks.


async def test_a_slow_transaction_is_swept_though_it_began_before_the_mark(url: str) -> None:
    async with opened(url) as store, raw(url) as connection:
        slow, quick = await make(store), await make(store)
        transaction = connection.transaction()
        await transaction.start()
        sql = "UPDATE sessions SET change = pg_current_xact_id()::text::bigint WHERE id = $1"
        await connection.execute(sql, slow.id)
        await say(store, quick, "before the mark, by a later transaction")
        mark = await store.change_point(HERE)
        new = await make(store)
        await transaction.commit()
        await say(store, new, "of no concern to who pages since before it was made")
        swept = {session.id for session in await store.sweep(HERE, Query(), mark, "")}
        assert slow.id in swept
        assert new.id not in swept
        later = await store.change_point(HERE)
        assert await store.sweep(HERE, Query(), later, "") == []


# Signals.


class Ear:
    def __init__(self, store: PostgresStore) -> None:
        self.heard: list[Signal] = []
        store.watch(self.heard.append)

    async def hears(self, *wanted: Signal) -> None:
        async with asyncio.timeout(60):
            while not set(wanted) <= set(self.heard):
                await asyncio.sleep(0.005)


async def end_listening(connection: Any, store: PostgresStore) -> None:
    pid = store._watcher._connection.get_server_pid()
    assert await connection.fetchval("SELECT pg_terminate_backend($1, 5000)", pid)


async def test_one_who_was_cut_off_hears_what_was_missed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "FIRST_PAUSE_SECONDS", 0.3)
    async with opened(url) as writer, opened(url) as reader, raw(url) as connection:
        changed, gone, asked = [await make(writer) for _ in range(3)]
        ear = Ear(reader)
        refused: list[int] = []

        async def refuse_first(url: str) -> Any:
            if len(refused) < 2:
                refused.append(1)
                raise ConnectionRefusedError
            return await connections.connect(url)

        monkeypatch.setattr(watching, "connect", refuse_first)
        await end_listening(connection, reader)
        await say(writer, changed, "more")
        await writer.purge(HERE, gone.id, lambda _: None)
        await writer.put_inbox(HERE, asked.id, "prompt", "p", {})
        await ear.hears(
            Signal("events", HERE, changed.id),
            Signal("purged", HERE, gone.id),
            Signal("inbox", HERE, asked.id),
        )
        assert len(refused) == 2
        ear.heard.clear()
        await say(writer, changed, "and more")
        await ear.hears(Signal("events", HERE, changed.id))


async def test_one_who_was_cut_off_tells_later(url: str) -> None:
    async with opened(url) as writer, opened(url) as reader, raw(url) as connection:
        made = await make(writer)
        near, far = Ear(writer), Ear(reader)
        await end_listening(connection, writer)
        await say(writer, made, "more")
        await near.hears(Signal("events", HERE, made.id))
        await far.hears(Signal("events", HERE, made.id))


async def test_what_a_process_did_not_live_to_tell_is_found(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "RESCAN_SECONDS", 0.05)
    async with opened(url) as dying, opened(url) as reader:
        ear = Ear(reader)
        monkeypatch.setattr(dying._watcher, "publish", lambda _: None)
        made = await make(dying)
        await ear.hears(Signal("events", HERE, made.id))


async def test_a_process_hears_its_own_changes_once(url: str) -> None:
    async with opened(url) as store, opened(url) as other:
        ear = Ear(store)
        mine = await make(store)
        theirs = await make(other)
        await ear.hears(Signal("events", HERE, theirs.id))
        assert ear.heard.count(Signal("events", HERE, mine.id)) == 1


async def test_what_closes_has_told_everything(url: str) -> None:
    async with opened(url) as reader:
        ear = Ear(reader)
        async with opened(url) as brief:
            made = await make(brief)
        await ear.hears(Signal("events", HERE, made.id))


async def test_words_of_other_programs_are_ignored(url: str) -> None:
    async with opened(url) as store, raw(url) as connection:
        ear = Ear(store)
        for payload in ("hello", "", '["later", "here", "x"]'):
            await connection.execute("SELECT pg_notify($1, $2)", watching.CHANNEL, payload)
        made = await make(store)
        await ear.hears(Signal("events", HERE, made.id))
        assert {signal.session for signal in ear.heard} == {made.id}


# Errors: one clear sentence, and never the password.


async def refused(url: str) -> errors.SegueError:
    with pytest.raises(errors.SegueError) as caught:
        await PostgresStore.open(url)
    chain: BaseException | None = caught.value
    while chain is not None:
        assert "secret" not in str(chain)
        chain = chain.__cause__
    return caught.value


async def test_nobody_there_is_a_clear_error() -> None:
    error = await refused("postgresql://me:secret@127.0.0.1:1/segue")
    assert type(error) is errors.StoreError
    assert (
        error.message
        == (
            "cannot reach PostgreSQL at 127.0.0.1:1, database segue: Connect call failed"
            " ('127.0.0.1', 1)"
        )
        or "cannot reach PostgreSQL at 127.0.0.1:1, database segue: " in error.message
    )


async def test_an_unknown_database_is_a_clear_error(url: str) -> None:
    error = await refused(url.replace("/segue_", "/no_"))
    assert type(error) is errors.StoreError
    assert error.message.startswith("there is no such database: PostgreSQL at ")


async def test_a_wrong_password_is_a_clear_error(url: str) -> None:
    async with raw(url) as connection:
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
            error = await refused(url.replace("postgres@", f"{role}@"))
            assert type(error) is errors.StoreError
        finally:
            await replace_file(connection, path, lines)
            await connection.execute(f"DROP ROLE {role}")


async def replace_file(connection: Any, path: str, lines: Sequence[str]) -> None:
    quoted = ", ".join("'" + line.replace("'", "''") + "'" for line in lines)
    await connection.execute(f"COPY (SELECT unnest(ARRAY[{quoted}])) TO '{path}'")
    await connection.execute("SELECT pg_reload_conf()")
    await asyncio.sleep(0.2)


@pytest.mark.parametrize(
    "bad",
    [
        "postgresql://me:secret@here:port/segue",
        "postgresql://me:12secret/34@host/segue",
        "postgresql://me:[secret@host/segue",
        "postgresql://me@host/segue?sslmode=secret",
    ],
)
async def test_a_url_that_makes_no_sense_is_not_repeated(bad: str) -> None:
    error = await refused(bad)
    assert isinstance(error, errors.InvalidInput | errors.StoreError)


async def test_a_full_disk_keeps_nothing_and_says_so(url: str) -> None:
    async with opened(url) as store, raw(url) as connection:
        made = await make(store)
        await connection.execute("""
            CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
              $$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = '53100'; END $$;
            CREATE TRIGGER full_disk BEFORE INSERT ON search EXECUTE FUNCTION full_disk();
        """)
        with pytest.raises(errors.StoreFull, match="the disk is full: nothing of this change"):
            await say(store, made, "too much")
        with pytest.raises(errors.StoreFull):
            await make(store, said("too much"))
        await connection.execute("DROP TRIGGER full_disk ON search")
        assert await store.get(HERE, made.id) == made
        assert (await say(store, made, "again")).last_seq == 2


async def test_a_database_that_may_only_be_read_says_so(url: str) -> None:
    async with opened(url) as store:
        made = await make(store)
    async with raw(url) as connection:
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    async with opened(url) as store:
        assert store.read_only
        assert await store.get(HERE, made.id) == made
        with pytest.raises(errors.StoreReadOnly, match="writing is not allowed"):
            await say(store, made, "more")


async def test_a_server_that_comes_back_is_found_again(url: str) -> None:
    async with opened(url) as store:
        made = await make(store)
        await end_others(url)
        assert await store.get(HERE, made.id) == made
        await end_others(url)
        assert (await say(store, made, "more")).messages == 1


async def test_a_server_that_went_away_is_a_clear_error() -> None:
    with running_server(durable=False) as url:
        store = await PostgresStore.open(url)
        made = await make(store)
    with pytest.raises(errors.StoreError, match="cannot reach PostgreSQL at "):
        await store.get(HERE, made.id)
    with pytest.raises(errors.StoreError, match="cannot reach PostgreSQL at "):
        await say(store, made, "more")
    await store.close()


async def test_what_text_cannot_hold_is_refused(url: str) -> None:
    async with opened(url) as store:
        with pytest.raises(errors.InvalidInput):
            await make(store, agent=AgentRef(id="a\0b"))
        with pytest.raises(errors.InvalidInput):
            await make(store, agent=AgentRef(id="a\ud800b"))
        await make(store, InfoChanged(tag="\0\ud800"), said("\0 \ud800"))
        assert len(await store.page(HERE, Query(tag="\0\ud800"))) == 1
