"""An MCP server over standard streams, or with `http` over a free port, which it prints.

With `http TOKEN` it requires that bearer token. `POST /token` prints the form of the request, and
returns the token for the refresh token `again`.
"""

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


def bearer(token: str) -> tuple[bytes, bytes]:
    return b"authorization", f"Bearer {token}".encode()


def serve_http(token: str = "") -> None:
    import uvicorn
    from starlette.requests import Request
    from starlette.responses import JSONResponse

    app = server.streamable_http_app()

    async def exchange(request: Request) -> JSONResponse:
        form = dict(await request.form())
        print(sorted(form.items()), request.headers.get("authorization"), flush=True)
        if form.get("refresh_token") != "again":
            return JSONResponse({"error": "invalid_grant"}, 400)
        return JSONResponse({"access_token": token, "expires_in": 3600, "refresh_token": "more"})

    async def listening(scope, receive, send):  # type: ignore[no-untyped-def]
        headers = scope.get("headers", ())
        seen[:] = [value.decode() for name, value in headers if name == b"x-key"]
        if scope.get("path") == "/token":
            answer = await exchange(Request(scope, receive))
            await answer(scope, receive, send)
        elif token and scope["type"] == "http" and bearer(token) not in headers:
            await JSONResponse({"error": "no"}, 401)(scope, receive, send)
        else:
            await app(scope, receive, send)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(listening, log_level="error")).run([listener])


if __name__ == "__main__":
    serve_http(*sys.argv[2:]) if sys.argv[1:2] == ["http"] else server.run()
