"""The page's own files: scripts, styles, the icon."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from ...model.errors import NotFound
from . import templates
from .call import Call

TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


async def file(call: Call) -> Response:
    """A file that never changes under its address, which has its version in it."""
    path = templates.STATIC / call.path["name"]
    kind = TYPES.get(path.suffix[1:])
    # One segment of an address cannot leave the directory, but it may name nothing.
    if kind is None or not path.is_file():
        raise NotFound("There is no such file.")
    current = call.path["version"] == templates.version()
    kept = "public, max-age=31536000, immutable" if current else "no-cache"
    return Response(path.read_bytes(), media_type=kind, headers={"cache-control": kept})


async def icon(call: Call) -> Response:
    return RedirectResponse(f"/static/{templates.version()}/icon.svg")
