"""Real agents of others, offline: one that answers, and one with sessions of its own.

They are large, so the default tier goes without them.
"""

import shlex
from pathlib import Path

import pytest

from segue.acp.client import AcpClient
from segue.model.principal import LOCAL
from segue.model.query import Query
from tests.agents.acp.test_agent import hub_in, opened, opened_in_child, said
from tests.clients import toolbox

pytestmark = pytest.mark.full

FAST_AGENT = "fast-agent-mcp==0.10.46"
OPENCODE = "opencode-ai@1.18.33"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where an agent finds nothing of the user's, and leaves what it has of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("DATA", "CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    return tmp_path


@pytest.fixture(scope="module")
def fast_agent() -> str:
    python = toolbox.python_of((3, 12))
    if python is None:
        pytest.skip("fast-agent wants Python 3.12")
    program = Path(toolbox.python_with(FAST_AGENT, python)).with_name("fast-agent-acp")
    return shlex.join([str(program), "--model", "passthrough"])


@pytest.fixture(scope="module")
def opencode() -> str:
    packages = toolbox.node_packages(OPENCODE) / "node_modules"
    program = packages / "opencode-linux-x64-baseline" / "bin" / "opencode"
    if not program.exists():
        pytest.skip("opencode has no program for this machine here")
    return shlex.join([str(program), "acp"])


async def test_fast_agent_answers_and_goes_on_in_a_new_process(home: Path, fast_agent: str) -> None:
    async with hub_in(home) as hub:
        id, hold = await opened(hub, fast_agent, home)
        assert await hub.run(LOCAL, id, "hello there") == "end_turn"
        assert await said(hub, id) == ["hello there"]
        await hold.close()
    async with hub_in(home) as hub:
        _, hold = await opened(hub, fast_agent, home, id)
        assert await hub.run(LOCAL, id, "and again") == "end_turn"
        # It replays on resume, which it should not; nothing of that is heard twice.
        assert await said(hub, id) == ["hello there", "and again"]
        assert len(await opened_in_child(hub, id)) == 1
        await hold.close()


async def test_opencode_s_own_sessions_are_listed_and_opened(home: Path, opencode: str) -> None:
    async with AcpClient.start(shlex.split(opencode), cwd=str(home)) as client:
        native = await client.new(str(home))
    async with hub_in(home) as hub:
        agent = await hub.agent(LOCAL, {"kind": "acp", "command": opencode})
        hub.join(LOCAL, "acp:opencode", agent)
        # Without a directory, it lists those of the project that it was started in.
        (row,) = (await hub.list(LOCAL, Query(cwd=str(home)))).sessions
        assert (row.native_id, row.source, row.cwd) == (native, "acp:opencode", str(home))
        assert row.title is None  # it names each after the time, which is no title
        taken = await hub.take_in(LOCAL, row.id, None)
        assert (taken.id, taken.native_id) == (row.id, native)
        assert [session.id for session in (await hub.list(LOCAL)).sessions] == [row.id]
