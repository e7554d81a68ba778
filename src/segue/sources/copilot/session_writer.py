"""Write the conversation of any session as a new directory that Copilot resumes.

It has the events and a file with the name. Copilot's database is not touched: it is an index only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from segue.model import clock, ids
from segue.model.content import Image, plain_text
from segue.sources.writing.conversation import (
    Call,
    Conversation,
    Holds,
    Interruption,
    Message,
    Summary,
)
from segue.sources.writing.json_lines import encode_line
from segue.sources.writing.port import NewFile, PreparedSession
from segue.sources.writing.replies import Reply, replies
from segue.sources.writing.staging import write_directory
from segue.sources.writing.tool_names import accepted_call_id, argument_object, function_name

from .reader import EVENTS, WORKSPACE, sessions_directory
from .tool_names import NAMES
from .workspace import new_workspace

_MAX_CALL_ID_LENGTH = 40  # of the API that Copilot uses
_INTERRUPTED = "user_initiated"  # one of a few words that Copilot knows
_PATCH_TOOL = "apply_patch"
Data = dict[str, Any]


class CopilotWriter:
    """Writes sessions of one Copilot home."""

    # Copilot sends no images of results to the model when it resumes a session.
    holds = Holds(system_messages="text", result_images=False, image_links=False)
    names = NAMES
    deletes_resumed = False

    def __init__(self, home: str) -> None:
        self._home = home

    def prepare(self, conversation: Conversation) -> PreparedSession:
        """Encode a conversation as events, and the facts of its session."""
        session, new_id, _ = conversation
        now = clock.to_rfc3339(clock.now())
        # Copilot makes a name from the next prompt, unless a person chose one.
        is_named = session.title is not None and session.title_by != "auto"
        facts = {
            "id": new_id,
            "cwd": session.cwd,
            "branch": session.git_branch,
            "name": session.title,
            "user_named": is_named,
            "created_at": now,
            "updated_at": now,
        }
        directory = os.path.join(sessions_directory(self._home), new_id)
        files = [
            NewFile(os.path.join(directory, WORKSPACE), new_workspace(facts)),
            NewFile(os.path.join(directory, EVENTS), b"".join(_Events(conversation).encode(now))),
        ]
        return PreparedSession(new_id, session.title, files, session.cwd)

    def write(self, prepared: PreparedSession) -> str:
        """Create the directory."""
        directory = os.path.join(sessions_directory(self._home), prepared.native_id)
        write_directory(directory, prepared.files, staged_in=self._home)
        return prepared.native_id


class _Events:
    """Encodes one conversation: each event names the one before as its parent."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._parent: str | None = None
        self._number = 0
        self._interaction = ids.derived_id(conversation.new_id, "interaction")
        self._turn = 0  # the number of the reply to the last prompt

    def encode(self, now: str) -> Iterator[bytes]:
        """Yield the lines of the file of events."""
        session, new_id, items = self._conversation
        context = {"cwd": session.cwd}
        if session.git_branch is not None:
            context["branch"] = session.git_branch
        start = {"sessionId": new_id, "version": 1, "producer": "copilot-agent", "startTime": now}
        yield self._event(
            "session.start", clock.now(), {**start, "copilotVersion": "0.0.0", "context": context}
        )
        for step in replies(items):
            match step:
                case Message():
                    yield self._prompt(step)
                case Reply():
                    yield from self._reply(step)
                case Summary():
                    summary = {"success": True, "summaryContent": step.text}
                    yield self._event("session.compaction_start", step.at, {})
                    yield self._event("session.compaction_complete", step.at, summary)
                case Interruption():
                    yield self._event("abort", step.at, {"reason": _INTERRUPTED})

    def _prompt(self, item: Message) -> bytes:
        self._interaction = ids.derived_id(self._conversation.new_id, item.id)
        self._turn = 0
        text = plain_text(item.content)
        data: Data = {
            "content": text,
            "transformedContent": text,
            "attachments": [
                {
                    "type": "blob",
                    "data": image.data,
                    "mimeType": image.mime,
                    "displayName": "image",
                }
                for image in item.content
                if isinstance(image, Image)
            ],
            "interactionId": self._interaction,
        }
        if item.role == "system":
            data["source"] = "system"
        return self._event("user.message", item.at, data)

    def _reply(self, reply: Reply) -> Iterator[bytes]:
        turn = {"turnId": str(self._turn)}
        self._turn += 1
        yield self._event(
            "assistant.turn_start", reply.at, {**turn, "interactionId": self._interaction}
        )
        request = [] if reply.call is None else [_request(reply.call)]
        data = {
            "messageId": ids.derived_id(self._conversation.new_id, reply.id, "message"),
            "content": reply.text,
            "toolRequests": request,
            "interactionId": self._interaction,
        }
        yield self._event("assistant.message", reply.at, data)
        if reply.call is not None:
            yield from self._execution(reply.call)
        yield self._event("assistant.turn_end", reply.at, turn)

    def _execution(self, item: Call) -> Iterator[bytes]:
        request = _request(item)
        start = {
            "toolCallId": request["toolCallId"],
            "toolName": request["name"],
            "arguments": request["arguments"],
        }
        yield self._event("tool.execution_start", item.at, start)
        code = item.result.exit_code
        is_failed = item.result.status != "completed" and code is None
        data: Data = {
            "toolCallId": request["toolCallId"],
            "success": not is_failed,
            "interactionId": self._interaction,
            "result": {"content": item.output},
        }
        if is_failed:
            data["error"] = {"message": item.output}
        if code is not None:
            data["shellExecution"] = {"exitCode": code}
        yield self._event("tool.execution_complete", item.ended_at, data)

    def _event(self, kind: str, at: int, data: Data) -> bytes:
        self._number += 1
        id = ids.derived_id(self._conversation.new_id, str(self._number))
        event = {"type": kind, "data": data, "id": id, "timestamp": clock.to_rfc3339(at)}
        line = encode_line({**event, "parentId": self._parent})
        self._parent = id
        return line


def _request(item: Call) -> Data:
    call = item.call
    is_patch = call.name == _PATCH_TOOL and call.server is None and isinstance(call.input, str)
    return {
        "toolCallId": accepted_call_id(call, _MAX_CALL_ID_LENGTH),
        "name": function_name(call),
        "arguments": call.input if is_patch else argument_object(call.input),
        "type": "custom" if is_patch else "function",
    }
