"""The dashboard: what a period cost, by project, model or tool, and its activity.

Each group links to its sessions. Both are also CSV files.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.responses import Response

from segue.hub.sessions.stats import SessionUsage, UsageStats, UsageTotal, chart_measure
from segue.hub.tools import label
from segue.interfaces.web.request import WebRequest
from segue.model import clock
from segue.model.ansi import csv_cell
from segue.model.errors import InvalidInput
from segue.model.event import Usage
from segue.render import format, project_names

from . import listing

PERIODS = {7: "7 days", 30: "30 days", 90: "90 days", 365: "a year"}
DIMENSIONS = {"project": "Project", "model": "Model", "tool": "Tool"}
MAX_BARS = 10  # of one plot; the last bar is the sum of the others
MAX_STACKED = 7  # groups with a colour of their own in the plot by day
MAX_SESSIONS = 100  # on the page
MAX_CSV_SESSIONS = 10_000
MAX_DAYS = 3660
_EPOCH = date(1970, 1, 1)


class Period(NamedTuple):
    """The days of a page, counted from 1970, both included, and the query that selects them."""

    since: int
    until: int
    query: Mapping[str, str]


class Bar(NamedTuple):
    """One group. `percent` is relative to the largest one; `key` is None for the others' sum."""

    name: str
    title: str
    key: str | None
    total: UsageTotal
    percent: float
    color: int


class Day(NamedTuple):
    """The messages of one day, and the cost of each group: its colour, bottom, height and text.

    Heights are percentages of the day with the most.
    """

    date: str
    messages: int
    percent: float
    stack: list[tuple[int, float, float, str]]


async def page(request: WebRequest) -> Response:
    """GET /dashboard"""
    period = _period(request)
    dimension = _dimension(request)
    key = request.http.query_params.get("name")
    stats = await _read(request, period, dimension, key, MAX_SESSIONS)
    bars = _bars(_by_key(dimension, stats.totals), dimension)
    days = _days(stats, dimension, bars)
    values: dict[str, Any] = {
        "stats": stats,
        "days": days,
        "max_messages": max((day.messages for day in days), default=0),
        "max_cost": _max_cost(stats, dimension),
        "period": period,
        "periods": PERIODS,
        "this_month": _month_query(0),
        "last_month": _month_query(-1),
        "dates": (_iso(period.since), _iso(period.until)),
        "dimension": dimension,
        "dimensions": DIMENSIONS,
        "bars": bars,
        "selected_key": key,
        "selected_name": None if key is None else _name(dimension, key),
        "query": lambda **changes: _query(period.query, dimension, **changes),
        "query_for": _query,
        "shown_usage": shown_usage,
        "tool_label": label,
    }
    template, values = await listing.with_sidebar(request, "dashboard.html", values)
    return request.render_page(template, **values)


async def csv_file(request: WebRequest) -> Response:
    """GET /dashboard.csv: the groups; with `name`, the sessions of one group."""
    period, dimension = _period(request), _dimension(request)
    key = request.http.query_params.get("name")
    stats = await _read(request, period, dimension, key, MAX_CSV_SESSIONS)
    head: tuple[str, ...]
    rows: list[tuple[object, ...]]
    if key is None:
        bars = _bars(_by_key(dimension, stats.totals), dimension, limit=None)
        head = (dimension, "sessions", "messages", *_USAGE_COLUMNS)
        rows = [
            (
                bar.title or bar.name,
                bar.total.sessions,
                bar.total.messages,
                *_usage(bar.total.usage),
            )
            for bar in bars
        ]
    else:
        head = ("session", "title", "project", "tool", "last_active", "messages", *_USAGE_COLUMNS)
        rows = [_session_cells(used, dimension, key) for used in stats.sessions]
    file_name = f"segue-{_iso(period.since)}-{_iso(period.until)}-{dimension}.csv"
    return Response(
        _csv([head, *rows]),
        media_type="text/csv; charset=utf-8",
        headers={"content-disposition": f'attachment; filename="{file_name}"'},
    )


_USAGE_COLUMNS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cost_usd",
    "estimated_cost_usd",
)


