"""Fixtures that run `segue` as a process of its own."""

import os
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.claude.entries import Home, user
from tests.command_server import CommandServer
from tests.interfaces.cli.child import COMMAND, Programs, Run
from tests.interfaces.cli.screen import ForkedTerminal, OpenScreen, OpenTerminal, Screen


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The command's environment: its own data directory, without the user's settings."""
    inherited = {"PATH", "LANG", "LC_ALL", "TMPDIR"}
    home = tmp_path / "home"
    home.mkdir()
    return {
        **{name: value for name, value in os.environ.items() if name in inherited},
        "HOME": str(home),
        "SEGUE_DATA_DIR": str(tmp_path / "data"),
        "NO_COLOR": "1",
    }


@pytest.fixture
def home(tmp_path: Path, environment: dict[str, str]) -> Home:
    """Claude Code's files with one session."""
    home = Home(tmp_path / "claude")
    environment["CLAUDE_CONFIG_DIR"] = str(home.root)
    home.write([user("u1", None, "Why is it slow?", cwd="/p"), user("u2", "u1", "the needle")])
    return home


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """Create a directory with programs of some names, and return it as a PATH."""

    def create(*names: str) -> str:
        directory = tmp_path / "-".join(["programs", *names])
        directory.mkdir()
        for name in names:
            (directory / name).write_text("#!/bin/sh\n")
            (directory / name).chmod(0o755)
        return str(directory)

    return create


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str], command_server: CommandServer) -> Run:
    """Run `segue` in an empty directory, without a terminal."""
    here = tmp_path / "here"
    here.mkdir()

    def run(*words: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        return command_server.run(
            [COMMAND, *words], env={**environment, **variables}, cwd=here, stdin=stdin
        )

    return run


@pytest.fixture
def open_terminal(command_server: CommandServer) -> OpenTerminal:
    """Run `segue` in a pseudo-terminal."""
    return partial(ForkedTerminal, command_server)


@pytest.fixture
def open_screen(command_server: CommandServer) -> OpenScreen:
    """Run `segue` in a pseudo-terminal with a terminal emulator."""
    return partial(Screen, command_server)
