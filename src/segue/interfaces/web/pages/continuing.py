"""Show the command that continues a session in another tool, and what that tool cannot hold."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from segue.hub.sync.continuing import FATES
from segue.hub.tools import label
from segue.interfaces.web.request import WebRequest

from . import listing


async def page(request: WebRequest) -> Response:
    """GET /s/{id}/continue-in: the tools; with `tool`, the command and the report for it."""
    session = await request.session()
    continuing, tool = request.hub.continuing, request.param("tool")
    values: dict[str, Any] = {
        "session": session,
        "base": f"/s/{session.id}",
        "tools": [(name, label(name)) for name in continuing.targets()],
        "label": label(tool) if tool else "",
        "fates": FATES,
        "report": None,
    }
    if tool:
        values["report"] = await continuing.report(request.principal, session.id, tool)
        values["command"] = request.command("resume", session.id, "--in", tool)
        values["hint"] = request.command_hint
    template, values = await listing.with_sidebar(request, "continue_in.html", values)
    return request.render_page(template, **values)
