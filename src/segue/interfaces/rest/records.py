"""Find, list and show records: the parts that all resources of the API share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict, TypeVar

from segue.model import clock
from segue.model.query import Position
from segue.model.record import Record

from . import paging
from .request import RestRequest
from .schemas.requests import Page

T = TypeVar("T")


class Times(TypedDict):
    """The times that every resource has."""

    created_at: str
    updated_at: str
    archived_at: str | None


def times(record: Record) -> Times:
    """Return when a record was created, last changed and archived."""
    archived = record.archived_at
    return {
        "created_at": clock.to_rfc3339(record.created_at),
        "updated_at": clock.to_rfc3339(record.updated_at),
        "archived_at": None if archived is None else clock.to_rfc3339(archived),
    }


async def find(
    request: RestRequest, kind: str, name: str, version: int | None = None, *, field: str = ""
) -> Record:
    """Return the record of an id. `field` is the field of the request that has the id."""
    return await request.hub.records.resolve(request.workspace, kind, name, version, field=field)


async def page(
    request: RestRequest,
    kind: str,
    render: Callable[[Record], T],
    *,
    max_limit: int = 100,
    keep: Callable[[Record], bool] = lambda _: True,
    clamp: bool = False,
    archived: bool = False,
) -> Page[T]:
    """Return a page of records, newest first.

    The query parameters are `limit`, `page`, `include_archived` and `created_at`.
    """
    limit = (
        min(max_limit, request.params.limit(20, 100))
        if clamp
        else request.params.limit(20, max_limit)
    )
    window = request.params.window()
    after: Position | None = None
    if token := request.params.text("page"):
        after = Position(*await paging.decode_page(request, token, kind))
    elif window.high is not None:
        after = Position(window.high + 1, "")
    matches: list[Record] = []
    # A filter can leave too few of a batch, and only the last page may be short.
    while len(matches) <= limit:
        rows = await request.hub.records.list(
            request.workspace,
            kind,
            after=after,
            archived=archived or request.params.flag("include_archived"),
            limit=limit + 1,
        )
        in_window = [row for row in rows if window.low is None or row.created_at >= window.low]
        matches += [row for row in in_window if keep(row)]
        if len(rows) <= limit or len(in_window) < len(rows):
            break
        after = Position(rows[-1].created_at, rows[-1].id)
    next_page = None
    if len(matches) > limit:
        last = matches[limit - 1]
        next_page = await paging.encode_page(request, kind, last.created_at, last.id)
    return Page(data=[render(row) for row in matches[:limit]], next_page=next_page)
