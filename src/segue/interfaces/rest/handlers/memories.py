"""Memories: texts at paths in a memory store, with a version for each change of one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from segue.hub.resources.memories import kind
from segue.interfaces.rest import paging, records
from segue.interfaces.rest.request import Call
from segue.interfaces.rest.schemas.requests import Body, Deleted, Out, Page
from segue.model import clock, ids
from segue.model.errors import Conflict, InvalidInput
from segue.store.base import Record

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


async def the_store(call: Call) -> Record:
    return await records.find(call, "memory_store", call.path["memory_store_id"])


async def _find(call: Call) -> Record:
    return await records.find(call, kind((await the_store(call)).id), call.path["memory_id"])


async def show(call: Call, memory: Record, view: View) -> Memory:
    store = memory.kind.partition(":")[2]
    content = await call.hub.memories.content(memory) if view == "full" else None
    return Memory(
        id=records.spell(memory),
        memory_store_id=ids.format_id("memstore", store),
        memory_version_id=ids.format_id("memver", memory.body["version"]),
        path=memory.body["path"],
        content=content,
        content_sha256=memory.body["sha256"],
        content_size_bytes=memory.body["size"],
        created_at=clock.to_rfc3339(memory.created_at),
        updated_at=clock.to_rfc3339(memory.updated_at),
    )


def view(call: Call, default: View) -> View:
    other: View = "full" if default == "basic" else "basic"
    return default if call.params.choice("view", default, other) == default else other


def actor(call: Call) -> dict[str, Any] | None:
    """Who changes something: a key. The local user is nobody that this dialect can name."""
    key = call.principal.key_id
    return key and {"type": "api_actor", "api_key_id": ids.format_id("apikey", key)}  # type: ignore[return-value]


async def create(call: Call) -> Memory:
    given = await call.body(Create)
    chosen = view(call, "basic")
    store = records.usable(await the_store(call), "memory_store_id")
    memories = call.hub.memories
    made = await memories.create(store, given.path, given.content or "", actor(call))
    return await show(call, made, chosen)


async def update(call: Call) -> Memory:
    given = await call.body(Update)
    chosen = view(call, "basic")
    store = records.usable(await the_store(call), "memory_store_id")
    memory = await _find(call)
    if given.precondition is not None:
        _check_digest(memory, given.precondition.content_sha256)
    changed = await call.hub.memories.update(
        store, memory, actor(call), path=given.path, content=given.content
    )
    return await show(call, changed, chosen)


def _check_digest(memory: Record, expected: str | None) -> None:
    if expected is not None and expected != memory.body["sha256"]:
        raise Conflict(
            "content_sha256: the memory has changed; read it again",
            details={"error_code": "memory_precondition_failed"},
        )


async def delete(call: Call) -> MemoryDeleted:
    store = records.usable(await the_store(call), "memory_store_id")
    memory = await _find(call)
    _check_digest(memory, call.params.text("expected_content_sha256"))
    await call.hub.memories.delete(store, memory, actor(call))
    return MemoryDeleted(id=records.spell(memory))


async def retrieve(call: Call) -> Memory:
    chosen = view(call, "full")
    return await show(call, await _find(call), chosen)


async def list_(call: Call) -> Page[Memory | MemoryPrefix]:
    """By path. Below `depth`, directories stand for what is in them."""
    chosen = view(call, "basic")
    limit = page_limit(call, chosen)
    depth = call.params.number("depth", 0, 20) or 0
    prefix = call.params.text("path_prefix") or "/"
    if not (prefix.startswith("/") and prefix.endswith("/")):
        raise InvalidInput("path_prefix: must begin and end with /")
    token = call.params.text("page")
    store = await the_store(call)
    of = f"memories:{store.id}"
    after = "" if token is None else (await paging.parse(call, token, of))[1]
    shown: dict[str, Record | None] = {}
    async for memory in call.hub.memories.all(store):
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
        found.append(MemoryPrefix(path=name) if one is None else await show(call, one, chosen))
    more = len(names) > limit
    following = await paging.spell(call, of, 0, names[limit - 1]) if more else None
    return Page(data=found, next_page=following)


def page_limit(call: Call, chosen: View) -> int:
    limit = call.params.limit(20, 100)
    return min(limit, _FULL) if chosen == "full" else limit
