"""The peers' own tests, fetched from where they are published."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.peers.claude_expected import VERSION


@pytest.fixture(scope="session")
def claude_sdk_tests(pytestconfig: pytest.Config) -> Path:
    """The directory of the tests in claude-agent-sdk's source distribution.

    It is kept in pytest's cache; without a network and without that copy this fails.
    """
    cache = pytestconfig.cache
    assert cache is not None, "the cache of pytest is off"
    kept = cache.mkdir("peers")
    tests = kept / f"claude_agent_sdk-{VERSION}" / "tests"
    if not tests.is_dir():
        command = [sys.executable, "-m", "pip", "download", f"claude-agent-sdk=={VERSION}"]
        options = ["--no-binary", ":all:", "--no-deps", "--quiet", "--dest", str(kept)]
        done = subprocess.run([*command, *options], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.fail(f"cannot fetch claude-agent-sdk {VERSION}:\n{done.stderr}")
        with tarfile.open(kept / f"claude_agent_sdk-{VERSION}.tar.gz") as archive:
            archive.extractall(kept, filter="data")
    return tests
