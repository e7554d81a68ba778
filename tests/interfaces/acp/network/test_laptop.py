"""An editor on one machine continues a session of a server on another."""

import os
from pathlib import Path

import pytest

from segue.acp.remote import url_of_account
from segue.interfaces.acp import ServedAgent
from segue.model.content import plain_text
from segue.model.principal import LOCAL
from tests.interfaces.acp.network.served import PAIRS, serve
from tests.interfaces.acp.testbed import AcpTestbed


@pytest.mark.parametrize(("transport", "version"), PAIRS)
async def test_editor_lists_loads_and_continues_a_session_of_a_server(
    tmp_path: Path, transport: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tmp_path / "server") as served:
        hub = served.hub
        session = await hub.editor.create(LOCAL, title="On the server")
        await hub.turns.run(LOCAL, session.id, "/say from the server")
        monkeypatch.setenv("SEGUE_ACP_TOKEN", served.key)
        url = url_of_account(f"acp+{transport}://127.0.0.1:{served.port}/acp", os.environ)
        agent = ServedAgent(url, {"kind": "acp", "command": url})
        laptop = AcpTestbed(tmp_path / "laptop")
        laptop.directory.mkdir()
        async with laptop.connect_in_process(version, served_agent=agent) as editor:
            (row,) = (await editor.request("session/list", {}))["sessions"]
            assert (row["sessionId"], row["title"]) == (session.id, "On the server")
            replayed = await editor.replay(row["sessionId"], row["cwd"])
            assert "from the server" in str([update.body for update in replayed])
            assert await editor.run_prompt(session.id, "/say from the laptop") == "end_turn"
        messages = await hub.history.events(LOCAL, session.id, types=["agent_message"])
        assert [plain_text(event.body.content) for event in messages] == [
            "from the server",
            "from the laptop",
        ]
