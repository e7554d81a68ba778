"""What a purge leaves behind: no share link, and no words in the search index."""

import base64
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from segue.factory import open_hub
from segue.hub.access.idempotency import Answer
from segue.hub.access.logins import CLEANUP_INTERVAL, LINK_LIFETIME, LOGIN_LIFETIME
from segue.model import clock, ids
from segue.model.content import as_content
from segue.model.errors import Busy, NotFound
from segue.model.event import AgentMessage, StatusChanged, ToolCall
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.model.record import Record
from segue.store.base import Signal
from tests.claude.entries import Home, user

WORD = "xyzzyplugh"


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str | None:
    """The URL of a new database, or None for the embedded store."""
    if request.param == "sqlite":
        return None
    return str(request.getfixturevalue("migrated_database_url"))


async def test_a_share_link_ends_with_its_session(tmp_path: Path, database_url: str | None) -> None:
    async with await open_hub(tmp_path, database_url, sources="none") as hub:
        session = await hub.editor.create(LOCAL, title="Shared")
        await hub.turns.run(LOCAL, session.id, "/say hello")
        secret = await hub.shares.share(LOCAL, session.id)
        await hub.shares.authenticate("local", session.id, secret)
        data = b"".join([chunk async for chunk in hub.exchange.export(LOCAL, session.id)])
        await hub.editor.purge(LOCAL, session.id)
        with pytest.raises(NotFound):
            await hub.shares.authenticate("local", session.id, secret)
        imported = await hub.exchange.import_session(LOCAL, data.splitlines())
        assert imported.id == session.id
        assert await hub.shares.get(LOCAL, session.id) is None
        with pytest.raises(NotFound):
            await hub.shares.authenticate("local", session.id, secret)
        assert await hub.shares.share(LOCAL, session.id) != secret


async def test_a_share_link_ends_with_the_session_of_a_tool(tmp_path: Path) -> None:
    home = Home(tmp_path / "claude")
    id = home.write([user("u1", None, "Hello", cwd="/p")]).stem
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLAUDE_CONFIG_DIR", str(home.root))
        async with await open_hub(tmp_path / "data", sources="claude") as hub:
            secret = await hub.shares.share(LOCAL, id)
            await hub.editor.purge(LOCAL, id)
            with pytest.raises(NotFound):
                await hub.shares.authenticate("local", id, secret)


def words_in_index(path: Path) -> list[str]:
    """Return the indexed words, with those of rows that were deleted but not removed."""
    with closing(sqlite3.connect(path)) as database:
        blobs = [bytes(row[0]) for row in database.execute("SELECT block FROM search_data")]
    return [WORD for blob in blobs if WORD.encode() in blob]


async def test_purged_text_leaves_the_sqlite_files(tmp_path: Path) -> None:
    async with await open_hub(tmp_path, sources="none") as hub:
        kept = await hub.editor.create(LOCAL, title="Kept")
        await hub.turns.run(LOCAL, kept.id, "/say the other text")
        session = await hub.editor.create(LOCAL, title="Purged")
        for _ in range(3):
            await hub.turns.run(LOCAL, session.id, f"/say the {WORD} is here")
        await hub.sessions.search(LOCAL, Query(text=WORD))  # completes the index
        assert words_in_index(tmp_path / "segue-search.db")
        await hub.editor.purge(LOCAL, session.id)
    assert words_in_index(tmp_path / "segue-search.db") == []
    for path in tmp_path.glob("segue*.db*"):
        assert WORD.encode() not in path.read_bytes()
    async with await open_hub(tmp_path, sources="none") as hub:
        assert not (await hub.sessions.search(LOCAL, Query(text=WORD))).matches
        matches = (await hub.sessions.search(LOCAL, Query(text="other text"))).matches
        assert [match.session.id for match in matches] == [kept.id]
        assert await hub.store.check() == []


TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
ENCODED_TOKEN = base64.b64encode(f"token={TOKEN}".encode()).decode()


def files_with(directory: Path, *texts: str) -> list[str]:
    """Return the files that have one of the texts, in any case, and where."""
    return [
        f"{path.name}: {text}"
        for path in directory.rglob("*")
        if path.is_file()
        for text in texts
        if text.lower().encode() in path.read_bytes().lower()
    ]


