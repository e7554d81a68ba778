"""Tests with real agents of other projects, without network access.

The agents are large, so the default tier skips these tests.
"""

import asyncio
import shlex
from pathlib import Path

import pytest

from segue.acp.client import AcpClient
from segue.model.content import plain_text
from segue.model.event import ConfigChanged
from segue.model.principal import LOCAL
from segue.model.query import Query
from tests.agents.acp.test_agent import message_texts, native_ids, open_session, opened_hub
from tests.agents.provider import Provider, Say, Think
from tests.clients import toolbox

pytestmark = pytest.mark.full

FAST_AGENT = "fast-agent-mcp==0.10.46"
OPENCODE = "opencode-ai@1.18.33"
CLAUDE = "@agentclientprotocol/claude-agent-acp@0.99.1"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory without the user's files, for the agent's own files."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("DATA", "CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    return tmp_path


@pytest.fixture(scope="module")
def fast_agent() -> str:
    python = toolbox.python_of((3, 12))
    if python is None:
        pytest.skip("fast-agent needs Python 3.12")
    program = Path(toolbox.python_with(FAST_AGENT, python)).with_name("fast-agent-acp")
    return shlex.join([str(program), "--model", "passthrough"])


@pytest.fixture(scope="module")
def opencode() -> str:
    packages = toolbox.node_packages(OPENCODE) / "node_modules"
    program = packages / "opencode-linux-x64-baseline" / "bin" / "opencode"
    if not program.exists():
        pytest.skip("opencode has no program for this machine here")
    return shlex.join([str(program), "acp"])


@pytest.fixture(scope="module")
def claude_agent() -> str:
    package = CLAUDE.rpartition("@")[0]
    program = toolbox.node_packages(CLAUDE) / "node_modules" / package / "dist" / "index.js"
    return shlex.join([toolbox.node(), str(program)])


async def test_fast_agent_continues_its_session_in_a_new_process(
    home: Path, fast_agent: str
) -> None:
    async with opened_hub(home) as hub:
        id, hold = await open_session(hub, fast_agent, home)
        assert await hub.turns.run(LOCAL, id, "hello there", opened=hold) == "end_turn"
        assert await message_texts(hub, id) == ["hello there"]
        await hold.close()
    async with opened_hub(home) as hub:
        _, hold = await open_session(hub, fast_agent, home, id)
        assert await hub.turns.run(LOCAL, id, "and again", opened=hold) == "end_turn"
        # The agent wrongly replays messages on resume; segue must not store them twice.
        assert await message_texts(hub, id) == ["hello there", "and again"]
        assert len(await native_ids(hub, id)) == 1
        await hold.close()


async def test_native_sessions_of_opencode_are_listed_and_imported(
    home: Path, opencode: str
) -> None:
    async with AcpClient.start(shlex.split(opencode), cwd=str(home)) as client:
        native = await client.new(str(home))
    async with opened_hub(home) as hub:
        await hub.agents.register_agent(LOCAL, "acp:opencode", {"kind": "acp", "command": opencode})
        # Without a directory, the agent lists the sessions of the project where it was started.
        (row,) = (await hub.sessions.list(LOCAL, Query(cwd=str(home)))).sessions
        assert (row.native_id, row.source, row.cwd) == (native, "acp:opencode", str(home))
        assert row.title is None  # the agent's titles are times of creation
        imported = await hub.sync.import_if_listed_only(LOCAL, row.id)
        assert (imported.id, imported.native_id) == (row.id, native)
        assert [session.id for session in (await hub.sessions.list(LOCAL)).sessions] == [row.id]


async def test_sessions_of_claude_agent_are_prompted_listed_and_imported(
    home: Path, claude_agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / ".claude"))
    monkeypatch.setenv("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
    monkeypatch.setenv("IS_SANDBOX", "1")  # or it does not run as root
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    project = home / "project"
    project.mkdir()
    async with Provider() as provider:
        provider.otherwise = [Think("hm"), Say("Here I am.")]
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
        async with opened_hub(home / "one") as hub:
            agent = await hub.agents.from_spec(LOCAL, {"kind": "acp", "command": claude_agent})
            logins = await agent.logins()
            assert logins and all(login.args for login in logins)
            started = await agent.start_session(str(project), (), None)
            options = started.bind(started.id)
            names = [option["id"] for option in options["offered"]["options"]]
            assert {"mode", "model"} <= set(names)
            session = await hub.editor.create(LOCAL, id=started.id, cwd=str(project))
            await hub.editor.configure(LOCAL, session.id, ConfigChanged(options=options))
            opened = await hub.turns.open(LOCAL, session.id, agent=agent)
            async with asyncio.timeout(100):
                reason = await hub.turns.run(LOCAL, session.id, "Are you there?", opened=opened)
                assert reason == "end_turn"
            assert await message_texts(hub, session.id) == ["Here I am."]
            await opened.close()
    async with opened_hub(home / "two") as hub:  # another store, which does not have the session
        await hub.agents.register_agent(
            LOCAL, "acp:claude", {"kind": "acp", "command": claude_agent}
        )
        (row,) = (await hub.sessions.list(LOCAL)).sessions
        assert (row.id, row.cwd) == (started.id, str(project))
        await hub.sync.import_if_listed_only(LOCAL, row.id)
        assert await message_texts(hub, row.id) == ["Here I am."]
        (prompt,) = await hub.history.events(LOCAL, row.id, types=["user_message"])
        assert plain_text(prompt.body.content) == "Are you there?"
