"""Write the conversation of any session as a new rollout that Codex resumes.

It is one file in the form that every version reads. Codex finds the file by itself, so its
database is not touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from segue.model import clock, ids
from segue.model.content import Content, Image, plain_text
from segue.sources import safe_io
from segue.sources.writing.conversation import (
    Call,
    Conversation,
    Holds,
    Interruption,
    Message,
    Summary,
)
from segue.sources.writing.json_lines import encode_unicode
from segue.sources.writing.port import NewFile, PreparedSession
from segue.sources.writing.staging import write_files
from segue.sources.writing.tool_names import (
    accepted_call_id,
    argument_object,
    function_name,
)

from . import rollouts
from .tool_names import NAMES, PATCH_TOOL

_DEFAULT_PROVIDER = "openai"
_MAX_CALL_ID_LENGTH = 64
_CONFIG_BYTES = 1 << 20
Payload = dict[str, Any]


class CodexWriter:
    """Writes rollouts of one Codex home."""

    holds = Holds(system_messages="text", failures=False, whole_line_edits=True)
    names = NAMES
    deletes_resumed = False

    def __init__(self, home: str) -> None:
        self._home = home

    def prepare(self, conversation: Conversation) -> PreparedSession:
        """Encode a conversation as the lines of a rollout."""
        session, new_id, _ = conversation
        # Codex shows the first prompt itself.
        title = None if session.title_by == "auto" else session.title
        lines = _Lines(conversation, model_provider(self._home))
        data = b"".join(lines.encode())
        name = f"rollout-{datetime.now():%Y-%m-%dT%H-%M-%S}-{new_id}.jsonl"
        path = rollouts.archived_path(self._home, name, archived=False)
        return PreparedSession(new_id, title, [NewFile(path, data)], session.cwd)

    def write(self, prepared: PreparedSession) -> str:
        """Create the rollout. Its name is added to Codex's index of names first."""
        os.makedirs(self._home, 0o700, exist_ok=True)
        if prepared.title is not None:
            rollouts.append_name(self._home, prepared.native_id, prepared.title)
        write_files(prepared.files)
        return prepared.native_id


def model_provider(home: str) -> str:
    """Return the provider that Codex is configured with: it lists only threads of this one."""
    import tomllib

    data = safe_io.read_small_file(os.path.join(home, "config.toml"), _CONFIG_BYTES)
    try:
        config = tomllib.loads((data or b"").decode())
    except ValueError:
        return _DEFAULT_PROVIDER
    profile = config.get("profile")
    profiles = config.get("profiles")
    chosen = profiles.get(profile) if isinstance(profiles, dict) else None
    for settings in (chosen, config):
        provider = settings.get("model_provider") if isinstance(settings, dict) else None
        if isinstance(provider, str):
            return provider
    return _DEFAULT_PROVIDER


class _Lines:
    """Encodes one conversation: what the model sees, and what people see."""

    def __init__(self, conversation: Conversation, provider: str) -> None:
        self._conversation = conversation
        self._provider = provider
        self._turn: str | None = None  # the id of the turn that is open
        self._answer: str | None = None  # its last message

    def encode(self) -> Iterator[bytes]:
        """Yield the lines of the rollout."""
        session, new_id, items = self._conversation
        now = clock.now()
        meta: Payload = {
            "id": new_id,
            "timestamp": clock.to_rfc3339(now),
            "cwd": session.cwd,
            "originator": "codex_cli_rs",
            "cli_version": "0.0.0",
            "source": "cli",
            "model_provider": self._provider,
        }
        if session.git_branch is not None:
            meta["git"] = {"branch": session.git_branch}
        yield _line(now, "session_meta", meta)
        at = now
        for item in items:
            at = item.at
            match item:
                case Message(role="user"):
                    yield from self._end_turn(at)
                    yield from self._prompt(item)
                case Message(role="agent"):
                    yield from self._agent_message(item)
                case Message():
                    message = _message("developer", [_input_text(plain_text(item.content))])
                    yield _line(at, "response_item", message)
                case Call():
                    yield from self._call(item)
                case Summary():
                    summary = _message("user", [_input_text(item.text)])
                    compacted = {"message": item.text, "replacement_history": [summary]}
                    yield _line(at, "compacted", compacted)
                case Interruption():
                    aborted = {"turn_id": self._turn, "reason": "interrupted"}
                    yield _line(at, "event_msg", {"type": "turn_aborted", **aborted})
                    self._turn = None
        yield from self._end_turn(at)

    def _prompt(self, item: Message) -> Iterator[bytes]:
        text = plain_text(item.content)
        self._turn, self._answer = ids.derived_id(self._conversation.new_id, item.id), None
        yield _line(item.at, "event_msg", {"type": "task_started", "turn_id": self._turn})
        yield _line(item.at, "response_item", _message("user", _input_parts(item.content)))
        images = [_url(block) for block in item.content if isinstance(block, Image)]
        prompt = {"message": text, "images": images, "local_images": [], "text_elements": []}
        yield _line(item.at, "event_msg", {"type": "user_message", **prompt})

    def _agent_message(self, item: Message) -> Iterator[bytes]:
        text = self._answer = plain_text(item.content)
        yield _line(item.at, "event_msg", {"type": "agent_message", "message": text})
        part = {"type": "output_text", "text": text}
        yield _line(item.at, "response_item", _message("assistant", [part]))

    def _call(self, item: Call) -> Iterator[bytes]:
        call, result = item.call, item.result
        arguments = encode_unicode(argument_object(call.input)).decode()
        kind, fields = "function_call", {"arguments": arguments}
        if call.name == PATCH_TOOL and call.server is None and isinstance(call.input, str):
            kind, fields = "custom_tool_call", {"input": call.input}
        call_id = accepted_call_id(call, _MAX_CALL_ID_LENGTH)
        opening = {"type": kind, "name": function_name(call), **fields, "call_id": call_id}
        yield _line(item.at, "response_item", opening)
        has_images = any(isinstance(block, Image) for block in result.content)
        output = _input_parts(result.content) if has_images else item.output
        closing = {"type": f"{kind}_output", "call_id": call_id, "output": output}
        yield _line(item.ended_at, "response_item", closing)

    def _end_turn(self, at: int) -> Iterator[bytes]:
        if self._turn is not None:
            end = {"turn_id": self._turn, "last_agent_message": self._answer}
            yield _line(at, "event_msg", {"type": "task_complete", **end})
            self._turn = None


def _line(at: int, kind: str, payload: Payload) -> bytes:
    line = {"timestamp": clock.to_rfc3339(at), "type": kind, "payload": payload}
    return encode_unicode(line) + b"\n"


def _message(role: str, content: list[Payload]) -> Payload:
    return {"type": "message", "role": role, "content": content}


def _input_text(text: str) -> Payload:
    return {"type": "input_text", "text": text}


def _input_parts(content: Content) -> list[Payload]:
    parts = []
    for block in content:
        if isinstance(block, Image):
            parts.append({"type": "input_image", "image_url": _url(block)})
        else:
            parts.append(_input_text(plain_text((block,))))
    return parts


def _url(image: Image) -> str:
    return f"data:{image.mime};base64,{image.data}" if image.data else image.uri or ""
