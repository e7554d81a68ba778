"""Translate the lines of a rollout into events.

Codex stores most things twice: as `response_item`, which the model sees, and as `event_msg`, which
people see. Messages, calls and results come from the first. The second says which user messages a
person typed, and has titles, tokens and the ends of turns.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import Any

import msgspec

from segue.model.content import Block, Text
from segue.model.event import AnyBody, Usage
from segue.sources.kit import bodies, files
from segue.sources.kit.files import Record, Records
from segue.sources.kit.patches import parse_patch
from segue.sources.kit.reader import Item, Resume, Rewritten

from . import rollouts
from .early import early_cwd, is_typed, with_envelope

_SOURCE = "codex"
_EXIT_CODE = re.compile(r"(?:Process exited with code|Exit code:) (-?\d+)")
_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_IMAGE_TAG = re.compile(r"</?image[^>]*>")
_SPAWN_TOOLS = frozenset({"spawn_agent"})
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")


class RolloutState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What reading a rollout needs to know of the lines before."""

    thread: str
    before: int = 0  # the bytes of the files before this one
    has_meta: bool = False
    created_at: int = 0
    updated_at: int = 0
    cwd: str | None = None
    model: str | None = None
    git_branch: str | None = None
    name: str | None = None
    forked_from: str | None = None
    parent: str | None = None
    open_since: int | None = None
    announces: bool = False  # whether events announce the agent's messages
    announced: int = 0  # messages whose event was read, and whose text was not
    own_prompt: str | None = None  # the first prompt of a fork that shares its parent's file
    shares_parent: bool = False
    copies: bool = False  # whether lines are those that a fork copied
    records_usage: bool = False  # whether each model call has a record of its own
    total: list[int] = []  # the running total of tokens
    is_early: bool = False  # whether lines have no envelope, times and events
    spawns: dict[str, str] = {}  # the call that started each subagent
    open_spawns: dict[str, str] = {}
    extra: dict[str, Any] = {}


