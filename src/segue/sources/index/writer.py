"""Changing a source's index: files and their texts, and what is shown of them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from segue.model import codec, search_text
from segue.model.session import Session

from .database import MOST, SHELVES, Item, Key, Text, decode

_LETTERS = bytes(ord("a") if chr(code).isalnum() else 0 for code in range(256))
_LONG_WORD = b"a" * (search_text.MAX_TOKEN_CHARS + 1)


class Writing:
    """A change of the index that is under way."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute
        self._executemany = connection.executemany
        self._touched: set[str] = set()  # ids
        self._paths: set[str] = set()
        self._grown = 0  # by so many texts
        self._whole = bool(self._meta("whole"))  # before this change

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
        # Where it is known already, whatever is wrong with it shows before anything is written.
        known = _columns(made()) if isinstance(texts, list) else None
        pk, before, _ = self._row(path) or self._insert(path, id)
        if before and not more:
            self._forget(pk, before)
        count = self._texts(pk, before if more else 0, texts)
        self._execute(
            "UPDATE files SET inode = ?, size = ?, mtime_ns = ?, beside_ns = ?, next = ?,"
            " state = ?, base = ?, texts = ? WHERE pk = ?",
            (*(known or _columns(made())), count, pk),
        )
        self._grown += count - before

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
            born = self._next() if self._whole else 0
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
            self._grown -= count
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
        self._execute("UPDATE meta SET value = value + ? WHERE name = 'texts'", (self._grown,))
        # Whoever watches has long heard of these.
        self._execute("DELETE FROM gone WHERE change < ?", (change - 10_000,))

    def complete(self) -> None:
        """Every file is in it."""
        if not self._whole:
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
        # Begun after this index was: no list that began with the one before it can have shown it.
        if not self._whole and listed and min(one.created_at for _, one in listed) > change:
            self._execute("UPDATE files SET born = ? WHERE id = ?", (change, id))
        if listed:
            pk, session = listed[0]
            if patch is not None:
                session = _patched(session, msgspec.json.decode(patch[0]))
            self._execute(
                "UPDATE files SET shown = 1, row = ?, shelf = ?, cwd = ?, tag = ?, created_at = ?,"
                " active_at = ? WHERE pk = ?",
                (
                    codec.encode(session),
                    SHELVES[session.state],
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


def _columns(item: Item) -> tuple[Any, ...]:
    row = None if item.session is None else codec.encode(item.session)
    onward = None if item.next is None else os.fsencode(item.next)
    return (*item.key, onward, item.state, row)


def tokens(words: str) -> str:
    """A text such that FTS5 finds the tokens in it that we do: ASCII it cuts up as we would."""
    plain = words.isascii() and "\0" not in words
    # Long words are cut off, which FTS5 would not do; to look for them by a pattern is slower.
    if plain and _LONG_WORD not in words.encode().translate(_LETTERS):
        return words
    return " ".join(search_text.tokens(words))


def _patched(session: Session, patch: Mapping[str, Any]) -> Session:
    fields = ("title", "tag", "archived_at", "deleted_at")
    known = {name: patch[name] for name in fields if name in patch}
    if "title" in known:
        known["title_by"] = "person"
    return msgspec.structs.replace(session, **known)
