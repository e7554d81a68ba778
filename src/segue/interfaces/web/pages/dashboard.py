"""The dashboard: activity, tokens and cost, as plots that the server draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.responses import Response

from segue.hub.sessions.stats import UsageTotal
from segue.interfaces.web.request import WebRequest
from segue.model import clock
from segue.model.errors import InvalidInput
from segue.render import format, project_names

from . import listing

PERIODS = {7: "7 days", 30: "30 days", 90: "90 days", 365: "a year"}
DEFAULT_PERIOD = 30
MAX_BARS = 10  # of models or projects; the last bar is the sum of the others


class Bar(NamedTuple):
    """One bar of a plot. `percent` is relative to the longest bar."""

    name: str
    title: str
    total: UsageTotal
    tokens: int
    percent: float


class Day(NamedTuple):
    """The messages of one day. `percent` is relative to the day with the most messages."""

    date: str
    messages: int
    percent: float


async def page(request: WebRequest) -> Response:
    """GET /dashboard"""
    period = request.number_param("days") or DEFAULT_PERIOD
    if period not in PERIODS:
        raise InvalidInput(f"days must be one of {', '.join(map(str, PERIODS))}, not {period}")
    stats = await request.hub.sessions.stats(request.principal, period)
    days = _days(stats.days, stats.since, stats.until)
    values: dict[str, Any] = {
        "stats": stats,
        "tokens": stats.total.usage.tokens,
        "days": days,
        "max_messages": max((day.messages for day in days), default=0),
        "period": period,
        "periods": PERIODS,
        "plots": [
            ("Tokens by model", "Model", _bars(stats.models)),
            ("Tokens by project", "Project", _name_projects(_bars(_by_project(stats.projects)))),
        ],
    }
    template, values = await listing.with_sidebar(request, "dashboard.html", values)
    return request.render_page(template, **values)


def _days(messages_by_day: Mapping[int, int], first: int, last: int) -> list[Day]:
    """Return every day of a period, also those without messages."""
    counts = {day: messages_by_day.get(day, 0) for day in range(first, last + 1)}
    maximum = max([1, *counts.values()])
    return [
        Day(format.date(day * clock.DAY), count, 100 * count / maximum)
        for day, count in counts.items()
    ]


def _by_project(by_directory: Mapping[str, UsageTotal]) -> dict[str, UsageTotal]:
    """Return the totals by project; all session directories together are "no project"."""
    totals: dict[str, UsageTotal] = {}
    for directory, total in by_directory.items():
        name = directory if project_names.is_project(directory) else "no project"
        totals.setdefault(name, UsageTotal()).merge(total)
    return totals


def _bars(totals: Mapping[str, UsageTotal]) -> list[Bar]:
    """Return the bars with the most tokens; the last one is the sum of all others."""
    ranked = sorted(totals.items(), key=lambda named: -named[1].usage.tokens)
    if len(ranked) > MAX_BARS:
        others = UsageTotal()
        for _, total in ranked[MAX_BARS - 1 :]:
            others.merge(total)
        ranked = [*ranked[: MAX_BARS - 1], (f"{len(ranked) - MAX_BARS + 1} others", others)]
    tokens = [total.usage.tokens for _, total in ranked]
    maximum = max(tokens, default=0)
    return [
        Bar(name or "not known", name, total, count, 100 * count / max(1, maximum))
        for (name, total), count in zip(ranked, tokens, strict=True)
    ]


def _name_projects(bars: list[Bar]) -> list[Bar]:
    """Return the bars of directories with the shortest names that are unique."""
    names = project_names.unique_names([bar.title for bar in bars])
    return [bar._replace(name=names[bar.title] or bar.name) for bar in bars]
