"""Where segue keeps its data, and opening the hub over it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.sources.base import Source

SOURCES = "SEGUE_SOURCES"
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
    from segue.hub import Hub
    from segue.store.memory import MemoryStore

    return Hub(MemoryStore(), data_dir(), **options)


async def open_hub(
    directory: str | os.PathLike[str] | None = None,
    database_url: str | None = None,
    *,
    sources: str | Sequence[Source] | None = None,
    lasting: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Hub:
    """The hub over the store in a data directory, or over a PostgreSQL database.

    Without arguments: the default data directory, or `SEGUE_DATABASE_URL` where that is set.
    `sources` are other tools' sessions to show beside segue's own: `"claude"`, `"none"`, or sources
    of your own. Left out, `SEGUE_SOURCES` says it, else they are Claude Code's with the embedded
    store, and none with a database that others share. A `lasting` hub also has those of a tool that
    is first used while it is open, which costs a moment at the start. `progress` hears how many
    bytes a long reading of them has done, and has to do. `options` are the Hub's own:
    `agent_registry`, `clone`, the last from `SEGUE_CLONE`, which has addresses with spaces between,
    or else GitHub's.
    """
    from segue.hub import Hub
    from segue.store import open_store

    where = data_dir() if directory is None else Path(directory).expanduser().absolute()
    url = database_url or os.environ.get("SEGUE_DATABASE_URL") or None
    options.setdefault("clone", os.environ.get("SEGUE_CLONE", GITHUB).split())
    if sources is None:
        sources = os.environ.get(SOURCES) or ("none" if url else "claude")
    if isinstance(sources, str):
        sources = _sources(sources, where, lasting, progress)
    return Hub(await open_store(where, url), where, sources=sources, database_url=url, **options)


def _index_dir(directory: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Where indices are: with the data, or where that can only be read, in the user's cache."""
    if not directory.exists() or os.access(directory, os.W_OK):
        return directory
    cache = environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "segue"


def _sources(
    names: str, directory: Path, unused: bool, progress: Callable[[int, int], None] | None
) -> list[Source]:
    """The sources of these names, if their tools were ever used here or `unused` ones count."""
    from segue.model.errors import InvalidInput

    found: list[Source] = []
    for name in dict.fromkeys(part.strip() for part in names.split(",")):
        if name == "claude":
            from hashlib import blake2b

            from segue.sources.claude.format.paths import ClaudeHome

            home = ClaudeHome.current()
            if unused or os.path.isdir(home.projects):
                from segue.sources.claude.source import ClaudeSource
                from segue.sources.index.database import FORMAT

                # One index a home: another one is another user's, or a copy to look into. And one
                # a format, for an older program that still runs would make its own in its place.
                mark = blake2b(os.fsencode(home.root), digest_size=4).hexdigest()
                index = _index_dir(directory) / f"claude-{mark}-{FORMAT}.index"
                if not index.exists():
                    for each in index.parent.glob(f"claude-{mark}*"):
                        if not each.name.startswith(index.name):
                            with suppress(OSError):
                                each.unlink()
                found.append(ClaudeSource(index, home, progress=progress))
        elif name not in ("none", ""):
            raise InvalidInput(f"there is no source {name!r}: `claude`, or `none`")
    return found
