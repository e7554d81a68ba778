"""Write a fork of a thread as one rollout, in the form that every version of Codex reads.

Codex 0.166 and later forks without a copy: the fork names a part of another file. segue copies, as
earlier versions do, since a fork may begin at any event and must not depend on another file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from segue.model import clock, codec
from segue.sources import safe_io
from segue.sources.base import OverlayOnly
from segue.sources.kit import bodies, files

from . import packed, rollouts
from .rollouts import Segment
from .translator import item_text

# The fields of a thread's first line that its fork has too.
_KEPT_META = (
    "cwd",
    "originator",
    "cli_version",
    "source",
    "model_provider",
    "base_instructions",
    "git",
)
# Lines that belong to the other thread, or to a form that a single file does not have.
_LEFT_OUT_LINES = frozenset({"session_meta", "token_usage_record", "world_state"})
_LEFT_OUT_EVENTS = frozenset({"thread_name_updated", "item_started", "item_completed"})
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"})


def write_fork(
    home: str,
    segments: Sequence[Segment],
    new_id: str,
    *,
    at: int | None,
    cwd: str | None,
    title: str | None,
) -> None:
    """Write a thread with the history of another up to the event `at`, or all of it."""
    now = datetime.now()
    name = f"rollout-{now:%Y-%m-%dT%H-%M-%S}-{new_id}.jsonl"
    path = rollouts.archived_path(home, name, archived=False)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    temporary = f"{path}.{os.getpid()}.part"
    try:
        safe_io.write_file(temporary, _lines(segments, new_id, at, cwd))
        if title is not None:
            rollouts.append_name(home, new_id, title)
        os.rename(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def _lines(
    segments: Sequence[Segment], new_id: str, at: int | None, cwd: str | None
) -> Iterator[bytes]:
    copied = _CopiedHistory(cwd)
    yield _line("session_meta", _meta(segments[-1], new_id, cwd))
    for segment in segments:
        with packed.plain_file(segment.rollout.path) as path:
            for line in files.Records(path, end=segment.end):
                if at is not None and segment.before + line.seq() > at:
                    yield from copied.closing_lines()
                    return
                yield from copied.copy(line.record)
    yield from copied.closing_lines()


def _line(kind: str, payload: dict[str, Any]) -> bytes:
    moment = clock.to_rfc3339(clock.now())
    return codec.encode({"timestamp": moment, "type": kind, "payload": payload}) + b"\n"


def _meta(segment: Segment, new_id: str, cwd: str | None) -> dict[str, Any]:
    """Return the first line of a fork of the thread that a segment ends."""
    with packed.plain_file(segment.rollout.path) as path:
        first = next(iter(files.Records(path)), None)
    meta = None if first is None else first.record.get("payload")
    if not isinstance(meta, dict):
        raise OverlayOnly("a version before 0.32 has written it")
    kept = {name: meta[name] for name in _KEPT_META if name in meta}
    if not isinstance(kept.get("source"), str):
        kept["source"] = "cli"  # the fork of a subagent is a thread of its own
    if cwd is not None:
        kept["cwd"] = cwd
    moment = clock.to_rfc3339(clock.now())
    thread = segment.rollout.thread
    return {"id": new_id, "timestamp": moment, "forked_from_id": thread, **kept}


class _CopiedHistory:
    """Copies lines, and knows what is open at the end: a turn and tool calls."""

    def __init__(self, cwd: str | None) -> None:
        self._cwd = cwd
        self._open_calls: dict[str, str] = {}  # the type of each call's result
        self._open_turn: dict[str, Any] | None = None

    def copy(self, record: dict[str, Any]) -> Iterator[bytes]:
        """Return a line of the other thread as it is in the fork."""
        kind, payload = record.get("type"), record.get("payload")
        if not isinstance(payload, dict) or kind in _LEFT_OUT_LINES:
            return
        if kind == "event_msg":
            event = self._event(payload)
            if event is None:
                return
            payload = event
        elif kind == "response_item":
            self._note_call(payload)
        elif kind == "turn_context" and self._cwd is not None:
            payload = {**payload, "cwd": self._cwd}
        kept = {name: value for name, value in record.items() if name != "ordinal"}
        yield codec.encode({**kept, "payload": payload}) + b"\n"

    def _event(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        """Return an event in the form of a single file; None if it is left out."""
        kind = payload.get("type")
        if kind == "task_started":
            self._open_turn = payload
        elif kind in ("task_complete", "turn_aborted"):
            self._open_turn = None
        item = payload.get("item") if kind == "item_completed" else None
        if isinstance(item, dict) and item.get("type") == "UserMessage":
            return {"type": "user_message", "message": item_text(item), "images": []}
        if isinstance(item, dict) and item.get("type") == "AgentMessage":
            return {"type": "agent_message", "message": item_text(item)}
        return None if kind in _LEFT_OUT_EVENTS else payload

    def _note_call(self, item: dict[str, Any]) -> None:
        kind, call_id = str(item.get("type")), bodies.text(item.get("call_id"))
        if kind in _CALLS:
            output = "custom_tool_call" if kind == "custom_tool_call" else "function_call"
            self._open_calls[call_id] = f"{output}_output"
        elif kind.endswith("_output"):
            self._open_calls.pop(call_id, None)

    def closing_lines(self) -> Iterator[bytes]:
        """Return the lines that end open calls and an open turn: Codex sends no open call."""
        for call_id, kind in self._open_calls.items():
            yield _line("response_item", {"type": kind, "call_id": call_id, "output": "aborted"})
        if self._open_turn is not None:
            turn_id = self._open_turn.get("turn_id")
            aborted = {"type": "turn_aborted", "turn_id": turn_id, "reason": "interrupted"}
            yield _line("event_msg", aborted)
