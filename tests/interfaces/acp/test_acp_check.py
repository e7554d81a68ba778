"""`segue acp-check`: segue, its examples and other agents against the package's own checks."""

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from segue.acp.conformance import Report, check_agent, start_command
from segue.acp.conformance.session import Prompts
from segue.model.principal import LOCAL
from segue.model.query import Query
from tests.agents.provider import Provider, Say
from tests.clients import toolbox
from tests.interfaces.acp.test_real_traces import CLAUDE
from tests.interfaces.acp.test_serve import EXAMPLES
from tests.interfaces.acp.testbed import AcpTestbed

# Commands of the demo agent: an answer, and a turn that runs until it is cancelled.
DEMO = Prompts("/say ready", "/say begun\n/wait 60")


async def check(testbed: AcpTestbed, *command: str, prompts: Prompts = DEMO, **more: Any) -> Report:
    env = {"SEGUE_DATA_DIR": str(testbed.data)}
    connect = start_command([sys.executable, *command], env=env)
    return await check_agent(connect, prompts=prompts, timeout=30, **more)


def wrong(report: Report) -> list[str]:
    return [r.check for r in report.results if r.outcome in ("failed", "warning")]


async def test_segue_passes_every_check(testbed: AcpTestbed, version: int) -> None:
    report = await check(testbed, "-m", "segue", "acp", versions=[version])
    assert report.versions == [version] and wrong(report) == [], report.to_text()
    skipped = {result.check for result in report.results if result.outcome == "skipped"}
    assert skipped <= {"PROMPT-005"}  # segue accepts all content
    async with testbed.hub() as hub:  # nothing is left, also not in the trash
        assert report.sessions_left == 0
        page = await hub.sessions.list(LOCAL, Query(trash=True, archived="include"))
        assert page.sessions == []


async def test_content_that_an_external_agent_does_not_advertise_is_refused(
    testbed: AcpTestbed,
) -> None:
    command = f"acp:{shlex.join([sys.executable, str(EXAMPLES / 'echo_agent.py')])}"
    report = await check(
        testbed, "-m", "segue", "acp", "--agent", command, only=["PROMPT-005"], versions=[2]
    )
    assert [result.outcome for result in report.results] == ["passed"], report.to_text()


@pytest.mark.full
@pytest.mark.parametrize("example", ["echo", "in_memory", "forgetful", "archive"])
async def test_examples_break_no_rule(testbed: AcpTestbed, version: int, example: str) -> None:
    report = await check(testbed, str(EXAMPLES / f"{example}_agent.py"), versions=[version])
    assert wrong(report) == [], report.to_text()


@pytest.mark.full
async def test_declaring_agent_breaks_no_rule(testbed: AcpTestbed, version: int) -> None:
    program = str(Path(__file__).parent / "programs" / "declaring_agent.py")
    report = await check(testbed, program, prompts=Prompts("options", "wait"), versions=[version])
    assert wrong(report) == [], report.to_text()


@pytest.mark.full
async def test_claude_agent_is_checked_with_a_model_on_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("HOME", str(tmp_path)),
        ("CLAUDE_CONFIG_DIR", str(tmp_path / ".claude")),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("IS_SANDBOX", "1"),  # or Claude Code does not run as root
        ("ANTHROPIC_API_KEY", "test-key"),
    ):
        monkeypatch.setenv(name, value)
    package = CLAUDE.rpartition("@")[0]
    program = toolbox.node_packages(CLAUDE) / "node_modules" / package / "dist" / "index.js"
    async with Provider() as provider:
        provider.otherwise = lambda request: [Say("ready")]
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
        connect = start_command([toolbox.node(), str(program)])
        report = await check_agent(connect, timeout=60)
    assert report.versions == [1, 2]
    print(report.to_text())
    passed = {result.check for result in report.results if result.outcome == "passed"}
    assert {"PROMPT-001", "LIST-004", "NEW-001", "STREAM-001"} <= passed
