"""The door as an ASGI application: the gates, then a handler, and every error as a page."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from segue.hub import Hub
from segue.model.errors import NotFound, SegueError, Unauthorized

from . import templates
from .auth import HEADERS, WebAuth, check_csrf
from .request import Endpoint, WebRequest
from .routes import ROUTES

log = logging.getLogger("segue.web")


class WebApp:
    """Answers a browser's requests on a hub.

    `hosts` are the names that requests may be addressed to; `closing` ends the streams.
    """

    def __init__(
        self, hub: Hub, hosts: Iterable[str] = (), closing: asyncio.Event | None = None
    ) -> None:
        self.hub = hub
        self.closing = closing or asyncio.Event()
        self.auth = WebAuth(hub, hosts)
        self._routes = [
            (Route(each.path, _nothing, methods=[each.method]), each) for each in ROUTES
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"this application speaks HTTP, not {scope['type']}")
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return
        except SegueError as error:
            if error.http_status >= 500:
                log.warning("%s %s: %s", request.method, request.url.path, error.message)
            response = _failure(request, error)
        except Exception:
            log.exception("%s %s failed", request.method, request.url.path)
            ours = SegueError("Something went wrong on our side; the server's log has the details.")
            response = _failure(request, ours)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        self.auth.check_origin(request)
        endpoint, path = self._find(request.scope)
        if endpoint.public:
            return await endpoint.handle(WebRequest(self, request, path))
        principal, token = await self.auth.authenticate(request)
        web_request = WebRequest(self, request, path, principal, token, endpoint.max_form_bytes)
        if request.method == "POST":
            given = request.headers.get("x-csrf") or (await web_request.form()).get("csrf", "")
            check_csrf(token, given)
        return await endpoint.handle(web_request)

    def _find(self, scope: Scope) -> tuple[Endpoint, dict[str, str]]:
        for route, endpoint in self._routes:
            match, found = route.matches(scope)
            if match is Match.FULL:
                return endpoint, found["path_params"]
        raise NotFound("There is no such page.")


async def _nothing(request: Request) -> Response:
    raise AssertionError("routes are only matched; the door calls the handlers")


def _failure(request: Request, error: SegueError) -> Response:
    """An error as a page, or as a sentence for our script."""
    words = error.message[:1].upper() + error.message[1:]
    if request.headers.get("x-segue") is not None:
        return Response(words, error.http_status, media_type="text/plain")
    if isinstance(error, Unauthorized):
        came_for = request.url.path if request.method == "GET" else "/"
        if request.url.query and request.method == "GET" and came_for != "/login":
            came_for += f"?{request.url.query}"
        page = templates.render("login.html", words=words, next=came_for)
    else:
        page = templates.render("error.html", words=words, status=error.http_status)
    return HTMLResponse(page, error.http_status)
