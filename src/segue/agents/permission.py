"""Decide whether a tool call may run: by policy, session mode and earlier permissions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from segue.model.event import (
    READ_ONLY_KINDS,
    AnyBody,
    Option,
    PermissionAnswered,
    PermissionAsked,
    Policy,
    ToolKind,
    Verdict,
    default_verdict,
)
from segue.model.session import ALWAYS_ALLOWED, Session

from .base import (
    ALLOW,
    REJECT,
    Answer,
    PermissionRequest,
    Turn,
    remember_permission,
)
from .base.spec import PermissionOverride

# The fields of a call that segue has already denied, so that no client runs it.
DENIED: dict[str, Any] = {"policy": "auto", "verdict": "deny"}

# Results of calls that do not run.
DENIED_CALL = "this call was denied"
INPUT_CHANGED = "this call runs on a remote worker, so its input cannot be changed"

_PLAN_MODE_DENIAL = "the session is in plan mode: only read, and describe the changes instead"
_NEVER_ASKS_DENIAL = "this call needs a permission request, and this session's mode never asks"


def verdict(
    session: Session,
    name: str,
    kind: ToolKind,
    policy: Policy,
    override: PermissionOverride = None,
) -> Verdict:
    """Return whether to allow a call, deny it or ask the user.

    The session's mode is the user's choice, so it has precedence over the agent's policy: `plan`
    denies everything except reading, `acceptEdits` allows edits. A hook's `override` has precedence
    over both, but cannot allow a denied call. In a directory that an imported file chose, every
    call asks, also one that only reads.
    """
    if session.directory_is_unconfirmed:
        policy = "always_ask"
    own_verdict = _verdict_without_override(session, name, kind, policy)
    if own_verdict == "deny" or override is None:
        return own_verdict
    # bypassPermissions never asks, so a call that must be asked about cannot run.
    return "deny" if override == "ask" and session.mode == "bypassPermissions" else override


def _verdict_without_override(
    session: Session, name: str, kind: ToolKind, policy: Policy
) -> Verdict:
    read_only = kind in READ_ONLY_KINDS
    match session.mode:
        case "bypassPermissions":
            return "allow"
        case "plan":
            if not read_only:
                return "deny"
            return "ask" if policy == "always_ask" else "allow"
        case "acceptEdits" if kind == "edit":
            return "allow"
    if name in session.options.get(ALWAYS_ALLOWED, ()):
        return "allow"
    return default_verdict(policy, kind)


def permission_fields(
    turn: Turn,
    name: str,
    kind: ToolKind,
    policy: Policy,
    override: PermissionOverride = None,
) -> dict[str, Any]:
    """Return the fields of a tool call that show its policy and verdict to clients."""
    policy = _applicable_policy(turn, policy)
    decision = verdict(turn.session, name, kind, policy, override)
    is_default = decision == default_verdict(policy, kind)
    return {"policy": policy, "verdict": None if is_default else decision}


async def check_permission(
    turn: Turn,
    call_id: str | None,
    title: str,
    name: str,
    kind: ToolKind,
    policy: Policy,
    override: PermissionOverride = None,
) -> Answer:
    """Return whether a call may run, asking the user if the verdict is `ask`.

    If the user always allows the tool, the session remembers it.
    """
    decided = decide_permission(turn, name, kind, policy, override)
    if decided is not None:
        return decided
    request = permission_request(call_id, title, name)
    answer = await turn.request_permission(request.title, request.options, request.call_id)
    await remember_permission(turn, name, answer)
    return answer


def decide_permission(
    turn: Turn, name: str, kind: ToolKind, policy: Policy, override: PermissionOverride = None
) -> Answer | None:
    """Return whether a call may run; None if the user must be asked."""
    match verdict(turn.session, name, kind, _applicable_policy(turn, policy), override):
        case "allow":
            return Answer(option=ALLOW)
        case "deny":
            plan = turn.session.mode == "plan"
            return Answer(note=_PLAN_MODE_DENIAL if plan else _NEVER_ASKS_DENIAL)
    return None


def permission_request(call_id: str | None, title: str, name: str) -> PermissionRequest:
    """Return the question whether a tool may run."""
    always = Option(id="allow_always", name=f"Always allow {name} here", kind="allow_always")
    return PermissionRequest(title=title, options=(ALLOW, always, REJECT), call_id=call_id)


def read_answers(bodies: Iterable[AnyBody]) -> dict[str, Answer | None]:
    """Return the answers to the permission requests of a turn, by call; None if still open."""
    requests: dict[str, PermissionAsked] = {}
    answers: dict[str, Answer | None] = {}
    for body in bodies:
        if isinstance(body, PermissionAsked):
            requests[body.ask_id] = body
            answers[body.call_id or ""] = None
        elif isinstance(body, PermissionAnswered) and body.ask_id in requests:
            request = requests[body.ask_id]
            option = next((option for option in request.options if option.id == body.option), None)
            answers[request.call_id or ""] = Answer(option=option, note=body.note, input=body.input)
    return answers


def _applicable_policy(turn: Turn, policy: Policy) -> Policy:
    """Return the policy for a tool in a turn.

    In the local user's turns tools run with the user's own rights. An agent that an API key chose
    cannot allow them there.
    """
    return policy_by_key(policy) if turn.local and turn.session.agent_by_key else policy


def policy_by_key(policy: Policy) -> Policy:
    """Return the policy that an API key has chosen, as it applies to the local user's turns."""
    return "auto" if policy == "always_allow" else policy


def refusal(answer: Answer) -> str:
    """Return why a call was not allowed, as the result of the call."""
    if answer.option is None and answer.note:
        return answer.note
    return "the user did not allow this" + (f": {answer.note}" if answer.note else "")
