"""Change Goose's sessions with Goose's own program, which alone writes its database.

`goose acp` renames, archives and deletes; `goose session export` and `goose session import` pass
whole sessions. An import always gets a new id.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from typing import Any

import msgspec

from segue.model.errors import AgentFailed, ReadOnly
from segue.sources import safe_io
from segue.sources.base import OverlayOnly
from segue.sources.kit.edit import programs
from segue.sources.kit.edit.row_trash import (
    RowTrash,
    TrashedSession,
    deletion,
    require_imported,
    rows_of_sessions,
)

PROGRAM = "goose"
# The fields of an export that count tokens.
_TOTALS = frozenset(
    {"usage", "accumulated_usage", "accumulated_cost", "total_tokens", "input_tokens"}
    | {"output_tokens", "cache_read_tokens", "cache_write_tokens", "accumulated_total_tokens"}
    | {"accumulated_input_tokens", "accumulated_output_tokens"}
)
_IMPORTED = re.compile(r"^(\d{8}_\d+) - ", re.MULTILINE)


def find_program(directory: str) -> GooseProgram | None:
    """Return the program for a directory of sessions; None if it is not installed."""
    environment = _environment(directory)
    if environment is None or not programs.is_installed(PROGRAM):
        return None
    return GooseProgram(environment, directory)


def require_program(directory: str) -> GooseProgram:
    """Return the program for a directory of sessions; raises ReadOnly without it."""
    programs.find(PROGRAM, "this change")
    environment = _environment(directory)
    if environment is None:
        raise ReadOnly(f"Goose does not keep its sessions in {directory}")
    return GooseProgram(environment, directory)


def _environment(directory: str) -> programs.Environment | None:
    """Return the variables with which Goose uses a directory of sessions; None if there are none.

    The program must not change the sessions of another home.
    """
    data, name = os.path.split(directory)
    base, product = os.path.split(data)
    if name == "sessions" and product == "data":
        return {"GOOSE_PATH_ROOT": base}
    if name == "sessions" and product == "goose":
        return {"XDG_DATA_HOME": base, "GOOSE_PATH_ROOT": None}
    return None


class GooseProgram:
    """Goose's program, for the sessions of one directory."""

    def __init__(self, environment: programs.Environment, directory: str) -> None:
        self._environment = environment
        self._directory = directory

    def rename(self, native_id: str, title: str | None) -> None:
        """Name a session; raises OverlayOnly if Goose cannot do it."""
        if title is None:
            raise OverlayOnly("Goose removes no names")
        self._call("_goose/unstable/session/rename", sessionId=native_id, title=title)

    def set_archived(self, native_id: str, *, archived: bool) -> None:
        """Archive a session, or show it again; raises OverlayOnly if Goose cannot do it."""
        method = "archive" if archived else "unarchive"
        self._call(f"_goose/unstable/session/{method}", sessionId=native_id)

    def delete(self, native_id: str) -> None:
        """Delete a session; raises OverlayOnly if this version has no such method."""
        self._call("session/delete", sessionId=native_id)

    def export(self, native_id: str) -> bytes:
        """Return a session as Goose exports it."""
        output = self._run("export", "--session-id", native_id, "--format", "json")
        data = output[output.find("{") :].encode()
        try:
            msgspec.json.decode(data, type=dict[str, Any])
        except msgspec.MsgspecError:
            raise AgentFailed(f"Goose did not export session {native_id}") from None
        return data

    def import_file(self, path: str) -> str:
        """Import a session, and return the id that Goose gives it."""
        match = _IMPORTED.search(self._run("import", path))
        if match is None:
            raise AgentFailed("Goose did not print the id of the imported session")
        return match[1]

    def import_data(self, data: bytes) -> str:
        """Import a session, and return the id that Goose gives it."""
        with tempfile.TemporaryDirectory(prefix="segue-") as directory:
            path = os.path.join(directory, "session.json")
            safe_io.write_file(path, [data])
            return self.import_file(path)

    def _run(self, *arguments: str) -> str:
        command = (programs.find(PROGRAM, "this change"), "session", *arguments)
        return programs.run(command, cwd=self._directory, environment=self._environment)

    def _call(self, method: str, **params: Any) -> None:
        command = (programs.find(PROGRAM, "this change"), "acp")
        with programs.running(
            command, cwd=self._directory, environment=self._environment
        ) as server:
            server.call("initialize", protocolVersion=1, clientCapabilities={})
            try:
                server.call(method, **params)
            except programs.UnknownMethod as error:
                raise OverlayOnly(str(error)) from None


def trash(
    program: GooseProgram, trash: RowTrash, path: str, native_id: str, subagents: Sequence[str]
) -> None:
    """Move a session to the trash, with copies of its subagents' rows: Goose keeps those."""
    ids = (native_id, *subagents)
    rows = rows_of_sessions(path, "sessions", ids, "session_id")
    trashed = trash.add(native_id, path, rows, [program.export(native_id)])
    with deletion(trashed, path, "sessions"):
        program.delete(native_id)


def restore(program: GooseProgram, trashed: TrashedSession, path: str) -> str:
    """Import a session into a database again, and return its new id."""
    native_id = program.import_file(trashed.exports()[0])
    require_imported([path], "sessions", native_id)
    trashed.remove()
    return native_id


def fork(
    program: GooseProgram, native_id: str, *, messages: int, cwd: str | None, title: str | None
) -> str:
    """Import a copy of a session with its first messages only, and return its id."""
    session = msgspec.json.decode(program.export(native_id), type=dict[str, Any])
    conversation = session.get("conversation")
    kept = conversation[:messages] if isinstance(conversation, list) else []
    name = session.get("name") or native_id
    session |= {
        "conversation": kept,
        "message_count": len(kept),
        "working_dir": cwd or session.get("working_dir"),
        "name": title or f"{name} (copy)",  # as Goose names a copy
        "user_set_name": title is not None,
        "archived_at": None,
    }
    for field in session.keys() & _TOTALS:  # the tokens are those of the other session
        del session[field]
    return program.import_data(msgspec.json.encode(session))
