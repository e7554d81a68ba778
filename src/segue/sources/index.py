"""A source's index: one small SQLite file, made from the tool's own files and thrown away at will.

It knows every file by its key (inode, size, times), keeps the session that the file comes to and a
copy of its text, and answers lists and searches. Nothing is here that is nowhere else, so whatever
is wrong with it, it is made anew. Several processes may use it at once.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..model import clock, codec, errors, text
from ..model.cursor import Mark
from ..model.session import Session, Shelf

FORMAT = 6  # of this file; one of another format is made anew
MOST = 1 << 24  # texts of one file
BUSY_SECONDS = 60.0
SHELVES: dict[Shelf, int] = {"live": 0, "archived": 1, "trash": 2}

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
INSERT INTO meta VALUES ('change', 0), ('whole', 0);
"""

_LETTERS = bytes(ord("a") if chr(code).isalnum() else 0 for code in range(256))
_LONG_WORD = b"a" * (text.MAX_TOKEN + 1)
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

    def close(self) -> None:
        with self._lock:
            self._reader.close()
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def renew(self) -> None:
        """Throw everything away and begin again."""
        with self._lock:
            self.close()
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
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if known := _TRANSIENT.get(code):
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

    def change(self) -> int:
        """The number of the last change."""
        (change,) = self.execute("SELECT value FROM meta WHERE name = 'change'").fetchone()
        return int(change)

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

    def mark(self) -> Mark:
        change = self.change()
        return Mark(change + 1, change + 1)

    def changed(self, mark: Mark) -> list[str]:
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
        with self._lock, suppress(sqlite3.OperationalError), self._alone() as writer:
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
        writer = self._writer = self._writer or _open(self.path)
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
            if self._writer is None:
                self._writer = _open(self.path)
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                writing = Writing(self._writer)
                yield writing
                writing.settle()
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise


