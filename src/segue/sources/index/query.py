"""List and search the sessions of an index, by the same rules as a store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from segue import fts5
from segue.gc_pause import gc_paused
from segue.model import codec, search_text
from segue.model.cursor import ChangePoint
from segue.model.query import Position, Query
from segue.model.search_text import Term
from segue.model.session import Session, SessionState, decode_sessions

from .database import STATES, Index
from .terms import TermSearch, term_search


class SourceInfo(NamedTuple):
    """The source and agent of an index's sessions, and since when which of them run."""

    source: str
    agent_id: str
    running: Mapping[str, int]

    def with_status(self, session: Session) -> Session:
        """Return a session with its current status, which its files do not hold."""
        since = self.running.get(session.id)
        if since is None:
            return session
        return msgspec.structs.replace(session, status="running", running_since=since)


class TextPosition(NamedTuple):
    """Where a text is: the file and the event's seq."""

    path: str
    seq: int


def page(
    index: Index,
    source: SourceInfo,
    query: Query,
    after: Position | None,
    *,
    backward: bool,
) -> list[Session]:
    """Return a page of sessions after a position, in the query's order."""
    walk = ListWalk(index, source, query, after, backward=backward)
    with gc_paused():
        if query.text is None:
            rows = list(islice(walk("row"), query.limit))
        else:
            with index.snapshot():
                pks = first_matches(
                    term_search(index, search_text.terms(query.text)), walk, query.limit
                )
                sql = "SELECT row FROM files WHERE pk = ?"
                rows = [index.execute(sql, (pk,)).fetchone()[0] for pk in pks]
        sessions = _sessions(source, rows)
    return sessions[::-1] if backward else sessions


class ListWalk:
    """Walk along the files of a list, in its order."""

    def __init__(
        self,
        index: Index,
        source: SourceInfo,
        query: Query,
        after: Position | None = None,
        *,
        backward: bool = False,
    ) -> None:
        self._index = index
        self._source = source
        self._query = query
        self._after = after
        self._backward = backward

    def __call__(self, column: str, only: set[int] | None = None) -> Iterator[Any]:
        """Return the values of a column, or tuples of several; with `only`, of these files."""
        query, args, parts = self._query, list[Any](), list[str]()
        down = query.descending != self._backward
        direction = "DESC" if down else "ASC"
        time = f"{query.order}_at"
        for state, name, values in _index_ranges(self._source, query):
            driver = f"_{name}" if name else ""
            where = ["shown", "state = ?", *([f"{name} = ?"] if name else [])]
            args += [STATES[state], *values]
            if self._after is not None:
                where.append(f"({time}, id) {'<' if down else '>'} (?, ?)")
                args += self._after
            for condition, value in _conditions(self._source, query, name):
                where.append(condition)
                args += value
            index_clause = f"INDEXED BY files{driver}_{query.order}"
            if query.statuses == ("running",):
                index_clause = "INDEXED BY files_id"  # few sessions run
            if only is not None:
                where.append("pk IN (SELECT value FROM json_each(?))")
                args.append(str(list(only)))
                index_clause = "NOT INDEXED"
            parts.append(
                f"SELECT {time}, id, {column} FROM files {index_clause} WHERE {' AND '.join(where)}"
            )
        if not parts:
            return
        sql = f"{' UNION ALL '.join(parts)} ORDER BY 1 {direction}, 2 {direction}"
        with closing(self._index.execute(sql, args)) as rows:
            for _, _, *values in rows:
                yield values[0] if len(values) == 1 else values


def first_matches(search: TermSearch, walk: ListWalk, limit: int) -> list[int]:
    """Return the first files along a walk that have all terms of a search."""
    search.look_up_rare_terms()
    while True:
        files = walk("pk", search.candidates if search.is_sparse else None)
        matches = search.first_files(files, limit)
        if matches is not None:
            return matches


def sweep(
    index: Index, source: SourceInfo, query: Query, point: ChangePoint, after: str
) -> list[Session]:
    """Return sessions that are older than a change point and changed since, by id."""
    states = [STATES[state] for state, _, _ in _index_ranges(source, query)]
    where = ["shown", "change >= ?", "born < ?", "id > ?"]
    args: list[Any] = [point.low, point.high, after]
    for condition, value in _conditions(source, query, None):
        where.append(condition)
        args += value
    sql = f"SELECT pk, state, row FROM files INDEXED BY files_change WHERE {' AND '.join(where)}"
    with index.snapshot(), closing(index.execute(f"{sql} ORDER BY id", args)) as rows:
        search = term_search(index, search_text.terms(query.text or ""))
        search.look_up_rare_terms()
        matches = (row for pk, state, row in rows if state in states and search.has_all(pk))
        return _sessions(source, list(islice(matches, query.limit)))


