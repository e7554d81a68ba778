"""Sign-in cookies, and protection against requests that other sites' pages send.

Scripts cannot read the cookie. Its name contains the port, because browsers share cookies between
the ports of a host. Changes need a token that only our own pages contain.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response

from segue.http.errors import Forbidden
from segue.http.hosts import port_of
from segue.hub import Hub
from segue.model.errors import Unauthorized
from segue.model.principal import Principal

COOKIE_SECONDS = 30 * 86_400

# Scripts and styles from our own files only, nothing from other sites, and no frames around us.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; manifest-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
    "x-robots-tag": "noindex, nofollow",
}


async def authenticate(hub: Hub, request: Request) -> tuple[Principal, str]:
    """Return the principal of a browser, and the sign-in token in its cookie.

    Raises Unauthorized if the browser is not signed in.
    """
    token = request.cookies.get(cookie_name(request))
    if token is None:
        raise Unauthorized("You are not signed in.")
    return await hub.logins.authenticate(token), token


def check_same_site(request: Request) -> None:
    """Raise Forbidden for a change that another site's page sends."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    if request.method == "POST" and site not in ("same-origin", "none"):
        raise Forbidden("A page of another site sent this change; make it on a segue page.")


def csrf(token: str) -> str:
    """Return the token that our pages send with each change; other sites cannot compute it."""
    return sha256(b"csrf\0" + token.encode()).hexdigest()[:32]


def check_csrf(token: str, received: str) -> None:
    """Raise Forbidden unless a change comes from a page of the same sign-in."""
    if not hmac.compare_digest(csrf(token).encode(), received.encode()):
        raise Forbidden("this page is from before you signed in; reload it and try again")


def cookie_name(request: Request) -> str:
    """Return the name of the sign-in cookie for the request's port."""
    return f"segue-{port_of(request.headers.get('host', '')) or request.url.scheme}"


def set_cookie(request: Request, response: Response, token: str) -> Response:
    """Sign the browser in with a token, and return the response."""
    response.set_cookie(
        cookie_name(request),
        token,
        max_age=COOKIE_SECONDS,
        path="/",
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )
    return response
