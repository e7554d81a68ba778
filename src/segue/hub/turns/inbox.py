"""What the rows of a session's inbox carry."""

from __future__ import annotations

from typing import Any

import msgspec

from segue.model.content import Content, as_content
from segue.model.event import Draft, OutcomeDefined, SystemMessage, ToolResult, UserMessage


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What a system says along with something else, and the id that its event will have."""

    id: str
    content: Content


class Prompt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent is asked; `local` says that the local user asks it.

    `overrides` and `mode` apply to this turn only, and take precedence over the session's. With
    `replay_to_late_stream`, a stream that opens shortly after the turn replays it. A prompt that
    `resumes` continues a turn that a budget ended; it adds no user message.
    """

    content: Content
    extra: dict[str, Any] = {}
    local: bool = False
    overrides: dict[str, Any] = {}
    mode: str | None = None
    outcome: OutcomeDefined | None = None
    system: Said | None = None
    replay_to_late_stream: bool = False
    resumes: bool = False

    def drafts(self, id: str) -> list[Draft]:
        if self.resumes:
            return []
        if self.outcome is not None:
            return [Draft(id=id, body=self.outcome)]
        message = UserMessage(content=self.content, extra=self.extra)
        return [Draft(id=id, body=message), *_said(self.system)]


# Confined, whoever changes the budget: somebody else may have asked.
RESUME = Prompt(
    content=as_content("Go on where you stopped."), resumes=True, replay_to_late_stream=True
)


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of a tool call that ran elsewhere."""

    result: ToolResult
    system: Said | None = None

    def drafts(self, id: str) -> list[Draft]:
        return [Draft(id=id, body=self.result), *_said(self.system)]


def _said(system: Said | None) -> list[Draft]:
    if system is None:
        return []
    return [Draft(id=system.id, body=SystemMessage(content=system.content))]
