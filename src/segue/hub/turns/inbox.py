"""The bodies of a session's inbox items."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from segue.model import ids
from segue.model.content import Content, as_content
from segue.model.event import Draft, OutcomeDefined, SystemMessage, ToolResult, UserMessage
from segue.store.base import InboxItem, Store


class SystemText(msgspec.Struct, frozen=True, kw_only=True):
    """A system message that comes with a prompt or a result, and the id of its event."""

    id: str
    content: Content


class Prompt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A prompt for an agent; `local` says that the local user sent it.

    `overrides` of the agent and the permission `mode` apply to this turn only. With
    `replay_to_late_stream`, a stream that opens after the turn still gets its events. A prompt
    that `resumes` continues a turn which a budget stopped; it appends no message.

    `opened` is the open session of the client that sent it, and `roots` are that client's. `needs`
    names what only the process that received the prompt has. `resumable` says, once the turn has
    begun, that its agent can resume it. `extra` has fields that only the client's protocol has.
    """

    content: Content
    local: bool = False
    overrides: dict[str, Any] = {}
    mode: str | None = None
    outcome: OutcomeDefined | None = None
    system: SystemText | None = None
    replay_to_late_stream: bool = False
    resumes: bool = False
    opened: str | None = None
    roots: tuple[str, ...] | None = None
    needs: str | None = None
    resumable: bool = False
    extra: dict[str, Any] = {}

    def drafts(self, id: str) -> list[Draft]:
        if self.resumes:
            return []
        if self.outcome is not None:
            return [Draft(id=id, body=self.outcome)]
        message = UserMessage(content=self.content, extra=self.extra)
        return [Draft(id=id, body=message), *_system_drafts(self.system)]


# Not local, so that tools run in the sandbox: another user may have written the prompt.
RESUME = Prompt(
    content=as_content("Continue where you stopped."), resumes=True, replay_to_late_stream=True
)


async def resume(store: Store, name: tuple[str, str]) -> None:
    """Queue a prompt that resumes the turn which a budget stopped, in any process."""
    await store.put_inbox(*name, "prompt", ids.new_id(), msgspec.to_builtins(RESUME))


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a tool call that a client ran; `local` says that the local user sent it."""

    result: ToolResult
    local: bool = False
    system: SystemText | None = None

    def drafts(self, id: str, thread: str | None = None) -> list[Draft]:
        result = replace(self.result, thread=thread)
        return [Draft(id=id, body=result), *_system_drafts(self.system, thread)]


def _system_drafts(system: SystemText | None, thread: str | None = None) -> list[Draft]:
    if system is None:
        return []
    return [Draft(id=system.id, body=SystemMessage(content=system.content, thread=thread))]


def begun_turn(item: InboxItem, *, resumable: bool) -> InboxItem:
    """Return the item that a prompt becomes; it has a holder if the turn needs that process."""
    body = {**item.body, "resumable": resumable}
    holder = item.holder if item.body.get("needs") else ""
    return replace(item, body=body, holder=holder)
