"""Translate the records of a session into events.

Gemini writes a message again under the same id when it learns more of it, and writes all messages
again when a session is resumed or compressed. Later versions of a message may lack its tool calls,
thoughts and tokens. So each part of a message is an event of its own, which is yielded when a
record has it first. A record that changes a part replaces the event; if that was yielded by an
earlier read, the session is read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import msgspec

from segue.model import codec
from segue.model.event import AnyBody, Usage
from segue.sources.kit import bodies, model_parts
from segue.sources.kit.files import digest_of
from segue.sources.kit.reader import Item, Rewritten

from .messages import (
    COMMANDS,
    Message,
    is_context,
    is_message,
    is_reply_to_summary,
    is_summary,
    messages_of,
    text_of,
    thoughts_of,
    tool_calls_of,
)

_SOURCE = "gemini"
_ENDED = frozenset({"success", "error", "cancelled"})
MESSAGE_SEQS = 1 << 16
# The seqs in a message of a session in one object, so that added parts move no others.
_SLOTS = {"text": 1 << 10, "usage": (1 << 10) + 1, "call": (1 << 10) + 2}
CANCELLED = "Request cancelled."
_AGENT_NAMES = ("agent_name", "name", "subagent_type")


class SessionState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What reading a session needs to know of the records before."""

    session: str = ""
    project_hash: str = ""
    kind: str = ""
    created_at: int = 0
    updated_at: int = 0
    summary: str | None = None
    model: str | None = None
    directories: list[str] = []
    open_since: int | None = None
    open_prompt: str = ""  # the id of the prompt of the open turn
    parts: dict[str, str] = {}  # a digest of each part that was yielded
    calls: dict[str, str] = {}  # calls without a result: their name and input
    agents: dict[str, list[str]] = {}  # subagents: the call that started them and their kind
    before: int = 0  # the seqs that the files before this one have
    older: int = 0  # a digest of the files before this one
    copies: list[str] = []  # the ids that a compression gave to copies of messages
    has_content: bool = False  # whether there is more than context and commands
    has_command: bool = False  # whether the first prompt is a command
    first_text: str | None = None  # of the first prompt that is no command
    empty_reply: tuple[str, Any] | None = None  # its id and tokens; its calls may follow


