"""The templates, and how values are written in them."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...model import clock
from ...model.event import Usage
from ...model.spoken import pieces
from . import diffs, items
from .markdown import MAX_MARKDOWN, code, markdown, sendable, ticked
from .places import is_project, project

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent
STATIC = HERE / "static"

# Pictures that are shown; anything else is a file to download.
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MAX_SHOWN = 6_000  # characters of one input or output that a page has; the rest is a click away


@cache
def environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        auto_reload=False,
    )
    made.filters |= {
        "ago": ago,
        "clock": time_of_day,
        "code": code,
        "count": count,
        "iso": clock.to_rfc3339,
        "markdown": markdown,
        "money": money,
        "project": project,
        "seconds": seconds,
        "sendable": sendable,
        "short": short,
        "stamp": stamp,
        "ticked": ticked,
    }
    made.globals |= {
        "PICTURES": PICTURES,
        "MAX_SHOWN": MAX_SHOWN,
        "MAX_TEXT": MAX_MARKDOWN,
        "static": f"/static/{version()}",
        "change": diffs.change,
        "gave": items.gave,
        "given": items.given,
        "headline": items.headline,
        "first_line": items.first_line,
        "kind_of": items.kind_of,
        "remarks": items.REMARKS,
        "pieces_of": pieces,
        "is_project": is_project,
    }
    return made


def render(name: str, **values: Any) -> str:
    rendered: str = environment().get_template(name).render(**values)
    return rendered


@cache
def macros(name: str) -> Any:
    """A template's macros, to call one by one."""
    return environment().get_template(name).module


@cache
def version() -> str:
    """Another one whenever a file in `static` is another, so that browsers keep them for good."""
    digest = hashlib.sha256()
    for path in sorted(STATIC.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


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
