"""The full-text index, in a file of its own next to the store.

The index is made from the stored events alone, so its file can be deleted. Events are indexed after
their commit, many at a time: by the writer thread while it is idle, and by a search that finds the
index behind. `position` is the change counter up to which the index is complete.

Only a purge changes the index first, because removing words needs the text. If the purge is not
committed, the session is in `removed` and is indexed again. An index that is damaged, of another
format or store, or that missed a purge is built again. A store that cannot be written, or whose
disk is full, is indexed in memory.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeVar

from segue import fts5
from segue.model import errors, event, search_text
from segue.model.session import decode_session
from segue.sqlite_files import enable_wal, sqlite_errors
from segue.store.base import MAX_SEQ

from .connection import (
    BUSY_SECONDS,
    CHECKPOINT_PAGES,
    address,
    check_compat,
    connect,
    read_only_parameters,
    transaction,
)

T = TypeVar("T")
FORMAT = 2  # rises when the tables change, or when the same event has other words
STEP_EVENTS = 1_000  # indexed in one transaction
MERGE_PAGES = 64  # of the full-text index, in one step

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_UNWRITABLE = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
)

_STATE = """
-- One row. `store` names the store that is indexed. `newest_key` and `newest_id` are those of the
-- event that was indexed last: a store restored from a backup does not have it. `last_purge` is
-- the change counter of the last purge. `unerased` is 1 while deleted words are in the file.
CREATE TABLE IF NOT EXISTS fts.state (
  position INTEGER NOT NULL,
  store TEXT NOT NULL,
  newest_key INTEGER,
  newest_id TEXT,
  last_purge INTEGER NOT NULL,
  unerased INTEGER NOT NULL
)"""
_TABLES = (
    # The last indexed event of each session.
    "CREATE TABLE fts.indexed (session INTEGER PRIMARY KEY, seq INTEGER NOT NULL)",
    # The text of each session's row. Its words are indexed as those of an event with the seq 0.
    "CREATE TABLE fts.rows (session INTEGER PRIMARY KEY, text TEXT NOT NULL)",
    # Sessions whose words a purge has removed, until it is known that the purge was committed.
    "CREATE TABLE fts.removed (session INTEGER PRIMARY KEY)",
    # Python makes the tokens and joins them by spaces; the rowid is the event's key. Contentless:
    # the text is in `events`, and is passed again to delete a row.
    "CREATE VIRTUAL TABLE fts.search USING"
    " fts5 (tokens, content = '', tokenize = 'ascii', prefix = '2 3')",
    # The writer thread merges segments while it is idle, so that other steps seldom have to.
    "INSERT INTO search (search, rank) VALUES ('automerge', 8)",
)
_STORE_STATE = """
SELECT (SELECT value FROM meta WHERE name = 'change'),
  (SELECT value FROM meta WHERE name = 'cursor_key'),
  coalesce((SELECT value FROM meta WHERE name = 'last_purge'), 0)"""
_PROGRESS = """
SELECT (SELECT value FROM meta WHERE name = 'change'), position,
  EXISTS (SELECT 1 FROM removed) FROM state"""
_NEW_EVENTS = """
SELECT key, id, version, CAST(body AS BLOB) FROM events WHERE key > ? AND key <= ?
ORDER BY key LIMIT ?"""


class _Outdated(Exception):
    """The index does not belong to the store as it is now."""


def index_path(store: Path) -> Path:
    """Return the file of a store's search index. It is next to the file, not to a link to it."""
    store = Path(os.path.realpath(store))
    return store.with_name(f"{store.stem}-search{store.suffix}")


