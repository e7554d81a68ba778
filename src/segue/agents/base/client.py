"""The client that sent a turn's prompt: its capabilities, files, terminals and forms."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol

from segue.model import ids
from segue.model.errors import ClientFailed

PROTOCOL = "acp"  # the key of the fields that only the Agent Client Protocol has
READ_FILE, WRITE_FILE = "fs/read_text_file", "fs/write_text_file"
TERMINAL = "terminal/create"
FORM = "elicitation/create"
FORM_COMPLETE = "elicitation/complete"


class ClientPort(Protocol):
    """Sends requests to the client that has a session open."""

    @property
    def version(self) -> int:
        """The version of the client's protocol."""
        ...

    @property
    def info(self) -> Mapping[str, Any]:
        """The name and version of the client, as it sent them."""
        ...

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities of the client, as it sent them."""
        ...

    @property
    def meta(self) -> Mapping[str, Any]:
        """The `_meta` with which the client connected."""
        ...

    @property
    def methods(self) -> frozenset[str]:
        """The requests of agents that the client supports."""
        ...

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """Send a request about the session. Raises ClientFailed if the client refuses."""
        ...

    async def extension(self, method: str, params: Any) -> Any:
        """Send a request that is not part of the protocol. Raises ClientFailed."""
        ...

    async def notify(self, method: str, params: Any) -> None:
        """Send a notification that is not part of the protocol."""
        ...


class ExitStatus(NamedTuple):
    """How the command of a terminal ended: with a code, or because of a signal."""

    code: int | None
    signal: str | None


class Client:
    """The client that sent a turn's prompt.

    A turn that no ACP client started has a client without capabilities. Each method that needs a
    capability raises ClientFailed if the client does not have it.
    """

    def __init__(self, port: ClientPort | None) -> None:
        self._port = port

    @property
    def version(self) -> int | None:
        """The protocol version of the client; None if no ACP client sent the prompt."""
        return None if self._port is None else self._port.version

    @property
    def info(self) -> Mapping[str, Any]:
        """The name, title and version of the client."""
        return {} if self._port is None else self._port.info

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities of the client, as its protocol version has them."""
        return {} if self._port is None else self._port.capabilities

    @property
    def meta(self) -> Mapping[str, Any]:
        """The `_meta` with which the client connected."""
        return {} if self._port is None else self._port.meta

    def supports(self, method: str) -> bool:
        """Return whether the client answers a request such as `fs/read_text_file`."""
        return self._port is not None and method in self._port.methods

    async def read_text_file(
        self, path: Any, *, line: int | None = None, limit: int | None = None
    ) -> str:
        """Return the text of a file, with changes that the client has not saved."""
        params = {"path": str(path), "line": line, "limit": limit}
        present = {name: value for name, value in params.items() if value is not None}
        return str((await self._request(READ_FILE, present)).get("content", ""))

    async def write_text_file(self, path: Any, text: str) -> None:
        """Write a file through the client."""
        await self._request(WRITE_FILE, {"path": str(path), "content": text})

    @asynccontextmanager
    async def terminal(
        self,
        command: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: Any = None,
        output_bytes: int | None = None,
    ) -> AsyncIterator[Terminal]:
        """Run a command in a terminal of the client, which is released with the block."""
        params: dict[str, Any] = {"command": command, "args": [*args]}
        if env:
            params["env"] = [{"name": name, "value": value} for name, value in env.items()]
        if cwd is not None:
            params["cwd"] = str(cwd)
        if output_bytes is not None:
            params["outputByteLimit"] = output_bytes
        created = await self._request(TERMINAL, params)
        terminal = Terminal(self, str(created.get("terminalId")))
        try:
            yield terminal
        finally:
            await self._request("terminal/release", {"terminalId": terminal.id})

    async def ask(
        self, message: str, schema: Mapping[str, Any], *, call_id: str | None = None
    ) -> dict[str, Any] | None:
        """Show a form, and return its values; None if the user did not fill it in.

        `schema` has the fields as JSON Schema properties, or is an object schema.
        """
        self._require(FORM, "form")
        is_object = schema.get("type") == "object" and "properties" in schema
        requested = dict(schema) if is_object else {"type": "object", "properties": dict(schema)}
        params = {"mode": "form", "message": message, "requestedSchema": requested}
        answer = await self._request(FORM, _with_call(params, call_id))
        if answer.get("action") != "accept":
            return None
        values = answer.get("content")
        return dict(values) if isinstance(values, dict) else {}

    async def open_url(
        self, message: str, url: str, *, call_id: str | None = None
    ) -> PageRequest | None:
        """Ask the user to open a page; None if the user declined."""
        self._require(FORM, "url")
        id = ids.new_id()
        params = {"mode": "url", "message": message, "url": url, "elicitationId": id}
        answer = await self._request(FORM, _with_call(params, call_id))
        return PageRequest(self, id) if answer.get("action") == "accept" else None

    async def extension(self, method: str, params: Any = None) -> Any:
        """Send a request of an extension, whose name begins with `_`, and return the result."""
        if self._port is None:
            raise _unsupported(method)
        return await self._port.extension(_checked(method), params)

    async def notify(self, method: str, params: Any = None) -> None:
        """Send a notification of an extension, whose name begins with `_`."""
        if self._port is None:
            raise _unsupported(method)
        await self._port.notify(_checked(method), params)

    async def complete_page(self, id: str) -> None:
        """Tell the client that the user has finished with a page."""
        if self._port is not None:
            await self._port.notify(FORM_COMPLETE, {"elicitationId": id})

    async def request_terminal(self, method: str, terminal: str) -> dict[str, Any]:
        """Send a request about a terminal."""
        return await self._request(method, {"terminalId": terminal})

    def _require(self, method: str, kind: str) -> None:
        """Raise ClientFailed unless the client supports a kind of form."""
        declared = self.capabilities.get("elicitation")
        if not isinstance(declared, dict) or declared.get(kind) is None:
            raise _unsupported(f"{method} ({kind})")

    async def _request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if self._port is None or not self.supports(method):
            raise _unsupported(method)
        result = await self._port.request(method, params)
        return result if isinstance(result, dict) else {}


class Terminal:
    """A terminal of the client."""

    def __init__(self, client: Client, id: str) -> None:
        self._client = client
        self.id = id

    async def output(self) -> str:
        """Return the output so far. The client may have dropped its beginning."""
        return str((await self._client.request_terminal("terminal/output", self.id))["output"])

    async def wait(self) -> ExitStatus:
        """Wait until the command has ended."""
        status = await self._client.request_terminal("terminal/wait_for_exit", self.id)
        return ExitStatus(status.get("exitCode"), status.get("signal"))

    async def kill(self) -> None:
        """End the command; its output can still be read."""
        await self._client.request_terminal("terminal/kill", self.id)


class PageRequest:
    """A page that the user has agreed to open."""

    def __init__(self, client: Client, id: str) -> None:
        self._client = client
        self.id = id

    async def complete(self) -> None:
        """Tell the client that the user has finished with the page."""
        await self._client.complete_page(self.id)


def _with_call(params: dict[str, Any], call_id: str | None) -> dict[str, Any]:
    return params if call_id is None else {**params, "toolCallId": call_id}


def _checked(method: str) -> str:
    """Return the name of an extension. Raises ValueError for a method of the protocol."""
    if not method.startswith("_"):
        raise ValueError(f"the name of an extension begins with '_', not {method!r}")
    return method


def _unsupported(method: str) -> ClientFailed:
    return ClientFailed(f"the client does not support {method}", code=-32601)
