"""One request, as a handler sees it; and an address, as the door knows it."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from segue.factory import data_dir
from segue.http.redact import redact_url
from segue.hub import Hub
from segue.model import clock, ids
from segue.model.errors import InvalidInput, NotFound
from segue.model.principal import LOCAL, Principal
from segue.model.session import Session

from . import templates
from .auth import csrf

if TYPE_CHECKING:
    from .app import WebApp

VARIABLE = "$SEGUE_DATABASE_URL"
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)  # as long as every store takes them
_MINUTES = re.compile(r"-?[0-9]{1,3}", re.ASCII)
_MOST_AHEAD = 14 * 60
AHEAD = "segue-ahead"  # the cookie with the minutes by which a reader is ahead of UTC
MAX_FORM_BYTES = 64 * 1024
MAX_PROMPT_FORM_BYTES = 32 * 1024 * 1024  # it may have pictures


def without_password(address: str) -> str:
    """Return a database URL that is safe to show, or the variable that holds it."""
    return redact_url(address) or VARIABLE


def parse_number(given: str, otherwise: str) -> int:
    """A number that somebody wrote; InvalidInput, with these words, if it is none."""
    if not _NUMBER.fullmatch(given):
        raise InvalidInput(otherwise)
    return int(given)


class Endpoint(NamedTuple):
    """A method on an address; `public` ones need no login. A form may have `most` bytes."""

    method: str
    path: str
    handle: Callable[[WebRequest], Awaitable[Response]]
    public: bool = False
    max_form_bytes: int = MAX_FORM_BYTES


class WebRequest:
    """A request that has passed the gates."""

    def __init__(
        self,
        app: WebApp,
        http: Request,
        path_params: Mapping[str, str],
        principal: Principal | None = None,
        token: str = "",
        most: int = MAX_FORM_BYTES,
    ) -> None:
        self.app = app
        self.http = http
        self.path_params = path_params
        self.token = token
        self._most = most
        self._principal = principal
        self._form: dict[str, list[str]] | None = None

    @property
    def hub(self) -> Hub:
        return self.app.hub

    @property
    def principal(self) -> Principal:
        assert self._principal is not None, "an open address has no principal"
        return self._principal

    @property
    def csrf(self) -> str:
        return csrf(self.token) if self.token else ""

    @property
    def from_script(self) -> bool:
        """Whether our own script asks, which wants a piece and not a page."""
        return self.http.headers.get("x-segue") is not None

    @cached_property
    def utc_offset(self) -> int:
        """How far the reader's clock is ahead of UTC, as our script noted it: microseconds."""
        given = self.http.cookies.get(AHEAD, "")
        minutes = int(given) if _MINUTES.fullmatch(given) else 0
        return max(-_MOST_AHEAD, min(_MOST_AHEAD, minutes)) * 60 * clock.SECOND

    def param(self, name: str, default: str = "") -> str:
        return self.http.query_params.get(name, default)

    def number_param(self, name: str) -> int | None:
        """A parameter that is a parse_number number."""
        given = self.param(name)
        if not given:
            return None
        return parse_number(given, f"{name} must be a number, not {given!r}")

    def path_number(self, name: str) -> int:
        """A number in the address itself."""
        if not _NUMBER.fullmatch(self.path_params[name]):
            raise NotFound("There is no such page.")
        return int(self.path_params[name])

    async def session(self) -> Session:
        """The session that the address names."""
        given = self.path_params["id"]
        id = ids.parse(given)
        if id is None:
            raise NotFound(f"{given!r} is no session")
        return await self.hub.get(self.principal, id)

    async def form(self) -> dict[str, str]:
        """The fields that were sent; of several that are named alike, the last."""
        return {name: values[-1] for name, values in (await self.fields()).items()}

    async def fields(self) -> dict[str, list[str]]:
        """The fields that were sent, with all their values."""
        if self._form is None:
            data = bytearray()
            async for part in self.http.stream():
                data += part
                if len(data) > self._most:
                    raise InvalidInput("that is more than can be sent at once")
            if len(data) > MAX_FORM_BYTES:  # beside the event loop, so that others go on
                self._form = await asyncio.to_thread(_parsed, data)
            else:
                self._form = _parsed(data)
        return self._form

    def command(self, *words: str) -> str:
        """A `segue` command as one types it to reach this data and this workspace.

        Where the data is on the server's disk is told to its own user alone.
        """
        import shlex

        where = []
        database = self._database()
        if database:
            where += ["--database-url", database]
        if self.principal.local and self._elsewhere:
            where += ["--data-dir", str(self.hub.data_dir)]
        if self.principal.workspace != LOCAL.workspace:
            where += ["--workspace", self.principal.workspace]
        verb, *rest = words
        made = shlex.join(["segue", verb, *where, *rest])
        return made.replace(shlex.quote(VARIABLE), f'"{VARIABLE}"')

    @property
    def command_hint(self) -> str:
        """What a command leaves out, and how to give it."""
        database = self._database()
        if database == VARIABLE:
            return "SEGUE_DATABASE_URL is the address of the server's database."
        if database and database != self.hub.database:
            return "The database's password is left out: give it in PGPASSWORD or ~/.pgpass."
        if not database and self._elsewhere and not self.principal.local:
            return "On the server's computer, with SEGUE_DATA_DIR set to its data directory."
        return ""

    @property
    def _elsewhere(self) -> bool:
        """Whether the data is in another place than where commands look for it."""
        return self.hub.data_dir != data_dir({**os.environ, "SEGUE_DATA_DIR": ""})

    def _database(self) -> str | None:
        """The database's address without its password; a variable's name for others than us."""
        if self.hub.database is None:
            return None
        return without_password(self.hub.database) if self.principal.local else VARIABLE

    def render_page(self, template: str, status: int = 200, **values: Any) -> Response:
        values.setdefault("csrf", self.csrf)
        values.setdefault("principal", self._principal)
        return HTMLResponse(templates.render(template, **values), status)

    def redirect(self, address: str, event: str | None = None) -> Response:
        """On to another page; our script is told where, and goes by itself.

        It is also told the id of the event that comes of this.
        """
        if self.from_script:
            headers = {"x-location": address} | ({"x-event": event} if event else {})
            return Response(status_code=204, headers=headers)
        return RedirectResponse(address, 303)


def _parsed(data: bytearray) -> dict[str, list[str]]:
    try:
        pairs = parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        raise InvalidInput("the form cannot be read") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return fields
