"""Find the sources that other Python packages ship: the entry points of the group `segue.sources`.

Every `segue list` asks for their names, and reading the metadata of all installed packages would
take longer than the list. So the names are kept in a small file in the cache, with the times of
the directories that packages are installed in. Without that file they are looked up each time.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

GROUP = "segue.sources"
_Directories = list[tuple[str, int]]  # with the times of their last changes


class _Cache(msgspec.Struct):
    directories: _Directories
    sources: dict[str, str]


def installed_sources() -> dict[str, str]:
    """Return the entry points of other packages by name, such as `package.module:DEFINITION`."""
    directories = _package_directories()
    path = _cache_path()
    with suppress(OSError, msgspec.MsgspecError):
        cache = msgspec.json.decode(path.read_bytes(), type=_Cache)
        if cache.directories == directories:
            return cache.sources
    sources = _look_up()
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        temporary.write_bytes(msgspec.json.encode(_Cache(directories, sources)))
        temporary.replace(path)
    return sources


def load(entry_point: str) -> Any:
    """Return the object that an entry point names. Raises what its package raises."""
    from importlib import import_module

    module, _, attribute = entry_point.partition(":")
    value: Any = import_module(module)
    for name in filter(None, attribute.split(".")):
        value = getattr(value, name)
    return value


def _package_directories() -> _Directories:
    """Return the directories of the module path that exist: installing changes their times."""
    directories = []
    for path in dict.fromkeys(sys.path):
        with suppress(OSError):
            directories.append((path, os.stat(path or ".").st_mtime_ns))
    return directories


def _look_up() -> dict[str, str]:
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=GROUP)}


def _cache_path() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME", "")
    directory = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    return directory / "segue" / f"sources-{sys.version_info.major}.{sys.version_info.minor}.json"
