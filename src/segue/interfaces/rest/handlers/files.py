"""Files: upload, list, download and delete them. A session's mounted file is a copy."""

from __future__ import annotations

import mimetypes
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from starlette.datastructures import UploadFile
from starlette.responses import Response, StreamingResponse

from segue.hub.resources.files import KIND, PART_BYTES, FileBody
from segue.hub.resources.record_ids import format_record_id
from segue.hub.workdir.outputs import OutputBody
from segue.interfaces.rest import paging, records
from segue.interfaces.rest.events.blocks import UNTYPED
from segue.interfaces.rest.multipart import read_form
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas.requests import Deleted, Out
from segue.model import clock, ids
from segue.model.errors import InvalidInput, NotFound
from segue.model.query import Position
from segue.model.record import Record
from segue.model.session import Session

MAX_FILE_BYTES = 500 * 1024 * 1024
MAX_IDS = 100
_EXPIRY_SECONDS = (3600, 7_776_000)  # an hour to ninety days

# Newer clients page with `page`, older ones with `after_id` and `before_id`.
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
    """The file was deleted."""


class FilePage(Out, frozen=True):
    """A page of files, with the fields of both formats that clients know."""

    data: list[File]
    next_page: str | None
    has_more: bool
    first_id: str | None
    last_id: str | None


def show(record: Record) -> File:
    """Return a file as the API shows it."""
    body = FileBody.of(record)
    return File(
        id=format_record_id(record),
        filename=body.filename or "",
        mime_type=body.mime_type or UNTYPED,
        size_bytes=body.size,
        created_at=clock.to_rfc3339(record.created_at),
        downloadable=not _has_expired(body),
        expires_at=None if body.expires_at is None else clock.to_rfc3339(body.expires_at),
        scope=None if body.scope is None else Scope(id=ids.format_id("sesn", body.scope)),
    )


async def upload(request: RestRequest) -> File:
    async with read_form(request.http, MAX_FILE_BYTES) as form:
        upload = form.get("file")
        if not isinstance(upload, UploadFile):
            raise InvalidInput("file: field is required, as a file in multipart/form-data")
        if unknown := sorted(form.keys() - {"file", "expires_in_seconds"}):
            raise InvalidInput(f"{unknown[0]}: unknown field")
        about = _name_and_type(upload)
        if seconds := form.get("expires_in_seconds"):
            about["expires_at"] = clock.now() + _parse_seconds(seconds) * clock.SECOND
        return show(await request.hub.files.store(request.principal, _read_chunks(upload), about))


async def _read_chunks(upload: UploadFile) -> AsyncIterator[bytes]:
    while data := await upload.read(PART_BYTES):
        yield data


def _name_and_type(upload: UploadFile) -> dict[str, Any]:
    """Return the file name without directories, and the type, which is guessed if it is missing.

    Raises InvalidInput if one of them is too long or has control characters.
    """
    name = (upload.filename or "").replace("\\", "/").rsplit("/", 1)[-1]
    kind = upload.content_type or mimetypes.guess_type(name)[0] or UNTYPED
    if len(name) > 255 or any(ord(char) < 32 for char in name):
        raise InvalidInput(
            "file: its name must have at most 255 characters and no control characters"
        )
    if len(kind) > 255 or not kind.isprintable():
        raise InvalidInput(
            "file: its content type must be printable and have at most 255 characters"
        )
    if name in ("", ".", ".."):
        name = f"unnamed{mimetypes.guess_extension(kind) or ''}"
    return {"filename": name, "mime_type": kind}


def _parse_seconds(value: object) -> int:
    low, high = _EXPIRY_SECONDS
    text = str(value)
    if not text.isascii() or not text.isdigit() or not low <= int(text[:12]) <= high:
        raise InvalidInput(f"expires_in_seconds: must be a whole number from {low} to {high}")
    return int(text)


async def list_(request: RestRequest) -> FilePage:
    params = request.params
    if file_ids := params.values("ids"):
        if params.text("page") or params.text("limit"):
            raise InvalidInput("ids: cannot be combined with page or limit")
        if len(set(file_ids)) > MAX_IDS:
            raise InvalidInput(f"ids: at most {MAX_IDS}")
        return _page(await _find_existing(request, dict.fromkeys(file_ids)))
    limit = params.limit(20, 1000)
    if scope := params.id("scope_id"):
        return await _list_of_session(request, scope, limit)
    if before := params.text("before_id"):
        return await _list_before(request, before, limit)
    after: Position | None = None
    if token := params.text("page"):
        after = Position(*await paging.decode_page(request, token, KIND))
    elif last := params.text("after_id"):
        record = await records.find(request, KIND, last, field="after_id")
        after = Position(record.created_at, record.id)
    rows = await request.hub.records.list(request.workspace, KIND, after=after, limit=limit + 1)
    next_page = None
    if len(rows) > limit:
        last_row = rows[limit - 1]
        next_page = await paging.encode_page(request, KIND, last_row.created_at, last_row.id)
    return _page(rows[:limit], next_page)


