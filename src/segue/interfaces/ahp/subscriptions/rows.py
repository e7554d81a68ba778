"""Sessions as rows of the client's list, and as the state of a session's channel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from segue.interfaces.ahp.protocol import (
    ERROR,
    IDLE,
    IN_PROGRESS,
    INPUT_NEEDED,
    IS_ARCHIVED,
    IS_READ,
    PROVIDER,
    chat_uri,
    directory_uri,
    session_uri,
    time_text,
)
from segue.model.session import Session, Thread

UNTITLED = "Untitled"
READ_ONLY = "read-only"


def activity_status(session: Session) -> int:
    """Return the bits that say what a session does."""
    if session.open_asks or session.pending:
        return INPUT_NEEDED
    if session.status in ("running", "rescheduling"):
        return IN_PROGRESS
    return ERROR if session.stop_reason == "error" else IDLE


def status(session: Session, *, is_read: bool) -> int:
    """Return all status bits of a session."""
    bits = activity_status(session)
    if is_read:
        bits |= IS_READ
    if session.state == "archived":
        bits |= IS_ARCHIVED
    return bits


def summary(session: Session, *, is_read: bool) -> dict[str, Any]:
    """Return the row of a session in the list."""
    chat = chat_uri(session.id)
    return {
        "resource": session_uri(session.id),
        "provider": PROVIDER,
        "title": session.title or UNTITLED,
        "status": status(session, is_read=is_read),
        "createdAt": time_text(session.created_at),
        "modifiedAt": time_text(session.active_at),
        "workingDirectories": directories(session),
        "defaultChat": chat,
        "chats": [{"resource": chat, "title": session.title or UNTITLED}],
    }


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a row that differ."""
    return {name: value for name, value in after.items() if before.get(name) != value}


def session_state(
    session: Session,
    threads: Iterable[Thread],
    config: dict[str, Any],
    active_clients: Sequence[dict[str, Any]],
    *,
    is_read: bool,
) -> dict[str, Any]:
    """Return the state of a session's channel."""
    return {
        "provider": PROVIDER,
        "title": session.title or UNTITLED,
        "status": status(session, is_read=is_read),
        "workingDirectories": directories(session),
        "lifecycle": "ready",
        "activeClients": list(active_clients),
        "chats": [chat_summary(session), *(thread_summary(session, thread) for thread in threads)],
        "defaultChat": chat_uri(session.id),
        "customizations": [],
        "config": config,
    }


def chat_summary(session: Session) -> dict[str, Any]:
    """Return the entry of a session's own chat."""
    return {
        "resource": chat_uri(session.id),
        "title": session.title or UNTITLED,
        "status": activity_status(session),
        "modifiedAt": time_text(session.active_at),
        "origin": {"kind": "user"},
    }


def thread_summary(session: Session, thread: Thread) -> dict[str, Any]:
    """Return the entry of a subagent's chat, which can only be read."""
    at = thread.active_at or thread.created_at or session.active_at
    entry = {
        "resource": chat_uri(session.id, thread.id),
        "title": thread.title or thread.kind or "Subagent",
        "status": IN_PROGRESS if is_running(session, thread) else IDLE,
        "modifiedAt": time_text(at),
        "interactivity": READ_ONLY,
    }
    if thread.call_id is not None:
        parent = chat_uri(session.id, thread.parent) if thread.parent else chat_uri(session.id)
        entry["origin"] = {"kind": "tool", "chat": parent, "toolCallId": thread.call_id}
    return entry


def is_running(session: Session, thread: Thread) -> bool:
    """Return whether a subagent works now, as far as its session knows."""
    return thread.status == "running" and session.status in ("running", "rescheduling")


def directories(session: Session) -> list[str]:
    """Return the addresses of a session's working directory and roots."""
    return [directory_uri(path) for path in dict.fromkeys((session.cwd, *session.roots))]
