"""Write the conversation of any session as a new session that Gemini CLI resumes.

Gemini CLI 0.39 and later have journals of lines; versions before have one object in a file. The
form is that of the installed program.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

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
from segue.sources.writing.versions import Version, installed_version, require_version

from . import chats, projects
from .messages import REPLY_TO_SUMMARY, is_ignored
from .tool_names import NAMES
from .translator import CANCELLED

_OLDEST_VERSION = (0, 24, 0)  # the oldest one that was tested
_PROMPT_PARTS = (0, 28, 0)  # the first version that sends the images of a resumed prompt
_NAMED_PROJECTS = (0, 29, 0)  # before, a project's directory has the hash of the working directory
_JOURNALS = (0, 39, 0)
_COMPACTIONS = (0, 44, 0)  # 0.39 ignores that a summary replaces messages; 0.44 is known not to
_NO_TOKENS = dict.fromkeys(("input", "output", "cached", "thoughts", "tool", "total"), 0)
_QUOTED = "The user wrote: "
Record = dict[str, Any]


class _Form(NamedTuple):
    """The form of the sessions of a version."""

    prompt_images: bool = True
    named_projects: bool = True
    is_journal: bool = True
    compactions: bool = True


class GeminiWriter:
    """Writes sessions of one Gemini home, for the program that is installed."""

    names = NAMES
    deletes_resumed = True  # version 0.61 does, when it starts again

    def __init__(self, home: str) -> None:
        self._home = home

    @cached_property
    def _form(self) -> _Form:
        version: Version | None = installed_version("gemini")
        if version is None:  # the newest session says it, if there is one
            is_journal = not chats.newest_path(self._home).endswith(".json")
            return _Form(is_journal=is_journal, compactions=is_journal)
        firsts = (_PROMPT_PARTS, _NAMED_PROJECTS, _JOURNALS, _COMPACTIONS)
        return _Form(*(version >= first for first in firsts))

    @property
    def holds(self) -> Holds:
        """What a session can hold: older versions have no place for what a summary replaces."""
        return Holds(
            prompt_images=self._form.prompt_images,
            own_thought=has_text,
            system_messages="text",
            compactions=self._form.compactions,
            adjacent_answers=False,
        )

    def prepare(self, conversation: Conversation) -> PreparedSession:
        """Encode a conversation as the lines of a journal, or as one object."""
        session = conversation.session
        # Gemini shows the first prompt itself.
        title = None if session.title_by == "auto" else session.title
        # Gemini takes sessions for the same one if their ids begin with the same 8 characters,
        # and ids that begin with a time do.
        native_id = ids.derived_id(conversation.new_id)
        now = clock.now()
        encoder = _Encoder(native_id, conversation, now, title)
        is_journal = self._form.is_journal
        data = b"".join(encoder.lines()) if is_journal else encoder.object()
        path = chats.new_path(self._project(session.cwd), native_id, now, is_journal=is_journal)
        return PreparedSession(native_id, title, [NewFile(path, data)], session.cwd)

    def _project(self, cwd: str) -> str:
        if self._form.named_projects:
            return projects.project_directory(self._home, cwd)
        return projects.hashed_directory(self._home, cwd)

    def write(self, prepared: PreparedSession) -> str:
        """Create the file in the directory of its project, which is created if need be.

        Raises InvalidInput if the installed Gemini CLI is too old.
        """
        require_version("gemini", "Gemini CLI", _OLDEST_VERSION)
        file = prepared.files[0]
        if self._form.named_projects:
            project = projects.claim_project(self._home, prepared.cwd)
            name = os.path.relpath(file.path, chats.project_of(file.path))
            file = file._replace(path=os.path.join(project, name))
        write_files([file])
        return prepared.native_id


class _Encoder:
    """Encodes one conversation."""

    def __init__(
        self, native_id: str, conversation: Conversation, now: int, title: str | None
    ) -> None:
        self._native_id = native_id
        self._conversation = conversation
        self._now = clock.to_rfc3339(now)
        self._title = {} if title is None else {"summary": title}

    def _header(self) -> Record:
        digest = projects.hash_of(self._conversation.session.cwd)
        # Gemini deletes sessions that were not updated for 30 days.
        times = {"startTime": self._now, "lastUpdated": self._now}
        return {"sessionId": self._native_id, "projectHash": digest, **times}

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of a journal."""
        yield encode_line({**self._header(), "kind": "main"})
        for record in self._records():
            yield encode_line(record)
        yield encode_line({"$set": {"lastUpdated": self._now, **self._title}})

    def object(self) -> bytes:
        """Return a session in one object; without summaries, all records are messages."""
        # Where a project is a hash, only this says which directory it is.
        directories = [self._conversation.session.cwd]
        messages = list(self._records())
        others = {"directories": directories, **self._title}
        return encode_line({**self._header(), "messages": messages, **others})

    def _records(self) -> Iterator[Record]:
        for step in replies(self._conversation.items):
            match step:
                case Message():
                    yield self._prompt(step)
                case Reply():
                    yield self._reply(step)
                case Summary():
                    yield {"$set": {"messages": list(self._summary(step))}}
                case Interruption():
                    yield self._message("info", step.id, step.at, CANCELLED)

    def _prompt(self, item: Message) -> Record:
        parts = model_parts.content_parts(item.content)
        text = plain_text(item.content)
        if item.role == "system":
            parts = [{"text": f"<system_message>\n{text}\n</system_message>"}]
        elif is_ignored(text):
            # Gemini sends no prompt to the model that begins as a command or as its own messages.
            others = [part for part in parts if "text" not in part]
            parts = [{"text": _QUOTED + text}, *others]
            display_fields = {"displayContent": [{"text": text}]}
            return {**self._message("user", item.id, item.at, parts), **display_fields}
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
