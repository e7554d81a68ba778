"""Read multipart/form-data requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from python_multipart.exceptions import MultipartParseError
from starlette.datastructures import FormData
from starlette.formparsers import MultiPartException
from starlette.requests import Request

from segue.http.body import limit_receive
from segue.http.errors import BodyTooLarge
from segue.model.errors import InvalidInput

MAX_FIELDS = 8
# The part headers and boundaries that a form has for each file.
OVERHEAD_BYTES_PER_FILE = 64 * 1024


@asynccontextmanager
async def read_form(
    request: Request, max_bytes: int, *, max_files: int = 1
) -> AsyncIterator[FormData]:
    """Yield the form in a request. Large files in it are temporary files until the block ends.

    Raises BodyTooLarge if the files have more than `max_bytes` together, InvalidInput if the form
    is malformed or has more than `max_files` files.
    """
    receive = limit_receive(request.receive, max_bytes + OVERHEAD_BYTES_PER_FILE * max_files)
    try:
        form = await Request(request.scope, receive).form(
            max_files=max_files, max_fields=MAX_FIELDS
        )
    except BodyTooLarge:
        raise BodyTooLarge(f"the files in the form exceed {max_bytes} bytes") from None
    except (MultiPartException, MultipartParseError, ValueError) as error:
        raise InvalidInput(f"the form is not valid multipart/form-data: {error}") from None
    try:
        yield form
    finally:
        await form.close()
