"""A program that changes the test's database as opencode's own program would.

`install` puts it on the path. Python runs it: `opencode serve` and `opencode import`.
"""

import base64
import json
import os
import signal
import sqlite3
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any


def install(directory: Path) -> None:
    """Write the program into a directory."""
    from .opencode_rows import SCHEMA

    path = directory / "opencode"
    directory.mkdir(exist_ok=True)
    code = Path(__file__).read_text()
    path.write_text(f"#!{sys.executable} -IS\n{code}\nmain({SCHEMA!r})\n")
    path.chmod(0o755)


def database() -> str:
    name = os.environ.get("OPENCODE_CHANNEL_DB", "opencode.db")
    return os.path.join(os.environ["XDG_DATA_HOME"], "opencode", name)


def connect() -> sqlite3.Connection:
    connection = sqlite3.connect(database(), timeout=5)
    connection.row_factory = sqlite3.Row
    return connection


def read_session(connection: sqlite3.Connection, id: str) -> dict[str, Any] | None:
    row = connection.execute("SELECT * FROM session WHERE id = ?", (id,)).fetchone()
    if row is None:
        return None
    times = {"created": row["time_created"], "updated": row["time_updated"]}
    names = {"id": "id", "parentID": "parent_id", "directory": "directory", "title": "title"}
    info = {name: row[column] for name, column in names.items() if row[column] is not None}
    return {**info, "projectID": row["project_id"], "slug": "a-b", "version": "1", "time": times}


def read_messages(connection: sqlite3.Connection, id: str) -> list[dict[str, Any]]:
    messages = []
    sql = "SELECT * FROM message WHERE session_id = ? ORDER BY time_created, id"
    for row in connection.execute(sql, (id,)).fetchall():
        info = {**json.loads(row["data"]), "id": row["id"], "sessionID": id}
        parts = [
            {**json.loads(part["data"]), "id": part["id"], "sessionID": id, "messageID": row["id"]}
            for part in connection.execute(
                "SELECT * FROM part WHERE message_id = ? ORDER BY id", (row["id"],)
            )
        ]
        messages.append({"info": info, "parts": parts})
    return messages


def import_session(exported: dict[str, Any]) -> None:
    info = exported["info"]
    times = info["time"]
    with connect() as connection:
        connection.execute(
            "INSERT INTO session (id, project_id, parent_id, slug, directory, title, version,"
            " time_created, time_updated) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                info["id"],
                info["projectID"],
                info.get("parentID"),
                info["slug"],
                info["directory"],
                info["title"],
                info["version"],
                times["created"],
                times["updated"],
            ),
        )
        for message in exported["messages"]:
            data = message["info"]
            created = data["time"]["created"]
            row = (data.pop("id"), data.pop("sessionID"), created, created, json.dumps(data))
            connection.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", row)
            connection.commit()  # opencode does not import a session at once
            for part in message["parts"]:
                if part["type"] == "tool" and "callID" not in part:
                    sys.exit("Missing key callID")
                ids = (part.pop("id"), part.pop("messageID"), part.pop("sessionID"))
                values = (*ids, created, created, json.dumps(part))
                connection.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", values)


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of segue to a database."""

    def log_message(self, format: str, *values: Any) -> None:
        """Print nothing."""

    def handle_request(self) -> None:
        password = os.environ["OPENCODE_SERVER_PASSWORD"]
        token = base64.b64encode(f"opencode:{password}".encode()).decode()
        if self.headers["Authorization"] != f"Basic {token}":
            self.answer(401, {"name": "Unauthorized"})
            return
        if self.path == "/config":
            self.answer(200, {"model": "some/model"})
            return
        size = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(size) or b"{}")
        id = self.path.split("/")[2]
        with connect() as connection:
            session = read_session(connection, id)
            if session is None:
                self.answer(404, {"name": "NotFoundError"})
            elif self.command == "GET":
                is_list = self.path.endswith("/message")
                self.answer(200, read_messages(connection, id) if is_list else session)
            elif self.command == "PATCH":
                self.patch(connection, id, body)
            else:
                if seconds := os.environ.get("OPENCODE_DELETE_SECONDS"):
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends after it has deleted
                    time.sleep(float(seconds))
                sql = "SELECT id FROM session WHERE id = ? OR parent_id = ?"
                for (family,) in connection.execute(sql, (id, id)).fetchall():
                    for table in ("part", "message"):
                        connection.execute(f"DELETE FROM {table} WHERE session_id = ?", (family,))
                    connection.execute("DELETE FROM session WHERE id = ?", (family,))
                connection.commit()
                if seconds:
                    os._exit(0)
                self.answer(200, True)

    do_GET = do_PATCH = do_DELETE = handle_request

    def patch(self, connection: sqlite3.Connection, id: str, body: dict[str, Any]) -> None:
        if "title" in body:
            connection.execute("UPDATE session SET title = ? WHERE id = ?", (body["title"], id))
        if "time" in body:
            sql = "UPDATE session SET time_archived = ? WHERE id = ?"
            connection.execute(sql, (body["time"]["archived"], id))
        connection.commit()
        self.answer(200, read_session(connection, id))

    def answer(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main(schema: str) -> None:
    if not os.path.exists(database()):
        connect().executescript(schema)
    if sys.argv[1] == "import":
        exported = json.loads(Path(sys.argv[2]).read_text())
        if exported["info"]["id"] != os.environ.get("OPENCODE_IGNORED_IMPORT"):
            import_session(exported)
        return
    server = HTTPServer(("127.0.0.1", 0), Handler)
    print(f"opencode server listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
