"""Numbers and times, as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

from segue.model import clock
from segue.model.event import Usage


def ago(at: int, now: int | None = None) -> str:
    """How long ago, as shortly as a list has room for."""
    seconds = max(0, ((clock.now() if now is None else now) - at) // clock.SECOND)
    for size, unit in ((86_400 * 365, "y"), (86_400 * 30, "mo"), (86_400, "d"), (3600, "h")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds // 60}m" if seconds >= 60 else "now"


def time_of_day(at: int) -> str:
    return _moment(at).strftime("%H:%M")


def date(at: int) -> str:
    moment = _moment(at)
    return f"{moment.day} {moment:%b %Y}"


def stamp(at: int) -> str:
    moment = _moment(at)
    return f"{moment.day} {moment:%b %Y, %H:%M} UTC"


def _moment(at: int) -> datetime:
    return datetime.fromtimestamp(at / clock.SECOND, UTC)


def count(number: int) -> str:
    return f"{number:,}"


def short(number: float) -> str:
    """A number of tokens, rounded to what one wants to know."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            value = number / size
            return f"{value:.0f}{unit}" if value >= 100 else f"{value:.1f}{unit}"
    return f"{number:.0f}"


def money(micros: int) -> str:
    dollars = micros / 1e6
    return f"${dollars:,.2f}" if dollars >= 0.1 or not micros else f"${dollars:.4f}"


def tokens(usage: Usage) -> int:
    """All that went through a model, cached or not."""
    cached = usage.cache_read_tokens + usage.cache_5m_tokens + usage.cache_1h_tokens
    return usage.input_tokens + usage.output_tokens + cached


def seconds(micros: int) -> str:
    value = micros / clock.SECOND
    if value >= 60:
        return f"{value // 60:.0f}m {value % 60:.0f}s"
    return f"{value:.1f}s" if value >= 0.1 else f"{value * 1000:.0f}ms"
