"""A tool call of an agent process, assembled from updates that contain only changes."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import msgspec

from segue.acp.content import read_block_of_agent
from segue.model import ids
from segue.model.content import Block, Content, Diff, Text
from segue.model.event import (
    READ_ONLY_KINDS,
    Location,
    ToolCall,
    ToolCallChanged,
    ToolKind,
    ToolResult,
)
from segue.model.tools.git_patches import git_diffs

log = logging.getLogger("segue.agents.acp")

DIALECT = "acp"  # the key of the fields that only this protocol has
MIN_UNIQUE_CHARACTERS = 16  # a shorter id of a tool call may occur in several turns
_TOOL_KINDS = frozenset(get_args(ToolKind))
_FINAL_STATUSES: dict[str, Any] = {
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
}
_COMPARED = ("name", "title", "kind", "input", "content", "locations")


def protocol_fields(meta: Any = None) -> dict[str, Any]:
    """Return the `extra` of an event that an agent process sent, with the `_meta` of its message.

    A client that has received the message itself ignores the event.
    """
    return {DIALECT: {} if meta is None else {"_meta": meta}}


def call_id_of(turn: str, native_id: str) -> str:
    """Return segue's id of a tool call: the agent's own, unless other turns may use it too."""
    if len(native_id) >= MIN_UNIQUE_CHARACTERS:
        return native_id
    return ids.derived_id(DIALECT, turn, native_id)


class PendingCall:
    """A tool call that has not ended, or has just ended."""

    def __init__(self, id: str, terminals: Mapping[str, bytes]) -> None:
        self.id = id
        self.stored: ToolCall | None = None  # as followers know it
        self.result_stored = False
        self.title = ""
        self.raw_content: list[Any] = []
        self._terminals = terminals
        self._name = ""
        self._kind: Any = "other"
        self._status = ""
        self._input: Any = None
        self._output: Any = None
        self._locations: tuple[Location, ...] = ()
        self._meta: dict[str, Any] = {}

    def apply(self, update: Mapping[str, Any]) -> bool:
        """Apply the changes of an update; return whether the status has changed."""
        status_before = self._status
        self.title = text_of(update.get("title")) or self.title
        self._name = text_of(update.get("name")) or self._name
        self._kind = one_of(update.get("kind"), tuple(_TOOL_KINDS), self._kind)
        self._status = text_of(update.get("status")) or self._status
        self._input = self._input if update.get("rawInput") is None else update["rawInput"]
        self._output = self._output if update.get("rawOutput") is None else update["rawOutput"]
        if isinstance(update.get("content"), list):
            self.raw_content = [*update["content"]]
        if isinstance(update.get("locations"), list):
            self._locations = _parse_locations(update["locations"])
        if isinstance(update.get("_meta"), dict):
            self._meta = {**self._meta, **update["_meta"]}
        return self._status != status_before

    @property
    def is_described(self) -> bool:
        """True if the call can be shown; many agents send its description in a later update."""
        return bool(self.title) and (bool(self._input) or self._status not in ("", "pending"))

    @property
    def is_final(self) -> bool:
        """True if the call has ended."""
        return self._status in _FINAL_STATUSES

    @property
    def paths(self) -> set[str]:
        """The files that the call will change, as the agent declares them."""
        if self._kind in READ_ONLY_KINDS:
            return set()
        diffs = {block.path for block in self.content if isinstance(block, Diff)}
        paths = diffs | {location.path for location in self._locations}
        return {os.path.realpath(path) for path in paths if "\0" not in path}

    @property
    def content(self) -> Content:
        return parse_tool_content(self.raw_content, self._terminals)

    def event(self) -> ToolCall:
        return ToolCall(
            call_id=self.id,
            name=self._name or self.title or "tool",
            title=self.title or None,
            kind=self._kind,
            input=self._input,
            content=self.content,
            locations=self._locations,
            extra=self._extra,
        )

    def take_change(self) -> ToolCallChanged | None:
        """Return what has changed since the call was stored; None if nothing has.

        The content of a call that has ended is in its result.
        """
        before, self.stored = self.stored, self.event()
        if before is None:
            return None
        names = [name for name in _COMPARED if name != "content" or not self.is_final]
        values = {
            name: getattr(self.stored, name)
            for name in names
            if getattr(self.stored, name) != getattr(before, name)
        }
        if not values:
            return None
        return ToolCallChanged(call_id=self.id, extra=self._extra, **values)

    @property
    def _extra(self) -> dict[str, Any]:
        return protocol_fields(self._meta or None)

    def result(self) -> ToolResult:
        return ToolResult(
            call_id=self.id,
            status=_FINAL_STATUSES[self._status],
            content=self.content,
            output=self._output,
            exit_code=_exit_code(self._output),
            extra=self._extra,
        )


def parse_blocks(raw: Any) -> Content:
    """Return the valid content blocks in a list."""
    blocks: list[Block] = []
    for block in raw if isinstance(raw, list) else ():
        try:
            blocks.append(read_block_of_agent(block))
        except msgspec.ValidationError as error:
            log.info("ignored an invalid content block: %s", error)
    return tuple(blocks)


def parse_tool_content(raw: Sequence[Any], terminals: Mapping[str, bytes]) -> Content:
    """Return the content of a tool call, with the output of its terminals as text."""
    blocks: list[Block] = []
    for item in raw:
        match item:
            case {"type": "content", "content": block}:
                blocks += parse_blocks([block])
            case {"type": "terminal", "terminalId": str(id)}:
                if output := terminals.get(id):
                    blocks.append(Text(text=output.decode("utf-8", "replace")))
            case {"type": "diff", "path": str(path), "newText": str(new)}:
                old = item.get("oldText")
                blocks.append(Diff(path=path, new=new, old=old if isinstance(old, str) else None))
            case {"type": "diff", "patch": {"text": str(patch)}}:
                blocks += git_diffs(patch)
            case {"type": "diff", "changes": list(changes)}:
                paths = [change.get("path") for change in changes if isinstance(change, dict)]
                blocks.append(Text(text="\n".join(path for path in paths if isinstance(path, str))))
    return tuple(blocks)


def _parse_locations(raw: Sequence[Any]) -> tuple[Location, ...]:
    return tuple(
        Location(path=item["path"], line=line if isinstance(line, int) else None)
        for item in raw
        if isinstance(item, dict) and isinstance(item.get("path"), str)
        for line in (item.get("line"),)
    )


def text_of(value: Any) -> str:
    """Return a text, "" for any other value."""
    return value if isinstance(value, str) else ""


def one_of(value: Any, known: Sequence[str], default: Any) -> Any:
    """Return the value if it is known, otherwise the default."""
    return value if value in known else default


def _exit_code(output: Any) -> int | None:
    """Return the exit code in the raw output of a call; agents spell its name in two ways."""
    code = None
    if isinstance(output, dict):
        code = output.get("exit_code", output.get("exitCode"))
    return code if isinstance(code, int) and not isinstance(code, bool) else None
