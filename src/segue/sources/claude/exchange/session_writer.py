"""Write the conversation of any session as a new transcript that Claude Code resumes."""

from __future__ import annotations

import os
from collections.abc import Iterator

from segue.model import codec, ids
from segue.model.anthropic.content_blocks import DIALECT
from segue.model.content import as_content
from segue.model.event import (
    AgentMessage,
    AgentThought,
    AnyBody,
    Compacted,
    Event,
    InfoChanged,
    Interrupted,
    SystemMessage,
    UserMessage,
)
from segue.sources.claude.format.paths import ClaudeHome, project_key
from segue.sources.claude.tool_names import NAMES
from segue.sources.writing.conversation import (
    Call,
    Conversation,
    Holds,
    Interruption,
    Item,
    Message,
    Summary,
    Thought,
)
from segue.sources.writing.port import NewFile, PreparedSession
from segue.sources.writing.staging import write_files

from .jsonl_writer import EntryComposer

_BODY_OF_ROLE = {"user": UserMessage, "agent": AgentMessage, "system": SystemMessage}


def _is_signed(thought: AgentThought) -> bool:
    """Return whether the API accepts a thought: it has the signature of the model's vendor."""
    return bool((thought.extra.get(DIALECT) or {}).get("signature"))


class ClaudeWriter:
    """Writes transcripts of one Claude Code home."""

    holds = Holds(thoughts="text", own_thought=_is_signed)
    names = NAMES
    deletes_resumed = False

    def __init__(self, home: ClaudeHome) -> None:
        self._home = home

    def prepare(self, conversation: Conversation) -> PreparedSession:
        """Encode a conversation as the lines of a transcript."""
        session, new_id, _ = conversation
        composer = EntryComposer(new_id, session.directory, session.git_branch)
        entries = composer.compose(list(_events(conversation)))
        data = b"".join(codec.encode(entry) + b"\n" for entry in entries)
        project = self._home.project_name or project_key(session.directory)
        path = os.path.join(self._home.projects, project, f"{new_id}.jsonl")
        return PreparedSession(new_id, session.title, [NewFile(path, data)], session.cwd)

    def write(self, prepared: PreparedSession) -> str:
        """Create the transcript."""
        write_files(prepared.files)
        return prepared.native_id


def _events(conversation: Conversation) -> Iterator[Event]:
    """Yield the events of a conversation with ids of the new session."""
    session, new_id, items = conversation
    seq = 0
    for item in items:
        for name, at, body in _bodies(item):
            seq += 1
            yield Event(seq=seq, id=ids.derived_id(new_id, name), at=at, body=body)
    if session.title is not None:
        title = InfoChanged(title=session.title, by=session.title_by or "auto")
        id = ids.derived_id(new_id, "title")
        yield Event(seq=seq + 1, id=id, at=session.active_at, body=title)


def _bodies(item: Item) -> Iterator[tuple[str, int, AnyBody]]:
    match item:
        case Message():
            yield item.id, item.at, _BODY_OF_ROLE[item.role](content=item.content)
        case Thought():
            yield item.id, item.at, item.thought
        case Call():
            yield item.id, item.at, item.call
            yield f"{item.id}/result", item.ended_at, item.result
        case Summary():
            yield item.id, item.at, Compacted(summary=as_content(item.text))
        case Interruption():
            yield item.id, item.at, Interrupted(reason=item.reason)
