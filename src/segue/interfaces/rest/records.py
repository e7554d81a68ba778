"""What agents, environments and the like have in common: finding them, paging through them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, TypeVar

from segue.model import clock, ids
from segue.model.errors import Conflict, InvalidInput, NotFound
from segue.model.query import Position
from segue.model.record import Record

from . import paging
from .request import RestRequest
from .schemas.requests import Page

# Kind → how its ids begin. A kind may go on with `:` and the id of what its records belong to.
PREFIXES = {
    "agent": "agent",
    "environment": "env",
    "memory_store": "memstore",
    "vault": "vlt",
    "deployment": "depl",
    "deployment_run": "drun",
    "file": "file",
    "credential": "vcrd",
    "memory": "mem",
    "memory_version": "memver",
    "skill": "skill",
    "skill_version": "skver",
    "work": "work",
}

T = TypeVar("T")


def spell(record: Record) -> str:
    return ids.format_id(PREFIXES[_sort(record.kind)], record.id)


def _sort(kind: str) -> str:
    return kind.partition(":")[0]


class Times(TypedDict):
    """When it was made, last changed, and archived."""

    created_at: str
    updated_at: str
    archived_at: str | None


def times(record: Record) -> Times:
    archived = record.archived_at
    return {
        "created_at": clock.to_rfc3339(record.created_at),
        "updated_at": clock.to_rfc3339(record.updated_at),
        "archived_at": None if archived is None else clock.to_rfc3339(archived),
    }


async def find(
    request: RestRequest, kind: str, given: str, version: int | None = None, *, field: str = ""
) -> Record:
    """The record of that id. `field` is where the request names it, for the error."""
    sort = _sort(kind)
    id = ids.parse(given, PREFIXES[sort])
    where = f"{field}: " if field else ""
    newest = None
    if id is not None:
        try:
            newest = await request.hub.records.get(request.workspace, kind, id)
        except NotFound:
            newest = None
    if newest is None:
        raise NotFound(f"{where}{sort} {given} not found", missing=sort)
    if version is None or version == newest.version:
        return newest
    try:
        return await request.hub.records.get(request.workspace, kind, newest.id, version)
    except NotFound:
        name = f"{field}.version" if field else "version"
        raise NotFound(f"{name}: {version} not found") from None


def usable(record: Record, field: str) -> Record:
    """The record, if sessions may still be made with it."""
    if record.archived_at is not None:
        named = f"{record.kind} {spell(record)}"
        raise InvalidInput(f"{field}: {named} is archived", archived=record.kind)
    return record


async def page(
    request: RestRequest,
    kind: str,
    render: Callable[[Record], T],
    *,
    most: int = 100,
    keep: Callable[[Record], bool] = lambda _: True,
    clamp: bool = False,
    archived: bool = False,
) -> Page[T]:
    """A page of records, newest first, by `limit`, `page`, `include_archived`, `created_at`."""
    limit = min(most, request.params.limit(20, 100)) if clamp else request.params.limit(20, most)
    window = request.params.window()
    after: Position | None = None
    if token := request.params.text("page"):
        after = Position(*await paging.decode_page(request, token, kind))
    elif window.high is not None:
        after = Position(window.high + 1, "")
    found: list[Record] = []
    # On to the next batch while a filter leaves too few: no page but the last may be empty.
    while len(found) <= limit:
        rows = await request.hub.records.list(
            request.workspace,
            kind,
            after=after,
            archived=archived or request.params.flag("include_archived"),
            limit=limit + 1,
        )
        inside = [row for row in rows if window.low is None or row.created_at >= window.low]
        found += [row for row in inside if keep(row)]
        if len(rows) <= limit or len(inside) < len(rows):
            break
        after = Position(rows[-1].created_at, rows[-1].id)
    following = None
    if len(found) > limit:
        last = found[limit - 1]
        following = await paging.encode_page(request, kind, last.created_at, last.id)
    return Page(data=[render(row) for row in found[:limit]], next_page=following)


async def change(
    request: RestRequest,
    record: Record,
    edit: Callable[[Record], dict[str, Any]],
    *,
    expected: int | None = None,
    drop_earlier: bool = False,
) -> Record:
    """The record after `edit`, which is called again if another change came first.

    With `expected`, only while that is its version. An edit that changes nothing makes no version.
    `drop_earlier` deletes the earlier versions.
    """
    for _ in range(20):
        if record.archived_at is not None:
            raise InvalidInput(f"{_sort(record.kind)} {spell(record)} is archived")
        if expected is not None and record.version != expected:
            raise Conflict(
                f"version: {expected} is not the current version, which is {record.version}"
            )
        body = edit(record)
        if body == record.body:
            return record
        try:
            return await request.hub.records.update(record, body, drop_earlier=drop_earlier)
        except Conflict:
            record = await request.hub.records.get(request.workspace, record.kind, record.id)
    raise Conflict(f"{_sort(record.kind)} {spell(record)} is being changed by others")
