"""The read operations, each a few index look-ups on a read-only connection.

They are plain functions of the calling thread: short enough to run inline in an event loop, and
usable without one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from segue.model import clock, codec, errors, event, search_text
from segue.model.checkpoint import Checkpoint
from segue.model.cursor import ChangePoint
from segue.model.event import Delta, Event
from segue.model.principal import ApiKey
from segue.model.query import Position, Query, SearchHit
from segue.model.record import Record
from segue.model.search_text import Term
from segue.model.session import Session, SessionState, decode_session
from segue.store import query_sql
from segue.store.base import MAX_SEQ, InboxItem, Lease

from .connection import connect, translated
from .fts_query import Wanted, expression

RARER = 500  # events; a term with no more is looked up whole at once
RARE = 2_000  # events; and one with no more, when the newest sessions do not fill a page
WALK = 4_000  # sessions tried in order for common terms before they too are looked up whole
RANKED = 2_000  # events that a ranked search considers at a time

_AMONG = "IN (SELECT value FROM json_each(?))"

_build = query_sql.Builder(numbered=False, indexed_by=True)
_last = itemgetter(-1)
_decode_sessions = msgspec.json.Decoder(list[Session]).decode
_decode_any: codec.Decoder[Any] = codec.Decoder(Any)
_decode_key: codec.Decoder[ApiKey] = codec.Decoder(ApiKey)
_decode_record: codec.Decoder[Record] = codec.Decoder(Record)


class Reader:
    """A read-only connection to a store, and everything that can be asked of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with translated(path):
            self._connection = connect(path, writable=False)
        self.execute = self._connection.execute
        self._cursor_key: bytes | None = None
        self._last = _Search()

    def close(self) -> None:
        self._connection.close()

    def cursor_key(self) -> bytes:
        if self._cursor_key is None:  # it never changes, and every page needs it
            sql = "SELECT value FROM meta WHERE name = 'cursor_key'"
            self._cursor_key = bytes(self.execute(sql).fetchone()[0])
        return self._cursor_key

    def check(self) -> list[str]:
        found = [message for (message,) in self.execute("PRAGMA quick_check(20)")]
        return [f"{self._path}: {message}" for message in found if message != "ok"]

    # sessions and their history

    def get(self, workspace: str, id: str) -> Session | None:
        sql = "SELECT row FROM sessions WHERE workspace = ? AND id = ?"
        found = self.execute(sql, (workspace, id)).fetchone()
        return decode_session(found[0]) if found else None

    def existing_ids(self, workspace: str, ids: Sequence[str]) -> set[str]:
        sql = "SELECT 1 FROM sessions WHERE workspace = ? AND id = ?"
        return {id for id in ids if self.execute(sql, (workspace, id)).fetchone()}

    def in_id_range(self, workspace: str, low: str, high: str, limit: int) -> list[Session]:
        sql = "SELECT row FROM sessions INDEXED BY sessions_id"
        sql += " WHERE workspace = ? AND id BETWEEN ? AND ? ORDER BY id LIMIT ?"
        return [decode_session(row) for (row,) in self.execute(sql, (workspace, low, high, limit))]

    def directories(self, workspace: str) -> set[str]:
        # From one directory to the next along the index, however many sessions each has.
        sql = "SELECT cwd, row FROM sessions INDEXED BY sessions_cwd_active"
        sql += " WHERE workspace = ? AND state = ? AND cwd > ? ORDER BY cwd LIMIT 1"
        found = set()
        for state in (query_sql.STATE_CODES["active"], query_sql.STATE_CODES["archived"]):
            key = b""
            while row := self.execute(sql, (workspace, state, key)).fetchone():
                key = row[0]
                found.add(decode_session(row[1]).directory)
        return found

    def pk(self, workspace: str, id: str) -> int:
        sql = "SELECT pk FROM sessions WHERE workspace = ? AND id = ?"
        found = self.execute(sql, (workspace, id)).fetchone()
        if found is None:
            raise errors.NotFound(f"no session {id}", session=id)
        return int(found[0])

    def events(
        self,
        workspace: str,
        id: str,
        *,
        after: int = 0,
        before: int | None = None,
        types: Sequence[str] = (),
        since: int | None = None,
        until: int | None = None,
        limit: int = 1000,
        backward: bool = False,
    ) -> list[Event]:
        pk = self.pk(workspace, id)
        low = pk << 24 | min(max(after, 0), MAX_SEQ)
        high = pk << 24 | (MAX_SEQ if before is None else min(max(before - 1, 0), MAX_SEQ))
        where = "key > ? AND key <= ?"
        args: list[Any] = [low, high]
        if types:
            where += f" AND type IN ({', '.join('?' * len(types))})"
            args += types
        if since is not None:
            where, args = f"{where} AND at >= ?", [*args, since]
        if until is not None:
            where, args = f"{where} AND at <= ?", [*args, until]
        sql = f"SELECT key, id, at, version, body FROM events WHERE {where}"
        sql += f" ORDER BY key {'DESC' if backward else 'ASC'} LIMIT ?"
        found = [_event(row) for row in self.execute(sql, (*args, limit))]
        return found[::-1] if backward else found

    def locate(self, workspace: str, id: str, event_id: str) -> int | None:
        sql = "SELECT key FROM events WHERE key >> 24 = ? AND id = ?"
        found = self.execute(sql, (self.pk(workspace, id), event_id)).fetchone()
        return found[0] & MAX_SEQ if found else None

    def checkpoint(self, workspace: str, id: str) -> Checkpoint | None:
        sql = 'SELECT source, path, inode, "offset", tail_hash, seq, extra FROM imports'
        sql += " WHERE session = (SELECT pk FROM sessions WHERE workspace = ? AND id = ?)"
        row = self.execute(sql, (workspace, id)).fetchone()
        if row is None:
            return None
        source, path, inode, offset, tail_hash, seq, extra = row
        return Checkpoint(
            source=source,
            path=path.decode("utf-8", "surrogatepass"),
            inode=int(inode),
            offset=offset,
            tail_hash=tail_hash,
            seq=seq,
            extra=_decode_any(extra),
        )

    # lists

    def page(
        self, workspace: str, query: Query, after: Position | None = None, *, backward: bool = False
    ) -> list[Session]:
        wanted = search_text.terms(query.text) if query.text is not None else []
        arms = query_sql.arms(query, lambda state, wanted: self._choose(workspace, state, wanted))
        if not arms or (query.text is not None and not wanted):
            return []
        if wanted:
            with self._snapshot():
                pks = self._list_text(workspace, query, arms, after, backward, wanted)
                found = self._rows(pks)
            self._last.keep(workspace, found, pks)
        else:
            limit = query.limit
            statement = _build.page(workspace, query, arms, after, backward, limit, spare=True)
            # All at once: stepping a cursor row by row costs more than the rows.
            found = _sessions(list(map(_last, self.execute(*statement).fetchall())))
        return found[::-1] if backward else found

    def change_point(self, workspace: str) -> ChangePoint:
        (change,) = self.execute("SELECT value FROM meta WHERE name = 'change'").fetchone()
        return ChangePoint(change + 1, change + 1)

    def sweep(self, workspace: str, query: Query, mark: ChangePoint, after: str) -> list[Session]:
        # Costs the rows that changed since the first page, of which there are few.
        arms = query_sql.checks(query)
        wanted = search_text.terms(query.text) if query.text is not None else None
        if not arms or wanted == []:
            return []
        since = "s.pk IN (SELECT pk FROM sessions WHERE change >= ? AND born < ? AND id > ?)"
        among = (since, [mark.low, mark.high, after])
        statement = _build.page(
            workspace, query, arms, None, False, None, "s.row, s.pk", among=among
        )
        found = sorted((id, pk, row) for _, id, row, pk in self.execute(*statement))
        kept = {pk for _, pk, _ in found}
        for term in wanted or ():
            kept &= Wanted(self._connection, term).within(kept)
        rows = [row for _, pk, row in found if pk in kept]
        return [decode_session(row) for row in rows[: query.limit]]

    def _choose(self, workspace: str, state: int, wanted: query_sql.Filters) -> str:
        """The most selective filter, by counting ever further along each index."""
        for bound in (100, 2_000, 40_000):
            counts = {
                name: self._count(workspace, state, name, wanted[name], bound) for name in wanted
            }
            name = min(counts, key=counts.__getitem__)
            if counts[name] < bound:
                return name
        return next(name for name in query_sql.DRIVERS if name in wanted)

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

    # text

    def _list_text(
        self,
        workspace: str,
        query: Query,
        arms: Sequence[query_sql.Arm],
        after: Position | None,
        backward: bool,
        terms: Sequence[Term],
    ) -> list[int]:
        """A page of the sessions in which every term occurs.

        Sessions are walked in order and tried, ever more at a time: common terms fill a page soon.
        If the first few do not, rare terms are looked up whole and their sessions sorted; and so
        in the end are terms that are common, but in few of the sessions that are asked for.
        """
        wanted = self._wanted(terms)
        found: list[int] = []
        size, tried = query.limit + query.limit // 4 + 10, 0
        walk = 0 if any(term.rare(RARER) is not None for term in wanted if not term.long) else WALK
        while tried < walk:
            statement = _build.page(workspace, query, arms, after, backward, size, "s.pk")
            rows = self.execute(*statement).fetchall()
            found += _passing([pk for _, _, pk in rows], wanted)
            if len(found) >= query.limit or len(rows) < size:
                return found[: query.limit]
            after = Position(*rows[-1][:2])
            if any(term.rare(RARE) is not None for term in wanted):
                break
            tried += size
            size *= 2
        # A long prefix is looked up whole only if nothing else is rare: that may take longer than
        # to check for it in the sessions of another term.
        quick = [term for term in wanted if not term.long]
        rare = [whole for term in quick if (whole := term.rare(RARE)) is not None]
        if not rare:
            rare = [whole for term in wanted if (whole := term.rare(RARE)) is not None]
        fewest, *others = sorted(rare or [term.everywhere() for term in wanted], key=len)
        among = set(fewest).intersection(*others)
        if among:
            chosen = (f"s.pk {_AMONG}", [str(list(among))])
            checks = query_sql.checks(query)
            limit = query.limit - len(found) if len(wanted) == 1 else None
            statement = _build.page(
                workspace, query, checks, after, backward, limit, "s.pk", among=chosen
            )
            pks = [pk for _, _, pk in self.execute(*statement).fetchall()]
            size = 2 * query.limit
            while pks and len(found) < query.limit:
                found += _passing(pks[:size], wanted)
                pks = pks[size:]
        return found[: query.limit]

    def _wanted(self, terms: Sequence[Term]) -> list[Wanted]:
        """The terms, with what the last search knew of them: its snippets ask for them again.

        To be asked within a snapshot, which the version is then one of.
        """
        (version,) = self.execute("PRAGMA data_version").fetchone()
        if version != self._last.version:
            self._last = _Search(version)
        before = self._last.terms
        known = {term: before.get(term) or Wanted(self._connection, term) for term in terms}
        self._last.terms = known
        return list(known.values())

    def _rows(self, pks: Sequence[int]) -> list[Session]:
        sql = f"SELECT pk, row FROM sessions WHERE pk {_AMONG}"
        rows = dict(self.execute(sql, (str(list(pks)),)).fetchall())
        return _sessions([rows[pk] for pk in pks])

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """One state of the store for several statements."""
        self.execute("BEGIN")
        try:
            yield
        finally:
            self.execute("COMMIT")

    def ranked(self, workspace: str, query: Query) -> list[SearchHit]:
        wanted = search_text.terms(query.text or "")
        arms = query_sql.checks(query)
        if not wanted or not arms:
            return []
        tests = [Wanted(self._connection, term) for term in wanted]
        sql = "SELECT rowid, rank FROM search WHERE search MATCH ? ORDER BY rank"
        ranking = self.execute(sql, (" OR ".join(map(expression, wanted)),))
        seen: set[int] = set()
        hits: list[SearchHit] = []
        # Batch by batch until the page is full: the best may all be another workspace's.
        while batch := ranking.fetchmany(RANKED):
            best: dict[int, tuple[int, float]] = {}
            for key, rank in batch:
                if key >> 24 not in seen:
                    seen.add(key >> 24)
                    best[key >> 24] = (key, -rank)
            among = (f"s.pk {_AMONG}", [str(list(best))])
            statement = _build.page(
                workspace, query, arms, None, False, None, "s.row, s.pk", among=among
            )
            rows = {pk: row for _, _, row, pk in self.execute(*statement)}
            whole = set(_passing(rows, tests))
            for pk, (key, score) in best.items():
                if pk in whole:
                    sql = "SELECT key, id, at, version, body FROM events WHERE key = ?"
                    witness = _event(self.execute(sql, (key,)).fetchone())
                    hits.append(SearchHit(decode_session(rows[pk]), witness, score))
                    if len(hits) == query.limit:
                        return hits
        return hits

    def newest_matches(
        self, workspace: str, sessions: Sequence[Session], terms: Sequence[Term]
    ) -> list[Event | None]:
        newest: dict[int, int] = {}
        with self._snapshot():
            wanted = self._wanted(terms)
            pks = self._last.pks.get(workspace, {})
            if any(each.id not in pks for each in sessions):
                # One that was purged since it was listed has no row.
                sql = f"SELECT id, pk FROM sessions WHERE workspace = ? AND id {_AMONG}"
                names = codec.encode([each.id for each in sessions]).decode()
                pks = dict(self.execute(sql, (workspace, names)).fetchall())
            ends = {pks[each.id]: each.last_seq for each in sessions if each.id in pks}
            for term in wanted:
                for pk, key in term.newest(ends).items():
                    newest[pk] = max(key, newest.get(pk, 0))
            sql = f"SELECT key, id, at, version, body FROM events WHERE key {_AMONG}"
            rows = self.execute(sql, (str(list(newest.values())),)).fetchall()
        events = {row[0] >> 24: _event(row) for row in rows}
        return [events.get(pks.get(each.id, 0)) for each in sessions]

    def occurrences(
        self, workspace: str, id: str, terms: Sequence[Term], before: int | None, limit: int
    ) -> list[int]:
        with self._snapshot():
            sql = "SELECT pk FROM sessions WHERE workspace = ? AND id = ?"
            found = self.execute(sql, (workspace, id)).fetchone()
            if found is None or not terms:
                return []
            last = MAX_SEQ if before is None else max(0, before - 1)
            keys = [Wanted(self._connection, term).hits(found[0], last) for term in terms]
        return sorted((key & MAX_SEQ for key in set.intersection(*keys)), reverse=True)[:limit]

    def stale(self, workspace: str, state: SessionState, before: int, limit: int) -> list[Session]:
        column, index = (
            ("active_at", "active") if state == "active" else ("inactive_since", "inactive")
        )
        sql = f"SELECT row FROM sessions INDEXED BY sessions_{index}"
        sql += f" WHERE workspace = ? AND state = ? AND {column} < ? ORDER BY {column} LIMIT ?"
        args = (workspace, query_sql.STATE_CODES[state], before, limit)
        return [decode_session(row) for (row,) in self.execute(sql, args)]

    # turns

    def lease_of(self, workspace: str, id: str) -> Lease | None:
        sql = _LEASES + " WHERE s.workspace = ? AND s.id = ? AND l.holder <> ''"
        return next(map(_lease, self.execute(sql, (workspace, id))), None)

    def expired_leases(self) -> list[Lease]:
        sql = _LEASES + " WHERE l.expires_at <= ? AND l.holder <> ''"
        return [_lease(row) for row in self.execute(sql, (clock.now(),))]

    def inbox(self, workspace: str, id: str) -> list[InboxItem]:
        sql = "SELECT number, kind, id, at, body FROM inbox WHERE session = ? ORDER BY number"
        return [
            InboxItem(number=number, session=id, kind=kind, id=item, at=at, body=_decode_any(body))
            for number, kind, item, at, body in self.execute(sql, (self.pk(workspace, id),))
        ]

    def waiting_prompts(self, before: int) -> list[tuple[str, str]]:
        sql = """
            SELECT DISTINCT s.workspace, s.id FROM inbox i JOIN sessions s ON s.pk = i.session
            LEFT JOIN leases l ON l.session = i.session
            WHERE i.kind = 'prompt' AND i.at < ? AND coalesce(l.expires_at, 0) <= ?
        """
        return self.execute(sql, (before, clock.now())).fetchall()

    def deltas(self, workspace: str, id: str) -> list[Delta]:
        sql = 'SELECT message, kind, "offset", text FROM deltas WHERE session = ? ORDER BY number'
        return [
            Delta(
                session=id,
                message=message,
                kind=kind,
                offset=offset,
                text=data.decode("utf-8", "surrogatepass"),
            )
            for message, kind, offset, data in self.execute(sql, (self.pk(workspace, id),))
        ]

    def acked_seq(self, workspace: str, id: str) -> int:
        sql = "SELECT acked_seq FROM sessions WHERE workspace = ? AND id = ?"
        found = self.execute(sql, (workspace, id)).fetchone()
        if found is None:
            raise errors.NotFound(f"no session {id}", session=id)
        return int(found[0])

    # beside the sessions

    def find_key(self, digest: bytes) -> ApiKey | None:
        found = self.execute("SELECT row FROM keys WHERE digest = ?", (digest,)).fetchone()
        return _decode_key(found[0]) if found else None

    def keys(self, workspace: str | None = None) -> list[ApiKey]:
        sql = "SELECT row FROM keys WHERE ? IS NULL OR workspace = ? ORDER BY id"
        return [_decode_key(row) for (row,) in self.execute(sql, (workspace, workspace))]

    def get_record(
        self, workspace: str, kind: str, id: str, version: int | None = None
    ) -> Record | None:
        sql = "SELECT row FROM records WHERE workspace = ? AND kind = ? AND id = ?"
        args: list[Any] = [workspace, kind, id]
        if version is not None:
            sql, args = f"{sql} AND version = ?", [*args, version]
        found = self.execute(f"{sql} ORDER BY version DESC LIMIT 1", args).fetchone()
        return _decode_record(found[0]) if found else None

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
        return [_decode_record(row) for _, _, row in self.execute(sql, [*args, limit])]

    def part(self, workspace: str, file: str, number: int) -> bytes | None:
        sql = "SELECT data FROM parts WHERE workspace = ? AND file = ? AND number = ?"
        found = self.execute(sql, (workspace, file, number)).fetchone()
        return found[0] if found else None

    def overlays(self, workspace: str, source: str) -> dict[str, dict[str, Any]]:
        sql = "SELECT id, patch FROM overlays WHERE workspace = ? AND source = ?"
        return {id: _decode_any(patch) for id, patch in self.execute(sql, (workspace, source))}

    def settings(self, workspace: str) -> dict[str, Any]:
        sql = "SELECT name, value FROM settings WHERE workspace = ?"
        return {name: _decode_any(value) for name, value in self.execute(sql, (workspace,))}


