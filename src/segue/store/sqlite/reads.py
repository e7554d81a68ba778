"""The store's reads, each a few index look-ups on a read-only connection.

They run in the calling thread: short enough for an event loop, and usable without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from segue.model import codec, search_text
from segue.model.cursor import ChangePoint
from segue.model.event import Delta, Event
from segue.model.principal import ApiKey
from segue.model.query import EventWindow, Position, Query, SearchHit, WindowOptions
from segue.model.record import Record
from segue.model.search_text import Term
from segue.model.session import Checkpoint, Session, SessionState, decode_session, decode_sessions
from segue.store import query_sql, rows
from segue.store.base import (
    MAX_SEQ,
    InboxItem,
    Lease,
    Usage,
    not_found,
    seq_range,
)
from segue.store.query_sql import Condition, PageSpec

from .connection import connect, translated
from .text_search import EVENTS, ROW, TextSearch, as_event, build

if TYPE_CHECKING:
    from segue.model.webhooks.delivery import Delivery

_last = itemgetter(-1)
# What the seq of a session's event is added to.
_FIRST_KEY = "SELECT pk << 24 FROM sessions WHERE workspace = ? AND id = ?"


class Reader:
    """A read-only connection to a store, with a method for each read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with translated(path):
            self._connection = connect(path, writable=False)
        self.execute = self._connection.execute
        self._cursor_key: bytes | None = None
        self.search = TextSearch(path)
        self.newest_matches = self.search.newest_matches
        self.known_words = self.search.known_words

    def close(self) -> None:
        self._connection.close()
        self.search.index.close()

    def cursor_key(self) -> bytes:
        if self._cursor_key is None:  # it never changes, and every page needs it
            sql = "SELECT value FROM meta WHERE name = 'cursor_key'"
            self._cursor_key = bytes(self.execute(sql).fetchone()[0])
        return self._cursor_key

    def check(self) -> list[str]:
        messages = [message for (message,) in self.execute("PRAGMA quick_check(20)")]
        problems = [f"{self._path}: {message}" for message in messages if message != "ok"]
        return problems + self.search.index.check()

    # sessions and their history

    def get(self, workspace: str, id: str) -> Session | None:
        sql = f"SELECT {ROW} FROM sessions s WHERE workspace = ? AND id = ?"
        row = self.execute(sql, (workspace, id)).fetchone()
        return decode_session(row[0]) if row else None

    def existing_ids(self, workspace: str, ids: Sequence[str]) -> set[str]:
        sql = "SELECT id FROM sessions WHERE workspace = ?"
        sql += " AND id IN (SELECT value FROM json_each(?))"
        return {id for (id,) in self.execute(sql, (workspace, codec.encode(ids).decode()))}

    def in_id_range(self, workspace: str, low: str, high: str, limit: int) -> list[Session]:
        sql = f"SELECT {ROW} FROM sessions s INDEXED BY sessions_id"
        sql += " WHERE workspace = ? AND id BETWEEN ? AND ? ORDER BY id LIMIT ?"
        return [decode_session(row) for (row,) in self.execute(sql, (workspace, low, high, limit))]

    def directories(self, workspace: str) -> set[str]:
        # Jump from one directory to the next along the index, however many sessions each has.
        sql = f"SELECT cwd, {ROW} FROM sessions s INDEXED BY sessions_cwd_active"
        sql += " WHERE workspace = ? AND state = ? AND cwd > ? ORDER BY cwd LIMIT 1"
        directories = set()
        for state in (query_sql.STATE_CODES["active"], query_sql.STATE_CODES["archived"]):
            key = b""
            while row := self.execute(sql, (workspace, state, key)).fetchone():
                key = row[0]
                directories.add(decode_session(row[1]).directory)
        return directories

    def pk(self, workspace: str, id: str) -> int:
        sql = "SELECT pk FROM sessions WHERE workspace = ? AND id = ?"
        row = self.execute(sql, (workspace, id)).fetchone()
        if row is None:
            raise not_found(id)
        return int(row[0])

    def events(
        self,
        workspace: str,
        id: str,
        **window: Unpack[WindowOptions],
    ) -> list[Event]:
        selection = EventWindow(**window)
        low, high = seq_range(selection)
        where = f"key > ({_FIRST_KEY}) + ? AND key <= ({_FIRST_KEY}) + ?"
        args: list[Any] = [workspace, id, low, workspace, id, high]
        if selection.types:
            where += f" AND type IN ({', '.join('?' * len(selection.types))})"
            args += selection.types
        if selection.since is not None:
            where, args = f"{where} AND at >= ?", [*args, selection.since]
        if selection.until is not None:
            where, args = f"{where} AND at <= ?", [*args, selection.until]
        sql = f"{EVENTS} WHERE {where}"
        sql += f" ORDER BY key {'DESC' if selection.backward else 'ASC'} LIMIT ?"
        events = [as_event(row) for row in self.execute(sql, (*args, selection.limit))]
        if not events:
            self.pk(workspace, id)  # raises NotFound
        return events[::-1] if selection.backward else events

    def locate(self, workspace: str, id: str, event_id: str) -> int | None:
        sql = "SELECT key FROM events WHERE key >> 24 = ? AND id = ?"
        row = self.execute(sql, (self.pk(workspace, id), event_id)).fetchone()
        return row[0] & MAX_SEQ if row else None

    def checkpoint(self, workspace: str, id: str) -> Checkpoint | None:
        sql = f"{rows.CHECKPOINTS} WHERE session = "
        sql += "(SELECT pk FROM sessions WHERE workspace = ? AND id = ?)"
        row = self.execute(sql, (workspace, id)).fetchone()
        return rows.decode_checkpoint(row) if row else None

    # lists

    def page(
        self, workspace: str, query: Query, after: Position | None = None, *, backward: bool = False
    ) -> list[Session]:
        terms = search_text.terms(query.text) if query.text is not None else []
        ranges = query_sql.index_ranges(
            query, lambda state, filters: self._choose_driver(workspace, state, filters)
        )
        if not ranges or (query.text is not None and not terms):
            return []
        spec = PageSpec(
            workspace, query, after, backward, query.limit, select=ROW, sort_columns=False
        )
        if terms:
            sessions = self.search.page(ranges, spec, terms)
        else:
            # All at once: stepping a cursor row by row costs more than the rows.
            page = self.execute(*build.page(ranges, spec)).fetchall()
            sessions = decode_sessions(list(map(_last, page)))
        return sessions[::-1] if backward else sessions

    def change_point(self, workspace: str) -> ChangePoint:
        (change,) = self.execute("SELECT value FROM meta WHERE name = 'change'").fetchone()
        return ChangePoint(change + 1, change + 1)

    def sweep(self, workspace: str, query: Query, since: ChangePoint, after: str) -> list[Session]:
        # Costs the rows that changed since the first page, which are few.
        checks = query_sql.row_checks(query)
        terms = search_text.terms(query.text) if query.text is not None else None
        if not checks or terms == []:
            return []
        changed = "s.pk IN (SELECT pk FROM sessions WHERE change >= ? AND born < ? AND id > ?)"
        candidates = Condition(changed, [since.low, since.high, after])
        spec = PageSpec(workspace, query, select=f"{ROW}, s.pk", candidates=candidates)
        statement = build.page(checks, spec)
        changed_rows = sorted((id, pk, row) for _, id, row, pk in self.execute(*statement))
        matching = self.search.containing({pk for _, pk, _ in changed_rows}, terms or ())
        return [decode_session(row) for _, pk, row in changed_rows if pk in matching][: query.limit]

    def _choose_driver(self, workspace: str, state: int, filters: query_sql.Filters) -> str:
        """Return the most selective filter, by counting ever further along each index."""
        for bound in (100, 2_000, 40_000):
            counts = {
                name: self._count(workspace, state, name, filters[name], bound) for name in filters
            }
            name = min(counts, key=counts.__getitem__)
            if counts[name] < bound:
                return name
        return next(name for name in query_sql.DRIVERS if name in filters)

    def _count(
        self, workspace: str, state: int, name: str, options: Sequence[query_sql.Values], bound: int
    ) -> int:
        table, index = (
            ("links", "links_active")
            if name == "memory"
            else ("sessions", f"sessions_{name}_active")
        )
        tests = " AND ".join(f"{column} = ?" for column in query_sql.COLUMNS[name])
        sql = f"SELECT count(*) FROM (SELECT 1 FROM {table} INDEXED BY {index}"
        sql += f" WHERE workspace = ? AND state = ? AND {tests} LIMIT ?)"
        total = 0
        for values in options:
            total += self.execute(sql, (workspace, state, *values, bound)).fetchone()[0]
            if total >= bound:
                break
        return total

    def ranked(self, workspace: str, query: Query) -> list[SearchHit]:
        terms = search_text.terms(query.text or "")
        if not terms or not query_sql.row_checks(query):
            return []
        return self.search.ranked(workspace, query, terms)

    def occurrences(
        self, workspace: str, id: str, terms: Sequence[Term], before: int | None, limit: int
    ) -> list[int]:
        sql = "SELECT pk FROM sessions WHERE workspace = ? AND id = ?"
        row = self.execute(sql, (workspace, id)).fetchone()
        if row is None or not terms:
            return []
        last_seq = MAX_SEQ if before is None else max(0, before - 1)
        return self.search.occurrences(row[0], terms, last_seq)[:limit]

    def stale(self, workspace: str, state: SessionState, before: int, limit: int) -> list[Session]:
        column, index = (
            ("active_at", "active") if state == "active" else ("inactive_since", "inactive")
        )
        sql = f"SELECT {ROW} FROM sessions s INDEXED BY sessions_{index}"
        sql += f" WHERE workspace = ? AND state = ? AND {column} < ? ORDER BY {column} LIMIT ?"
        args = (workspace, query_sql.STATE_CODES[state], before, limit)
        return [decode_session(row) for (row,) in self.execute(sql, args)]

    # turns

    def lease_of(self, workspace: str, id: str) -> Lease | None:
        sql = f"{rows.LEASES} AND s.workspace = ? AND s.id = ?"
        return next(map(rows.decode_lease, self.execute(sql, (workspace, id))), None)

    def leases(self) -> list[Lease]:
        return [rows.decode_lease(row) for row in self.execute(rows.LEASES)]

    def inbox(self, workspace: str, id: str) -> list[InboxItem]:
        sql = f"{rows.INBOX_ITEMS} WHERE session = ? ORDER BY number"
        items = self.execute(sql, (self.pk(workspace, id),))
        return [rows.decode_inbox_item(id, row) for row in items]

    def waiting(self) -> list[tuple[str, str]]:
        return self.execute(rows.WAITING).fetchall()

    def deltas(self, workspace: str, id: str) -> list[Delta]:
        sql = f"{rows.DELTAS} WHERE session = ? ORDER BY number"
        deltas = self.execute(sql, (self.pk(workspace, id),))
        return [rows.decode_delta(id, row) for row in deltas]

    def new_deltas(self, workspace: str, id: str, after: int) -> tuple[list[Delta], int]:
        sql = f"{rows.DELTAS} WHERE session = ? AND number > ? ORDER BY number"
        new_rows = self.execute(sql, (self.pk(workspace, id), after)).fetchall()
        last = new_rows[-1][0] if new_rows else after
        return [rows.decode_delta(id, row) for row in new_rows], last

    def acked_seq(self, workspace: str, id: str) -> int:
        sql = "SELECT acked_seq FROM sessions WHERE workspace = ? AND id = ?"
        row = self.execute(sql, (workspace, id)).fetchone()
        if row is None:
            raise not_found(id)
        return int(row[0])

    # rows that belong to no session

    def find_key(self, digest: bytes) -> ApiKey | None:
        row = self.execute("SELECT row FROM keys WHERE digest = ?", (digest,)).fetchone()
        return rows.decode_key(row[0]) if row else None

    def keys(self, workspace: str | None = None) -> list[ApiKey]:
        sql = "SELECT row FROM keys WHERE ? IS NULL OR workspace = ? ORDER BY id"
        return [rows.decode_key(row) for (row,) in self.execute(sql, (workspace, workspace))]

    def get_record(
        self, workspace: str, kind: str, id: str, version: int | None = None
    ) -> Record | None:
        sql = "SELECT row FROM records WHERE workspace = ? AND kind = ? AND id = ?"
        args: list[Any] = [workspace, kind, id]
        if version is not None:
            sql, args = f"{sql} AND version = ?", [*args, version]
        row = self.execute(f"{sql} ORDER BY version DESC LIMIT 1", args).fetchone()
        return rows.decode_record(row[0]) if row else None

    def records(
        self,
        workspace: str,
        kind: str,
        *,
        after: Position | None = None,
        archived: bool = False,
        limit: int = 50,
    ) -> list[Record]:
        arms, args = [], []
        for state in (0, 1) if archived else (0,):
            sql = "SELECT created_at, id, row FROM records INDEXED BY records_newest"
            sql += " WHERE newest = 1 AND workspace = ? AND kind = ? AND archived = ?"
            args += [workspace, kind, state]
            if after is not None:
                sql, args = f"{sql} AND (created_at, id) < (?, ?)", [*args, *after]
            arms.append(sql)
        sql = " UNION ALL ".join(arms) + " ORDER BY 1 DESC, 2 DESC LIMIT ?"
        return [rows.decode_record(row) for _, _, row in self.execute(sql, [*args, limit])]

    def part(self, workspace: str, file: str, number: int) -> bytes | None:
        sql = "SELECT data FROM parts WHERE workspace = ? AND file = ? AND number = ?"
        row = self.execute(sql, (workspace, file, number)).fetchone()
        return row[0] if row else None

    def usage(self, workspace: str) -> Usage:
        sql = "SELECT sessions, files, bytes, schedules FROM usage WHERE workspace = ?"
        sessions, files, size, schedules = self.execute(sql, (workspace,)).fetchone() or (0,) * 4
        (turns,) = self.execute(rows.TURNS.format("?"), (workspace, workspace)).fetchone()
        return Usage(sessions, files, size, schedules, turns)

    def overlays(self, workspace: str, source: str) -> dict[str, dict[str, Any]]:
        sql = "SELECT id, patch FROM overlays WHERE workspace = ? AND source = ?"
        return {id: rows.decode_any(patch) for id, patch in self.execute(sql, (workspace, source))}

    def settings(self, workspace: str) -> dict[str, Any]:
        sql = "SELECT name, value FROM settings WHERE workspace = ?"
        return {name: rows.decode_any(value) for name, value in self.execute(sql, (workspace,))}

    # webhooks

    def next_delivery(self) -> int | None:
        sql = "SELECT due_at FROM deliveries INDEXED BY deliveries_due"
        sql += " WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1"
        row = self.execute(sql).fetchone()
        return row[0] if row else None

    def deliveries(
        self, workspace: str, webhook: str, *, before: int | None = None, limit: int = 50
    ) -> list[Delivery]:
        from segue.model.webhooks.delivery import decode_delivery  # late: lists do not need it

        sql = f"{rows.DELIVERIES} WHERE workspace = ? AND webhook = ? AND number < ?"
        sql += " ORDER BY number DESC LIMIT ?"
        args = (workspace, webhook, (1 << 63) - 1 if before is None else before, limit)
        return [decode_delivery(*row) for row in self.execute(sql, args)]
