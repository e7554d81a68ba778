"""One command's request: put together from flags and standard input, sent, and printed."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote

from segue.hub import Hub
from segue.hub.sessions.resolve import AmbiguousName
from segue.interfaces.cli.main import Where
from segue.interfaces.cli.output.formats import written
from segue.model import ids
from segue.model.errors import NotFound

from . import values
from .client import Client, Refused, Request
from .errors import Failure, warn
from .output import Printer
from .skills import uploads
from .table import Action, Flag


class Calling:
    """An action with what it was given."""

    def __init__(self, action: Action, where: Where, given: dict[str, Any]) -> None:
        self._action = action
        self._where = where
        self._given = given
        self.values: dict[str, str] = {}  # what stands in the path
        self._query: list[tuple[str, str]] = []
        self._body: dict[str, Any] = {}
        self._files: list[tuple[str, bytes]] = []

    def set(self, flag: Flag, given: Any) -> None:
        """A flag's value, if it has one."""
        if given is None or given == ():
            return
        if flag.kind == "files":
            self._files += [file for each in given for file in uploads(each)]
            return
        many = given if isinstance(given, tuple) else (given,)
        read = [values.read(each, flag.kind) if isinstance(each, str) else each for each in many]
        if flag.place == "query":
            self._query += [(flag.wire, _spelt(each)) for each in read]
        else:
            self._body[flag.wire] = read if isinstance(given, tuple) else read[0]

    def set_inner(self, name: str, text: str, path: str) -> None:
        """A part of a structured value: `agent.tools`."""
        first, *more = name.split(".")
        flag = next((each for each in self._action.flags if each.name == first), None)
        if flag is None or flag.kind != "value":
            raise Failure(f"Incorrect Usage: flag provided but not defined: -{name}")
        into = self._body.setdefault(flag.wire, {})
        for key in more[:-1]:
            into = into.setdefault(key.replace("-", "_"), {}) if isinstance(into, dict) else None
        if not isinstance(into, dict):
            raise Failure(f"--{first} is no object, so --{name} has no place in it")
        into[more[-1].replace("-", "_")] = values.read(text, "value")

    async def run(self) -> None:
        given = self._given
        error = Printer(given["format_error"], given["transform_error"], given["raw_output"])
        async with AsyncExitStack() as stack:
            client = await self._client(stack)
            try:
                await self._print(client)
            except Refused as refused:
                # As the vendor's tool does it: the line first, then the body where output goes.
                print(refused.message, file=sys.stderr, flush=True)
                error(refused.body)
                if refused.status == 401 and not client.keyed:
                    warn("No key was sent: give --api-key, or set ANTHROPIC_API_KEY.")
                sys.exit(1)

    async def _print(self, client: Client) -> None:
        given, action = self._given, self._action
        printer = Printer(given["format"], given["transform"], given["raw_output"])
        request = Request(action.method, self._address(), self._query, self._content(), self._files)
        if action.shape == "stream":
            async for item in client.events(request):
                printer(item)
        elif action.shape == "file":
            with written(given["output"]) as put:
                async for piece in client.pieces(request):
                    put(piece)
        elif action.shape == "pages" and given["format"] != "raw":
            most = None if given["max_items"] < 0 else given["max_items"]
            async for item in client.items(request, most):
                printer(item)
        else:
            printer(await client.one(request))

    def _address(self) -> str:
        quoted = {name: quote(value, safe="") for name, value in self.values.items()}
        return self._action.path.format(**quoted)

    def _content(self) -> Any:
        """The body: what is piped in, with the flags over it."""
        if self._action.method == "GET":
            return None
        takes = any(flag.place == "body" for flag in self._action.flags)
        piped = values.structured(sys.stdin.read()) if takes and _is_piped() else None
        if piped is None:
            return self._body
        if not isinstance(piped, dict):
            raise Failure("what is piped in must be an object, in JSON or YAML")
        return {**piped, **self._body}

    async def _client(self, stack: AsyncExitStack) -> Client:
        given = self._given
        url, key, token = given["base_url"], given["api_key"], given["auth_token"]
        options = {"betas": given["betas"], "debug": given["debug"]}
        if url is not None:
            if not url.startswith(("http://", "https://")):
                raise Failure(f"the base URL must start with http:// or https://, not {url!r}")
            key = key or os.environ.get("ANTHROPIC_API_KEY")
            token = token or os.environ.get("ANTHROPIC_AUTH_TOKEN")
            client = Client(url, key=key, token=token, **options)
            return await stack.enter_async_context(client)
        from .local_transport import ADDRESS, InProcess

        hub = await stack.enter_async_context(await self._where.open())
        if self._action.method != "GET":
            # Turns that the request begins run in this process, which stays until they have ended.
            stack.push_async_callback(hub.turns.engine.rest)
        if not key and not token:
            await self._name(hub)
        # A key that is given is asked for its workspace; otherwise the local user asks.
        principal = None if key or token else self._where.principal
        client = Client(
            ADDRESS, key=key, token=token, transport=InProcess(hub, principal), **options
        )
        return await stack.enter_async_context(client)

    async def _name(self, hub: Hub) -> None:
        """A session of the local store may be named as everywhere else, but for good and unasked
        one is deleted by its id alone, or by the beginning of that."""
        name = self.values.get("session_id")
        if name is None or ids.parse(name, "sesn") is not None:
            return
        titles = self._action.method != "DELETE"
        try:
            session = await hub.sessions.resolve(self._where.principal, name, titles=titles)
        except AmbiguousName as error:
            meant = "".join(f"\n  {each.id}  {each.title or ''}" for each in error.matches)
            raise Failure(error.message + meant) from None
        except NotFound:
            if not titles:
                warn(f"{name!r} is no id; by a title, `segue delete` deletes, and asks.")
            return  # the door says that it is not there
        self.values["session_id"] = ids.format_id("sesn", session.id)


def _spelt(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_piped() -> bool:
    """Whether something is piped in: a pipe or a file, not a terminal, nor nothing at all."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)
