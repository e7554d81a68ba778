"""Places in lists other than the sessions': `page_` and a cursor, good in the list it is of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segue.model.cursor import ListPosition
from segue.model.errors import InvalidCursor

if TYPE_CHECKING:
    from .request import RestRequest

PREFIX = "page_"


async def encode_page(
    request: RestRequest, of: str, number: int, text: str = "", *, descending: bool = False
) -> str:
    place = ListPosition(of=of, descending=descending, number=number, text=text)
    return PREFIX + await request.hub.mark(request.principal, place)


async def decode_page(
    request: RestRequest, token: str, of: str, *, descending: bool = False
) -> tuple[int, str]:
    """What `encode_page` was given for this list; InvalidCursor for anything else."""
    place = await request.hub.marked(request.principal, strip_prefix(token))
    if place.of != of:
        raise InvalidCursor("invalid page cursor")
    if place.descending != descending:
        raise InvalidCursor("page token order does not match request")
    return place.number, place.text


def strip_prefix(token: str) -> str:
    """A token without the prefix that all have."""
    if not token.startswith(PREFIX):
        raise InvalidCursor("invalid page cursor")
    return token.removeprefix(PREFIX)