def in_id_range(index: Index, source: SourceInfo, low: str, high: str, limit: int) -> list[Session]:
    """Return the sessions of any state with ids in a range, by id."""
    sql = "SELECT row FROM files WHERE id BETWEEN ? AND ? AND shown ORDER BY id LIMIT ?"
    return _sessions(source, [row for (row,) in index.execute(sql, (low, high, limit))])


def known_words(index: Index, words: Sequence[str]) -> set[str]:
    """Return which of these words occur in the texts of the index."""
    sql = f"{fts5.HITS} LIMIT 1"
    queries = ((word, fts5.expression(Term((word,)))) for word in words)
    return {word for word, query in queries if index.execute(sql, (query,)).fetchone()}


def newest_positions(
    index: Index, ids: Sequence[str], terms: Sequence[Term]
) -> list[TextPosition | None]:
    """Return for each session where one of the terms occurs last."""
    positions: list[TextPosition | None] = [None] * len(ids)
    with index.snapshot():
        search = term_search(index, terms)
        search.look_up_rare_terms()
        for number, id in enumerate(ids if terms else ()):
            sql = "SELECT pk FROM files WHERE id = ? AND shown"
            row = index.execute(sql, (id,)).fetchone()
            if row and (key := search.newest_text(row[0])):
                positions[number] = text_position(index, key)
    return positions


def text_position(index: Index, key: int) -> TextPosition:
    """Return where the text of a key is."""
    sql = "SELECT path, seq FROM files, texts WHERE pk = ? AND key = ?"
    path, seq = index.execute(sql, (key >> 24, key)).fetchone()
    return TextPosition(os.fsdecode(path), seq)


def occurrences(
    index: Index, id: str, terms: Sequence[Term], before: int | None, limit: int
) -> list[int]:
    """Return the seqs of a session's events in which every term occurs, newest first."""
    if not terms:
        return []
    sql = """
        SELECT t.seq FROM files f JOIN search s ON s.search MATCH ?
          AND s.rowid BETWEEN f.pk << 24 AND f.pk << 24 | f.texts
        JOIN texts t ON t.key = s.rowid
        WHERE f.id = ? AND f.shown AND t.seq > 0 AND t.seq < ? ORDER BY t.seq DESC LIMIT ?
    """
    all_terms = " AND ".join(map(fts5.expression, terms))
    last = (1 << 62) if before is None else before
    return [seq for (seq,) in index.execute(sql, (all_terms, id, last, limit))]


def _index_ranges(
    source: SourceInfo, query: Query
) -> list[tuple[SessionState, str, tuple[bytes, ...]]]:
    """Return the ranges of indexes to walk: a state, the column of the index, and its value."""
    if query.source not in (None, source.source) or query.deployment_id or query.memory_store_id:
        return []
    agent = query.agent_id or source.agent_id, query.agent_version or 1
    if agent != (source.agent_id, 1):
        return []
    possible = {"idle", *(("running",) if source.running else ())}
    ranges: list[tuple[SessionState, str, tuple[bytes, ...]]] = []
    for state in query.states():
        as_archived = state == "archived" and query.archived_as is not None
        statuses = {query.archived_as} if as_archived else possible
        if query.statuses and statuses.isdisjoint(query.statuses):
            continue
        if query.tag is not None:
            ranges.append((state, "tag", (codec.key(query.tag),)))
        elif query.directories:
            directories = dict.fromkeys(map(codec.key, query.directories))
            ranges += [(state, "cwd", (directory,)) for directory in directories]
        else:
            ranges.append((state, "", ()))
    return ranges


def _conditions(
    source: SourceInfo, query: Query, driver: str | None
) -> list[tuple[str, list[Any]]]:
    """Return the filters that a walk along one index does not apply, with their values."""
    conditions: list[tuple[str, list[Any]]] = []
    if query.tag is not None and driver != "tag":
        conditions.append(("tag = ?", [codec.key(query.tag)]))
    if query.directories and driver != "cwd":
        directories = list(dict.fromkeys(map(codec.key, query.directories)))
        conditions.append((f"cwd IN ({', '.join('?' * len(directories))})", directories))
    low, high = query.created_bounds()
    if low is not None:
        conditions.append(("created_at >= ?", [low]))
    if high is not None:
        conditions.append(("created_at <= ?", [high]))
    if query.active_after is not None:
        conditions.append(("active_at > ?", [query.active_after]))
    if query.active_before is not None:
        conditions.append(("active_at < ?", [query.active_before]))
    statuses = {"idle", "running"}.intersection(query.statuses)
    if source.running and len(statuses) == 1:
        among = "IN" if "running" in statuses else "NOT IN"
        condition = f"id {among} (SELECT value FROM json_each(?))"
        if query.archived_as in query.statuses:
            condition = f"(state = {STATES['archived']} OR {condition})"
        conditions.append((condition, [codec.encode(list(source.running)).decode()]))
    return conditions


def _sessions(source: SourceInfo, rows: Sequence[bytes]) -> list[Session]:
    sessions = decode_sessions(rows)
    return [source.with_status(session) for session in sessions] if source.running else sessions
