"""Where segue keeps its data, and opening the hub over it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .hub import Hub

GITHUB = "https://github.com/"


def data_dir(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """`SEGUE_DATA_DIR`, or the platform's place for a program's data."""
    if given := environ.get("SEGUE_DATA_DIR"):
        return Path(given).expanduser().absolute()
    home = Path.home()
    if platform == "darwin":
        return home / "Library" / "Application Support" / "segue"
    if platform == "win32":
        local = environ.get("LOCALAPPDATA")
        return (Path(local) if local else home / "AppData" / "Local") / "segue"
    share = environ.get("XDG_DATA_HOME", "")
    # The specification says to ignore a relative one.
    return (Path(share) if os.path.isabs(share) else home / ".local" / "share") / "segue"


def memory_hub(**options: Any) -> Hub:
    """A hub whose sessions live for as long as this process."""
    from .hub import Hub
    from .store.memory import MemoryStore

    return Hub(MemoryStore(), data_dir(), **options)


async def open_hub(
    directory: str | os.PathLike[str] | None = None,
    database_url: str | None = None,
    **options: Any,
) -> Hub:
    """The hub over the store in a data directory, or over a PostgreSQL database.

    Without arguments: the default data directory, or `SEGUE_DATABASE_URL` where that is set.
    `options` are the Hub's own: `sources`, `runners`, `clone`, the last from `SEGUE_CLONE`, which
    has addresses with spaces between, or else GitHub's.
    """
    from .hub import Hub
    from .store import open_store

    where = data_dir() if directory is None else Path(directory).expanduser().absolute()
    url = database_url or os.environ.get("SEGUE_DATABASE_URL") or None
    options.setdefault("clone", os.environ.get("SEGUE_CLONE", GITHUB).split())
    return Hub(await open_store(where, url), where, **options)
