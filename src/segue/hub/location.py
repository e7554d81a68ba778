"""Where segue keeps its data."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from segue.model.errors import InvalidInput


def data_dir(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Return `SEGUE_DATA_DIR`, or the platform's directory for a program's data.

    Raises InvalidInput if that is in the home directory, and `HOME` is empty.
    """
    if directory := environ.get("SEGUE_DATA_DIR"):
        return Path(directory).expanduser().absolute()
    share = environ.get("XDG_DATA_HOME", "")
    if platform not in ("darwin", "win32") and os.path.isabs(share):
        return Path(share) / "segue"  # the XDG specification says to ignore a relative path
    if environ.get("HOME") == "" and platform != "win32":
        raise InvalidInput("HOME is empty; set it, or name a directory with SEGUE_DATA_DIR")
    home = Path.home()
    if platform == "darwin":
        return home / "Library" / "Application Support" / "segue"
    if platform == "win32":
        local = environ.get("LOCALAPPDATA")
        return (Path(local) if local else home / "AppData" / "Local") / "segue"
    return home / ".local" / "share" / "segue"