class _Search:
    """What the last search found out, good for as long as the store's version is the same."""

    def __init__(self, version: int = -1) -> None:
        self.version = version
        self.terms: dict[Term, Wanted] = {}
        self.pks: dict[str, dict[str, int]] = {}  # by workspace and id

    def keep(self, workspace: str, sessions: Sequence[Session], pks: Sequence[int]) -> None:
        self.pks = {workspace: {each.id: pk for each, pk in zip(sessions, pks, strict=True)}}
        self.terms = {term: each for term, each in self.terms.items() if each.known() <= RARE}


_LEASES = (
    "SELECT s.workspace, s.id, l.holder, l.epoch, l.expires_at"
    " FROM leases l JOIN sessions s ON s.pk = l.session"
)


def _lease(row: tuple[Any, ...]) -> Lease:
    workspace, session, holder, epoch, expires_at = row
    return Lease(
        workspace=workspace, session=session, holder=holder, epoch=epoch, expires_at=expires_at
    )


def _event(row: tuple[Any, ...]) -> Event:
    key, id, at, version, body = row
    return Event(seq=key & MAX_SEQ, id=id, at=at, body=event.decode_body(body, version))


def _sessions(rows: Sequence[bytes]) -> list[Session]:
    try:
        return _decode_sessions(b"[" + b",".join(rows) + b"]")
    except msgspec.DecodeError:  # text that UTF-8 refuses is read the slow way, row by row
        return [decode_session(row) for row in rows]


def _passing(pks: Collection[int], wanted: Sequence[Wanted]) -> list[int]:
    """The sessions, in their order, in which all terms occur; the rarest leaves little to try."""
    left = set(pks)
    for term in sorted(wanted, key=Wanted.share):
        left = term.within(left)
    return [pk for pk in pks if pk in left]
