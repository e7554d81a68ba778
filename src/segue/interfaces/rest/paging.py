"""Page tokens of lists other than the session list: `page_` and a signed cursor."""

from __future__ import annotations

from segue.model.cursor import ListPosition
from segue.model.errors import InvalidCursor

from .request import RestRequest

PREFIX = "page_"


async def encode_page(
    request: RestRequest, list_name: str, number: int, text: str = "", *, descending: bool = False
) -> str:
    """Return a token for the position (number, text) in a list."""
    position = ListPosition(of=list_name, descending=descending, number=number, text=text)
    return PREFIX + await request.hub.sessions.encode_cursor(request.principal, position)


async def decode_page(
    request: RestRequest, token: str, list_name: str, *, descending: bool = False
) -> tuple[int, str]:
    """Return the position in a token.

    Raises InvalidCursor if the token was not made for this list, order and workspace.
    """
    position = await request.hub.sessions.decode_cursor(request.principal, strip_prefix(token))
    if position.of != list_name:
        raise InvalidCursor("invalid page cursor")
    if position.descending != descending:
        raise InvalidCursor("page token order does not match request")
    return position.number, position.text


def strip_prefix(token: str) -> str:
    """Return a page token without its prefix. Raises InvalidCursor if it has none."""
    if not token.startswith(PREFIX):
        raise InvalidCursor("invalid page cursor")
    return token.removeprefix(PREFIX)
