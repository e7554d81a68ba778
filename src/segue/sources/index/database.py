"""A source's index: one small SQLite file, made from the tool's own files and thrown away at will.

It knows every file by its key (inode, size, times), keeps the session that the file comes to and a
copy of its text, and answers lists and searches. Nothing is here that is nowhere else, so whatever
is wrong with it, it is made anew. Several processes may use it at once.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from segue.model import clock, codec, errors
from segue.model.cursor import ChangePoint
from segue.model.session import Session, SessionState
from segue.sqlite_wal import enable_wal

if TYPE_CHECKING:
    from .terms import Words
    from .writer import Writing

FORMAT = 10  # of this file; one of another format is made anew
MOST = 1 << 24  # texts of one file
BUSY_SECONDS = 60.0
SHELVES: dict[SessionState, int] = {"active": 0, "archived": 1, "trashed": 2}

_SCHEMA = """
-- One row a file. `base` is the session that it comes to, nothing where lists leave it out; `row`
-- is the same with what the store's overlay says, and the columns after it are there to be indexed.
-- Of several files of one session one is `shown`. `state` is what reading on needs.
CREATE TABLE files (
  pk INTEGER PRIMARY KEY AUTOINCREMENT,
  path BLOB NOT NULL UNIQUE,
  inode INTEGER NOT NULL,
  size INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL,
  beside_ns INTEGER NOT NULL,
  id TEXT NOT NULL,
  next BLOB,
  state BLOB NOT NULL,
  texts INTEGER NOT NULL,
  base BLOB,
  row BLOB,
  shown INTEGER NOT NULL DEFAULT 0,
  shelf INTEGER NOT NULL DEFAULT 0,
  cwd BLOB,
  tag BLOB,
  created_at INTEGER NOT NULL DEFAULT 0,
  active_at INTEGER NOT NULL DEFAULT 0,
  change INTEGER NOT NULL,
  born INTEGER NOT NULL
);
CREATE INDEX files_id ON files (id);
CREATE INDEX files_next ON files (next) WHERE next IS NOT NULL;
CREATE INDEX files_change ON files (change);
CREATE INDEX files_active ON files (shelf, active_at, id) WHERE shown;
CREATE INDEX files_created ON files (shelf, created_at, id) WHERE shown;
CREATE INDEX files_cwd_active ON files (shelf, cwd, active_at, id) WHERE shown;
CREATE INDEX files_cwd_created ON files (shelf, cwd, created_at, id) WHERE shown;
CREATE INDEX files_tag_active ON files (shelf, tag, active_at, id) WHERE shown;
CREATE INDEX files_tag_created ON files (shelf, tag, created_at, id) WHERE shown;

-- `key` is pk << 24 and a number; tokens come from Python, and are given again to be taken out. As
-- much of them is held before it is written as one batch of the first reading brings.
CREATE TABLE texts (key INTEGER PRIMARY KEY, seq INTEGER NOT NULL, text BLOB NOT NULL);
CREATE VIRTUAL TABLE search USING fts5 (tokens, content = '', tokenize = 'ascii');
INSERT INTO search (search, rank) VALUES ('hashsize', 16777216);

-- The directories of the files. `digest` is that of a look at one which found just what is known of
-- it, so that the next such look is all that it takes; any change of a row takes it away.
CREATE TABLE places (directory BLOB PRIMARY KEY, digest BLOB) WITHOUT ROWID;

