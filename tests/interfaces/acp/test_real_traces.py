"""Traces of real agents: a client receives the same messages with segue in between.

The agents are large, so the default tier skips these tests; test_forwarding.py has a short one.
"""

import asyncio
import json
import os
import re
import shlex
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, chdir
from pathlib import Path
from typing import Any

import pytest

from segue.interfaces.acp import ServedAgent
from tests.agents.provider import Provider, Say, Step, Think, Use
from tests.clients import toolbox
from tests.interfaces.acp.harness import Client, selected
from tests.interfaces.acp.testbed import LINE_BYTES, AcpTestbed, StreamTransport
from tests.interfaces.acp.traces import trace
from tests.sources.real.programs import Home
from tests.sources.real.scripted_model import running_model, script
from tests.sources.real.tools import Gemini, Goose

pytestmark = pytest.mark.full

FAST_AGENT = "fast-agent-mcp==0.10.46"
OPENCODE = "opencode-ai@1.18.33"
CLAUDE = "@agentclientprotocol/claude-agent-acp@0.99.1"
PROMPT = "Look around"
CALLS = ("tool_call", "tool_call_update")
# Values that differ from run to run: times, durations and ids that agents invent.
VOLATILE = re.compile(r"(?i)duration|time|cost|^uuid$|sessionId|^used$|_id$|runId$|^created$")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory without the user's files, for the agent's own files."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("DATA", "CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / ".claude"))
    monkeypatch.setenv("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
    monkeypatch.setenv("IS_SANDBOX", "1")  # or Claude Code does not run as root
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    return tmp_path


@asynccontextmanager
async def connect_command(command: str, version: int) -> AsyncIterator[Client]:
    """Connect a client to an agent directly."""
    process = await asyncio.create_subprocess_exec(
        *shlex.split(command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=dict(os.environ),
        limit=LINE_BYTES,
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None
    client = Client(StreamTransport(process.stdin, process.stdout), version, checked=False)
    try:
        yield client
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # Gemini CLI runs in a child of its own
        await process.wait()
        await client.end()


def stable(value: Any) -> Any:
    """Return JSON without values that differ from run to run."""
    if isinstance(value, list):
        return [stable(item) for item in value]
    if isinstance(value, dict):
        return {name: stable(item) for name, item in value.items() if not VOLATILE.search(name)}
    return value


def answer_with(tool: str, input: dict[str, Any]) -> Any:
    """Return a script that uses a tool once, and then says that it is done."""

    def script(request: dict[str, Any]) -> list[Step]:
        if '"tool_result"' in json.dumps(request.get("messages", [])):
            return [Say("All done.")]
        names = [item.get("name") for item in request.get("tools", [])]
        if tool not in names:
            return [Say("A title")]
        return [Think("hm"), Say("I look."), Use(tool, input)]

    return script


async def run_turn(client: Client, version: int, cwd: Path, prompt: str) -> list[Any]:
    """Run a turn in a new session, and return the messages that the client received in it."""
    capabilities = {"fs": {"readTextFile": False, "writeTextFile": False}, "_meta": {}}
    info = {"name": "harness", "version": "1"}
    if version == 1:
        await client.initialize(clientCapabilities=capabilities, clientInfo=info)
    else:
        await client.initialize()
    client.answer_permission = lambda params: selected(
        next(o["optionId"] for o in params["options"] if o["kind"] == "allow_once")
    )
    id = await client.new_session(cwd)
    await asyncio.sleep(1.0)  # commands may arrive after the response
    before = len(client.log)
    async with asyncio.timeout(100):
        assert await client.run_prompt(id, prompt) == "end_turn"
    await asyncio.sleep(1.0)  # titles may arrive after the turn
    messages = stable(trace(client, prompt, before))
    assert isinstance(messages, list)
    return messages


async def compare(
    testbed: AcpTestbed, command: str, version: int, cwd: Path, prompt: str = PROMPT
) -> list[Any]:
    """Run the same turn directly and through segue, compare, and return the messages."""
    with chdir(cwd):  # as editors do; Gemini CLI names this directory
        async with connect_command(command, version) as client:
            expected = await run_turn(client, version, cwd, prompt)
        served_agent = ServedAgent("acp:real", {"kind": "acp", "command": command})
        async with testbed.connect_in_process(
            version, initialize=False, served_agent=served_agent
        ) as client:
            client.checked = False
            received = await run_turn(client, version, cwd, prompt)
    # A request may overtake the updates that follow it, because it is stored first.
    for is_request in (False, True):
        assert [item for item in received if ("options" in item) == is_request] == [
            item for item in expected if ("options" in item) == is_request
        ]
    return received


def of_kind(messages: list[Any], *kinds: str) -> list[Any]:
    return [
        item for item in messages if isinstance(item, dict) and item.get("sessionUpdate") in kinds
    ]


@pytest.mark.parametrize("protocol", [1, 2])
async def test_claude_agent(
    testbed: AcpTestbed, home: Path, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    package = CLAUDE.rpartition("@")[0]
    program = toolbox.node_packages(CLAUDE) / "node_modules" / package / "dist" / "index.js"
    command = shlex.join([toolbox.node(), str(program)])
    cwd = home / "project"
    cwd.mkdir()
    async with Provider() as provider:
        input = {"command": "touch made", "description": "Make a file"}
        provider.otherwise = answer_with("Bash", input)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
        messages = await compare(testbed, command, protocol, cwd)
    calls = of_kind(messages, *CALLS)
    assert any(call.get("rawInput", {}).get("command") == "touch made" for call in calls)
    assert any("options" in item for item in messages if isinstance(item, dict))


async def test_opencode(testbed: AcpTestbed, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = toolbox.node_packages(OPENCODE) / "node_modules"
    program = packages / "opencode-linux-x64-baseline" / "bin" / "opencode"
    if not program.exists():
        pytest.skip("opencode has no program for this machine here")
    cwd = home / "project"
    cwd.mkdir()
    async with Provider() as provider:
        input = {"command": "touch made", "description": "Make a file"}
        provider.otherwise = answer_with("bash", input)
        config = {
            "model": "anthropic/claude-sonnet-4-5",
            "provider": {"anthropic": {"options": {"baseURL": f"{provider.url}/v1"}}},
            "permission": {"bash": "ask"},
            "autoupdate": False,
            "share": "disabled",
        }
        (cwd / "opencode.json").write_text(json.dumps(config))
        messages = await compare(testbed, shlex.join([str(program), "acp"]), 1, cwd)
    calls = of_kind(messages, *CALLS)
    assert any(call.get("rawInput", {}).get("command") == "touch made" for call in calls)


async def test_fast_agent(testbed: AcpTestbed, home: Path) -> None:
    python = toolbox.python_of((3, 12))
    if python is None:
        pytest.skip("fast-agent needs Python 3.12")
    program = Path(toolbox.python_with(FAST_AGENT, python)).with_name("fast-agent-acp")
    cwd = home / "project"
    cwd.mkdir()
    # This model of fast-agent answers with the prompt.
    command = shlex.join([str(program), "--model", "passthrough"])
    messages = await compare(testbed, command, 1, cwd)
    chunks = of_kind(messages, "agent_message_chunk")
    assert "".join(chunk["content"]["text"] for chunk in chunks) == PROMPT


TOUCH = ["shell", {"command": "touch made"}]


async def compare_tool(
    testbed: AcpTestbed, tool: type[Goose] | type[Gemini], tmp_path: Path, *arguments: str
) -> list[Any]:
    """Compare a turn of a tool, in which it asks for permission to run a command."""
    home = Home(tmp_path)
    with running_model() as model:
        program = tool(tool.versions[0], home, model).program
        prompt = script(PROMPT, {"say": "I look.", "calls": [TOUCH]}, {"say": "All done."})
        command = shlex.join([*program, *arguments])
        with home.as_environment():
            messages = await compare(testbed, command, 1, home.project, prompt)
    assert (home.project / "made").exists()
    assert any("touch made" in json.dumps(item) for item in of_kind(messages, *CALLS))
    assert any("options" in item for item in messages if isinstance(item, dict))
    return messages


async def test_gemini(testbed: AcpTestbed, tmp_path: Path) -> None:
    await compare_tool(testbed, Gemini, tmp_path, "-m", "gemini-2.5-flash", "--acp")


async def test_goose(testbed: AcpTestbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Goose, "mode", "approve")
    await compare_tool(testbed, Goose, tmp_path, "acp")
