"""Write the conversation of any session as a new file that Qwen Code resumes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from segue.model import clock, ids
from segue.model.content import plain_text
from segue.sources.kit import model_parts
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
from segue.sources.writing.replies import Reply, replies
from segue.sources.writing.staging import write_files
from segue.sources.writing.tool_names import accepted_call_id, argument_object, function_name

from . import chats
from .tool_names import NAMES

_VERSION = "0.0.0"
_MAX_CALL_ID_LENGTH = 40  # of the API that Qwen Code uses
_REPLY_TO_SUMMARY = "Got it. Thanks for the additional context!"
Record = dict[str, Any]


class QwenWriter:
    """Writes sessions into one directory of Qwen Code, which has its projects."""

    holds = Holds(own_thought=has_text, system_messages="text")
    names = NAMES
    deletes_resumed = False

    def __init__(self, root: str) -> None:
        self._root = root

    def prepare(self, conversation: Conversation) -> PreparedSession:
        """Encode a conversation as a chain of records."""
        session = conversation.session
        native_id = chats.native_id(conversation.new_id)
        # Qwen shows the first prompt itself.
        title = None if session.title_by == "auto" else session.title
        data = b"".join(_Chain(native_id, conversation).encode(title))
        path = os.path.join(chats.project_directory(self._root, session.cwd), "chats")
        file = NewFile(os.path.join(path, f"{native_id}.jsonl"), data)
        return PreparedSession(native_id, title, [file], session.cwd)

    def write(self, prepared: PreparedSession) -> str:
        """Create the file."""
        write_files(prepared.files)
        return prepared.native_id


class _Chain:
    """Encodes one conversation: each record names the one before as its parent."""

    def __init__(self, native_id: str, conversation: Conversation) -> None:
        self._native_id = native_id
        self._conversation = conversation
        self._parent: str | None = None

    def encode(self, title: str | None) -> Iterator[bytes]:
        """Yield the lines of the file."""
        for step in replies(self._conversation.items):
            match step:
                case Message():
                    # A message that no person typed is a notification.
                    fields = {} if step.role == "user" else {"subtype": "notification"}
                    message = {"role": "user", "parts": model_parts.content_parts(step.content)}
                    yield self._record("user", step.id, step.at, **fields, message=message)
                case Reply():
                    yield from self._reply(step)
                case Summary():
                    yield self._summary(step)
                case Interruption():
                    payload = {"state": "cancelled", "stopReason": step.reason}
                    yield self._system("turn_result", step.id, step.at, payload)
        if title is not None:
            payload = {"customTitle": title, "titleSource": "manual"}
            yield self._system("custom_title", "title", clock.now(), payload)

    def _reply(self, reply: Reply) -> Iterator[bytes]:
        parts: list[Record] = [
            {"text": plain_text(item.thought.content), "thought": True} for item in reply.thoughts
        ]
        if reply.text:
            parts.append({"text": reply.text})
        if reply.call is not None:
            call = reply.call.call
            fields = {"name": function_name(call), "args": argument_object(call.input)}
            parts.append({"functionCall": {"id": _call_id(reply.call), **fields}})
        message = {"role": "model", "parts": parts}
        yield self._record("assistant", reply.id, reply.at, message=message)
        if reply.call is not None:
            yield self._result(reply.call)

    def _result(self, item: Call) -> bytes:
        status = "success" if item.result.status == "completed" else "error"
        parts = model_parts.response_parts(_call_id(item), function_name(item.call), item.result)
        facts = {"callId": _call_id(item), "status": status, "resultDisplay": item.output}
        return self._record(
            "tool_result",
            f"{item.id}/result",
            item.ended_at,
            message={"role": "user", "parts": parts},
            toolCallResult=facts,
        )

    def _summary(self, item: Summary) -> bytes:
        history = [
            {"role": "user", "parts": [{"text": item.text}]},
            {"role": "model", "parts": [{"text": _REPLY_TO_SUMMARY}]},
        ]
        info = {"originalTokenCount": 0, "newTokenCount": 0, "compressionStatus": 1}
        payload = {"info": info, "compressedHistory": history}
        return self._system("chat_compression", item.id, item.at, payload)

    def _system(self, subtype: str, name: str, at: int, payload: Record) -> bytes:
        return self._record("system", name, at, subtype=subtype, systemPayload=payload)

    def _record(self, kind: str, name: str, at: int, **fields: Any) -> bytes:
        session = self._conversation.session
        record: Record = {
            "uuid": ids.derived_id(self._native_id, name),
            "parentUuid": self._parent,
            "sessionId": self._native_id,
            "timestamp": clock.to_rfc3339(at),
            "type": kind,
            "cwd": session.cwd,
            "version": _VERSION,
        }
        if session.git_branch is not None:
            record["gitBranch"] = session.git_branch
        self._parent = record["uuid"]
        # Qwen finds titles by their bytes, so there must be no white space.
        return encode_line({**record, **fields})


def _call_id(item: Call) -> str:
    return accepted_call_id(item.call, _MAX_CALL_ID_LENGTH)
