"""Write the conversation of any session for Goose, whose own program imports it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from segue.model import clock
from segue.model.content import Content, Image, plain_text
from segue.sources.kit import database
from segue.sources.writing.conversation import Call, Conversation, Holds, Message, Summary
from segue.sources.writing.json_lines import encode_unicode
from segue.sources.writing.port import NewFile, PreparedSession
from segue.sources.writing.replies import Reply, Step, replies
from segue.sources.writing.tool_names import accepted_call_id, argument_object, function_name

from . import edits, tables
from .tool_names import NAMES, OWN_EXTENSIONS, extension

_MAX_CALL_ID_LENGTH = 64
# Goose's agent reads this after a summary.
_COMPACTED = "The previous message is a summary of the conversation so far. Continue from there."
Record = dict[str, Any]


class GooseWriter:
    """Writes sessions of one directory."""

    holds = Holds(system_messages="text", interruptions=False, image_links=False)
    names = NAMES
    deletes_resumed = False

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def prepare(self, conversation: Conversation) -> PreparedSession:
        """Encode a conversation as `goose session export` would."""
        session = conversation.session
        messages = list(_messages(conversation))
        now = clock.to_rfc3339(clock.now())
        exported = {
            "id": conversation.new_id,  # Goose chooses another one
            "name": session.title or "New session",
            "user_set_name": session.title_by == "person" and bool(session.title),
            "session_type": "user",
            "working_dir": session.cwd,
            "created_at": now,
            "updated_at": now,
            "extension_data": {},
            "message_count": len(messages),
            "conversation": messages,
        }
        file = NewFile("session.json", encode_unicode(exported))
        first = messages[0]["id"] if messages else conversation.new_id
        return PreparedSession(conversation.new_id, session.title, [file], session.cwd, first)

    def write(self, prepared: PreparedSession) -> str:
        """Import the session, and return its id; raises ReadOnly if Goose is not installed."""
        program = edits.require_program(self._directory)
        os.makedirs(self._directory, 0o700, exist_ok=True)
        return program.import_data(prepared.files[0].data)

    def settle(self, native_id: str, first_record: str) -> str | None:
        """Return the id that Goose chose: it imports all messages of a session at once."""
        path = os.path.join(self._directory, "sessions.db")
        if not os.path.exists(path):
            return None
        with database.open_database(path) as connection:
            return tables.session_with(connection, first_record)


def _messages(conversation: Conversation) -> Iterator[Record]:
    """Yield messages in the order of their times; the model does not see those before a summary."""
    steps = list(replies(conversation.items))
    summaries = [number for number, step in enumerate(steps) if isinstance(step, Summary)]
    last_summary = summaries[-1] if summaries else 0
    seconds = 0
    for number, step in enumerate(steps):
        seconds = max(seconds, step.at // clock.SECOND)
        for role, content, is_shown in _contents(step):
            yield {
                "id": f"msg_{uuid4()}",
                "role": role,
                "created": seconds,
                "content": content,
                "metadata": {"userVisible": is_shown, "agentVisible": number >= last_summary},
            }


def _contents(step: Step) -> Iterator[tuple[str, list[Record], bool]]:
    """Yield the messages of a step: the role, the content, and whether people see it."""
    match step:
        case Message():
            yield "user", _blocks(step.content), step.role != "system"
        case Summary():
            yield "user", [_text(step.text)], False
            yield "assistant", [_text(_COMPACTED)], False
        case Reply():
            blocks = [] if step.message is None else _blocks(step.message.content)
            if step.call is None:
                yield "assistant", blocks, True
            else:
                call_id = accepted_call_id(step.call.call, _MAX_CALL_ID_LENGTH)
                yield "assistant", [*blocks, _request(step.call, call_id)], True
                yield "user", [_response(step.call, call_id)], True


def _request(item: Call, call_id: str) -> Record:
    call = item.call
    own = NAMES.meaning(call)
    server = call.server if own is None else extension(own.meaning)
    if server in OWN_EXTENSIONS:
        name = call.name
    else:  # as Goose names the tools of other extensions
        name = function_name(call).removeprefix("mcp__" if server else "")
    value = {"name": name, "arguments": argument_object(call.input)}
    request: Record = {
        "type": "toolRequest",
        "id": call_id,
        "toolCall": {"status": "success", "value": value},
    }
    if server is not None:
        request["_meta"] = {"goose_extension": server}
    return request


def _response(item: Call, call_id: str) -> Record:
    result = item.result
    value: Record = {"content": _blocks(result.content), "isError": result.status == "failed"}
    if result.exit_code is not None:
        value["structuredContent"] = {
            "stdout": item.output,
            "stderr": "",
            "exit_code": result.exit_code,
        }
    return {
        "type": "toolResponse",
        "id": call_id,
        "toolResult": {"status": "success", "value": value},
    }


def _blocks(content: Content) -> list[Record]:
    return [
        {"type": "image", "data": block.data, "mimeType": block.mime}
        if isinstance(block, Image)
        else _text(plain_text((block,)))
        for block in content
    ]


def _text(text: str) -> Record:
    return {"type": "text", "text": text}
