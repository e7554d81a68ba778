"""Run the `segue` command in forks of one process that has already imported it.

Starting an interpreter and importing segue takes longer than most commands. A fork has its own
environment, working directory, standard streams and exit code, like the installed command. Tests
of the start-up itself, of terminals and of signals run the installed command instead.
"""

import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

# Packages whose modules the commands import when they need them.
PRELOADED_PACKAGES = [
    "segue.http",
    "segue.hub",
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
TIMEOUT_SECONDS = 120.0


class CommandServer:
    """The process that forks. It ends when the tests do."""

    def __init__(self) -> None:
        self._control, server_end = socket.socketpair()
        with server_end:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(server_end.fileno())],
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
        request = {"command": command, "env": env, "cwd": str(cwd)}
        ours, child_socket = socket.socketpair()
        with (
            ours,
            tempfile.TemporaryFile() as input,
            tempfile.TemporaryFile() as output,
            tempfile.TemporaryFile() as errors,
        ):
            input.write(stdin.encode())
            input.seek(0)
            with child_socket:
                streams = [input.fileno(), output.fileno(), errors.fileno()]
                socket.send_fds(self._control, [b"."], [*streams, child_socket.fileno()])
            ours.settimeout(TIMEOUT_SECONDS)
            with ours.makefile("rw") as connection:
                print(json.dumps(request), file=connection, flush=True)
                pid = int(connection.readline())
                try:
                    status = int(connection.readline())
                except TimeoutError:
                    os.kill(pid, signal.SIGKILL)
                    raise subprocess.TimeoutExpired(command, TIMEOUT_SECONDS) from None
            output.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(
                command,
                os.waitstatus_to_exitcode(status),
                output.read().decode(),
                errors.read().decode(),
            )


def _fork_commands(control: socket.socket) -> None:
    """Fork for each request. Return only in a process that is to run a command."""
    supervisors: list[int] = []
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 4)
        if not message:
            sys.exit()
        supervisors = [pid for pid in supervisors if os.waitpid(pid, os.WNOHANG)[0] == 0]
        if (pid := os.fork()) == 0:
            control.close()
            return _supervise(*descriptors)
        supervisors.append(pid)
        for descriptor in descriptors:
            os.close(descriptor)


def _supervise(stdin: int, stdout: int, stderr: int, reply: int) -> None:
    """Fork once more, wait for that process and report how it ended. Return only in it."""
    connection = socket.socket(fileno=reply).makefile("rw")
    request = json.loads(connection.readline())
    if pid := os.fork():
        print(pid, file=connection, flush=True)
        print(os.waitpid(pid, 0)[1], file=connection, flush=True)
        os._exit(0)
    os.close(reply)
    for number, descriptor in enumerate((stdin, stdout, stderr)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    time.tzset()
    sys.argv = request["command"]


def _import_modules() -> None:
    for package in PRELOADED_PACKAGES:
        path = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(path, f"{package}."):
            importlib.import_module(module.name)
    for name in PRELOADED_MODULES:
        importlib.import_module(name)
    assert threading.active_count() == 1, "only the forking thread lives on in a fork"
    gc.freeze()


if __name__ == "__main__":
    _import_modules()
    _fork_commands(socket.socket(fileno=int(sys.argv[1])))

    from segue.__main__ import main

    main()
