"""Mount a session's resources in its directory: uploaded files and clones of repositories.

Clients write mount paths as if each session had a machine of its own. Here the root of that machine
is the session's directory. segue only writes into directories that it created. Files and clones are
made in a staging directory, and moved to the mount path when they are complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from segue.agents.tools.path_guard import PathGuard, ToolError
from segue.encryption import SecretBox
from segue.hub.access.quotas import Quotas
from segue.hub.resources.files import KIND, Files
from segue.hub.resources.records import Records
from segue.model import ids
from segue.model.errors import InvalidInput
from segue.model.event import Failed
from segue.model.query import Query
from segue.model.record import Record, RecordBody
from segue.model.session import Session
from segue.store.base import Store

from .git_clone import clone, file_url_path
from .locks import lock_path
from .staging import create_staging, remove_directory, remove_staging, staging_path

WORK = "work"  # name of the directory, in the data directory, that holds the session directories
_TOKEN_KIND = "repository_token"


def is_made_by_segue(session: Session) -> bool:
    """Return whether a session's directory has the path of one that segue makes in some data
    directory, for the session or for a fork's origin.
    """
    directory = Path(session.cwd)
    if directory.parent.name != WORK or ids.parse(directory.name) != directory.name:
        return False
    return session.fork is not None or directory.name == session.id


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
        quotas: Quotas,
        cloneable_urls: Sequence[str],
    ) -> None:
        """Create the service. A repository's URL must begin with one of `cloneable_urls`."""
        self._store = store
        self._work = data_dir / WORK
        self._records = records
        self._files = files
        self._secrets = secrets
        self._quotas = quotas
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
            if file := await self._file(session, resource):
                await self._mount_file(root, resource["mount_path"], file)
            return None
        url = resource.get("url", "")
        if not self._is_cloneable(url):
            return Failed(
                message=f"{url}: this server does not clone repositories from there; its operator"
                " lists the allowed URLs in SEGUE_CLONE",
            )
        return await _mount_repository(root, resource, await self.get_token(session, resource))

    async def unmount(self, session: Session, resource: dict[str, Any]) -> None:
        """Delete a file, or the token of a repository. A clone stays: it may contain work.

        `session` does not have the resource any more; its other resources may use the same file.
        """
        if resource["type"] == "file":
            used_ids = {other.get("file_id") for other in session.resources}
            file = await self._file(session, resource)
            if file is not None and resource["file_id"] not in used_ids:
                await self._files.delete(file)
            root = self._work / session.id
            if session.cwd == str(root):
                guard, path = _guard(root), str(root / resource["mount_path"].lstrip("/"))
                with suppress(ToolError):  # the agent has moved or deleted it
                    await asyncio.to_thread(guard.remove_file, path)
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
        return Path(session.cwd).parent == self._work and is_made_by_segue(session)

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
            await self.unmount(replace(session, resources=()), resource)
        if self.owns_directory(session):
            directory = Path(session.cwd)
            for path in (directory, staging_path(directory)):
                await asyncio.to_thread(remove_directory, path)
            await self._quotas.record_directory(session.workspace, directory.name, 0)
            self.state_path(session).unlink(missing_ok=True)
            Path(lock_path(session.cwd)).unlink(missing_ok=True)

    async def _file(self, session: Session, resource: dict[str, Any]) -> Record | None:
        id = ids.parse(resource["file_id"], "file") or ""
        return await self._store.get_record(session.workspace, KIND, id)

    async def _token_record(self, session: Session, resource: dict[str, Any]) -> Record | None:
        id = ids.parse(str(resource.get("id"))) or ""
        return await self._store.get_record(session.workspace, _TOKEN_KIND, id)

    def _is_cloneable(self, url: str) -> bool:
        """Return whether a URL begins with an allowed prefix and stays below it."""
        path = file_url_path(url) or ""
        return url.startswith(self._cloneable_urls) and ".." not in path.split("/")

    async def _mount_file(self, root: Path, mount_path: str, file: Record) -> None:
        async with _staging(root) as staging:
            staged = staging / "file"
            with staged.open("xb") as output:
                async for part in self._files.read(file):
                    await asyncio.to_thread(output.write, part)
            await asyncio.to_thread(_move_in, staged, root, mount_path)


async def _mount_repository(
    root: Path, resource: dict[str, Any], token: str | None
) -> Failed | None:
    """Clone a repository to its mount path, unless something is there. Return what went wrong."""
    mount_path = resource["mount_path"]
    if _exists(root, mount_path):
        return None
    async with _staging(root) as staging:
        result = await clone(resource["url"], staging, resource.get("checkout"), token)
        if isinstance(result, Failed):
            return result
        try:
            await asyncio.to_thread(_move_in, result, root, mount_path)
        except InvalidInput:
            if not _exists(root, mount_path):  # else another process cloned it first
                raise
    return None


@asynccontextmanager
async def _staging(root: Path) -> AsyncIterator[Path]:
    """Yield a staging directory for a session's directory. It is deleted in a thread."""
    staging = create_staging(root)
    try:
        yield staging
    finally:
        await asyncio.to_thread(remove_staging, staging)


def _guard(root: Path) -> PathGuard:
    return PathGuard([str(root)], strict=True)


def _resolve(root: Path, mount_path: str) -> tuple[PathGuard, str]:
    """Return the guard of a session's directory, and the path of a mount path in it.

    Raises InvalidInput if the mount path leads out of the directory, also through a link in a
    clone.
    """
    guard = _guard(root)
    path = root / mount_path.lstrip("/")
    try:
        if ".." in path.parts or path == root:
            raise ToolError(f"{mount_path} is not below {root}")
        guard.resolve(str(path.parent))
    except ToolError:
        raise InvalidInput(
            f"mount_path: {mount_path} leads out of the session's directory"
        ) from None
    return guard, str(path)


def _exists(root: Path, mount_path: str) -> bool:
    """Return whether something is at a mount path. Raises InvalidInput if the path leads out."""
    guard, path = _resolve(root, mount_path)
    return guard.exists(path)


def _move_in(staged: Path, root: Path, mount_path: str) -> None:
    """Move a staged file or clone to its mount path.

    Raises InvalidInput if the path leads out of the session's directory, or if something else is
    there.
    """
    guard, path = _resolve(root, mount_path)
    try:
        guard.move_in(staged, path)
    except ToolError:
        raise InvalidInput(
            f"mount_path: something else exists at {mount_path}, or above it"
        ) from None
