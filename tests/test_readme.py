"""What the README and the documentation say about code is true."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from segue.interfaces.cli.command_list import sections
from tests.code_blocks import ROOT, outputs, runnable_programs
from tests.command_server import CommandServer

README = (ROOT / "README.md").read_text()
COMMANDS = {name for names in sections().values() for name in names}
# The programs of docs/claude.md need sessions: tests/claude/test_docs.py runs them.
PROGRAMS = {
    name: program for name, program in runnable_programs().items() if "docs_claude" not in name
}
OUTPUTS = outputs()


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_runs_as_it_stands(name: str, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "SEGUE_DATA_DIR": str(tmp_path / "data"),
        "CLAUDE_CONFIG_DIR": str(tmp_path / "claude"),
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAMS[name]],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    if (output := OUTPUTS.get(PROGRAMS[name])) is not None:
        assert [line.rstrip() for line in done.stdout.splitlines()] == output.splitlines()


def test_each_described_output_belongs_to_a_program_that_runs() -> None:
    assert OUTPUTS and set(OUTPUTS) <= set(PROGRAMS.values())


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
