"""Whether a tool may be used: by its policy, the session's mode, and what was allowed before."""

from __future__ import annotations

from typing import Any, Literal

from ...model.event import Option, ToolKind
from ...model.session import Session
from .settings import Policy

Verdict = Literal["allow", "ask", "deny"]

# The option of a session that remembers what somebody always allows.
ALLOWED = "always_allow"
_LOOKS = frozenset({"read", "search", "think"})


def verdict(session: Session, name: str, kind: ToolKind, policy: Policy) -> Verdict:
    """What to do about one call.

    A mode is what the person at the session chose, so it comes before the agent's policies: to
    plan is to look only, and to accept edits is not to be asked about them.
    """
    looks = kind in _LOOKS
    match session.mode:
        case "bypassPermissions":
            return "allow"
        case "plan":
            return "allow" if looks and policy != "always_ask" else "ask" if looks else "deny"
        case "acceptEdits" if kind == "edit":
            return "allow"
    if policy == "always_allow" or name in session.options.get(ALLOWED, ()):
        return "allow"
    return "allow" if policy == "auto" and looks else "ask"


def options(name: str) -> tuple[Option, ...]:
    return (
        Option(id="allow", name="Allow", kind="allow_once"),
        Option(id="allow_always", name=f"Always allow {name} here", kind="allow_always"),
        Option(id="reject", name="Reject", kind="reject_once"),
    )


def remembered(session: Session, name: str) -> dict[str, Any]:
    """The session's options with one more tool that is always allowed."""
    return {ALLOWED: sorted({*session.options.get(ALLOWED, ()), name})}
