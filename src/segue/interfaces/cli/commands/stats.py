"""`segue stats`: how many sessions, messages, tokens and dollars, by day, agent or project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from segue.hub.sessions.stats import UsageTotal
from segue.interfaces.cli.main import Where, located
from segue.interfaces.cli.output.formats import formatted, write_rows
from segue.interfaces.cli.output.pager import paged
from segue.interfaces.cli.output.text import one_line, tilde
from segue.model import clock
from segue.model.query import Query

from .list import filtered, pages, say_more

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.model.principal import Principal
    from segue.model.session import Session

_BY_TIME = {"day": 10, "month": 7}  # characters of a date
_BAR = 16
_EIGHTHS = " ▏▎▍▌▋▊▉"


def _fields(total: UsageTotal) -> dict[str, Any]:
    used = total.usage
    return {
        "sessions": total.sessions,
        "messages": total.messages,
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "cache_read_tokens": used.cache_read_tokens,
        "cost": used.cost / 1e6 if used.is_priced else None,
        "unpriced_sessions": total.unpriced,
    }


@click.command("stats")
@click.option(
    "--by",
    type=click.Choice(["day", "month", "agent", "project", "source"]),
    default="day",
    show_default=True,
    help="What to count by. A session counts on the day it was begun.",
)
@click.option("-n", "--limit", default=30, show_default=True, help="How many rows.")
@filtered
@paged
@formatted
@located
def stats_command(where: Where, query: Query, by: str, limit: int, format: str | None) -> None:
    """Count sessions, messages, tokens and cost, as a table with a small chart.

    Example: segue stats --by project --since 30d
    """
    wanted = replace(query, order="created")

    async def count(hub: Hub, principal: Principal) -> dict[str, UsageTotal]:
        totals: dict[Any, UsageTotal] = {}
        async for page in pages(hub, principal, wanted):
            for session in page.sessions:
                total = totals.setdefault(_group(session, by), UsageTotal())
                total.add(session.usage, session.messages)
        used = {id for id in totals if by == "agent" and id is not None}
        names = await hub.records.agent_names(principal.workspace, used)
        named: dict[str, UsageTotal] = {}
        for group, total in totals.items():
            named.setdefault(_named(group, by, names), UsageTotal()).merge(total)
        return named

    totals = where.read(count)
    rows = sorted(totals.items(), reverse=True)
    if by not in _BY_TIME:
        rows.sort(key=lambda row: -row[1].sessions)
    left, rows = rows[limit:], rows[:limit]
    if format is not None:
        shown = [{by: name, **_fields(total)} for name, total in rows]
        write_rows(format, ((row, row) for row in shown))
    elif not rows:
        click.echo("No sessions to count.", err=True)
    else:
        _show(by, rows)
        if left:
            say_more(len(rows), f"--limit shows the other {len(left)}")


def _group(session: Session, by: str) -> Any:
    """What a session is counted under: quick to tell, for there may be many."""
    if by in _BY_TIME:
        return session.created_at // clock.DAY
    if by == "agent":
        return None if session.agent is None else session.agent.id
    return session.directory if by == "project" else session.source


def _named(group: Any, by: str, agents: dict[str, str]) -> str:
    """The same as people call it."""
    if by in _BY_TIME:
        return clock.to_rfc3339(group * clock.DAY)[: _BY_TIME[by]]
    return "none" if group is None else agents.get(group, str(group))


def _show(by: str, rows: list[tuple[str, UsageTotal]]) -> None:
    from rich.table import Table

    from segue.interfaces.cli.output.tables import columns, show
    from segue.interfaces.cli.output.width import fit_end, width

    most = max(total.sessions for _, total in rows)
    headings = ("sessions", "messages", "tokens in", "out", "cost")
    numbers = [_numbers(total) for _, total in rows]
    widths = [max(map(len, column)) for column in zip(headings, *numbers, strict=True)]
    # The numbers are shown whole. First the bar gives way, then the name: its end tells most.
    room = max(6, columns() - sum(widths) - len("  ") * len(widths))
    names = [fit_end(one_line(tilde(name)), room) for name, _ in rows]
    longest = max(map(width, (by, *names)))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(by, no_wrap=True, min_width=longest)
    for heading, size in zip(headings, widths, strict=True):
        table.add_column(heading, justify="right", no_wrap=True, min_width=size)
    bars = room - longest > len("  ")
    if bars:
        table.add_column("", style="cyan", no_wrap=True, overflow="crop")
    for name, row, (_, total) in zip(names, numbers, rows, strict=True):
        table.add_row(name, *row, *[bar(total.sessions, most)] * bars)
    show(table)


def _numbers(total: UsageTotal) -> tuple[str, ...]:
    usage = total.usage
    read = usage.input_tokens + usage.cache_read_tokens
    read += usage.cache_5m_tokens + usage.cache_1h_tokens
    counts = (total.sessions, total.messages, read, usage.output_tokens)
    cost = f"${usage.cost / 1e6:,.2f}" if usage.is_priced else "unknown"
    more = ">" if total.unpriced and usage.cost else ""  # of some sessions it is not known
    return (*(f"{count:,}" for count in counts), f"{more}{cost}")


def bar(value: int, most: int) -> str:
    """A bar as long as the value's share of the largest one, to an eighth of a character."""
    eighths = round(value * _BAR * 8 / most)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).strip()
