"""Load the Jinja templates for sessions, with the filters and globals that they use."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from segue.model import clock
from segue.model.content import Audio, Image

from . import format, items
from .diffs import file_diff, is_new_file
from .markdown import MAX_MARKDOWN_CHARACTERS, code, format_backticks, markdown, sendable
from .message_parts import split_blocks
from .project_names import is_project, project_name

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent
STYLES = HERE / "app.css"

# Image types that browsers show; other files are downloads.
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MAX_TOOL_CHARACTERS = 6_000  # of one input or output on a page, which links to the rest


_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")


def can_embed(block: Image | Audio) -> bool:
    """Return whether a standalone page can embed a block: a picture that is valid base64."""
    return block.mime in PICTURES and _BASE64.fullmatch(block.data or "") is not None


def environment(*directories: Path) -> Environment:
    """Return an environment with these templates and those in further directories."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([HERE / "templates", *directories]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        auto_reload=False,
    )
    environment.filters |= {
        "ago": format.ago,
        "clock": format.time_of_day,
        "code": code,
        "cost": format.cost,
        "count": format.count,
        "iso": clock.to_rfc3339,
        "markdown": markdown,
        "session_cost": format.session_cost,
        "project": project_name,
        "seconds": format.seconds,
        "sendable": sendable,
        "short": format.short,
        "stamp": format.stamp,
        "to_json": items.to_json,
        "format_backticks": format_backticks,
    }
    environment.globals |= {
        "PICTURES": PICTURES,
        "can_embed": can_embed,
        "MAX_TOOL_CHARACTERS": MAX_TOOL_CHARACTERS,
        "MAX_MARKDOWN_CHARACTERS": MAX_MARKDOWN_CHARACTERS,
        "file_diff": file_diff,
        "is_new_file": is_new_file,
        "call_parts": items.call_parts,
        "result_parts": items.result_parts,
        "headline": items.headline,
        "outline_line": items.outline_line,
        "event_label": items.event_label,
        "inserted_labels": items.INSERTED_LABELS,
        "split_blocks": split_blocks,
        "is_project": is_project,
    }
    return environment


@cache
def macros(name: str) -> Any:
    """Return a template's macros as callable attributes."""
    return environment().get_template(name).module
