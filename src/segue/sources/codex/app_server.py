"""Ask Codex's own program to change its threads: `codex app-server`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from segue.sources.kit.edit import programs
from segue.sources.kit.edit.programs import LineServer

PROGRAM = "codex"


def is_installed() -> bool:
    """Return whether Codex's program is installed."""
    return programs.is_installed(PROGRAM)


@contextmanager
def running(home: str) -> Iterator[LineServer]:
    """Run an app server of a home for a `with` block; raises ReadOnly without the program."""
    command = (programs.find(PROGRAM, "this change"), "app-server")
    with programs.running(command, cwd=home, environment={"CODEX_HOME": home}) as server:
        client = {"name": "segue", "title": "segue", "version": "1"}
        server.call("initialize", clientInfo=client, capabilities={"experimentalApi": True})
        server.notify("initialized")
        yield server
