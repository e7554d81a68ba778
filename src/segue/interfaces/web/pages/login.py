"""Coming and going: the login link, a key instead of one, signing out."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from segue.interfaces.web.auth import cookie_name, set_cookie
from segue.interfaces.web.request import WebRequest
from segue.model.errors import Unauthorized


async def login(request: WebRequest) -> Response:
    """A login link, or the page that asks for a key."""
    token = request.param("token")
    if not token or request.http.method == "HEAD":  # who only looks at a link does not use it up
        return request.render_page("login.html", words="", next=_inside(request.param("next")))
    answer = RedirectResponse(_inside(request.param("next")), 303)
    try:
        secret = await request.hub.logins.use_link(token)
    except Unauthorized:
        if await _is_in(request):  # by this very link, perhaps, opened a second time
            return answer
        raise
    return set_cookie(request.http, answer, secret)


async def _is_in(request: WebRequest) -> bool:
    try:
        await request.app.auth.authenticate(request.http)
    except Unauthorized:
        return False
    return True


async def sign_in(request: WebRequest) -> Response:
    form = await request.form()
    going = _inside(form.get("next", ""))
    try:
        secret = await request.hub.logins.sign_in(form.get("key", "").strip())
    except Unauthorized:
        words = (
            "That key is not valid here. It may have expired, have been revoked, or be mistyped."
        )
        return request.render_page("login.html", 401, words=words, next=going)
    return set_cookie(request.http, RedirectResponse(going, 303), secret)


async def sign_out(request: WebRequest) -> Response:
    await request.hub.logins.sign_out(request.token)
    answer = request.redirect("/login")
    answer.delete_cookie(cookie_name(request.http), path="/")
    return answer


def _inside(address: str) -> str:
    """An address of ours to go on to; never one of another site."""
    inside = address.startswith("/") and not address.startswith(("//", "/\\", "/login"))
    return address if inside and address.isprintable() and "\\" not in address else "/"
