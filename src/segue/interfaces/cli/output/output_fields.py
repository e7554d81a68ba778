"""The fields that `--format` prints for sessions, events and keys.

Scripts rely on these names and meanings: fields are added, never changed. Times are RFC 3339 in
UTC; money is in US dollars.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from segue.model import clock
from segue.model.event import Event, SystemMessage, Usage, UserMessage
from segue.model.principal import ApiKey
from segue.model.session import OWN, Session

if TYPE_CHECKING:
    from segue.hub import SearchMatch


def session_fields(session: Session) -> dict[str, Any]:
    """Return the fields of a session."""
    agent = session.agent
    return {
        "id": session.id,
        "title": session.title,
        "status": session.status,
        "cwd": session.cwd,
        "created_at": clock.to_rfc3339(session.created_at),
        "active_at": clock.to_rfc3339(session.active_at),
        "updated_at": clock.to_rfc3339(session.updated_at),
        "archived_at": _optional_time(session.archived_at),
        "deleted_at": _optional_time(session.deleted_at),
        "messages": session.messages,
        "turns": session.turns,
        "tool_calls": session.tool_calls,
        "tag": session.tag,
        "source": session.source,
        "origin": session.origin,
        "native_id": session.native_id or session.id,
        "model": last_model(session),
        "agent_id": None if agent is None else agent.id,
        "agent_version": None if agent is None else agent.version,
        "environment_id": session.environment_id,
        "git_branch": session.git_branch,
        "forked_from": None if session.fork is None else session.fork.session,
        "stop_reason": session.stop_reason,
        "pending": list(session.pending),
        "metadata": session.metadata,
        "usage": _usage_fields(session),
    }


def last_model(session: Session) -> str | None:
    """Return the model that was used last, as far as it is known.

    A source says which one that is; the agent of segue's own session may not have used its model.
    """
    used = next(reversed(session.models), None)
    chosen = None if session.agent is None else session.agent.overrides.get("model")
    return used if session.owner == OWN and used else chosen or used


def _usage_fields(session: Session) -> dict[str, Any]:
    """Return the fields of token usage and cost."""
    usage = session.usage
    return {
        "input_tokens": usage.input_tokens or 0,
        "output_tokens": usage.output_tokens or 0,
        "cache_read_tokens": usage.cache_read_tokens or 0,
        "cache_write_tokens": usage.cache_write_tokens or 0,
        **cost_fields(usage, full=session.has_full_cost),
    }


def cost_fields(usage: Usage, *, full: bool) -> dict[str, Any]:
    """Return the fields of a cost, which is not `full` if the price of some tokens is unknown."""
    return {
        "cost": (usage.cost or 0) / 1e6 if usage.is_priced else None,
        "cost_estimated": bool(usage.estimated_cost),
        "cost_partial": usage.cost is not None and not full,
    }


def match_fields(match: SearchMatch) -> dict[str, Any]:
    """Return the fields of a search match: the session, the snippet and its matching ranges."""
    return {
        **session_fields(match.session),
        "event_id": None if match.event is None else match.event.id,
        "snippet": match.snippet,
        "marks": [[marked.start, marked.stop] for marked in match.marks],
    }


def event_fields(event: Event) -> dict[str, Any]:
    """Return the fields of an event."""
    body = event.body
    if isinstance(body, UserMessage | SystemMessage):
        body = replace(body, inserted=())  # offsets that only our own output uses
    return {
        "seq": event.seq,
        "id": event.id,
        "at": clock.to_rfc3339(event.at),
        "type": event.type,
        "body": body,
    }


def key_fields(key: ApiKey) -> dict[str, Any]:
    """Return the fields of an API key, without its secret."""
    return {
        "id": key.id,
        "name": key.name,
        "workspace": key.workspace,
        "hint": key.hint,
        "created_at": clock.to_rfc3339(key.created_at),
        "revoked_at": _optional_time(key.revoked_at),
        "expires_at": _optional_time(key.expires_at),
    }


def _optional_time(at: int | None) -> str | None:
    return None if at is None else clock.to_rfc3339(at)
