"""Write the conversation of any session as a new directory that Kimi Code resumes.

Kimi Code takes the model and the system prompt of a resumed session from the session itself, so
they are copied from the user's newest session.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from segue.model import clock, codec, ids
from segue.model.content import Content, Image, plain_text
from segue.sources.writing.conversation import (
    Call,
    Conversation,
    Holds,
    Interruption,
    Message,
    Summary,
    has_text,
)
from segue.sources.writing.json_lines import encode_line
from segue.sources.writing.port import NewFile, PreparedSession
from segue.sources.writing.replies import Reply, Step, replies
from segue.sources.writing.staging import write_directory
from segue.sources.writing.tool_names import accepted_call_id, argument_object, function_name

from .edits import add_to_index, workspace_name
from .profile import first_records
from .reader import PREFIX
from .tool_names import NAMES

_MAX_CALL_ID_LENGTH = 40  # of the API that Kimi Code uses
_MAIN = "main"
Record = dict[str, Any]


class KimiWriter:
    """Writes sessions of one Kimi Code home."""

    holds = Holds(own_thought=has_text, system_messages="text")
    names = NAMES
    deletes_resumed = False

    def __init__(self, home: str) -> None:
        self._home = home

    def prepare(self, conversation: Conversation) -> PreparedSession:
        """Encode a conversation as the state of a session and the wire of its agent."""
        session = conversation.session
        native_id = PREFIX + conversation.new_id
        directory = self._directory(native_id, session.cwd)
        agent = os.path.join(directory, "agents", _MAIN)
        now = clock.now() // 1000
        state: Record = {
            "id": native_id,
            "version": 2,
            "cwd": session.cwd,
            "createdAt": now,
            "updatedAt": now,
            "archived": False,
            "isCustomTitle": session.title_by == "person",
            "agents": {_MAIN: {"homedir": agent, "type": "main"}},
            "custom": {},
        }
        if session.title is not None:
            kind = {"person": "custom", "agent": "generated"}.get(session.title_by or "")
            state |= {"title": session.title, "titleKind": kind or "replaceable"}
        first = first_records(self._home, session.cwd, workspace_name(session.cwd), now)
        wire = [*first, *_Wire(conversation).encode()]
        files = [
            NewFile(os.path.join(directory, "state.json"), codec.encode(state)),
            NewFile(
                os.path.join(agent, "wire.jsonl"),
                b"".join(map(encode_line, wire)),
            ),
        ]
        return PreparedSession(native_id, session.title, files, session.cwd)

    def write(self, prepared: PreparedSession) -> str:
        """Add the session to Kimi Code's index of sessions, and then create its directory.

        A line of the index without a directory is no session.
        """
        directory = self._directory(prepared.native_id, prepared.cwd)
        os.makedirs(self._home, 0o700, exist_ok=True)
        entry = {"sessionDir": directory, "workDir": prepared.cwd}
        add_to_index(self._home, {"sessionId": prepared.native_id, **entry})
        write_directory(directory, prepared.files, staged_in=self._home)
        return prepared.native_id

    def _directory(self, native_id: str, cwd: str) -> str:
        return os.path.join(self._home, "sessions", workspace_name(cwd), native_id)


class _Wire:
    """Encodes one conversation: prompts, and the steps of the agent."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._turn = -1
        self._step = 0
        self._messages = 0  # the messages that the model gets

    def encode(self) -> Iterator[Record]:
        """Yield the records after those that describe the session."""
        steps = list(replies(self._conversation.items))
        for number, step in enumerate(steps):
            match step:
                case Message(role="user"):
                    yield from self._prompt(step)
                case Message():
                    origin = {"kind": "injection", "variant": "system_message"}
                    yield self._message(step, origin)
                case Reply():
                    yield from self._reply(step, (*steps, None)[number + 1])
                case Summary():
                    yield from self._summary(step)
                case Interruption():
                    yield _record("turn.cancel", step.at)

    def _prompt(self, item: Message) -> Iterator[Record]:
        self._turn, self._step = self._turn + 1, 0
        origin = {"kind": "user"}
        yield _record("turn.prompt", item.at, input=_parts(item.content), origin=origin)
        yield self._message(item, origin)

    def _message(self, item: Message, origin: Record) -> Record:
        self._messages += 1
        message = {"role": "user", "content": _parts(item.content), "toolCalls": []}
        return _record("context.append_message", item.at, message={**message, "origin": origin})

    def _reply(self, reply: Reply, following: Step | None) -> Iterator[Record]:
        self._step += 1
        self._messages += 1
        uuid = self._id(reply.id, "step")
        step_ids = {"turnId": str(max(self._turn, 0)), "step": self._step}
        yield _event("step.begin", reply.at, uuid=uuid, **step_ids)
        step_ids["stepUuid"] = uuid
        parts: list[tuple[str, int, Record]] = [
            (item.id, item.at, {"type": "think", "think": plain_text(item.thought.content)})
            for item in reply.thoughts
        ]
        if reply.message is not None:
            text = {"type": "text", "text": reply.text}
            parts.append((reply.message.id, reply.message.at, text))
        for name, at, part in parts:
            yield _event("content.part", at, uuid=self._id(name), **step_ids, part=part)
        if reply.call is not None:
            yield from self._call(reply.call, step_ids)
        if not isinstance(following, Interruption):  # a step that was interrupted has no end
            is_last = reply.call is None and not isinstance(following, Reply)
            reason = "end_turn" if is_last else "tool_use"
            step_ids.pop("stepUuid")
            yield _event("step.end", reply.at, uuid=uuid, **step_ids, finishReason=reason)

    def _call(self, item: Call, step_ids: Record) -> Iterator[Record]:
        self._messages += 1
        uuid = self._id(item.id)
        call_id = accepted_call_id(item.call, _MAX_CALL_ID_LENGTH)
        call = {"name": function_name(item.call), "args": argument_object(item.call.input)}
        yield _event("tool.call", item.at, uuid=uuid, **step_ids, toolCallId=call_id, **call)
        has_images = any(isinstance(block, Image) for block in item.result.content)
        result: Record = {"output": _parts(item.result.content) if has_images else item.output}
        if item.result.status != "completed":
            result["isError"] = True
        ids_of_result = {"parentUuid": uuid, "toolCallId": call_id}
        yield _event("tool.result", item.ended_at, **ids_of_result, result=result)

    def _summary(self, item: Summary) -> Iterator[Record]:
        yield _record("full_compaction.begin", item.at, source="manual")
        fields = {"summary": item.text, "contextSummary": item.text}
        count = {"compactedCount": self._messages, "tokensBefore": 0, "tokensAfter": 0}
        yield _record("context.apply_compaction", item.at, **fields, **count)
        yield _record("full_compaction.complete", item.at)
        self._messages = 1

    def _id(self, *names: str) -> str:
        return ids.derived_id(self._conversation.new_id, *names)


def _record(kind: str, at: int, **fields: Any) -> Record:
    return {"type": kind, **fields, "time": at // 1000}


def _event(kind: str, at: int, **fields: Any) -> Record:
    return _record("context.append_loop_event", at, event={"type": kind, **fields})


def _parts(content: Content) -> list[Record]:
    parts: list[Record] = []
    for block in content:
        if isinstance(block, Image):
            url = f"data:{block.mime};base64,{block.data}" if block.data else block.uri
            parts.append({"type": "image_url", "imageUrl": {"url": url}})
        else:
            parts.append({"type": "text", "text": plain_text((block,))})
    return parts
