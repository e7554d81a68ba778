"""A source's disposable index: one SQLite file that is built from the tool's own files.

It recognises every file by its key (inode, size, times), stores the file's session and a copy of
its text, and answers lists and searches. It holds nothing that the files do not hold, so a damaged
index is deleted and built again. Several processes may use it at the same time.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from segue import fts5
from segue.model import clock, errors
from segue.model.cursor import ChangePoint
from segue.model.session import Session, SessionState, decode_session
from segue.sqlite_files import as_sqlite_error, enable_wal

FORMAT = 17  # of the file; a file of another format is replaced
ROW_TEXT_NUMBER = (1 << 24) - 1  # the number of the text of a session's row
MAX_TEXTS = ROW_TEXT_NUMBER  # of one file
BUSY_SECONDS = 60.0
ERASE_PAGES = 64  # of the full-text index that are merged in one step
MAX_ERASE_STEPS = 256
STATES: dict[SessionState, int] = {"active": 0, "archived": 1, "trashed": 2}

_SCHEMA = """
-- One row per file. `base` is the file's session, NULL if lists leave it out. `row` is the session
-- with the store's overlay; the columns after it repeat its fields for the indexes. One of several
-- files of a session is `shown`. `parser_state` is what parsing continues from. `open_since` is
-- when the last turn began, if nothing in the file says that it ended. `problem` is why the file's
-- session cannot be read, NULL if it can. The first `searchable` of the file's `texts` are in the
-- full-text index.
CREATE TABLE files (
  pk INTEGER PRIMARY KEY AUTOINCREMENT,
  path BLOB NOT NULL UNIQUE,
  inode INTEGER NOT NULL,
  size INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL,
  sidecar_mtime_ns INTEGER NOT NULL,
  id TEXT NOT NULL,
  next BLOB,
  parser_state BLOB NOT NULL,
  texts INTEGER NOT NULL,
  searchable INTEGER NOT NULL DEFAULT 0,
  base BLOB,
  open_since INTEGER,
  problem TEXT,
  row BLOB,
  shown INTEGER NOT NULL DEFAULT 0,
  state INTEGER NOT NULL DEFAULT 0,
  cwd BLOB,
  tag BLOB,
  created_at INTEGER NOT NULL DEFAULT 0,
  active_at INTEGER NOT NULL DEFAULT 0,
  change INTEGER NOT NULL,
  born INTEGER NOT NULL
);
CREATE INDEX files_id ON files (id);
CREATE INDEX files_next ON files (next) WHERE next IS NOT NULL;
CREATE INDEX files_open ON files (mtime_ns) WHERE open_since IS NOT NULL;
CREATE INDEX files_problem ON files (pk) WHERE problem IS NOT NULL;
CREATE INDEX files_unsearchable ON files (pk) WHERE searchable < texts;
CREATE INDEX files_change ON files (change);
CREATE INDEX files_active ON files (state, active_at, id) WHERE shown;
CREATE INDEX files_created ON files (state, created_at, id) WHERE shown;
CREATE INDEX files_cwd_active ON files (state, cwd, active_at, id) WHERE shown;
CREATE INDEX files_cwd_created ON files (state, cwd, created_at, id) WHERE shown;
CREATE INDEX files_tag_active ON files (state, tag, active_at, id) WHERE shown;
CREATE INDEX files_tag_created ON files (state, tag, created_at, id) WHERE shown;

-- `key` is pk << 24 plus the text's number. The text of a session's row (title, project, branch)
-- has the number ROW_TEXT_NUMBER and the seq 0. Python splits texts into tokens, and gives the same
-- tokens again to delete a text. `hashsize` holds the tokens of one batch of the first update.
CREATE TABLE texts (key INTEGER PRIMARY KEY, seq INTEGER NOT NULL, text BLOB NOT NULL);
CREATE VIRTUAL TABLE search USING fts5 (tokens, content = '', tokenize = 'ascii');
INSERT INTO search (search, rank) VALUES ('hashsize', 16777216);

