"""`segue.serve_agent`: the guide's agent and client, as they are printed there."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from segue import serve_agent
from segue.agents.demo import DemoAgent
from segue.model.errors import InvalidInput

GUIDE = Path(__file__).parent.parent.parent / "docs" / "guides" / "host-agent.md"


def test_programs_of_the_guide_serve_an_agent_to_the_official_client(tmp_path: Path) -> None:
    agent, client = re.findall(r"```py\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert "port=8787" in agent
    environment = {**os.environ, "SEGUE_DATA_DIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(
        [sys.executable, "-c", agent.replace("port=8787", "port=0")],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        match = re.fullmatch(r"Serving on (\S+); the API key is in (.*)\n", line)
        assert match is not None, line
        url, key_path = match.groups()
        key = Path(key_path).read_text().strip()
        done = subprocess.run(
            [sys.executable, "-c", client],
            env={**os.environ, "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": key},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stdout) == (0, "You said: Hello\n"), done.stderr
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.communicate()


class NoRun:
    """No agent: it cannot answer."""


@pytest.mark.parametrize(
    ("agent", "problem"),
    [(DemoAgent, r"pass DemoAgent\(...\)"), (NoRun(), r"no method run\(turn\)")],
)
def test_an_object_that_is_no_agent_is_not_served(tmp_path: Path, agent: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        serve_agent(agent, directory=tmp_path, port=0)
    assert not [*tmp_path.iterdir()]


def test_errors_of_the_work_do_not_mention_a_missing_uvloop() -> None:
    program = """
import sys
sys.modules["uvloop"] = None  # as if it were not installed
from segue.server.serve import run
async def work(): raise ValueError("broken")
run(work())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "ValueError: broken" in done.stderr
    assert "uvloop" not in done.stderr
