"""The door in this process: a hub on a real SQLite file, and requests as clients send them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from segue.hub import Hub
from segue.interfaces.rest import RestApp
from segue.model import ids
from segue.model.principal import Principal
from segue.store.base import Store
from segue.store.postgres import PostgresStore
from segue.store.sqlite import SQLiteStore
from tests.interfaces.rest.judge import judge

BETA = "managed-agents-2026-04-01"
HEADERS = {"anthropic-version": "2023-06-01", "anthropic-beta": BETA}


class Api:
    """One key's requests. An answer is the status and the decoded body."""

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
        answer = await self.raw(method, path, **options)
        status, told = answer.status_code, answer.json()
        kind = answer.headers["content-type"]
        judge(method, answer.request.url.raw_path.decode().split("?")[0], status, kind, told)
        return status, told

    async def ok(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        """The body of an answer that must be a success."""
        status, answer = await self.call(method, path, **_options(body, params))
        assert status == 200, answer
        return answer

    async def fails(
        self, status: int, method: str, path: str, body: Any = None, **params: Any
    ) -> str:
        """The message of an answer that must be this error."""
        found, answer = await self.call(method, path, **_options(body, params))
        assert found == status, answer
        assert answer["type"] == "error" and answer["request_id"].startswith("req_")
        return answer["error"]["message"]

    async def other(self, workspace: str) -> "Api":
        """The same door, seen from another workspace."""
        _, key = await self.hub.keys.create(workspace)
        return Api(self.app, self.client, workspace, key)

    # What most tests begin with.

    async def agent(self, **fields: Any) -> dict[str, Any]:
        body = {"name": "a", "model": "claude-sonnet-4-6", **fields}
        return await self.ok("POST", "/v1/agents", body)

    async def environment(self) -> str:
        return (await self.ok("POST", "/v1/environments", {"name": "e"}))["id"]

    async def session(self, **fields: Any) -> dict[str, Any]:
        body = {"agent": await self.built_in("agents"), **fields}
        body.setdefault("environment_id", await self.built_in("environments"))
        made = await self.ok("POST", "/v1/sessions", body)
        await self.hub.workdirs.wait_mounted()  # for whoever looks into its directory
        return made

    async def built_in(self, kind: str) -> str:
        if kind == "agents":
            return ids.format_id(
                "agent", (await self.hub.records.built_in_agent(self.workspace)).id
            )
        return ids.format_id("env", self.hub.records.built_in_environment(self.workspace))

    async def say(self, session: str, text: str) -> list[dict[str, Any]]:
        """Send a message, and wait for the turn to rest."""
        turn = await self.send(session, message(text))
        id = ids.parse(turn["data"][0]["id"])
        await self.hub.turns.wait(self.principal, ids.parse(session) or "", id or "")
        return await self.events(session)

    async def send(self, session: str, *events: dict[str, Any]) -> Any:
        return await self.ok("POST", f"/v1/sessions/{session}/events", {"events": list(events)})

    async def events(self, session: str, **params: Any) -> list[dict[str, Any]]:
        return (await self.ok("GET", f"/v1/sessions/{session}/events", **params))["data"]


def _options(body: Any, params: dict[str, Any]) -> dict[str, Any]:
    # An empty `params` would take away those that stand in the path.
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
    """The door over a store: the one given, the PostgreSQL of an address, or a file here."""
    if database is not None:
        store = await PostgresStore.open(database)
    store = store or SQLiteStore.open(directory / "segue.db")
    async with Hub(store, directory, **options) as hub:
        _, key = await hub.keys.create("local")
        # Errors of ours must come back as answers, as they would from a server.
        app = RestApp(hub, rate_limit=rate_limit)
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield Api(app, client, "local", key)
