"""Files: uploaded, listed, read and deleted; what sessions have mounted is a copy of its own."""

from __future__ import annotations

import mimetypes
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.datastructures import UploadFile
from starlette.responses import Response, StreamingResponse

from segue.hub.resources.files import KIND, PART_BYTES
from segue.hub.resources.record_ids import format_record_id
from segue.interfaces.rest import paging, records
from segue.interfaces.rest.multipart import read_form
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas.requests import Deleted, Out
from segue.model import clock, ids
from segue.model.errors import InvalidInput, NotFound
from segue.model.query import Position
from segue.model.record import Record

MAX_FILE = 500 * 1024 * 1024
_EXPIRY = (3600, 7_776_000)  # seconds: an hour to ninety days
_MOST_IDS = 100

# The newer way to page, and the older one.
FILTERS = ("limit", "page", "scope_id", "ids[]", "after_id", "before_id")


class Scope(Out, frozen=True, tag_field="type", tag="session"):
    id: str


class File(Out, frozen=True, tag_field="type", tag="file"):
    id: str
    filename: str
    mime_type: str
    size_bytes: int
    created_at: str
    downloadable: bool
    expires_at: str | None
    scope: Scope | None


class FileDeleted(Deleted, frozen=True, tag_field="type", tag="file_deleted"):
    """It is gone."""


class FilePage(Out, frozen=True):
    """A page in both of the shapes that clients know."""

    data: list[File]
    next_page: str | None
    has_more: bool
    first_id: str | None
    last_id: str | None


def show(record: Record) -> File:
    body = record.body
    expires = body.get("expires_at")
    scope = body.get("scope")
    return File(
        id=format_record_id(record),
        filename=body["filename"],
        mime_type=body["mime_type"],
        size_bytes=body["size"],
        created_at=clock.to_rfc3339(record.created_at),
        downloadable=not _expired(record),
        expires_at=None if expires is None else clock.to_rfc3339(expires),
        scope=None if scope is None else Scope(id=ids.format_id("sesn", scope)),
    )


async def upload(request: RestRequest) -> File:
    async with read_form(request.http, MAX_FILE) as form:
        given = form.get("file")
        if not isinstance(given, UploadFile):
            raise InvalidInput("file: field is required, as a file in multipart/form-data")
        if unknown := sorted(form.keys() - {"file", "expires_in_seconds"}):
            raise InvalidInput(f"{unknown[0]}: unknown field")
        about: dict[str, Any] = _named(given)
        if seconds := form.get("expires_in_seconds"):
            about["expires_at"] = clock.now() + _seconds(seconds) * clock.SECOND
        return show(await request.hub.files.store(request.workspace, _chunks(given), about))


async def _chunks(given: UploadFile) -> AsyncIterator[bytes]:
    while data := await given.read(PART_BYTES):
        yield data


def _named(given: UploadFile) -> dict[str, Any]:
    """The last part of the name, and the type: as given, or as the name suggests."""
    name = (given.filename or "").replace("\\", "/").rsplit("/", 1)[-1]
    kind = given.content_type or mimetypes.guess_type(name)[0] or "application/octet-stream"
    if len(name) > 255 or any(ord(char) < 32 for char in name):
        raise InvalidInput("file: its name must have at most 255 characters, none of control")
    if len(kind) > 255 or not kind.isprintable():
        raise InvalidInput("file: its content type cannot be read")
    if name in ("", ".", ".."):
        name = f"unnamed{mimetypes.guess_extension(kind) or ''}"
    return {"filename": name, "mime_type": kind}


def _seconds(given: object) -> int:
    low, high = _EXPIRY
    text = str(given)
    if not text.isascii() or not text.isdigit() or not low <= int(text[:12]) <= high:
        raise InvalidInput(f"expires_in_seconds: must be a whole number from {low} to {high}")
    return int(text)


async def list_(request: RestRequest) -> FilePage:
    params = request.params
    wanted = params.values("ids")
    if wanted:
        if params.text("page") or params.text("limit"):
            raise InvalidInput("ids: cannot be combined with page or limit")
        if len(set(wanted)) > _MOST_IDS:
            raise InvalidInput(f"ids: at most {_MOST_IDS}")
        return _page(await _some(request, dict.fromkeys(wanted)), None)
    limit = params.limit(20, 1000)
    if scope := params.text("scope_id"):
        return await _scoped(request, scope, limit)
    if before := params.text("before_id"):
        return await _before(request, before, limit)
    after: Position | None = None
    if token := params.text("page"):
        after = Position(*await paging.decode_page(request, token, KIND))
    elif last := params.text("after_id"):
        record = await records.find(request, KIND, last, field="after_id")
        after = Position(record.created_at, record.id)
    rows = await request.hub.records.list(request.workspace, KIND, after=after, limit=limit + 1)
    following = None
    if len(rows) > limit:
        last_one = rows[limit - 1]
        following = await paging.encode_page(request, KIND, last_one.created_at, last_one.id)
    return _page(rows[:limit], following)


