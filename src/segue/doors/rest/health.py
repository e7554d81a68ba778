"""What a supervisor asks: is the process alive, and can it serve?"""

from __future__ import annotations

from starlette.responses import PlainTextResponse, Response

from ...hub import Hub
from ...model.errors import StoreError
from ...model.principal import LOCAL
from ...model.query import Query


async def healthz(hub: Hub) -> Response:
    return PlainTextResponse("ok\n")


async def readyz(hub: Hub) -> Response:
    try:
        await hub.list(LOCAL, Query(limit=1))
    except StoreError as error:
        return PlainTextResponse(f"{error.message}\n", 503)
    return PlainTextResponse("ready\n")