@pytest.mark.parametrize("other_reader", [False, True])
async def test_redacted_secrets_leave_the_sqlite_files(tmp_path: Path, other_reader: bool) -> None:
    texts = (TOKEN, TOKEN[6:30], ENCODED_TOKEN[:24])
    async with await open_hub(tmp_path, sources="none") as hub:
        other = await hub.editor.create(LOCAL, title="Other")
        session = await hub.editor.create(LOCAL, title=f"Use {TOKEN}", metadata={"key": TOKEN})
        for number in range(20):  # the row and the pages around it move
            await hub.editor.set_title(LOCAL, session.id, f"Use {TOKEN} {'-' * 40 * number}")
            await hub.turns.run(LOCAL, other.id, f"/say {'words ' * 200}")
        await hub.turns.run(LOCAL, session.id, f"/say {TOKEN} walrus")
        await hub.editor.append(
            LOCAL,
            session.id,
            ToolCall(call_id="1", name="bash", input={"command": f"echo {ENCODED_TOKEN}"}),
            AgentMessage(content=as_content(f"It is {TOKEN[:20]}")),
            AgentMessage(content=as_content(TOKEN[20:])),
        )
        await hub.editor.set_title(LOCAL, session.id, "Renamed")
        answered = await hub.idempotency_keys.reserve("local", "key")
        assert answered is not None
        answer = Answer(200, f'{{"text": "{TOKEN}"}}'.encode(), {})
        await hub.idempotency_keys.store_answer(answered, "", answer, encrypt=False)
        await hub.sessions.search(LOCAL, Query(text=TOKEN))  # completes the index
    assert len(files_with(tmp_path, *texts)) > 3
    with closing(sqlite3.connect(tmp_path / "segue.db")) as reader:
        if other_reader:
            reader.execute("SELECT * FROM sessions").fetchall()
        async with await open_hub(tmp_path, sources="none") as hub:
            before = await hub.sessions.get(LOCAL, session.id)
            count, remainder = await hub.exchange.redact_in_place(LOCAL, session.id)
            assert count > 20 and remainder is None
            assert files_with(tmp_path, *texts) == []
            after = await hub.sessions.get(LOCAL, session.id)
            assert (after.last_seq, after.title) == (before.last_seq, "Renamed")
            matches = (await hub.sessions.search(LOCAL, Query(text="walrus"))).matches
            assert [match.session.id for match in matches] == [session.id]
            assert not (await hub.sessions.search(LOCAL, Query(text=TOKEN))).matches
            assert await hub.store.check() == []


async def test_a_program_that_reads_the_log_is_named(tmp_path: Path) -> None:
    async with await open_hub(tmp_path, sources="none") as hub:
        session = await hub.editor.create(LOCAL, title=f"Use {TOKEN}")
        with (
            closing(sqlite3.connect(tmp_path / "segue.db")) as reader,
            pytest.MonkeyPatch.context() as patch,
        ):
            patch.setattr("segue.store.sqlite.connection.BUSY_SECONDS", 0.1)
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM sessions").fetchall()
            _, remainder = await hub.exchange.redact_in_place(LOCAL, session.id)
        assert remainder is not None and "segue.db-wal" in remainder


async def test_answer_that_expires_during_a_redaction_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await open_hub(tmp_path, sources="none") as hub:
        session = await hub.editor.create(LOCAL, title=f"Use {TOKEN}")
        answered = await hub.idempotency_keys.reserve("local", "key")
        assert answered is not None
        await hub.idempotency_keys.store_answer(
            answered, "", Answer(200, TOKEN.encode(), {}), encrypt=False
        )
        update = hub.records.update

        async def delete_and_update(record: Record, *args: Any, **options: Any) -> Record:
            await hub.records.delete(record)
            return await update(record, *args, **options)

        monkeypatch.setattr(hub.records, "update", delete_and_update)
        assert await hub.exchange.redact_in_place(LOCAL, session.id) == (1, None)
        assert files_with(tmp_path, TOKEN) == []


async def test_turn_that_waits_for_an_answer_is_not_redacted(
    tmp_path: Path, database_url: str | None
) -> None:
    async with await open_hub(tmp_path, database_url, sources="none") as hub:
        session = await hub.editor.create(LOCAL, title=f"Use {TOKEN}")
        turn = await hub.turns.submit(LOCAL, session.id, "/ask Really?")
        async for event in hub.history.follow(LOCAL, session.id):
            if isinstance(event.body, StatusChanged) and event.body.pending:
                break
        with pytest.raises(Busy, match="has a turn that waits; answer its requests or cancel it"):
            await hub.exchange.redact_in_place(LOCAL, session.id)
        (ask,) = (await hub.sessions.get(LOCAL, session.id)).open_asks
        await hub.turns.answer(LOCAL, session.id, ask, "allow")
        assert await hub.turns.wait(LOCAL, session.id, turn) == "end_turn"
        assert (await hub.exchange.redact_in_place(LOCAL, session.id))[0] > 0


