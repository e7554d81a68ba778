"""Lists and searches over an index: the same questions that a store answers, by the same rules."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from segue.gc_pause import gc_paused
from segue.model import codec, search_text
from segue.model.cursor import ChangePoint
from segue.model.query import Position, Query
from segue.model.search_text import Term
from segue.model.session import Session, SessionState

from .database import SHELVES, Index, decode
from .terms import Words, expression, words_of

_decode_all = msgspec.json.Decoder(list[Session]).decode


class Origin(NamedTuple):
    """Whose sessions an index has: the source, its agent, and which of them run, since when."""

    source: str
    agent_id: str
    running: Mapping[str, int]

    def now(self, session: Session) -> Session:
        """A session as it is at this moment, which no file tells."""
        since = self.running.get(session.id)
        if since is None:
            return session
        return msgspec.structs.replace(session, status="running", running_since=since)


class Spot(NamedTuple):
    """Where a file says something."""

    path: str
    seq: int


def page(
    index: Index, origin: Origin, query: Query, after: Position | None, backward: bool
) -> list[Session]:
    """Up to a page of sessions after a position, in the query's order."""
    walk = Walk(index, origin, query, after, backward)
    with gc_paused():
        if query.text is None:
            rows = list(islice(walk("row"), query.limit))
        else:
            with index.snapshot():
                pks = first(words_of(index, search_text.terms(query.text)), walk, query.limit)
                sql = "SELECT row FROM files WHERE pk = ?"
                rows = [index.execute(sql, (pk,)).fetchone()[0] for pk in pks]
        found = _sessions(origin, rows)
    return found[::-1] if backward else found


class Walk:
    """Along the files of a list, in its order."""

    def __init__(
        self,
        index: Index,
        origin: Origin,
        query: Query,
        after: Position | None = None,
        backward: bool = False,
    ) -> None:
        self._index = index
        self._origin = origin
        self._query = query
        self._after = after
        self._backward = backward

    def __call__(self, column: str, only: set[int] | None = None) -> Iterator[Any]:
        """The values of a column, or of several; with `only`, those of these files."""
        query, args, parts = self._query, list[Any](), list[str]()
        down = query.descending != self._backward
        direction = "DESC" if down else "ASC"
        time = f"{query.order}_at"
        for shelf, name, values in _arms(self._origin, query):
            driver = f"_{name}" if name else ""
            where = ["shown", "shelf = ?", *([f"{name} = ?"] if name else [])]
            args += [SHELVES[shelf], *values]
            if self._after is not None:
                where.append(f"({time}, id) {'<' if down else '>'} (?, ?)")
                args += self._after
            for condition, value in _conditions(self._origin, query, name):
                where.append(condition)
                args += value
            by = f"INDEXED BY files{driver}_{query.order}"
            if query.statuses == ("running",):
                by = "INDEXED BY files_id"  # of which there are few
            if only is not None:
                where.append("pk IN (SELECT value FROM json_each(?))")
                args.append(str(list(only)))
                by = "NOT INDEXED"
            parts.append(f"SELECT {time}, id, {column} FROM files {by} WHERE {' AND '.join(where)}")
        if not parts:
            return
        sql = f"{' UNION ALL '.join(parts)} ORDER BY 1 {direction}, 2 {direction}"
        with closing(self._index.execute(sql, args)) as rows:
            for _, _, *values in rows:
                yield values[0] if len(values) == 1 else values


def first(words: Words, walk: Walk, limit: int) -> list[int]:
    """The first files along a walk that have all the words of a search."""
    words.narrow()
    while True:
        found = words.first(walk("pk", words.only if words.sparse else None), limit)
        if found is not None:
            return found


def sweep(
    index: Index, origin: Origin, query: Query, mark: ChangePoint, after: str
) -> list[Session]:
    """Sessions that changed since a mark and are older than it, by id."""
    shelves = [SHELVES[shelf] for shelf, _, _ in _arms(origin, query)]
    where = ["shown", "change >= ?", "born < ?", "id > ?"]
    args: list[Any] = [mark.low, mark.high, after]
    for condition, value in _conditions(origin, query, None):
        where.append(condition)
        args += value
    sql = f"SELECT pk, shelf, row FROM files INDEXED BY files_change WHERE {' AND '.join(where)}"
    with index.snapshot(), closing(index.execute(f"{sql} ORDER BY id", args)) as rows:
        words = words_of(index, search_text.terms(query.text or ""))
        words.narrow()
        right = (row for pk, shelf, row in rows if shelf in shelves and words.has(pk))
        return _sessions(origin, list(islice(right, query.limit)))


