"""Open the hub over a store and the sources."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.sources.base import Progress, Source
    from segue.store.base import Store

SOURCES = "SEGUE_SOURCES"
GITHUB = "https://github.com/"


async def open_hub(
    directory: str | os.PathLike[str] | None = None,
    database_url: str | None = None,
    *,
    sources: str | Sequence[Source] | None = None,
    in_memory: bool = False,
    lasting: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Hub:
    """Open the hub over the store in a data directory, or over a PostgreSQL database.

    Without arguments: the default data directory, or `SEGUE_DATABASE_URL` where that is set.
    `sources` are other tools' sessions to show with segue's own: names of the source registry with
    commas between, `"none"`, or Source objects. By default `SEGUE_SOURCES` names them, else all
    with the embedded store, and none with a database that others share. With `in_memory`, the
    sessions end with this process, and no database is opened. A `lasting` hub also opens
    sources whose tools are first used later, which costs a moment at the start. `progress` is
    called with the bytes that a long reading has read and has to read. `options` are those of
    `Hub`: `agent_registry`, `clone` … `SEGUE_CLONE` has URL prefixes with spaces between.
    """
    from segue.hub import Hub
    from segue.hub.location import data_dir
    from segue.store import open_store

    where = data_dir() if directory is None else Path(directory).expanduser().absolute()
    url = None if in_memory else database_url or os.environ.get("SEGUE_DATABASE_URL") or None
    options.setdefault("clone", os.environ.get("SEGUE_CLONE", GITHUB).split())
    if sources is None:
        sources = os.environ.get(SOURCES) or default_sources(url)
    if isinstance(sources, str):
        sources = _open_sources(sources, where, progress, unused=lasting)
    store = _memory_store() if in_memory else await open_store(where, url)
    return Hub(store, where, sources=sources, database_url=url, **options)


def _memory_store() -> Store:
    from segue.store.memory import MemoryStore

    return MemoryStore()


def default_sources(database_url: str | None) -> str:
    """Return the names of the sources that are open by default.

    Those are all with the embedded store, and none with a database that others share.
    """
    from segue.sources import registry

    return registry.NONE if database_url else ",".join(registry.names())


def _index_dir(directory: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Where indices are: with the data, or where that can only be read, in the user's cache."""
    if not directory.exists() or os.access(directory, os.W_OK):
        return directory
    cache = environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "segue"


def _open_sources(
    names: str, directory: Path, progress: Progress | None, *, unused: bool
) -> list[Source]:
    """Open the named sources whose tools were used here, or with `unused` all of them."""
    from segue.sources import registry

    opened = []
    for name in dict.fromkeys(part.strip() for part in names.split(",")):
        if name not in (registry.NONE, ""):
            index_dir = _index_dir(directory)
            opened.append(registry.get(name).open(index_dir, unused=unused, progress=progress))
    return [source for source in opened if source is not None]
