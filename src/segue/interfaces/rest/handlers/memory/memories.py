"""Memories: texts at paths in a memory store, with a version for each change of one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from segue.hub.resources.memories import kind
from segue.hub.resources.record_ids import check_active, format_record_id
from segue.interfaces.rest import paging, records
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas.requests import Body, Deleted, Out, Page
from segue.model import clock, ids
from segue.model.errors import Conflict, InvalidInput
from segue.model.record import Record

_FULL = 20  # at most so many on a page with their content

FILTERS = ("limit", "page", "path_prefix", "depth", "view")
View = Literal["basic", "full"]


class Create(Body, frozen=True):
    path: str
    content: str | None


class Precondition(Body, frozen=True, tag_field="type", tag="content_sha256"):
    content_sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")] | None = None


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
    """It is gone from its path; its versions are not."""


async def the_store(request: RestRequest) -> Record:
    return await records.find(request, "memory_store", request.path_params["memory_store_id"])


async def _find(request: RestRequest) -> Record:
    return await records.find(
        request, kind((await the_store(request)).id), request.path_params["memory_id"]
    )


async def show(request: RestRequest, memory: Record, view: View) -> Memory:
    store = memory.kind.partition(":")[2]
    content = await request.hub.memories.content(memory) if view == "full" else None
    return Memory(
        id=format_record_id(memory),
        memory_store_id=ids.format_id("memstore", store),
        memory_version_id=ids.format_id("memver", memory.body["version"]),
        path=memory.body["path"],
        content=content,
        content_sha256=memory.body["sha256"],
        content_size_bytes=memory.body["size"],
        created_at=clock.to_rfc3339(memory.created_at),
        updated_at=clock.to_rfc3339(memory.updated_at),
    )


def view(request: RestRequest, default: View) -> View:
    other: View = "full" if default == "basic" else "basic"
    return default if request.params.choice("view", default, other) == default else other


def actor(request: RestRequest) -> dict[str, Any] | None:
    """Return the API key that changes a memory; None for the local user, who has no key."""
    key = request.principal.key_id
    return key and {"type": "api_actor", "api_key_id": ids.format_id("apikey", key)}  # type: ignore[return-value]


async def create(request: RestRequest) -> Memory:
    given = await request.body(Create)
    chosen = view(request, "basic")
    store = check_active(await the_store(request), "memory_store_id")
    memories = request.hub.memories
    made = await memories.create(store, given.path, given.content or "", actor(request))
    return await show(request, made, chosen)


async def update(request: RestRequest) -> Memory:
    given = await request.body(Update)
    chosen = view(request, "basic")
    store = check_active(await the_store(request), "memory_store_id")
    memory = await _find(request)
    if given.precondition is not None:
        _check_digest(memory, given.precondition.content_sha256)
    changed = await request.hub.memories.update(
        store, memory, actor(request), path=given.path, content=given.content
    )
    return await show(request, changed, chosen)


def _check_digest(memory: Record, expected: str | None) -> None:
    if expected is not None and expected != memory.body["sha256"]:
        raise Conflict(
            "content_sha256: the memory has changed; read it again",
            details={"error_code": "memory_precondition_failed"},
        )


async def delete(request: RestRequest) -> MemoryDeleted:
    store = check_active(await the_store(request), "memory_store_id")
    memory = await _find(request)
    _check_digest(memory, request.params.text("expected_content_sha256"))
    await request.hub.memories.delete(store, memory, actor(request))
    return MemoryDeleted(id=format_record_id(memory))


async def retrieve(request: RestRequest) -> Memory:
    chosen = view(request, "full")
    return await show(request, await _find(request), chosen)


async def list_(request: RestRequest) -> Page[Memory | MemoryPrefix]:
    """By path. Below `depth`, directories stand for what is in them."""
    chosen = view(request, "basic")
    limit = page_limit(request, chosen)
    depth = request.params.number("depth", 0, 20) or 0
    prefix = request.params.text("path_prefix") or "/"
    if not (prefix.startswith("/") and prefix.endswith("/")):
        raise InvalidInput("path_prefix: must begin and end with /")
    token = request.params.text("page")
    store = await the_store(request)
    of = f"memories:{store.id}"
    after = "" if token is None else (await paging.decode_page(request, token, of))[1]
    shown: dict[str, Record | None] = {}
    async for memory in request.hub.memories.all(store):
        path = memory.body["path"]
        if path.startswith(prefix):
            below = path[len(prefix) :].split("/")
            rolled = depth and len(below) > depth
            name = prefix + "/".join(below[:depth]) + "/" if rolled else path
            shown.setdefault(name, None if rolled else memory)
    names = sorted(name for name in shown if name > after)
    found: list[Memory | MemoryPrefix] = []
    for name in names[:limit]:
        one = shown[name]
        found.append(MemoryPrefix(path=name) if one is None else await show(request, one, chosen))
    more = len(names) > limit
    following = await paging.encode_page(request, of, 0, names[limit - 1]) if more else None
    return Page(data=found, next_page=following)


def page_limit(request: RestRequest, chosen: View) -> int:
    limit = request.params.limit(20, 100)
    return min(limit, _FULL) if chosen == "full" else limit
