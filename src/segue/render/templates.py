"""The templates of what happened in a session, and how values are written in them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from segue.model import clock

from . import diffs, format, items
from .markdown import MAX_MARKDOWN, code, markdown, sendable, ticked
from .message_parts import split_blocks
from .project_names import is_project, project

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent
STYLES = HERE / "app.css"

# Pictures that are shown; anything else is a file to download.
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MAX_SHOWN = 6_000  # characters of one input or output that a page has; the rest is a click away


def environment(*directories: Path) -> Environment:
    """These templates, and those in further directories."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader([HERE / "templates", *directories]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        auto_reload=False,
    )
    made.filters |= {
        "ago": format.ago,
        "clock": format.time_of_day,
        "code": code,
        "count": format.count,
        "iso": clock.to_rfc3339,
        "markdown": markdown,
        "money": format.money,
        "project": project,
        "seconds": format.seconds,
        "sendable": sendable,
        "short": format.short,
        "stamp": format.stamp,
        "ticked": ticked,
    }
    made.globals |= {
        "PICTURES": PICTURES,
        "MAX_SHOWN": MAX_SHOWN,
        "MAX_TEXT": MAX_MARKDOWN,
        "change": diffs.change,
        "gave": items.gave,
        "given": items.given,
        "headline": items.headline,
        "first_line": items.first_line,
        "kind_of": items.kind_of,
        "remarks": items.REMARKS,
        "split_blocks": split_blocks,
        "is_project": is_project,
    }
    return made


@cache
def macros(name: str) -> Any:
    """A template's macros, to call one by one."""
    return environment().get_template(name).module
