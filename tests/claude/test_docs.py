"""Every program in the guide runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click import Context

from segue.interfaces.cli.main import segue
from tests.claude.entries import Home, assistant, title, user

GUIDE = (Path(__file__).parent.parent.parent / "docs" / "claude.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_every_program_in_the_guide_runs(program: str, home: Home, tmp_path: Path) -> None:
    path = home.write([user("u1", None, "Why?", cwd="/w"), assistant("a1", "u1"), title("Optics")])
    before = path.read_bytes()
    environment = {**os.environ, "SEGUE_DATA_DIR": str(tmp_path / "data")}
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
    assert path.read_bytes() == before


def test_every_command_and_option_in_the_guide_exists() -> None:
    shells = "".join(re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL))
    lines = re.findall(r"^segue (\w+) ([^#\n]*)", shells, re.MULTILINE)
    assert len(lines) == 5
    for name, arguments in lines:
        command = segue.get_command(Context(segue), name)
        assert command is not None
        command.make_context(name, arguments.split())
