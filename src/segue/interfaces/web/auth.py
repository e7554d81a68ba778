"""Who may ask, and from where: names that are served, the browser's cookie, forged requests.

A page of another site must reach nothing here: not under a name of its own choosing (Host), not by
a form or script of its own (Origin, and a token that only our pages know). The cookie is out of
reach of scripts, and is named after the port: browsers share cookies between a host's ports.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from hashlib import sha256
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from segue.http.errors import Refused
from segue.hub import Hub
from segue.model.errors import Unauthorized
from segue.model.principal import Principal

LOOPBACK = ("localhost", "127.0.0.1", "::1")
STAY_SECONDS = 30 * 86_400

# No script but our files, nothing from elsewhere, no frame around us.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class WebAuth:
    """The checks that every request passes. `hosts` are names to serve beside the loopback's."""

    def __init__(self, hub: Hub, hosts: Iterable[str]) -> None:
        self._hub = hub
        self._hosts = frozenset(name.lower() for name in (*LOOPBACK, *hosts))

    def check_origin(self, request: Request) -> None:
        """Refuse names that are not ours, and changes that another site's page asks for."""
        name = host(f"//{request.headers.get('host', '')}")
        if name not in self._hosts:
            raise Refused(f"host {name!r} is not served here; see segue serve --allow-host")
        origin = request.headers.get("origin")
        if origin is not None and host(origin) not in self._hosts:
            raise Refused(f"origin {origin!r} is not served here")
        site = request.headers.get("sec-fetch-site", "same-origin")
        if request.method == "POST" and site not in ("same-origin", "none"):
            raise Refused("this change was asked for by a page of another site")

    async def authenticate(self, request: Request) -> tuple[Principal, str]:
        """Who is asking, and the secret of their browser."""
        token = request.cookies.get(cookie_name(request))
        if token is None:
            raise Unauthorized("You are not signed in.")
        return await self._hub.visits.who(token), token


def csrf(token: str) -> str:
    """What our own pages send along with a change: known to whoever can read them alone."""
    return sha256(b"csrf\0" + token.encode()).hexdigest()[:32]


def check_csrf(token: str, given: str) -> None:
    if not hmac.compare_digest(csrf(token).encode(), given.encode()):
        raise Refused("this page is from before you signed in; reload it and try again")


def cookie_name(request: Request) -> str:
    return f"segue-{_port(request.headers.get('host', '')) or request.url.scheme}"


def set_cookie(request: Request, response: Response, token: str) -> Response:
    response.set_cookie(
        cookie_name(request),
        token,
        max_age=STAY_SECONDS,
        path="/",
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )
    return response


def _port(host: str) -> int | None:
    try:
        return urlsplit(f"//{host}").port
    except ValueError:
        return None


def host(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""
