"""Serve the pages' scripts, styles and icon."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from segue.model.errors import NotFound

from . import templates
from .request import WebRequest

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}


async def file(request: WebRequest) -> Response:
    """GET /static/{version}/{name}: the content never changes under one version."""
    path = templates.static_files().get(request.path_params["name"])
    if path is None or path.suffix not in MEDIA_TYPES:
        raise NotFound("There is no such file.")
    is_current = request.path_params["version"] == templates.static_version()
    caching = "public, max-age=31536000, immutable" if is_current else "no-cache"
    headers = {"cache-control": caching}
    return Response(path.read_bytes(), media_type=MEDIA_TYPES[path.suffix], headers=headers)


async def icon(request: WebRequest) -> Response:
    """GET /favicon.ico"""
    return RedirectResponse(f"/static/{templates.static_version()}/icon.svg")
