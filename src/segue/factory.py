"""Open the hub over a store and the sources."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.sources.base import Progress, Source
    from segue.store.base import Store

_DEFAULT_CLONE_PREFIXES = "https://github.com/"


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

    `directory` is the default data directory if it is None. `database_url` is the variable
    SEGUE_DATABASE_URL if it is None; without both, the store is in the directory. With
    `in_memory`, sessions end with this process and no database is opened.

    `sources` selects other tools' sessions: names of the source registry separated by commas,
    "none", or Source objects. The default is the variable SEGUE_SOURCES, else all sources with
    the embedded store and none with a database, which others may share. A `lasting` hub also
    opens sources whose tools were not used yet. `progress` receives the bytes read and the bytes
    to read while a source is indexed.

    `options` are those of `Hub`. The default of `clone` is the variable SEGUE_CLONE: URL prefixes
    separated by spaces. The default of `quotas` is the variable SEGUE_QUOTAS: limits such as
    `sessions=1000`, separated by spaces.
    """
    from segue.hub import Hub
    from segue.hub.location import data_dir
    from segue.store import open_store

    path = data_dir() if directory is None else Path(directory).expanduser().absolute()
    url = None if in_memory else database_url or os.environ.get("SEGUE_DATABASE_URL") or None
    options.setdefault("clone", os.environ.get("SEGUE_CLONE", _DEFAULT_CLONE_PREFIXES).split())
    options.setdefault("quotas", _default_quotas(os.environ.get("SEGUE_QUOTAS", "")))
    if sources is None:
        sources = os.environ.get("SEGUE_SOURCES") or None
    if isinstance(sources, str) or (sources is None and url is None):
        sources = _open_sources(sources, path, progress, unused=lasting)
    store = _memory_store() if in_memory else await open_store(path, url)
    return Hub(store, path, sources=sources or (), database_url=url, **options)


def _default_quotas(text: str) -> dict[str, int]:
    if not text.strip():
        return {}
    from segue.hub.access.quotas import parse_limits

    return parse_limits(text.split())


def _memory_store() -> Store:
    from segue.store.memory import MemoryStore

    return MemoryStore()


def _index_dir(directory: Path) -> Path:
    """Return where indexes are: in the data directory, or in the cache if that is read-only."""
    if not directory.exists() or os.access(directory, os.W_OK):
        return directory
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "segue"


def _open_sources(
    names: str | None, directory: Path, progress: Progress | None, *, unused: bool
) -> list[Source]:
    """Open the named sources whose tools were used here, or with `unused` all of them.

    Without names, all sources that can be loaded are opened.
    """
    from segue.sources import registry

    if names is None:
        definitions = registry.definitions()
    else:
        parts = dict.fromkeys(part.strip() for part in names.split(","))
        definitions = [registry.get(name) for name in parts if name not in (registry.NONE, "")]
    index_dir = _index_dir(directory)
    opened = [
        definition.open(index_dir, unused=unused, progress=progress) for definition in definitions
    ]
    return [source for source in opened if source is not None]
