"""Mount a session's resources in its directory: uploaded files and clones of repositories.

A mount path begins at the root of a machine of the session's own. Here that root is the session's
directory. segue only writes into directories that it created.
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
from segue.model.record import Record, RecordBody
from segue.model.session import Session
from segue.store.base import Store

from .git_clone import clone

WORK = "work"  # name of the directory, in the data directory, that holds the session directories
_TOKEN_KIND = "repository_token"


class RepositoryToken(RecordBody, frozen=True):
    """The body of the record of a repository's token, which is encrypted."""

    token: str


class Mounts:
    """Mount and unmount files and repositories, and store the repositories' tokens."""

    def __init__(
        self,
        store: Store,
        data_dir: Path,
        records: Records,
        files: Files,
        secrets: SecretBox,
        cloneable_urls: Sequence[str],
    ) -> None:
        """Create the service. A repository's URL must begin with one of `cloneable_urls`."""
        self._store = store
        self._work = data_dir / WORK
        self._records = records
        self._files = files
        self._secrets = secrets
        self._cloneable_urls = tuple(cloneable_urls)

    async def mount(self, session: Session, resource: dict[str, Any]) -> Failed | None:
        """Write a resource to its mount path, and return what went wrong with a clone.

        Does nothing in a directory that segue did not create for the session. Raises InvalidInput
        if the mount path cannot be used.
        """
        root = self._work / session.id
        if session.cwd != str(root):
            return None
        if resource["type"] == "file":
            file = await self._file(session, resource)
            if file is not None:
                await self._write_file(_resolve(root, resource["mount_path"]), file)
        elif resource.get("url", "").startswith(self._cloneable_urls):
            path = _resolve(root, resource["mount_path"])
            token = await self.get_token(session, resource)
            return await clone(resource["url"], path, resource.get("checkout"), token)
        return None

    async def unmount(self, session: Session, resource: dict[str, Any]) -> None:
        """Delete a file, or the token of a repository. A clone stays: it may contain work."""
        if resource["type"] == "file":
            if file := await self._file(session, resource):
                await self._files.delete(file)
            root = self._work / session.id
            if session.cwd == str(root):
                _resolve(root, resource["mount_path"]).unlink(missing_ok=True)
        elif record := await self._token_record(session, resource):
            await self._records.delete(record)

    async def get_token(self, session: Session, resource: dict[str, Any]) -> str | None:
        """Return the token for a repository, if there is one."""
        record = await self._token_record(session, resource)
        if record is None:
            return None
        sealed = RepositoryToken.of(record).token
        return self._secrets.open(sealed, session.workspace, _TOKEN_KIND, resource["id"])

    async def store_token(self, session: Session, resource: dict[str, Any], token: str) -> None:
        """Encrypt and store the token for a repository, in place of an earlier one."""
        sealed = self._secrets.seal(token, session.workspace, _TOKEN_KIND, resource["id"])
        if record := await self._token_record(session, resource):
            await self._records.delete(record)
        id = ids.parse(resource["id"])
        body = RepositoryToken(token=sealed).encode()
        await self._records.create(session.workspace, _TOKEN_KIND, body, id)

    def owns_directory(self, session: Session) -> bool:
        """Return whether segue created the session's directory, for it or for a fork's origin."""
        directory = Path(session.cwd)
        if directory.parent != self._work or ids.parse(directory.name) != directory.name:
            return False
        return session.fork is not None or directory.name == session.id

    def state_path(self, session: Session) -> Path:
        """Return the path of the file that records what was done in the session's directory."""
        directory = Path(session.cwd)
        return directory.with_name(f"{directory.name}.json")

    async def discard(self, session: Session) -> None:
        """Delete the directory, files and tokens of a purged session.

        Does nothing while another session, such as a fork, uses the same directory.
        """
        if not self.owns_directory(session) and not session.resources:
            return
        directories = (session.directory,)
        listed = Query(directories=directories, archived="include", limit=1)
        trashed = Query(directories=directories, trash=True, limit=1)
        for query in (listed, trashed):
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
        return await self._store.get_record(session.workspace, _TOKEN_KIND, id)

    async def _write_file(self, path: Path, file: Record) -> None:
        draft = path.with_name(f".{ids.new_id()}")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with draft.open("xb") as output:
                async for part in self._files.read(file):
                    await asyncio.to_thread(output.write, part)
            os.replace(draft, path)
        except (IsADirectoryError, NotADirectoryError, FileExistsError):
            raise InvalidInput("mount_path: something else exists at this path") from None
        finally:
            draft.unlink(missing_ok=True)


def _resolve(root: Path, mount_path: str) -> Path:
    """Return the path of a mount path below `root`.

    Raises InvalidInput if it leads out of `root`, also through a link in a clone.
    """
    path = root / mount_path.lstrip("/")
    parent = Path(os.path.realpath(path.parent))
    real_root = Path(os.path.realpath(root))
    is_inside = parent == real_root or real_root in parent.parents
    if ".." in path.parts or path == root or not is_inside:
        raise InvalidInput(f"mount_path: {mount_path} leads out of the session's directory")
    return parent / path.name
