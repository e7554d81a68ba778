"""Real programs: installed from npm, run in a home of their own against a scripted model."""

import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from segue.sources.kit.edit.programs import LineServer
from tests.clients import toolbox
from tests.conftest import HOME_VARIABLES

SECONDS = 120


def unpacked_package(package: str) -> Path:
    """Return the files of an npm package; skip the test if it cannot be downloaded."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        pytest.skip("the programs are downloaded for Linux on x86-64")
    try:
        return toolbox.unpacked_package(package)
    except toolbox.NotFetched as error:
        pytest.skip(str(error))


class Home:
    """A user's home with a project, in which programs reach loopback addresses only."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "home"
        self.project = directory / "project"
        self.path.mkdir(parents=True)
        self.project.mkdir()
        nowhere = "http://127.0.0.1:9"  # nothing listens there
        self.environment = {
            "HOME": str(self.path),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "TZ": "Etc/UTC",
            "HTTP_PROXY": nowhere,
            "HTTPS_PROXY": nowhere,
            "NO_PROXY": "127.0.0.1,localhost",
        }

    def run(self, *command: str, input: str = "") -> str:
        """Return the output of a program that succeeds."""
        done = subprocess.run(
            command,
            cwd=self.project,
            env=self.environment,
            input=input,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextmanager
    def running(self, *command: str) -> Iterator[subprocess.Popen[str]]:
        """Run a program for a `with` block, and kill it if it has not ended by then."""
        with subprocess.Popen(
            command,
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    @contextmanager
    def conversation(self, *command: str) -> Iterator[LineServer]:
        """Run a program that answers JSON-RPC in lines for a `with` block."""
        with subprocess.Popen(
            command,
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                yield LineServer(process)
            finally:
                process.kill()

    @contextmanager
    def as_environment(self) -> Iterator[None]:
        """Run a `with` block of this process with the variables of the home."""
        with pytest.MonkeyPatch.context() as patch:
            for name in HOME_VARIABLES:
                patch.delenv(name, raising=False)
            for name, value in self.environment.items():
                patch.setenv(name, value)
            yield


def on_path(program: Path) -> str:
    """Return a search path on which a program is the first."""
    program.chmod(0o755)
    return f"{program.parent}{os.pathsep}/usr/local/bin:/usr/bin:/bin"
