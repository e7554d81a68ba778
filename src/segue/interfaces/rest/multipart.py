"""Forms: what comes as multipart/form-data."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from python_multipart.exceptions import MultipartParseError
from starlette.datastructures import FormData
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.types import Message

from segue.http.errors import TooLarge
from segue.model.errors import InvalidInput

_AROUND = 64 * 1024  # what a form has around its files


@asynccontextmanager
async def read_form(request: Request, most: int, *, files: int = 1) -> AsyncIterator[FormData]:
    """The form in a request, of `most` bytes in so many files; a long one waits on disk."""
    size = 0

    async def receive() -> Message:
        nonlocal size
        message = await request.receive()
        size += len(message.get("body", b""))
        if size > most + _AROUND * files:
            raise TooLarge(f"the files in the form may have {most} bytes")
        return message

    try:
        form = await Request(request.scope, receive).form(max_files=files, max_fields=8)
    except (MultiPartException, MultipartParseError, ValueError) as error:
        raise InvalidInput(f"the form cannot be read: {error}") from None
    try:
        yield form
    finally:
        await form.close()
