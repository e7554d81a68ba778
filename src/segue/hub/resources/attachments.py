"""Resources that are mounted into a session: files, repositories and memory stores."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, to_builtins

from segue.hub.workdir.mounts import Mounts
from segue.hub.workdir.prepare import WorkDirectories
from segue.model import clock, ids
from segue.model.codec import described_pattern
from segue.model.errors import InvalidInput
from segue.model.principal import Principal
from segue.model.record import Record
from segue.model.session import Session

from .content_blocks import Body
from .files import KIND, Files
from .memories import MemoryStoreBody
from .record_ids import check_active, format_record_id
from .records import Records

UPLOADS = "/uploads/"
WORKSPACE = "/workspace/"
MEMORY = "/mnt/memory/"
MAX_MEMORY_STORES = 8
MAX_SLUG_LENGTH = 200

# A path without `.` and `..`, of names that file systems allow. A relative path is relative to the
# directory of its kind of resource.
MountPath = Annotated[
    str,
    described_pattern(
        "a path without . and .., such as /workspace/project",
        r"^/?(?!\.{1,2}(/|\Z))[^/\x00-\x1f\x7f]{1,255}"
        r"(/(?!\.{1,2}(/|\Z))[^/\x00-\x1f\x7f]{1,255})*\Z",
        max_length=1024,
    ),
]


class Branch(Body, frozen=True, tag_field="type", tag="branch"):
    name: Annotated[
        str,
        described_pattern(
            "the name of a branch", r"^[^-\x00-\x20\x7f][^\x00-\x20\x7f]*\Z", max_length=1024
        ),
    ]


class Commit(Body, frozen=True, tag_field="type", tag="commit"):
    sha: Annotated[
        str,
        described_pattern("40 or 64 hexadecimal digits", r"^([0-9a-fA-F]{40}|[0-9a-fA-F]{64})\Z"),
    ]


class Repository(Body, frozen=True, tag_field="type", tag="github_repository"):
    url: Annotated[
        str,
        described_pattern(
            "a URL that begins with https://, http:// or file://",
            r"^(https?|file)://[^\x00-\x20\x7f]+\Z",
            max_length=2048,
        ),
    ]
    authorization_token: str | None = None
    checkout: Branch | Commit | None = None
    mount_path: MountPath | None = None


class AttachedFile(Body, frozen=True, tag_field="type", tag="file"):
    file_id: str
    mount_path: MountPath | None = None


class AttachedMemoryStore(Body, frozen=True, tag_field="type", tag="memory_store"):
    memory_store_id: str
    access: Literal["read_write", "read_only"] | None = None
    instructions: Annotated[str, Meta(max_length=4096)] | None = None


Attachment = Repository | AttachedFile | AttachedMemoryStore


class ResolvedAttachments(NamedTuple):
    """Resources of a session that exist, with their file records and tokens by resource id."""

    resources: tuple[dict[str, Any], ...]
    memory_store_ids: tuple[str, ...]
    files: dict[str, Record]
    tokens: dict[str, str]


class Attachments:
    """Resolve the resources of a session, and mount them."""

    def __init__(
        self, records: Records, files: Files, mounts: Mounts, workdirs: WorkDirectories
    ) -> None:
        self._records = records
        self._files = files
        self._mounts = mounts
        self._workdirs = workdirs

    async def resolve(
        self, workspace: str, attachments: Sequence[Attachment]
    ) -> ResolvedAttachments:
        """Find the records that attachments refer to; nothing is stored.

        Raises NotFound or InvalidInput if one of them cannot be attached.
        """
        resources: list[dict[str, Any]] = []
        memory_store_ids: list[str] = []
        files: dict[str, Record] = {}
        tokens: dict[str, str] = {}
        for attachment in attachments:
            if isinstance(attachment, AttachedFile):
                record = await self._records.resolve(
                    workspace, KIND, attachment.file_id, field="resources"
                )
                resource = _file_resource(record, attachment.mount_path)
                files[resource["id"]] = record
            elif isinstance(attachment, Repository):
                resource = _repository_resource(attachment)
                if attachment.authorization_token:
                    tokens[resource["id"]] = attachment.authorization_token
            else:
                record = await self._records.resolve(
                    workspace, "memory_store", attachment.memory_store_id, field="resources"
                )
                check_active(record, "resources")
                if record.id in memory_store_ids:
                    raise InvalidInput("resources: a memory store can be attached only once")
                memory_store_ids.append(record.id)
                used_paths = {resource["mount_path"] for resource in resources}
                resource = _memory_resource(attachment, record, used_paths)
            resources.append(resource)
        if len(memory_store_ids) > MAX_MEMORY_STORES:
            raise InvalidInput(f"resources: at most {MAX_MEMORY_STORES} memory stores")
        check_mount_paths(resources)
        return ResolvedAttachments(tuple(resources), tuple(memory_store_ids), files, tokens)

    async def copy_files(
        self, principal: Principal, session_id: str, attached: ResolvedAttachments
    ) -> tuple[dict[str, Any], ...]:
        """Copy the attached files for a session, and return its resources with the copies' ids.

        A file that is attached several times is copied once.
        """
        resources = []
        copies: dict[str, Record] = {}  # by the id of the original
        try:
            for resource in attached.resources:
                if file := attached.files.get(resource.get("id", "")):
                    if file.id not in copies:
                        fields = {"scope": session_id, "expires_at": None}
                        copies[file.id] = await self._files.copy(principal, file, fields)
                    resource = {**resource, "file_id": format_record_id(copies[file.id])}
                resources.append(resource)
        except BaseException:
            for copy in copies.values():
                await self._files.delete(copy)
            raise
        return tuple(resources)

    async def mount(self, session: Session, tokens: dict[str, str]) -> None:
        """Store the tokens of repositories and begin to mount a session's resources.

        The session's first turn waits until they are mounted.
        """
        for resource in session.resources:
            if token := tokens.get(resource.get("id", "")):
                await self._mounts.store_token(session, resource, token)
        self._workdirs.begin_mounting(session)


def check_mount_paths(resources: Iterable[dict[str, Any]]) -> None:
    """Raise InvalidInput if two resources have the same mount path."""
    used_paths: set[str] = set()
    for resource in resources:
        path = resource["mount_path"]
        if path in used_paths:
            raise InvalidInput(f"mount_path: something is mounted at {path} already")
        used_paths.add(path)


def _repository_resource(repository: Repository) -> dict[str, Any]:
    """Return a repository as the session shows it, without its token."""
    now = clock.to_rfc3339(clock.now())
    name = repository.url.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")
    name = name if name not in ("", ".", "..") else "repository"
    return {
        "type": "github_repository",
        "id": ids.format_id("sesrsc", ids.new_id()),
        "url": repository.url,
        "mount_path": posixpath.join(WORKSPACE, repository.mount_path or name[:255]),
        "checkout": to_builtins(repository.checkout),
        "created_at": now,
        "updated_at": now,
    }


def _file_resource(record: Record, mount_path: str | None) -> dict[str, Any]:
    now = clock.to_rfc3339(clock.now())
    name = format_record_id(record)
    return {
        "type": "file",
        "id": ids.format_id("sesrsc", ids.new_id()),
        "file_id": name,
        "mount_path": posixpath.join(UPLOADS, mount_path or f"/mnt/session/uploads/{name}"),
        "created_at": now,
        "updated_at": now,
    }


def _memory_resource(
    attachment: AttachedMemoryStore, record: Record, used_paths: Collection[str]
) -> dict[str, Any]:
    """Return a memory store as the session shows it; later edits of its name do not change it."""
    store = MemoryStoreBody.of(record)
    slug = re.sub(r"[^a-z0-9]+", "-", store.name.lower()).strip("-")[:MAX_SLUG_LENGTH] or "memory"
    paths = (f"{MEMORY}{slug}{suffix}" for suffix in ("", *(f"-{n}" for n in range(2, 999))))
    return {
        "type": "memory_store",
        "memory_store_id": format_record_id(record),
        "access": attachment.access or "read_write",
        "name": store.name,
        "description": store.description or "",
        "instructions": attachment.instructions,
        "mount_path": next(path for path in paths if path not in used_paths),
    }
