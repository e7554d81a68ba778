"""Export a session as a file: Markdown and HTML for people, JSONL for programs."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from segue.hub.history.redacted import RedactedHistory, Redaction
from segue.interfaces.web.request import WebRequest
from segue.model.errors import NotFound
from segue.render import documents

MEDIA_TYPES = {
    "jsonl": "application/jsonl",
    "md": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
}
MAX_FILE_NAME_CHARACTERS = 60


async def export(request: WebRequest) -> Response:
    """GET /s/{id}/export.{format}

    With `tools=hidden`, a file for people has no tool output. Its secrets are masked, unless
    `secrets=shown`.
    """
    session = await request.session()
    hub, principal, format = request.hub, request.principal, request.path_params["format"]
    content: AsyncIterator[str | bytes]
    if format == "jsonl":
        content = hub.exchange.export(principal, session.id)
    elif format in ("md", "html"):
        render = documents.html if format == "html" else documents.markdown
        ended = await hub.history.as_ended(principal, session.id)
        redaction = Redaction(
            hide_tool_output=request.param("tools") == "hidden",
            mask_secrets=request.param("secrets") != "shown",
        )
        session = redaction.session(ended.session)
        content = render(RedactedHistory(ended, redaction), principal, session)
    else:
        raise NotFound(f"sessions are exported as md, html or jsonl, not {format}")
    title = re.sub(r"[^A-Za-z0-9]+", "-", session.title or "").strip("-")
    file_name = title[:MAX_FILE_NAME_CHARACTERS] or session.id
    headers = {"content-disposition": f'attachment; filename="{file_name}.{format}"'}
    return StreamingResponse(content, media_type=MEDIA_TYPES[format], headers=headers)
