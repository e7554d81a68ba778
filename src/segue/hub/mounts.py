"""What a session names, put into its working directory: files, and clones of repositories.

A dialect says where things are mounted as a path from the root of a machine of the session's own.
Here that root is the session's directory, and only one that segue made is written into.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..model import ids
from ..model.errors import InvalidInput
from ..model.event import Failed
from ..model.session import Session
from ..store.base import Record
from .cloning import clone
from .editing import WORK
from .files import Files


class Mounts:
    """`sources` are the beginnings of the addresses that repositories are cloned from."""

    def __init__(self, data_dir: Path, files: Files, sources: Sequence[str] = ()) -> None:
        self._work = data_dir / WORK
        self._files = files
        self._sources = tuple(sources)

    def own(self, session: Session) -> Path | None:
        """The directory that segue made for this session, if it works there."""
        place = self._work / session.id
        return place if session.cwd == str(place) else None

    async def put_file(self, session: Session, mount_path: str, file: Record) -> None:
        root = self.own(session)
        if root is None:
            return
        place = _inside(root, mount_path)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = place.with_name(f".{ids.new_id()}")
        try:
            with draft.open("xb") as out:
                async for part in self._files.read(file):
                    out.write(part)
            os.replace(draft, place)
        except IsADirectoryError:
            raise InvalidInput(f"mount_path: {mount_path} is a directory") from None
        finally:
            draft.unlink(missing_ok=True)

    def remove(self, session: Session, mount_path: str) -> None:
        root = self.own(session)
        if root is not None:
            _inside(root, mount_path).unlink(missing_ok=True)

    async def put_repository(
        self, session: Session, resource: dict[str, Any], token: str | None
    ) -> Failed | None:
        """A clone, if its address is among those that are cloned from; what went wrong."""
        root = self.own(session)
        url = str(resource["url"])
        if root is None or not url.startswith(self._sources or ("\0",)):
            return None
        place = _inside(root, resource["mount_path"])
        return await clone(url, place, resource.get("checkout"), token)

    def clear(self, session: Session) -> None:
        """Remove the session's own directory, and all that is in it."""
        root = self.own(session)
        if root is not None:
            shutil.rmtree(root, ignore_errors=True)


def _inside(root: Path, mount_path: str) -> Path:
    """Where a mount path lies under a root; no link in a clone leads out of it."""
    place = root / mount_path.lstrip("/")
    parent = Path(os.path.realpath(place.parent))
    real = Path(os.path.realpath(root))
    if ".." in place.parts or place == root or not (parent == real or real in parent.parents):
        raise InvalidInput(f"mount_path: {mount_path} leads out of the session's directory")
    return parent / place.name
