"""Lists and searches.

The plain lists are walks along an index, as `listing` writes them. A condition that is to be
checked on each row, and not to drive, is put in a subselect or behind IS TRUE: the planner cannot
turn those into a join or an index scan of its own.
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

from . import tsquery
from .connection import Database, Row
from .sessions import as_event

RARE = 5_000  # events; a term with no more is looked up whole
WALK = 500  # sessions tried one by one for common terms before they too are looked up whole

_build = query_sql.Builder(numbered=True, indexed_by=False)


class SessionLists:
    """List sessions and search in them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, workspace: str, query: Query, after: Position | None = None, *, backward: bool = False
    ) -> list[Session]:
        arms = await self._arms(workspace, query)
        wanted = None if query.text is None else search_text.terms(query.text)
        if not arms or wanted == []:
            return []
        if wanted:
            rows = await self._page_of_text(workspace, query, arms, after, backward, wanted)
        else:
            statement = _build.page(workspace, query, arms, after, backward, query.limit)
            rows = await self._database.fetch(statement.sql, *statement.args)
        found = [decode_session(row) for _, _, row in rows]
        return found[::-1] if backward else found

    async def change_point(self, workspace: str) -> ChangePoint:
        """The present moment in the store's changes.

        A counter in a row would make all writers wait for each other, and numbers of a sequence do
        not become visible in their order. So a change is numbered by the id of its transaction,
        and a moment is a snapshot. Every transaction below `low` has ended by then: what becomes
        visible later is `low` or above. None from `high` on has begun: what they make is new.
        """
        sql = """
            SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
                   pg_snapshot_xmax(pg_current_snapshot())::text::bigint
        """
        ((low, high),) = await self._database.fetch(sql)
        return ChangePoint(low, high)

    async def sweep(
        self, workspace: str, query: Query, mark: ChangePoint, after: str
    ) -> list[Session]:
        # Costs the rows that changed since the first page, of which there are few.
        arms = query_sql.checks(query)
        wanted = None if query.text is None else search_text.terms(query.text)
        if not arms or wanted == []:
            return []
        since = "s.change >= ? AND (s.born < ? AND s.id > ?) IS TRUE"
        among = (since, [mark.low, mark.high, after])
        statement = _build.page(workspace, query, arms, None, False, None, "s.pk", among=among)
        rows = await self._with_terms(statement, wanted or [], "c.id", query.limit)
        return [decode_session(row) for _, _, row in rows]

    async def stale(
        self, workspace: str, state: SessionState, before: int, limit: int
    ) -> list[Session]:
        time = "active_at" if state == "active" else "inactive_since"
        sql = f"SELECT row FROM sessions WHERE workspace = $1 AND state = $2 AND {time} < $3"
        sql += f" AND {query_sql.named(None)}" if state == "active" else ""
        sql += f" ORDER BY {time}, id LIMIT $4"
        args = (workspace, query_sql.STATE_CODES[state], before, limit)
        return [decode_session(row) for (row,) in await self._database.fetch(sql, *args)]

    async def _arms(self, workspace: str, query: Query) -> list[query_sql.Arm]:
        drivers = {}
        for state in query.states():
            wanted = query_sql.filters(query, state) or {}
            if len(wanted) > 1:
                number = query_sql.STATE_CODES[state]
                drivers[number] = await self._choose(workspace, number, wanted)
        return query_sql.arms(query, lambda state, _: drivers[state])

    async def _choose(self, workspace: str, state: int, wanted: query_sql.Filters) -> str:
        """The most selective filter, by counting ever further along each index."""
        args: list[Any] = [workspace, state]
        counts = []
        for name, options in wanted.items():
            table, tag = (
                ("links", "true") if name == "memory" else ("sessions", query_sql.named(name))
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
            count, name = min(zip(row, wanted, strict=True), key=lambda pair: pair[0])
            if count < bound:
                return name
        return next(name for name in query_sql.DRIVERS if name in wanted)

    # text

    async def _page_of_text(
        self,
        workspace: str,
        query: Query,
        arms: Sequence[query_sql.Arm],
        after: Position | None,
        backward: bool,
        wanted: Sequence[Term],
    ) -> list[Row]:
        """A page of the sessions in which every term occurs.

        Sessions of rare terms are looked up and sorted. Where all terms are common, sessions are
        walked in order and tried, which fills a page soon; and if it does not, the terms were
        common in few sessions, and these are looked up after all.
        """
        sql = "SELECT estimate(q) FROM unnest($1::text[]::tsquery[]) AS t (q)"
        guesses = await self._database.fetch(sql, [tsquery.query(term) for term in wanted])
        rare: list[Term] = []
        common: list[Term] = []
        for term, (guess,) in zip(wanted, guesses, strict=True):
            (common if guess is None or guess > RARE else rare).append(term)
        way = "DESC" if query.descending != backward else "ASC"
        order = f"c.at {way}, c.id {way}"
        if not rare:
            statement = _build.page(workspace, query, arms, after, backward, WALK, "s.pk")
            rows = await self._with_terms(statement, common, order, query.limit)
            if len(rows) == query.limit or await self._count(statement) < WALK:
                return rows
            rare, common = common, []
        sql = """
            SELECT session FROM unnest($1::text[]::tsquery[]) AS t (q),
              LATERAL (SELECT DISTINCT session FROM search WHERE words @@ t.q) AS w
            GROUP BY session HAVING count(*) = cardinality($1)
        """
        found = await self._database.fetch(sql, [tsquery.query(term) for term in rare])
        if not found:
            return []
        among = ("s.pk = ANY(?)", [[pk for (pk,) in found]])
        checks = query_sql.checks(query)
        statement = _build.page(
            workspace, query, checks, after, backward, None, "s.pk", among=among
        )
        return await self._with_terms(statement, common, order, query.limit)

    async def _count(self, statement: query_sql.Statement) -> int:
        sql = f"SELECT count(*) FROM ({statement.sql}) AS c"
        return int((await self._database.fetch(sql, *statement.args))[0][0])

    async def _with_terms(
        self, statement: query_sql.Statement, wanted: Sequence[Term], order: str, limit: int
    ) -> list[Row]:
        """Those of a statement's sessions that no term is missing from, tried one by one."""
        terms, last = f"${len(statement.args) + 1}", f"${len(statement.args) + 2}"
        sql = f"""
            SELECT c.at, c.id, (SELECT row FROM sessions WHERE pk = c.pk)
            FROM ({statement.sql}) AS c (at, id, pk)
            WHERE (
              SELECT true FROM unnest((SELECT {terms}::text[]::tsquery[])) AS t (q)
              WHERE (
                SELECT true FROM search w
                WHERE w.session = c.pk AND (w.words @@ t.q) IS TRUE LIMIT 1
              ) IS NULL LIMIT 1
            ) IS NULL
            ORDER BY {order} LIMIT {last}
        """
        queries = [tsquery.query(term) for term in wanted]
        return await self._database.fetch(sql, *statement.args, queries, limit)

    async def ranked(self, workspace: str, query: Query) -> list[SearchHit]:
        wanted = search_text.terms(query.text or "")
        arms = query_sql.checks(query)
        if not wanted or not arms:
            return []
        among = ("s.pk = h.session", list[Any]())
        statement = _build.page(workspace, query, arms, None, False, None, "s.pk", among=among)
        some, every, last = (f"${len(statement.args) + number}" for number in (1, 2, 3))
        # Every event with one of the terms is among the hits, so they show which have them all.
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
            JOIN events e ON e.session = b.session AND e.seq = b.seq
            ORDER BY b.score DESC, b.session DESC
        """
        queries = [tsquery.query(term) for term in wanted]
        rows = await self._database.fetch(
            sql, *statement.args, tsquery.any_of(wanted), queries, query.limit
        )
        return [
            SearchHit(decode_session(row), as_event(found), score) for row, score, *found in rows
        ]

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
        # A long event has several rows, and its terms may stand in different ones.
        sql = """
            SELECT w.seq FROM unnest($3::text[]) q
            JOIN search w ON (w.words @@ q::tsquery) IS TRUE
            WHERE w.session = (SELECT pk FROM sessions WHERE workspace = $1 AND id = $2)
              AND w.seq < coalesce($4, 2147483647)
            GROUP BY w.seq HAVING count(DISTINCT q) = $5
            ORDER BY w.seq DESC LIMIT $6
        """
        queries = sorted({tsquery.query(term) for term in terms})
        rows = await self._database.fetch(sql, workspace, id, queries, before, len(queries), limit)
        return [seq for (seq,) in rows]
