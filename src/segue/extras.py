"""Say how to install the packages of an extra, for the installer that this environment has."""

from __future__ import annotations

import os
import shlex
import sys
from functools import cache

_DISTRIBUTION = "segue"


def install_command(extra: str) -> str:
    """Return the command that installs an extra's packages where segue is installed.

    It names the packages, not the extra, since segue itself may come from a checkout.
    """
    return command_for(_requirements(extra), sys.prefix)


def command_for(requirements: tuple[str, ...], prefix: str) -> str:
    """Return the command that installs packages into the environment at `prefix`."""
    packages = [shlex.quote(requirement) for requirement in requirements]
    options = " ".join(f"--with {package}" for package in packages)
    parts = prefix.replace("\\", "/").split("/")
    if os.path.exists(os.path.join(prefix, "uv-receipt.toml")):
        return f"uv tool install {options} {_DISTRIBUTION}"
    if "uv" in parts and any(part.startswith(("archive-v", "environments-v")) for part in parts):
        return f"uvx {options} {_DISTRIBUTION}"  # an environment that uv deletes again
    if "pipx" in parts:
        return f"pipx inject {_DISTRIBUTION} {' '.join(packages)}"
    pip = "uv pip" if _is_made_by_uv(prefix) else "pip"
    return f"{pip} install {' '.join(packages)}"


def _is_made_by_uv(prefix: str) -> bool:
    """Return whether uv created a virtual environment, which then has no pip."""
    try:
        with open(os.path.join(prefix, "pyvenv.cfg"), encoding="utf-8") as file:
            return any(line.partition("=")[0].strip() == "uv" for line in file)
    except OSError:
        return False


@cache
def _requirements(extra: str) -> tuple[str, ...]:
    """Return the requirements of an extra, as the installed distribution declares them."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires(_DISTRIBUTION) or []
    except PackageNotFoundError:  # the source is used without an installation
        lines = []
    requirements = []
    for line in lines:
        requirement, _, marker = line.partition(";")
        if f"extra == '{extra}'" in marker.replace('"', "'"):
            requirements.append(requirement.strip())
    return tuple(requirements) or (f"{_DISTRIBUTION}[{extra}]",)
