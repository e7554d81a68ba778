"""A Query as SQL, for both databases.

Every list walks an index that has the filter, the order and the tie-breaking id in that sequence,
from a position on: its cost is the page. A filter with several values, or several shelves, is one
arm each, merged in order by the database. Of several filters one drives (its index is walked) and
the others are checked row by row.
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

MAX_ARMS = 100  # of a state; SQLite merges at most 500 in all

Values = tuple[Any, ...]
Filters = dict[str, list[Values]]  # driver → the values of its columns, any of which will do


class Arm(NamedTuple):
    """One range of one index."""

    state: int
    driver: str | None
    values: Values
    others: Filters


class Statement(NamedTuple):
    sql: str
    args: list[Any]


def columns(session: Session) -> dict[str, Any]:
    """The indexed columns of a session's row."""
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
    }


def filters(query: Query, state: SessionState) -> Filters | None:
    """What must hold of rows on a state; None when nothing there can match."""
    found: Filters = {}
    if query.memory_store_id is not None:
        found["memory"] = [(query.memory_store_id,)]
    if query.deployment_id is not None:
        found["deployment"] = [(query.deployment_id,)]
    if query.tag is not None:
        found["tag"] = [(codec.key(query.tag),)]
    if query.agent_id is not None:
        if query.agent_version is not None:
            found["version"] = [(query.agent_id, query.agent_version)]
        else:
            found["agent"] = [(query.agent_id,)]
    if query.directories:
        found["cwd"] = [(codec.key(path),) for path in dict.fromkeys(query.directories)]
    if query.source is not None:
        found["source"] = [(query.source,)]
    if query.statuses:
        if state == "archived" and query.archived_as is not None:
            if query.archived_as not in query.statuses:
                return None
        else:
            found["status"] = [(status,) for status in dict.fromkeys(query.statuses)]
    return found


def arms(query: Query, choose: Callable[[int, Filters], str] | None = None) -> list[Arm]:
    """The index ranges that a query walks. `choose` picks the driver of several filters."""
    found = []
    for state in query.states():
        wanted = filters(query, state)
        if wanted is None:
            continue
        number = STATE_CODES[state]
        driver = None
        # So many directories that a statement of as many arms would be refused are checked instead.
        able = {name: values for name, values in wanted.items() if len(values) <= MAX_ARMS}
        if able:
            usual = next(name for name in DRIVERS if name in able)
            driver = choose(number, able) if choose and len(able) > 1 else usual
        others = {name: values for name, values in wanted.items() if name != driver}
        options: list[Values] = wanted[driver] if driver else [()]
        found += [Arm(number, driver, values, others) for values in options]
    return found


def checks(query: Query) -> list[Arm]:
    """The same without an index to walk, for candidates that are looked up row by row."""
    found = [(STATE_CODES[state], filters(query, state)) for state in query.states()]
    return [Arm(state, None, (), wanted) for state, wanted in found if wanted is not None]


def named(driver: str | None) -> str:
    """The condition that names a driver's index where SQL has no other way; it always holds."""
    return f"status <> 'by {driver or 'time'}'"


def _keys(query: Query, arm: Arm) -> tuple[str, str]:
    """The columns that an arm is in the order of."""
    table = "l" if arm.driver == "memory" else "s"
    return f"{table}.{query.order}_at", f"{table}.id"


