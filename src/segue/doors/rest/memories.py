"""Memories: texts at paths in a memory store. Each change of one is kept as a version.

A memory's record says where it is and which version is current; the text is in the version. That
no two memories share a path is held by a record of the path itself, changed along with them.
"""

from __future__ import annotations

import unicodedata
from hashlib import sha256
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import replace

from ...hub.records import new
from ...model import clock, ids
from ...model.errors import Conflict, InvalidInput, NotFound
from ...store.base import Record
from . import paging, records
from .bodies import Body, Deleted, Out, Page
from .call import Call

MOST = 2000
MAX_BYTES = 102_400
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


def kind(store: Record) -> str:
    return f"memory:{store.id}"


def versions(store_id: str) -> str:
    return f"memory_version:{store_id}"


async def the_store(call: Call) -> Record:
    return await records.find(call, "memory_store", call.path["memory_store_id"])


async def _find(call: Call) -> Record:
    return await records.find(call, kind(await the_store(call)), call.path["memory_id"])


async def show(call: Call, memory: Record, view: View) -> Memory:
    store = memory.kind.partition(":")[2]
    content = None
    if view == "full":
        current = memory.body["version"]
        version = await call.hub.records.get(call.workspace, versions(store), current)
        content = version.body["content"]
    return Memory(
        id=records.spell(memory),
        memory_store_id=ids.spell("memstore", store),
        memory_version_id=ids.spell("memver", memory.body["version"]),
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
    return key and {"type": "api_actor", "api_key_id": ids.spell("apikey", key)}  # type: ignore[return-value]


def _checked_path(path: str) -> str:
    parts = path.split("/")
    if parts[0] or not 1 <= len(parts) - 1 <= 20 or not all(parts[1:]):
        raise InvalidInput("path: must begin with / and have 1 to 20 segments, none of them empty")
    if {".", ".."} & set(parts):
        raise InvalidInput("path: no segment may be . or ..")
    if any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in path):
        raise InvalidInput("path: must have no control or format characters")
    if not unicodedata.is_normalized("NFC", path) or len(path.encode()) > 1024:
        raise InvalidInput("path: must be in normalization form C and at most 1024 bytes long")
    return path


def _measured(content: str) -> dict[str, Any]:
    try:
        data = content.encode()
    except UnicodeEncodeError:
        raise InvalidInput("content: must be Unicode text") from None
    if len(data) > MAX_BYTES:
        raise InvalidInput(f"content: at most {MAX_BYTES} bytes")
    return {"sha256": sha256(data).hexdigest(), "size": len(data)}


def _version(call: Call, store: Record, memory_id: str, operation: str, **body: Any) -> Record:
    about = {"memory": memory_id, "operation": operation, "by": actor(call), **body}
    return new(call.workspace, versions(store.id), about)


async def _claim(call: Call, store: Record, path: str, memory_id: str) -> Record:
    """The record that makes a path one memory's; Conflict if it is another's."""
    kind = f"memory_path:{store.id}"
    id = ids.derived_id(store.id, path)
    try:
        taken = await call.hub.records.get(call.workspace, kind, id)
    except NotFound:
        return new(call.workspace, kind, {"memory": memory_id}, id)
    other = ids.spell("mem", taken.body["memory"])
    raise Conflict(f"path: {path} is taken by {other}")


async def _claimed(call: Call, store: Record, path: str) -> Record:
    id = ids.derived_id(store.id, path)
    return await call.hub.records.get(call.workspace, f"memory_path:{store.id}", id)


async def create(call: Call) -> Memory:
    given = await call.body(Create)
    chosen = view(call, "basic")
    store = records.usable(await the_store(call), "memory_store_id")
    path, content = _checked_path(given.path), given.content or ""
    about = {"path": path, **_measured(content)}
    if len(await call.hub.records.list(call.workspace, kind(store), limit=MOST)) >= MOST:
        raise InvalidInput(f"a memory store holds at most {MOST} memories")
    id = ids.new_id()
    claim = await _claim(call, store, path, id)
    version = _version(call, store, id, "created", content=content, **about)
    memory = new(call.workspace, kind(store), {**about, "version": version.id}, id)
    await call.hub.records.put(claim, memory, version)
    return await show(call, memory, chosen)


async def update(call: Call) -> Memory:
    given = await call.body(Update)
    chosen = view(call, "basic")
    store = records.usable(await the_store(call), "memory_store_id")
    memory = await _find(call)
    if given.precondition is not None:
        _check_digest(memory, given.precondition.content_sha256)
    before = memory.body
    path = before["path"] if given.path is None else _checked_path(given.path)
    current = await call.hub.records.get(call.workspace, versions(store.id), before["version"])
    content = current.body["content"] if given.content is None else given.content
    about = {"path": path, **_measured(content)}
    if about == {name: before[name] for name in about}:
        return await show(call, memory, chosen)
    version = _version(call, store, memory.id, "modified", content=content, **about)
    after = replace(
        memory,
        body={**about, "version": version.id},
        version=memory.version + 1,
        updated_at=version.created_at,
    )
    if path == before["path"]:
        await call.hub.records.put(after, version)
    else:
        left = await _claimed(call, store, before["path"])
        await call.hub.records.put(
            after, version, await _claim(call, store, path, memory.id), drop=[left]
        )
    return await show(call, after, chosen)


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
    path = memory.body["path"]
    version = _version(call, store, memory.id, "deleted", path=path)
    left = await _claimed(call, store, path)
    await call.hub.records.put(version, drop=[memory, left])
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
    after = "" if token is None else paging.parse(token, "memories")[1]
    store = await the_store(call)
    shown: dict[str, Record | None] = {}
    async for memory in call.hub.records.all(call.workspace, kind(store)):
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
    following = paging.spell("memories", 0, names[limit - 1]) if more else None
    return Page(data=found, next_page=following)


def page_limit(call: Call, chosen: View) -> int:
    limit = call.params.limit(20, 100)
    return min(limit, _FULL) if chosen == "full" else limit


async def forget(call: Call, store: Record) -> None:
    """Everything in a store that is deleted."""
    for kind in ("memory", "memory_path", "memory_version"):
        async for record in call.hub.records.all(call.workspace, f"{kind}:{store.id}"):
            await call.hub.records.delete(record)
