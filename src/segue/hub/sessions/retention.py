"""Retention: archive idle sessions, trash archived ones, purge the trash.

Archiving and trashing are off until a workspace sets a policy. The trash is purged after 30 days
by default. Every run has a dry run, and no run touches a running session.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, NamedTuple, get_args

import msgspec

from segue.model import clock
from segue.model.errors import Busy, InvalidInput, NotFound
from segue.model.event import InfoChanged
from segue.model.principal import Principal
from segue.model.session import Session, SessionState
from segue.store.base import Store

from .editor import SessionEditor

Action = Literal["archive", "delete", "purge"]
MAX_SESSIONS_PER_RUN = 100_000
_SETTING = "retention"


class RetentionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The days before each step; None leaves the step out."""

    archive_after: int | None = None
    delete_after: int | None = None
    purge_after: int | None = 30

    def __post_init__(self) -> None:
        for name in ("archive_after", "delete_after", "purge_after"):
            days = getattr(self, name)
            if days is not None and days < 1:
                raise InvalidInput(f"{name} must be at least 1 day, or none")


class RetentionStep(NamedTuple):
    """What a run does to one session, or would do in a dry run."""

    action: Action
    session: Session


class Retention:
    """Apply a workspace's retention policy."""

    def __init__(self, store: Store, editor: SessionEditor) -> None:
        self._store = store
        self._editor = editor

    async def policy(self, principal: Principal) -> RetentionPolicy:
        """Return the workspace's policy."""
        settings = await self._store.settings(principal.workspace)
        return msgspec.convert(settings.get(_SETTING, {}), RetentionPolicy)

    async def set_policy(self, principal: Principal, policy: RetentionPolicy) -> None:
        """Set the workspace's policy."""
        await self._store.set_setting(principal.workspace, _SETTING, msgspec.to_builtins(policy))

    async def prune(
        self,
        principal: Principal,
        *,
        policy: RetentionPolicy | None = None,
        dry_run: bool = False,
        now: int | None = None,
    ) -> Sequence[RetentionStep]:
        """Apply a policy, by default the workspace's, and return the steps."""
        now = clock.now() if now is None else now
        policy = policy or await self.policy(principal)
        rules: list[tuple[Action, SessionState, int | None]] = [
            ("purge", "trashed", policy.purge_after),
            ("delete", "archived", policy.delete_after),
            ("archive", "active", policy.archive_after),
        ]
        steps: list[RetentionStep] = []
        for action, state, days in rules:
            if days is not None:
                before = now - days * clock.DAY
                steps += await self._apply(principal, action, state, before, dry_run=dry_run)
        return steps

    async def purge_idle(self, principal: Principal, days: int) -> int:
        """Purge every session in any state that was idle for some days; return their number."""
        before = clock.now() - days * clock.DAY
        steps: list[RetentionStep] = []
        for state in get_args(SessionState):
            steps += await self._apply(principal, "purge", state, before, dry_run=False)
        return len(steps)

    async def _apply(
        self,
        principal: Principal,
        action: Action,
        state: SessionState,
        before: int,
        *,
        dry_run: bool,
    ) -> list[RetentionStep]:
        sessions = await self._store.stale(principal.workspace, state, before, MAX_SESSIONS_PER_RUN)
        steps = [RetentionStep(action, session) for session in sessions if not _is_running(session)]
        if dry_run:
            return steps
        done = [step for step in steps if await self._take_step(step, before)]
        if action == "purge":
            for step in done:
                await self._discard(principal, step.session)
        return done

    async def _take_step(self, step: RetentionStep, before: int) -> bool:
        """Take one step, unless the session was used since. The transaction decides that."""
        action, session = step

        def guard(current: Session) -> None:
            if (
                _is_running(current)
                or current.state != session.state
                or current.active_at >= before
            ):
                raise Busy("the session is in use again")

        def decide(current: Session) -> list[InfoChanged]:
            guard(current)
            if action == "archive":
                return [InfoChanged(archived=True, by="auto")]
            return [InfoChanged(deleted=True, by="auto")]

        try:
            if action == "purge":
                await self._store.purge(session.workspace, session.id, guard)
            else:
                await self._store.change(session.workspace, session.id, decide)
        except (Busy, NotFound):
            return False
        return True

    async def _discard(self, principal: Principal, session: Session) -> None:
        """Delete a purged session's files, and trash the original of an imported one."""
        await self._editor.discard_files(session)
        with suppress(Busy, NotFound):  # its tool is working on it, or has deleted it
            await self._editor.trash_originals(principal, session.id)


def _is_running(session: Session) -> bool:
    return session.status in ("running", "rescheduling") or session.turn is not None
