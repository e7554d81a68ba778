"""Packages that the peers publish, downloaded once into pytest's cache. This needs a network."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import unpack_archive

import pytest

from tests.peers.claude_expected import VERSION


def fetched(config: pytest.Config, name: str, *options: str) -> Path:
    """The unpacked distribution of claude-agent-sdk that pip gets with these options."""
    cache = config.cache
    assert cache is not None, "the cache of pytest is off"
    directory = cache.mkdir("peers")
    if not (directory / name).is_dir():
        with tempfile.TemporaryDirectory(dir=directory) as download:
            command = [sys.executable, "-m", "pip", "download", f"claude-agent-sdk=={VERSION}"]
            command += [*options, "--no-deps", "--quiet", "--dest", download]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                pytest.fail(f"cannot fetch claude-agent-sdk {VERSION}:\n{done.stderr}")
            (archive,) = Path(download).iterdir()
            unpacked = Path(download) / "unpacked"
            unpack_archive(archive, unpacked, "gztar" if archive.suffix == ".gz" else "zip")
            try:
                os.rename(unpacked, directory / name)
            except OSError:
                assert (directory / name).is_dir()  # another worker was faster
    return directory / name


@pytest.fixture(scope="session")
def claude_sdk_tests(pytestconfig: pytest.Config) -> Path:
    """The directory of the tests in claude-agent-sdk's source distribution."""
    source = fetched(pytestconfig, f"claude-sdk-{VERSION}-source", "--no-binary", ":all:")
    return source / f"claude_agent_sdk-{VERSION}" / "tests"


@pytest.fixture(scope="session")
def claude_sdk_source(claude_sdk_tests: Path) -> Path:
    """The directory to import the real claude-agent-sdk from, without the program it starts."""
    return claude_sdk_tests.parent / "src"


@pytest.fixture(scope="session")
def claude_program(pytestconfig: pytest.Config) -> Path:
    """Claude Code itself, which the SDK's wheel carries: some hundred megabytes."""
    wheel = fetched(pytestconfig, f"claude-sdk-{VERSION}-wheel", "--only-binary", ":all:")
    program = wheel / "claude_agent_sdk" / "_bundled" / "claude"
    program.chmod(0o755)
    return program
