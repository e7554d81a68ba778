"""Lists and searches over an index: the same questions that a store answers, by the same rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from ..model import codec, text
from ..model.cursor import Mark
from ..model.garbage import uncollected
from ..model.query import Position, Query
from ..model.session import Session, Shelf
from ..model.text import Term
from .index import SHELVES, Index, decode
from .words import Words, expression

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


class Best(NamedTuple):
    """A session that a ranked search found, where, and how good that is."""

    session: Session
    seq: int
    score: float


def page(
    index: Index, origin: Origin, query: Query, after: Position | None, backward: bool
) -> list[Session]:
    """Up to a page of sessions after a position, in the query's order."""
    arms = _arms(origin, query)
    if not arms:
        return []

    def walk(column: str, only: set[int] | None = None) -> Iterator[Any]:
        """The values of a column, in order; with `only`, those of these files."""
        args: list[Any] = []
        down = query.descending != backward
        direction = "DESC" if down else "ASC"
        time = f"{query.order}_at"
        parts = []
        for shelf, name, values in arms:
            driver = f"_{name}" if name else ""
            where = ["shown", "shelf = ?", *([f"{name} = ?"] if name else [])]
            args += [SHELVES[shelf], *values]
            if after is not None:
                where.append(f"({time}, id) {'<' if down else '>'} (?, ?)")
                args += after
            for condition, value in _conditions(origin, query, name):
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
        sql = f"{' UNION ALL '.join(parts)} ORDER BY 1 {direction}, 2 {direction}"
        with closing(index.execute(sql, args)) as rows:
            for _, _, value in rows:
                yield value

    with uncollected():
        if query.text is None:
            rows = list(islice(walk("row"), query.limit))
        else:
            with index.snapshot():
                pks = _searched(Words(index, text.terms(query.text)), walk, query.limit)
                sql = "SELECT row FROM files WHERE pk = ?"
                rows = [index.execute(sql, (pk,)).fetchone()[0] for pk in pks]
        found = _sessions(origin, rows)
    return found[::-1] if backward else found


def _searched(words: Words, walk: Callable[..., Iterator[int]], limit: int) -> list[int]:
    words.narrow()
    if not words.sparse:
        found = words.first(walk("pk"), limit)
        if found is not None:
            return found
        words.settle()
    return words.first(walk("pk", words.only), limit) or []


def sweep(index: Index, origin: Origin, query: Query, mark: Mark, after: str) -> list[Session]:
    """Sessions that changed since a mark and are older than it, by id."""
    words = Words(index, text.terms(query.text or ""))
    words.narrow()
    shelves = [SHELVES[shelf] for shelf, _, _ in _arms(origin, query)]
    where = ["shown", "change >= ?", "born < ?", "id > ?"]
    args: list[Any] = [mark.low, mark.high, after]
    for condition, value in _conditions(origin, query, None):
        where.append(condition)
        args += value
    sql = f"SELECT pk, shelf, row FROM files INDEXED BY files_change WHERE {' AND '.join(where)}"
    with closing(index.execute(f"{sql} ORDER BY id", args)) as rows:
        right = (row for pk, shelf, row in rows if shelf in shelves and words.has(pk))
        return _sessions(origin, list(islice(right, query.limit)))


def between(index: Index, origin: Origin, low: str, high: str, limit: int) -> list[Session]:
    """Sessions by id, on any shelf."""
    sql = "SELECT row FROM files WHERE id BETWEEN ? AND ? AND shown ORDER BY id LIMIT ?"
    return _sessions(origin, [row for (row,) in index.execute(sql, (low, high, limit))])


def newest(index: Index, ids: Sequence[str], terms: Sequence[Term]) -> list[int | None]:
    """For each session, the seq of its newest event in which one of the terms occurs."""
    if not terms:
        return [None] * len(ids)
    words = Words(index, terms)
    sql = "SELECT pk FROM files WHERE id = ? AND shown"
    pks = [index.execute(sql, (id,)).fetchone() for id in ids]
    return [None if pk is None else words.newest(pk[0]) for pk in pks]


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


def ranked(index: Index, origin: Origin, query: Query) -> list[Best]:
    """The sessions that match best, best first."""
    terms = text.terms(query.text or "")
    arms = {SHELVES[shelf] for shelf, _, _ in _arms(origin, query)}
    whole = Words(index, terms).settle()
    if not whole or not arms:
        return []
    where = ["shown", "pk = ?"]
    args: list[Any] = []
    for condition, value in _conditions(origin, query, None):
        where.append(condition)
        args += value
    one = f"SELECT shelf, row FROM files WHERE {' AND '.join(where)}"
    sql = "SELECT rowid, rank FROM search WHERE search MATCH ? ORDER BY rank"
    found: dict[int, Best] = {}
    for key, rank in index.execute(sql, (" OR ".join(map(expression, terms)),)):
        pk = key >> 24
        if pk not in whole:
            continue
        whole.discard(pk)
        row = index.execute(one, (pk, *args)).fetchone()
        if row is not None and row[0] in arms:
            (seq,) = index.execute("SELECT seq FROM texts WHERE key = ?", (key,)).fetchone()
            found[pk] = Best(origin.now(decode(row[1])), seq, -rank)
            if len(found) == query.limit:
                break
    return list(found.values())


def _arms(origin: Origin, query: Query) -> list[tuple[Shelf, str, tuple[bytes, ...]]]:
    """The ranges of indexes to walk: a shelf, the filter that drives, and its value."""
    if query.source not in (None, origin.source) or query.deployment_id or query.memory_store_id:
        return []
    agent = query.agent_id or origin.agent_id, query.agent_version or 1
    if agent != (origin.agent_id, 1):
        return []
    known = {"idle", *(("running",) if origin.running else ())}
    found: list[tuple[Shelf, str, tuple[bytes, ...]]] = []
    for shelf in query.shelves():
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