-- The directories of the files. `digest` is that of a snapshot whose files were all in the index as
-- they are, so an equal snapshot needs no comparison. Any change of a row removes it.
CREATE TABLE directories (directory BLOB PRIMARY KEY, digest BLOB) WITHOUT ROWID;

CREATE TABLE overlay (id TEXT PRIMARY KEY, patch BLOB NOT NULL) WITHOUT ROWID;
-- Sessions that were removed, for watchers.
CREATE TABLE removed (change INTEGER NOT NULL, id TEXT NOT NULL);
CREATE TABLE meta (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
-- `change` starts at the time in microseconds, so a list's change point in a deleted index is valid
-- in the next index. Until it is `complete`, no session counts as new. `texts` is their count.
INSERT INTO meta VALUES ('change', 0), ('complete', 0), ('texts', 0);
"""

_TRANSIENT_ERRORS = {
    sqlite3.SQLITE_BUSY: (errors.StoreLocked, "another program has locked"),
    sqlite3.SQLITE_LOCKED: (errors.StoreLocked, "another program has locked"),
    sqlite3.SQLITE_FULL: (errors.StoreFull, "the disk is full; free space for"),
    sqlite3.SQLITE_READONLY: (errors.StoreReadOnly, "no permission to write"),
    sqlite3.SQLITE_CANTOPEN: (errors.StoreReadOnly, "cannot open or create"),
    sqlite3.SQLITE_PERM: (errors.StoreReadOnly, "no permission to open"),
}


class FileKey(NamedTuple):
    """The status of a file, and the time of its session's directory, to notice changes."""

    inode: int
    size: int
    mtime_ns: int
    sidecar_mtime_ns: int = 0


class IndexedFile(msgspec.Struct, frozen=True, kw_only=True):
    """The row of a file. `next` is the file that continues its session, if there is one.

    `open_since` is when its last turn began, if nothing says that it ended; `problem` is why its
    session cannot be read.
    """

    key: FileKey
    state: bytes
    session: Session | None = None
    next: str | None = None
    open_since: int | None = None
    problem: str | None = None


class IndexedText(NamedTuple):
    """The searchable text of one event, in UTF-8."""

    seq: int
    data: bytes


class IndexDamaged(Exception):
    """The index cannot be used, and must be built again."""


class Index:
    """An open index: the thread that opened it reads, any thread writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connect()

    def _connect(self) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.translate_errors():
            self._reader = _open(self.path)
            self._writer: sqlite3.Connection | None = None
            self._opened = os.stat(self.path).st_ino
        self.execute = self._reader.execute
        self.is_compared = False  # whether all files were compared with it since it was opened
        # The last search, and the state of the index that it is valid for.
        self.last_search: tuple[Any, Any] | None = None

    def close(self) -> None:
        with self._lock:
            self._reader.close()
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def reset(self) -> None:
        """Delete the file, unless another process did, and open an empty one."""
        with self._lock:
            self.close()
            if self.exists():
                _unlink(self.path)
            self._connect()

    @classmethod
    def replace(cls, path: Path) -> Index:
        """Open an empty index in place of a file that cannot be opened."""
        _unlink(path)
        return cls(path)

    def exists(self) -> bool:
        """Return whether the open file still has its name."""
        try:
            return os.stat(self.path).st_ino == self._opened
        except OSError:
            return False

    def copy_to(self, path: Path) -> None:
        """Copy the index into a new file."""
        with self._lock, self.translate_errors(), closing(sqlite3.connect(path)) as target:
            self._reader.backup(target)

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Raise segue's errors for SQLite's: IndexDamaged where a new file would help."""
        try:
            yield
        except FileNotFoundError as error:
            if error.filename != str(self.path):
                raise
            raise IndexDamaged("it was deleted while it was opened") from error
        except (sqlite3.Error, UnicodeDecodeError) as error:
            sqlite_error = as_sqlite_error(error)
            code = getattr(sqlite_error, "sqlite_errorcode", 0)
            transient = _TRANSIENT_ERRORS.get(code & 0xFF)
            if transient and code != sqlite3.SQLITE_READONLY_DBMOVED:
                error_class, reason = transient
                raise error_class(f"{reason} {self.path}") from error
            raise IndexDamaged(str(sqlite_error)) from error

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read from one state of the index inside a `with` block."""
        self.execute("BEGIN")
        try:
            yield
        finally:
            if self._reader.in_transaction:
                self.execute("COMMIT")

    # Reading.

    def directory_digests(self) -> dict[str, bytes | None]:
        """Return every directory, with the digest of a snapshot without differences."""
        rows = self.execute("SELECT directory, digest FROM directories")
        return {os.fsdecode(directory): digest for directory, digest in rows}

    def directory_digest(self, directory: str) -> bytes | None:
        """Return the digest of one directory; None if there is none."""
        sql = "SELECT digest FROM directories WHERE directory = ?"
        for (digest,) in self.execute(sql, (os.fsencode(directory),)):
            return None if digest is None else bytes(digest)
        return None

    def keys(self, directory: str) -> dict[str, FileKey]:
        """Return the keys of the files in a directory, by path."""
        sql = (
            f"SELECT path, inode, size, mtime_ns, sidecar_mtime_ns FROM files WHERE {_IN_DIRECTORY}"
        )
        rows = self.execute(sql, _directory_bounds(os.fsencode(directory)))
        return {os.fsdecode(row[0]): FileKey._make(row[1:]) for row in rows}

    def all_keys(self) -> dict[str, FileKey]:
        """Return the keys of all files, by path."""
        rows = self.execute("SELECT path, inode, size, mtime_ns, sidecar_mtime_ns FROM files")
        return {os.fsdecode(row[0]): FileKey._make(row[1:]) for row in rows}

    def parser_states(self) -> Iterator[tuple[str, bytes]]:
        """Return the parser states of all files, by path."""
        for path, state in self.execute("SELECT path, parser_state FROM files"):
            yield os.fsdecode(path), bytes(state)

    def problems(self) -> list[tuple[str, str]]:
        """Return the files whose sessions cannot be read, each with the reason."""
        sql = "SELECT path, problem FROM files WHERE problem IS NOT NULL"
        return [(os.fsdecode(path), problem) for path, problem in self.execute(sql)]

    def key(self, path: str) -> FileKey | None:
        """Return the key of a file, None if it is not in the index."""
        sql = "SELECT inode, size, mtime_ns, sidecar_mtime_ns FROM files WHERE path = ?"
        row = self.execute(sql, (os.fsencode(path),)).fetchone()
        return row and FileKey._make(row)

    def shown_sessions(self) -> int:
        """Return the number of sessions that lists show, in any state."""
        (count,) = self.execute("SELECT count(*) FROM files WHERE shown").fetchone()
        return int(count)

    def version(self) -> int:
        """Return a number that differs after each commit of any process."""
        (version,) = self.execute("PRAGMA data_version").fetchone()
        return int(version)

    def texts(self) -> int:
        """Return the number of texts."""
        return self._meta("texts")

    def unsearchable_bytes(self) -> int:
        """Return the size of the files with texts that are not in the full-text index yet."""
        sql = (
            "SELECT coalesce(sum(size), 0) FROM files INDEXED BY files_unsearchable"
            " WHERE searchable < texts"
        )
        (size,) = self.execute(sql).fetchone()
        return int(size)

    def is_complete(self) -> bool:
        """Return whether every file has been indexed once."""
        return bool(self._meta("complete"))

    def change(self) -> int:
        """Return the number of the last change."""
        return self._meta("change")

    def _meta(self, name: str) -> int:
        (value,) = self.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return int(value)

    def find(self, id: str) -> tuple[str, FileKey, Session] | None:
        """Return the path and key of the file that is shown for a session, and the session."""
        columns = "path, inode, size, mtime_ns, sidecar_mtime_ns, row"
        sql = f"SELECT {columns} FROM files WHERE id = ? AND shown"
        row = self.execute(sql, (id,)).fetchone()
        return row and (os.fsdecode(row[0]), FileKey._make(row[1:5]), decode_session(row[5]))

    def parser_state(self, path: str) -> bytes | None:
        """Return what parsing needs to continue at the end of a file."""
        sql = "SELECT parser_state FROM files WHERE path = ?"
        row = self.execute(sql, (os.fsencode(path),)).fetchone()
        return row and bytes(row[0])

    def open_turns(self, mtime_ns: int) -> list[tuple[str, str, int]]:
        """Return files with an open turn that were written since a time: path, session, start."""
        sql = "SELECT path, id, open_since FROM files WHERE open_since IS NOT NULL AND mtime_ns > ?"
        return [(os.fsdecode(path), id, at) for path, id, at in self.execute(sql, (mtime_ns,))]

    def change_point(self) -> ChangePoint:
        """Return the point after the last change."""
        change = self.change()
        return ChangePoint(change + 1, change + 1)

    def changed_since(self, point: ChangePoint) -> list[str]:
        """Return the ids of sessions that were changed or removed since a point."""
        sql = (
            "SELECT id FROM files WHERE change >= ? UNION SELECT id FROM removed WHERE change >= ?"
        )
        return [id for (id,) in self.execute(sql, (point.low, point.low))]

    def overlay(self) -> dict[str, Mapping[str, Any]]:
        """Return the store's overlay, by session id."""
        rows = self.execute("SELECT id, patch FROM overlay")
        return {id: msgspec.json.decode(patch) for id, patch in rows}

    # Writing.

    def save_digests(self, digests: Mapping[str, bytes | None], change: int) -> None:
        """Save the digests of directories without differences; None removes a directory.

        They are valid for one change number. They only save work, so they are not written while
        another process writes, or if the index is read-only.
        """
        optional = suppress(sqlite3.OperationalError)
        with self._lock, self.translate_errors(), optional, self._try_writing() as writer:
            (current,) = writer.execute("SELECT value FROM meta WHERE name = 'change'").fetchone()
            if current != change:
                return
            for path, digest in digests.items():
                directory = os.fsencode(path)
                if digest is None:
                    writer.execute("DELETE FROM directories WHERE directory = ?", (directory,))
                else:
                    sql = "INSERT OR REPLACE INTO directories VALUES (?, ?)"
                    writer.execute(sql, (directory, digest))

    def erase_removed_texts(self) -> None:
        """Remove what is left of deleted texts in the file, unless the index is very large."""
        with self._lock, self.translate_errors():
            fts5.erase_deleted(self._open_writer(), range(MAX_ERASE_STEPS), ERASE_PAGES)

    @contextmanager
    def _try_writing(self) -> Iterator[sqlite3.Connection]:
        """Begin a transaction that fails at once if another process writes."""
        writer = self._open_writer()
        writer.execute("PRAGMA busy_timeout = 0")
        try:
            writer.execute("BEGIN IMMEDIATE")
            yield writer
        finally:
            if writer.in_transaction:
                writer.execute("COMMIT")
            writer.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write one change atomically; see `writer.write_index`."""
        with self._lock, self.translate_errors():
            connection = self._open_writer()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _open_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            self._writer = _open(self.path)
            if not self.exists():
                raise IndexDamaged("it was replaced by another process")
        return self._writer


def _unlink(path: Path) -> None:
    # The log first: SQLite would replay a remaining log into the new file.
    for suffix in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{suffix}")


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA cache_size = -16000")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != FORMAT:
            _create(connection, path, version)
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


def _create(connection: sqlite3.Connection, path: Path, version: int) -> None:
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if version or tables:
        raise sqlite3.DatabaseError("another format")
    os.chmod(path, 0o600)
    connection.execute("PRAGMA page_size = 16384")  # texts are long
    enable_wal(connection, BUSY_SECONDS)
    connection.execute("BEGIN IMMEDIATE")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != FORMAT:  # or another process was faster
            for statement in _SCHEMA.split(";\n"):
                connection.execute(statement)
            connection.execute("UPDATE meta SET value = ? WHERE name = 'change'", (clock.now(),))
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


_IN_DIRECTORY = "path > ? AND path < ?"


def _directory_bounds(directory: bytes) -> tuple[bytes, bytes]:
    """Return the bounds of the paths in a directory."""
    prefix = directory + os.sep.encode()
    return prefix, prefix[:-1] + bytes([prefix[-1] + 1])