class SearchIndex:
    """A connection, made on first use, to the store and its search index, the database `fts`.

    If the index's file cannot be written, the index is built in memory, unless `file_only` is set.
    """

    def __init__(self, store: Path, *, file_only: bool = False) -> None:
        self._store = store
        self._file_only = file_only
        self.path = index_path(store)
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self._in_memory = False

    @property
    def in_memory(self) -> bool:
        """Return whether the index is this connection's own, because its file cannot be written."""
        return self._in_memory

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def connection(self) -> sqlite3.Connection:
        """Return the connection. It is another one after the index was discarded or deleted."""
        if not self._in_memory and self._inode != _inode(self.path):
            self.close()  # another process or the user has deleted the file
        if self._connection is None:
            self._connection = self._recovering(self._open)
        return self._connection

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Let several statements read one state of the store, for which the index is complete."""
        while True:
            connection = self.connection()
            connection.execute("BEGIN")
            try:
                change, position, removed = connection.execute(_PROGRESS).fetchone()
                if change == position and not removed:
                    yield connection
                    return
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            self.complete()

    def missing_changes(self) -> int:
        """Return how many changes of the store are not indexed yet."""

        def read() -> int:
            change, position, _ = self.connection().execute(_PROGRESS).fetchone()
            return max(0, int(change - position))

        return self._recovering(read)

    def complete(self, steps: Iterable[object] | None = None) -> bool:
        """Index the events that are not indexed yet; return False if the steps were too few."""
        return any(self._recovering(self._step) for _ in (count() if steps is None else steps))

    def remove(self, session: int, texts: Iterable[tuple[int, str]], change: int) -> None:
        """Remove the words of a session that is about to be purged. `texts` has its events' tokens.

        If this fails, the index is outdated after the purge, and is built again.
        """
        try:
            self._recovering(partial(self._remove, session, texts, change))
        except (sqlite3.Error, errors.StoreError):
            with suppress(OSError):
                self.discard()

    def erase(self, steps: Iterable[object]) -> None:
        """Erase the deleted words from the files: FTS5 keeps them until all segments are merged."""
        connection = self.connection()
        purge = connection.execute("SELECT last_purge FROM state WHERE unerased = 1").fetchone()
        if purge is not None and fts5.erase_deleted(connection, steps, MERGE_PAGES):
            connection.execute("UPDATE state SET unerased = 0 WHERE last_purge = ?", purge)

    def merge(self) -> bool:
        """Merge some pages of the index's segments; return False if nothing is left to merge.

        Every step adds a segment, and every search reads all of them.
        """
        connection = self.connection()
        before = connection.total_changes
        connection.execute("INSERT INTO search (search, rank) VALUES ('merge', ?)", (MERGE_PAGES,))
        return connection.total_changes - before >= 2

    def discard(self) -> None:
        """Delete the index, which is then built again."""
        self.close()
        if self._in_memory:
            return
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(f"{self.path}{suffix}")

    def check(self) -> list[str]:
        """Return what is wrong with the index's file, which is not changed."""
        if not self.path.exists():
            return []
        log = Path(f"{self.path}-wal")
        parameters = "mode=ro" if log.exists() else "immutable=1"
        try:
            with (
                sqlite_errors(),
                closing(sqlite3.connect(address(self.path, parameters), uri=True)) as connection,
            ):
                messages = [row for (row,) in connection.execute("PRAGMA quick_check(20)")]
        except sqlite3.DatabaseError as error:
            if not is_damaged(error):
                raise
            messages = [str(error)]
        remedy = "the next search builds this file again"
        return [f"{self.path}: {message}; {remedy}" for message in messages if message != "ok"]

    # Opening.

    def _open(self) -> sqlite3.Connection:
        connection = connect(self._store, writable=False, with_index=True)
        try:
            self._attach(connection)
            connection.execute("CREATE VIRTUAL TABLE temp.words USING fts5vocab (fts, search, row)")
        except BaseException:
            connection.close()
            raise
        return connection

    def _attach(self, connection: sqlite3.Connection) -> None:
        if self._in_memory:
            connection.execute("ATTACH ':memory:' AS fts")
            self._create(connection)
            return
        if not self.path.exists():
            self._create_file()
        parameters = read_only_parameters(self.path)
        self._inode = _inode(self.path)
        connection.execute("ATTACH ? AS fts", (address(self.path, parameters),))
        (version,) = connection.execute("PRAGMA fts.user_version").fetchone()
        if version not in (0, FORMAT):
            raise _Outdated
        if parameters is None:
            enable_wal(connection, BUSY_SECONDS)
            # Without a sync for each commit: after a power failure, the index is completed again.
            connection.execute("PRAGMA fts.synchronous = NORMAL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        if version == 0:
            self._create(connection)

    def _create_file(self) -> None:
        if read_only_parameters(self._store) is not None:
            raise errors.StoreReadOnly(f"the store is read-only: {self._store}")
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return  # another process was faster
        except OSError as error:
            raise errors.StoreReadOnly(f"cannot create {self.path}: {error.strerror}") from error

    def _create(self, connection: sqlite3.Connection) -> None:
        with transaction(connection):
            connection.execute(_STATE)
            if connection.execute("SELECT 1 FROM fts.state").fetchone():
                return  # another process was faster
            for sql in _TABLES:
                connection.execute(sql)
            _, key, last_purge = connection.execute(_STORE_STATE).fetchone()
            values = (0, _store_name(key), None, None, last_purge, 0)
            connection.execute("INSERT INTO fts.state VALUES (?, ?, ?, ?, ?, ?)", values)
            connection.execute(f"PRAGMA fts.user_version = {FORMAT}")

    def _recovering(self, action: Callable[[], T]) -> T:
        """Return the result of an action on the index, which is replaced if it cannot be used."""
        for attempt in range(3):
            try:
                with sqlite_errors():
                    return action()
            except _Outdated:
                self._replace()
            except errors.StoreReadOnly:
                if self._in_memory or self._file_only:
                    raise
                self._use_memory()
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if attempt == 2 or self._in_memory:
                    raise
                if code in _UNWRITABLE and not self._file_only:
                    self._use_memory()
                elif is_damaged(error):
                    self._replace()
                else:
                    raise
        raise errors.StoreError(
            f"other processes keep replacing the search index {self.path}; try again"
        )

    def _replace(self) -> None:
        try:
            self.discard()
        except OSError as error:
            if self._file_only:
                raise errors.StoreReadOnly(f"cannot delete {self.path}") from error
            self._use_memory()

    def _use_memory(self) -> None:
        self.close()
        self._in_memory = True

    # Indexing.

    def _step(self) -> bool:
        """Index the next events in one transaction; return whether the index is complete."""
        connection = self.connection()
        execute = connection.execute
        check_compat(connection, self._store)
        if execute("SELECT 1 FROM removed").fetchone():
            self._settle_removed(connection)
        with transaction(connection):
            execute("UPDATE state SET position = position")  # locks the index alone
            change, position, last_purge, purge = self._checked_state(connection)
            if last_purge != purge:
                if execute("SELECT 1 FROM removed").fetchone():
                    return False  # a purge is about to be committed
                raise _Outdated
            left = STEP_EVENTS
            sql = "SELECT pk, change FROM sessions WHERE change > ? ORDER BY change"
            for pk, session_change in execute(sql, (position,)).fetchall():
                left -= self._index_session(connection, pk, left)
                if left <= 0:
                    break
                position = session_change
            else:
                position = change
            execute("UPDATE state SET position = ?", (position,))
            return bool(position == change)

    def _settle_removed(self, connection: sqlite3.Connection) -> None:
        """Index removed sessions again that were not purged after all.

        Locks the store too: a process that is about to commit a purge has this lock.
        """
        with transaction(connection, "BEGIN IMMEDIATE"):
            _, _, last_purge, purge = self._checked_state(connection)
            if purge > last_purge:
                raise _Outdated
            for (pk,) in connection.execute("SELECT session FROM removed").fetchall():
                self._index_session(connection, pk, MAX_SEQ)
            connection.execute("DELETE FROM removed")
            connection.execute("UPDATE state SET last_purge = ?", (purge,))

    def _checked_state(self, connection: sqlite3.Connection) -> tuple[int, int, int, int]:
        """Return the store's counter, the index's position, its last purge and the store's."""
        sql = "SELECT position, store, newest_key, newest_id, last_purge FROM state"
        position, store, newest_key, newest_id, last_purge = connection.execute(sql).fetchone()
        change, key, purge = connection.execute(_STORE_STATE).fetchone()
        if store != _store_name(key) or position > change:
            raise _Outdated
        if newest_key is not None:
            sql = "SELECT id FROM events WHERE key = ?"
            if connection.execute(sql, (newest_key,)).fetchone() != (newest_id,):
                raise _Outdated
        return change, position, last_purge, purge

    def _index_session(self, connection: sqlite3.Connection, pk: int, limit: int) -> int:
        """Index new events of a session, and return their number."""
        execute = connection.execute
        (seq,) = execute("SELECT seq FROM indexed WHERE session = ?", (pk,)).fetchone() or (0,)
        bounds = (pk << 24 | seq, pk << 24 | MAX_SEQ)
        indexed, newest = 0, (0, "")
        # One row at a time: a body may have megabytes.
        for key, id, version, body in execute(_NEW_EVENTS, (*bounds, limit)):
            if words := tokens(event.decode_body(body, version)):
                execute(fts5.INSERT, (key, words))
            indexed, newest = indexed + 1, (key, id)
        if indexed:
            execute("INSERT OR REPLACE INTO indexed VALUES (?, ?)", (pk, newest[0] & MAX_SEQ))
            execute("UPDATE state SET newest_key = ?, newest_id = ?", newest)
        self._index_row(connection, pk)
        return indexed

    def _index_row(self, connection: sqlite3.Connection, pk: int) -> None:
        """Index the text of a session's row if it has changed."""
        sql = "SELECT CAST(row AS BLOB) FROM sessions WHERE pk = ?"
        row = connection.execute(sql, (pk,)).fetchone()
        if row is None:
            return  # it was purged
        text = fts5.index_tokens(search_text.searchable_row(decode_session(row[0])))
        if text != _row_text(connection, pk):
            self._remove_row(connection, pk)
            connection.execute(fts5.INSERT, (pk << 24, text))
            connection.execute("INSERT INTO rows VALUES (?, ?)", (pk, text))

    def _remove_row(self, connection: sqlite3.Connection, pk: int) -> None:
        if (text := _row_text(connection, pk)) is not None:
            connection.execute(fts5.DELETE, (pk << 24, text))
            connection.execute("DELETE FROM rows WHERE session = ?", (pk,))

    def _remove(self, session: int, texts: Iterable[tuple[int, str]], change: int) -> None:
        connection = self.connection()
        execute = connection.execute
        with transaction(connection):
            execute("UPDATE state SET last_purge = ?, unerased = 1", (change,))
            sql = "UPDATE state SET newest_key = NULL WHERE newest_key >> 24 = ?"
            execute(sql, (session,))
            sql = "DELETE FROM indexed WHERE session = ? RETURNING seq"
            (seq,) = execute(sql, (session,)).fetchone() or (0,)
            for key, words in texts:
                if key & MAX_SEQ <= seq and words:
                    execute(fts5.DELETE, (key, words))
            self._remove_row(connection, session)
            execute("INSERT OR IGNORE INTO removed VALUES (?)", (session,))


def tokens(body: event.AnyBody) -> str:
    """Return the words of an event as the index has them."""
    return fts5.index_tokens(search_text.searchable_text(body))


def _row_text(connection: sqlite3.Connection, pk: int) -> str | None:
    row = connection.execute("SELECT text FROM rows WHERE session = ?", (pk,)).fetchone()
    return row and str(row[0])


def is_damaged(error: sqlite3.Error) -> bool:
    """Return whether an error says that a file is damaged, or no database."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED


def complete_index(store: Path) -> None:
    """Complete the file of a store's index on a connection of its own, e.g. in a thread."""
    index = SearchIndex(store, file_only=True)
    try:
        index.complete()
    finally:
        index.close()


def erase_deleted(store: Path) -> str | None:
    """Rewrite a store's files and its index without deleted text, on a connection of its own.

    Returns where the text remains: another program may read the write-ahead log just now, or the
    disk may be full.
    """
    index = SearchIndex(store, file_only=True)
    try:
        index.complete()
        index.erase(count())
        connection = index.connection()
        for schema in ("main", "fts"):
            connection.execute(f"VACUUM {schema}")
        for schema in ("main", "fts"):
            (is_busy, *_) = connection.execute(
                f"PRAGMA {schema}.wal_checkpoint(TRUNCATE)"
            ).fetchone()
            if is_busy:
                return f"{store}-wal, until the programs that read the store now end"
    except (sqlite3.Error, errors.StoreError) as error:
        return f"unused parts of {store}, until `VACUUM` is run in it: {error}"
    finally:
        index.close()
    return None


def _store_name(cursor_key: bytes) -> str:
    """Return the name of a store. Its key is secret, so it is not copied."""
    from hashlib import sha256  # late: a list searches nothing

    return sha256(b"search index" + cursor_key).hexdigest()[:16]


def _inode(path: Path) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0
