"""Lists and searches.

Plain lists scan one index, as `query_sql` writes them. A condition that must be checked on each
row, and must not choose the index, is in a subselect or followed by IS TRUE: the planner cannot
turn those into a join or an index scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
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

# What a search does for one session, as measured; the unit is what reading one hit of a term costs.
SCAN_COST = 0.1  # reads an index in order, and skips the session
TEST_COST = 3.0  # tests the session for a term
TEXT_COST = 0.4  # reads one text of the session for that, up to the first with the term
BULK_TEXT_COST = 0.3  # reads one text of many sessions that are tested at once
LOOKUP_COST = 2.0  # looks the session up by its key
# A scan is given up after so many times the sessions that were expected to fill the page.
MARGIN, MIN_SCANNED_SESSIONS = 4, 500
# A scan in bulk always reads so many. If they do not fill the page, a scan of more of them follows.
BULK_MARGIN, BULK_GROWTH, MAX_BULK_SCANS = 1.5, 2, 3
MIN_SHARE = 1e-12  # of the sessions; the product for many rare words would round to 0
MAX_RANKED_HITS = 10_000  # in the newest sessions, if a term is too common to rank them all
MAX_HITS_RATIO = 2  # terms with so many times the hits of the rarest one are looked up as well

_build = query_sql.Builder(numbered=True, indexed_by=False)


def _order(spec: PageSpec) -> str:
    """Return the order of a search's page, whose sessions are called `c`."""
    direction = "DESC" if spec.descending else "ASC"
    return f"c.at {direction}, c.id {direction}"


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

        There are four ways, and the one that should cost least is tried first. Sessions are
        scanned in order and each is tested for the terms: if these are common, a page is soon
        full. If more sessions are needed, all are tested at once for the rarest term. Or the
        sessions of the rarest terms are read from the full-text index. If they are many, a scan,
        which reads one index only, soon meets enough of them. If they are few, they are looked up
        and sorted.
        """
        limit = spec.query.limit
        sessions, texts, hits = await self._estimates(terms)
        terms = sorted(hits, key=hits.__getitem__)
        rare = [term for term in terms if hits[term] <= MAX_HITS_RATIO * hits[terms[0]]]
        common = terms[len(rare) :]

        def share(some: Sequence[Term]) -> float:
            product = prod(min(1, hits[term] / sessions) for term in some) if sessions else 1
            return max(MIN_SHARE, product)

        def test_cost(some: Sequence[Term]) -> float:
            """Return the cost of testing a session, which usually lacks the rarest term."""
            if not some:
                return 0
            return TEST_COST + TEXT_COST * min(session_texts, texts / max(1, hits[some[0]]))

        session_texts = texts / max(1, sessions)
        scanned = limit / share(terms)
        read = sum(hits[term] for term in rare)
        looked_up = sessions * share(rare)
        by_index = read + min(scanned * SCAN_COST, looked_up * LOOKUP_COST)
        match_cost = LOOKUP_COST + test_cost(terms[1:])
        bulk_cost = SCAN_COST + BULK_TEXT_COST * session_texts + share(terms[:1]) * match_cost
        bulk = BULK_MARGIN * scanned
        rows: list[Row] | None = None
        if not sessions or scanned * test_cost(terms) <= min(bulk * bulk_cost, by_index):
            rows = await self._scan(ranges, spec, scanned, terms)
        for _ in range(MAX_BULK_SCANS):
            if rows is None and bulk * bulk_cost <= by_index:
                rows = await self._scan_in_bulk(ranges, spec, int(bulk) + 1, terms)
                bulk *= BULK_GROWTH
        if rows is not None:
            return rows
        pks = await self._sessions_with(rare)
        if not pks:
            return []
        scanned = limit * sessions / len(pks) / share(common)
        if 0 < scanned * SCAN_COST < len(pks) * LOOKUP_COST:
            rows = await self._scan(ranges, spec, scanned, common, pks)
            if rows is not None:
                return rows
        return await self._look_up(spec, pks, common)

    async def _look_up(
        self, spec: PageSpec, pks: Sequence[int], terms: Sequence[Term]
    ) -> list[Row]:
        """Return a page of those of some sessions that have every term."""
        candidates = Condition("s.pk = ANY(?)", [pks])
        lookup = spec._replace(limit=None, select="s.pk", candidates=candidates)
        statement = _build.page(query_sql.row_checks(spec.query), lookup)
        return await self._with_terms(statement, terms, _order(spec), spec.query.limit)

    async def _estimates(self, terms: Sequence[Term]) -> tuple[float, float, dict[Term, int]]:
        """Return how many sessions, texts and hits of each term there are, by the planner.

        Without statistics all are 0.
        """
        sql = """
            SELECT estimate(q), (SELECT reltuples FROM pg_class WHERE oid = 'sessions'::regclass),
              (SELECT reltuples FROM pg_class WHERE oid = 'search'::regclass)
            FROM unnest($1::text[]::tsquery[]) AS t (q)
        """
        rows = await self._database.fetch(sql, [tsquery.query(term) for term in terms])
        if any(hits is None or sessions <= 0 for hits, sessions, _ in rows):
            return 0, 0, dict.fromkeys(terms, 0)
        hits_by_term = {term: row[0] for term, row in zip(terms, rows, strict=True)}
        return rows[0][1], rows[0][2], hits_by_term

    async def _scan(
        self,
        ranges: Sequence[IndexRange],
        spec: PageSpec,
        expected: float,
        terms: Sequence[Term],
        pks: Sequence[int] | None = None,
    ) -> list[Row] | None:
        """Return a page of a scan in order; None if it is given up."""
        limit = int(max(MIN_SCANNED_SESSIONS, MARGIN * expected))
        statement = _build.page(ranges, spec._replace(limit=limit, select="s.pk"))
        rows = await self._with_terms(statement, terms, _order(spec), spec.query.limit, pks)
        is_complete = len(rows) == spec.query.limit or await self._count(statement) < limit
        return rows if is_complete else None

    async def _scan_in_bulk(
        self, ranges: Sequence[IndexRange], spec: PageSpec, limit: int, terms: Sequence[Term]
    ) -> list[Row] | None:
        """Return a page of the first `limit` sessions; None if it needs more of them.

        Their texts are read in the order of their keys, which takes a tenth of the time of a test
        of each session.
        """
        statement = _build.page(ranges, spec._replace(limit=limit, select="s.pk"))
        sql = f"""
            SELECT array_agg(DISTINCT session) FROM search
            WHERE session = ANY (ARRAY (SELECT c.pk FROM ({statement.sql}) AS c (at, id, pk)))
              AND (words @@ ${len(statement.args) + 1}::text::tsquery) IS TRUE
        """
        ((pks,),) = await self._database.fetch(sql, *statement.args, tsquery.query(terms[0]))
        rows = await self._look_up(spec, pks, terms[1:]) if pks else []
        is_complete = len(rows) == spec.query.limit or await self._count(statement) < limit
        return rows if is_complete else None

    async def _sessions_with(self, terms: Sequence[Term]) -> list[int]:
        """Return the sessions of all workspaces in which every term occurs."""
        sql = """
            SELECT array_agg(session) FROM (
              SELECT session FROM unnest($1::text[]::tsquery[]) AS t (q),
                LATERAL (SELECT DISTINCT session FROM search WHERE words @@ t.q) AS w
              GROUP BY session HAVING count(*) = cardinality($1)
            ) AS s
        """
        ((pks,),) = await self._database.fetch(sql, [tsquery.query(term) for term in terms])
        return pks or []

    async def _count(self, statement: query_sql.Statement) -> int:
        sql = f"SELECT count(*) FROM ({statement.sql}) AS c"
        return int((await self._database.fetch(sql, *statement.args))[0][0])

    async def _with_terms(
        self,
        statement: query_sql.Statement,
        terms: Sequence[Term],
        order: str,
        limit: int,
        pks: Sequence[int] | None = None,
    ) -> list[Row]:
        """Return the sessions of a statement that have every term, tried one by one.

        Those that are not among `pks` are skipped.
        """
        first = len(statement.args) + 1
        # PostgreSQL makes a hash table of a subquery; an array would be searched each time.
        among = "true" if pks is None else f"c.pk IN (SELECT unnest(${first + 2}::bigint[]))"
        sql = f"""
            SELECT c.at, c.id, (SELECT row FROM sessions WHERE pk = c.pk)
            FROM ({statement.sql}) AS c (at, id, pk)
            WHERE ({among}) IS TRUE AND (
              SELECT true FROM unnest((SELECT ${first}::text[]::tsquery[])) AS t (q)
              WHERE (
                SELECT true FROM search w
                WHERE w.session = c.pk AND (w.words @@ t.q) IS TRUE LIMIT 1
              ) IS NULL LIMIT 1
            ) IS NULL
            ORDER BY {order} LIMIT ${first + 1}
        """
        queries = [tsquery.query(term) for term in terms]
        args = [*statement.args, queries, limit, *([] if pks is None else [pks])]
        return await self._database.fetch(sql, *args)

    async def ranked(self, workspace: str, query: Query) -> list[SearchHit]:
        terms = search_text.terms(query.text or "")
        checks = query_sql.row_checks(query)
        if not terms or not checks:
            return []
        spec = PageSpec(
            workspace, query, select="s.pk", candidates=Condition("s.pk = h.session", [])
        )
        statement = _build.page(checks, spec)
        sessions, texts, hits = await self._estimates(terms)
        terms = sorted(hits, key=hits.__getitem__)
        share = MAX_RANKED_HITS / max(1, hits[terms[0]])
        rows: list[Row] = []
        if texts * share < hits[terms[0]]:  # reading these texts takes less time than all hits
            rows = await self._ranked(statement, terms, query.limit, int(sessions * share))
        if len(rows) < query.limit:
            rows = await self._ranked(statement, terms, query.limit)
        return [
            # The text of the session's row has the seq 0, which no event has.
            SearchHit(
                decode_session(row), None if event_row[0] is None else as_event(event_row), score
            )
            for row, score, *event_row in rows
        ]

    async def _ranked(
        self,
        statement: query_sql.Statement,
        terms: Sequence[Term],
        limit: int,
        newest: int | None = None,
    ) -> list[Row]:
        """Return the sessions that match best, of all or of the newest of all workspaces.

        `terms` begins with the rarest one, and `statement` selects a session `h.session` if the
        query's filters allow it.
        """
        args: list[Any] = [*statement.args, limit]
        last = len(args)

        def tsquery_of(text: str) -> str:
            args.append(text)
            return f"${len(args)}::text::tsquery"

        some = tsquery_of(tsquery.any_of(terms))
        every = [tsquery_of(tsquery.query(term)) for term in terms] if len(terms) > 1 else [some]
        hits, having = f"words @@ {every[0]}", ""
        if newest is not None:
            args.append(newest)
            first = f"(SELECT max(pk) FROM sessions) - ${len(args)}::bigint"
            hits = f"({hits}) IS TRUE AND session > {first}"
        if len(terms) > 1:
            rarest = f"SELECT DISTINCT session FROM search WHERE {hits}"
            hits = f"session = ANY(ARRAY({rarest})) AND (words @@ {some}) IS TRUE"
            having = "HAVING " + " AND ".join(f"bool_or(words @@ {term})" for term in every)
        sql = f"""
            WITH hits AS MATERIALIZED (
              SELECT session, max(ts_rank(words, {some}, 1)) AS score
              FROM search WHERE {hits} GROUP BY session {having}
            ),
            best AS MATERIALIZED (
              SELECT h.* FROM (SELECT * FROM hits ORDER BY score DESC, session DESC) h,
                LATERAL ({statement.sql}) AS c
              ORDER BY score DESC, session DESC LIMIT ${last}
            )
            SELECT s.row, b.score, e.seq, e.id, e.at, e.version, e.body
            FROM best b JOIN sessions s ON s.pk = b.session
            CROSS JOIN LATERAL (
              SELECT seq FROM search w WHERE w.session = b.session AND (w.words @@ {some}) IS TRUE
              ORDER BY ts_rank(w.words, {some}, 1) DESC, seq DESC LIMIT 1
            ) w
            LEFT JOIN events e ON e.session = b.session AND e.seq = w.seq
            ORDER BY b.score DESC, b.session DESC
        """
        return await self._database.fetch(sql, *args)

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
