"""What is mounted into a session: files, repositories, memory stores."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, to_builtins

from segue.hub.resources.files import KIND
from segue.hub.resources.record_ids import check_active, format_record_id
from segue.interfaces.rest import paging, records
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas.requests import Body, Deleted, Out, Page
from segue.interfaces.rest.schemas.session import status
from segue.model import clock, ids
from segue.model.errors import InvalidInput, NotFound
from segue.model.record import Record
from segue.model.session import Session

# No way up or in place, nothing a file system refuses. A relative one lies where its kind belongs.
Path = Annotated[
    str,
    Meta(
        pattern=r"^/?(?!\.{1,2}(/|\Z))[^/\x00-\x1f\x7f]{1,255}"
        r"(/(?!\.{1,2}(/|\Z))[^/\x00-\x1f\x7f]{1,255})*\Z",
        max_length=1024,
    ),
]
UPLOADS = "/uploads/"
WORKSPACE = "/workspace/"
MEMORY = "/mnt/memory/"
MOST_STORES = 8
MOST_FILES = 500


class Branch(Body, frozen=True, tag_field="type", tag="branch"):
    name: Annotated[str, Meta(pattern=r"^[^-\x00-\x20\x7f][^\x00-\x20\x7f]*\Z", max_length=1024)]


class Commit(Body, frozen=True, tag_field="type", tag="commit"):
    sha: Annotated[str, Meta(pattern=r"^([0-9a-fA-F]{40}|[0-9a-fA-F]{64})\Z")]


class Repository(Body, frozen=True, tag_field="type", tag="github_repository"):
    url: Annotated[str, Meta(pattern=r"^(https?|file)://[^\x00-\x20\x7f]+\Z", max_length=2048)]
    authorization_token: str | None = None
    checkout: Branch | Commit | None = None
    mount_path: Path | None = None


class File(Body, frozen=True, tag_field="type", tag="file"):
    file_id: str
    mount_path: Path | None = None


class MemoryStore(Body, frozen=True, tag_field="type", tag="memory_store"):
    memory_store_id: str
    access: Literal["read_write", "read_only"] | None = None
    instructions: Annotated[str, Meta(max_length=4096)] | None = None


Resource = Repository | File | MemoryStore


class Update(Body, frozen=True):
    authorization_token: Annotated[str, Meta(min_length=1)]


# As a session shows them.


class RepositoryOut(Out, frozen=True, tag_field="type", tag="github_repository"):
    id: str
    url: str
    mount_path: str
    checkout: Branch | Commit | None
    created_at: str
    updated_at: str


class FileOut(Out, frozen=True, tag_field="type", tag="file"):
    id: str
    file_id: str
    mount_path: str
    created_at: str
    updated_at: str


class MemoryStoreOut(Out, frozen=True, tag_field="type", tag="memory_store"):
    memory_store_id: str
    access: Literal["read_write", "read_only"]
    name: str
    description: str
    instructions: str | None
    mount_path: str


ResourceOut = RepositoryOut | FileOut | MemoryStoreOut


class ResourcePage(Page[ResourceOut], frozen=True):
    """What a session has mounted."""


class ResourceDeleted(Deleted, frozen=True, tag_field="type", tag="session_resource_deleted"):
    """It is no longer mounted."""


class Attached(NamedTuple):
    """Resources that have been found, in a session's order, with what belongs to them by id."""

    resources: tuple[dict[str, Any], ...]
    memory_store_ids: tuple[str, ...]
    files: dict[str, Record]
    tokens: dict[str, str]


async def find(request: RestRequest, given: Sequence[Resource]) -> Attached:
    """What is to be mounted, if all of it exists; nothing is written yet."""
    kept: list[dict[str, Any]] = []
    stores: list[str] = []
    files: dict[str, Record] = {}
    tokens: dict[str, str] = {}
    for resource in given:
        match resource:
            case File():
                record = await records.find(request, KIND, resource.file_id, field="resources")
                kept.append(_file(record, resource.mount_path))
                files[kept[-1]["id"]] = record
            case Repository():
                kept.append(_repository(resource))
                if resource.authorization_token:
                    tokens[kept[-1]["id"]] = resource.authorization_token
            case MemoryStore():
                record = await records.find(
                    request, "memory_store", resource.memory_store_id, field="resources"
                )
                check_active(record, "resources")
                if record.id in stores:
                    raise InvalidInput("resources: a memory store is attached twice")
                stores.append(record.id)
                kept.append(_memory(resource, record, {each["mount_path"] for each in kept}))
    if len(stores) > MOST_STORES:
        raise InvalidInput(f"resources: at most {MOST_STORES} memory stores")
    _check_paths(kept)
    return Attached(tuple(kept), tuple(stores), files, tokens)


def _check_paths(kept: Sequence[dict[str, Any]]) -> None:
    taken: set[str] = set()
    for resource in kept:
        path = resource["mount_path"]
        if path in taken:
            raise InvalidInput(f"mount_path: something is mounted at {path} already")
        taken.add(path)