async def test_redaction_announces_no_deleted_session(
    tmp_path: Path, database_url: str | None
) -> None:
    async with await open_hub(tmp_path, database_url, sources="none") as hub:
        session = await hub.editor.create(LOCAL, title=f"Use {TOKEN}")
        signals: list[Signal] = []
        stop = hub.store.watch(signals.append)
        await hub.exchange.redact_in_place(LOCAL, session.id)
        stop()
        assert {s.kind for s in signals if s.session == session.id} == {"events"}
        assert "[masked]" in str((await hub.sessions.get(LOCAL, session.id)).title)


async def test_purged_text_leaves_the_index_of_a_tool(tmp_path: Path) -> None:
    home = Home(tmp_path / "claude")
    id = home.write([user("u1", None, f"the {WORD} is here", cwd="/p")]).stem
    home.write([user("u2", None, "the other text", cwd="/p")], ids.new_id())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLAUDE_CONFIG_DIR", str(home.root))
        async with await open_hub(tmp_path / "data", sources="claude") as hub:
            assert len((await hub.sessions.search(LOCAL, Query(text=WORD))).matches) == 1
            (path,) = (tmp_path / "data").glob("claude-*.index")
            assert words_in_index(path)
            await hub.editor.purge(LOCAL, id)
            assert not (await hub.sessions.search(LOCAL, Query(text=WORD))).matches
            assert len((await hub.sessions.search(LOCAL, Query(text="other"))).matches) == 1
    assert words_in_index(path) == []
    for file in path.parent.glob(f"{path.name}*"):
        assert WORD.encode() not in file.read_bytes()


async def test_an_interrupted_rewrite_of_the_index_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await open_hub(tmp_path, sources="none") as hub:
        session = await hub.editor.create(LOCAL, title="Purged")
        await hub.turns.run(LOCAL, session.id, f"/say the {WORD} is here")
        await hub.sessions.search(LOCAL, Query(text=WORD))  # completes the index
        with monkeypatch.context() as patch:
            patch.setattr("segue.store.sqlite.writer.IDLE_SECONDS", 3600.0)
            patch.setattr("segue.store.sqlite.writer.CLOSING_MERGE_STEPS", 0)
            await hub.editor.purge(LOCAL, session.id)
            await hub.close()
    assert words_in_index(tmp_path / "segue-search.db")
    async with await open_hub(tmp_path, sources="none") as hub:
        await hub.editor.create(LOCAL, title="Another")
    assert words_in_index(tmp_path / "segue-search.db") == []


async def test_purged_text_leaves_the_postgres_index(
    tmp_path: Path, migrated_database_url: str
) -> None:
    import asyncpg  # type: ignore[import-untyped]  # it ships no types

    async with await open_hub(tmp_path, migrated_database_url, sources="none") as hub:
        session = await hub.editor.create(LOCAL, title="Purged")
        await hub.turns.run(LOCAL, session.id, f"/say the {WORD} is here")
        connection = await asyncpg.connect(migrated_database_url)
        try:
            sql = f"SELECT count(*) FROM segue.search WHERE words::text LIKE '%{WORD}%'"
            assert await connection.fetchval(sql) > 0
            await hub.editor.purge(LOCAL, session.id)
            assert await connection.fetchval(sql) == 0
        finally:
            await connection.close()


async def test_expired_logins_are_deleted(
    tmp_path: Path, database_url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await open_hub(tmp_path, database_url, sources="none") as hub:

        async def count() -> int:
            return len([record async for record in hub.records.all("local", "login")])

        now = clock.now()
        await hub.logins.create_link(LOCAL)
        browser = await hub.logins.use_link(await hub.logins.create_link(LOCAL))
        assert await count() == 2
        monkeypatch.setattr(clock, "now", lambda: now + LINK_LIFETIME + CLEANUP_INTERVAL)
        await hub.logins.create_link(LOCAL)
        assert await count() == 2  # the browser's login and the new link
        await hub.logins.authenticate(browser)
        monkeypatch.setattr(clock, "now", lambda: now + LOGIN_LIFETIME + CLEANUP_INTERVAL)
        await hub.logins.create_link(LOCAL)
        assert await count() == 1
