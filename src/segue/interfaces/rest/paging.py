"""Places in lists other than the sessions': `page_` and a cursor, good in the list it is of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segue.model.cursor import Place
from segue.model.errors import InvalidCursor

if TYPE_CHECKING:
    from .request import Call

PREFIX = "page_"


async def spell(
    call: Call, of: str, number: int, text: str = "", *, descending: bool = False
) -> str:
    place = Place(of=of, descending=descending, number=number, text=text)
    return PREFIX + await call.hub.mark(call.principal, place)


async def parse(call: Call, token: str, of: str, *, descending: bool = False) -> tuple[int, str]:
    """What `spell` was given for this list; InvalidCursor for anything else."""
    place = await call.hub.marked(call.principal, strip(token))
    if place.of != of:
        raise InvalidCursor("invalid page cursor")
    if place.descending != descending:
        raise InvalidCursor("page token order does not match request")
    return place.number, place.text


def strip(token: str) -> str:
    """A token without the prefix that all have."""
    if not token.startswith(PREFIX):
        raise InvalidCursor("invalid page cursor")
    return token.removeprefix(PREFIX)