def in_id_range(index: Index, origin: Origin, low: str, high: str, limit: int) -> list[Session]:
    """Sessions by id, on any shelf."""
    sql = "SELECT row FROM files WHERE id BETWEEN ? AND ? AND shown ORDER BY id LIMIT ?"
    return _sessions(origin, [row for (row,) in index.execute(sql, (low, high, limit))])


def newest(index: Index, ids: Sequence[str], terms: Sequence[Term]) -> list[Spot | None]:
    """For each session, its newest event in which one of the terms occurs."""
    found: list[Spot | None] = [None] * len(ids)
    with index.snapshot():
        words = words_of(index, terms)
        words.narrow()
        for number, id in enumerate(ids if terms else ()):
            sql = "SELECT pk FROM files WHERE id = ? AND shown"
            row = index.execute(sql, (id,)).fetchone()
            if row and (key := words.newest(row[0])):
                found[number] = spot(index, key)
    return found


def spot(index: Index, key: int) -> Spot:
    """Where a text stands."""
    sql = "SELECT path, seq FROM files, texts WHERE pk = ? AND key = ?"
    path, seq = index.execute(sql, (key >> 24, key)).fetchone()
    return Spot(os.fsdecode(path), seq)


def occurrences(
    index: Index, id: str, terms: Sequence[Term], before: int | None, limit: int
) -> list[int]:
    """The seqs of a session's events in which every term occurs, the newest first."""
    if not terms:
        return []
    sql = """
        SELECT t.seq FROM files f JOIN search s ON s.search MATCH ?
          AND s.rowid BETWEEN f.pk << 24 AND f.pk << 24 | f.texts
        JOIN texts t ON t.key = s.rowid
        WHERE f.id = ? AND f.shown AND t.seq > 0 AND t.seq < ? ORDER BY t.seq DESC LIMIT ?
    """
    every = " AND ".join(map(expression, terms))
    last = (1 << 62) if before is None else before
    return [seq for (seq,) in index.execute(sql, (every, id, last, limit))]


def _arms(origin: Origin, query: Query) -> list[tuple[SessionState, str, tuple[bytes, ...]]]:
    """The ranges of indexes to walk: a shelf, the filter that drives, and its value."""
    if query.source not in (None, origin.source) or query.deployment_id or query.memory_store_id:
        return []
    agent = query.agent_id or origin.agent_id, query.agent_version or 1
    if agent != (origin.agent_id, 1):
        return []
    known = {"idle", *(("running",) if origin.running else ())}
    found: list[tuple[SessionState, str, tuple[bytes, ...]]] = []
    for shelf in query.states():
        as_archived = shelf == "archived" and query.archived_as is not None
        statuses = {query.archived_as} if as_archived else known
        if query.statuses and statuses.isdisjoint(query.statuses):
            continue
        if query.tag is not None:
            found.append((shelf, "tag", (codec.key(query.tag),)))
        elif query.directories:
            places = dict.fromkeys(map(codec.key, query.directories))
            found += [(shelf, "cwd", (place,)) for place in places]
        else:
            found.append((shelf, "", ()))
    return found


def _conditions(origin: Origin, query: Query, driver: str | None) -> list[tuple[str, list[Any]]]:
    """The filters that no walk along an index takes care of."""
    found: list[tuple[str, list[Any]]] = []
    if query.tag is not None and driver != "tag":
        found.append(("tag = ?", [codec.key(query.tag)]))
    if query.directories and driver != "cwd":
        places = list(dict.fromkeys(map(codec.key, query.directories)))
        found.append((f"cwd IN ({', '.join('?' * len(places))})", places))
    low, high = query.created_bounds()
    if low is not None:
        found.append(("created_at >= ?", [low]))
    if high is not None:
        found.append(("created_at <= ?", [high]))
    if query.active_after is not None:
        found.append(("active_at > ?", [query.active_after]))
    wanted = {"idle", "running"}.intersection(query.statuses)
    if origin.running and len(wanted) == 1:
        among = "IN" if "running" in wanted else "NOT IN"
        condition = f"id {among} (SELECT value FROM json_each(?))"
        if query.archived_as in query.statuses:
            condition = f"(shelf = {SHELVES['archived']} OR {condition})"
        found.append((condition, [codec.encode(list(origin.running)).decode()]))
    return found


def _sessions(origin: Origin, rows: Sequence[bytes]) -> list[Session]:
    try:
        found = _decode_all(b"[" + b",".join(rows) + b"]")
    except msgspec.DecodeError:  # odd text, which takes the slow way
        found = [decode(row) for row in rows]
    return [origin.now(session) for session in found] if origin.running else found
