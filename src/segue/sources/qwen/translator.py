"""Translate the records of a session into events.

Each record names its parent. The conversation is the chain from the last record to the first one;
records that are not on it were rewound. As a rule, the parent is the record before.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from segue.model.content import plain_text
from segue.model.event import AnyBody, ModelCalled
from segue.sources.kit import bodies, model_parts
from segue.sources.kit.files import Record, digest_of
from segue.sources.kit.reader import Item, Rewritten

_SOURCE = "qwen"
# User messages that a person wrote; those with other subtypes are made by Qwen.
_TYPED = frozenset({None, "", "mid_turn_user_message", "realtime_message", "agent_launch_prompt"})
# Records that hold nothing of the conversation: copies of what other records have, and backups.
_INTERNAL = frozenset(
    {
        "ui_telemetry",
        "attribution_snapshot",
        "file_history_snapshot",
        "branch_checkpoint",
        "session_artifact_event",
        "session_artifact_snapshot",
        "custom_title",
        "session_model",
        "parent_session",
        "session_source",
        "user_text_elements",
        "agent_bootstrap",
    }
)
# Records that are not in the chain of parents.
_OFF_CHAIN = frozenset({"session_artifact_event", "session_artifact_snapshot"})
_API_ERROR = "qwen-code.api_error"
_CONTEXT_BEGIN = "<qwen:user-prompt-submit-context>"


class SessionState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What reading a session needs to know of the records before."""

    created_at: int = 0
    updated_at: int = 0
    cwd: str = ""
    title: str | None = None
    title_is_automatic: bool = False
    typed_title: str | None = None  # the first prompt, without the files that it refers to
    typed_text: str = ""  # of the prompt whose message comes next
    has_prompt: bool = False
    model: str | None = None
    git_branch: str | None = None
    forked_from: str | None = None
    open_since: int | None = None
    leaf: str = ""  # the uuid of the last record
    seen: dict[str, str] = {}  # the messages by short uuid, with digests of their parts
    extra: dict[str, Any] = {}


