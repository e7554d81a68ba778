"""The session, and its one thread, as this dialect shows them: every key, nulls included."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from ...model import clock, ids
from ...model.event import Usage
from ...model.session import Outcome, Session


class SessionOut(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="session"):
    """`source`, `cwd` and `tag` are ours: clients keep fields that they do not know."""

    id: str
    agent: msgspec.Raw
    environment_id: str
    title: str | None
    metadata: dict[str, str]
    vault_ids: list[str]
    deployment_id: str | None
    resources: tuple[dict[str, Any], ...]
    outcome_evaluations: list[dict[str, Any]]
    status: str
    stats: dict[str, float]
    usage: dict[str, Any]
    budget: None = None
    created_at: str
    updated_at: str
    archived_at: str | None
    source: str
    cwd: str
    tag: str | None


def status(session: Session) -> str:
    """An archived session takes nothing more, which this dialect calls terminated."""
    return session.status if session.archived_at is None else "terminated"


def show(session: Session, agent: msgspec.Raw, environment_id: str, now: int) -> SessionOut:
    ended = session.terminated_at if session.archived_at is None else session.archived_at
    timed = session if ended is None else replace(session, terminated_at=ended)
    active = timed.active_seconds(now)
    return SessionOut(
        id=ids.spell("sesn", session.id),
        agent=agent,
        environment_id=_environment(environment_id),
        title=session.title,
        metadata=session.metadata,
        vault_ids=[ids.spell("vlt", id) for id in session.vault_ids],
        deployment_id=_spelt("depl", session.deployment_id),
        resources=session.resources,
        outcome_evaluations=[_outcome(outcome) for outcome in session.outcomes],
        status=status(session),
        stats={"active_seconds": active, "duration_seconds": timed.duration_seconds(now)},
        usage=usage(session.usage, active),
        created_at=clock.to_rfc3339(session.created_at),
        updated_at=clock.to_rfc3339(session.updated_at),
        archived_at=None if session.archived_at is None else clock.to_rfc3339(session.archived_at),
        source=session.source,
        cwd=session.cwd,
        tag=session.tag,
    )


@lru_cache(1024)  # a list names a few of them over and over
def _environment(id: str) -> str:
    return ids.spell("env", id)


def usage(spent: Usage, active_seconds: float) -> dict[str, Any]:
    """Tokens, time, and money in whole cents."""
    cached = None
    if spent.cache_1h_tokens or spent.cache_5m_tokens:
        cached = {
            "ephemeral_1h_input_tokens": spent.cache_1h_tokens,
            "ephemeral_5m_input_tokens": spent.cache_5m_tokens,
        }
    return {
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cache_read_input_tokens": spent.cache_read_tokens,
        "cache_creation": cached,
        "active_seconds": active_seconds,
        "list_cost": {"amount": str(spent.cost // 10_000), "currency": "USD"},
        "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
    }


def thread_id(session_id: str) -> str:
    """The primary thread, which every session has."""
    return ids.spell("sthr", ids.derived_id(session_id, "thread"))


def show_thread(session: Session, agent: dict[str, Any], now: int) -> dict[str, Any]:
    shown = show(session, msgspec.Raw(b"null"), session.id, now)
    return {
        "type": "session_thread",
        "id": thread_id(session.id),
        "session_id": shown.id,
        "parent_thread_id": None,
        "workflow_run_id": None,
        "agent": agent,
        "status": shown.status,
        "stats": {**shown.stats, "startup_seconds": 0.0},
        "usage": shown.usage,
        "created_at": shown.created_at,
        "updated_at": shown.updated_at,
        "archived_at": shown.archived_at,
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    done = outcome.completed_at
    return {
        "type": "outcome_evaluation",
        "outcome_id": _spelt("outc", outcome.outcome_id),
        "description": outcome.description,
        "iteration": outcome.iteration,
        "result": outcome.result,
        "explanation": outcome.explanation,
        "completed_at": None if done is None else clock.to_rfc3339(done),
    }


def _spelt(prefix: str, id: str | None) -> str | None:
    if id is None:
        return None
    known = ids.parse(id)
    return id if known is None else ids.spell(prefix, known)