CREATE TABLE overlay (id TEXT PRIMARY KEY, patch BLOB NOT NULL) WITHOUT ROWID;
-- Sessions that are gone, for those who watch.
CREATE TABLE gone (change INTEGER NOT NULL, id TEXT NOT NULL);
CREATE TABLE meta (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
-- `change` begins with the time in microseconds: what a list's mark says of an index that is gone
-- holds for the one that takes its place. Until it is `whole` nothing in it counts as newly made.
-- `texts` is how many there are.
INSERT INTO meta VALUES ('change', 0), ('whole', 0), ('texts', 0);
"""

_TRANSIENT = {
    sqlite3.SQLITE_BUSY: (errors.StoreLocked, "another program holds the lock of"),
    sqlite3.SQLITE_LOCKED: (errors.StoreLocked, "another program holds the lock of"),
    sqlite3.SQLITE_FULL: (errors.StoreFull, "the disk is full: there is no room for"),
    sqlite3.SQLITE_READONLY: (errors.StoreReadOnly, "no permission to write"),
    sqlite3.SQLITE_CANTOPEN: (errors.StoreReadOnly, "cannot open or create"),
    sqlite3.SQLITE_PERM: (errors.StoreReadOnly, "no permission to open"),
}


class Key(NamedTuple):
    """What tells that a file has not changed. `beside_ns` is the time of what lies beside it."""

    inode: int
    size: int
    mtime_ns: int
    beside_ns: int = 0


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """What a file comes to. `next` is the file in which its session goes on, if in another."""

    key: Key
    state: bytes
    session: Session | None = None
    next: str | None = None


class Text(NamedTuple):
    """What can be searched of one event."""

    seq: int
    data: bytes
    tokens: str


class Damaged(Exception):
    """The index cannot be used; it is to be made anew."""


class Index:
    """The file, open for reading by the thread that opened it and for writing by any."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connect()

    def _connect(self) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.damage():
            self._reader = _open(self.path)
            self._writer: sqlite3.Connection | None = None
            self._opened = os.stat(self.path).st_ino
        self.execute = self._reader.execute
        self.looked = False  # whether the files were looked at since it was opened
        # Of the last search, and the state of the index that it holds for.
        self.last: tuple[Any, Words] | None = None

    def close(self) -> None:
        with self._lock:
            self._reader.close()
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def renew(self) -> None:
        """Throw everything away, unless somebody has done so, and begin again."""
        with self._lock:
            self.close()
            if self.is_there():
                _unlink(self.path)
            self._connect()

    @classmethod
    def anew(cls, path: Path) -> Index:
        """An empty one in the place of one that cannot even be opened."""
        _unlink(path)
        return cls(path)

    def is_there(self) -> bool:
        """Whether the open file is still the one of that name."""
        try:
            return os.stat(self.path).st_ino == self._opened
        except OSError:
            return False

    @contextmanager
    def damage(self) -> Iterator[None]:
        """SQLite's errors as ours: Damaged for what a new file would heal."""
        try:
            yield
        except FileNotFoundError as error:
            if error.filename != str(self.path):
                raise
            raise Damaged("it was thrown away while it was opened") from error
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0)
            known = _TRANSIENT.get(code & 0xFF)
            if known and code != sqlite3.SQLITE_READONLY_DBMOVED:
                kind, words = known
                raise kind(f"{words} {self.path}") from error
            raise Damaged(str(error)) from error

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """For questions that are to be answered from one state of the index."""
        self.execute("BEGIN")
        try:
            yield
        finally:
            if self._reader.in_transaction:
                self.execute("COMMIT")

    # What is known.

    def places(self) -> dict[str, bytes | None]:
        """Every directory that was looked at, with the digest of a look that found nothing new."""
        rows = self.execute("SELECT directory, digest FROM places")
        return {os.fsdecode(directory): digest for directory, digest in rows}

    def keys(self, directory: str) -> dict[str, Key]:
        """Every file in a directory with its key."""
        sql = f"SELECT path, inode, size, mtime_ns, beside_ns FROM files WHERE {_INSIDE}"
        rows = self.execute(sql, _inside(os.fsencode(directory)))
        return {os.fsdecode(row[0]): Key._make(row[1:]) for row in rows}

    def key(self, path: str) -> Key | None:
        sql = "SELECT inode, size, mtime_ns, beside_ns FROM files WHERE path = ?"
        row = self.execute(sql, (os.fsencode(path),)).fetchone()
        return row and Key._make(row)

    def version(self) -> int:
        """Another one after each change, by whomever, for as long as it is open."""
        (version,) = self.execute("PRAGMA data_version").fetchone()
        return int(version)

    def texts(self) -> int:
        """How many texts there are."""
        return self._meta("texts")

    def is_whole(self) -> bool:
        """Whether every file was in it once."""
        return bool(self._meta("whole"))

    def change(self) -> int:
        """The number of the last change."""
        return self._meta("change")

    def _meta(self, name: str) -> int:
        (value,) = self.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return int(value)

    def find(self, id: str) -> tuple[str, Key, Session] | None:
        """The file that is shown for a session, and the session."""
        sql = "SELECT path, inode, size, mtime_ns, beside_ns, row FROM files WHERE id = ? AND shown"
        row = self.execute(sql, (id,)).fetchone()
        return row and (os.fsdecode(row[0]), Key._make(row[1:5]), decode(row[5]))

    def state(self, path: str) -> bytes | None:
        """What reading on needs."""
        sql = "SELECT state FROM files WHERE path = ?"
        row = self.execute(sql, (os.fsencode(path),)).fetchone()
        return row and bytes(row[0])

    def change_point(self) -> ChangePoint:
        change = self.change()
        return ChangePoint(change + 1, change + 1)

    def changed(self, mark: ChangePoint) -> list[str]:
        """The sessions that changed since a moment, and those that went."""
        sql = "SELECT id FROM files WHERE change >= ? UNION SELECT id FROM gone WHERE change >= ?"
        return [id for (id,) in self.execute(sql, (mark.low, mark.low))]

    def overlaid(self) -> dict[str, Mapping[str, Any]]:
        rows = self.execute("SELECT id, patch FROM overlay")
        return {id: msgspec.json.decode(patch) for id, patch in rows}

    # Changing it.

    def agree(self, looks: Mapping[str, bytes | None], change: int) -> None:
        """Note the digests of looks that found what was known at a change; None for none at all.

        That only spares work, so it is left out when somebody else writes, or nobody may.
        """
        spared = suppress(sqlite3.OperationalError)
        with self._lock, self.damage(), spared, self._alone() as writer:
            (now,) = writer.execute("SELECT value FROM meta WHERE name = 'change'").fetchone()
            if now != change:
                return
            for place, digest in looks.items():
                directory = os.fsencode(place)
                if digest is None:
                    writer.execute("DELETE FROM places WHERE directory = ?", (directory,))
                else:
                    sql = "INSERT OR REPLACE INTO places VALUES (?, ?)"
                    writer.execute(sql, (directory, digest))

    @contextmanager
    def _alone(self) -> Iterator[sqlite3.Connection]:
        """The writer in a transaction that does not wait for another one's to end."""
        writer = self._opened_writer()
        writer.execute("PRAGMA busy_timeout = 0")
        try:
            writer.execute("BEGIN IMMEDIATE")
            yield writer
        finally:
            if writer.in_transaction:
                writer.execute("COMMIT")
            writer.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")

    @contextmanager
    def writing(self) -> Iterator[Writing]:
        """One change, whole or not at all."""
        with self._lock, self.damage():
            writer = self._opened_writer()
            writer.execute("BEGIN IMMEDIATE")
            from .writer import Writing  # which most questions do without

            try:
                writing = Writing(writer)
                yield writing
                writing.settle()
                writer.execute("COMMIT")
            except BaseException:
                if writer.in_transaction:
                    writer.execute("ROLLBACK")
                raise

    def _opened_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            self._writer = _open(self.path)
            if not self.is_there():
                raise Damaged("what is written to is no more what is read")
        return self._writer


def _unlink(path: Path) -> None:
    # The log first: left alone, it would be taken for that of the new file.
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
            _make(connection, path, version)
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


def _make(connection: sqlite3.Connection, path: Path, version: int) -> None:
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if version or tables:
        raise sqlite3.DatabaseError("another format")
    os.chmod(path, 0o600)
    connection.execute("PRAGMA page_size = 16384")  # texts are long, and most of what is written
    enable_wal(connection, BUSY_SECONDS)
    connection.execute("BEGIN IMMEDIATE")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != FORMAT:  # or another process was quicker
            for statement in _SCHEMA.split(";\n"):
                connection.execute(statement)
            connection.execute("UPDATE meta SET value = ? WHERE name = 'change'", (clock.now(),))
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


_INSIDE = "path > ? AND path < ?"


def _inside(directory: bytes) -> tuple[bytes, bytes]:
    """The bounds of the paths in a directory."""
    above = directory + os.sep.encode()
    return above, above[:-1] + bytes([above[-1] + 1])


decode: codec.Decoder[Session] = codec.Decoder(Session)
