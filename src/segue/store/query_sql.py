"""Write a Query as SQL, for both databases.

Every list scans an index whose columns are the filter, the order and the id that breaks ties, from
a position on, so its cost is the page. A filter with several values, or several states, becomes
one index range each; the database merges them in order. Of several filters one is the driver: its
index is scanned, and the other filters are checked row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from segue.model import codec
from segue.model.query import Position, Query
from segue.model.session import Session, SessionState

STATE_CODES: dict[SessionState, int] = {"active": 0, "archived": 1, "trashed": 2}

# Filters with an index of their own, the usually most selective first; `memory` is a link table.
DRIVERS = ("memory", "deployment", "tag", "version", "cwd", "agent", "status", "source")
# The columns of each driver's index between (workspace, state) and (time, id).
COLUMNS: dict[str, tuple[str, ...]] = {
    "memory": ("store",),
    "version": ("agent", "version"),
    **{name: (name,) for name in ("deployment", "tag", "cwd", "agent", "status", "source")},
}

MAX_RANGES = 100  # of one state; SQLite merges at most 500 in all

Values = tuple[Any, ...]
Filters = dict[str, list[Values]]  # driver → alternative values of its columns


class IndexRange(NamedTuple):
    """One range of one index, and the filters to check on its rows."""

    state: int
    driver: str | None
    values: Values
    row_filters: Filters


class Condition(NamedTuple):
    """A condition in SQL, with `?` for each argument."""

    sql: str
    args: Sequence[Any]


class Statement(NamedTuple):
    """SQL and its arguments."""

    sql: str
    args: list[Any]


class PageSpec(NamedTuple):
    """Which sessions a statement selects, and which columns of them.

    `candidates` restricts the sessions to a set that is known already: they are looked up by row,
    not along an index. `sort_columns` puts time and id before the selected columns.
    """

    workspace: str
    query: Query
    after: Position | None = None
    backward: bool = False
    limit: int | None = None
    select: str = "s.row"
    candidates: Condition | None = None
    sort_columns: bool = True

    @property
    def descending(self) -> bool:
        """Return whether rows are read from high to low."""
        return self.query.descending != self.backward


def columns(session: Session) -> dict[str, Any]:
    """Return the indexed columns of a session's row."""
    agent = session.agent
    state = session.state
    return {
        "state": STATE_CODES[state],
        "status": session.status,
        "cwd": codec.key(session.directory),
        "agent": agent.id if agent else None,
        "version": agent.version if agent else None,
        "deployment": session.deployment_id,
        "tag": None if session.tag is None else codec.key(session.tag),
        "source": session.source,
        "created_at": session.created_at,
        "active_at": session.active_at,
        "inactive_since": session.deleted_at if state == "trashed" else session.archived_at,
        "in_turn": int(session.turn is not None),
    }


def filters(query: Query, state: SessionState) -> Filters | None:
    """Return the filters for rows in a state; None if no row in that state can match."""
    conditions: Filters = {}
    if query.memory_store_id is not None:
        conditions["memory"] = [(query.memory_store_id,)]
    if query.deployment_id is not None:
        conditions["deployment"] = [(query.deployment_id,)]
    if query.tag is not None:
        conditions["tag"] = [(codec.key(query.tag),)]
    if query.agent_id is not None:
        if query.agent_version is not None:
            conditions["version"] = [(query.agent_id, query.agent_version)]
        else:
            conditions["agent"] = [(query.agent_id,)]
    if query.directories:
        conditions["cwd"] = [(codec.key(path),) for path in dict.fromkeys(query.directories)]
    if query.source is not None:
        conditions["source"] = [(query.source,)]
    if query.statuses:
        if state == "archived" and query.archived_as is not None:
            if query.archived_as not in query.statuses:
                return None
        else:
            conditions["status"] = [(status,) for status in dict.fromkeys(query.statuses)]
    return conditions


def index_ranges(
    query: Query, choose: Callable[[int, Filters], str] | None = None
) -> list[IndexRange]:
    """Return the index ranges that a query scans. `choose` picks the driver of several filters."""
    ranges = []
    for state in query.states():
        state_filters = filters(query, state)
        if state_filters is None:
            continue
        code = STATE_CODES[state]
        driver = None
        # A filter with more values than a statement may have ranges is checked row by row instead.
        drivers = {
            name: values for name, values in state_filters.items() if len(values) <= MAX_RANGES
        }
        if drivers:
            usual = next(name for name in DRIVERS if name in drivers)
            driver = choose(code, drivers) if choose and len(drivers) > 1 else usual
        row_filters = {name: values for name, values in state_filters.items() if name != driver}
        options: list[Values] = state_filters[driver] if driver else [()]
        ranges += [IndexRange(code, driver, values, row_filters) for values in options]
    return ranges


def row_checks(query: Query) -> list[IndexRange]:
    """Return ranges without a driver, for candidates that are looked up row by row."""
    by_state = [(STATE_CODES[state], filters(query, state)) for state in query.states()]
    return [
        IndexRange(code, None, (), state_filters)
        for code, state_filters in by_state
        if state_filters is not None
    ]


def index_condition(driver: str | None) -> str:
    """Return the condition that names a driver's index in PostgreSQL; it is always true."""
    return f"status <> 'by {driver or 'time'}'"


def _table(scanned: IndexRange) -> str:
    """Return the alias of the table whose index is scanned: links or sessions."""
    return "l" if scanned.driver == "memory" else "s"


def _sort_columns(query: Query, scanned: IndexRange) -> tuple[str, str]:
    table = _table(scanned)
    return f"{table}.{query.order}_at", f"{table}.id"