async def _find_existing(request: RestRequest, file_ids: Iterable[str]) -> list[Record]:
    """Return the files of some ids, without those that do not exist."""
    files = []
    for file_id in file_ids:
        with suppress(NotFound):
            files.append(await records.find(request, KIND, file_id))
    return files


async def _list_of_session(request: RestRequest, session_name: str, limit: int) -> FilePage:
    """Return a page of a session's files: the mounted files, then its outputs.

    A position is that of the mount or output, which stays when its file is replaced.
    """
    try:
        session = await request.session(session_name)
    except NotFound:
        return _page([])
    file_ids = await _files_of_session(request, session)
    list_name = f"scope:{session.id}"
    params = request.params
    before = params.text("before_id")
    positions = sorted(file_ids)
    if before:
        end = bisect_left(positions, _position_of(file_ids, before, "before_id"))
        positions = positions[:end][::-1]
    elif token := params.text("page"):
        last = Position(*await paging.decode_page(request, token, list_name))
        positions = positions[bisect_right(positions, last) :]
    elif last_id := params.text("after_id"):
        last = _position_of(file_ids, last_id, "after_id")
        positions = positions[bisect_right(positions, last) :]
    files: dict[Position, Record] = {}
    for position in positions:  # deleted files are skipped, so that only the last page is short
        if len(files) > limit:
            break
        for file in await _find_existing(request, [file_ids[position]]):
            files[position] = file
    rows, has_more = list(files.values())[:limit], len(files) > limit
    if before:
        return _page(rows[::-1], has_more=has_more)
    next_page = None
    if has_more:
        next_page = await paging.encode_page(request, list_name, *list(files)[limit - 1])
    return _page(rows, next_page)


async def _files_of_session(request: RestRequest, session: Session) -> dict[Position, str]:
    """Return the ids of a session's files by the position of their first mount or their output."""
    first_mounts: dict[str, str] = {}
    for resource in session.resources:
        if resource["type"] == "file":
            first_mounts.setdefault(resource["file_id"], ids.parse(resource["id"]) or "")
    file_ids = {Position(0, mount): file_id for file_id, mount in first_mounts.items()}
    for output in await request.hub.outputs.for_session(session):
        file_id = ids.format_id("file", OutputBody.of(output).file)
        file_ids[Position(output.created_at, output.id)] = file_id
    return file_ids


def _position_of(file_ids: dict[Position, str], file_id: str, field: str) -> Position:
    for position, other_id in file_ids.items():
        if other_id == file_id:
            return position
    raise NotFound(f"{field}: file {file_id} not found")


async def _list_before(request: RestRequest, file_id: str, limit: int) -> FilePage:
    """Return the page that ends just before a file, which only older clients ask for."""
    await records.find(request, KIND, file_id, field="before_id")
    newer: list[Record] = []
    async for record in request.hub.records.all(request.workspace, KIND):
        if format_record_id(record) == file_id:
            break
        newer.append(record)
    return _page(newer[-limit:], has_more=len(newer) > limit)


def _page(
    rows: Sequence[Record], next_page: str | None = None, *, has_more: bool = False
) -> FilePage:
    files = [show(row) for row in rows]
    return FilePage(
        data=files,
        next_page=next_page,
        has_more=has_more or next_page is not None,
        first_id=files[0].id if files else None,
        last_id=files[-1].id if files else None,
    )


async def retrieve(request: RestRequest) -> File:
    return show(await _find(request))


async def content(request: RestRequest) -> Response:
    record = await _find(request)
    body = FileBody.of(record)
    if _has_expired(body):
        if not body.gone and not request.hub.store.read_only:
            await request.hub.files.delete_content(record)
        raise NotFound(f"file {request.path_params['file_id']} has expired")
    name = quote((body.filename or "").encode("utf-8", "replace"))
    headers = {
        "content-length": str(body.size),
        # A browser must not run an uploaded file as a page.
        "content-disposition": f"attachment; filename*=UTF-8''{name}",
        "x-content-type-options": "nosniff",
    }
    data = request.hub.files.read(record)
    return StreamingResponse(data, headers=headers, media_type=body.mime_type)


async def delete(request: RestRequest) -> FileDeleted:
    record = await _find(request)
    await request.hub.files.delete(record)
    return FileDeleted(id=format_record_id(record))


def _has_expired(body: FileBody) -> bool:
    return body.expires_at is not None and body.expires_at <= clock.now()


async def _find(request: RestRequest) -> Record:
    return await records.find(request, KIND, request.path_params["file_id"])
