"""Health checks and metrics for supervisors and monitoring."""

from __future__ import annotations

import logging

from starlette.responses import PlainTextResponse, Response

from segue.http import metrics as exposition
from segue.interfaces.rest.context import RestContext
from segue.model.errors import StoreError
from segue.model.principal import LOCAL
from segue.model.query import Query

log = logging.getLogger("segue.rest")


async def healthz(context: RestContext) -> Response:
    return PlainTextResponse("ok\n")


async def readyz(context: RestContext) -> Response:
    """Answer 503 if the store cannot be read or written, or the server is shutting down."""
    if context.closing.is_set():
        return PlainTextResponse("shutting down\n", 503)
    try:
        await context.hub.sessions.list(LOCAL, Query(limit=1))
    except StoreError as error:
        log.warning("a test read failed: %s", error.message)
        return PlainTextResponse(f"{error.remote_message}\n", 503)
    problem = await context.write_probe.problem()
    if problem is not None:
        return PlainTextResponse(f"{problem}\n", 503)
    return PlainTextResponse("ready\n")


async def metrics(context: RestContext) -> Response:
    text = exposition.to_text(context.total_metrics())
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")
