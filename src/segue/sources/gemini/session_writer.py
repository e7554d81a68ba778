"""Write the conversation of any session as a new journal that Gemini CLI resumes.

It is a file in the form of Gemini CLI 0.39 and later.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
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
from segue.sources.writing.tool_names import argument_object, function_name
from segue.sources.writing.versions import require_version

from . import chats, projects
from .messages import REPLY_TO_SUMMARY, is_ignored
from .tool_names import NAMES
from .translator import CANCELLED

_OLDEST_VERSION = (0, 39, 0)  # those before read one object instead of lines
_NO_TOKENS = dict.fromkeys(("input", "output", "cached", "thoughts", "tool", "total"), 0)
_QUOTED = "The user wrote: "
Record = dict[str, Any]


class GeminiWriter:
    """Writes journals of one Gemini home."""

    holds = Holds(own_thought=has_text, system_messages="text", adjacent_answers=False)
    names = NAMES
    deletes_resumed = True  # version 0.61 does, when it starts again

    def __init__(self, home: str) -> None:
        self._home = home

    def prepare(self, conversation: Conversation) -> PreparedSession:
        """Encode a conversation as the lines of a journal."""
        session = conversation.session
        # Gemini shows the first prompt itself.
        title = None if session.title_by == "auto" else session.title
        # Gemini takes sessions for the same one if their ids begin with the same 8 characters,
        # and ids that begin with a time do.
        native_id = ids.derived_id(conversation.new_id)
        now = clock.now()
        data = b"".join(_Journal(native_id, conversation, now).encode(title))
        project = projects.project_directory(self._home, session.cwd)
        path = chats.new_path(project, native_id, now)
        return PreparedSession(native_id, title, [NewFile(path, data)], session.cwd)

    def write(self, prepared: PreparedSession) -> str:
        """Create the journal in the directory of its project, which is created if need be.

        Raises InvalidInput if the installed Gemini CLI does not read journals yet.
        """
        require_version("gemini", "Gemini CLI", _OLDEST_VERSION)
        project = projects.claim_project(self._home, prepared.cwd)
        name = os.path.relpath(prepared.files[0].path, chats.project_of(prepared.files[0].path))
        write_files([prepared.files[0]._replace(path=os.path.join(project, name))])
        return prepared.native_id


class _Journal:
    """Encodes one conversation."""

    def __init__(self, native_id: str, conversation: Conversation, now: int) -> None:
        self._native_id = native_id
        self._conversation = conversation
        self._now = now

    def encode(self, title: str | None) -> Iterator[bytes]:
        """Yield the lines of the journal."""
        now = clock.to_rfc3339(self._now)
        digest = sha256(self._conversation.session.cwd.encode("utf-8", "surrogatepass"))
        # Gemini deletes sessions that were not updated for 30 days.
        times = {"startTime": now, "lastUpdated": now}
        header = {"sessionId": self._native_id, "projectHash": digest.hexdigest(), **times}
        yield encode_line({**header, "kind": "main"})
        for step in replies(self._conversation.items):
            match step:
                case Message():
                    yield encode_line(self._prompt(step))
                case Reply():
                    yield encode_line(self._reply(step))
                case Summary():
                    yield encode_line({"$set": {"messages": list(self._summary(step))}})
                case Interruption():
                    yield encode_line(self._message("info", step.id, step.at, CANCELLED))
        changes = {"lastUpdated": now}
        if title is not None:
            changes["summary"] = title
        yield encode_line({"$set": changes})

    def _prompt(self, item: Message) -> Record:
        parts = model_parts.content_parts(item.content)
        text = plain_text(item.content)
        if item.role == "system":
            parts = [{"text": f"<system_message>\n{text}\n</system_message>"}]
        elif is_ignored(text):
            # Gemini sends no prompt to the model that begins as a command or as its own messages.
            others = [part for part in parts if "text" not in part]
            parts = [{"text": _QUOTED + text}, *others]
            shown = {"displayContent": [{"text": text}]}
            return {**self._message("user", item.id, item.at, parts), **shown}
        return self._message("user", item.id, item.at, parts)

    def _reply(self, reply: Reply) -> Record:
        thoughts = [
            {
                "subject": "",
                "description": plain_text(item.thought.content),
                "timestamp": clock.to_rfc3339(item.at),
            }
            for item in reply.thoughts
        ]
        record = self._message("gemini", reply.id, reply.at, reply.text)
        record |= {"thoughts": thoughts, "tokens": _NO_TOKENS}
        if reply.call is not None:
            record["toolCalls"] = [_call(reply.call)]
        return record

    def _summary(self, item: Summary) -> Iterator[Record]:
        """Yield the messages that replace all earlier ones."""
        yield self._message("user", item.id, item.at, [{"text": item.text}])
        yield self._message("gemini", f"{item.id}/reply", item.at, [{"text": REPLY_TO_SUMMARY}])

    def _message(self, kind: str, name: str, at: int, content: Any) -> Record:
        id = ids.derived_id(self._native_id, name)
        return {"id": id, "timestamp": clock.to_rfc3339(at), "type": kind, "content": content}


def _call(item: Call) -> Record:
    id, name = item.call.call_id, function_name(item.call)
    return {
        "id": id,
        "name": name,
        "args": argument_object(item.call.input),
        "result": model_parts.response_parts(id, name, item.result),
        "status": "success" if item.result.status == "completed" else "error",
        "timestamp": clock.to_rfc3339(item.ended_at),
        "resultDisplay": item.output,
        "displayName": name,
        "description": item.call.title or "",
        "renderOutputAsMarkdown": False,
    }
