"""Write a source's index: files, their texts and the sessions that are shown."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import msgspec

from segue import fts5
from segue.model import codec, search_text
from segue.model.event import ForkPoint
from segue.model.session import Session, decode_session

from .database import MAX_TEXTS, ROW_TEXT_NUMBER, STATES, FileKey, Index, IndexedFile, IndexedText

MIN_DEFERRED_BYTES = 1 << 20  # of sessions that a new index gets at once
TEXTS_PER_BATCH = 256
FILES_PER_BATCH = 1000  # made searchable in one transaction
MAX_REMOVED_CHANGES = 10_000  # for which removed sessions are remembered


@contextmanager
def write_index(index: Index, *, defer_search: bool = False) -> Iterator[IndexWriter]:
    """Write one change of the index atomically.

    With `defer_search`, the texts of a new index are put into the full-text index before the first
    search.
    """
    with index.transaction() as connection:
        writer = IndexWriter(connection, defer_search=defer_search)
        yield writer
        writer.finish()


class IndexWriter:
    """One transaction that changes the index."""

    def __init__(self, connection: sqlite3.Connection, *, defer_search: bool = False) -> None:
        self._execute = connection.execute
        self._executemany = connection.executemany
        self._changed_ids: set[str] = set()
        self._changed_paths: set[str] = set()
        self._added_texts = 0
        self._was_complete = bool(self._meta("complete"))
        self._defers_search = defer_search and not self._was_complete

    def state(self, path: str) -> tuple[FileKey, bytes] | None:
        """Return the key and parser state of a file as of now."""
        columns = "inode, size, mtime_ns, sidecar_mtime_ns, parser_state"
        sql = f"SELECT {columns} FROM files WHERE path = ?"
        row = self._execute(sql, (os.fsencode(path),)).fetchone()
        return row and (FileKey._make(row[:4]), row[4])

    def put(
        self,
        path: str,
        id: str,
        texts: Iterable[IndexedText],
        get_row: Callable[[], IndexedFile],
        *,
        extends: bool,
    ) -> None:
        """Write a file's texts, then its row, which `get_row` returns after the last text.

        With `extends`, the texts are added to those in the index. If reading a text or the row
        raises, nothing of the file is written.
        """
        if isinstance(texts, list):
            self._put(path, id, texts, get_row, extends=extends)
        else:
            # The texts are still to be parsed, which may fail. SQLite flushes the full-text index
            # at each savepoint, so only long files have one.
            self._execute("SAVEPOINT file")
            try:
                self._put(path, id, texts, get_row, extends=extends)
            except BaseException:
                self._execute("ROLLBACK TO file")
                raise
            finally:
                self._execute("RELEASE file")
        self._add_changed(path, id)

    def _add_changed(self, path: str, id: str) -> None:
        self._changed_ids.add(id)
        self._changed_paths.add(path)

    def _put(
        self,
        path: str,
        id: str,
        texts: Iterable[IndexedText],
        get_row: Callable[[], IndexedFile],
        *,
        extends: bool,
    ) -> None:
        # Of parsed texts the row is known, and an error in it shows before anything is written.
        columns = _columns(get_row()) if isinstance(texts, list) else None
        pk, old_count, searchable, old_id = self._row(path) or self._insert(path, id)
        if old_id != id:  # the file did not have the session's id when it was read before
            self._execute("UPDATE files SET id = ? WHERE pk = ?", (id, pk))
            self._changed_ids.add(old_id)
        kept = old_count if extends else 0
        if old_count > kept:
            self._remove_texts(pk, old_count, searchable)
            searchable = 0
        count = self._add_texts(pk, kept, texts)
        if not self._defers_search and searchable == kept:  # else the next search adds the texts
            self._make_searchable(pk, searchable, count)
            searchable = count
        self._execute(
            "UPDATE files SET inode = ?, size = ?, mtime_ns = ?, sidecar_mtime_ns = ?, next = ?,"
            " parser_state = ?, base = ?, open_since = ?, problem = ?, texts = ?, searchable = ?"
            " WHERE pk = ?",
            (*(columns or _columns(get_row())), count, searchable, pk),
        )
        self._added_texts += count - old_count

    def _row(self, path: str) -> tuple[int, int, int, str] | None:
        """Return a file's key, its number of texts, how many are searchable, and its session id."""
        sql = "SELECT pk, texts, searchable, id FROM files WHERE path = ?"
        row: tuple[int, int, int, str] | None = self._execute(sql, (os.fsencode(path),)).fetchone()
        return row

    def _insert(self, path: str, id: str) -> tuple[int, int, int, str]:
        sql = "SELECT min(born) FROM files WHERE id = ?"
        (born,) = self._execute(sql, (id,)).fetchone()
        # A statement that may be rolled back alone makes SQLite flush the full-text index. With OR
        # FAIL the whole transaction fails instead.
        sql = (
            "INSERT OR FAIL INTO files (path, inode, size, mtime_ns, sidecar_mtime_ns, id,"
            " parser_state, texts, change, born) VALUES (?, 0, 0, 0, 0, ?, x'', 0, 0, ?)"
        )
        if born is None:
            born = self._next_change() if self._was_complete else 0
        pk = self._execute(sql, (os.fsencode(path), id, born)).lastrowid
        assert pk is not None
        return pk, 0, 0, id

    def _add_texts(self, pk: int, count: int, texts: Iterable[IndexedText]) -> int:
        """Add texts to a file that has `count` of them, and return the new count."""
        first_key = pk << 24 | count
        batch: list[IndexedText] = []
        for text in texts:
            if count == MAX_TEXTS:
                break  # further texts are not searchable
            batch.append(text)
            count += 1
            if len(batch) == TEXTS_PER_BATCH:
                first_key = self._add_batch(first_key, batch)
                batch = []
        self._add_batch(first_key, batch)
        return count

    def _add_batch(self, first_key: int, batch: Sequence[IndexedText]) -> int:
        rows = [(first_key + number, text.seq, text.data) for number, text in enumerate(batch)]
        self._executemany("INSERT INTO texts VALUES (?, ?, ?)", rows)
        return first_key + len(batch)

    def _make_searchable(self, pk: int, start: int, end: int) -> None:
        """Put the texts with these numbers into the full-text index."""
        with closing(self._tokens(pk, start, end)) as tokens:
            self._executemany(fts5.INSERT, tokens)

    def make_searchable(self, max_bytes: int) -> int:
        """Put deferred texts into the full-text index, of files of about so many bytes.

        Return the bytes of the files; 0 if no texts are left.
        """
        sql = (
            "SELECT pk, searchable, texts, size FROM files INDEXED BY files_unsearchable"
            " WHERE searchable < texts ORDER BY pk LIMIT ?"
        )
        done_bytes, files = 0, list[tuple[int]]()
        for pk, start, end, size in self._execute(sql, (FILES_PER_BATCH,)).fetchall():
            self._make_searchable(pk, start, end)
            files.append((pk,))
            done_bytes += max(size, 1)
            if done_bytes >= max_bytes:
                break
        self._executemany("UPDATE files SET searchable = texts WHERE pk = ?", files)
        return done_bytes

    def _tokens(self, pk: int, start: int, end: int) -> Generator[tuple[int, str], None, None]:
        """Return the keys and tokens of a file's texts with these numbers."""
        sql = "SELECT key, text FROM texts WHERE key >= ? AND key < ?"
        for key, data in self._execute(sql, (pk << 24 | start, (pk << 24) + end)):
            yield key, fts5.index_tokens(data.decode("utf-8", "surrogatepass"))

    def remove(self, path: str) -> None:
        """Remove a file and its texts."""
        if row := self._row(path):
            self._execute("PRAGMA secure_delete = ON")
            pk, count, searchable, id = row
            self._remove_texts(pk, count, searchable)
            self._set_row_text(pk, None)
            self._execute("DELETE FROM files WHERE pk = ?", (pk,))
            self._added_texts -= count
            self._add_changed(path, id)

    def _remove_texts(self, pk: int, count: int, searchable: int) -> None:
        self._executemany(fts5.DELETE, list(self._tokens(pk, 0, searchable)))
        bounds = (pk << 24, (pk << 24) + count)
        self._execute("DELETE FROM texts WHERE key >= ? AND key < ?", bounds)

    def set_overlay(self, patches: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace the overlay by these patches."""
        rows = self._execute("SELECT id, patch FROM overlay")
        current = {id: bytes(patch) for id, patch in rows}
        encoded_patches = {id: codec.encode(patch) for id, patch in patches.items() if patch}
        ids = current.keys() | encoded_patches.keys()
        changed = {id for id in ids if current.get(id) != encoded_patches.get(id)}
        self._executemany("DELETE FROM overlay WHERE id = ?", [(id,) for id in changed])
        new_rows = [(id, encoded_patches[id]) for id in changed if id in encoded_patches]
        self._executemany("INSERT INTO overlay VALUES (?, ?)", new_rows)
        self._changed_ids |= changed

    def finish(self) -> None:
        """Choose the files that are shown for the changed sessions, and count the change."""
        if not self._changed_ids:
            return
        for path in self._changed_paths:
            sql = "SELECT id FROM files WHERE next = ?"
            continued = self._execute(sql, (os.fsencode(path),))
            self._changed_ids.update(id for (id,) in continued)
        change = self._next_change()
        for id in sorted(self._changed_ids):
            self._choose_shown(id, change)
        for directory in {os.fsencode(os.path.dirname(path)) for path in self._changed_paths}:
            self._execute("INSERT OR REPLACE INTO directories VALUES (?, NULL)", (directory,))
        self._execute("UPDATE meta SET value = ? WHERE name = 'change'", (change,))
        self._execute(
            "UPDATE meta SET value = value + ? WHERE name = 'texts'", (self._added_texts,)
        )
        # Watchers have read older rows long ago.
        self._execute("DELETE FROM removed WHERE change < ?", (change - MAX_REMOVED_CHANGES,))

    def mark_complete(self) -> None:
        """Record that every file has been indexed."""
        if not self._was_complete:
            self._execute("UPDATE meta SET value = 1 WHERE name = 'complete'")

    def _next_change(self) -> int:
        return self._meta("change") + 1

    def _meta(self, name: str) -> int:
        (value,) = self._execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return int(value)

    def _choose_shown(self, id: str, change: int) -> None:
        """Choose which file is shown for a session, and write its row."""
        sql = "SELECT pk, path, base FROM files WHERE id = ? ORDER BY mtime_ns DESC, pk DESC"
        rows = self._execute(sql, (id,)).fetchall()
        if not rows:
            self._execute("INSERT INTO removed VALUES (?, ?)", (change, id))
            return
        patch = self._execute("SELECT patch FROM overlay WHERE id = ?", (id,)).fetchone()
        listed = [
            (pk, decode_session(base))
            for pk, path, base in rows
            if base is not None and not self._is_continued(path)
        ]
        # A file in a project goes before a file in the trash.
        listed.sort(key=lambda item: item[1].deleted_at is not None)
        self._execute("UPDATE files SET shown = 0, change = ? WHERE id = ?", (change, id))
        # A session that is newer than this index is in no list that began with the index before.
        if (
            not self._was_complete
            and listed
            and min(session.created_at for _, session in listed) > change
        ):
            self._execute("UPDATE files SET born = ? WHERE id = ?", (change, id))
        if listed:
            pk, session = listed[0]
            if patch is not None:
                session = _apply_patch(session, msgspec.json.decode(patch[0]))
            self._show(pk, session)

    def _show(self, pk: int, session: Session) -> None:
        self._execute(
            "UPDATE files SET shown = 1, row = ?, state = ?, cwd = ?, tag = ?, created_at = ?,"
            " active_at = ? WHERE pk = ?",
            (
                codec.encode(session),
                STATES[session.state],
                codec.key(session.directory),
                None if session.tag is None else codec.key(session.tag),
                session.created_at,
                session.active_at,
                pk,
            ),
        )

        self._set_row_text(pk, search_text.searchable_row(session))

    def _set_row_text(self, pk: int, text: str | None) -> None:
        """Replace the searchable text of a session's row. Its words are never deferred."""
        key = pk << 24 | ROW_TEXT_NUMBER
        row = self._execute("SELECT text FROM texts WHERE key = ?", (key,)).fetchone()
        before = None if row is None else row[0].decode("utf-8", "surrogatepass")
        if before == text:
            return
        if before is not None:
            self._execute(fts5.DELETE, (key, fts5.index_tokens(before)))
            self._execute("DELETE FROM texts WHERE key = ?", (key,))
        if text is not None:
            data = text.encode("utf-8", "surrogatepass")
            self._execute("INSERT INTO texts VALUES (?, 0, ?)", (key, data))
            self._execute(fts5.INSERT, (key, fts5.index_tokens(text)))

    def _is_continued(self, path: bytes) -> bool:
        """Return whether another file continues the session, without a cycle back to this one."""
        seen = {path}
        while True:
            row = self._execute("SELECT next FROM files WHERE path = ?", (path,)).fetchone()
            if row is None or row[0] is None:
                # The last file may be missing; then the one before it is the end.
                return len(seen) > (1 if row is not None else 2)
            path = row[0]
            if path in seen:
                return False
            seen.add(path)


def _columns(file: IndexedFile) -> tuple[Any, ...]:
    row = None if file.session is None else codec.encode(file.session)
    next_path = None if file.next is None else os.fsencode(file.next)
    return (*file.key, next_path, file.state, row, file.open_since, file.problem)


def _apply_patch(session: Session, patch: Mapping[str, Any]) -> Session:
    fields = ("title", "tag", "archived_at", "deleted_at")
    changes = {name: patch[name] for name in fields if name in patch}
    if "title" in changes:
        changes["title_by"] = "person"
    if "fork" in patch:  # of a session that segue wrote
        fork = msgspec.convert(patch["fork"], ForkPoint)
        session = session.as_copy(fork, patch["fork"].get("made_at", 0))
    return msgspec.structs.replace(session, **changes)
