"""Run the `segue` command and scripts in forks of one process that has already imported segue.

Starting an interpreter and importing segue takes longer than most commands. A fork has its own
environment, working directory, standard streams, terminal and exit code, like the installed
command. Tests of the start-up itself and of memory run the installed command instead.
"""

import atexit
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

# Packages whose modules the commands import when they need them.
PRELOADED_PACKAGES = [
    "segue.http",
    "segue.hub",
    "segue.interfaces.acp",
    "segue.interfaces.cli",
    "segue.interfaces.rest",
    "segue.render",
    "segue.sources",
]
PRELOADED_MODULES = [
    "segue.agents.demo",
    "segue.agents.permission",
    "segue.server.local",
    "segue.store.sqlite",
]
# The same for servers and for turns of models.
PRELOADED_FOR_TURNS = ["segue.agents", "segue.interfaces.web", "segue.server", "segue.store"]
MODEL_MODULES = ["pydantic_ai.models.anthropic", "pydantic_ai.direct"]  # nearly two CPU seconds
TIMEOUT_SECONDS = 120.0


class CommandServer:
    """The process that forks. It ends when the tests do."""

    def __init__(self, *, turns: bool = False) -> None:
        """Start it; with `turns`, its forks have also imported servers and models."""
        self._control, server_end = socket.socketpair()
        with server_end:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(server_end.fileno()), str(int(turns))],
                pass_fds=[server_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._control.close()
        self._process.wait()

    def run(
        self, command: list[str], *, env: dict[str, str], cwd: Path, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run `command` and return its exit code and output, as `subprocess.run` does."""
        with (
            tempfile.TemporaryFile() as input,
            tempfile.TemporaryFile() as output,
            tempfile.TemporaryFile() as errors,
        ):
            input.write(stdin.encode())
            input.seek(0)
            streams = [input.fileno(), output.fileno(), errors.fileno()]
            with self.start(command, env=env, cwd=cwd, streams=streams) as started:
                returncode = started.wait(TIMEOUT_SECONDS)
            output.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(
                command, returncode, output.read().decode(), errors.read().decode()
            )

    def start(
        self,
        command: list[str],
        *,
        env: dict[str, str],
        cwd: Path,
        streams: Sequence[int],
        terminal: bool = False,
    ) -> "ForkedCommand":
        """Start `command` with three descriptors as its standard streams.

        With `terminal` the first of them becomes its controlling terminal.
        """
        request = {"command": command, "env": env, "cwd": str(cwd), "terminal": terminal}
        ours, child_socket = socket.socketpair()
        with child_socket:
            socket.send_fds(self._control, [b"."], [*streams, child_socket.fileno()])
        return ForkedCommand(command, ours, request)

    def pipe(self, command: list[str], *, env: dict[str, str]) -> "PipedCommand":
        """Start `command` without input, and with pipes for its output and its errors."""
        (output, write_output), (errors, write_errors) = os.pipe(), os.pipe()
        with open(os.devnull) as stdin:
            streams = [stdin.fileno(), write_output, write_errors]
            started = self.start(command, env=env, cwd=Path.cwd(), streams=streams)
        os.close(write_output)
        os.close(write_errors)
        return PipedCommand(started, open(output), open(errors))


@cache
def server_of_turns() -> CommandServer:
    """Return the process whose forks are servers and run turns; the first call starts it."""
    server = CommandServer(turns=True)
    atexit.register(server.__exit__, None, None, None)
    return server


class ForkedCommand:
    """A command that a fork runs. Like `subprocess.Popen`, but not a child of this process."""

    def __init__(self, command: list[str], reply: socket.socket, request: object) -> None:
        self._command = command
        self._reply = reply
        self._replies = reply.makefile("rb")
        reply.settimeout(TIMEOUT_SECONDS)
        reply.sendall(json.dumps(request).encode() + b"\n")
        self.pid = int(self._replies.readline())
        self.returncode: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.returncode is None:
            self.kill()
            self.wait()
        self._replies.close()
        self._reply.close()

    def poll(self) -> int | None:
        """Return the exit code, or None while the command runs."""
        if self.returncode is None and select.select([self._reply], [], [], 0)[0]:
            return self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the command and return its exit code."""
        if self.returncode is None:
            if not select.select([self._reply], [], [], timeout)[0]:
                assert timeout is not None
                raise subprocess.TimeoutExpired(self._command, timeout)
            self.returncode = os.waitstatus_to_exitcode(int(self._replies.readline()))
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the command has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended; its exit code is on the way
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class PipedCommand:
    """A command that a fork runs, with its output. Like `subprocess.Popen`."""

    def __init__(self, command: ForkedCommand, stdout: TextIO, stderr: TextIO) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.pid = command.pid
        self.poll = command.poll
        self.wait = command.wait
        self.send_signal = command.send_signal
        self.terminate = command.terminate
        self.kill = command.kill
        self._command = command

    def close(self) -> None:
        """End the command if it runs."""
        self._command.__exit__(None, None, None)
        self.stdout.close()
        self.stderr.close()


def _fork_commands(control: socket.socket) -> None:
    """Fork for each request. Return only in a process that is to run a command."""
    supervisors: list[int] = []
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 4)
        if not message:
            sys.exit()
        # Without a wait their processor time would be missing from that of the tests.
        supervisors = [pid for pid in supervisors if os.waitpid(pid, os.WNOHANG)[0] == 0]
        if (pid := os.fork()) == 0:
            control.close()
            return _supervise(*descriptors)
        supervisors.append(pid)
        for descriptor in descriptors:
            os.close(descriptor)


def _supervise(stdin: int, stdout: int, stderr: int, reply: int) -> None:
    """Fork once more, wait for that process and report how it ended. Return only in it."""
    with socket.socket(fileno=reply) as control, control.makefile("rw") as connection:
        request = json.loads(connection.readline())
        if pid := os.fork():
            for descriptor in (
                stdin,
                stdout,
                stderr,
            ):  # so that its readers see its end
                os.close(descriptor)
            print(pid, file=connection, flush=True)
            print(os.waitpid(pid, 0)[1], file=connection, flush=True)
            os._exit(0)
    if request["terminal"]:
        os.setsid()
        fcntl.ioctl(stdin, termios.TIOCSCTTY, 0)
    for number, descriptor in enumerate((stdin, stdout, stderr)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["env"])
    _open_streams()
    os.chdir(request["cwd"])
    time.tzset()
    sys.argv = request["command"]


def _open_streams() -> None:
    """Open the text streams as the interpreter does: buffered by line only on a terminal."""
    buffering = 1 if os.environ.get("PYTHONUNBUFFERED") else -1
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115  # for the process's life
    sys.stdout = sys.__stdout__ = open(1, "w", buffering, closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115


def _import_modules(*, turns: bool) -> None:
    for package in [*PRELOADED_PACKAGES, *(PRELOADED_FOR_TURNS if turns else [])]:
        path = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(path, f"{package}."):
            importlib.import_module(module.name)
    for name in [*PRELOADED_MODULES, *(MODEL_MODULES if turns else [])]:
        importlib.import_module(name)
    assert threading.active_count() == 1, "only the forking thread lives on in a fork"
    gc.freeze()


_exit_codes: list[int] = []  # of the command that this process has run


def _run_command() -> None:
    from segue.__main__ import main

    try:
        if sys.argv[0].endswith(".py"):
            sys.path.insert(0, os.path.dirname(sys.argv[0]))
            runpy.run_path(sys.argv[0], run_name="__main__")
        else:
            main()
    except SystemExit as exit:
        if isinstance(exit.code, int | None):
            _exit_codes.append((exit.code or 0) & 0xFF)
        raise
    _exit_codes.append(0)


def _end_process() -> None:
    """End a command's process. Freeing all modules would take longer than most commands."""
    if not _exit_codes:
        return  # the interpreter reports the error
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return  # the interpreter tries it again and reports it
    os._exit(_exit_codes[0])


if __name__ == "__main__":
    atexit.register(_end_process)  # before the others, so that it runs after them
    _import_modules(turns=sys.argv[2] == "1")
    _fork_commands(socket.socket(fileno=int(sys.argv[1])))
    _run_command()
