"""Memories: create, update, list and delete the texts of a memory store."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from segue.hub.resources.memories import MemoryBody, kind
from segue.hub.resources.record_ids import check_active, format_record_id, parent_id
from segue.interfaces.rest import paging, records
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas.requests import Body, Deleted, Out, Page
from segue.model import clock, codec, ids
from segue.model.errors import Conflict, InvalidInput
from segue.model.record import Record

MAX_FULL_PAGE_SIZE = 20  # for memories with their content

FILTERS = ("limit", "page", "path_prefix", "depth", "view")
View = Literal["basic", "full"]


class Create(Body, frozen=True):
    path: str
    content: str | None


class Precondition(Body, frozen=True, tag_field="type", tag="content_sha256"):
    content_sha256: (
        Annotated[
            str, codec.described_pattern("64 lower-case hexadecimal digits", r"^[0-9a-f]{64}$")
        ]
        | None
    ) = None


class Update(Body, frozen=True):
    path: str | None = None
    content: str | None = None
    precondition: Precondition | None = None


class Memory(Out, frozen=True, tag_field="type", tag="memory"):
    id: str
    memory_store_id: str
    memory_version_id: str
    path: str
    content: str | None
    content_sha256: str
    content_size_bytes: int
    created_at: str
    updated_at: str


class MemoryPrefix(Out, frozen=True, tag_field="type", tag="memory_prefix"):
    """Stands for the memories below a directory."""

    path: str


class MemoryDeleted(Deleted, frozen=True, tag_field="type", tag="memory_deleted"):
    """The memory was deleted. Its versions remain."""


async def find_store(request: RestRequest) -> Record:
    """Return the memory store in the path."""
    return await records.find(request, "memory_store", request.path_params["memory_store_id"])


async def _find(request: RestRequest) -> Record:
    return await records.find(
        request, kind((await find_store(request)).id), request.path_params["memory_id"]
    )


async def show(request: RestRequest, memory: Record, view: View) -> Memory:
    """Return a memory as the API shows it, with its content if the view is full."""
    body = MemoryBody.of(memory)
    content = await request.hub.memories.content(memory) if view == "full" else None
    return Memory(
        id=format_record_id(memory),
        memory_store_id=ids.format_id("memstore", parent_id(memory)),
        memory_version_id=ids.format_id("memver", body.version),
        path=body.path,
        content=content,
        content_sha256=body.sha256,
        content_size_bytes=body.size,
        created_at=clock.to_rfc3339(memory.created_at),
        updated_at=clock.to_rfc3339(memory.updated_at),
    )


def requested_view(request: RestRequest, default: View) -> View:
    """Return the `view` parameter of a request."""
    other: View = "full" if default == "basic" else "basic"
    return default if request.params.choice("view", default, other) == default else other


def actor(request: RestRequest) -> dict[str, Any] | None:
    """Return the API key that changes a memory; None for the local user, who has no key."""
    key = request.principal.key_id
    if not key:
        return None
    return {"type": "api_actor", "api_key_id": ids.format_id("apikey", key)}


async def create(request: RestRequest) -> Memory:
    sent = await request.body(Create)
    view = requested_view(request, "basic")
    store = check_active(await find_store(request), "memory_store_id")
    memories = request.hub.memories
    memory = await memories.create(
        request.principal, store, sent.path, sent.content or "", actor(request)
    )
    return await show(request, memory, view)


async def update(request: RestRequest) -> Memory:
    sent = await request.body(Update)
    view = requested_view(request, "basic")
    store = check_active(await find_store(request), "memory_store_id")
    memory = await _find(request)
    if sent.precondition is not None:
        _check_digest(memory, sent.precondition.content_sha256)
    changed = await request.hub.memories.update(
        request.principal, store, memory, actor(request), path=sent.path, content=sent.content
    )
    return await show(request, changed, view)


def _check_digest(memory: Record, expected: str | None) -> None:
    if expected is not None and expected != MemoryBody.of(memory).sha256:
        raise Conflict(
            "content_sha256: the memory has changed; read it again",
            details={"error_code": "memory_precondition_failed"},
        )


async def delete(request: RestRequest) -> MemoryDeleted:
    store = check_active(await find_store(request), "memory_store_id")
    memory = await _find(request)
    _check_digest(memory, request.params.text("expected_content_sha256"))
    await request.hub.memories.delete(store, memory, actor(request))
    return MemoryDeleted(id=format_record_id(memory))


async def retrieve(request: RestRequest) -> Memory:
    view = requested_view(request, "full")
    return await show(request, await _find(request), view)


async def list_(request: RestRequest) -> Page[Memory | MemoryPrefix]:
    """List memories by path. Below `depth`, a directory replaces the memories in it."""
    view = requested_view(request, "basic")
    limit = page_limit(request, view)
    depth = request.params.number("depth", 0, 20) or 0
    prefix = request.params.text("path_prefix") or "/"
    if not (prefix.startswith("/") and prefix.endswith("/")):
        raise InvalidInput("path_prefix: must begin and end with /")
    token = request.params.text("page")
    store = await find_store(request)
    list_name = f"memories:{store.id}"
    after = "" if token is None else (await paging.decode_page(request, token, list_name))[1]
    entries = await _entries_below(request, store, prefix, depth)
    paths = sorted(path for path in entries if path > after)
    page: list[Memory | MemoryPrefix] = []
    for path in paths[:limit]:
        memory = entries[path]
        if memory is None:
            page.append(MemoryPrefix(path=path))
        else:
            page.append(await show(request, memory, view))
    next_page = None
    if len(paths) > limit:
        next_page = await paging.encode_page(request, list_name, 0, paths[limit - 1])
    return Page(data=page, next_page=next_page)


async def _entries_below(
    request: RestRequest, store: Record, prefix: str, depth: int
) -> dict[str, Record | None]:
    """Return the memories below a prefix by path; None for a directory at `depth`."""
    entries: dict[str, Record | None] = {}
    async for memory in request.hub.memories.all(store):
        path = MemoryBody.of(memory).path
        if not path.startswith(prefix):
            continue
        segments = path.removeprefix(prefix).split("/")
        if depth and len(segments) > depth:
            entries.setdefault(prefix + "/".join(segments[:depth]) + "/", None)
        else:
            entries[path] = memory
    return entries


def page_limit(request: RestRequest, view: View) -> int:
    """Return the page size, which is smaller for memories with their content."""
    limit = request.params.limit(20, 100)
    return min(limit, MAX_FULL_PAGE_SIZE) if view == "full" else limit