class Writing:
    """A change of the index that is under way."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute
        self._executemany = connection.executemany
        self._touched: set[str] = set()  # ids
        self._paths: set[str] = set()

    def state(self, path: str) -> tuple[Key, bytes] | None:
        """What is known of a file by now: another process may have been quicker."""
        sql = "SELECT inode, size, mtime_ns, beside_ns, state FROM files WHERE path = ?"
        row = self._execute(sql, (os.fsencode(path),)).fetchone()
        return row and (Key._make(row[:4]), row[4])

    def put(
        self, path: str, id: str, texts: Iterable[Text], made: Callable[[], Item], *, more: bool
    ) -> None:
        """Keep a file and its texts, then what both come to.

        `more` texts come to the ones that it has. Nothing of it is kept when either raises.
        """
        if isinstance(texts, list):
            self._put(path, id, texts, made, more)
        else:
            # They are still to be read, and may turn out unreadable. At each such point SQLite
            # writes down what it has of the full-text index, so only long files have one.
            self._execute("SAVEPOINT file")
            try:
                self._put(path, id, texts, made, more)
            except BaseException:
                self._execute("ROLLBACK TO file")
                raise
            finally:
                self._execute("RELEASE file")
        self._touch(path, id)

    def _touch(self, path: str, id: str) -> None:
        self._touched.add(id)
        self._paths.add(path)

    def _put(
        self, path: str, id: str, texts: Iterable[Text], made: Callable[[], Item], more: bool
    ) -> None:
        pk, count, _ = self._row(path) or self._insert(path, id)
        if count and not more:
            self._forget(pk, count)
        count = self._texts(pk, count if more else 0, texts)
        item = made()
        row = None if item.session is None else codec.encode(item.session)
        onward = None if item.next is None else os.fsencode(item.next)
        self._execute(
            "UPDATE files SET inode = ?, size = ?, mtime_ns = ?, beside_ns = ?, next = ?,"
            " state = ?, texts = ?, base = ? WHERE pk = ?",
            (*item.key, onward, item.state, count, row, pk),
        )

    def _row(self, path: str) -> tuple[int, int, str] | None:
        sql = "SELECT pk, texts, id FROM files WHERE path = ?"
        found: tuple[int, int, str] | None = self._execute(sql, (os.fsencode(path),)).fetchone()
        return found

    def _insert(self, path: str, id: str) -> tuple[int, int, str]:
        sql = "SELECT min(born) FROM files WHERE id = ?"
        (born,) = self._execute(sql, (id,)).fetchone()
        # A statement that may have to be taken back makes SQLite write down all that it has of
        # the full-text index; this one fails instead, and with it the transaction.
        sql = "INSERT OR FAIL INTO files (path, inode, size, mtime_ns, beside_ns, id, state, texts"
        sql += ", change, born) VALUES (?, 0, 0, 0, 0, ?, x'', 0, 0, ?)"
        if born is None:
            born = self._next() if self._meta("whole") else 0
        args = (os.fsencode(path), id, born)
        pk = self._execute(sql, args).lastrowid
        assert pk is not None
        return pk, 0, id

    def _texts(self, pk: int, count: int, texts: Iterable[Text]) -> int:
        first = pk << 24 | count
        batch: list[Text] = []
        for one in texts:
            if count == MOST:
                break  # what follows is not found by its words
            batch.append(one)
            count += 1
            if len(batch) == 256:
                first = self._keep(first, batch)
                batch = []
        self._keep(first, batch)
        return count

    def _keep(self, first: int, batch: Sequence[Text]) -> int:
        kept = [(first + number, one.seq, one.data) for number, one in enumerate(batch)]
        self._executemany("INSERT INTO texts VALUES (?, ?, ?)", kept)
        words = [(first + number, one.tokens) for number, one in enumerate(batch)]
        self._executemany("INSERT INTO search (rowid, tokens) VALUES (?, ?)", words)
        return first + len(batch)

    def remove(self, path: str) -> None:
        """Forget a file."""
        if found := self._row(path):
            pk, count, id = found
            self._forget(pk, count)
            self._execute("DELETE FROM files WHERE pk = ?", (pk,))
            self._touch(path, id)

    def _forget(self, pk: int, count: int) -> None:
        sql = "SELECT key, text FROM texts WHERE key BETWEEN ? AND ?"
        bounds = (pk << 24, pk << 24 | count)
        rows = [
            (key, tokens(bytes(held).decode("utf-8", "surrogatepass")))
            for key, held in self._execute(sql, bounds)
        ]
        sql = "INSERT INTO search (search, rowid, tokens) VALUES ('delete', ?, ?)"
        self._executemany(sql, rows)
        self._execute("DELETE FROM texts WHERE key BETWEEN ? AND ?", bounds)

    def overlay(self, patches: Mapping[str, Mapping[str, Any]]) -> None:
        """Lay this over the sessions, and nothing else."""
        held = {id: bytes(patch) for id, patch in self._execute("SELECT id, patch FROM overlay")}
        wanted = {id: codec.encode(patch) for id, patch in patches.items() if patch}
        different = {id for id in held.keys() | wanted.keys() if held.get(id) != wanted.get(id)}
        self._executemany("DELETE FROM overlay WHERE id = ?", [(id,) for id in different])
        rows = [(id, wanted[id]) for id in different if id in wanted]
        self._executemany("INSERT INTO overlay VALUES (?, ?)", rows)
        self._touched |= different

    def settle(self) -> None:
        """Decide again what is shown of the sessions that were touched."""
        if not self._touched:
            return
        for path in self._paths:
            sql = "SELECT id FROM files WHERE next = ?"
            before = self._execute(sql, (os.fsencode(path),))
            self._touched.update(id for (id,) in before)
        change = self._next()
        for id in sorted(self._touched):
            self._settle(id, change)
        for place in {os.fsencode(os.path.dirname(path)) for path in self._paths}:
            self._execute("INSERT OR REPLACE INTO places VALUES (?, NULL)", (place,))
        self._execute("UPDATE meta SET value = ? WHERE name = 'change'", (change,))
        # Whoever watches has long heard of these.
        self._execute("DELETE FROM gone WHERE change < ?", (change - 10_000,))

    def complete(self) -> None:
        """Every file is in it."""
        if not self._meta("whole"):
            self._execute("UPDATE meta SET value = 1 WHERE name = 'whole'")

    def _next(self) -> int:
        return self._meta("change") + 1

    def _meta(self, name: str) -> int:
        (value,) = self._execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return int(value)

    def _settle(self, id: str, change: int) -> None:
        sql = "SELECT pk, path, base FROM files WHERE id = ? ORDER BY mtime_ns DESC, pk DESC"
        rows = self._execute(sql, (id,)).fetchall()
        if not rows:
            self._execute("INSERT INTO gone VALUES (?, ?)", (change, id))
            return
        patch = self._execute("SELECT patch FROM overlay WHERE id = ?", (id,)).fetchone()
        listed = [
            (pk, decode(base))
            for pk, path, base in rows
            if base is not None and not self._goes_on(path)
        ]
        # A session that was deleted and is there again is there.
        listed.sort(key=lambda one: one[1].deleted_at is not None)
        self._execute("UPDATE files SET shown = 0, change = ? WHERE id = ?", (change, id))
        if listed:
            pk, session = listed[0]
            if patch is not None:
                session = _patched(session, msgspec.json.decode(patch[0]))
            self._execute(
                "UPDATE files SET shown = 1, row = ?, shelf = ?, cwd = ?, tag = ?, created_at = ?,"
                " active_at = ? WHERE pk = ?",
                (
                    codec.encode(session),
                    SHELVES[session.shelf],
                    codec.key(session.directory),
                    None if session.tag is None else codec.key(session.tag),
                    session.created_at,
                    session.active_at,
                    pk,
                ),
            )

    def _goes_on(self, path: bytes) -> bool:
        """Whether the session goes on in another file that does not lead back here."""
        seen = {path}
        while True:
            row = self._execute("SELECT next FROM files WHERE path = ?", (path,)).fetchone()
            if row is None or row[0] is None:
                # The last of them may be missing; then the one before it is the end.
                return len(seen) > (1 if row is not None else 2)
            path = row[0]
            if path in seen:
                return False
            seen.add(path)


def tokens(words: str) -> str:
    """A text such that FTS5 finds the tokens in it that we do: ASCII it cuts up as we would."""
    plain = words.isascii() and "\0" not in words
    # Long words are cut off, which FTS5 would not do; to look for them by a pattern is slower.
    if plain and _LONG_WORD not in words.encode().translate(_LETTERS):
        return words
    return " ".join(text.tokens(words))


def _unlink(path: Path) -> None:
    # The log first: left alone, it would be taken for that of the new file.
    for suffix in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{suffix}")


def _patched(session: Session, patch: Mapping[str, Any]) -> Session:
    fields = ("title", "tag", "archived_at", "deleted_at")
    known = {name: patch[name] for name in fields if name in patch}
    if "title" in known:
        known["title_by"] = "person"
    return msgspec.structs.replace(session, **known)


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
    connection.execute("PRAGMA journal_mode = WAL")
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