class Builder:
    """Write statements for one database.

    `numbered` writes `$1` for arguments instead of `?`. `indexed_by` names indexes as SQLite does;
    otherwise `index_condition` names them.
    """

    def __init__(self, *, numbered: bool, indexed_by: bool) -> None:
        self._numbered = numbered
        self._indexed_by = indexed_by

    def page(self, ranges: Sequence[IndexRange], spec: PageSpec) -> Statement:
        """Return a statement for rows `(time, id, select…)` of all ranges, merged in order."""
        args = _Arguments(numbered=self._numbered)
        direction = "DESC" if spec.descending else "ASC"
        time, id = "1", "2"
        if not spec.sort_columns:
            if len(ranges) == 1:
                time, id = _sort_columns(spec.query, ranges[0])
            else:  # they are needed to merge
                spec = spec._replace(sort_columns=True)
        order = f" ORDER BY {time} {direction}, {id} {direction}"
        selects = [self._select(scanned, spec, args) for scanned in ranges]
        if len(selects) > 1 and not self._indexed_by:
            # PostgreSQL merges parts that are sorted; it would not sort each part by itself.
            selects = [f"({select}{order})" for select in selects]
        sql = " UNION ALL ".join(selects) + order
        if spec.limit is not None:
            sql += f" LIMIT {args.add(spec.limit)}"
        return Statement(sql, args.values)

    def _select(self, scanned: IndexRange, spec: PageSpec, args: _Arguments) -> str:
        """Return the SELECT for one index range."""
        time, id = _sort_columns(spec.query, scanned)
        source = self._source(scanned, spec)
        conditions = [
            *self._range_conditions(scanned, spec, args),
            *self._position_condition(scanned, spec, args),
            *_time_bounds(spec.query, _table(scanned), args),
            *_row_filters(scanned.row_filters, args),
            *_candidate_condition(spec.candidates, args),
        ]
        selected = f"{time}, {id}, {spec.select}" if spec.sort_columns else spec.select
        return f"SELECT {selected} FROM {source} WHERE {' AND '.join(conditions)}"

    def _source(self, scanned: IndexRange, spec: PageSpec) -> str:
        """Return the tables to read, with the index by name where the database allows it."""
        by_links = scanned.driver == "memory"
        index = ""
        if self._indexed_by and spec.candidates is not None:
            index = " NOT INDEXED"
        elif self._indexed_by and by_links:
            index = f" INDEXED BY links_{spec.query.order}"
        elif self._indexed_by:
            driver = f"{scanned.driver}_" if scanned.driver else ""
            index = f" INDEXED BY sessions_{driver}{spec.query.order}"
        if not by_links:
            return f"sessions s{index}"
        join = "CROSS JOIN" if self._indexed_by else "JOIN"
        return f"links l{index} {join} sessions s ON s.pk = l.session"

    def _range_conditions(
        self, scanned: IndexRange, spec: PageSpec, args: _Arguments
    ) -> Iterable[str]:
        """Yield the conditions that select one range of one index."""
        table = _table(scanned)
        indexed = self._indexed_by or spec.candidates is None
        # IS NOT DISTINCT FROM uses no index in PostgreSQL: it looks up candidates by key instead.
        equals = "=" if indexed else "IS NOT DISTINCT FROM"
        yield f"{table}.workspace {equals} {args.add(spec.workspace)}"
        yield f"{table}.state = {args.add(scanned.state)}"
        if not self._indexed_by and spec.candidates is None and table == "s":
            yield f"s.{index_condition(scanned.driver)}"
        names = COLUMNS.get(scanned.driver or "", ())
        for column, value in zip(names, scanned.values, strict=True):
            yield f"{table}.{column} = {args.add(value)}"

    def _position_condition(
        self, scanned: IndexRange, spec: PageSpec, args: _Arguments
    ) -> Iterable[str]:
        if spec.after is not None:
            time, id = _sort_columns(spec.query, scanned)
            sign = "<" if spec.descending else ">"
            yield f"({time}, {id}) {sign} ({args.add(spec.after.at)}, {args.add(spec.after.id)})"


class _Arguments:
    """Collect the arguments of a statement."""

    def __init__(self, *, numbered: bool) -> None:
        self._numbered = numbered
        self.values: list[Any] = []

    def add(self, value: Any) -> str:
        """Add an argument, and return its placeholder."""
        self.values.append(value)
        return f"${len(self.values)}" if self._numbered else "?"


def _time_bounds(query: Query, table: str, args: _Arguments) -> Iterable[str]:
    low, high = query.created_bounds()
    if low is not None:
        yield f"{table}.created_at >= {args.add(low)}"
        if query.order == "active":  # a session is never active before it is created
            yield f"{table}.active_at >= {args.add(low)}"
    if high is not None:
        yield f"{table}.created_at <= {args.add(high)}"
    if query.active_after is not None:
        yield f"{table}.active_at > {args.add(query.active_after)}"
    if query.active_before is not None:
        yield f"{table}.active_at < {args.add(query.active_before)}"


def _row_filters(row_filters: Filters, args: _Arguments) -> Iterable[str]:
    for name, options in row_filters.items():
        if name == "memory":
            (store,) = options[0]
            yield (
                "EXISTS (SELECT 1 FROM links m WHERE m.session = s.pk"
                f" AND m.store = {args.add(store)})"
            )
        elif name == "version":
            ((agent, version),) = options
            yield f"s.agent = {args.add(agent)}"
            yield f"s.version = {args.add(version)}"
        else:
            values = ", ".join(args.add(value) for (value,) in options)
            yield f"s.{name} IN ({values})"


def _candidate_condition(candidates: Condition | None, args: _Arguments) -> Iterable[str]:
    if candidates is not None:
        sql = candidates.sql
        for value in candidates.args:
            sql = sql.replace("?", args.add(value), 1)
        yield sql
