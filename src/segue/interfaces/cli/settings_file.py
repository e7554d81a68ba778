"""Change a settings file of another program: show the change, ask, and replace the file at once."""

from __future__ import annotations

import difflib
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress

import click

from segue.model.errors import InvalidInput


def change(path: str, edit: Callable[[str], str], *, yes: bool) -> bool:
    """Show what `edit` changes in a file and write it, after a question unless `yes` is set.

    Returns False if there is nothing to change. A link stays a link to the changed file. Raises
    InvalidInput if the file cannot be read or written, or is read-only.
    """
    path = os.path.realpath(path)
    before = _read(path)
    after = edit(before)
    if after == before:
        return False
    diff = difflib.unified_diff(before.splitlines(), after.splitlines(), path, path, lineterm="")
    click.echo("\n".join(diff))
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidInput("nothing was written; use --yes to write this change")
        click.confirm(f"Write {path}?", abort=True)
    # The program may have changed its file while the question was open.
    _replace(path, edit(_read(path)))
    return True


def _read(path: str) -> str:
    """Return a file's text as it is, with its byte order mark and its line breaks."""
    try:
        with open(path, "rb") as file:
            return file.read().decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {path}: {error}") from None


def _replace(path: str, text: str) -> None:
    """Replace a file by a complete new one with the same permissions and owner."""
    directory = os.path.dirname(path)
    try:
        os.makedirs(directory, exist_ok=True)
        old = os.stat(path) if os.path.exists(path) else None
        if old is not None and not old.st_mode & 0o222:
            raise InvalidInput(f"{path} is read-only; nothing was written")
        descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=".segue-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            if old is not None:
                os.chmod(temporary, old.st_mode & 0o777)
                if hasattr(os, "chown"):
                    with suppress(PermissionError):
                        os.chown(temporary, old.st_uid, old.st_gid)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}") from None
