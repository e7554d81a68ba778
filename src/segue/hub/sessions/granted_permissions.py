"""Permissions that a session's history grants: tools that run without a permission request."""

from __future__ import annotations

from segue.model.event import AnyBody, ConfigChanged
from segue.model.session import ALWAYS_ALLOWED, Session

_GRANTING_MODES = ("acceptEdits", "bypassPermissions")


def revocation_events(session: Session, accepted: Session | None = None) -> list[AnyBody]:
    """Return the event that revokes all granted permissions, if `accepted` lacks one of them.

    Turns of the local user and turns of API keys can have different permissions: both count.
    """
    pairs = [(session, accepted)]
    pairs.append((session.for_local_turn(), accepted and accepted.for_local_turn()))
    if all(_grants(granted) <= (_grants(known) if known else set()) for granted, known in pairs):
        return []
    return [ConfigChanged(mode="default", options={ALWAYS_ALLOWED: []})]


def _grants(session: Session) -> set[tuple[str, str]]:
    """Return the tools that are always allowed, and the mode if it allows tools."""
    grants = {("tool", str(tool)) for tool in session.options.get(ALWAYS_ALLOWED) or ()}
    if session.mode in _GRANTING_MODES:
        grants.add(("mode", session.mode))
    return grants
