"""Ask Codex's own program to change its threads: `codex app-server`, JSON-RPC in lines."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

import msgspec

from segue.model.errors import AgentFailed, ReadOnly

PROGRAM = "codex"
_ANSWER_SECONDS = 60.0
_EXIT_SECONDS = 5.0
_READ_BYTES = 1 << 16


class Refused(AgentFailed):
    """Codex refused a request; the message says why."""


def find_program() -> str | None:
    """Return the path of Codex's program; None if it is not installed."""
    return shutil.which(PROGRAM)


@contextmanager
def running(home: str) -> Iterator[AppServer]:
    """Run an app server of a home for a `with` block; raises ReadOnly without the program."""
    program = find_program()
    if program is None:
        raise ReadOnly(f"this change needs the program `{PROGRAM}`, which is not installed")
    process = subprocess.Popen(
        [program, "app-server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=home,
        env={**os.environ, "CODEX_HOME": home},
    )
    try:
        server = AppServer(process)
        server.initialize()
        yield server
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server by closing its input, as its clients do, else by a signal."""
    assert process.stdin is not None and process.stdout is not None
    with suppress(BrokenPipeError):  # it has ended already
        process.stdin.close()
    try:
        process.wait(_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


class AppServer:
    """A running app server."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._input = process.stdin.fileno()
        self._output = process.stdout.fileno()
        self._received = b""
        self._last_id = 0

    def initialize(self) -> None:
        """Begin the conversation."""
        client = {"name": "segue", "title": "segue", "version": "1"}
        self.call("initialize", clientInfo=client, capabilities={"experimentalApi": True})
        self._send({"method": "initialized"})

    def call(self, method: str, **params: Any) -> Any:
        """Return the result of a method; raises Refused, or AgentFailed if there is no answer."""
        self._last_id += 1
        self._send({"id": self._last_id, "method": method, "params": params})
        deadline = monotonic() + _ANSWER_SECONDS
        while True:
            message = self._receive(method, deadline)
            if message.get("id") == self._last_id and "method" not in message:
                break
        error = message.get("error")
        if isinstance(error, dict):
            raise Refused(f"Codex refused {method}: {error.get('message')}")
        return message.get("result")

    def _send(self, message: dict[str, Any]) -> None:
        data = msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n"
        try:
            while data:
                data = data[os.write(self._input, data) :]
        except BrokenPipeError:
            raise AgentFailed("Codex's app server ended unexpectedly") from None

    def _receive(self, method: str, deadline: float) -> dict[str, Any]:
        """Return the next message; the server may also send notices that are no JSON objects."""
        while b"\n" not in self._received:
            seconds = deadline - monotonic()
            if seconds <= 0 or not select.select([self._output], [], [], seconds)[0]:
                raise AgentFailed(f"Codex's app server did not answer {method} in time")
            data = os.read(self._output, _READ_BYTES)
            if not data:
                raise AgentFailed("Codex's app server ended unexpectedly")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        try:
            return msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.MsgspecError:
            return {}
