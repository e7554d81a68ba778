"""Refuse to write for a program that is too old to read what is written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import msgspec

from segue.model.errors import InvalidInput
from segue.sources import safe_io

_VERSION = re.compile(rb"(\d+)\.(\d+)\.(\d+)")
_SECONDS = 10.0
_PACKAGE_DIRECTORIES = 3  # above a program, in which npm may have its package.json
_PACKAGE_BYTES = 1 << 20
Version = tuple[int, ...]


class _Package(msgspec.Struct):
    version: str = ""


def require_version(program: str, label: str, oldest: Version) -> None:
    """Raise InvalidInput if the program on the path is older; an unknown version is accepted."""
    installed = installed_version(program)
    if installed is not None and installed < oldest:
        raise InvalidInput(
            f"{label} {_version_text(installed)} is too old to resume a session that segue writes; "
            f"install {_version_text(oldest)} or a later version"
        )


def installed_version(program: str) -> Version | None:
    """Return the version of a program; None if it is not installed, or does not say.

    npm's description of the program is read, if there is one; else the program is asked.
    """
    path = shutil.which(program)
    if path is None:
        return None
    directory = os.path.realpath(path)
    for _ in range(_PACKAGE_DIRECTORIES):
        directory = os.path.dirname(directory)
        data = safe_io.read_small_file(os.path.join(directory, "package.json"), _PACKAGE_BYTES)
        if data is not None:
            return _package_version(data) or _asked_version(path)
    return _asked_version(path)


def _package_version(data: bytes) -> Version | None:
    try:
        return _parsed(msgspec.json.decode(data, type=_Package).version.encode())
    except msgspec.MsgspecError:
        return None


def _asked_version(path: str) -> Version | None:
    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _parsed(done.stdout)


def _parsed(text: bytes) -> Version | None:
    match = _VERSION.search(text)
    return None if match is None else tuple(int(part) for part in match.groups())


def _version_text(version: Version) -> str:
    return ".".join(str(part) for part in version)
