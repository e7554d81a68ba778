"""Lists and searches.

Plain lists scan one index, as `query_sql` writes them. A condition that must be checked on each
row, and must not choose the index, is in a subselect or followed by IS TRUE: the planner cannot
turn those into a join or an index scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from segue.model import search_text
from segue.model.cursor import ChangePoint
from segue.model.event import Event
from segue.model.query import Position, Query, SearchHit
from segue.model.search_text import Term
from segue.model.session import Session, SessionState, decode_session
from segue.store import query_sql
from segue.store.query_sql import Condition, IndexRange, PageSpec

from . import tsquery
from .connection import Database, Row
from .sessions import as_event

RARE_EVENTS = 5_000  # a term with no more hits is looked up completely
MAX_SCANNED_SESSIONS = 500  # tried in order before common terms are looked up completely as well

_build = query_sql.Builder(numbered=True, indexed_by=False)


class SessionLists:
    """List sessions and search in them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, workspace: str, query: Query, after: Position | None = None, *, backward: bool = False
    ) -> list[Session]:
        ranges = await self._index_ranges(workspace, query)
        terms = None if query.text is None else search_text.terms(query.text)
        if not ranges or terms == []:
            return []
        spec = PageSpec(workspace, query, after, backward, query.limit)
        if terms:
            rows = await self._page_of_text(ranges, spec, terms)
        else:
            statement = _build.page(ranges, spec)
            rows = await self._database.fetch(statement.sql, *statement.args)
        sessions = [decode_session(row) for _, _, row in rows]
        return sessions[::-1] if backward else sessions

    async def change_point(self, workspace: str) -> ChangePoint:
        """Return the current point in the store's sequence of changes.

        A counter in a row would make all writers wait for each other, and numbers of a sequence
        do not become visible in their order. So a change is numbered by the id of its
        transaction, and a point is a snapshot. Every transaction below `low` has ended: a change
        that becomes visible later has at least `low`. No transaction from `high` on has begun:
        the sessions that they create are new.
        """
        sql = """
            SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
                   pg_snapshot_xmax(pg_current_snapshot())::text::bigint
        """
        ((low, high),) = await self._database.fetch(sql)
        return ChangePoint(low, high)

    async def sweep(
        self, workspace: str, query: Query, since: ChangePoint, after: str
    ) -> list[Session]:
        # Costs the rows that changed since the first page, which are few.
        checks = query_sql.row_checks(query)
        terms = None if query.text is None else search_text.terms(query.text)
        if not checks or terms == []:
            return []
        changed = "s.change >= ? AND (s.born < ? AND s.id > ?) IS TRUE"
        candidates = Condition(changed, [since.low, since.high, after])
        spec = PageSpec(workspace, query, select="s.pk", candidates=candidates)
        rows = await self._with_terms(_build.page(checks, spec), terms or [], "c.id", query.limit)
        return [decode_session(row) for _, _, row in rows]

    async def stale(
        self, workspace: str, state: SessionState, before: int, limit: int
    ) -> list[Session]:
        time = "active_at" if state == "active" else "inactive_since"
        sql = f"SELECT row FROM sessions WHERE workspace = $1 AND state = $2 AND {time} < $3"
        sql += f" AND {query_sql.index_condition(None)}" if state == "active" else ""
        sql += f" ORDER BY {time}, id LIMIT $4"
        args = (workspace, query_sql.STATE_CODES[state], before, limit)
        return [decode_session(row) for (row,) in await self._database.fetch(sql, *args)]

    async def _index_ranges(self, workspace: str, query: Query) -> list[IndexRange]:
        drivers = {}
        for state in query.states():
            filters = query_sql.filters(query, state) or {}
            if len(filters) > 1:
                number = query_sql.STATE_CODES[state]
                drivers[number] = await self._choose_driver(workspace, number, filters)
        return query_sql.index_ranges(query, lambda state, _: drivers[state])

    async def _choose_driver(self, workspace: str, state: int, filters: query_sql.Filters) -> str:
        """Return the most selective filter, by counting ever further along each index."""
        args: list[Any] = [workspace, state]
        counts = []
        for name, options in filters.items():
            table, tag = (
                ("links", "true")
                if name == "memory"
                else ("sessions", query_sql.index_condition(name))
            )
            parts = []
            for values in options:
                tests = ["workspace = $1", "state = $2", tag]
                for column, value in zip(query_sql.COLUMNS[name], values, strict=True):
                    args.append(value)
                    tests.append(f"{column} = ${len(args)}")
                # In the index's order, or all of it might be read before the limit applies.
                part = f"SELECT FROM {table} WHERE {' AND '.join(tests)}"
                parts.append(f"({part} ORDER BY active_at, id LIMIT $BOUND)")
            counts.append(f"(SELECT count(*) FROM ({' UNION ALL '.join(parts)}) t)")
        sql = f"SELECT {', '.join(counts)}".replace("$BOUND", f"${len(args) + 1}")
        for bound in (100, 2_000, 40_000):
            (row,) = await self._database.fetch(sql, *args, bound)
            count, name = min(zip(row, filters, strict=True), key=lambda pair: pair[0])
            if count < bound:
                return name
        return next(name for name in query_sql.DRIVERS if name in filters)

    # text

    async def _page_of_text(
        self, ranges: Sequence[IndexRange], spec: PageSpec, terms: Sequence[Term]
    ) -> list[Row]:
        """Return a page of the sessions in which every term occurs.

        Sessions of rare terms are looked up and sorted. If all terms are common, sessions are
        scanned in order and tried, which fills a page soon. If it does not, the terms are common
        in few sessions, and these are looked up as well.
        """
        direction = "DESC" if spec.descending else "ASC"
        order = f"c.at {direction}, c.id {direction}"
        limit = spec.query.limit
        rare, common = await self._rare_and_common(terms)
        if not rare:
            scan = spec._replace(limit=MAX_SCANNED_SESSIONS, select="s.pk")
            statement = _build.page(ranges, scan)
            rows = await self._with_terms(statement, common, order, limit)
            if len(rows) == limit or await self._count(statement) < MAX_SCANNED_SESSIONS:
                return rows
            rare, common = common, []
        pks = await self._sessions_with(rare)
        if not pks:
            return []
        candidates = Condition("s.pk = ANY(?)", [pks])
        lookup = spec._replace(limit=None, select="s.pk", candidates=candidates)
        statement = _build.page(query_sql.row_checks(spec.query), lookup)
        return await self._with_terms(statement, common, order, limit)

    async def _rare_and_common(self, terms: Sequence[Term]) -> tuple[list[Term], list[Term]]:
        """Return the terms with few hits and those with many, as the planner estimates."""
        sql = "SELECT estimate(q) FROM unnest($1::text[]::tsquery[]) AS t (q)"
        estimates = await self._database.fetch(sql, [tsquery.query(term) for term in terms])
        rare: list[Term] = []
        common: list[Term] = []
        for term, (hits,) in zip(terms, estimates, strict=True):
            (common if hits is None or hits > RARE_EVENTS else rare).append(term)
        return rare, common

    async def _sessions_with(self, terms: Sequence[Term]) -> list[int]:
        """Return the sessions of all workspaces in which every term occurs."""
        sql = """
            SELECT session FROM unnest($1::text[]::tsquery[]) AS t (q),
              LATERAL (SELECT DISTINCT session FROM search WHERE words @@ t.q) AS w
            GROUP BY session HAVING count(*) = cardinality($1)
        """
        rows = await self._database.fetch(sql, [tsquery.query(term) for term in terms])
        return [pk for (pk,) in rows]

    async def _count(self, statement: query_sql.Statement) -> int:
        sql = f"SELECT count(*) FROM ({statement.sql}) AS c"
        return int((await self._database.fetch(sql, *statement.args))[0][0])

    async def _with_terms(
        self, statement: query_sql.Statement, terms: Sequence[Term], order: str, limit: int
    ) -> list[Row]:
        """Return the sessions of a statement that have every term, tried one by one."""
        queries_arg, limit_arg = (f"${len(statement.args) + number}" for number in (1, 2))
        sql = f"""
            SELECT c.at, c.id, (SELECT row FROM sessions WHERE pk = c.pk)
            FROM ({statement.sql}) AS c (at, id, pk)
            WHERE (
              SELECT true FROM unnest((SELECT {queries_arg}::text[]::tsquery[])) AS t (q)
              WHERE (
                SELECT true FROM search w
                WHERE w.session = c.pk AND (w.words @@ t.q) IS TRUE LIMIT 1
              ) IS NULL LIMIT 1
            ) IS NULL
            ORDER BY {order} LIMIT {limit_arg}
        """
        queries = [tsquery.query(term) for term in terms]
        return await self._database.fetch(sql, *statement.args, queries, limit)

    async def ranked(self, workspace: str, query: Query) -> list[SearchHit]:
        terms = search_text.terms(query.text or "")
        checks = query_sql.row_checks(query)
        if not terms or not checks:
            return []
        candidates = Condition("s.pk = h.session", [])
        spec = PageSpec(workspace, query, select="s.pk", candidates=candidates)
        statement = _build.page(checks, spec)
        some, every, last = (f"${len(statement.args) + number}" for number in (1, 2, 3))
        # The hits are all events with one of the terms, so they show which sessions have all terms.
        sql = f"""
            WITH hits AS MATERIALIZED (
              SELECT session, max(best) AS best FROM (
                SELECT session, number, max(ARRAY[score, seq]) AS best FROM (
                  SELECT session, seq, words, ts_rank(words, {some}::text::tsquery, 1) AS score
                  FROM search WHERE words @@ {some}::text::tsquery
                ) w, unnest({every}::text[]::tsquery[]) WITH ORDINALITY AS t (q, number)
                WHERE (w.words @@ t.q) IS TRUE GROUP BY session, number
              ) n GROUP BY session HAVING count(*) = cardinality({every})
            ),
            best AS MATERIALIZED (
              SELECT h.* FROM (
                SELECT session, best[1] AS score, best[2]::int AS seq FROM hits
                ORDER BY score DESC, session DESC
              ) h, LATERAL ({statement.sql}) AS c
              ORDER BY score DESC, session DESC LIMIT {last}
            )
            SELECT s.row, b.score, e.seq, e.id, e.at, e.version, e.body
            FROM best b JOIN sessions s ON s.pk = b.session
            LEFT JOIN events e ON e.session = b.session AND e.seq = b.seq
            ORDER BY b.score DESC, b.session DESC
        """
        queries = [tsquery.query(term) for term in terms]
        rows = await self._database.fetch(
            sql, *statement.args, tsquery.any_of(terms), queries, query.limit
        )
        return [
            # The text of the session's row has the seq 0, which no event has.
            SearchHit(
                decode_session(row), None if event_row[0] is None else as_event(event_row), score
            )
            for row, score, *event_row in rows
        ]

    async def known_words(self, workspace: str, words: Sequence[str]) -> set[str]:
        sql = """
            SELECT t.word FROM unnest($2::text[], $3::text[]::tsquery[]) AS t (word, q)
            WHERE EXISTS (
              SELECT FROM search w JOIN sessions s ON s.pk = w.session
              WHERE w.words @@ t.q AND s.workspace = $1
            )
        """
        queries = [tsquery.query(Term((word,))) for word in words]
        rows = await self._database.fetch(sql, workspace, list(words), queries)
        return {word for (word,) in rows}

    async def newest_matches(
        self, workspace: str, sessions: Sequence[Session], terms: Sequence[Term]
    ) -> list[Event | None]:
        if not terms:
            return [None] * len(sessions)
        sql = """
            SELECT e.seq, e.id, e.at, e.version, e.body
            FROM unnest($2::text[]) WITH ORDINALITY AS a (id, number)
            LEFT JOIN sessions s ON s.workspace = $1 AND s.id = a.id
            LEFT JOIN LATERAL (
              SELECT w.seq FROM search w
              WHERE w.session = s.pk AND (w.words @@ $3::text::tsquery) IS TRUE
              ORDER BY w.seq DESC LIMIT 1
            ) w ON true
            LEFT JOIN events e ON e.session = s.pk AND e.seq = w.seq
            ORDER BY a.number
        """
        ids = [session.id for session in sessions]
        rows = await self._database.fetch(sql, workspace, ids, tsquery.any_of(terms))
        return [None if row[0] is None else as_event(row) for row in rows]

    async def occurrences(
        self, workspace: str, id: str, terms: Sequence[Term], before: int | None, limit: int
    ) -> list[int]:
        if not terms:
            return []
        # A long event has several rows, and its terms may be in different ones.
        sql = """
            SELECT w.seq FROM unnest($3::text[]) q
            JOIN search w ON (w.words @@ q::tsquery) IS TRUE
            WHERE w.session = (SELECT pk FROM sessions WHERE workspace = $1 AND id = $2)
              AND w.seq > 0 AND w.seq < coalesce($4, 2147483647)
            GROUP BY w.seq HAVING count(DISTINCT q) = $5
            ORDER BY w.seq DESC LIMIT $6
        """
        queries = sorted({tsquery.query(term) for term in terms})
        rows = await self._database.fetch(sql, workspace, id, queries, before, len(queries), limit)
        return [seq for (seq,) in rows]
