"""A server of the MCP SDK, over standard streams or, with `http`, over a port that it prints."""

import os
import socket
import sys

from mcp.server import MCPServer

server = MCPServer("adder", log_level="ERROR")
seen: list[str] = []


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
def secret() -> str:
    """Return the secret that the server received."""
    return os.environ.get("SECRET", "") or " ".join(seen)


@server.tool()
def place() -> str:
    return os.getcwd()


@server.tool()
def process() -> int:
    return os.getpid()


@server.tool()
def fail() -> str:
    raise RuntimeError("failed on request")


def serve_http() -> None:
    import uvicorn

    app = server.streamable_http_app()

    async def listening(scope, receive, send):  # type: ignore[no-untyped-def]
        headers = scope.get("headers", ())
        seen[:] = [value.decode() for name, value in headers if name == b"x-key"]
        await app(scope, receive, send)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(listening, log_level="error")).run([listener])


if __name__ == "__main__":
    serve_http() if sys.argv[1:] == ["http"] else server.run()
