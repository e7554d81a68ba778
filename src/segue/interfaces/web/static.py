"""The page's own files: scripts, styles, the icon."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from segue.model.errors import NotFound

from . import templates
from .request import WebRequest

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


async def file(request: WebRequest) -> Response:
    """A file that never changes under its address, which has its version in it."""
    path = templates.static().get(request.path_params["name"])
    if path is None or path.suffix not in TYPES:
        raise NotFound("There is no such file.")
    current = request.path_params["version"] == templates.version()
    kept = "public, max-age=31536000, immutable" if current else "no-cache"
    headers = {"cache-control": kept}
    return Response(path.read_bytes(), media_type=TYPES[path.suffix], headers=headers)


async def icon(request: WebRequest) -> Response:
    return RedirectResponse(f"/static/{templates.version()}/icon.svg")
