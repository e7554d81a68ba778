"""Write the conversation of any session for opencode, whose own program imports it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from segue.model import clock
from segue.model.content import Content, Image, plain_text
from segue.model.errors import AgentFailed
from segue.sources.writing.conversation import (
    Call,
    Conversation,
    Holds,
    Interruption,
    Message,
    Summary,
    has_text,
)
from segue.sources.writing.json_lines import encode_unicode
from segue.sources.writing.port import NewFile, PreparedSession
from segue.sources.writing.replies import Reply, replies
from segue.sources.writing.tool_names import accepted_call_id, argument_object, function_name

from . import program, tables
from .new_ids import NewIds
from .tool_names import NAMES

_AGENT = "build"  # the agent of a session for which no other one is chosen
_MAX_CALL_ID_LENGTH = 64
_NO_TOKENS = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
_ABORTED = {"name": "MessageAbortedError", "data": {"message": "Aborted"}}
Record = dict[str, Any]


class OpencodeWriter:
    """Writes sessions of one data directory. `path` is the database, if it is not found there."""

    holds = Holds(own_thought=has_text, system_messages="text", failed_result_images=False)
    names = NAMES
    deletes_resumed = False

    def __init__(self, directory: str, path: str | None) -> None:
        self._directory = directory
        self._path = path

    def prepare(self, conversation: Conversation) -> PreparedSession:
        """Encode a conversation as `opencode export` would."""
        session = conversation.session
        exported = _Export(conversation).encode()
        info = exported["info"]
        file = NewFile("session.json", encode_unicode(exported))
        return PreparedSession(info["id"], info["title"], [file], session.cwd)

    def write(self, prepared: PreparedSession) -> str:
        """Import the session; raises ReadOnly if opencode is not installed."""
        opencode = program.require(self._directory, self._path)
        os.makedirs(self._directory, 0o700, exist_ok=True)
        exported = msgspec.json.decode(prepared.files[0].data)
        _set_model(exported, *self._model(opencode, prepared.cwd))
        opencode.import_session(exported)
        return prepared.native_id

    def settle(self, native_id: str, first_record: str) -> str | None:
        """Delete a part that was imported; return the id of a whole session."""
        opencode = program.require(self._directory, self._path)
        opencode.delete_parts()
        return None if opencode.count_rows(native_id) is None else native_id

    def _model(self, opencode: program.OpencodeProgram, cwd: str) -> tuple[str, str]:
        """Return the model that continues the session: that of the newest one, else the default.

        opencode asks the model that the messages of a session name.
        """
        path = self._path or os.path.join(self._directory, "opencode.db")
        model = tables.newest_model(path)
        if model is None:
            with opencode.server(cwd) as server:
                model = server.default_model()
        if model is None:
            raise AgentFailed("opencode has no model; choose one in opencode, and try again")
        return model


class _Export:
    """Encodes one conversation."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._ids = NewIds()
        self._messages: list[Record] = []
        self._prompt_id = self._ids.next("msg")  # the message that the next reply answers
        self._last_ms = 0

    def encode(self) -> Record:
        """Return the session with its messages."""
        session, _, items = self._conversation
        for step in replies(items):
            match step:
                case Reply():
                    self._reply(step)
                case Message():
                    self._prompt(step.at, _prompt_parts(step))
                case Summary():
                    self._summary(step)
                case Interruption():
                    self._interruption(step)
        now_ms = clock.now() // 1000
        first = self._messages[0]["info"]["time"]["created"] if self._messages else now_ms
        info = {
            "id": self._ids.session,
            "slug": "continued",
            "projectID": "global",  # opencode takes the project of the directory
            "directory": session.cwd,
            "title": session.title or f"New session - {clock.to_rfc3339(clock.now())}",
            "version": "1.0.0",
            "time": {"created": first, "updated": now_ms},
        }
        return {"info": info, "messages": self._messages}

    def _add(self, at: int, info: Record, parts: list[Record]) -> Record:
        """Add a message, and return its info; messages are in the order of their times."""
        created = self._last_ms = max(self._last_ms, at // 1000)
        id = info.get("id") or self._ids.next("msg")
        info = {**info, "id": id, "sessionID": self._ids.session}
        info["time"] = {"created": created, **info.get("time", {})}
        for part in parts:
            for record in (part, *part.get("state", {}).get("attachments", ())):
                record |= {"id": self._ids.next("prt"), "sessionID": self._ids.session}
                record["messageID"] = id
        self._messages.append({"info": info, "parts": parts})
        return info

    def _prompt(self, at: int, parts: list[Record]) -> None:
        self._prompt_id = self._add(at, {"role": "user", "agent": _AGENT}, parts)["id"]

    def _answer(self, at: int, parts: list[Record], **fields: Any) -> Record:
        cwd = self._conversation.session.cwd
        info: Record = {
            "role": "assistant",
            "parentID": self._prompt_id,
            "mode": _AGENT,
            "agent": _AGENT,
            "path": {"cwd": cwd, "root": cwd},
            "cost": 0,
            "tokens": _NO_TOKENS,
            "finish": "stop",
            **fields,
        }
        added = self._add(at, info, parts)
        added["time"]["completed"] = self._last_ms
        return added

    def _reply(self, reply: Reply) -> None:
        previous = self._messages[-1] if self._messages else None
        if previous is not None and any(part["type"] == "tool" for part in previous["parts"]):
            previous["info"]["finish"] = "tool-calls"
        self._answer(reply.at, list(_reply_parts(reply)))

    def _summary(self, item: Summary) -> None:
        self._prompt(item.at, [{"type": "compaction", "auto": False}])
        text = _text(item.text, item.at)
        self._answer(item.at, [text], summary=True, mode="compaction", agent="compaction")

    def _interruption(self, item: Interruption) -> None:
        last = self._messages[-1]["info"] if self._messages else {}
        if last.get("role") == "assistant" and not last.get("summary") and "error" not in last:
            last["error"] = _ABORTED
        else:
            self._answer(item.at, [], error=_ABORTED)


def _set_model(exported: Record, provider: str, name: str) -> None:
    for message in exported["messages"]:
        model = {"providerID": provider, "modelID": name}
        info = message["info"]
        info |= {"model": model} if info["role"] == "user" else model


def _prompt_parts(item: Message) -> list[Record]:
    if item.role == "system":
        return [{"type": "text", "text": plain_text(item.content), "synthetic": True}]
    return [
        _file(block) if isinstance(block, Image) else {"type": "text", "text": plain_text((block,))}
        for block in item.content
    ]


def _reply_parts(reply: Reply) -> Iterator[Record]:
    for item in reply.thoughts:
        yield {**_text(plain_text(item.thought.content), item.at), "type": "reasoning"}
    if reply.message is not None:
        yield _text(reply.text, reply.message.at)
    if reply.call is not None:
        call = reply.call
        yield {
            "type": "tool",
            "tool": function_name(call.call),
            "callID": accepted_call_id(call.call, _MAX_CALL_ID_LENGTH),
            "state": _state(call),
        }


def _text(text: str, at: int) -> Record:
    return {"type": "text", "text": text, "time": {"start": at // 1000, "end": at // 1000}}


def _state(item: Call) -> Record:
    """Return the end of a call; a command that ran has an exit code instead of an error."""
    common = {
        "input": argument_object(item.call.input),
        "time": {"start": item.at // 1000, "end": item.ended_at // 1000},
    }
    result = item.result
    if result.status == "failed" and not result.exit_code:
        return {"status": "error", "error": item.output, **common}
    exit = {} if result.exit_code is None else {"exit": result.exit_code}
    return {
        "status": "completed",
        "output": item.output,
        "title": item.call.title or item.call.name,
        "metadata": {"output": item.output, **exit},
        "attachments": _attachments(result.content),
        **common,
    }


def _attachments(content: Content) -> list[Record]:
    return [_file(block) for block in content if isinstance(block, Image)]


def _file(image: Image) -> Record:
    url = f"data:{image.mime};base64,{image.data}" if image.data else image.uri
    name = f"image.{image.mime.rpartition('/')[2]}"
    return {"type": "file", "mime": image.mime, "filename": name, "url": url}
