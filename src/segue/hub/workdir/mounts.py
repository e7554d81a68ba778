"""What a session names, put into its working directory: files, and clones of repositories.

A resource says where it is mounted as a path from the root of a machine of the session's own.
Here that root is the session's directory, and only one that segue made is written into.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from segue.encryption import SecretBox
from segue.hub.resources.files import KIND, Files
from segue.hub.resources.records import Records
from segue.model import ids
from segue.model.errors import InvalidInput
from segue.model.event import Failed
from segue.model.query import Query
from segue.model.record import Record
from segue.model.session import Session
from segue.store.base import Store

from .git_clone import clone

WORK = "work"  # the directory of the directories
_TOKEN = "repository_token"


class Mounts:
    """`sources` are the beginnings of the addresses that repositories are cloned from."""

    def __init__(
        self,
        store: Store,
        data_dir: Path,
        records: Records,
        files: Files,
        secrets: SecretBox,
        sources: Sequence[str],
    ) -> None:
        self._store = store
        self._work = data_dir / WORK
        self._records = records
        self._files = files
        self._secrets = secrets
        self._sources = tuple(sources)

    async def mount(self, session: Session, resource: dict[str, Any]) -> Failed | None:
        """Put a resource where it says; what went wrong, which does not stop the session."""
        root = self._work / session.id
        if session.cwd != str(root):
            return None
        if resource["type"] == "file":
            file = await self._file(session, resource)
            if file is not None:
                await self._put_file(_inside(root, resource["mount_path"]), file)
        elif resource.get("url", "").startswith(self._sources):
            place = _inside(root, resource["mount_path"])
            token = await self.get_token(session, resource)
            return await clone(resource["url"], place, resource.get("checkout"), token)
        return None

    async def _put_file(self, place: Path, file: Record) -> None:
        draft = place.with_name(f".{ids.new_id()}")
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with draft.open("xb") as out:
                async for part in self._files.read(file):
                    await asyncio.to_thread(out.write, part)
            os.replace(draft, place)
        except (IsADirectoryError, NotADirectoryError, FileExistsError):
            raise InvalidInput("mount_path: something else is in its place") from None
        finally:
            draft.unlink(missing_ok=True)

    async def unmount(self, session: Session, resource: dict[str, Any]) -> None:
        """Take a file away, and forget a token. A clone stays: there may be work in it."""
        if resource["type"] == "file":
            if file := await self._file(session, resource):
                await self._files.delete(file)
            root = self._work / session.id
            if session.cwd == str(root):
                _inside(root, resource["mount_path"]).unlink(missing_ok=True)
        elif token := await self._token_record(session, resource):
            await self._records.delete(token)

    async def store_token(self, session: Session, resource: dict[str, Any], token: str) -> None:
        """Seal the token that a repository is reached with, in the place of one from before."""
        body = {"token": self._secrets.seal(token, session.workspace, _TOKEN, resource["id"])}
        if before := await self._token_record(session, resource):
            await self._records.delete(before)
        await self._records.create(session.workspace, _TOKEN, body, ids.parse(resource["id"]))

    def owns_directory(self, session: Session) -> bool:
        """Whether segue made its directory: for it, or for the session that it was forked from."""
        place = Path(session.cwd)
        if place.parent != self._work or ids.parse(place.name) != place.name:
            return False
        return session.fork is not None or place.name == session.id

    def state_path(self, session: Session) -> Path:
        """The file that says what was done in the directory that segue made for a session."""
        place = Path(session.cwd)
        return place.with_name(f"{place.name}.json")

    async def discard(self, session: Session) -> None:
        """Remove what was a purged session's: its directory, files, tokens.

        All of it stays while another session is at work in the same directory, as a fork is.
        """
        if not self.owns_directory(session) and not session.resources:
            return
        here = Query(directories=(session.directory,), archived="include", limit=1)
        bins = Query(directories=(session.directory,), trash=True, limit=1)
        for query in (here, bins):
            if await self._store.page(session.workspace, query):
                return
        for resource in session.resources:
            await self.unmount(session, resource)
        if self.owns_directory(session):
            await asyncio.to_thread(shutil.rmtree, session.cwd, ignore_errors=True)
            self.state_path(session).unlink(missing_ok=True)

    async def _file(self, session: Session, resource: dict[str, Any]) -> Record | None:
        id = ids.parse(resource["file_id"], "file") or ""
        return await self._store.get_record(session.workspace, KIND, id)

    async def _token_record(self, session: Session, resource: dict[str, Any]) -> Record | None:
        id = ids.parse(str(resource.get("id"))) or ""
        return await self._store.get_record(session.workspace, _TOKEN, id)

    async def get_token(self, session: Session, resource: dict[str, Any]) -> str | None:
        """The token that a repository is reached with."""
        sealed = await self._token_record(session, resource)
        if sealed is None:
            return None
        return self._secrets.open(sealed.body["token"], session.workspace, _TOKEN, resource["id"])


def _inside(root: Path, mount_path: str) -> Path:
    """Where a mount path lies under a root; no link in a clone leads out of it."""
    place = root / mount_path.lstrip("/")
    parent = Path(os.path.realpath(place.parent))
    real = Path(os.path.realpath(root))
    if ".." in place.parts or place == root or not (parent == real or real in parent.parents):
        raise InvalidInput(f"mount_path: {mount_path} leads out of the session's directory")
    return parent / place.name