async def _some(request: RestRequest, names: Any) -> list[Record]:
    found = []
    for name in names:
        try:
            found.append(await records.find(request, KIND, name))
        except NotFound:
            continue
    return found


async def _scoped(request: RestRequest, scope: str, limit: int) -> FilePage:
    """The files of a session: those that are mounted into it, then those that it made.

    A place in this list is that of a mount or an output, which stays when its file is another.
    """
    try:
        session = await request.session(scope)
    except NotFound:
        return _page([], None)
    mounted = (each for each in session.resources if each["type"] == "file")
    names = {Position(0, ids.parse(each["id"]) or ""): each["file_id"] for each in mounted}
    for each in await request.hub.outputs.for_session(session):
        names[Position(each.created_at, each.id)] = ids.format_id("file", each.body["file"])
    of = f"scope:{session.id}"
    ordered = sorted(names)
    params = request.params
    before = params.text("before_id")
    if before:
        ordered = ordered[: bisect_left(ordered, _place(names, before, "before_id"))][::-1]
    elif token := params.text("page"):
        ordered = ordered[
            bisect_right(ordered, Position(*await paging.decode_page(request, token, of))) :
        ]
    elif last := params.text("after_id"):
        ordered = ordered[bisect_right(ordered, _place(names, last, "after_id")) :]
    found: dict[Position, Record] = {}
    for place in ordered:  # on while some are deleted: no page but the last may be empty
        if len(found) > limit:
            break
        for record in await _some(request, [names[place]]):
            found[place] = record
    rows, more = list(found.values())[:limit], len(found) > limit
    if before:
        return msgspec.structs.replace(_page(rows[::-1], None), has_more=more)
    following = await paging.encode_page(request, of, *list(found)[limit - 1]) if more else None
    return _page(rows, following)


def _place(names: dict[Position, str], given: str, field: str) -> Position:
    for place, name in names.items():
        if name == given:
            return place
    raise NotFound(f"{field}: file {given} not found")


async def _before(request: RestRequest, name: str, limit: int) -> FilePage:
    """The page that ends just before a file, which newer clients have no way to ask for."""
    await records.find(request, KIND, name, field="before_id")
    kept: list[Record] = []
    async for record in request.hub.records.all(request.workspace, KIND):
        if format_record_id(record) == name:
            break
        kept.append(record)
    shown = _page(kept[-limit:], None)
    return msgspec.structs.replace(shown, has_more=len(kept) > limit)


def _page(rows: Any, following: str | None) -> FilePage:
    shown = [show(row) for row in rows]
    return FilePage(
        data=shown,
        next_page=following,
        has_more=following is not None,
        first_id=shown[0].id if shown else None,
        last_id=shown[-1].id if shown else None,
    )


async def retrieve(request: RestRequest) -> File:
    return show(await _find(request))


async def content(request: RestRequest) -> Response:
    record = await _find(request)
    if _expired(record):
        if "gone" not in record.body and not request.hub.store.read_only:
            await request.hub.files.delete_content(record)
        raise NotFound(f"file {request.path_params['file_id']} has expired")
    name = quote(record.body["filename"].encode("utf-8", "replace"))
    headers = {
        "content-length": str(record.body["size"]),
        # A browser must not run an uploaded file as a page.
        "content-disposition": f"attachment; filename*=UTF-8''{name}",
        "x-content-type-options": "nosniff",
    }
    kind = record.body["mime_type"]
    return StreamingResponse(request.hub.files.read(record), headers=headers, media_type=kind)


async def delete(request: RestRequest) -> FileDeleted:
    record = await _find(request)
    await request.hub.files.delete(record)
    return FileDeleted(id=format_record_id(record))


def _expired(record: Record) -> bool:
    at = record.body.get("expires_at")
    return at is not None and at <= clock.now()


async def _find(request: RestRequest) -> Record:
    return await records.find(request, KIND, request.path_params["file_id"])