def _usage(usage: Usage) -> tuple[object, ...]:
    """Return the cells of a row's usage; the cost is empty if it is not known."""
    return (
        usage.input_tokens or 0,
        usage.output_tokens or 0,
        usage.cache_read_tokens or 0,
        usage.cache_write_tokens or 0,
        "" if usage.cost is None else f"{usage.cost / 1e6:.6f}",
        f"{(usage.estimated_cost or 0) / 1e6:.6f}",
    )


def _session_cells(used: SessionUsage, dimension: str, key: str) -> tuple[object, ...]:
    session = used.session
    return (
        session.id,
        session.title or "",
        session.directory if project_names.is_project(session.directory) else "",
        session.source,
        clock.to_rfc3339(session.active_at),
        used.messages,
        *_usage(shown_usage(used, dimension, key)),
    )


def _csv(rows: Iterable[Sequence[object]]) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    for row in rows:
        writer.writerow([csv_cell(str(cell)) for cell in row])
    return out.getvalue().encode("utf-8", "backslashreplace")


async def _read(
    request: WebRequest, period: Period, dimension: str, key: str | None, max_sessions: int
) -> UsageStats:
    def is_shown(used: SessionUsage) -> bool:
        if key is None:
            return True
        return key in used.models if dimension == "model" else _key(dimension, used) == key

    return await request.hub.sessions.stats(
        request.principal,
        period.since,
        period.until,
        request.hub.history.events,
        include=is_shown,
        max_sessions=max_sessions,
    )


def shown_usage(used: SessionUsage, dimension: str, key: str | None) -> Usage:
    """Return what a session used of the selected model, or all that it used."""
    if dimension == "model" and key is not None and key in used.models:
        return used.models[key]
    return used.usage


def _key(dimension: str, used: SessionUsage) -> str:
    if dimension == "tool":
        return used.session.source
    directory = used.session.directory
    return directory if project_names.is_project(directory) else ""


# Periods.


def _period(request: WebRequest) -> Period:
    """Return the requested period; without one, this month. Raises InvalidInput."""
    today = clock.now() // clock.DAY
    if days := request.number_param("days"):
        if days not in PERIODS:
            raise InvalidInput(f"days must be one of {', '.join(map(str, PERIODS))}, not {days}")
        return Period(today - days + 1, today, {"days": str(days)})
    first, last = request.param("from"), request.param("to")
    if first or last:
        since = _parse_date(first) if first else 0
        until = _parse_date(last) if last else today
        since = since if first else max(0, until - 29)
        if not since <= until < since + MAX_DAYS:
            raise InvalidInput(f"the days {first} to {last} are not a period of up to ten years")
        return Period(since, until, {"from": _iso(since), "to": _iso(until)})
    month = request.param("month")
    return _month(month or _iso(today)[:7], {"month": month} if month else {})


