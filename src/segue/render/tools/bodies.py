"""What an open tool call shows: only what its row does not say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from segue.model.content import Block, Diff, FileChange, Text, plain_text
from segue.model.event import ToolCall, ToolResult
from segue.model.tools.arguments import (
    changes_of,
    command_of,
    first_text,
    input_of,
    line_range,
    path_of,
)
from segue.model.tools.patches import with_texts
from segue.render.text.diffs import DiffLine
from segue.render.text.json_text import to_json

from .rows import meaning_of

TAIL_LINES = 12  # of a command's output; the lines before them are folded
MAX_MATCH_LINES = 200  # of a search
_AGENT_PROMPTS = ("prompt", "message", "instructions", "task")
_NUMBERED = re.compile(r"^ *(\d{1,9})(?:→|\t|: )(.*)$")
_MATCH = re.compile(r"^(?P<path>[^:\n]{1,400}?)[:-](?P<line>\d{1,9})[:-](?P<text>.*)$")
# The languages of files, by the end of their names.
_LANGUAGES = {
    **{name: name for name in ("c", "cpp", "css", "dart", "go", "html", "ini", "java", "json")},
    **{name: name for name in ("jsx", "lua", "php", "scala", "scss", "sql", "swift", "toml")},
    **{name: name for name in ("tsx", "xml", "yaml", "zig", "nix", "less")},
    **{"py": "python", "pyi": "python", "js": "javascript", "mjs": "javascript"},
    **{"ts": "typescript", "rs": "rust", "rb": "ruby", "sh": "bash", "bash": "bash"},
    **{"yml": "yaml", "md": "markdown", "kt": "kotlin", "cs": "csharp", "hs": "haskell"},
    **{"h": "c", "hpp": "cpp", "cc": "cpp", "ex": "elixir", "tf": "terraform"},
}


class BodyPart(NamedTuple):
    """A part of an open tool call.

    `kind` is `command`, `output`, `code`, `prose`, `json`, `raw`, `diff`, `matches` or `block`.
    `first_line` is the number of the first line of code, if it is known. `position` is that of a
    block in the content of the result, or of the call if `in_call` is set.
    """

    kind: str
    text: str = ""
    language: str = ""
    first_line: int | None = None
    diff: Diff | FileChange | None = None
    block: Block | None = None
    position: int = 0
    in_call: bool = False
    files: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()


def tool_body(
    call: ToolCall, result: ToolResult | None, *, starts_threads: bool = False
) -> list[BodyPart]:
    """Return what a call shows when it is open."""
    has_failed = result is not None and result.status != "completed"
    match meaning_of(call, starts_threads=starts_threads):
        case "shell":
            command = command_of(call)
            parts = [BodyPart("command", command, "bash")] if _needs_lines(command) else []
            return parts + list(_outputs(call, result))
        case "edit" if changes := changes_of(call, result):
            parts = [BodyPart("diff", diff=change) for change in changes]
            return parts + (list(_outputs(call, result)) if has_failed else [])
        case "read" if result is not None and not has_failed:
            return list(_read(call, result))
        case "search" if result is not None and not has_failed:
            return list(_search(call, result))
        case "plan":
            return list(_outputs(call, result)) if has_failed else []
        case "agent" if prompt := first_text(input_of(call), _AGENT_PROMPTS):
            answers = [_as_prose(part) for part in _results(call, result)]
            return [BodyPart("prose", prompt, in_call=True), *answers]
    return [*_input(call), *_results(call, result)]


def _as_prose(part: BodyPart) -> BodyPart:
    return part._replace(kind="prose") if part.kind == "code" else part


def _needs_lines(command: str) -> bool:
    """Return whether the row of a call cannot show all of its command."""
    return "\n" in command or len(command) > 80


def _outputs(call: ToolCall, result: ToolResult | None) -> Iterator[BodyPart]:
    """Yield the output of a command; changes of files are shown as diffs."""
    for part in _results(call, result):
        if part.kind in ("diff", "raw"):
            continue
        yield part._replace(kind="output") if part.kind in ("code", "json") else part


def _input(call: ToolCall) -> Iterator[BodyPart]:
    for index, block in enumerate(call.content):
        yield _block(block, index)._replace(in_call=True)
    if isinstance(call.input, str):
        if call.input:
            yield BodyPart("code", call.input)
    elif call.input not in (None, {}, []):
        yield BodyPart("json", to_json(call.input))


def _results(call: ToolCall, result: ToolResult | None) -> Iterator[BodyPart]:
    if result is None:
        return
    for index, block in enumerate(with_texts(result.content, call)):
        yield from _pretty(block.text) if isinstance(block, Text) else [_block(block, index)]
    if not result.content and result.output not in (None, "", {}, []):
        if isinstance(result.output, str):
            yield from _pretty(result.output)
        else:
            yield BodyPart("json", to_json(result.output))


def _block(block: Block, index: int) -> BodyPart:
    if isinstance(block, Diff | FileChange):
        return BodyPart("diff", diff=block)
    if isinstance(block, Text):
        return BodyPart("code", block.text)
    return BodyPart("block", block=block, position=index)


def _pretty(text: str) -> Iterator[BodyPart]:
    """Yield JSON on several lines, and as it was written; other texts as they are."""
    value = _parse_json(text)
    if value is None:
        yield BodyPart("code", text)
        return
    pretty = to_json(value)
    yield BodyPart("json", pretty)
    if pretty != text:
        yield BodyPart("raw", text)


MAX_JSON_CHARACTERS = 100_000  # of an output that is parsed


def _parse_json(text: str) -> Any:
    """Return a JSON object or list; None if the text is something else."""
    stripped = text.strip()
    if not stripped.startswith(("{", "[")) or len(stripped) > MAX_JSON_CHARACTERS:
        return None
    try:
        value = json.loads(stripped)
    except (ValueError, RecursionError):
        return None
    return value or None


def _read(call: ToolCall, result: ToolResult) -> Iterator[BodyPart]:
    language = language_of(path_of(call))
    for part in _results(call, result):
        if part.kind == "raw":
            continue
        if part.kind not in ("code", "json"):
            yield part
            continue
        text = part.text if part.kind == "code" else plain_text(result.content)
        first_line = line_range(call)[0]
        if numbered := _strip_numbers(text):
            first_line, text = numbered
        yield BodyPart("code", text, language, first_line or 1)


def language_of(path: str) -> str:
    """Return the language of a file, or ""."""
    name = path.replace("\\", "/").rsplit("/", 1)[-1].lower()
    if name in ("dockerfile", "makefile"):
        return "docker" if name == "dockerfile" else "make"
    return _LANGUAGES.get(name.rpartition(".")[2], "") if "." in name else ""


def _strip_numbers(text: str) -> tuple[int, str] | None:
    """Return the first number and the text of numbered lines; None if they are not numbered.

    Lines after the numbered ones, such as a reminder to the model, are left out.
    """
    lines: list[str] = []
    first = 0
    for line in text.split("\n"):
        match = _NUMBERED.match(line)
        if match is None or (lines and int(match[1]) != first + len(lines)):
            break
        if not lines:
            first = int(match[1])
        lines.append(match[2])
    return (first, "\n".join(lines)) if lines else None


def _search(call: ToolCall, result: ToolResult) -> Iterator[BodyPart]:
    text = plain_text(result.content)
    if not text and isinstance(result.output, str):
        text = result.output
    files: dict[str, list[tuple[str, str]]] = {}
    lines = [line for line in text.splitlines() if line.strip() and line != "--"]
    for line in lines[:MAX_MATCH_LINES]:
        match = _MATCH.match(line)
        if match is None:
            files = {}
            break
        files.setdefault(match["path"], []).append((match["line"], match["text"]))
    if not files:
        yield from _outputs(call, result)
        return
    yield BodyPart(
        "matches", text, files=tuple((path, tuple(rows)) for path, rows in files.items())
    )


def end_of(text: str, characters: int) -> str:
    """Return the last lines of a text that have at most so many characters.

    If its last line is longer, return the end of that line.
    """
    if len(text) <= characters:
        return text
    end = text[-characters:]
    return end.partition("\n")[2].lstrip("\n") or end


def split_output(text: str) -> tuple[str, str]:
    """Return the lines of an output before its last TAIL_LINES, and these."""
    lines = text.rstrip("\n").split("\n")
    if len(lines) <= TAIL_LINES + 3:  # to fold a few lines saves nothing
        return "", text.rstrip("\n")
    return "\n".join(lines[:-TAIL_LINES]), "\n".join(lines[-TAIL_LINES:])


def unified_text(lines: Iterable[DiffLine]) -> str:
    """Return the lines of a diff as text."""
    return "\n".join(f"{' ' if line.sign == '@' else line.sign}{line.text}" for line in lines)