class Translator:
    """Translates the records of a session, in order, and then marks those that were rewound."""

    def __init__(self, state: SessionState, *, is_whole: bool, is_agent: bool) -> None:
        self.state = state
        self.problems: list[str] = []
        self._is_whole = is_whole  # whether the session is read from its beginning
        self._is_agent = is_agent  # whether this is the file of a subagent
        self._items: list[tuple[str, Item]] = []  # with the uuid of their record
        self._parents: dict[str, str] = {}
        self._is_linear = True
        self._usages: dict[str, int] = {}  # the index of each message's usage in the items

    def add_record(self, line: Record) -> None:
        """Add the next record."""
        record = line.record
        uuid, kind = record.get("uuid"), record.get("type")
        if not isinstance(uuid, str) or not isinstance(kind, str):
            self.problems.append(f"the record at byte {line.offset} has no uuid or type")
            return
        at = bodies.time_of(record.get("timestamp")) or self.state.updated_at
        self._add_facts(record, at)
        thread = None
        if record.get("isSidechain") is True and not self._is_agent:
            thread = bodies.text(record.get("agentId")) or None
        elif record.get("subtype") not in _OFF_CHAIN:
            self._link(uuid, record.get("parentUuid"))
        is_inherited = isinstance(record.get("forkedFrom"), dict)
        number = 0
        for body in self._bodies(record, uuid, kind, at):
            body = body if thread is None else bodies.in_thread(body, thread)
            name = f"{uuid} {self._fragments(uuid)} {number}"
            item = Item(line.seq(number), at, body, name, is_inherited)
            if not (isinstance(body, ModelCalled) and self._replace_usage(uuid, item)):
                self._items.append((uuid, item))
                number += 1

    def finish(self) -> Iterator[Item]:
        """Return all events; those of records that are not on the chain are off the branch."""
        chain = None if self._is_linear else self._chain()
        for uuid, item in self._items:
            is_off = chain is not None and item.body.thread is None and uuid not in chain
            yield item._replace(body=bodies.off_branch(item.body)) if is_off else item

    # The tree.

    def _link(self, uuid: str, parent: Any) -> None:
        """Add a record to the tree."""
        state = self.state
        parent = bodies.text(parent)
        if uuid == state.leaf:
            return  # a further part of the same message
        if parent != state.leaf and state.leaf:
            self._is_linear = False
            if not self._is_whole:
                raise Rewritten("the conversation continues from an earlier record")
        if uuid not in self._parents:
            self._parents[uuid] = parent
        state.leaf = uuid

    def _chain(self) -> set[str]:
        """Return the uuids from the last record to the first one."""
        chain, missing = chain_of(self._parents, self.state.leaf)
        self.problems += [f"record {uuid} is missing" for uuid in missing]
        return chain

    # Records.

    def _add_facts(self, record: dict[str, Any], at: int) -> None:
        state = self.state
        state.created_at = state.created_at or at
        state.updated_at = max(state.updated_at, at)
        state.cwd = state.cwd or bodies.text(record.get("cwd"))
        state.git_branch = bodies.text(record.get("gitBranch")) or state.git_branch
        fork = record.get("forkedFrom")
        if isinstance(fork, dict):
            state.forked_from = bodies.text(fork.get("sessionId")) or state.forked_from
        if version := bodies.text(record.get("version")):
            state.extra["version"] = version

    def _bodies(self, record: dict[str, Any], uuid: str, kind: str, at: int) -> Iterator[AnyBody]:
        message = record.get("message")
        parts = model_parts.parts_of(message.get("parts")) if isinstance(message, dict) else []
        if kind in ("user", "assistant", "tool_result") and self._is_repeated(uuid, record):
            return
        match kind:
            case "user":
                yield from self._user(record, parts, at)
            case "assistant":
                yield from self._reply(record, parts)
            case "tool_result":
                yield from self._results(record, parts, uuid)
            case "system":
                yield from self._system(record)
            case _:
                yield bodies.injected(_SOURCE, record)

    def _is_repeated(self, uuid: str, record: dict[str, Any]) -> bool:
        """Return whether a message was written already; two processes may write the same."""
        digest = f"{digest_of(record.get('message'), record.get('toolCallResult')):x}"
        digests = self.state.seen.get(_short(uuid), "")
        if digest in digests.split():
            return True
        self.state.seen[_short(uuid)] = f"{digests} {digest}".strip()
        return False

    def _fragments(self, uuid: str) -> int:
        """Return in how many records a message was written so far."""
        return len(self.state.seen.get(_short(uuid), "").split())

    def _user(
        self, record: dict[str, Any], parts: list[model_parts.Part], at: int
    ) -> Iterator[AnyBody]:
        state = self.state
        state.open_since = at
        if record.get("subtype") not in _TYPED:
            yield replace(bodies.injected(_SOURCE, record), words=model_parts.text_of(parts))
            return
        payload = record.get("systemPayload")
        payload = payload if isinstance(payload, dict) else {}
        extra: dict[str, Any] = {}
        has_context = len(parts) > 1 and _is_context(parts[-1])
        display_text = payload.get("displayText")
        if isinstance(display_text, str) and ("hookContext" in payload or has_context):
            extra["qwen"] = {"content": model_parts.text_of(parts)}
            parts = [{"text": display_text}, *(part for part in parts if "text" not in part)]
        elif has_context:
            extra["qwen"] = {"content": model_parts.text_of(parts)}
            parts = parts[:-1]
        body = bodies.prompt(model_parts.blocks_of(_SOURCE, parts), **extra)
        if not body.content:
            return
        if not state.has_prompt and state.typed_text in plain_text(body.content):
            state.typed_title = bodies.prompt_title(state.typed_text)
        state.has_prompt, state.typed_text = True, ""
        yield body

    def _reply(self, record: dict[str, Any], parts: list[model_parts.Part]) -> Iterator[AnyBody]:
        state = self.state
        state.model = bodies.text(record.get("model")) or state.model
        for thought in model_parts.thoughts_of(parts):
            yield bodies.thought(thought)
        blocks = bodies.content_of(model_parts.blocks_of(_SOURCE, parts))
        if blocks:
            yield bodies.answer(blocks)
        calls = model_parts.calls_of(parts)
        for number, call in enumerate(calls):
            call_id = bodies.text(call.get("id")) or f"{record['uuid']}/{number}"
            yield bodies.tool_call(call_id, bodies.text(call.get("name")), call.get("args"))
        usage = model_parts.usage_of(record.get("usageMetadata"))
        if not usage.is_zero:
            size = bodies.count(record.get("contextWindowSize")) or None
            yield bodies.model_called(usage, state.model, context_size=size)
        if blocks and not calls:
            state.open_since = None

    def _replace_usage(self, uuid: str, item: Item) -> bool:
        """Replace the usage of an earlier part of a message; return False if there is none."""
        index = self._usages.get(uuid)
        if index is not None:
            old_uuid, old_item = self._items[index]
            self._items[index] = (old_uuid, old_item._replace(body=item.body))
            return True
        if self._fragments(uuid) > 1 and not self._is_whole:
            raise Rewritten(f"message {uuid} has further parts")
        self._usages[uuid] = len(self._items)
        return False

    def _results(
        self, record: dict[str, Any], parts: list[model_parts.Part], uuid: str
    ) -> Iterator[AnyBody]:
        facts = record.get("toolCallResult")
        facts = facts if isinstance(facts, dict) else {}
        responses = model_parts.responses_of(parts) or [{}]
        others = [part for part in parts if "functionResponse" not in part]
        for response in responses:
            call_id = bodies.text(response.get("id")) or bodies.text(facts.get("callId")) or uuid
            own_parts = [{"functionResponse": response}, *others]
            display = facts.get("resultDisplay") if len(responses) == 1 else None
            yield model_parts.tool_result(_SOURCE, call_id, own_parts, facts.get("status"), display)

    def _system(self, record: dict[str, Any]) -> Iterator[AnyBody]:
        state, subtype = self.state, bodies.text(record.get("subtype"))
        payload = record.get("systemPayload")
        payload = payload if isinstance(payload, dict) else {}
        match subtype:
            case "custom_title":
                yield from self._title(payload)
            case "at_command":
                state.typed_text = bodies.text(payload.get("userText"))
            case "session_model":
                state.model = state.model or bodies.text(payload.get("modelId")) or None
            case "parent_session":
                state.extra["parent_session"] = bodies.text(payload.get("parentSessionId"))
            case "session_source":
                state.extra["session_source"] = payload
            case "chat_compression":
                state.open_since = None
                yield _compacted(payload)
            case "turn_result":
                yield from self._turn_result(payload)
            case "ui_telemetry":
                yield from self._telemetry(payload.get("uiEvent"))
        if subtype not in _INTERNAL and subtype not in ("chat_compression", "turn_result"):
            yield bodies.injected(_SOURCE, record)

    def _title(self, payload: dict[str, Any]) -> Iterator[AnyBody]:
        """Return a new title. Qwen writes the same title again and again."""
        state = self.state
        title = bodies.text(payload.get("customTitle")).strip() or None
        state.title_is_automatic = payload.get("titleSource") == "auto"
        if title != state.title:
            state.title = title
            yield bodies.titled(title, "agent" if state.title_is_automatic else "person")

    def _turn_result(self, payload: dict[str, Any]) -> Iterator[AnyBody]:
        self.state.open_since = None
        if payload.get("state") == "cancelled":
            yield bodies.interrupted(bodies.text(payload.get("stopReason")) or "cancelled")
        elif payload.get("state") == "error":
            error = payload.get("error")
            error = error if isinstance(error, dict) else {}
            message = bodies.text(error.get("message")) or "the turn failed"
            yield bodies.failed(message, bodies.text(error.get("code")) or "unknown")

    def _telemetry(self, event: Any) -> Iterator[AnyBody]:
        """Return the error of a request to the model; all else is in other records."""
        if not isinstance(event, dict) or event.get("event.name") != _API_ERROR:
            return
        if event.get("subagent_name") and not self._is_agent:
            return
        message = bodies.text(event.get("error_message")) or bodies.text(event.get("error"))
        yield bodies.failed(message or "a request to the model failed", _error_code(event))
        self.state.open_since = None


