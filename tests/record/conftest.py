"""An export file with events of every type."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from segue.hub.sync import export_file
from segue.model.event import BODIES, Event

OLD_EXPORT = Path(__file__).parent.parent / "hub" / "old_exports" / "version_1.jsonl"


async def current_export() -> list[bytes]:
    """Return the old export as the current version writes it."""
    header, events = export_file.read(OLD_EXPORT.read_bytes().splitlines())

    async def stored() -> AsyncIterator[Event]:
        for event in events:
            yield event

    return [line async for line in export_file.write(header.session, header.agents, stored())]


@pytest.fixture
def exported() -> list[bytes]:
    """The lines of a valid file."""
    lines = asyncio.run(current_export())
    types = {json.loads(line)["body"]["type"] for line in lines[1:]}
    assert set(BODIES) - types <= {"system_message", "interrupted", "tool_call_changed"}
    return lines
