"""The REST API in this process, over a real database, and requests as clients send them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from segue.http.limits import RateLimiter
from segue.hub import Hub
from segue.hub.resources.records import built_in_environment
from segue.interfaces.rest import RestApp
from segue.model import ids
from segue.model.principal import Principal
from segue.store.base import Store
from segue.store.postgres import PostgresStore
from segue.store.sqlite import SQLiteStore
from tests.interfaces.rest.response_check import check_response

BETA = "managed-agents-2026-04-01"
HEADERS = {"anthropic-version": "2023-06-01", "anthropic-beta": BETA}


class Api:
    """Send requests with one API key, and check each response against the OpenAPI document."""

    def __init__(self, app: RestApp, client: httpx2.AsyncClient, workspace: str, key: str) -> None:
        self.app = app
        self.hub = app.hub
        self.client = client
        self.workspace = workspace
        self.key = key
        self.principal = Principal(workspace=workspace)

    async def raw(self, method: str, path: str, **options: Any) -> httpx2.Response:
        headers = {**HEADERS, "x-api-key": self.key, **options.pop("headers", {})}
        return await self.client.request(method, path, headers=headers, **options)

    async def call(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """Send a request, and return the status and the decoded body of the response."""
        response = await self.raw(method, path, **options)
        status, body = response.status_code, response.json()
        content_type = response.headers["content-type"]
        url_path = response.request.url.raw_path.decode().split("?")[0]
        check_response(method, url_path, status, content_type, body)
        return status, body

    async def ok(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        """Send a request that must succeed, and return the body of the response."""
        status, response = await self.call(method, path, **_options(body, params))
        assert status == 200, response
        return response

    async def fails(
        self, status: int, method: str, path: str, body: Any = None, **params: Any
    ) -> str:
        """Send a request that must fail with a status, and return the error message."""
        actual_status, response = await self.call(method, path, **_options(body, params))
        assert actual_status == status, response
        assert response["type"] == "error" and response["request_id"].startswith("req_")
        return response["error"]["message"]

    async def other(self, workspace: str) -> "Api":
        """Return the same API with a key of another workspace."""
        _, key = await self.hub.keys.create(workspace)
        return Api(self.app, self.client, workspace, key)

    # What most tests start with.

    async def agent(self, **fields: Any) -> dict[str, Any]:
        body = {"name": "a", "model": "claude-sonnet-4-6", **fields}
        return await self.ok("POST", "/v1/agents", body)

    async def environment(self) -> str:
        return (await self.ok("POST", "/v1/environments", {"name": "e"}))["id"]

    async def session(self, **fields: Any) -> dict[str, Any]:
        body = {"agent": await self.built_in("agents"), **fields}
        body.setdefault("environment_id", await self.built_in("environments"))
        session = await self.ok("POST", "/v1/sessions", body)
        await self.hub.workdirs.wait_mounted()  # for tests that read its directory
        return session

    def directory(self, session: dict[str, Any]) -> Path:
        """Return the directory that segue made for a session."""
        return Path(self.hub.session_directories) / (ids.parse(session["id"]) or "")

    async def built_in(self, kind: str) -> str:
        if kind == "agents":
            return ids.format_id(
                "agent", (await self.hub.records.built_in_agent(self.workspace)).id
            )
        return ids.format_id("env", built_in_environment(self.workspace))

    async def say(self, session: str, text: str) -> list[dict[str, Any]]:
        """Send a message, wait until the turn ends, and return the session's events."""
        turn = await self.send(session, message(text))
        id = ids.parse(turn["data"][0]["id"])
        await self.hub.turns.wait(self.principal, ids.parse(session) or "", id or "")
        return await self.events(session)

    async def send(self, session: str, *events: dict[str, Any]) -> Any:
        return await self.ok("POST", f"/v1/sessions/{session}/events", {"events": list(events)})

    async def events(self, session: str, **params: Any) -> list[dict[str, Any]]:
        return (await self.ok("GET", f"/v1/sessions/{session}/events", **params))["data"]


def _options(body: Any, params: dict[str, Any]) -> dict[str, Any]:
    # An empty `params` would remove the query from the path.
    return ({} if body is None else {"json": body}) | ({"params": params} if params else {})


def message(text: str) -> dict[str, Any]:
    return {"type": "user.message", "content": [{"type": "text", "text": text}]}


@asynccontextmanager
async def open_api(
    directory: Path,
    *,
    store: Store | None = None,
    database: str | None = None,
    rate_limit: int = 0,
    **options: Any,
) -> AsyncIterator[Api]:
    """Yield the API over a store, a PostgreSQL database or, by default, an SQLite file."""
    if database is not None:
        store = await PostgresStore.open(database)
    store = store or SQLiteStore.open(directory / "segue.db")
    async with Hub(store, directory, **options) as hub:
        _, key = await hub.keys.create("local")
        app = RestApp(hub, rate_limiter=RateLimiter(rate_limit))
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield Api(app, client, "local", key)