class Translator:
    """Translates the records of a session, in order. `items` has the events that were added."""

    def __init__(self, state: SessionState, *, is_whole: bool) -> None:
        self.state = state
        self.items: list[Item] = []
        self._is_whole = is_whole  # whether the session is read from its beginning
        self._indexes: dict[str, int] = {}  # of the items of this read, by part
        self._messages: dict[str, bool] = {}  # the messages by id; False if they were removed
        self._owners: list[str] = []  # the message of each item
        self._contents: set[int] = set()  # hashes of all messages
        self._seq = 0
        self._slots: int | None = None  # the first seq of a message of a session in one object
        self._message = ""

    def add_record(self, seq: int, record: dict[str, Any]) -> None:
        """Add a line of a journal. The events of it have seqs from `seq` on."""
        self._seq = seq
        rewind = record.get("$rewindTo")
        if isinstance(rewind, str):
            self._rewind(rewind)
        elif is_message(record):
            self._add_message(record)
        else:
            changes = record.get("$set")
            self._add_facts(changes if isinstance(changes, dict) else record)
            messages = messages_of(record)
            if messages is not None:
                self._replace_messages(messages)

    def add_session(self, seq: int, record: dict[str, Any]) -> int:
        """Add a session that is one object; return the seq after it.

        Gemini adds to the last message, so each message has seqs to spare.
        """
        self._seq = seq
        self._add_facts(record)
        for message in messages_of(record) or ():
            seq += MESSAGE_SEQS
            self._slots = self._seq = seq
            self._add_message(message)
        self._slots = None
        return seq + MESSAGE_SEQS

    def finish(self) -> Iterator[Item]:
        """Return all events; those of messages that were removed are off the active branch."""
        for item, owner in zip(self.items, self._owners, strict=True):
            is_removed = not self._messages.get(owner, True)
            yield item._replace(body=bodies.off_branch(item.body)) if is_removed else item

    # Records.

    def _add_facts(self, facts: dict[str, Any]) -> None:
        state = self.state
        if "startTime" in facts:
            state.created_at = state.created_at or bodies.time_of(facts["startTime"]) or 0
            state.open_since = None  # a new process continues the session
        state.session = state.session or bodies.text(facts.get("sessionId"))
        state.project_hash = bodies.text(facts.get("projectHash")) or state.project_hash
        state.kind = bodies.text(facts.get("kind")) or state.kind
        state.updated_at = max(state.updated_at, bodies.time_of(facts.get("lastUpdated")) or 0)
        if "summary" in facts:
            self._add_summary(bodies.text(facts["summary"]).strip() or None)
        directories = facts.get("directories")
        if isinstance(directories, list):
            state.directories = [path for path in directories if isinstance(path, str)]

    def _add_summary(self, summary: str | None) -> None:
        """Add a new title."""
        if summary != self.state.summary:
            self.state.summary = summary
            self._message = f"summary {digest_of(summary)}"
            self._put(f"at {self._seq}", self.state.updated_at, bodies.titled(summary, "agent"))

    def _rewind(self, message_id: str) -> None:
        """Remove a message and all after it; all messages if it is unknown."""
        if not self._is_whole:
            raise Rewritten("the conversation was rewound")
        ids = [id for id, is_current in self._messages.items() if is_current]
        for id in ids[ids.index(message_id) if message_id in ids else 0 :]:
            self._messages[id] = False
        self.state.open_since = None

    def _replace_messages(self, messages: list[Message]) -> None:
        state = self.state
        ids = {message["id"] for message in messages}
        is_cancelled = state.open_since is not None and state.open_prompt not in ids
        for number, message in enumerate(messages):
            next_message = messages[number + 1] if number + 1 < len(messages) else None
            if is_summary(message, next_message):
                is_cancelled = False
                state.open_since = None
                self._message = message["id"]
                if not self._has("summary"):
                    self._find_copies(messages[number + 1 :])
            self._add_message(message, next_message, is_copy=True)
        if is_cancelled:
            self._message = state.open_prompt
            self._put("interrupted", state.updated_at, bodies.interrupted())
            state.open_since = None

    def _find_copies(self, messages: list[Message]) -> None:
        """Find the messages that a compression kept, and wrote with other ids."""
        new = [message for message in messages if message["id"] not in self._messages]
        new = [message for message in new if not is_reply_to_summary(message)]
        if new and not self._is_whole:
            raise Rewritten("the conversation was compressed")
        ids = [message["id"] for message in new if _content_hash(message) in self._contents]
        self.state.copies = [*self.state.copies, *ids]

    # Messages.

    def _add_message(
        self, message: Message, next_message: Message | None = None, *, is_copy: bool = False
    ) -> None:
        """Add a version of a message. A copy is written with all others, at a later time."""
        state = self.state
        self._message = message["id"]
        if self._message in state.copies:
            return
        self._messages[self._message] = True
        self._contents.add(_content_hash(message))
        at = bodies.time_of(message.get("timestamp")) or state.updated_at
        match message.get("type"):
            case "user":
                self._add_user(message, at, next_message, is_copy=is_copy)
            case "gemini":
                self._add_reply(message, at, is_copy=is_copy)
            case "error":
                self._put("error", at, bodies.failed(text_of(message) or "the turn failed"))
                state.open_since = None
            case _ if text_of(message).strip() == CANCELLED:
                self._put("interrupted", at, bodies.interrupted())
                state.open_since = None
            case _ if text_of(message).strip():
                self._inject("notice", message, at)
        if not is_copy:
            state.updated_at = max(state.updated_at, at)

    def _add_user(
        self, message: Message, at: int, next_message: Message | None, *, is_copy: bool
    ) -> None:
        parts = model_parts.parts_of(message.get("content"))
        responses = model_parts.responses_of(parts)
        if responses:
            self._add_responses(parts, responses, message, at)
        elif is_context(message):
            self._inject("context", message, at)
        elif is_summary(message, next_message):
            self._put("summary", at, bodies.compacted(text_of(message).strip()))
        elif parts:
            self._add_prompt(message, parts, at, is_copy=is_copy)

    def _add_prompt(
        self, message: Message, parts: list[model_parts.Part], at: int, *, is_copy: bool
    ) -> None:
        blocks = model_parts.blocks_of(_SOURCE, parts)
        display_text = model_parts.text_of(model_parts.parts_of(message.get("displayContent")))
        if display_text:
            others = [part for part in parts if "text" not in part]
            blocks = model_parts.blocks_of(_SOURCE, [{"text": display_text}, *others])
            # Only the model sees the files that a prompt refers to.
            body = bodies.prompt(blocks, gemini={"content": model_parts.text_of(parts)})
            self._put("shown", at, body)
        elif bodies.content_of(blocks) and not self._has("shown"):
            self._put("prompt", at, bodies.prompt(blocks))
        self._note_prompt(display_text or model_parts.text_of(parts))
        if not is_copy:
            self.state.open_since, self.state.open_prompt = at, self._message

    def _note_prompt(self, text: str) -> None:
        """Note the first prompt that is no command: Gemini shows it as the title."""
        state = self.state
        if text.lstrip().startswith(COMMANDS):
            state.has_command = state.has_command or not state.has_content
        else:
            state.has_content = True
            state.first_text = state.first_text or bodies.prompt_title(text)

    def _add_reply(self, message: Message, at: int, *, is_copy: bool) -> None:
        state = self.state
        if is_reply_to_summary(message):
            self._inject("reply", message, at)
            return
        if not self._has("thought 0") or not is_copy:
            for number, thought in enumerate(thoughts_of(message)):
                self._put(f"thought {number}", at, bodies.thought(thought))
        parts = model_parts.parts_of(message.get("content"))
        blocks = bodies.content_of(model_parts.blocks_of(_SOURCE, parts))
        if blocks:
            self._put("text", at, bodies.answer(blocks))
        calls, calls_of_content = tool_calls_of(message), model_parts.calls_of(parts)
        if blocks or calls or calls_of_content or self._has("thought 0"):
            # Gemini ignores a reply without content, such as one whose call never ended.
            state.has_content = True
            state.model = bodies.text(message.get("model")) or state.model
            if calls and state.empty_reply is not None:
                self._put_usage(*state.empty_reply, at)
            state.empty_reply = None
            self._put_usage(self._message, message.get("tokens"), at)
        elif not is_copy:  # over ACP, the calls of the reply are in the next message
            state.empty_reply = self._message, message.get("tokens")
        for number, call in enumerate(calls):
            self._add_call(call, number, at)
        self._add_calls_of_content(calls_of_content, at, is_copy=is_copy)
        if not is_copy and blocks and not calls:
            state.open_since = None
        elif calls and not is_copy and state.open_since is None:
            state.open_since = at  # a text was written before the calls of the same reply

    def _put_usage(self, reply: str, tokens: Any, at: int) -> None:
        """Add the tokens of a reply, which may be an earlier message."""
        usage = _usage(tokens)
        if not usage.is_zero:
            message, self._message = self._message, reply
            self._put("usage", at, bodies.model_called(usage, self.state.model))
            self._message = message

    # Tools.

    def _add_call(self, call: dict[str, Any], number: int, at: int) -> None:
        name, args = bodies.text(call.get("name")), call.get("args")
        call_id = bodies.text(call.get("id")) or f"{self._message}/{number}"
        call_id = self._announced(call_id, name, args)
        if not self._is_known(call_id):
            self._put_call(call_id, name, args, at)
        agent = bodies.text(call.get("agentId"))
        if agent:
            fields = args if isinstance(args, dict) else {}
            kind = next((bodies.text(fields.get(key)) for key in _AGENT_NAMES if key in fields), "")
            self.state.agents[agent] = [call_id, kind]
        if call.get("status") in _ENDED:
            ended_at = bodies.time_of(call.get("timestamp")) or at
            body = model_parts.tool_result(
                _SOURCE,
                call_id,
                model_parts.parts_of(call.get("result")),
                call["status"],
                call.get("resultDisplay"),
            )
            self._put_result(call_id, max(at, ended_at), body)

    def _announced(self, call_id: str, name: str, args: Any) -> str:
        """Return the id under which the content of an earlier message had a call without an id."""
        if self._is_known(call_id):
            return call_id
        digest = _call_digest(name, args)
        matches = (id for id, other in self.state.calls.items() if other == digest)
        return next((id for id in matches if id.startswith("call-")), call_id)

    def _add_calls_of_content(
        self, calls: list[model_parts.Part], at: int, *, is_copy: bool
    ) -> None:
        """Add calls that the model made, and that no record has with a result yet."""
        for number, call in enumerate(calls):
            name, args = bodies.text(call.get("name")), call.get("args")
            own_id = bodies.text(call.get("id"))
            call_id = own_id or f"call-{self._message}-{number}"
            is_repeated = is_copy and not own_id and self._has(_same(name, args), owned=False)
            if not (self._is_known(call_id) or is_repeated or self._has(_same(name, args))):
                self._put_call(call_id, name, args, at)

    def _is_known(self, call_id: str) -> bool:
        return self._has(f"call {call_id}", owned=False)

    def _put_call(self, call_id: str, name: str, args: Any, at: int) -> None:
        self.state.calls[call_id] = _call_digest(name, args)
        for owned in (True, False):
            self.state.parts[self._key(_same(name, args), owned=owned)] = ""
        self._put(f"call {call_id}", at, bodies.tool_call(call_id, name, args), owned=False)

    def _put_result(self, call_id: str, at: int, body: AnyBody) -> None:
        self.state.calls.pop(call_id, None)
        self._put(f"result {call_id}", at, body, owned=False)

    def _add_responses(
        self,
        parts: list[model_parts.Part],
        responses: list[model_parts.Part],
        message: Message,
        at: int,
    ) -> None:
        """Add results that no tool call has. Most are copies of those."""
        others = [part for part in parts if "functionResponse" not in part]
        for response in responses:
            call_id = bodies.text(response.get("id"))
            if call_id in self.state.calls:
                own_parts = [{"functionResponse": response}, *others]
                body = model_parts.tool_result(_SOURCE, call_id, own_parts, None, None)
                self._put_result(call_id, at, body)
            elif not self._has(f"result {call_id}", owned=False):
                self._inject(f"response {call_id}", message, at)

    # Events.

    def _inject(self, part: str, message: Message, at: int) -> None:
        """Add a message that Gemini made; later versions of it say nothing new."""
        if not self._has(part):
            self._put(part, at, bodies.injected(_SOURCE, message))

    def _key(self, part: str, *, owned: bool = True) -> str:
        """Return the short name of a part of a message; a call is known by its id alone."""
        name = f"{self._message}\0{part}" if owned else part
        return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=7).hexdigest()

    def _has(self, part: str, *, owned: bool = True) -> bool:
        return self._key(part, owned=owned) in self.state.parts

    def _put(self, part: str, at: int, body: AnyBody, *, owned: bool = True) -> None:
        """Add a part of the current message, or replace it by a newer version."""
        key = self._key(part, owned=owned)
        digest = blake2b(codec.encode(body), digest_size=7).hexdigest()
        old_digest, index = self.state.parts.get(key), self._indexes.get(key)
        if digest == old_digest:
            return
        if old_digest is not None and index is None:
            raise Rewritten(f"message {self._message} was changed")
        self.state.parts[key] = digest
        if index is not None:
            self.items[index] = self.items[index]._replace(body=body)
            return
        self._indexes[key] = len(self.items)
        self._owners.append(self._message)
        if self._slots is not None:
            self._seq = max(self._seq, self._slots + _SLOTS.get(part.split()[0], 0))
        record = f"{self._message} {part}" if owned else part
        self.items.append(Item(self._seq, at, body, record))
        self._seq += 1


def _content_hash(message: Message) -> int:
    """Return a hash of what a message says, whatever its id and form."""
    parts = model_parts.parts_of(message.get("content"))
    calls = model_parts.calls_of(parts) or tool_calls_of(message)
    names = [(call.get("name"), call.get("args")) for call in calls]
    return hash((str(message.get("type")), model_parts.text_of(parts), repr(names)))


def _same(name: str, args: Any) -> str:
    """Return the name of the fact that there is a call with this name and input."""
    return f"same {_call_digest(name, args)}"


def _call_digest(name: str, args: Any) -> str:
    return f"{digest_of(name, args):x}"


def _usage(tokens: Any) -> Usage:
    """Return the tokens of a reply. Those of thoughts are billed as output."""
    if not isinstance(tokens, dict):
        return Usage()
    return bodies.usage(
        input=bodies.count(tokens.get("input")) + bodies.count(tokens.get("tool")),
        output=bodies.count(tokens.get("output")) + bodies.count(tokens.get("thoughts")),
        cache_read=tokens.get("cached"),
        input_includes_cache=True,
    )