async def copies(
    request: RestRequest, session_id: str, found: Attached
) -> tuple[dict[str, Any], ...]:
    """The resources, each file in them a copy of the session's own."""
    made = []
    copied: list[Record] = []
    try:
        for resource in found.resources:
            if file := found.files.get(resource.get("id", "")):
                about = {"scope": session_id, "expires_at": None}
                copied.append(await request.hub.files.copy(file, about))
                resource = {**resource, "file_id": format_record_id(copied[-1])}
            made.append(resource)
    except BaseException:
        for copy in copied:
            await request.hub.files.delete(copy)
        raise
    return tuple(made)


async def mount(request: RestRequest, session: Session, tokens: dict[str, str]) -> None:
    """Begin to put everything in its place; the session's first turn waits for that."""
    for resource in session.resources:
        if token := tokens.get(resource.get("id", "")):
            await request.hub.mounts.store_token(session, resource, token)
    request.hub.workdirs.begin_mounting(session)


def _repository(resource: Repository) -> dict[str, Any]:
    """The token is kept elsewhere, sealed."""
    now = clock.to_rfc3339(clock.now())
    name = resource.url.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")
    name = name if name not in ("", ".", "..") else "repository"
    return {
        "type": "github_repository",
        "id": ids.format_id("sesrsc", ids.new_id()),
        "url": resource.url,
        "mount_path": posixpath.join(WORKSPACE, resource.mount_path or name[:255]),
        "checkout": to_builtins(resource.checkout),
        "created_at": now,
        "updated_at": now,
    }


def _file(record: Record, mount_path: str | None) -> dict[str, Any]:
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


def _memory(resource: MemoryStore, record: Record, taken: Collection[str]) -> dict[str, Any]:
    """Name and description as they are now: later edits do not reach the session."""
    name = record.body["name"]
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:200] or "memory"
    places = (f"{MEMORY}{slug}{number}" for number in ("", *(f"-{n}" for n in range(2, 999))))
    return {
        "type": "memory_store",
        "memory_store_id": format_record_id(record),
        "access": resource.access or "read_write",
        "name": name,
        "description": record.body.get("description") or "",
        "instructions": resource.instructions,
        "mount_path": next(place for place in places if place not in taken),
    }


async def list_(request: RestRequest) -> Page[dict[str, Any]]:
    session = await request.session()
    limit = request.params.limit(1000, 1000)
    token = request.params.text("page")
    of = f"resources:{session.id}"
    start = 0 if token is None else (await paging.decode_page(request, token, of))[0]
    more = start + limit < len(session.resources)
    return Page(
        data=session.resources[start : start + limit],
        next_page=await paging.encode_page(request, of, start + limit) if more else None,
    )


async def retrieve(request: RestRequest) -> dict[str, Any]:
    return _named(request, await request.session())


async def add(request: RestRequest) -> dict[str, Any]:
    session = await request.session()
    given = await request.body(File)
    _check_live(session)
    found = await find(request, [given])
    _check_paths([*session.resources, *found.resources])
    (made,) = await copies(request, session.id, found)

    def edit(before: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        _check_paths([*before, made])
        if sum(each["type"] == "file" for each in before) >= MOST_FILES:
            raise InvalidInput(f"resources: at most {MOST_FILES} files")
        return (*before, made)

    try:
        await request.hub.workdirs.mount(session, made)
        await request.hub.editor.set_resources(request.principal, session.id, edit)
    except Exception:
        await request.hub.mounts.unmount(session, made)
        raise
    return made


async def update(request: RestRequest) -> dict[str, Any]:
    session = await request.session()
    given = await request.body(Update)
    found = _named(request, session)
    _check_live(session)
    if found["type"] != "github_repository":
        raise InvalidInput("authorization_token: only a repository has one")
    await request.hub.mounts.store_token(session, found, given.authorization_token)
    changed = {**found, "updated_at": clock.to_rfc3339(clock.now())}

    def edit(before: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        return tuple(changed if each.get("id") == found["id"] else each for each in before)

    session = await request.hub.editor.set_resources(request.principal, session.id, edit)
    # With the new token a clone may succeed that failed before.
    request.hub.workdirs.begin_mounting(session, retry=found["id"])
    return changed


async def delete(request: RestRequest) -> ResourceDeleted:
    session = await request.session()
    found = _named(request, session)
    _check_live(session)

    def edit(before: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        return tuple(each for each in before if each.get("id") != found["id"])

    await request.hub.editor.set_resources(request.principal, session.id, edit)
    await request.hub.mounts.unmount(session, found)
    return ResourceDeleted(id=found["id"])


def _check_live(session: Session) -> None:
    if status(session) == "terminated":
        raise InvalidInput("a terminated session cannot be changed")


def _named(request: RestRequest, session: Session) -> dict[str, Any]:
    given = request.path_params["resource_id"]
    for resource in session.resources:
        if resource.get("id") == given:
            return resource
    raise NotFound(f"resource {given} not found")
