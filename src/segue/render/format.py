"""Format numbers and times for people, and cells of their tables."""

from __future__ import annotations

from datetime import UTC, datetime

from segue.model import clock
from segue.model.event import Usage
from segue.model.session import Session


def title(session: Session) -> str:
    """Return a session's title, or that it has none."""
    return session.title or "Untitled"


def ago(at: int, now: int | None = None) -> str:
    """Return how long ago a time was, such as `5m` or `3d`."""
    seconds = max(0, ((clock.now() if now is None else now) - at) // clock.SECOND)
    for size, unit in ((86_400 * 365, "y"), (86_400 * 30, "mo"), (86_400, "d"), (3600, "h")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds // 60}m" if seconds >= 60 else "now"


def time_of_day(at: int) -> str:
    """Return a time such as `14:05`, in UTC."""
    return _to_datetime(at).strftime("%H:%M")


def date(at: int) -> str:
    """Return a date such as `7 Mar 2026`."""
    moment = _to_datetime(at)
    return f"{moment.day} {moment:%b %Y}"


def stamp(at: int) -> str:
    """Return a date and time such as `7 Mar 2026, 14:05 UTC`."""
    moment = _to_datetime(at)
    return f"{moment.day} {moment:%b %Y, %H:%M} UTC"


def _to_datetime(at: int) -> datetime:
    return datetime.fromtimestamp(at / clock.SECOND, UTC)


def count(number: int) -> str:
    """Return a number with separators, such as `12,345`."""
    return f"{number:,}"


def short(number: float) -> str:
    """Return a rounded number such as `12.3k`."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            value = number / size
            return f"{value:.0f}{unit}" if value >= 100 else f"{value:.1f}{unit}"
    return f"{number:.0f}"


def money(micros: int | None) -> str:
    """Return millionths of a US dollar as dollars, such as `$1.50`."""
    dollars = (micros or 0) / 1e6
    return f"${dollars:,.2f}" if dollars >= 0.1 or not micros else f"${dollars:.4f}"


def cost(usage: Usage, *, full: bool = True) -> str:
    """Return a cost such as `$1.50`, or `≈ $1.50` if a part of it is estimated.

    It is `no price` if no cost is known, and empty if no tokens were used. Unless it is `full`,
    the cost of some tokens is not known: `≈ $1.50 + no price`.
    """
    if usage.cost is None:
        return "no price" if usage.tokens else ""
    text = f"{'≈ ' if usage.estimated_cost else ''}{money(usage.cost)}"
    return text if full else f"{text} + no price"


def session_cost(session: Session) -> str:
    """Return the cost of a session."""
    return cost(session.usage, full=session.has_full_cost)


def seconds(micros: int) -> str:
    """Return a duration such as `1.5s`, `2m 5s` or `1h 4m`."""
    value = micros / clock.SECOND
    if value >= 3600:
        return f"{value // 3600:.0f}h {value % 3600 // 60:.0f}m"
    if value >= 60:
        return f"{value // 60:.0f}m {value % 60:.0f}s"
    return f"{value:.1f}s" if value >= 0.1 else f"{value * 1000:.0f}ms"
