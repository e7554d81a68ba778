"""Format numbers and times for people."""

from __future__ import annotations

from datetime import UTC, datetime

from segue.model import clock


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


def seconds(micros: int) -> str:
    """Return a duration such as `1.5s` or `2m 5s`."""
    value = micros / clock.SECOND
    if value >= 60:
        return f"{value // 60:.0f}m {value % 60:.0f}s"
    return f"{value:.1f}s" if value >= 0.1 else f"{value * 1000:.0f}ms"
