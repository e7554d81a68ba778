"""An MCP server: on its standard streams, or with `http` on a port of its own, which it prints."""

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
    """What it was given to keep."""
    return os.environ.get("SECRET", "") or " ".join(seen)


@server.tool()
def place() -> str:
    return os.getcwd()


@server.tool()
def process() -> int:
    return os.getpid()


@server.tool()
def fail() -> str:
    raise RuntimeError("as it was told to")


def serve_http() -> None:
    import uvicorn

    app = server.streamable_http_app()

    async def listening(scope, receive, send):  # type: ignore[no-untyped-def]
        seen[:] = [value.decode() for name, value in scope.get("headers", ()) if name == b"x-key"]
        await app(scope, receive, send)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(listening, log_level="error")).run([listener])


if __name__ == "__main__":
    serve_http() if sys.argv[1:] == ["http"] else server.run()
