"""Sign in with a login link or an API key, and sign out."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from segue.interfaces.web.auth import authenticate, cookie_name, set_cookie
from segue.interfaces.web.request import WebRequest
from segue.model.errors import Unauthorized


async def login(request: WebRequest) -> Response:
    """GET /login: sign in with a login link's token, or show the form for an API key."""
    link_token = request.param("token")
    next_url = _local_url(request.param("next"))
    # A link preview sends HEAD; it must not use up the link.
    if not link_token or request.http.method == "HEAD":
        return request.render_page("login.html", message="", next=next_url)
    response = RedirectResponse(next_url, 303)
    try:
        token = await request.hub.logins.use_link(link_token)
    except Unauthorized:
        # The browser may have used this link before: it works once.
        if await _is_signed_in(request):
            return response
        raise
    return set_cookie(request.http, response, token)


async def _is_signed_in(request: WebRequest) -> bool:
    try:
        await authenticate(request.hub, request.http)
    except Unauthorized:
        return False
    return True


async def sign_in(request: WebRequest) -> Response:
    """POST /login: sign in with an API key."""
    form = await request.form()
    next_url = _local_url(form.get("next", ""))
    try:
        token = await request.hub.logins.sign_in(form.get("key", "").strip())
    except Unauthorized:
        message = (
            "This key is not valid. It may be mistyped, expired or revoked; check it and try again."
        )
        return request.render_page("login.html", 401, message=message, next=next_url)
    return set_cookie(request.http, RedirectResponse(next_url, 303), token)


async def sign_out(request: WebRequest) -> Response:
    """POST /logout"""
    await request.hub.logins.sign_out(request.token)
    response = request.redirect("/login")
    response.delete_cookie(cookie_name(request.http), path="/")
    return response


def _local_url(url: str) -> str:
    """Return the URL if it is a path of this site other than the login page, else "/"."""
    is_local = url.startswith("/") and not url.startswith(("//", "/\\", "/login"))
    return url if is_local and url.isprintable() and "\\" not in url else "/"
