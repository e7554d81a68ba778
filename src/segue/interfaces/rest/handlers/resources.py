"""Resources that are mounted into a session: files, repositories and memory stores."""

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
    """Resources of a session."""


class ResourceDeleted(Deleted, frozen=True, tag_field="type", tag="session_resource_deleted"):
    """The resource is no longer mounted."""


async def list_(request: RestRequest) -> Page[dict[str, Any]]:
    session = await request.session()
    limit = request.params.limit(1000, 1000)
    token = request.params.text("page")
    list_name = f"resources:{session.id}"
    start = 0 if token is None else (await paging.decode_page(request, token, list_name))[0]
    end = start + limit
    has_more = end < len(session.resources)
    return Page(
        data=session.resources[start:end],
        next_page=await paging.encode_page(request, list_name, end) if has_more else None,
    )


async def retrieve(request: RestRequest) -> dict[str, Any]:
    return _find(request, await request.session())


async def add(request: RestRequest) -> dict[str, Any]:
    session = await request.session()
    file = await request.body(File)
    _check_not_terminated(session)
    attached = await request.hub.attachments.resolve(request.workspace, [file])
    check_mount_paths([*session.resources, *attached.resources])
    (resource,) = await request.hub.attachments.copy_files(request.principal, session.id, attached)

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
    sent = await request.body(Update)
    resource = _find(request, session)
    _check_not_terminated(session)
    if resource["type"] != "github_repository":
        raise InvalidInput("authorization_token: only a repository has one")
    await request.hub.mounts.store_token(session, resource, sent.authorization_token)
    changed = {**resource, "updated_at": clock.to_rfc3339(clock.now())}

    def edit(before: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        return tuple(changed if other.get("id") == resource["id"] else other for other in before)

    session = await request.hub.editor.set_resources(request.principal, session.id, edit)
    # With the new token a clone may succeed that failed before.
    request.hub.workdirs.begin_mounting(session, retry=resource["id"])
    return changed


async def delete(request: RestRequest) -> ResourceDeleted:
    session = await request.session()
    resource = _find(request, session)
    _check_not_terminated(session)

    def edit(before: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        return tuple(other for other in before if other.get("id") != resource["id"])

    session = await request.hub.editor.set_resources(request.principal, session.id, edit)
    await request.hub.mounts.unmount(session, resource)
    return ResourceDeleted(id=resource["id"])


def _check_not_terminated(session: Session) -> None:
    if status(session) == "terminated":
        raise InvalidInput("a terminated session cannot be changed")


def _find(request: RestRequest, session: Session) -> dict[str, Any]:
    """Return the resource in the path. Raises NotFound if the session does not have it."""
    resource_id = request.path_params["resource_id"]
    for resource in session.resources:
        if resource.get("id") == resource_id:
            return resource
    raise NotFound(f"resource {resource_id} not found")
