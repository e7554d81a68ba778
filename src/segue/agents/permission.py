"""Whether a tool may be used: by its policy, the session's mode, and what was allowed before."""

from __future__ import annotations

from typing import Any, Literal

from segue.model.event import ConfigChanged, Option, ToolKind
from segue.model.session import Session

from .base import ALLOW, REJECT, Answer, Turn

Policy = Literal["always_allow", "always_ask", "auto"]
Verdict = Literal["allow", "ask", "deny"]
PermissionOverride = Literal["allow", "ask"] | None

# What the person at a session may choose.
MODES = ("default", "acceptEdits", "plan", "bypassPermissions")
# The option of a session that remembers what somebody always allows.
ALWAYS_ALLOWED = "always_allow"
_DENIED = {"plan": "the session is in plan mode: look, and say what you would do"}
_NOBODY = "somebody would have to be asked first, and in this mode nobody is"
# The kinds of tools that change nothing.
READ_ONLY_KINDS = frozenset({"read", "search", "think"})
# In the `extra` of a call that is refused already, so that nobody who sees it runs it.
DENIED_EXTRA: dict[str, Any] = {"permission": {"policy": "auto", "verdict": "deny"}}


def verdict(
    session: Session, name: str, kind: ToolKind, policy: Policy, override: PermissionOverride = None
) -> Verdict:
    """What to do about one call.

    A mode is what the person at the session chose, so it comes before the agent's policies: to
    plan is to look only, and to accept edits is not to be asked about them. A `override` of the
    program's comes before both, but for what is not to be done at all.
    """
    found = _verdict(session, name, kind, policy)
    if found == "deny" or override is None:
        return found
    # Where nobody is ever asked, what is to be asked cannot be done.
    return "deny" if override == "ask" and session.mode == "bypassPermissions" else override


def _verdict(session: Session, name: str, kind: ToolKind, policy: Policy) -> Verdict:
    looks = kind in READ_ONLY_KINDS
    match session.mode:
        case "bypassPermissions":
            return "allow"
        case "plan":
            return "allow" if looks and policy != "always_ask" else "ask" if looks else "deny"
        case "acceptEdits" if kind == "edit":
            return "allow"
    if policy == "always_allow" or name in session.options.get(ALWAYS_ALLOWED, ()):
        return "allow"
    return "allow" if policy == "auto" and looks else "ask"


def permission_extra(
    session: Session, name: str, kind: ToolKind, policy: Policy, override: PermissionOverride = None
) -> dict[str, Any]:
    """What is decided about a call, in its `extra`, for doors that show it."""
    found = verdict(session, name, kind, policy, override)
    return {"permission": {"policy": policy, "verdict": found}}


async def check_permission(
    turn: Turn,
    call_id: str | None,
    title: str,
    name: str,
    kind: ToolKind,
    policy: Policy,
    override: PermissionOverride = None,
) -> Answer:
    """Whether a call may be done: as the verdict is or, where it is to ask, as somebody says."""
    match verdict(turn.session, name, kind, policy, override):
        case "allow":
            return Answer(option=ALLOW)
        case "deny":
            return Answer(note=_DENIED.get(turn.session.mode or "", _NOBODY))
    always = Option(id="allow_always", name=f"Always allow {name} here", kind="allow_always")
    answer = await turn.request_permission(title, (ALLOW, always, REJECT), call_id)
    if answer.option == always:
        known = turn.session.options.get(ALWAYS_ALLOWED, ())
        await turn.emit(ConfigChanged(options={ALWAYS_ALLOWED: sorted({*known, name})}))
    return answer


def refusal(answer: Answer) -> str:
    """Why a call was not done, for whoever called."""
    if answer.option is None and answer.note:
        return answer.note
    return "the user did not allow this" + (f": {answer.note}" if answer.note else "")