def is_on_chain(record: dict[str, Any]) -> bool:
    """Return whether a record may be in the chain of parents."""
    is_linked = isinstance(record.get("uuid"), str) and isinstance(record.get("type"), str)
    is_side = record.get("isSidechain") is True or record.get("subtype") in _OFF_CHAIN
    return is_linked and not is_side


def chain_of(parents: dict[str, str], leaf: str) -> tuple[set[str], list[str]]:
    """Return the uuids from a record to the first one, and those of missing records.

    If a parent is missing, as after a damaged line, the chain continues with the record before.
    """
    order = list(parents)
    before = dict(zip(order[1:], order, strict=False))
    chain: set[str] = set()
    missing: list[str] = []
    uuid = leaf
    while uuid and uuid not in chain:
        chain.add(uuid)
        parent = parents.get(uuid, "")
        if parent and parent not in parents:
            missing.append(parent)
            parent = before.get(uuid, "")
        uuid = parent
    return chain, missing


def _error_code(event: dict[str, Any]) -> str:
    return bodies.text(event.get("error_type")) or str(event.get("status_code") or "unknown")


def _is_context(part: model_parts.Part) -> bool:
    return bodies.text(part.get("text")).strip().startswith(_CONTEXT_BEGIN)


def _compacted(payload: dict[str, Any]) -> AnyBody:
    """Return a compression. The summary is the first message of the new history."""
    history = payload.get("compressedHistory")
    contents = (
        [item for item in history if isinstance(item, dict)] if isinstance(history, list) else []
    )
    texts = (model_parts.text_of(model_parts.parts_of(item.get("parts"))) for item in contents)
    info = payload.get("info")
    info = info if isinstance(info, dict) else {}
    is_manual = info.get("triggerReason") == "manual"
    body = bodies.compacted(next(filter(None, texts), ""), "manual" if is_manual else "auto")
    return replace(
        body,
        tokens_before=bodies.count(info.get("originalTokenCount")) or None,
        tokens_after=bodies.count(info.get("newTokenCount")) or None,
    )


def _short(uuid: str) -> str:
    return blake2b(uuid.encode("utf-8", "surrogatepass"), digest_size=7).hexdigest()
