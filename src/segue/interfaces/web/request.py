"""A browser's request as a handler sees it, and the declaration of a path."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from segue.http.body import MAX_BODY_BYTES, read_body
from segue.http.errors import BodyTooLarge
from segue.hub import Hub
from segue.hub.history.reader import HistoryReader
from segue.hub.history.redacted import NOTHING_HIDDEN, RedactedHistory, Redaction
from segue.model import clock, ids
from segue.model.errors import InvalidInput, NotFound
from segue.model.principal import LOCAL, Principal
from segue.model.session import Session
from segue.redact import redact_url

from . import templates
from .auth import csrf

DATABASE_VARIABLE = "$SEGUE_DATABASE_URL"
MAX_SHOWN_NAME = 100  # characters of the name of a field that no form has
CSRF_FIELD = "csrf"  # of every form
UTC_OFFSET_COOKIE = "segue-utc-offset"  # the browser's UTC offset in minutes, set by our script
MAX_UTC_OFFSET_MINUTES = 14 * 60
MAX_FORM_BYTES = 64 * 1024
MAX_PROMPT_FORM_BYTES = MAX_BODY_BYTES  # a prompt may contain pictures
MAX_FORM_FIELDS = 250  # the undo of a change of fifty sessions
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)  # fits into 64 bits, as every store requires
_MINUTES = re.compile(r"-?[0-9]{1,3}", re.ASCII)


def redact_database_url(url: str) -> str:
    """Return a database URL that is safe to show, or the variable that holds it."""
    return redact_url(url) or DATABASE_VARIABLE


def parse_number(text: str, error: str) -> int:
    """Return a natural number. Raises InvalidInput with the message `error` if it is not one."""
    if not _NUMBER.fullmatch(text):
        raise InvalidInput(error)
    return int(text)


Handler = Callable[["WebRequest"], Awaitable[Response]]


class Endpoint(NamedTuple):
    """One method on one path. `public` paths need no sign-in. `form` names the fields."""

    method: str
    path: str
    handler: Handler
    public: bool = False
    max_form_bytes: int = MAX_FORM_BYTES
    form: str = ""


class WebContext(NamedTuple):
    """What all requests of an application share.

    `closing` is set when event streams must end. Commands that a page shows name the data
    directory unless it is `default_data_dir`.
    """

    hub: Hub
    closing: asyncio.Event
    default_data_dir: Path | None = None


class WebRequest:
    """A request that has been checked. Requests for public paths have no principal."""

    def __init__(
        self,
        context: WebContext,
        http: Request,
        path_params: Mapping[str, str],
        principal: Principal | None = None,
        token: str = "",
        *,
        max_form_bytes: int = MAX_FORM_BYTES,
        redaction: Redaction = NOTHING_HIDDEN,
    ) -> None:
        self.context = context
        self.hub = context.hub
        self.redaction = redaction
        self.http = http
        self.path_params = path_params
        self.token = token
        self._max_form_bytes = max_form_bytes
        self._principal = principal
        self._form: dict[str, list[str]] | None = None

    @property
    def principal(self) -> Principal:
        assert self._principal is not None, "a public path has no principal"
        return self._principal

    @cached_property
    def history(self) -> HistoryReader | RedactedHistory:
        """Return the histories that pages show. Readers of a share link may see less of them."""
        history = self.hub.history
        return (
            history
            if self.redaction == NOTHING_HIDDEN
            else RedactedHistory(history, self.redaction)
        )

    @property
    def csrf(self) -> str:
        """Return the token that the page must send with changes; "" if not signed in."""
        return csrf(self.token) if self.token else ""

    @property
    def from_script(self) -> bool:
        """Return True if our script sent the request; it expects a fragment, not a page."""
        return self.http.headers.get("x-segue") is not None

    @cached_property
    def utc_offset(self) -> int:
        """Return the browser's UTC offset in microseconds, or 0 if it is not known."""
        text = self.http.cookies.get(UTC_OFFSET_COOKIE, "")
        minutes = int(text) if _MINUTES.fullmatch(text) else 0
        minutes = max(-MAX_UTC_OFFSET_MINUTES, min(MAX_UTC_OFFSET_MINUTES, minutes))
        return minutes * 60 * clock.SECOND

    def param(self, name: str, default: str = "") -> str:
        """Return a query parameter."""
        return self.http.query_params.get(name, default)

    def number_param(self, name: str) -> int | None:
        """Return a query parameter as a number, or None if it is missing."""
        text = self.param(name)
        if not text:
            return None
        return parse_number(text, f"{name} must be a number, not {text!r}")

    def path_number(self, name: str) -> int:
        """Return a number in the path. Raises NotFound if it is not a number."""
        if not _NUMBER.fullmatch(self.path_params[name]):
            raise NotFound("There is no such page.")
        return int(self.path_params[name])

    async def session(self) -> Session:
        """Return the session whose id is in the path. Raises NotFound if there is none."""
        return await self.session_named(self.path_params["id"])

    async def session_named(self, name: str) -> Session:
        """Return the session with an id. Raises NotFound if there is none."""
        if (session_id := ids.parse(name)) is not None:
            with suppress(NotFound):
                await self.hub.sync.ensure_current(self.principal, session_id)
                return await self.hub.sessions.get(self.principal, session_id)
        raise NotFound("Session not found. It may have been deleted.")

    async def form(self) -> dict[str, str]:
        """Return the form's fields; for repeated fields the last value."""
        return {name: values[-1] for name, values in (await self.fields()).items()}

    async def fields(self) -> dict[str, list[str]]:
        """Return the form's fields with all their values.

        Raises InvalidInput if the form is malformed or exceeds the path's limit.
        """
        if self._form is None:
            try:
                data = await read_body(self.http.stream(), self._max_form_bytes)
            except BodyTooLarge:
                raise InvalidInput(
                    f"the form exceeds {self._max_form_bytes} bytes; send less at a time"
                ) from None
            # Parsing a large form takes long; a thread keeps the event loop free.
            large = len(data) > MAX_FORM_BYTES
            self._form = await asyncio.to_thread(_parse_form, data) if large else _parse_form(data)
        return self._form

    async def check_fields(self, names: str) -> None:
        """Raise InvalidInput if the form has a field that is not one of `names`."""
        known = (*names.split(), CSRF_FIELD)
        for name in await self.fields():
            if name not in known:
                shown = name[:MAX_SHOWN_NAME]
                raise InvalidInput(f"unknown field {shown!r} in the form; use {', '.join(known)}")

    def command(self, *words: str) -> str:
        """Return a `segue` command line that works on this data and workspace.

        Only the local user sees where the data is on the server's disk.
        """
        import shlex

        options = []
        database = self._shown_database_url()
        if database:
            options += ["--database-url", database]
        if self.principal.local and self._has_other_data_dir:
            options += ["--data-dir", str(self.hub.data_dir)]
        if self.principal.workspace != LOCAL.workspace:
            options += ["--workspace", self.principal.workspace]
        verb, *arguments = words
        line = shlex.join(["segue", verb, *options, *arguments])
        return line.replace(shlex.quote(DATABASE_VARIABLE), f'"{DATABASE_VARIABLE}"')

    @property
    def command_hint(self) -> str:
        """Return what a person must add to a `command`, or ""."""
        database = self._shown_database_url()
        if database == DATABASE_VARIABLE:
            return "Set SEGUE_DATABASE_URL to the URL of the server's database."
        if database and database != self.hub.database_url:
            return "The database's password is left out: set PGPASSWORD or use ~/.pgpass."
        if not database and self._has_other_data_dir and not self.principal.local:
            return "Run it on the server, with SEGUE_DATA_DIR set to its data directory."
        return ""

    @property
    def _has_other_data_dir(self) -> bool:
        """Return True if the data is not in the directory that commands use by default."""
        return self.hub.data_dir != self.context.default_data_dir

    def _shown_database_url(self) -> str | None:
        """Return the database's URL without its password, for others than the local user a
        variable's name, or None if the store is a file."""
        if self.hub.database_url is None:
            return None
        return (
            redact_database_url(self.hub.database_url)
            if self.principal.local
            else DATABASE_VARIABLE
        )

    def render_page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a template as an HTML response."""
        values.setdefault("csrf", self.csrf)
        values.setdefault("principal", self._principal)
        return HTMLResponse(templates.render(template, **values), status)

    def redirect(self, path: str, event_id: str | None = None) -> Response:
        """Send the browser to another page.

        Our script receives the path in a header and goes there itself, and `event_id`, the id of
        the event that the request caused.
        """
        if self.from_script:
            headers = {"x-location": path} | ({"x-event": event_id} if event_id else {})
            return Response(status_code=204, headers=headers)
        return RedirectResponse(path, 303)


def _parse_form(data: bytes) -> dict[str, list[str]]:
    try:
        pairs = parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS)
    except ValueError:
        raise InvalidInput(
            f"the form is not valid: it must be UTF-8 with at most {MAX_FORM_FIELDS} fields"
        ) from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return fields
