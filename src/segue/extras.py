"""Say how to install the packages of an extra, for the installer that this environment has."""

from __future__ import annotations

import os
import re
import shlex
import sys
from contextlib import suppress
from functools import cache
from typing import Any

_DISTRIBUTION = "segue"


def install_command(extra: str) -> str:
    """Return the command that installs an extra's packages where segue is installed.

    It names the packages, not the extra, since segue itself may come from a checkout.
    """
    return command_for(_requirements(extra), sys.prefix)


def command_for(requirements: tuple[str, ...], prefix: str) -> str:
    """Return the command that installs packages into the environment at `prefix`."""
    packages = [shlex.quote(requirement) for requirement in requirements]
    parts = prefix.replace("\\", "/").split("/")
    receipt = os.path.join(prefix, "uv-receipt.toml")
    if os.path.exists(receipt):
        return _uv_tool_command(packages, receipt)
    if "uv" in parts and any(part.startswith(("archive-v", "environments-v")) for part in parts):
        # An environment that uv deletes again.
        origin = _origin()
        source = f"--from {shlex.quote(origin)} " if origin else ""
        return f"uvx {source}{_with(packages)} {_DISTRIBUTION}"
    if "pipx" in parts:
        return f"pipx inject {_DISTRIBUTION} {' '.join(packages)}"
    return f"{_pip_install(prefix)} {' '.join(packages)}"


def _with(packages: list[str]) -> str:
    return " ".join(f"--with {package}" for package in packages)


def _uv_tool_command(packages: list[str], receipt: str) -> str:
    """Return the command for a tool of uv. It repeats what the tool has, or uv would remove it."""
    import tomllib

    entries = []
    with open(receipt, "rb") as file, suppress(tomllib.TOMLDecodeError):
        entries = tomllib.load(file).get("tool", {}).get("requirements", [])
    own, kept = _DISTRIBUTION, []
    for entry in entries:
        if isinstance(entry, str):  # an older uv wrote whole requirements
            name, text = re.split(r"[^\w.-]", entry, maxsplit=1)[0], shlex.quote(entry)
        else:
            name, text = entry["name"], _uv_requirement(entry)
        if name == _DISTRIBUTION:
            own = text
        elif text not in packages:
            kept.append(text)
    return f"uv tool install {_with([*kept, *packages])} {own}"


def _uv_requirement(entry: dict[str, Any]) -> str:
    """Return an entry of a receipt as arguments of uv."""
    extras = f"[{','.join(entry['extras'])}]" if entry.get("extras") else ""
    name = f"{entry['name']}{extras}"
    if path := entry.get("path") or entry.get("directory") or entry.get("editable"):
        text = shlex.quote(f"{path}{extras}")
        return f"--editable {text}" if "editable" in entry else text
    if git := entry.get("git"):
        return shlex.quote(f"{name} @ {_git_url(git)}")
    if url := entry.get("url"):
        return shlex.quote(f"{name} @ {url}")
    return shlex.quote(f"{name}{entry.get('specifier', '')}")


def _git_url(address: str) -> str:
    """Return a repository as pip names it; uv adds the revision and the directory as a query."""
    from urllib.parse import parse_qs, urlsplit

    parts = urlsplit(address)
    query = parse_qs(parts.query)
    revision = "".join(f"@{query[name][0]}" for name in ("rev", "tag", "branch") if name in query)
    directory = f"#subdirectory={query['subdirectory'][0]}" if "subdirectory" in query else ""
    return f"git+{parts._replace(query='', fragment='').geturl()}{revision}{directory}"


def _pip_install(prefix: str) -> str:
    """Return the command that installs into an environment, whichever the shell has activated."""
    import shutil

    bin_dir = os.path.join(prefix, "Scripts" if sys.platform == "win32" else "bin")
    python = shlex.quote(os.path.join(bin_dir, "python"))
    if _is_made_by_uv(prefix):
        is_active = os.environ.get("VIRTUAL_ENV") == prefix
        return "uv pip install" if is_active else f"uv pip install --python {python}"
    pip = shutil.which("pip")
    is_its_own = pip is not None and os.path.dirname(os.path.abspath(pip)) == bin_dir
    return "pip install" if is_its_own else f"{python} -m pip install"


def _origin() -> str | None:
    """Return the path or URL that segue was installed from; None for a package registry."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        text = distribution(_DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    if text is None:
        return None
    url = str(json.loads(text)["url"])
    return unquote(urlsplit(url).path) if url.startswith("file:") else url


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
