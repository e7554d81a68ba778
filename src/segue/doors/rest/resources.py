"""What is mounted into a session: repositories and memory stores; files are yet to come."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, to_builtins

from ...model import clock, ids
from ...model.errors import InvalidInput, NotFound
from ...model.session import Session
from ...store.base import Record
from . import paging, records
from .bodies import Body
from .call import Call

Path = Annotated[str, Meta(pattern=r"^/", max_length=4096)]


class Branch(Body, frozen=True, tag_field="type", tag="branch"):
    name: Annotated[str, Meta(min_length=1, max_length=1024)]


class Commit(Body, frozen=True, tag_field="type", tag="commit"):
    sha: Annotated[str, Meta(pattern=r"^[0-9a-fA-F]{40,64}$")]


class Repository(Body, frozen=True, tag_field="type", tag="github_repository"):
    url: Annotated[str, Meta(pattern=r"^https?://", max_length=2048)]
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
MOST_STORES = 8


async def attach(
    call: Call, given: Sequence[Resource]
) -> tuple[tuple[dict[str, Any], ...], tuple[str, ...]]:
    """Resources as a session keeps them, and the ids of the memory stores among them."""
    kept: list[dict[str, Any]] = []
    stores: list[str] = []
    for resource in given:
        match resource:
            case File():
                raise NotFound(f"resources: file {resource.file_id} not found")
            case Repository():
                kept.append(_repository(resource))
            case MemoryStore():
                record = await records.find(
                    call, "memory_store", resource.memory_store_id, field="resources"
                )
                records.usable(record, "resources")
                if record.id in stores:
                    raise InvalidInput("resources: a memory store is attached twice")
                stores.append(record.id)
                kept.append(_memory(resource, record))
    if len(stores) > MOST_STORES:
        raise InvalidInput(f"resources: at most {MOST_STORES} memory stores")
    return tuple(kept), tuple(stores)


def _repository(resource: Repository) -> dict[str, Any]:
    """The token is not kept: nothing here would clone with it."""
    now = clock.to_rfc3339(clock.now())
    name = resource.url.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")
    return {
        "type": "github_repository",
        "id": ids.spell("sesrsc", ids.new_id()),
        "url": resource.url,
        "mount_path": resource.mount_path or f"/workspace/{name or 'repository'}",
        "checkout": to_builtins(resource.checkout),
        "created_at": now,
        "updated_at": now,
    }


def _memory(resource: MemoryStore, record: Record) -> dict[str, Any]:
    """Name and description as they are now: later edits do not reach the session."""
    name = record.body["name"]
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "memory"
    return {
        "type": "memory_store",
        "memory_store_id": records.spell(record),
        "access": resource.access or "read_write",
        "name": name,
        "description": record.body.get("description") or "",
        "instructions": resource.instructions,
        "mount_path": f"/mnt/memory/{slug}",
    }


async def list_(call: Call) -> dict[str, Any]:
    session = await call.session()
    limit = call.params.limit(1000, 1000)
    token = call.params.text("page")
    start = 0 if token is None else max(0, paging.parse(token, "resources")[0])
    shown = session.resources[start : start + limit]
    more = start + limit < len(session.resources)
    following = paging.spell("resources", start + limit) if more else None
    return {"data": shown, "next_page": following}


async def retrieve(call: Call) -> dict[str, Any]:
    return _named(call, await call.session())


async def add(call: Call) -> dict[str, Any]:
    await call.session()
    given = await call.body(File)
    raise NotFound(f"file {given.file_id} not found")


async def update(call: Call) -> dict[str, Any]:
    _named(call, await call.session())
    raise InvalidInput("authorization_token: this server keeps no repository tokens")


async def delete(call: Call) -> dict[str, Any]:
    found = _named(call, await call.session())
    raise InvalidInput(f"{found['type']} resources cannot be removed from a session")


def _named(call: Call, session: Session) -> dict[str, Any]:
    given = call.path["resource_id"]
    for resource in session.resources:
        if resource.get("id") == given:
            return resource
    raise NotFound(f"resource {given} not found")
