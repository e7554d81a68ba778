"""A program that changes the test's database as Goose's own program would.

`install` puts it on the path. Python runs it: `goose acp`, `goose session export` and
`goose session import`.
"""

import json
import os
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

PREFIX = "_goose/unstable/session/"


def install(
    directory: Path, *, without: str = "", fails_after: str = "", ignores: str = ""
) -> None:
    """Write the program into a directory.

    `without` is a method that this version lacks, `fails_after` one that fails after its change,
    `ignores` one that changes nothing.
    """
    from .goose_rows import SCHEMA

    path = directory / "goose"
    directory.mkdir(exist_ok=True)
    faults = (without, fails_after, ignores)
    code = Path(__file__).read_text()
    path.write_text(f"#!{sys.executable} -IS\n{code}\nmain({faults!r}, {SCHEMA!r})\n")
    path.chmod(0o755)


def database() -> str:
    root = os.environ.get("GOOSE_PATH_ROOT")
    data = os.path.join(root, "data") if root else f"{os.environ['XDG_DATA_HOME']}/goose"
    return os.path.join(data, "sessions", "sessions.db")


def connect() -> sqlite3.Connection:
    connection = sqlite3.connect(database(), timeout=5)
    connection.row_factory = sqlite3.Row
    return connection


def change(method: str, params: dict[str, Any]) -> None:
    """Change a session; raises LookupError if there is none."""
    id = params["sessionId"]
    with connect() as connection:
        if method == f"{PREFIX}rename":
            sql = "UPDATE sessions SET name = ?, user_set_name = 1 WHERE id = ?"
            count = connection.execute(sql, (params["title"], id)).rowcount
        elif method == "session/delete":
            connection.execute("DELETE FROM messages WHERE session_id = ?", (id,))
            count = connection.execute("DELETE FROM sessions WHERE id = ?", (id,)).rowcount
        else:
            archived = "2026-01-01 12:00:00" if method.endswith("/archive") else None
            sql = "UPDATE sessions SET archived_at = ? WHERE id = ?"
            count = connection.execute(sql, (archived, id)).rowcount
    if not count:
        raise LookupError(id)


def answer(message: dict[str, Any], faults: tuple[str, str, str]) -> dict[str, Any]:
    method = message["method"]
    without, fails_after, ignores = faults
    if method in ("initialize", ignores):
        return {"result": {}}
    if method == without:
        return {"error": {"code": -32601, "message": "Method not found"}}
    try:
        change(method, message["params"])
    except LookupError:
        fails_after = method
    if method == fails_after:
        return {"error": {"code": -32603, "message": "Internal error"}}
    return {"result": {}}


def export(id: str) -> str:
    with connect() as connection:
        row = connection.execute("SELECT * FROM sessions WHERE id = ?", (id,)).fetchone()
        if row is None:
            sys.exit(f"Error: Session '{id}' not found")
        sql = "SELECT * FROM messages WHERE session_id = ? ORDER BY created_timestamp, id"
        messages = connection.execute(sql, (id,)).fetchall()
    conversation = [
        {
            "id": message["message_id"],
            "role": message["role"],
            "created": message["created_timestamp"],
            "content": json.loads(message["content_json"]),
            "metadata": json.loads(message["metadata_json"]),
        }
        for message in messages
    ]
    names = ("id", "name", "user_set_name", "working_dir", "session_type")
    return json.dumps({**{name: row[name] for name in names}, "conversation": conversation})


def import_file(path: str) -> None:
    session = json.loads(Path(path).read_text())
    today = time.strftime("%Y%m%d", time.gmtime())
    now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    with connect() as connection:
        ids = connection.execute("SELECT id FROM sessions WHERE id LIKE ?", (f"{today}_%",))
        id = f"{today}_{max([int(row[0].split('_')[1]) for row in ids], default=0) + 1}"
        connection.execute(
            "INSERT INTO sessions (id, name, user_set_name, working_dir, created_at, updated_at)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (id, session["name"], session["user_set_name"], session["working_dir"], now, now),
        )
        for message in session["conversation"]:
            connection.execute(
                "INSERT INTO messages"
                " (message_id, session_id, role, content_json, created_timestamp, metadata_json)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (
                    message["id"],
                    id,
                    message["role"],
                    json.dumps(message["content"]),
                    message["created"],
                    json.dumps(message["metadata"]),
                ),
            )
    print(f"Session imported:\n{id} - {session['name']}")


def main(faults: tuple[str, str, str], schema: str) -> None:
    if not os.path.exists(database()):
        connect().executescript(schema)
    if sys.argv[1] == "acp":
        for line in sys.stdin:
            message = json.loads(line)
            print(json.dumps({"id": message["id"], **answer(message, faults)}), flush=True)
    elif sys.argv[2] == "export":
        print(export(sys.argv[sys.argv.index("--session-id") + 1]))
    else:
        import_file(sys.argv[3])