class Builder:
    """Writes statements with one database's placeholders."""

    def __init__(self, *, numbered: bool, indexed_by: bool) -> None:
        self._numbered = numbered
        self._indexed_by = indexed_by

    def page(
        self,
        workspace: str,
        query: Query,
        found: Sequence[Arm],
        after: Position | None,
        backward: bool,
        limit: int | None,
        select: str = "s.row",
        among: tuple[str, list[Any]] | None = None,
        spare: bool = False,
    ) -> Statement:
        """Rows `(time, id, select…)` of all arms, merged in order.

        `among` is one more condition, as SQL and its arguments. `spare` leaves out time and id
        where nothing has to be merged by them.
        """
        args: list[Any] = []
        down = query.descending != backward
        direction = "DESC" if down else "ASC"
        time, id = "1", "2"
        if spare := spare and len(found) == 1:
            time, id = _keys(query, found[0])
        order = f" ORDER BY {time} {direction}, {id} {direction}"
        parts = [
            self._arm(workspace, query, arm, after, down, select, among, args, spare)
            for arm in found
        ]
        if len(parts) > 1 and not self._indexed_by:
            # PostgreSQL merges what is in order; what is not, it would not think of sorting alone.
            parts = [f"({part}{order})" for part in parts]
        sql = " UNION ALL ".join(parts) + order
        if limit is not None:
            sql += f" LIMIT {self._arg(args, limit)}"
        return Statement(sql, args)

    def _arm(
        self,
        workspace: str,
        query: Query,
        arm: Arm,
        after: Position | None,
        down: bool,
        select: str,
        among: tuple[str, list[Any]] | None,
        args: list[Any],
        spare: bool,
    ) -> str:
        time, id = _keys(query, arm)
        links = arm.driver == "memory"
        table = "l" if links else "s"
        index = ""
        if self._indexed_by:
            # A set of candidates is looked up by row; an index walk is named, and must be possible.
            index = f" INDEXED BY {'links' if links else 'sessions'}_"
            index += f"{arm.driver}_{query.order}" if arm.driver and not links else query.order
            index = index if among is None else " NOT INDEXED"
        source = f"sessions s{index}"
        if links:
            join = "CROSS JOIN" if self._indexed_by else "JOIN"
            source = f"links l{index} {join} sessions s ON s.pk = l.session"
        # No index of PostgreSQL's answers this: candidates are not to be found by workspace.
        equals = "=" if self._indexed_by or among is None else "IS NOT DISTINCT FROM"
        where = [
            f"{table}.workspace {equals} {self._arg(args, workspace)}",
            f"{table}.state = {self._arg(args, arm.state)}",
        ]
        if not self._indexed_by and among is None and not links:
            where.append(f"s.{named(arm.driver)}")
        where += [
            f"{table}.{column} = {self._arg(args, value)}"
            for column, value in zip(COLUMNS.get(arm.driver or "", ()), arm.values, strict=True)
        ]
        if after is not None:
            sign = "<" if down else ">"
            spot = f"({self._arg(args, after.at)}, {self._arg(args, after.id)})"
            where.append(f"({time}, {id}) {sign} {spot}")
        where += self._bounds(query, table, args)
        where += self._others(arm.others, args)
        if among is not None:
            condition, values = among
            for value in values:
                condition = condition.replace("?", self._arg(args, value), 1)
            where.append(condition)
        select = select if spare else f"{time}, {id}, {select}"
        return f"SELECT {select} FROM {source} WHERE {' AND '.join(where)}"

    def _bounds(self, query: Query, table: str, args: list[Any]) -> Iterable[str]:
        low, high = query.created_bounds()
        # The bound that is not the order's own is checked on the row, and must not tempt a planner.
        if low is not None:
            yield f"{table}.created_at >= {self._arg(args, low)}"
            if query.order == "active":
                yield f"{table}.active_at >= {self._arg(args, low)}"
        if high is not None:
            yield f"{table}.created_at <= {self._arg(args, high)}"
        if query.active_after is not None:
            yield f"{table}.active_at > {self._arg(args, query.active_after)}"

    def _others(self, others: Filters, args: list[Any]) -> Iterable[str]:
        for name, options in others.items():
            if name == "memory":
                (store,) = options[0]
                yield (
                    "EXISTS (SELECT 1 FROM links m WHERE m.session = s.pk"
                    f" AND m.store = {self._arg(args, store)})"
                )
                continue
            if name == "version":
                ((agent, version),) = options
                yield f"s.agent = {self._arg(args, agent)}"
                yield f"s.version = {self._arg(args, version)}"
                continue
            given = ", ".join(self._arg(args, value) for (value,) in options)
            yield f"s.{name} IN ({given})"

    def _arg(self, args: list[Any], value: Any) -> str:
        args.append(value)
        return f"${len(args)}" if self._numbered else "?"