class Translator:
    """Translates the lines of a history, in order."""

    def __init__(self, state: RolloutState, problems: list[str]) -> None:
        self.state = state
        self.problems = problems
        self.rollbacks: list[tuple[int, int]] = []
        self.collects_rollbacks = False
        self._inherited = False
        self._pending: tuple[Record, int, dict[str, Any]] | None = None

    def begin_file(self, before: int, *, inherited: bool) -> None:
        """Begin a file of the history; `before` is the number of bytes before it."""
        self.state.before = before
        self._inherited = inherited
        self._first_line = True

    def translate(self, records: Records, *, is_last: bool) -> Generator[Item, None, Resume]:
        """Yield the events of a file, and return where reading ended.

        In the last file of the history, a user message whose next line is missing is left to the
        next read: that line says whether a person typed it.
        """
        for line in records:
            yield from self._line(line, line.record)
        self.problems += records.problems
        if is_last and self._pending is not None:
            return records.resume(before=self._pending[0].offset)
        yield from self._flush_pending()
        return records.resume()

    def _line(self, line: Record, record: dict[str, Any]) -> Iterator[Item]:
        state = self.state
        if "payload" not in record and (state.is_early or not state.has_meta):
            record = with_envelope(record)
            state.is_early = state.is_early or record.get("type") == "session_meta"
        payload, kind = record.get("payload"), record.get("type")
        at = bodies.time_of(record.get("timestamp")) or self.state.updated_at
        if not isinstance(payload, dict):
            return
        number = 0
        for body in self._bodies(line, at, kind, payload):
            if isinstance(body, Item):
                yield body
                continue
            yield self._item(line, at, body, number)
            number += 1
        if not self._inherited:
            self.state.updated_at = max(self.state.updated_at, at)

    def _item(self, line: Record, at: int, body: AnyBody, number: int = 0) -> Item:
        seq = self.state.before + line.seq(number)
        return Item(seq, at, body, inherited=self._inherited or self.state.copies)

    def _bodies(
        self, line: Record, at: int, kind: Any, payload: dict[str, Any]
    ) -> Iterator[AnyBody | Item]:
        match kind:
            case "session_meta":
                self._add_meta(payload, at)
            case "turn_context":
                self._add_turn_context(payload)
            case "response_item":
                yield from self._response_item(line, at, payload)
            case "event_msg":
                yield from self._event(line, at, payload)
            case "compacted":
                yield bodies.compacted(bodies.text(payload.get("message")))
            case "token_usage_record":
                self.state.records_usage = True
                yield from self._model_called(payload.get("usage"))

    # What is true of the whole thread.

    def _add_meta(self, meta: dict[str, Any], at: int) -> None:
        state = self.state
        if self._inherited or str(meta.get("id")).lower() != state.thread:
            return  # of the thread that was forked
        is_first = not state.has_meta
        state.has_meta = True
        if is_first:
            state.created_at = bodies.time_of(meta.get("timestamp")) or at
        state.cwd = bodies.text(meta.get("cwd")) or state.cwd
        git = meta.get("git")
        if isinstance(git, dict):
            state.git_branch = bodies.text(git.get("branch")) or state.git_branch
        fork = bodies.text(meta.get("forked_from_id"))
        if is_first and fork:
            state.forked_from = fork.lower()
            state.shares_parent = isinstance(meta.get("history_base"), dict)
            state.copies = not state.shares_parent
        spawn = rollouts.spawned_by(meta)
        if spawn is not None:
            state.parent = str(spawn["parent_thread_id"]).lower()
        for name in ("cli_version", "originator", "model_provider"):
            if value := bodies.text(meta.get(name)):
                state.extra[name] = value

    def _add_turn_context(self, context: dict[str, Any]) -> None:
        state = self.state
        state.model = bodies.text(context.get("model")) or state.model
        if not self._inherited:
            self._end_of_copies(context.get("turn_id"))
            state.cwd = bodies.text(context.get("cwd")) or state.cwd

    def _end_of_copies(self, turn: Any) -> None:
        """End the copied part of a fork with its first own turn, whose id is newer than its own."""
        turn_id = bodies.text(turn).lower()
        if self.state.copies and _UUID7.fullmatch(turn_id) and turn_id > self.state.thread:
            self.state.copies = False

    # What the model sees.

    def _response_item(
        self, line: Record, at: int, payload: dict[str, Any]
    ) -> Iterator[AnyBody | Item]:
        kind = payload.get("type")
        yield from self._flush_pending()
        if kind == "message":
            yield from self._message(line, at, payload)
        elif kind == "reasoning":
            if text := _reasoning(payload):
                yield bodies.thought(text)
        elif kind in _CALLS:
            yield from self._call(line, payload)
        elif kind in _RESULTS:
            yield from self._result(payload)
        elif isinstance(kind, str):
            yield bodies.injected(_SOURCE, payload)

    def _message(self, line: Record, at: int, payload: dict[str, Any]) -> Iterator[AnyBody]:
        role = payload.get("role")
        if role == "assistant" and self._is_announced():
            yield bodies.answer(_content(payload.get("content")))
        elif role == "user" and self.state.is_early:
            content = _content(payload.get("content"))
            self.state.cwd = early_cwd(content) or self.state.cwd
            yield bodies.prompt(content) if is_typed(content) else bodies.injected(_SOURCE, payload)
        elif role == "user":
            self._pending = (line, at, payload)
        else:
            yield bodies.injected(_SOURCE, payload)

    def _is_announced(self) -> bool:
        """Return whether people see a message of the agent: they do not see a summary."""
        state = self.state
        if state.announced:
            state.announced -= 1
            return True
        return not state.announces

    def _announce(self) -> None:
        self.state.announces = True
        self.state.announced += 1

    def _flush_pending(self) -> Iterator[Item]:
        """Return a user message that no event confirmed: no person typed it."""
        if self._pending is not None:
            line, at, payload = self._pending
            self._pending = None
            yield self._item(line, at, bodies.injected(_SOURCE, payload))

    def _call(self, line: Record, payload: dict[str, Any]) -> Iterator[AnyBody]:
        kind = payload.get("type")
        call_id = bodies.text(payload.get("call_id")) or bodies.text(payload.get("id"))
        call_id = call_id or f"call-{line.offset}"
        name = bodies.text(payload.get("name")) or str(kind).removesuffix("_call")
        value = payload.get("arguments", payload.get("input", payload.get("action")))
        if kind == "function_call" and isinstance(value, str):
            value = _arguments(value)
        patch = value if isinstance(value, str) else ""
        if isinstance(value, dict):
            patch = bodies.text(value.get("input")) or bodies.text(value.get("patch"))
        if name in _SPAWN_TOOLS:
            self.state.open_spawns[call_id] = ""
        yield bodies.tool_call(
            call_id,
            name,
            value,
            diffs=parse_patch(patch),
            server=bodies.text(payload.get("namespace")) or None,
        )
        if kind == "web_search_call":  # it has no output
            yield bodies.tool_result(call_id, "")

    def _result(self, payload: dict[str, Any]) -> Iterator[AnyBody]:
        call_id = bodies.text(payload.get("call_id"))
        output, exit_code = _output(payload.get("output"))
        if call_id in self.state.open_spawns:
            self._note_spawn(call_id, output)
        yield bodies.tool_result(call_id, output, exit_code=exit_code)

    def _note_spawn(self, call_id: str, output: list[Block]) -> None:
        """Note which subagent a call started; its result names the thread."""
        del self.state.open_spawns[call_id]
        for block in output:
            if isinstance(block, Text):
                for thread in _UUID7.findall(block.text.lower()):
                    self.state.spawns[thread] = call_id
        if call_id not in self.state.spawns.values():
            self.state.spawns[call_id] = call_id

    # What people see.

    def _event(self, line: Record, at: int, payload: dict[str, Any]) -> Iterator[AnyBody | Item]:
        state, kind = self.state, payload.get("type")
        match kind:
            case "user_message":
                yield self._prompt(bodies.text(payload.get("message")))
            case "item_completed":
                item = payload.get("item")
                if isinstance(item, dict) and item.get("type") == "UserMessage":
                    yield self._prompt(item_text(item))
                elif isinstance(item, dict) and item.get("type") == "AgentMessage":
                    self._announce()
            case "agent_message":
                self._announce()
            case "task_started":
                self._end_of_copies(payload.get("turn_id"))
                state.open_since = at
            case "task_complete":
                state.open_since = None
            case "turn_aborted":
                state.open_since = None
                yield from self._flush_pending()
                yield bodies.interrupted(bodies.text(payload.get("reason")) or "interrupted")
            case "error":
                yield bodies.failed(bodies.text(payload.get("message")) or "the turn failed")
            case "token_count":
                yield from self._token_count(payload.get("info"))
            case "thread_name_updated":
                state.name = bodies.text(payload.get("thread_name")) or None
            case "thread_rolled_back":
                if not self.collects_rollbacks:
                    raise Rewritten("turns were rolled back")
                seq = state.before + line.seq()
                self.rollbacks.append((seq, bodies.count(payload.get("num_turns"))))

    def _prompt(self, text: str) -> AnyBody:
        """Return what a person typed, with the images of the message that the model got."""
        blocks: list[Block] = [Text(text=text)]
        state = self.state
        if state.shares_parent and not self._inherited and state.own_prompt is None:
            state.own_prompt = bodies.prompt_title(text)
        if self._pending is not None:
            content = self._pending[2].get("content")
            self._pending = None
            blocks += [block for block in _content(content) if not isinstance(block, Text)]
        return bodies.prompt(blocks)

    # Tokens.

    def _token_count(self, info: Any) -> Iterator[AnyBody]:
        if not isinstance(info, dict) or self.state.records_usage:
            return
        counts = _counts(info.get("total_token_usage"))
        before = self.state.total
        self.state.total = counts
        if not before and self.state.forked_from is not None and not self.state.copies:
            # The parent's tokens are in the total, and no copied line says how many.
            yield from self._model_called(info.get("last_token_usage"))
        elif counts != before:
            old_counts = before or [0] * len(counts)
            yield from self._called([counts[n] - old for n, old in enumerate(old_counts)])

    def _model_called(self, usage: Any) -> Iterator[AnyBody]:
        if isinstance(usage, dict):
            yield from self._called(_counts(usage))

    def _called(self, counts: list[int]) -> Iterator[AnyBody]:
        tokens = _usage(counts)
        if not tokens.is_zero:
            yield bodies.model_called(tokens, self.state.model)