def _month(text: str, query: Mapping[str, str]) -> Period:
    since = _parse_date(f"{text}-01")
    year, month = map(int, text.split("-"))
    following = date(year + month // 12, month % 12 + 1, 1)
    until = (following - _EPOCH).days - 1
    return Period(since, min(until, max(since, clock.now() // clock.DAY)), query)


def _month_query(offset: int) -> Mapping[str, str]:
    """Return the query of this month, or of the one before (`offset` -1)."""
    today = datetime.fromtimestamp(clock.now() / clock.SECOND, UTC)
    number = today.year * 12 + today.month - 1 + offset
    return {"month": f"{number // 12:04}-{number % 12 + 1:02}"} if offset else {}


def _parse_date(text: str) -> int:
    try:
        return (date.fromisoformat(text) - _EPOCH).days
    except ValueError:
        raise InvalidInput(f"{text!r} is not a day; write it as 2026-01-31") from None


def _iso(day: int) -> str:
    return clock.to_rfc3339(day * clock.DAY)[:10]


def _dimension(request: WebRequest) -> str:
    dimension = request.param("by", "project")
    if dimension not in DIMENSIONS:
        raise InvalidInput(f"by must be one of {', '.join(DIMENSIONS)}, not {dimension!r}")
    return dimension


def _query(period: Mapping[str, str], dimension: str, **changes: str) -> str:
    """Return the query string of a page of a period."""
    values = {**period, "by": dimension, **changes}
    if values["by"] == "project":
        del values["by"]
    return f"?{urlencode(values, errors='replace')}" if values else ""


# Groups.


def _by_key(
    dimension: str, totals: Mapping[str, Mapping[str, UsageTotal]]
) -> dict[str, UsageTotal]:
    """Return the totals by key; all session directories together have the key ""."""
    by_key: dict[str, UsageTotal] = {}
    for name, total in totals.get(_stats_dimension(dimension), {}).items():
        key = "" if dimension == "project" and not project_names.is_project(name) else name
        by_key.setdefault(key, UsageTotal()).merge(total)
    return by_key


def _stats_dimension(dimension: str) -> str:
    return "source" if dimension == "tool" else dimension


def _name(dimension: str, key: str) -> str:
    if dimension == "tool":
        return label(key)
    if dimension == "model":
        return key or "not known"
    return project_names.project_name(key) if key else "no project"


def _bars(
    totals: Mapping[str, UsageTotal], dimension: str, limit: int | None = MAX_BARS
) -> list[Bar]:
    """Return the groups with the highest cost; the last one is the sum of all others."""
    ranked = sorted(totals.items(), key=lambda named: named[1].size, reverse=True)
    others: UsageTotal | None = None
    if limit is not None and len(ranked) > limit:
        others = UsageTotal()
        for _, total in ranked[limit - 1 :]:
            others.merge(total)
        left_out, ranked = len(ranked) - limit + 1, ranked[: limit - 1]
    index = chart_measure(total for _, total in ranked)
    maximum = max([1, *(total.size[index] for _, total in ranked)])
    names = {key: _name(dimension, key) for key, _ in ranked}
    if dimension == "project":
        names |= project_names.unique_names([key for key, _ in ranked if key])
    bars = [
        Bar(
            names[key],
            key,
            key,
            total,
            100 * total.size[index] / maximum,
            min(number, MAX_STACKED),
        )
        for number, (key, total) in enumerate(ranked)
    ]
    if others is not None:
        percent = min(100.0, 100 * others.size[index] / maximum)
        bars.append(Bar(f"{left_out} others", "", None, others, percent, MAX_STACKED))
    return bars


# Days.


def _days(stats: UsageStats, dimension: str, bars: Sequence[Bar]) -> list[Day]:
    """Return every day of the period, also those without messages."""
    costs = _costs_by_key(stats, dimension)
    colors = {bar.key: bar.color for bar in bars}
    max_messages = max([1, *stats.days.values()])
    max_cost = _max_cost(stats, dimension)
    days = []
    for day in range(stats.since, stats.until + 1):
        stack, bottom = [], 0.0
        by_color: dict[int, list[tuple[float, str]]] = {}
        for key, by_day in costs.items():
            if cost := by_day.get(day):
                color = colors.get(key, MAX_STACKED)
                by_color.setdefault(color, []).append((cost, _name(dimension, key)))
        for color, parts in sorted(by_color.items()):
            cost = sum(cost for cost, _ in parts)
            name = parts[0][1] if len(parts) == 1 else f"{len(parts)} others"
            height = 100 * cost / max_cost
            stack.append((color, bottom, height, f"{name}: {format.money(round(cost))}"))
            bottom += height
        messages = stats.days.get(day, 0)
        date_text = format.date(day * clock.DAY)
        days.append(Day(date_text, messages, 100 * messages / max_messages, stack))
    return days


def _costs_by_key(stats: UsageStats, dimension: str) -> dict[str, dict[int, float]]:
    costs: dict[str, dict[int, float]] = {}
    for name, by_day in stats.costs.get(_stats_dimension(dimension), {}).items():
        key = "" if dimension == "project" and not project_names.is_project(name) else name
        merged = costs.setdefault(key, {})
        for day, cost in by_day.items():
            merged[day] = merged.get(day, 0) + cost
    return costs


def _max_cost(stats: UsageStats, dimension: str) -> float:
    """Return the cost of the most expensive day; 0 if no cost is known."""
    by_day: dict[int, float] = {}
    for costs in stats.costs.get(_stats_dimension(dimension), {}).values():
        for day, cost in costs.items():
            by_day[day] = by_day.get(day, 0) + cost
    return max(by_day.values(), default=0.0)
