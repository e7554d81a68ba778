"""A session as a file: Markdown and HTML to read, JSONL to keep."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from segue.interfaces.web.request import WebRequest
from segue.model.errors import NotFound
from segue.render import documents


async def export(request: WebRequest) -> Response:
    session = await request.session()
    format = request.path_params["format"]
    pieces: AsyncIterator[str | bytes]
    if format == "jsonl":
        pieces, kind = (
            request.hub.exchange.export(request.principal, session.id),
            "application/jsonl",
        )
    elif format == "md":
        pieces = documents.markdown(request.hub.history, request.principal, session)
        kind = "text/markdown; charset=utf-8"
    elif format == "html":
        pieces = documents.html(request.hub.history, request.principal, session)
        kind = "text/html; charset=utf-8"
    else:
        raise NotFound(f"sessions are exported as md, html or jsonl, not {format}")
    name = re.sub(r"[^A-Za-z0-9]+", "-", session.title or "").strip("-")[:60] or session.id
    headers = {"content-disposition": f'attachment; filename="{name}.{format}"'}
    return StreamingResponse(pieces, media_type=kind, headers=headers)
