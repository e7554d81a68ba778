"""Run a tool's own program, which alone changes the tool's database."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

import msgspec

from segue.model.errors import AgentFailed, ReadOnly

# Variables of a program besides those of this process; None removes one.
Environment = Mapping[str, str | None]

_ANSWER_SECONDS = 60.0
_EXIT_SECONDS = 5.0
_READ_BYTES = 1 << 16
_MAX_REASON_CHARS = 500


class Refused(AgentFailed):
    """The program refused a request; the message says why."""


class UnknownMethod(Refused):
    """This version of the program does not have the method."""


def is_installed(program: str) -> bool:
    """Return whether a program is on the path."""
    return shutil.which(program) is not None


def find(program: str, change: str) -> str:
    """Return the path of a program; raises ReadOnly, which names it, if it is not installed."""
    path = shutil.which(program)
    if path is None:
        raise ReadOnly(
            f"{change} needs the program `{program}`, which is not installed; install it, and "
            "try again"
        )
    return path


def run(
    command: Sequence[str],
    *,
    cwd: str,
    environment: Environment,
    seconds: float = _ANSWER_SECONDS,
) -> str:
    """Return what a program prints; raises Refused if it fails, with what it says.

    The program has so many seconds; then it is killed, and AgentFailed is raised.
    """
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=merged(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise AgentFailed(f"`{_command_text(command)}` did not end in time") from None
    except OSError as error:
        raise AgentFailed(
            f"`{_command_text(command)}` cannot be started: {error.strerror}"
        ) from None
    output = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip() or output.strip()
        reason = reason[-_MAX_REASON_CHARS:] or f"exit code {done.returncode}"
        raise Refused(f"`{_command_text(command)}` failed: {reason}")
    return output


def merged(environment: Environment) -> dict[str, str]:
    """Return the variables of a program."""
    variables = {**os.environ, **environment}
    return {name: value for name, value in variables.items() if value is not None}


def _command_text(command: Sequence[str]) -> str:
    return " ".join([os.path.basename(command[0]), *command[1:]])


@contextmanager
def running(command: Sequence[str], *, cwd: str, environment: Environment) -> Iterator[LineServer]:
    """Run a program that answers JSON-RPC in lines for a `with` block."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=cwd,
        env=merged(environment),
    )
    try:
        yield LineServer(process)
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


class LineServer:
    """A running program that answers JSON-RPC in lines."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        arguments = process.args
        assert isinstance(arguments, Sequence) and not isinstance(arguments, str | bytes)
        self._command = _command_text([str(argument) for argument in arguments])
        self._input = process.stdin.fileno()
        self._output = process.stdout.fileno()
        self._received = b""
        self._last_id = 0

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
            is_unknown = error.get("code") == -32601
            kind = UnknownMethod if is_unknown else Refused
            raise kind(f"`{self._command}` refused {method}: {error.get('message')}")
        return message.get("result")

    def notify(self, method: str) -> None:
        """Send a message that has no answer."""
        self._send({"method": method})

    def _send(self, message: dict[str, Any]) -> None:
        data = msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n"
        try:
            while data:
                data = data[os.write(self._input, data) :]
        except BrokenPipeError:
            raise AgentFailed(f"`{self._command}` ended unexpectedly") from None

    def _receive(self, method: str, deadline: float) -> dict[str, Any]:
        """Return the next message; the server may also send notices that are no JSON objects."""
        while b"\n" not in self._received:
            seconds = deadline - monotonic()
            if seconds <= 0 or not select.select([self._output], [], [], seconds)[0]:
                raise AgentFailed(f"`{self._command}` did not answer {method} in time")
            data = os.read(self._output, _READ_BYTES)
            if not data:
                raise AgentFailed(f"`{self._command}` ended unexpectedly")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        try:
            return msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.MsgspecError:
            return {}
