"""The README's words about code are true."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from segue.interfaces.cli.command_list import sections
from tests.command_server import CommandServer

README = (Path(__file__).parent.parent / "README.md").read_text()
COMMANDS = {name for names in sections().values() for name in names}
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_each_program_runs_as_it_stands(program: str, tmp_path: Path) -> None:
    environment = {**os.environ, "SEGUE_DATA_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    listed = subprocess.run(
        [sys.executable, "-m", "segue", "list"], env=environment, capture_output=True, text=True
    )
    assert len(listed.stdout.splitlines()) == 1


# The programs of docs/claude.md want sessions to be there: tests/claude/test_docs.py runs them.
PAGES = [
    page for page in (Path(__file__).parent.parent / "docs").glob("*.md") if page.stem != "claude"
]
SHOWN = [
    pytest.param(program, id=f"{page.stem}-{number}")
    for page in sorted(PAGES)
    for number, program in enumerate(
        re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    )
]


@pytest.mark.parametrize("program", SHOWN)
def test_each_program_of_the_docs_runs_as_it_stands(program: str, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "SEGUE_DATA_DIR": str(tmp_path / "data"),
        "CLAUDE_CONFIG_DIR": str(tmp_path / "claude"),
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_each_command_exists(command_server: CommandServer, tmp_path: Path) -> None:
    shells = "".join(re.findall(r"```sh\n(.*?)```", README, re.DOTALL))
    named = set(re.findall(r"^segue ([a-z]+)", shells, re.MULTILINE))
    assert named and named <= COMMANDS
    options = set(re.findall(r"(?<=\s)(--[a-z-]+)", README)) - {"--full"}
    helps = ""
    for command in sorted(COMMANDS):
        words = [command, *{"keys": ["create"], "sessions": ["list"]}.get(command, [])]
        helps += command_server.run(
            ["segue", *words, "--help"], env=dict(os.environ), cwd=tmp_path
        ).stdout
    assert {option for option in options if option not in helps} == set()
