"""Count sessions, messages, tokens and cost: `segue stats`."""

from __future__ import annotations

from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from segue.hub.sessions.stats import (
    MEASURES,
    UsageTotal,
    chart_measure,
    own_messages,
    usage_by_model,
)
from segue.interfaces.cli.output.formats import format_option, write_rows
from segue.interfaces.cli.output.output_fields import cost_fields
from segue.interfaces.cli.output.pager import pager_option
from segue.interfaces.cli.output.text import one_line, tilde
from segue.interfaces.cli.target import Target, target_options
from segue.model import clock
from segue.model.query import Query
from segue.render import format as formats

from .list import filter_options, list_pages, show_more_hint

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.model.principal import Principal
    from segue.model.session import Session

_DATE_LENGTHS = {"day": 10, "month": 7}  # characters of an RFC 3339 time
_TIMES = (*_DATE_LENGTHS, "week")
_FIRST_DAY = date(1970, 1, 1).toordinal()
_BAR_COLUMNS = 16
_MIN_NAME_COLUMNS = 6
_GAP = "  "
_EIGHTHS = " ▏▎▍▌▋▊▉"
_TOTAL = "total"
_NONE = "none"  # the name of the group of sessions without a model or an agent
_HEADINGS = ("sessions", "messages", "tokens in", "out", "cost")
_DROPPED_FIRST = ("out", "tokens in", "messages", "sessions")


def _fields(total: UsageTotal) -> dict[str, Any]:
    usage = total.usage
    return {
        "sessions": total.sessions,
        "messages": total.messages,
        "input_tokens": usage.input_tokens or 0,
        "output_tokens": usage.output_tokens or 0,
        "cache_read_tokens": usage.cache_read_tokens or 0,
        **cost_fields(usage, full=not total.unpriced),
        "unpriced_sessions": total.unpriced,
    }


@click.command("stats")
@click.option(
    "--by",
    type=click.Choice(["day", "week", "month", "agent", "model", "project", "source"]),
    default="day",
    show_default=True,
    help="What to group by. A session counts on the day of its creation, and for each model that it"
    " used.",
)
@click.option("-n", "--limit", default=30, show_default=True, help="How many rows.")
@partial(filter_options, counts_archived=True)
@pager_option
@format_option
@target_options
def stats_command(target: Target, query: Query, by: str, limit: int, format: str | None) -> None:
    """Count sessions, messages, tokens and cost, as a table with a bar chart.

    The bars show the cost, or tokens if no cost is known. Archived sessions count, as they were
    paid for; --no-archived leaves them out. Messages that a fork has from its parent count once.

    Example: segue stats --by project --since 30d
    """
    created_order = replace(query, order="created")
    totals, total = target.read(lambda hub, principal: _count(hub, principal, created_order, by))
    rows = sorted(totals.items(), reverse=True)
    if by not in _TIMES:
        rows.sort(key=lambda row: row[1].size, reverse=True)
    hidden_rows, rows = rows[limit:], rows[:limit]
    if format is not None:
        fields = [{by: name, **_fields(total)} for name, total in rows]
        write_rows(format, ((row, row) for row in fields))
    elif not rows:
        click.echo("No sessions to count.", err=True)
    else:
        _show_table(by, rows, total)
        if total.usage.estimated_cost:
            note = "≈ is estimated from list prices; `segue doctor` shows their date"
            click.echo(click.style(note, dim=True), err=True)
    if hidden_rows:
        show_more_hint(len(rows), len(rows) + len(hidden_rows), "rows", "use --limit")


