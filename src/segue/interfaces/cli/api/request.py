"""Build an API request from flags and standard input, send it, and print the response."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote

from segue.hub import Hub
from segue.hub.sessions.resolve import AmbiguousName
from segue.interfaces.cli.output.formats import output_file
from segue.interfaces.cli.output.text import match_lines
from segue.interfaces.cli.target import Target
from segue.model import ids
from segue.model.errors import NotFound

from .client import ApiClient, ApiRequest, ErrorResponse
from .errors import ApiFailure, warn
from .operations import Flag, Operation
from .output import ResponsePrinter
from .uploads import read_uploads
from .values import parse_flag_value, parse_structured


class ApiCall:
    """One operation with its flag values. `options` are the flags that all operations share."""

    def __init__(self, operation: Operation, target: Target, options: dict[str, Any]) -> None:
        self._operation = operation
        self._target = target
        self._options = options
        self._path_values: dict[str, str] = {}
        self._query: list[tuple[str, str]] = []
        self._body: dict[str, Any] = {}
        self._files: list[tuple[str, bytes]] = []

    def set_path_value(self, flag: Flag, value: str) -> None:
        """Set a part of the path."""
        self._path_values[flag.wire_name] = value

    def set_flag(self, flag: Flag, value: Any) -> None:
        """Set a flag's value, which is None or () if the flag was not used."""
        if value is None or value == ():
            return
        if flag.type == "file":
            self._files += [file for name in value for file in read_uploads(name)]
            return
        texts = value if flag.is_repeatable else (value,)
        parsed = [
            parse_flag_value(text, flag.type) if isinstance(text, str) else text for text in texts
        ]
        if flag.location == "query":
            self._query += [(flag.wire_name, _format_query_value(item)) for item in parsed]
        else:
            self._body[flag.wire_name] = parsed if flag.is_repeatable else parsed[0]

    def set_nested(self, name: str, text: str) -> None:
        """Set a part of a structured flag: `agent.tools`."""
        first, *keys = name.split(".")
        flag = next((flag for flag in self._operation.flags if flag.name == first), None)
        if flag is None or flag.type != "structured" or flag.is_repeatable:
            raise ApiFailure(f"Incorrect Usage: flag provided but not defined: -{name}")
        parent = self._body.setdefault(flag.wire_name, {})
        for key in keys[:-1]:
            if isinstance(parent, dict):
                parent = parent.setdefault(key.replace("-", "_"), {})
        if not isinstance(parent, dict):
            raise ApiFailure(f"--{name} needs an object, but --{first} sets another value")
        parent[keys[-1].replace("-", "_")] = parse_flag_value(text, "structured")

    async def run(self) -> None:
        """Send the request and print the response; exit with code 1 for an error response."""
        async with AsyncExitStack() as stack:
            client = await self._open_client(stack)
            try:
                await self._send(client)
            except ErrorResponse as error:
                # Like the vendor's tool: the status on standard error, then the body as output.
                print(error.message, file=sys.stderr, flush=True)
                self._printer("format_error", "transform_error").print(error.body)
                if error.status == 401 and not client.has_credentials:
                    warn("No key was sent: use --api-key or set ANTHROPIC_API_KEY.")
                sys.exit(1)

    async def _send(self, client: ApiClient) -> None:
        options, operation = self._options, self._operation
        printer = self._printer("format", "transform")
        request = ApiRequest(
            operation.method, self._path(), self._query, self._request_body(), self._files
        )
        if operation.response == "stream":
            async for event in client.stream_events(request):
                printer.print(event)
        elif operation.response == "file":
            with output_file(options["output"]) as write:
                async for chunk in client.download(request):
                    write(chunk)
        elif operation.response == "pages" and options["format"] != "raw":
            max_items = None if options["max_items"] < 0 else options["max_items"]
            async for item in client.list_items(request, max_items):
                printer.print(item)
        else:
            printer.print(await client.fetch(request))

    def _printer(self, format: str, transform: str) -> ResponsePrinter:
        options = self._options
        return ResponsePrinter(
            options[format], options[transform], raw_strings=options["raw_output"]
        )

    def _path(self) -> str:
        quoted = {name: quote(value, safe="") for name, value in self._path_values.items()}
        return self._operation.path.format(**quoted)

    def _request_body(self) -> Any:
        """Return the body: an object from standard input, updated with the flags."""
        if self._operation.method == "GET":
            return None
        has_body = any(flag.location == "body" for flag in self._operation.flags)
        piped = parse_structured(sys.stdin.read()) if has_body and _is_stdin_piped() else None
        if piped is None:
            return self._body
        if not isinstance(piped, dict):
            raise ApiFailure("standard input must be an object in JSON or YAML")
        return {**piped, **self._body}

    async def _open_client(self, stack: AsyncExitStack) -> ApiClient:
        options = self._options
        url, key, token = options["base_url"], options["api_key"], options["auth_token"]
        common = {"betas": options["betas"], "debug": options["debug"]}
        if url is None:
            return await self._open_local_client(stack, key, token, common)
        if not url.startswith(("http://", "https://")):
            raise ApiFailure(f"the base URL must start with http:// or https://, not {url!r}")
        key = key or os.environ.get("ANTHROPIC_API_KEY")
        token = token or os.environ.get("ANTHROPIC_AUTH_TOKEN")
        return await stack.enter_async_context(ApiClient(url, key=key, token=token, **common))

    async def _open_local_client(
        self, stack: AsyncExitStack, key: str | None, token: str | None, common: dict[str, Any]
    ) -> ApiClient:
        """Return a client of the local store: for the local user, or for a key's workspace."""
        from segue.server.local import create_local_app

        from .local_transport import LOCAL_URL, LocalTransport

        hub = await stack.enter_async_context(await self._target.open())
        if self._operation.method != "GET":
            # A turn that the request starts runs in this process, which waits for its end.
            stack.push_async_callback(hub.turns.engine.wait_idle)
        principal = None
        if not key and not token:
            principal = self._target.principal
            await self._resolve_session(hub)
        transport = LocalTransport(create_local_app(hub, principal))
        client = ApiClient(LOCAL_URL, key=key, token=token, transport=transport, **common)
        return await stack.enter_async_context(client)

    async def _resolve_session(self, hub: Hub) -> None:
        """Replace an id prefix or title of a local session by its id.

        Deleting is permanent and does not ask, so it accepts no titles.
        """
        name = self._path_values.get("session_id")
        if name is None or ids.parse(name, "sesn") is not None:
            return
        allow_titles = self._operation.method != "DELETE"
        try:
            session = await hub.sessions.resolve(self._target.principal, name, titles=allow_titles)
        except AmbiguousName as error:
            matches = "".join(f"\n  {line}" for line in match_lines(error))
            raise ApiFailure(error.message + matches) from None
        except NotFound:
            if not allow_titles:
                warn(f"{name!r} is not an id; `segue delete` accepts titles and asks first.")
            return  # the API answers that the session does not exist
        self._path_values["session_id"] = ids.format_id("sesn", session.id)


def _format_query_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_stdin_piped() -> bool:
    """Return True if standard input is a pipe or a file, not a terminal or closed."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)
