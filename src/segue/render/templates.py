"""Load the Jinja templates for sessions, with the filters and globals that they use."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from segue.model import clock
from segue.model.content import Audio, Image
from segue.model.event import PlanEntry, ToolCall
from segue.model.tools.arguments import command_of

from . import format, items
from .message_parts import split_blocks
from .project_names import is_project, project_name
from .text.diffs import MAX_PAGE_LINES, file_diff, is_new_file, with_words
from .text.json_text import to_json
from .text.markdown import (
    MAX_MARKDOWN_CHARACTERS,
    code,
    format_backticks,
    markdown,
    sendable,
    terminal_output,
)
from .tools.bodies import end_of, split_output, tool_body
from .tools.rows import STEP_WORDS, plan_entries, tool_row
from .turns import opens

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent
STYLES = HERE / "transcript.css"

# Image types that browsers show; other files are downloads.
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MAX_TOOL_CHARACTERS = 6_000  # of one input or output on a page, which links to the rest


_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")


def can_embed(block: Image | Audio) -> bool:
    """Return whether a standalone page can embed a block: a picture that is valid base64."""
    return block.mime in PICTURES and _BASE64.fullmatch(block.data or "") is not None


def _line_numbers(text: str, first: int) -> str:
    """Return the numbers of a text's lines, one on each line."""
    return "\n".join(map(str, range(first, first + text.count("\n") + 1)))


def _plan_items(call: ToolCall) -> list[PlanEntry]:
    """Return the steps that a call plans. A status that no plan has is shown as pending."""
    known = {"completed": "completed", "done": "completed", "in_progress": "in_progress"}
    return [
        PlanEntry(content=text, status=known.get(status, "pending"))  # type: ignore[arg-type]
        for text, status in plan_entries(call)
    ]


def _unknown_call(call_id: str) -> ToolCall:
    """Return a stand-in for the missing call of a result."""
    return ToolCall(call_id=call_id, name="Result")


_FILTERS: dict[str, Any] = {
    "ago": format.ago,
    "clock": format.time_of_day,
    "code": code,
    "cost": format.cost,
    "count": format.count,
    "iso": clock.to_rfc3339,
    "markdown": markdown,
    "money": format.money,
    "session_cost": format.session_cost,
    "session_title": lambda session: sendable(format.title(session)),
    "project": project_name,
    "seconds": format.seconds,
    "sendable": sendable,
    "short": format.short,
    "stamp": format.stamp,
    "terminal": terminal_output,
    "to_json": to_json,
    "format_backticks": format_backticks,
}
_GLOBALS: dict[str, Any] = {
    "PICTURES": PICTURES,
    "can_embed": can_embed,
    "MAX_TOOL_CHARACTERS": MAX_TOOL_CHARACTERS,
    "MAX_MARKDOWN_CHARACTERS": MAX_MARKDOWN_CHARACTERS,
    "file_diff": file_diff,
    "is_new_file": is_new_file,
    "MAX_PAGE_LINES": MAX_PAGE_LINES,
    "command_of": command_of,
    "is_long": items.is_long,
    "line_numbers": _line_numbers,
    "opens": opens,
    "plan_items": _plan_items,
    "end_of": end_of,
    "split_output": split_output,
    "step_words": STEP_WORDS,
    "tool_body": tool_body,
    "tool_row": tool_row,
    "unknown_call": _unknown_call,
    "with_words": with_words,
    "outline_line": items.outline_line,
    "event_label": items.event_label,
    "inserted_labels": items.INSERTED_LABELS,
    "split_blocks": split_blocks,
    "is_project": is_project,
}


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
    environment.filters |= _FILTERS
    environment.globals |= _GLOBALS
    return environment


@cache
def macros(name: str) -> Any:
    """Return a template's macros as callable attributes."""
    return environment().get_template(name).module
