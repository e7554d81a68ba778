"""A small MCP server without the MCP SDK, whose import takes longer than most tests.

As a program it serves standard streams; `http_server` serves a loopback port in a thread.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from http.server import BaseHTTPRequestHandler

PROGRAM = os.path.abspath(__file__)


def add(a: int, b: int) -> int:
    return a + b


def variable(name: str) -> str:
    """Return an environment variable of the server."""
    return f"MCP has {name}={os.environ[name]}"


def process() -> int:
    return os.getpid()


TOOLS: dict[str, Callable[..., Any]] = {"add": add, "variable": variable, "process": process}


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the response to a message, or None for a notification."""
    if "id" not in message:
        return None
    params = message.get("params", {})
    outcome: dict[str, Any]
    match message["method"]:
        case "initialize":
            outcome = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "adder", "version": "1"},
            }
        case "tools/list":
            schema = {"type": "object"}
            outcome = {"tools": [{"name": name, "inputSchema": schema} for name in TOOLS]}
        case "tools/call":
            text = str(TOOLS[params["name"]](**params.get("arguments", {})))
            outcome = {"content": [{"type": "text", "text": text}]}
        case method:
            error = {"code": -32601, "message": f"unknown method {method}"}
            return {"jsonrpc": "2.0", "id": message["id"], "error": error}
    return {"jsonrpc": "2.0", "id": message["id"], "result": outcome}


@contextmanager
def http_server(handle: Callable[["BaseHTTPRequestHandler", bytes], None]) -> Iterator[str]:
    """Serve POST requests with `handle(request, body)`, and return the server's URL."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            handle(self, self.rfile.read(int(self.headers["content-length"])))

        def do_GET(self) -> None:  # the stream of the server's own messages; it has none
            send(self, 405, None)

        do_DELETE = do_GET

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def send(request: "BaseHTTPRequestHandler", status: int, content: Any) -> None:
    """Send a response with JSON, or with no content for None."""
    body = b"" if content is None else json.dumps(content).encode()
    request.send_response(status)
    request.send_header("content-type", "application/json")
    request.send_header("content-length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


if __name__ == "__main__":
    for line in sys.stdin:
        if (response := answer(json.loads(line))) is not None:
            print(json.dumps(response), flush=True)
