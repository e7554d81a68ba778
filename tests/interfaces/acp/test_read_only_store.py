"""Sessions of a store that cannot be written: they can be listed, loaded and resumed."""

from pathlib import Path
from typing import Any

import pytest

from segue.hub import Hub
from segue.model.event import UserMessage
from segue.model.principal import LOCAL
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.source import ClaudeSource
from tests.claude.entries import Home, S, user
from tests.claude.helpers import append
from tests.interfaces.acp.conversation import conversation
from tests.interfaces.acp.harness import Client
from tests.interfaces.acp.testbed import AcpTestbed
from tests.read_only_store import ReadOnlyStore


class ReadOnlyTestbed(AcpTestbed):
    """A testbed whose servers fail the test when they write to the store."""

    def hub(self, **options: Any) -> Hub:
        store = super().hub().store
        return Hub(ReadOnlyStore(store), self.data, **options)  # type: ignore[arg-type]


async def test_list_load_and_resume_write_nothing(testbed: AcpTestbed, version: int) -> None:
    async with testbed.hub() as hub:
        session = await hub.editor.create(LOCAL, cwd="/p", title="A title")
        await hub.turns.run(LOCAL, session.id, "/say hello")
    async with ReadOnlyTestbed(testbed.directory).connect_in_process(version) as client:
        await _read_session(client, session.id, "/p", "hello")


async def test_reading_an_imported_session_does_not_pull_into_a_read_only_store(
    testbed: AcpTestbed, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home.root))
    transcript = home.write_conversation(prompt="hello", cwd="/p")
    source = ClaudeSource(tmp_path / "claude.index", ClaudeHome(str(home.root)))
    async with testbed.hub(sources=[source]) as hub:
        await hub.sync.import_session(LOCAL, S, "claude")
    append(transcript, user("u2", "a1", "added after the import", cwd="/p"))
    testbed = ReadOnlyTestbed(testbed.directory)
    async with testbed.connect_in_process(version, sources=[source]) as client:
        await _read_session(client, S, "/p", "hello")
    async with testbed.hub() as hub:
        events = await hub.history.events(LOCAL, S)
    assert sum(isinstance(event.body, UserMessage) for event in events) == 1


async def _read_session(client: Client, session_id: str, cwd: str, text: str) -> None:
    """List, load and resume a session, and check that its history has a text."""
    sessions = (await client.request("session/list", {}))["sessions"]
    assert [session["sessionId"] for session in sessions] == [session_id]
    assert text in str(conversation(await client.replay(session_id, cwd)))
    await client.open_session("resume", session_id, cwd)
    await client.request("session/close", {"sessionId": session_id})
    await client.open_session("load", session_id, cwd)
