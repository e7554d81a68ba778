"""Checks of turns: prompts, their updates, their ends and cancels."""

from __future__ import annotations

import asyncio

from .peer import Answered, CheckSkipped
from .session import Steps, check, expect

SOON_SECONDS = 0.1  # in which the turn of an agent without a model ends
_REASONS = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")
_BLOCKS = {
    "image": {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    "audio": {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
    "embeddedContext": {"type": "resource", "resource": {"uri": "file:///a", "text": "a"}},
}


@check("PROMPT-001", "a turn ends with a known stop reason")
async def _stop_reason(steps: Steps) -> None:
    reason = await steps.run(await steps.new_id())
    expect(reason in _REASONS or reason.startswith("_"), f"the stop reason is {reason!r}")


@check("PROMPT-002", "the agent's answer arrives as messages of the session")
async def _messages(steps: Steps) -> None:
    session = await steps.new_id()
    before = len(steps.peer.log)
    await steps.run(session)
    updates = [u for u in steps.peer.updates(before) if u.kind.startswith("agent_message")]
    expect(updates, "the turn had no message of the agent")
    others = {update.session for update in updates} - {session}
    expect(not others, f"messages named the sessions {others}")


@check("PROMPT-003", "all updates of a turn precede the response to its prompt", versions=(1,))
async def _updates_first(steps: Steps) -> None:
    session = await steps.new_id()
    before = len(steps.peer.log)
    await steps.run(session)
    answered = steps.peer.position("session/prompt", before)
    await steps.peer.quiet()
    late = [u.kind for u in steps.peer.updates(answered) if u.kind.startswith(("agent_", "tool_"))]
    expect(not late, f"{late} came after the response")


@check("PROMPT-004", "the response and the shown user message have one id", versions=(2,))
async def _message_id(steps: Steps) -> None:
    session = await steps.new_id()
    before = len(steps.peer.log)
    request = await steps.start(session)
    result = await steps.answer(request)
    await steps.finish(session, request, before)
    ids = {
        update.body.get("messageId")
        for update in steps.peer.updates(before)
        if update.kind.startswith("user_message")
    }
    expect(isinstance(result.get("messageId"), str), f"the response is {result}")
    expect(result["messageId"] in ids, f"{result['messageId']!r} is not among {ids}")


@check("PROMPT-005", "content that the agent does not advertise is refused: -32602", versions=(2,))
async def _content(steps: Steps) -> None:
    refused = [block for name, block in _BLOCKS.items() if not steps.accepts(name)]
    if not refused:
        raise CheckSkipped("the agent accepts all content")
    session = await steps.new_id()
    for block in refused:
        params = {"sessionId": session, "prompt": [block]}
        await steps.peer.expect_error("session/prompt", params, -32602)


@check("PROMPT-006", "a prompt for an unknown session fails")
async def _unknown_session(steps: Steps) -> None:
    codes = (-32002,) if steps.version == 2 else ()
    params = {"sessionId": "no-such-session", "prompt": [{"type": "text", "text": "hello"}]}
    await steps.peer.expect_error("session/prompt", params, *codes)


@check("STATE-001", "a turn is running, then idle with a stop reason", versions=(2,))
async def _states(steps: Steps) -> None:
    session = await steps.new_id()
    before = len(steps.peer.log)
    await steps.run(session)
    states = [
        update.body.get("state")
        for update in steps.peer.updates(before)
        if update.kind == "state_update"
    ]
    expect("running" in states and states[-1] == "idle", f"the states were {states}")


@check("CANCEL-001", "a cancelled turn ends as cancelled")
async def _cancel(steps: Steps) -> None:
    session = await steps.new_id()
    await _cancelled(steps, session)


@check("CANCEL-002", "nothing of a cancelled turn follows its end")
async def _quiet_after_cancel(steps: Steps) -> None:
    session = await steps.new_id()
    end = await _cancelled(steps, session)
    await steps.peer.quiet()
    late = [
        update.kind
        for update in steps.peer.updates(end)
        if update.session == session and update.kind.startswith(("agent_", "tool_"))
    ]
    expect(not late, f"{late} came after the end")


@check("CANCEL-003", "a session can be prompted after a cancel")
async def _prompt_after_cancel(steps: Steps) -> None:
    session = await steps.new_id()
    await _cancelled(steps, session)
    reason = await steps.run(session)
    expect(reason != "cancelled", "the next turn was cancelled, too")


@check("CLOSE-003", "closing a session cancels its turn")
async def _close(steps: Steps) -> None:
    steps.require("close")
    session = await steps.new_id()
    before = len(steps.peer.log)
    request = await steps.start(session, steps.prompts.long)
    await _wait_started(steps, session, before)
    await steps.call("session/close", {"sessionId": session})
    _check_cancelled(await steps.finish(session, request, before))


async def _wait_started(steps: Steps, session: str, before: int) -> None:
    """Wait for the first sign of a turn; skip the check if the turn ends at once."""
    peer = steps.peer
    await peer.wait_for("first update of the turn", lambda: len(peer.log) > before or None)
    await asyncio.sleep(SOON_SECONDS)
    answered = steps.version == 1 and Answered("session/prompt") in peer.log[before:]
    if answered or any(update.body.get("stopReason") for update in peer.updates(before)):
        raise CheckSkipped("the turn ended before the cancel")


async def _cancelled(steps: Steps, session: str) -> int:
    """Cancel a turn, and return the position of its end; skip if it ended before."""
    before = len(steps.peer.log)
    request = await steps.start(session, steps.prompts.long)
    await _wait_started(steps, session, before)
    await steps.peer.notify("session/cancel", {"sessionId": session})
    _check_cancelled(await steps.finish(session, request, before))
    if steps.version == 1:
        return steps.peer.position("session/prompt", before)
    idle = [u for u in steps.peer.updates(before) if u.body.get("stopReason") == "cancelled"]
    return steps.peer.log.index(idle[-1], before)


def _check_cancelled(reason: str) -> None:
    if reason == "end_turn":
        raise CheckSkipped("the turn ended before the cancel")
    expect(reason == "cancelled", f"the stop reason is {reason!r}")