def _counts(usage: Any) -> list[int]:
    names = ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens")
    return [bodies.count(usage.get(name)) for name in names] if isinstance(usage, dict) else [0] * 4


def _usage(counts: list[int]) -> Usage:
    return bodies.usage(
        input=counts[0],
        cache_read=counts[1],
        cache_write=counts[2],
        output=counts[3],
        input_includes_cache=True,
    )


def _content(parts: Any) -> list[Block]:
    """Return the blocks of a message, without the tags around images."""
    blocks: list[Block] = []
    for part in parts if isinstance(parts, list) else ():
        if not isinstance(part, dict):
            continue
        if url := bodies.text(part.get("image_url")):
            blocks.append(bodies.image(url))
            continue
        text = bodies.text(part.get("text"))
        if text and not _IMAGE_TAG.fullmatch(text.strip()):
            blocks.append(Text(text=text))
    return blocks


def _reasoning(payload: dict[str, Any]) -> str:
    parts = payload.get("summary") or payload.get("content")
    texts = (bodies.text(part.get("text")) for part in parts or () if isinstance(part, dict))
    return "\n\n".join(filter(None, texts))


def item_text(item: dict[str, Any]) -> str:
    """Return the text of a message that people see, as Codex 0.166 and later write it."""
    parts = item.get("content")
    texts = (
        bodies.text(part.get("text"))
        for part in (parts if isinstance(parts, list) else ())
        if isinstance(part, dict) and str(part.get("type")).lower() == "text"
    )
    return "\n\n".join(filter(None, texts))


def _arguments(text: str) -> Any:
    """Return the arguments of a call, which are JSON in a string."""
    try:
        return msgspec.json.decode(text)
    except files.DECODE_ERRORS:
        return text


def _output(output: Any) -> tuple[list[Block], int | None]:
    """Return the content of a result and the exit code of a command."""
    if isinstance(output, list):
        content = _content(output)
        text = content[0].text if content and isinstance(content[0], Text) else ""
        match = _EXIT_CODE.match(text)
        return content, None if match is None else int(match[1])
    text = bodies.text(output)
    exit_code = None
    if text.startswith("{"):
        value = _arguments(text)
        if isinstance(value, dict) and isinstance(value.get("output"), str):
            metadata = value.get("metadata")
            if isinstance(metadata, dict) and isinstance(metadata.get("exit_code"), int):
                exit_code = metadata["exit_code"]
            return [Text(text=value["output"])], exit_code
    if match := _EXIT_CODE.search(text[:400]):
        exit_code = int(match[1])
    return [Text(text=text)], exit_code
