"""Install packages of the system that tests need, as root on a system with apt-get."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ENVIRONMENTS = Path(__file__).parents[1] / ".venv"
TIMEOUT_SECONDS = 600


@contextmanager
def one_installation() -> Iterator[None]:
    """Let one process of the tests install at a time."""
    ENVIRONMENTS.mkdir(exist_ok=True)
    with (ENVIRONMENTS / "installation.lock").open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install_package(name: str) -> str:
    """Install a package with apt-get, and return why it failed; "" if it did not.

    Call it with `one_installation`.
    """
    if not shutil.which("apt-get"):
        return "there is no apt-get"
    if os.geteuid() != 0:
        return "apt-get needs root"
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    run_installer(["apt-get", "update", "-qq"], quiet)
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", name]
    return "" if run_installer(install, quiet) else f"apt-get could not install {name}"


def run_installer(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether an installer did its work."""
    try:
        completed = subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, timeout=TIMEOUT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return completed.returncode == 0
