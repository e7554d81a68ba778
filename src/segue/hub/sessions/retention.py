"""Retention: archive what has been idle, delete what was archived, empty the trash.

Archiving and deleting are off until a workspace says otherwise. The trash is emptied of what has
lain there for its days. Every run can be tried dry first, and none touches a running session.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import msgspec

from segue.model import clock
from segue.model.errors import Busy, InvalidInput, NotFound
from segue.model.event import InfoChanged
from segue.model.session import Session, SessionState
from segue.store.base import Store

Action = Literal["archive", "delete", "purge"]
_MOST = 100_000  # sessions that one run looks at
_SETTING = "retention"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Days before each step; None leaves it out."""

    archive_after: int | None = None
    delete_after: int | None = None
    purge_after: int | None = 30

    def __post_init__(self) -> None:
        for name in ("archive_after", "delete_after", "purge_after"):
            days = getattr(self, name)
            if days is not None and days < 1:
                raise InvalidInput(f"{name} must be at least 1 day, or none")


class Step(NamedTuple):
    """What happens, or would, to one session."""

    action: Action
    session: Session


async def get_policy(store: Store, workspace: str) -> Policy:
    return msgspec.convert((await store.settings(workspace)).get(_SETTING, {}), Policy)


async def set_policy(store: Store, workspace: str, policy: Policy) -> None:
    await store.set_setting(workspace, _SETTING, msgspec.to_builtins(policy))


async def prune(
    store: Store, workspace: str, policy: Policy, now: int, *, dry_run: bool
) -> list[Step]:
    """Do what the policy says, or only say it."""
    rules: list[tuple[Action, SessionState, int | None]] = [
        ("purge", "trashed", policy.purge_after),
        ("delete", "archived", policy.delete_after),
        ("archive", "active", policy.archive_after),
    ]
    steps: list[Step] = []
    for action, state, days in rules:
        if days is not None:
            before = now - days * clock.DAY
            steps += await _apply(store, workspace, action, state, before, dry_run)
    return steps


async def forget(store: Store, workspace: str, before: int) -> list[Step]:
    """Purge what has been idle since then, on whichever state."""
    steps: list[Step] = []
    for state in get_args(SessionState):
        steps += await _apply(store, workspace, "purge", state, before, dry_run=False)
    return steps


async def _apply(
    store: Store, workspace: str, action: Action, state: SessionState, before: int, dry_run: bool
) -> list[Step]:
    found = await store.stale(workspace, state, before, _MOST)
    steps = [Step(action, session) for session in found if not _running(session)]
    return steps if dry_run else [step for step in steps if await _do(store, step, before)]


async def _do(store: Store, step: Step, before: int) -> bool:
    """Whether it was still to be done, decided in the transaction that does it."""
    action, session = step

    def guard(current: Session) -> None:
        if _running(current) or current.state != session.state or current.active_at >= before:
            raise Busy("the session is in use again")

    def decide(current: Session) -> list[InfoChanged]:
        guard(current)
        if action == "archive":
            return [InfoChanged(archived=True, by="auto")]
        return [InfoChanged(deleted=True, by="auto")]

    try:
        if action == "purge":
            await store.purge(session.workspace, session.id, guard)
        else:
            await store.change(session.workspace, session.id, decide)
    except (Busy, NotFound):
        return False
    return True


def _running(session: Session) -> bool:
    return session.status in ("running", "rescheduling") or session.turn is not None
