"""An export file with events of every type."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from segue.hub.sync import export_file
from segue.model import projection
from segue.model.content import as_content
from segue.model.event import (
    BODIES,
    AgentMessage,
    AnyBody,
    Event,
    ThreadChanged,
    ThreadMessage,
    ThreadStarted,
    Usage,
)

OLD_EXPORTS = Path(__file__).parent.parent / "hub" / "old_exports"
OLD_EXPORT = OLD_EXPORTS / "version_1.jsonl"


def with_usage(event: Event) -> Event:
    """Return a message of the agent as a whole response; other events unchanged."""
    if not isinstance(event.body, AgentMessage):
        return event
    body = replace(
        event.body,
        request=f"request of {event.id}",
        asked_at="2026-01-31T12:00:00Z",
        model="m",
        usage=Usage(output_tokens=7),
        duration=9,
        context_used=18,
        context_size=100,
    )
    return replace(event, body=body)


def thread_events(last: Event) -> list[Event]:
    """Return the events of a thread that answers a tool call, to follow the last event."""
    bodies: list[AnyBody] = [
        ThreadStarted(id="1", name="helper", call_id="c1", title="Look"),
        ThreadChanged(thread="1", status="running", call_id="c1"),
        ThreadMessage(thread="1", content=as_content("Look"), call_id="c1"),
        ThreadChanged(thread="1", status="idle", stop_reason="end_turn", running_time=5),
    ]
    return [
        Event(seq=last.seq + number, id=f"of the thread {number}", at=last.at, body=body)
        for number, body in enumerate(bodies, 1)
    ]


async def current_export() -> list[bytes]:
    """Return the old export as the current version writes it.

    It also has the usage of a response and the events of a thread.
    """
    header, read = export_file.read(OLD_EXPORT.read_bytes().splitlines())
    events = [with_usage(event) for event in read]
    events += thread_events(events[-1])
    session = projection.project("local", header.session.id, events)

    async def stored() -> AsyncIterator[Event]:
        for event in events:
            yield event

    return [line async for line in export_file.write(session, header.agents, stored())]


@pytest.fixture
def exported() -> list[bytes]:
    """The lines of a valid file."""
    lines = asyncio.run(current_export())
    types = {json.loads(line)["body"]["type"] for line in lines[1:]}
    assert set(BODIES) - types <= {"system_message", "interrupted", "tool_call_changed"}
    return lines
