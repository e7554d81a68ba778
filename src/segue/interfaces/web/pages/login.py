"""Coming and going: the login link, a key instead of one, signing out."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from segue.interfaces.web.auth import cookie_name, set_cookie
from segue.interfaces.web.request import Call
from segue.model.errors import Unauthorized


async def login(call: Call) -> Response:
    """A login link, or the page that asks for a key."""
    token = call.param("token")
    if not token or call.request.method == "HEAD":  # who only looks at a link does not use it up
        return call.page("login.html", words="", next=_inside(call.param("next")))
    answer = RedirectResponse(_inside(call.param("next")), 303)
    try:
        secret = await call.hub.visits.enter(token)
    except Unauthorized:
        if await _is_in(call):  # by this very link, perhaps, opened a second time
            return answer
        raise
    return set_cookie(call.request, answer, secret)


async def _is_in(call: Call) -> bool:
    try:
        await call.door.gate.visitor(call.request)
    except Unauthorized:
        return False
    return True


async def sign_in(call: Call) -> Response:
    form = await call.form()
    going = _inside(form.get("next", ""))
    try:
        secret = await call.hub.visits.sign_in(form.get("key", "").strip())
    except Unauthorized:
        words = (
            "That key is not valid here. It may have expired, have been revoked, or be mistyped."
        )
        return call.page("login.html", 401, words=words, next=going)
    return set_cookie(call.request, RedirectResponse(going, 303), secret)


async def sign_out(call: Call) -> Response:
    await call.hub.visits.leave(call.token)
    answer = call.went("/login")
    answer.delete_cookie(cookie_name(call.request), path="/")
    return answer


def _inside(address: str) -> str:
    """An address of ours to go on to; never one of another site."""
    inside = address.startswith("/") and not address.startswith(("//", "/\\", "/login"))
    return address if inside and address.isprintable() and "\\" not in address else "/"
