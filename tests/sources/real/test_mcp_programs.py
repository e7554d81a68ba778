"""Real programs call segue's MCP server, and get the sessions that a person finds."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from segue.sources.mcp_servers import mcp_config
from tests.sources.real.codex import VERSIONS, Codex
from tests.sources.real.programs import Home
from tests.sources.real.scripted_model import ScriptedModel, running_model
from tests.sources.real.tools import ClaudeCode, Goose, Opencode, Tool

pytestmark = pytest.mark.full

MakeTool = Callable[[Home, ScriptedModel], Tool | Codex]
PROGRAMS: dict[str, MakeTool] = {
    "claude": lambda home, model: ClaudeCode(ClaudeCode.versions[0], home, model),
    "codex": lambda home, model: Codex(CODEX, home, model),
    "goose": lambda home, model: Goose(Goose.versions[0], home, model),
    "opencode": lambda home, model: Opencode(Opencode.versions[0], home, model),
}
CODEX = VERSIONS[-1]  # newer ones do not list MCP tools in the first request
KEY = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"


@pytest.fixture
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Tool | Codex]]:
    name = request.param
    home = Home(tmp_path)
    with running_model() as model:
        tool = PROGRAMS[name](home, model)
        home.environment["SEGUE_DATA_DIR"] = str(tmp_path / "data")
        # Claude Code: offer all tools at once, and wait for the servers.
        home.environment |= {"ENABLE_TOOL_SEARCH": "false", "MCP_CONNECTION_NONBLOCKING": "false"}
        with home.as_environment():
            yield name, tool


def install(name: str, home: Home) -> None:
    """Add the server to the program's configuration, as `segue mcp install` does."""
    config = mcp_config(name)
    assert config is not None
    path = Path(config.path)
    assert home.path in path.parents, path
    before = path.read_text() if path.exists() else ""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(config.add(before, "segue", [sys.executable, "-m", "segue", "mcp"]))


def answers_of(model: ScriptedModel, text: str) -> list[str]:
    """Return the bodies of requests that contain a text."""
    return [str(body) for body in model.bodies if text in str(body)]


@pytest.mark.parametrize("program", PROGRAMS, indirect=True)
def test_a_program_finds_its_earlier_session_and_not_the_calling_one(
    program: tuple[str, Tool | Codex],
) -> None:
    name, tool = program
    tool.prompt(f"the walrus has the key {KEY}", {"say": f"The walrus is safe, {KEY} opens it."})
    install(name, tool.home)
    tool.prompt("which tools are there?", {"say": "Many."})
    offered = [tool_name for r in tool.model.requests for tool_name in r.tools]
    names = [each for each in offered if each.endswith("search_sessions")]
    assert names, sorted(set(offered))
    arguments: dict[str, Any] = {"words": "walrus safe", "order": "newest"}
    tool.prompt(
        "find the walrus", {"calls": [[names[-1], arguments]]}, {"say": "Found the walrus safe."}
    )
    results = answers_of(tool.model, "messages")
    shown = [body for body in results if "1. **" in body]
    assert shown, results[-1][-3000:] if results else "no request"
    assert "2. **" not in shown[-1].split("find the walrus")[-1], shown[-1][-2000:]
    assert "[masked]" in shown[-1] and KEY not in shown[-1].split("find the walrus")[-1]
