"""Run opencode's own program, which alone writes its database.

`opencode serve` renames, archives, exports and deletes sessions; `opencode import` adds one.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import select
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from time import monotonic
from typing import Any
from urllib.parse import quote

import msgspec

from segue.model.errors import AgentFailed, ReadOnly
from segue.sources import safe_io
from segue.sources.base import OverlayOnly
from segue.sources.kit.edit import programs
from segue.sources.kit.reader import Unreadable
from segue.sources.writing.unfinished import UnfinishedWork

from . import tables

PROGRAM = "opencode"
_LISTENING = re.compile(rb"http://([\w.]+):(\d+)")
_START_SECONDS = 60.0
_ANSWER_SECONDS = 60.0
_EXIT_SECONDS = 5.0
_IMPORT_SECONDS = 60.0
_SECONDS_PER_ROW = 0.1  # of a slow machine: opencode syncs each message and part


def environment_of(directory: str, path: str | None) -> programs.Environment | None:
    """Return the variables with which opencode uses a data directory; None if there are none.

    The program must not change the sessions of another home.
    """
    base, name = os.path.split(directory)
    return {"XDG_DATA_HOME": base, "OPENCODE_DB": path} if name == "opencode" else None


class _Import(msgspec.Struct, frozen=True):
    """The session that is being imported, and how many messages and parts it has."""

    id: str
    cwd: str
    messages: int
    parts: int


class OpencodeProgram:
    """opencode's program, for the sessions of one data directory."""

    def __init__(self, environment: programs.Environment, directory: str, path: str | None) -> None:
        self._environment = environment
        self._directory = directory
        self._path = path
        self._imports = UnfinishedWork(os.path.join(directory, tables.IMPORTS))

    def import_session(self, session: dict[str, Any]) -> None:
        """Import a session; it has the id in the export, and its working directory.

        opencode adds messages one by one. If it fails, those of a new session are deleted; if it
        is killed, the next import deletes them, or `delete_parts`.
        """
        self.delete_parts()
        info, messages = session["info"], session["messages"]
        parts = sum(len(message["parts"]) for message in messages)
        record = _Import(info["id"], str(info.get("directory")), len(messages), parts)
        is_new = self.count_rows(record.id) is None
        with self._imports.recorded(record.id, msgspec.json.encode(record)):
            try:
                self._import(session, record)
            except AgentFailed:
                if is_new and self.count_rows(record.id) is not None:
                    self._delete(record)
                raise

    def _import(self, session: dict[str, Any], record: _Import) -> None:
        with tempfile.TemporaryDirectory(prefix="segue-") as directory:
            path = os.path.join(directory, "session.json")
            safe_io.write_file(path, [msgspec.json.encode(session)])
            command = (programs.find(PROGRAM, "this change"), "import", path)
            programs.run(
                command,
                cwd=self._cwd(record.cwd),
                environment=self._environment,
                seconds=_IMPORT_SECONDS + _SECONDS_PER_ROW * (record.messages + record.parts),
            )

    def delete_parts(self) -> None:
        """Delete sessions of which a killed process imported only a part."""
        for record in self._imports.abandoned():
            imported = msgspec.json.decode(record.data, type=_Import)
            rows = self.count_rows(imported.id)
            if rows is not None and (rows[0] < imported.messages or rows[1] < imported.parts):
                self._delete(imported)
            record.remove()

    def count_rows(self, id: str) -> tuple[int, int] | None:
        """Return how many messages and parts a session has; None if there is no session."""
        for path in tables.find_databases(self._directory, self._path):
            try:
                count = tables.count_rows(path, id)
            except (Unreadable, sqlite3.Error) as error:
                raise AgentFailed(f"{path} cannot be read: {error}") from None
            if count is not None:
                return count
        return None

    def _delete(self, imported: _Import) -> None:
        with suppress(OverlayOnly), self.server(imported.cwd) as server:
            server.delete(imported.id)

    def _cwd(self, directory: str) -> str:
        """Return a directory to start in: opencode takes the project from it."""
        return directory if os.path.isdir(directory) else self._directory

    @contextmanager
    def server(self, cwd: str) -> Iterator[OpencodeServer]:
        """Run a server for a `with` block, which only this process can use."""
        password = secrets.token_urlsafe()
        merged = programs.merged({**self._environment, "OPENCODE_SERVER_PASSWORD": password})
        process = subprocess.Popen(
            [programs.find(PROGRAM, "this change"), "serve", "--hostname=127.0.0.1", "--port=0"],
            cwd=self._cwd(cwd),
            env=merged,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield OpencodeServer(process, *_address(process), password)
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a server, unless it has ended already."""
    process.terminate()
    try:
        process.wait(_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _address(process: subprocess.Popen[bytes]) -> tuple[str, int]:
    """Return the host and the port on which a server says that it listens."""
    assert process.stdout is not None
    output, received = process.stdout.fileno(), b""
    deadline = monotonic() + _START_SECONDS
    while (seconds := deadline - monotonic()) > 0:
        if not select.select([output], [], [], seconds)[0]:
            break
        data = os.read(output, 1 << 16)
        if not data:
            raise AgentFailed("`opencode serve` ended unexpectedly")
        received += data
        match = _LISTENING.search(received)
        if match is not None and received.find(b"\n", match.end()) >= 0:
            return match[1].decode(), int(match[2])
    raise AgentFailed("`opencode serve` did not start in time")


class OpencodeServer:
    """A running server."""

    def __init__(
        self, process: subprocess.Popen[bytes], host: str, port: int, password: str
    ) -> None:
        self._process = process
        self._address = (host, port)
        token = base64.b64encode(f"opencode:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {token}", "Content-Type": "application/json"}

    def close(self) -> None:
        """End the server: it changes nothing from then on."""
        _stop(self._process)

    def change(self, id: str, fields: dict[str, Any]) -> None:
        """Change fields of a session."""
        self._request("PATCH", id, body=fields)

    def export(self, id: str) -> dict[str, Any]:
        """Return a session as `opencode export` writes it."""
        return {"info": self._request("GET", id), "messages": self._request("GET", id, "/message")}

    def delete(self, id: str) -> None:
        """Delete a session with its subagents."""
        self._request("DELETE", id)

    def default_model(self) -> tuple[str, str] | None:
        """Return the provider and the name of the model for new sessions; None if there is none."""
        chosen = self._answer("GET", "/config").get("model")
        if isinstance(chosen, str) and "/" in chosen:
            provider, _, name = chosen.partition("/")
            return provider, name
        defaults = self._answer("GET", "/config/providers").get("default") or {}
        return next(iter(defaults.items()), None)

    def _request(self, method: str, id: str, path: str = "", body: Any = None) -> Any:
        """Return the answer about a session; raises OverlayOnly if opencode does not have it."""
        return self._answer(method, f"/session/{quote(id)}{path}", body)

    def _answer(self, method: str, path: str, body: Any = None) -> Any:
        connection = HTTPConnection(*self._address, timeout=_ANSWER_SECONDS)
        data = None if body is None else msgspec.json.encode(body)
        try:
            connection.request(method, path, data, self._headers)
            response = connection.getresponse()
            answer = response.read()
        except (OSError, HTTPException) as error:
            raise AgentFailed(f"opencode did not answer {method} {path}: {error}") from None
        finally:
            connection.close()
        if response.status == 404:
            raise OverlayOnly(f"opencode has no {path}")
        if response.status >= 300:
            reason = answer[:500].decode("utf-8", "replace")
            raise programs.Refused(f"opencode refused {method} {path}: {reason}")
        try:
            return msgspec.json.decode(answer)
        except msgspec.MsgspecError:
            raise AgentFailed(f"opencode's answer to {method} {path} is not JSON") from None


def find(directory: str, path: str | None) -> OpencodeProgram | None:
    """Return the program for a data directory; None if it is not installed."""
    environment = environment_of(directory, path)
    if environment is None or not programs.is_installed(PROGRAM):
        return None
    return OpencodeProgram(environment, directory, path)


def require(directory: str, path: str | None) -> OpencodeProgram:
    """Return the program for a data directory; raises ReadOnly without it."""
    programs.find(PROGRAM, "this change")
    environment = environment_of(directory, path)
    if environment is None:
        raise ReadOnly(f"opencode does not keep its sessions in {directory}")
    return OpencodeProgram(environment, directory, path)
