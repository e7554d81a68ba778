"""Which notices a change of a session or record causes.

A store adds the notices to the queue of deliveries in the transaction of the change, so none is
lost and none announces a change that was not committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from segue.model import ids
from segue.model.event import (
    Event,
    OutcomeEvaluated,
    StatusChanged,
    ThreadChanged,
    ThreadStarted,
)
from segue.model.record import Record
from segue.model.session import Session

from .delivery import Delivery

SESSION_TYPES = (
    "session.created",
    "session.updated",
    "session.running",
    "session.status_run_started",
    "session.idled",
    "session.status_idled",
    "session.requires_action",
    "session.budget_reached",
    "session.status_rescheduled",
    "session.status_terminated",
    "session.outcome_evaluation_ended",
    "session.thread_created",
    "session.thread_idled",
    "session.thread_terminated",
    "session.archived",
    "session.deleted",
)
# The kinds of records whose changes are announced: the name in types, and the changes.
_RECORD_CHANGES = {
    "agent": ("agent", ("created", "updated", "archived")),
    "environment": ("environment", ("created", "updated", "archived", "deleted")),
    "vault": ("vault", ("created", "archived", "deleted")),
    "credential": ("vault_credential", ("created", "archived", "deleted", "refresh_failed")),
    "memory_store": ("memory_store", ("created", "archived", "deleted")),
    "deployment": ("deployment", ("created", "updated", "paused", "unpaused", "archived")),
    "deployment_run": ("deployment_run", ("started", "succeeded", "failed")),
}
RECORD_TYPES = tuple(
    f"{name}.{change}" for name, changes in _RECORD_CHANGES.values() for change in changes
)
TYPES = (*SESSION_TYPES, *RECORD_TYPES)
_KIND_OF_NAME = {name: kind for kind, (name, _) in _RECORD_CHANGES.items()}
# Fields of a deployment that its runs and pauses change, and no caller.
_RUN_FIELDS = ("fired_at", "last_run_at", "scheduled_from", "paused", "paused_by")
_UNFINISHED = ("pending", "running", "evaluating")


class Notice(NamedTuple):
    """A change to announce: its type, and the ids of what changed, by field."""

    type: str
    object_ids: dict[str, str]

    def delivery(self, at: int) -> Delivery:
        """Return what stores queue for each webhook that announces this type."""
        return Delivery(event=ids.new_id(), type=self.type, at=at, object_ids=self.object_ids)


def kind_of_type(type: str) -> str:
    """Return the kind of the record that a type announces; `session` for a session."""
    name = type.partition(".")[0]
    return _KIND_OF_NAME.get(name, name)


def session_notices(
    before: Session | None, after: Session, events: Sequence[Event]
) -> list[Notice]:
    """Return the notices of new events; `before` is None for a new session."""
    notices: list[Notice] = []
    types: list[str] = []
    if before is None:
        types.append("session.created")
        status, turn = "idle", None
    else:
        status, turn = before.status, before.turn
    for event in events:
        body = event.body
        if isinstance(body, ThreadStarted | ThreadChanged):
            notices += _thread_notices(after.id, body)
        elif body.thread is not None:
            continue
        elif isinstance(body, StatusChanged):
            types += _status_types(body, changed=(status, turn) != (body.status, body.turn))
            status, turn = body.status, body.turn
        elif isinstance(body, OutcomeEvaluated) and body.result not in _UNFINISHED:
            types.append("session.outcome_evaluation_ended")
    if before is not None:
        types += _row_types(before, after)
    return [*(Notice(type, {"id": after.id}) for type in types), *notices]


def _thread_notices(session: str, body: ThreadStarted | ThreadChanged) -> list[Notice]:
    if isinstance(body, ThreadStarted):
        change, thread = "created", body.id
    elif body.thread is None:
        return []
    elif body.status == "idle" and body.stop_reason is not None:
        change, thread = "idled", body.thread
    elif body.status == "terminated":
        change, thread = "terminated", body.thread
    else:
        return []
    thread_id = ids.derived_id(session, "thread", thread)  # as interfaces show it
    object_ids = {"id": session, "session_thread_id": thread_id}
    return [Notice(f"session.thread_{change}", object_ids)]


def purge_notices(session: Session) -> list[Notice]:
    """Return the notices of a purge; the trash was announced as deleted."""
    return [] if session.deleted_at else [Notice("session.deleted", {"id": session.id})]


def is_announced(kind: str) -> bool:
    """Return whether changes of records of a kind are announced."""
    return kind.partition(":")[0] in _RECORD_CHANGES


def record_notices(before: Record | None, after: Record | None) -> list[Notice]:
    """Return the notices of a changed record; None is a record that does not exist."""
    record = after or before
    assert record is not None
    kind, _, parent = record.kind.partition(":")
    name, changes = _RECORD_CHANGES[kind]
    object_ids = (
        {"id": record.id, "vault_id": parent} if kind == "credential" else {"id": record.id}
    )
    return [
        Notice(f"{name}.{change}", object_ids)
        for change in _changes(kind, before, after)
        if change in changes
    ]


def refresh_failed(record: Record) -> Notice:
    """Return the notice of a credential that could not be renewed."""
    parent = record.kind.partition(":")[2]
    return Notice("vault_credential.refresh_failed", {"id": record.id, "vault_id": parent})


def subscribed_types(record: Record) -> tuple[str, ...]:
    """Return the types that a webhook announces; none if it is disabled."""
    enabled = record.archived_at is None and record.body.get("enabled", True)
    return tuple(record.body.get("event_types", ())) if enabled else ()


def _status_types(body: StatusChanged, *, changed: bool) -> list[str]:
    match body.status:
        case "running" if changed:
            return ["session.status_run_started", "session.running"]
        case "idle" if body.stop_reason is not None:
            types = ["session.status_idled", "session.idled"]
            if body.stop_reason in ("requires_action", "budget_reached"):
                types.append(f"session.{body.stop_reason}")
            return types
        case "rescheduling":
            return ["session.status_rescheduled"]
        case "terminated":
            return ["session.status_terminated"]
    return []


def _row_types(before: Session, after: Session) -> list[str]:
    types: list[str] = []
    settings = [(row.title, row.metadata, row.agent, row.budget) for row in (before, after)]
    if settings[0] != settings[1]:
        types.append("session.updated")
    if before.archived_at is None and after.archived_at is not None:
        types.append("session.archived")
        if after.status != "terminated":  # clients see an archived session as terminated
            types.append("session.status_terminated")
    if before.deleted_at is None and after.deleted_at is not None:
        types.append("session.deleted")
    return types


def _changes(kind: str, before: Record | None, after: Record | None) -> list[str]:
    if after is None:
        return ["deleted"]
    if before is None:
        if kind == "deployment_run":
            return ["started", "failed" if after.body.get("error") else "succeeded"]
        # Built-in records exist before they are stored.
        return ["created"] if after.created_at == after.updated_at else []
    if after.archived_at is not None:
        return ["archived"] if before.archived_at is None else []
    if kind != "deployment":
        return ["updated"] if after.body != before.body else []
    changes = ["updated"] if _settings(before.body) != _settings(after.body) else []
    paused = [bool(record.body.get("paused")) for record in (before, after)]
    if paused[0] != paused[1]:
        changes.append("paused" if paused[1] else "unpaused")
    return changes


def _settings(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in _RUN_FIELDS}
