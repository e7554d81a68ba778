"""What is mounted into a session: files, repositories, memory stores."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from segue.hub.resources.attachments import (
    AttachedFile,
    AttachedMemoryStore,
    Branch,
    Commit,
    Repository,
    check_mount_paths,
)
from segue.interfaces.rest import paging
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas.requests import Body, Deleted, Out, Page
from segue.interfaces.rest.schemas.session import status
from segue.model import clock
from segue.model.errors import InvalidInput, NotFound
from segue.model.session import Session

MAX_FILES = 500


class File(AttachedFile, frozen=True, tag_field="type", tag="file"):
    pass


class MemoryStore(AttachedMemoryStore, frozen=True, tag_field="type", tag="memory_store"):
    pass


Resource = Repository | File | MemoryStore


class Update(Body, frozen=True):
    authorization_token: Annotated[str, Meta(min_length=1)]


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
    attached = await request.hub.attachments.resolve(request.workspace, [given])
    check_mount_paths([*session.resources, *attached.resources])
    (resource,) = await request.hub.attachments.copy_files(session.id, attached)

    def edit(before: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        check_mount_paths([*before, resource])
        if sum(other["type"] == "file" for other in before) >= MAX_FILES:
            raise InvalidInput(f"resources: at most {MAX_FILES} files")
        return (*before, resource)

    try:
        await request.hub.workdirs.mount(session, resource)
        await request.hub.editor.set_resources(request.principal, session.id, edit)
    except Exception:
        await request.hub.mounts.unmount(session, resource)
        raise
    return resource


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
