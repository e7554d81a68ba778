"""Send the messages of an agent that uses the client's protocol version as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from segue.acp.rpc import INTERNAL_ERROR, RpcError
from segue.interfaces.acp.errors import DIALECT
from segue.model.event import (
    Body,
    Event,
    Failed,
    PermissionAnswered,
    PermissionAsked,
    ThreadChanged,
    UserMessage,
)
from segue.model.session import Session

from .options import MODE, is_agent_option, mode_option

_FINAL_STATUSES = ("completed", "failed", "cancelled")


def comes_from_agent(event: Event) -> bool:
    """Return whether an agent of this protocol has sent the event's content as an update."""
    is_own = isinstance(event.body, UserMessage | PermissionAsked | PermissionAnswered | Failed)
    return DIALECT in event.body.extra and not is_own


def meta_of(body: Body) -> dict[str, Any] | None:
    """Return the `_meta` of the message that an event comes from."""
    meta = body.extra.get(DIALECT, {}).get("_meta")
    return meta if isinstance(meta, dict) else None


def forwarded_request(body: PermissionAsked, version: int) -> dict[str, Any] | None:
    """Return the permission request of an agent that uses the same version, without session id."""
    fields = body.extra.get(DIALECT, {})
    return fields.get("request") if fields.get("version") == version else None


def described_request(body: PermissionAsked) -> list[str]:
    """Return the description that an agent of version 2 gives for its permission request."""
    request = body.extra.get(DIALECT, {}).get("request", {})
    description = request.get("description")
    return [description] if isinstance(description, str) and description else []


def requested_command(body: PermissionAsked) -> dict[str, Any]:
    """Return the command that an agent of version 2 wants to run, with its directory."""
    subject = body.extra.get(DIALECT, {}).get("request", {}).get("subject")
    if not isinstance(subject, dict) or subject.get("type") != "command":
        return {}
    return {name: subject[name] for name in ("command", "cwd") if name in subject}


def turn_error(failure: Failed | None) -> RpcError:
    """Return the error that ended a turn: that of the agent, or one with segue's message."""
    if failure is None:
        return RpcError(INTERNAL_ERROR, "the turn failed")
    if error := failure.extra.get(DIALECT, {}).get("error"):
        return RpcError.from_wire(error)
    return RpcError(INTERNAL_ERROR, failure.message or "the turn failed")


def with_own_mode(
    update: Mapping[str, Any], session: Session, own_options: list[Any]
) -> dict[str, Any]:
    """Return a complete list of options with segue's mode, which the agent does not know.

    `own_options` are the options of the session in the client's version.
    """
    mode = mode_option(session)
    if mode is None or is_agent_option(session, mode["id"]) or mode["id"] != MODE:
        return dict(update)
    modes = [option for option in own_options if option.category == MODE]
    return {**update, "configOptions": [*modes, *update.get("configOptions", ())]}


def forwarded_fields(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the message with an agent's update: `_meta`, a subagent's session."""
    fields = {"_meta": payload["_meta"]} if "_meta" in payload else {}
    return {**fields, "sessionId": payload["session"]} if "session" in payload else fields


class Cancellable:
    """The tool calls and terminals of an agent that a client may cancel now."""

    def __init__(self) -> None:
        self._native_ids: dict[tuple[str, str], str] = {}  # by field and segue's id

    def note(self, payload: Mapping[str, Any]) -> None:
        """Note what an update says about its tool call or terminal."""
        if "session" in payload:
            return  # of a subagent
        update = payload["update"]
        for field in ("toolCallId", "terminalId"):
            if not isinstance(id := update.get(field), str) or "capabilities" not in update:
                continue
            capabilities = update["capabilities"]
            if isinstance(capabilities, dict) and capabilities.get("cancel") is not None:
                self._native_ids[field, id] = payload.get("native_call_id", id)
            else:
                self._native_ids.pop((field, id), None)
        if update.get("status") in _FINAL_STATUSES or update.get("exitStatus") is not None:
            self._native_ids.pop(("toolCallId", str(update.get("toolCallId"))), None)
            self._native_ids.pop(("terminalId", str(update.get("terminalId"))), None)

    def find(self, field: str, id: str) -> str | None:
        """Return the agent's id of a tool call or terminal that can be cancelled now, or None."""
        return self._native_ids.get((field, id))


def is_shown(event: Event) -> bool:
    """Return whether clients receive an event: of a thread, only the changes of its status."""
    return event.body.thread is None or isinstance(event.body, ThreadChanged)