async def _count(
    hub: Hub, principal: Principal, query: Query, by: str
) -> tuple[dict[str, UsageTotal], UsageTotal]:
    """Return the totals of all sessions by the name of their group, and the total of all groups."""
    totals: dict[Any, UsageTotal] = {}
    sum_of_all = UsageTotal()
    async for page in list_pages(hub, principal, query):
        for session in page.sessions:
            sum_of_all.add(session)
            if by == "model":
                for model, usage in (usage_by_model(session) or {"": session.usage}).items():
                    total = totals.setdefault(model or None, UsageTotal())
                    total.add_model(usage, own_messages(session))
            else:
                totals.setdefault(_group_key(session, by), UsageTotal()).add(session)
    agent_ids = {key for key in totals if by == "agent" and key is not None}
    agent_names = await hub.records.agent_names(principal.workspace, agent_ids)
    by_name: dict[str, UsageTotal] = {}
    for key, total in totals.items():
        by_name.setdefault(_group_name(key, by, agent_names), UsageTotal()).merge(total)
    return by_name, sum_of_all


def _group_key(session: Session, by: str) -> Any:
    """Return a session's group. This is called for every session, so it must be fast."""
    if by in _TIMES:
        return session.created_at // clock.DAY
    if by == "agent":
        return None if session.agent is None else session.agent.id
    return session.directory if by == "project" else session.source


def _group_name(key: Any, by: str, agent_names: dict[str, str]) -> str:
    """Return the name of a group for people: a date, an agent's name, a directory."""
    if by == "week":
        year, week, _ = date.fromordinal(_FIRST_DAY + key).isocalendar()
        return f"{year}-W{week:02}"
    if by in _DATE_LENGTHS:
        return clock.to_rfc3339(key * clock.DAY)[: _DATE_LENGTHS[by]]
    return _NONE if key is None else agent_names.get(key, str(key))


def _show_table(by: str, rows: list[tuple[str, UsageTotal]], total: UsageTotal) -> None:
    """Print the totals, and in the last row that of all groups.

    A narrow terminal first drops the bars, then shortens the names, then drops counts.
    """
    from rich.table import Table

    from segue.interfaces.cli.output.tables import show, terminal_columns
    from segue.interfaces.cli.output.width import fit_end, width

    measure = chart_measure(group for _, group in rows)
    maximum = max(1, *(group.size[measure] for _, group in rows))
    cells = [_number_cells(group) for _, group in rows]
    total_cells = _number_cells(total)
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *cells, total_cells, strict=True)]
    shown = list(range(len(_HEADINGS)))
    for dropped in _DROPPED_FIRST:
        if _MIN_NAME_COLUMNS + sum(widths[i] + len(_GAP) for i in shown) > terminal_columns():
            shown.remove(_HEADINGS.index(dropped))
    available = terminal_columns() - sum(widths[i] + len(_GAP) for i in shown)
    name_columns = max(_MIN_NAME_COLUMNS, available)
    shown_names = [f"no {by}" if name == _NONE else one_line(tilde(name)) for name, _ in rows]
    names = [fit_end(name, name_columns) for name in shown_names]
    widest_name = max(map(width, (by, _TOTAL, *names)))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(by, no_wrap=True, min_width=widest_name)
    for i in shown:
        table.add_column(_HEADINGS[i], justify="right", no_wrap=True, min_width=widths[i])
    has_bars = name_columns - widest_name > len(_GAP)
    if has_bars:
        table.add_column(f"by {MEASURES[measure]}", style="cyan", no_wrap=True, overflow="crop")
    for name, numbers, (_, group) in zip(names, cells, rows, strict=True):
        bars = [bar(group.size[measure], maximum)] if has_bars else []
        table.add_row(name, *(numbers[i] for i in shown), *bars)
    table.add_row(_TOTAL, *(total_cells[i] for i in shown), style="bold")
    show(table)


def _number_cells(total: UsageTotal) -> tuple[str, ...]:
    usage = total.usage
    counts = (total.sessions, total.messages, usage.context_tokens, usage.output_tokens or 0)
    cost = formats.cost(usage, full=not total.unpriced) or "$0.00"
    return (*(f"{count:,}" for count in counts), cost)


def bar(value: int, maximum: int) -> str:
    """Return a bar for a value's share of the maximum, to an eighth of a character."""
    eighths = round(value * _BAR_COLUMNS * 8 / maximum)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).strip()
