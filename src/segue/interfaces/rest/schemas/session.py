"""Sessions in responses. Every field is present, null ones included."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from segue.hub.turns.budgets import MICRODOLLARS_PER_CENT
from segue.model import clock, codec, ids
from segue.model.event import Usage
from segue.model.lifecycle import Status
from segue.model.session import Outcome, Session

MAX_CACHED_SESSIONS = 5000


class Stats(msgspec.Struct, frozen=True, gc=False):
    active_seconds: float
    duration_seconds: float


class CacheCreation(msgspec.Struct, frozen=True, gc=False):
    ephemeral_1h_input_tokens: int
    ephemeral_5m_input_tokens: int


class Money(msgspec.Struct, frozen=True, gc=False):
    """A number of whole cents, as text."""

    amount: str
    currency: str = "USD"


class BudgetOut(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="limit"):
    max_list_cost: Money


class ServerToolUse(msgspec.Struct, frozen=True, gc=False):
    web_search_requests: int = 0
    web_fetch_requests: int = 0


class UsageOut(msgspec.Struct, frozen=True, gc=False):
    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int
    cache_creation: CacheCreation | None
    active_seconds: float
    list_cost: Money
    server_tool_use: ServerToolUse = ServerToolUse()


class OutcomeOut(msgspec.Struct, frozen=True, tag_field="type", tag="outcome_evaluation"):
    outcome_id: str
    description: str
    iteration: int
    result: str
    explanation: str | None
    completed_at: datetime | None


class SessionOut(msgspec.Struct, frozen=True, tag_field="type", tag="session"):
    """`source`, `cwd` and `tag` are fields that only segue has; clients keep unknown fields.

    `cwd` is null if segue made the session's directory: its path says nothing to a client.
    """

    id: str
    agent: msgspec.Raw
    environment_id: str
    title: str | None
    metadata: dict[str, str]
    vault_ids: list[str]
    deployment_id: str | None
    resources: tuple[dict[str, Any], ...]
    outcome_evaluations: list[OutcomeOut]
    status: str
    usage: UsageOut
    budget: BudgetOut | None
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None
    source: str
    cwd: str | None
    tag: str | None
    stats: Stats  # the last, for SessionEncoder


def status(session: Session) -> Status:
    """Return a session's status. This API calls an archived session terminated."""
    return session.status if session.archived_at is None else "terminated"


def show(
    session: Session,
    agent: msgspec.Raw,
    environment_id: str,
    now: int,
    session_directories: str = "",
) -> SessionOut:
    """Return a session as the API shows it at a time.

    `session_directories` is the directory below which segue makes those of sessions. Without it,
    no `cwd` is shown.
    """
    archived = session.archived_at
    active = session.active_seconds(now)
    deployment = session.deployment_id
    return SessionOut(
        ids.format_id("sesn", session.id),
        agent,
        _environment(environment_id),
        session.title,
        session.metadata,
        [ids.format_id("vlt", id) for id in session.vault_ids] if session.vault_ids else [],
        None if deployment is None else _format_if_valid("depl", deployment),
        session.resources,
        [_outcome(outcome) for outcome in session.outcomes] if session.outcomes else [],
        status(session),
        usage(session.usage, active),
        budget(session.budget),
        clock.to_datetime(session.created_at),
        clock.to_datetime(session.updated_at),
        None if archived is None else clock.to_datetime(archived),
        session.source,
        None if session.cwd.startswith(session_directories + "/") else session.cwd,
        session.tag,
        Stats(active, _duration(session, now)),
    )


class SessionEncoder:
    """Encode sessions as JSON, and reuse the bytes of a session while its row stays the same.

    Clients request the same lists again and again. In a session that is not running, only the
    duration changes by itself; it is the last field, so that all bytes before it can be reused.
    """

    def __init__(self, session_directories: str) -> None:
        self.session_directories = session_directories
        self._heads: dict[tuple[object, ...], bytes] = {}

    def show(
        self, session: Session, agent: msgspec.Raw, environment_id: str, now: int
    ) -> msgspec.Raw | SessionOut:
        """Return a session as the API shows it, encoded unless it is running."""
        if session.running_since is not None:
            return show(session, agent, environment_id, now, self.session_directories)
        # The row of a session changes with its last event. A source's row can also change without
        # an event, and so can the form in which a client names the directory.
        key = (
            session.workspace,
            session.id,
            session.last_seq,
            session.updated_at,
            session.archived_at,
            session.status,
            session.title,
            session.tag,
            session.cwd,
        )
        head = self._heads.get(key)
        if head is None:
            shown = show(session, agent, environment_id, now, self.session_directories)
            encoded = codec.encode(shown)
            head = encoded[: encoded.rindex(b":") + 1]
            if len(self._heads) >= MAX_CACHED_SESSIONS:
                self._heads.clear()
            self._heads[key] = head
        return msgspec.Raw(b"%b%.6f}}" % (head, _duration(session, now)))


def _duration(session: Session, now: int) -> float:
    ended = session.terminated_at if session.archived_at is None else session.archived_at
    return max(0, (now if ended is None else ended) - session.created_at) / 1e6


@lru_cache(1024)  # most sessions of a list have one of a few environments
def _environment(id: str) -> str:
    return ids.format_id("env", id)


def usage(total: Usage, active_seconds: float) -> UsageOut:
    """Return the tokens, the active time and the cost of a session or thread."""
    cache_creation = None
    if total.cache_write_tokens:
        cache_creation = CacheCreation(total.cache_1h_tokens or 0, total.cache_5m_tokens)
    return UsageOut(
        total.input_tokens or 0,
        total.output_tokens or 0,
        total.cache_read_tokens or 0,
        cache_creation,
        active_seconds,
        _money(total.cost or 0),
    )


def budget(max_cost: int | None) -> BudgetOut | None:
    """Return a session's budget, or None if it has no limit."""
    return None if max_cost is None else BudgetOut(_money(max_cost))


def _money(cost: int) -> Money:
    return Money(str((cost + MICRODOLLARS_PER_CENT // 2) // MICRODOLLARS_PER_CENT))


def thread_id(session_id: str, thread: str | None = None) -> str:
    """Return the id of a session's thread; None stands for the primary one."""
    parts = (session_id, "thread") if thread is None else (session_id, "thread", thread)
    return ids.format_id("sthr", ids.derived_id(*parts))


def _outcome(outcome: Outcome) -> OutcomeOut:
    completed = outcome.completed_at
    return OutcomeOut(
        outcome_id(outcome.outcome_id),
        outcome.description,
        outcome.iteration,
        outcome.result,
        outcome.explanation,
        None if completed is None else clock.to_datetime(completed),
    )


def outcome_id(id: str) -> str:
    """Return the id of an outcome as this API shows it."""
    return _format_if_valid("outc", id)


def _format_if_valid(prefix: str, id: str) -> str:
    """Return an id with its prefix; an id that is not valid stays as it is."""
    parsed = ids.parse(id)
    return id if parsed is None else ids.format_id(prefix, parsed)
