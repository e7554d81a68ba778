"""The dashboard: what was done and what it cost, as plots that the server draws."""

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
SHOWN = 10  # models and projects with a bar of their own


class Bar(NamedTuple):
    """One value of a plot. `share` is its part of the largest one, from 0 to 100."""

    name: str
    title: str
    spent: UsageTotal
    tokens: int
    share: float


class Day(NamedTuple):
    date: str
    messages: int
    share: float


async def page(request: WebRequest) -> Response:
    days = request.number_param("days") or 30
    if days not in PERIODS:
        raise InvalidInput(f"days must be one of {', '.join(map(str, PERIODS))}")
    tally = await request.hub.sessions.stats(request.principal, days)
    counts = [tally.days.get(day, 0) for day in range(tally.since, tally.until + 1)]
    most = max(counts, default=0)
    plotted = [
        Day(format.date(day * clock.DAY), messages, 100 * messages / max(1, most))
        for day, messages in zip(range(tally.since, tally.until + 1), counts, strict=True)
    ]
    values: dict[str, Any] = {
        "tally": tally,
        "tokens": format.tokens(tally.total.usage),
        "days": plotted,
        "most": most,
        "period": days,
        "periods": PERIODS,
        "plots": [
            ("Tokens by model", "Model", _bars(tally.models)),
            ("Tokens by project", "Project", _named(_bars(_projects(tally.projects)))),
        ],
    }
    if request.from_script:
        return request.render_page("dashboard.html", **values)
    filters = await listing.filters_of(request)
    return request.render_page(
        "app.html", inner="dashboard.html", **await listing.sidebar(request, filters), **values
    )


def _projects(spent: Mapping[str, UsageTotal]) -> dict[str, UsageTotal]:
    """Directories, those that sessions have to themselves as one."""
    made: dict[str, UsageTotal] = {}
    for directory, each in spent.items():
        name = directory if project_names.is_project(directory) else "no project"
        _join(made.setdefault(name, UsageTotal()), each)
    return made


def _join(whole: UsageTotal, part: UsageTotal) -> None:
    whole.sessions += part.sessions
    whole.messages += part.messages
    whole.usage += part.usage
    whole.unpriced += part.unpriced


def _bars(spent: Mapping[str, UsageTotal]) -> list[Bar]:
    """The largest ones, and the rest as one."""
    ranked = sorted(spent.items(), key=lambda each: -format.tokens(each[1].usage))
    if len(ranked) > SHOWN:
        rest = UsageTotal()
        for _, each in ranked[SHOWN - 1 :]:
            _join(rest, each)
        ranked = [*ranked[: SHOWN - 1], (f"{len(ranked) - SHOWN + 1} others", rest)]
    sizes = [format.tokens(each.usage) for _, each in ranked]
    most = max(sizes, default=0)
    return [
        Bar(name or "not known", name, each, size, 100 * size / max(1, most))
        for (name, each), size in zip(ranked, sizes, strict=True)
    ]


def _named(bars: list[Bar]) -> list[Bar]:
    """Projects by the ends of their directories' paths."""
    names = project_names.unique_names([bar.title for bar in bars])
    return [bar._replace(name=names[bar.title] or bar.name) for bar in bars]
