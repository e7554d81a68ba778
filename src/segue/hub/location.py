"""Where segue keeps its data."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def data_dir(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Return `SEGUE_DATA_DIR`, or the platform's directory for a program's data."""
    if directory := environ.get("SEGUE_DATA_DIR"):
        return Path(directory).expanduser().absolute()
    home = Path.home()
    if platform == "darwin":
        return home / "Library" / "Application Support" / "segue"
    if platform == "win32":
        local = environ.get("LOCALAPPDATA")
        return (Path(local) if local else home / "AppData" / "Local") / "segue"
    share = environ.get("XDG_DATA_HOME", "")
    # The XDG specification says to ignore a relative path.
    return (Path(share) if os.path.isabs(share) else home / ".local" / "share") / "segue"
