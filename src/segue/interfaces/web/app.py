"""The session browser as an ASGI application. Errors are pages, or plain text for our script."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Receive, Scope, Send

from segue.http.hosts import HostCheck
from segue.http.limits import RateLimiter, caller_of
from segue.http.routing import RouteTree, path_names
from segue.hub import Hub
from segue.model import ids
from segue.model.errors import NotFound, SegueError, Unauthorized

from . import templates
from .auth import SECURITY_HEADERS, authenticate, check_csrf, check_same_site
from .request import CSRF_FIELD, Endpoint, WebContext, WebRequest
from .routes import ROUTES

log = logging.getLogger("segue.web")


class WebApp:
    """Answer a browser's requests on a hub. Setting `closing` ends the event streams.

    `default_data_dir` is the data directory that commands use unless they name another.
    """

    def __init__(
        self,
        hub: Hub,
        hosts: HostCheck | None = None,
        closing: asyncio.Event | None = None,
        default_data_dir: Path | None = None,
        *,
        rate_limiter: RateLimiter | None = None,
    ) -> None:
        self.closing = closing or asyncio.Event()
        self._context = WebContext(hub, self.closing, default_data_dir)
        self._hosts = hosts or HostCheck()
        self._rate_limiter = rate_limiter or RateLimiter(0)
        self._routes = RouteTree(ROUTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"the session browser answers HTTP requests, not {scope['type']}")
        http = Request(scope, receive)
        try:
            response = await self._dispatch(http)
        except ClientDisconnect:
            return
        except SegueError as error:
            if error.http_status >= 500 or error.remote_message != error.message:
                log.warning("%s %s: %s", http.method, http.url.path, error.message)
            response = _error_response(http, error)
        except Exception:
            log.exception("%s %s failed", http.method, http.url.path)
            failure = SegueError("The server failed; its log has the details.")
            response = _error_response(http, failure)
        for name, value in SECURITY_HEADERS.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    async def _dispatch(self, http: Request) -> Response:
        """Check a request and return the response of its handler."""
        self._hosts.check(dict(http.scope["headers"]))
        check_same_site(http)
        endpoint, path_params = self._find(http.scope)
        if endpoint.public:
            if caller := _public_caller(http, path_params):
                self._rate_limiter.count_request(caller)
            request = WebRequest(self._context, http, path_params)
            if http.method == "POST":
                await request.check_fields(endpoint.form)
            return await endpoint.handler(request)
        principal, token = await authenticate(self._context.hub, http)
        http.state.local = principal.local
        self._rate_limiter.count_request(caller_of(principal))
        request = WebRequest(
            self._context,
            http,
            path_params,
            principal,
            token,
            max_form_bytes=endpoint.max_form_bytes,
        )
        if http.method == "POST":
            csrf = http.headers.get("x-csrf") or (await request.form()).get(CSRF_FIELD, "")
            check_csrf(token, csrf)
            await request.check_fields(endpoint.form)
        return await endpoint.handler(request)

    def _find(self, scope: Scope) -> tuple[Endpoint, dict[str, str]]:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        match = self._routes.match(scope["path"])
        if match is None or method not in match.methods:
            raise NotFound("There is no such page.")
        endpoint = match.methods[method]
        return endpoint, dict(zip(path_names(endpoint.path), match.values, strict=True))


def _public_caller(http: Request, path_params: dict[str, str]) -> str | None:
    """Return the caller of a request without a sign-in, or None for files, which are not counted.

    All readers of a share link are one caller, because a proxy may hide their addresses.
    So are the readers of all links to no session: their ids may have any length.
    """
    if "secret" in path_params:
        return f"share {ids.parse(path_params['id'])}"
    if http.url.path == "/login":
        return f"address {http.client.host if http.client else ''}"
    return None


def _error_response(http: Request, error: SegueError) -> Response:
    """Return an error as a page, or as a sentence for our script."""
    message = error.message_for(local=getattr(http.state, "local", False))
    message = message[:1].upper() + message[1:]
    headers = {name.decode(): value.decode() for name, value in error.data.get("headers", ())}
    if http.headers.get("x-segue") is not None:
        return Response(message, error.http_status, headers, media_type="text/plain")
    if isinstance(error, Unauthorized):
        page = templates.render("login.html", message=message, next=_page_after_login(http))
    else:
        page = templates.render("error.html", message=message, status=error.http_status)
    return HTMLResponse(page, error.http_status, headers)


def _page_after_login(http: Request) -> str:
    """Return the page that a browser asked for before it had to sign in."""
    if http.method != "GET":
        return "/"
    path = http.url.path
    return f"{path}?{http.url.query}" if http.url.query and path != "/login" else path
