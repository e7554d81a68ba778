"""Tests that threads, to which an agent delegates work, are shown as subagents."""

from typing import Any

import msgspec
import pytest

from segue.acp import v1
from segue.interfaces.acp.versions.encode_v1 import EncoderV1
from segue.interfaces.acp.versions.encode_v2 import EncoderV2
from segue.interfaces.acp.versions.forwarding import is_shown
from segue.model.event import AgentMessage, Event, ThreadChanged, ThreadStarted
from segue.model.session import Session

SESSION = Session(
    id="S", workspace="local", cwd="/", created_at=0, active_at=0, updated_at=0, last_seq=1
)
BODIES = (
    ThreadStarted(id="1", name="anna", call_id="c", title="Look"),
    ThreadChanged(thread="1", status="idle", stop_reason="end_turn"),
)


@pytest.mark.parametrize(
    ("encoder", "count"),
    [
        (EncoderV1(v1.ClientCapabilities()), 0),
        (EncoderV1(v1.ClientCapabilities(subagents={})), 2),
        (EncoderV2(), 2),
    ],
)
def test_clients_that_show_subagents_get_updates_of_threads(encoder: Any, count: int) -> None:
    events = [Event(seq=2, id="e", at=0, body=body) for body in BODIES]
    updates = [update for event in events for update in encoder.encode_event(event, SESSION)]
    shown = [msgspec.to_builtins(update) for update in updates]
    subagent = {"sessionUpdate": "subagent_update", "sessionId": "S.1"}
    expected = [
        {**subagent, "title": "Look", "description": "anna"},
        {**subagent, "state": {"state": "idle", "stopReason": "end_turn"}},
    ]
    assert shown == expected[:count]


def test_messages_of_threads_are_not_shown_as_the_sessions_own() -> None:
    message = AgentMessage(content=(), thread="1")
    assert not is_shown(Event(seq=2, id="e", at=0, body=message))
    assert all(is_shown(Event(seq=2, id="e", at=0, body=body)) for body in BODIES)
