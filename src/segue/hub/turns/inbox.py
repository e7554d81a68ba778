"""The bodies of a session's inbox items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from segue.model import codec, ids
from segue.model.content import Content, as_content
from segue.model.event import (
    Draft,
    OutcomeDefined,
    PermissionAnswered,
    SystemMessage,
    ToolResult,
    UserMessage,
)
from segue.model.session import Session
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


def cancel_of(items: Sequence[InboxItem], turn: str | None) -> InboxItem | None:
    """Return the first item that cancels a turn, and not only one of its threads; None if none."""
    cancels = (item for item in items if item.kind == "cancel" and not item.body.get("thread"))
    return next((item for item in cancels if item.body.get("turn") in (None, turn)), None)


def sent_before(items: Sequence[InboxItem], cancel: InboxItem | None) -> list[InboxItem]:
    """Return the answers and results that clients sent to a turn before a cancel, or all of them.

    Those that need the local user and come from another client are left out.
    """
    local = all(item.body.get("local") for item in items if item.kind == "turn")
    return [
        item
        for item in items
        if item.kind in ("answer", "result")
        and (cancel is None or item.number < cancel.number)
        and (item.body.get("local") or not local)
    ]


async def close_requests(store: Store, session: Session) -> tuple[list[InboxItem], list[InboxItem]]:
    """Let clients answer the open requests of a session's turn no more, because the turn ends.

    Returns the answers and results that clients have sent, and the cancel that refuses later ones,
    unless a client has cancelled the turn already. The change that ends the turn consumes both.
    """
    if not (session.open_asks or session.open_calls):
        return [], []
    name, added = (session.workspace, session.id), []
    items = await store.inbox(*name)
    if cancel_of(items, session.turn) is None:
        body = {"turn": session.turn}
        added = [await store.put_inbox(*name, "cancel", ids.new_id(), body)]
        items = await store.inbox(*name)
    return sent_before(items, cancel_of(items, session.turn)), added


def sent_events(session: Session, item: InboxItem) -> list[Draft]:
    """Return the events of an answer or result; none if what it is for is not open."""
    if item.kind == "answer":
        ask_id = item.body["ask_id"]
        if ask_id not in session.open_asks:
            return []
        body = PermissionAnswered(
            ask_id=ask_id,
            option=item.body.get("option"),
            note=item.body.get("note"),
            input=item.body.get("input"),
            extra=item.body.get("extra") or {},
            thread=session.thread_of.get(ask_id),
        )
        return [Draft(id=item.id, body=body)]
    submitted: Result = codec.convert(item.body, Result)
    call_id = submitted.result.call_id
    if call_id not in session.open_calls:
        return []
    return submitted.drafts(item.id, thread=session.thread_of.get(call_id))


def begun_turn(item: InboxItem, *, resumable: bool) -> InboxItem:
    """Return the item that a prompt becomes; it has a holder if the turn needs that process."""
    body = {**item.body, "resumable": resumable}
    holder = item.holder if item.body.get("needs") else ""
    return replace(item, body=body, holder=holder)
