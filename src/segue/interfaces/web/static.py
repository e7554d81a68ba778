"""Serve the pages' scripts, styles and icon."""

from __future__ import annotations

import gzip
from functools import lru_cache

from starlette.responses import RedirectResponse, Response

from segue.model.errors import NotFound

from . import templates
from .request import WebRequest

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}


async def file(request: WebRequest) -> Response:
    """GET /static/{version}/{name}: the content never changes under one version."""
    path = templates.static_files().get(request.path_params["name"])
    if path is None or path.suffix not in MEDIA_TYPES:
        raise NotFound("There is no such file.")
    is_current = request.path_params["version"] == templates.static_version()
    caching = "public, max-age=31536000, immutable" if is_current else "no-cache"
    headers = {"cache-control": caching, "vary": "accept-encoding"}
    content = path.read_bytes()
    # Pages are not compressed: the size of a compressed page could reveal its CSRF token.
    if path.suffix != ".woff2" and "gzip" in request.http.headers.get("accept-encoding", ""):
        content = _compressed(content)
        headers["content-encoding"] = "gzip"
    return Response(content, media_type=MEDIA_TYPES[path.suffix], headers=headers)


@lru_cache(maxsize=64)
def _compressed(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


async def icon(request: WebRequest) -> Response:
    """GET /favicon.ico"""
    return RedirectResponse(f"/static/{templates.static_version()}/icon.svg")
