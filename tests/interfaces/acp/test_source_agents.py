"""An ACP agent whose sessions a source already has: claude-agent-acp with Claude Code's files.

The program is large, so the default tier skips these tests.
"""

import asyncio
import shlex
from pathlib import Path
from typing import Any

import pytest

from segue.interfaces.acp import ServedAgent
from segue.sources import registry
from segue.sources.base import Source
from tests.clients import toolbox
from tests.interfaces.acp.harness import Client
from tests.interfaces.acp.testbed import AcpTestbed
from tests.sources.real.programs import Home
from tests.sources.real.scripted_model import running_model, script
from tests.sources.real.tools import ClaudeCode, Goose, Opencode

pytestmark = pytest.mark.full

AGENT = "@agentclientprotocol/claude-agent-acp@0.99.1"


def packages() -> Path:
    try:
        return toolbox.node_packages(AGENT) / "node_modules"
    except toolbox.NotFetched as error:
        pytest.skip(str(error))


def served_claude() -> ServedAgent:
    program = packages() / AGENT.rpartition("@")[0] / "dist" / "index.js"
    command = shlex.join([toolbox.node(), str(program)])
    return ServedAgent("acp:claude", {"kind": "acp", "command": command})


class BundledClaude(ClaudeCode):
    """The Claude Code that the agent runs, as a tool of its own."""

    def install(self) -> None:
        program = packages() / "@anthropic-ai" / "claude-agent-sdk-linux-x64" / "claude"
        if not program.exists():
            pytest.skip("the agent has no Claude Code for this machine")
        self._command = [str(program)]
        self.set_environment()


def claude_source(testbed: AcpTestbed) -> Source:
    source = registry.get("claude").open(testbed.directory / "index", unused=False, progress=None)
    assert source is not None
    return source


async def listed(client: Client, cwd: Path) -> list[str]:
    answer = await client.request("session/list", {"cwd": str(cwd)})
    return [row["sessionId"] for row in answer["sessions"]]


def texts(updates: list[Any]) -> list[str]:
    """Return the texts of a replay, those of a message together."""
    messages: dict[str, str] = {}
    for update in updates:
        if update.kind in ("user_message_chunk", "agent_message_chunk"):
            id = update.body["messageId"]
            messages[id] = messages.get(id, "") + update.body["content"]["text"]
    return [text.partition(" [[")[0] for text in messages.values()]


async def test_session_of_claude_code_continues_in_its_own_file(
    testbed: AcpTestbed, tmp_path: Path
) -> None:
    home = Home(tmp_path / "user")
    with running_model() as model:
        claude = BundledClaude("bundled", home, model)
        claude.prompt("Begin", {"say": "begun"})
        with home.as_environment():
            await check_continued(testbed, home, claude)


@pytest.mark.parametrize(("tool", "arguments"), [(Goose, ["acp"]), (Opencode, ["acp"])])
async def test_new_session_of_a_tool_is_listed_once(
    testbed: AcpTestbed, tmp_path: Path, tool: type[Goose | Opencode], arguments: list[str]
) -> None:
    home = Home(tmp_path / "user")
    with running_model() as model:
        program = tool(tool.versions[0], home, model)
        command = shlex.join([*program.program, *arguments])
        served = ServedAgent("acp:tool", {"kind": "acp", "command": command})
        with home.as_environment():
            definition = registry.get(tool.name)
            source = definition.open(testbed.directory / "index", unused=True, progress=None)
            assert source is not None
            async with testbed.connect_in_process(
                1, served_agent=served, sources=[source]
            ) as client:
                client.checked = False
                id = await client.new_session(home.project)
                async with asyncio.timeout(120):
                    prompt = script("Begin", {"say": "begun"})
                    assert await client.run_prompt(id, prompt) == "end_turn"
                assert await listed(client, home.project) == [id]
                shown = texts(await client.replay(id, home.project))
    assert shown == ["Begin", "begun"]


async def check_continued(testbed: AcpTestbed, home: Home, claude: BundledClaude) -> None:
    (transcript,) = (home.path / ".claude/projects").glob("*/*.jsonl")
    id = transcript.stem
    async with testbed.connect_in_process(
        1, served_agent=served_claude(), sources=[claude_source(testbed)]
    ) as client:
        client.checked = False
        assert await listed(client, home.project) == [id]
        before = await client.replay(id, home.project)
        async with asyncio.timeout(120):
            prompt = script("More", {"say": "continued"})
            assert await client.run_prompt(id, prompt) == "end_turn"
        await asyncio.sleep(2)
        assert await listed(client, home.project) == [id]
        after = await client.replay(id, home.project)
        fork = await client.request(
            "session/fork", {"sessionId": id, "cwd": str(home.project), "mcpServers": []}
        )
        async with asyncio.timeout(120):
            prompt = script("Elsewhere", {"say": "forked"})
            assert await client.run_prompt(fork["sessionId"], prompt) == "end_turn"
        await asyncio.sleep(2)
        assert sorted(await listed(client, home.project)) == sorted([id, fork["sessionId"]])
        forked = await client.replay(fork["sessionId"], home.project)
    # The tool itself adds a turn, which the next load pulls.
    claude.resume(id, "Again", {"say": "in the terminal"})
    async with testbed.connect_in_process(
        1, served_agent=served_claude(), sources=[claude_source(testbed)]
    ) as client:
        client.checked = False
        last = await client.replay(id, home.project)
    assert b"continued" in transcript.read_bytes()  # the agent wrote to the tool's own file
    assert texts(before) == ["Begin", "begun"]
    assert texts(after) == ["Begin", "begun", "More", "continued"]
    ids = [
        [u.body["messageId"] for u in replay if "messageId" in u.body] for replay in (before, after)
    ]
    assert ids[1][: len(ids[0])] == ids[0]
    assert texts(forked) == ["Begin", "begun", "More", "continued", "Elsewhere", "forked"]
    assert texts(last) == [*texts(after), "Again", "in the terminal"]
