"""The official MCP clients in TypeScript, that of the MCP Inspector among them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore
from tests.clients.rest_server import serving
from tests.clients.toolbox import node, node_packages
from tests.interfaces.mcp.test_server import ARGUMENTS, KEY, READ_TOOLS, add_session

CLIENT = Path(__file__).with_name("mcp_client.mjs")
PACKAGES = ["@modelcontextprotocol/client@2.3.1", "@modelcontextprotocol/sdk@1.32.2"]


async def make_session(directory: Path) -> str:
    directory.mkdir()
    async with Hub(SQLiteStore.open(directory / "segue.db"), directory) as hub:
        return (await add_session(hub)).id


def run_client(package: str, id: str, **transport: Any) -> dict[str, Any]:
    """Call everything that the server offers, and return the answers."""
    calls = {**ARGUMENTS, "read_session": {"session": id, "part": "turn", "turn": 1}}
    settings = json.dumps({**transport, "calls": calls, "session": id})
    name = package.rsplit("@", 1)[0]
    done = subprocess.run(
        [node(), CLIENT, node_packages(*PACKAGES), name, settings],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def check_answers(answers: dict[str, Any], id: str, tmp_path: Path) -> None:
    assert answers["tools"] == READ_TOOLS
    for tool in READ_TOOLS:
        assert not answers[tool]["error"] and id in answers[tool]["text"], answers[tool]
    assert answers["resources"] == [f"segue://session/{id}"] and answers["templates"] == 2
    assert "pytest tests/retry" in answers["resource"] and id in answers["prompt"]
    assert answers["prompts"] == ["continue_from", "summarise_for_handoff"]
    assert answers["refused"] == -32602
    assert KEY not in json.dumps(answers)
    command = [sys.executable, "-m", "segue", "search", "walrus", "--format", "json"]
    options = ["--data-dir", str(tmp_path / "data")]
    found = subprocess.run(
        [*command, *options], env={**os.environ, "SEGUE_SOURCES": "none"}, capture_output=True
    )
    assert id in found.stdout.decode(), found.stderr


@pytest.mark.full
@pytest.mark.parametrize("package", PACKAGES)
async def test_the_official_clients_call_every_tool_over_standard_streams(
    tmp_path: Path, package: str
) -> None:
    id = await make_session(tmp_path / "data")
    words = ["-m", "segue", "mcp", "--scope", "all", "--data-dir", str(tmp_path / "data")]
    environment = {**os.environ, "SEGUE_SOURCES": "none"}
    answers = run_client(package, id, command=sys.executable, args=words, env=environment)
    check_answers(answers, id, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("package", PACKAGES)
async def test_the_official_clients_call_every_tool_over_http(tmp_path: Path, package: str) -> None:
    id = await make_session(tmp_path / "data")
    async with Hub(SQLiteStore.open(tmp_path / "data" / "segue.db"), tmp_path / "data") as hub:
        _, key = await hub.keys.create(LOCAL.workspace)
    with serving(tmp_path / "data") as server:
        answers = run_client(package, id, url=f"{server.url}/mcp", key=key)
    check_answers(answers, id, tmp_path)
