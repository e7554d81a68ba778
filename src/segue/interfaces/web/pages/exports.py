"""A session as a file: Markdown and HTML to read, JSONL to keep."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from segue.interfaces.web.request import Call
from segue.model.errors import NotFound
from segue.render import documents


async def export(call: Call) -> Response:
    session = await call.session()
    format = call.path["format"]
    pieces: AsyncIterator[str | bytes]
    if format == "jsonl":
        pieces, kind = call.hub.export(call.principal, session.id), "application/jsonl"
    elif format == "md":
        pieces = documents.markdown(call.hub, call.principal, session)
        kind = "text/markdown; charset=utf-8"
    elif format == "html":
        pieces = documents.html(call.hub, call.principal, session)
        kind = "text/html; charset=utf-8"
    else:
        raise NotFound(f"sessions are exported as md, html or jsonl, not {format}")
    name = re.sub(r"[^A-Za-z0-9]+", "-", session.title or "").strip("-")[:60] or session.id
    headers = {"content-disposition": f'attachment; filename="{name}.{format}"'}
    return StreamingResponse(pieces, media_type=kind, headers=headers)
