"""The REST API and the session browser as one application."""

from pathlib import Path

import httpx2
import pytest

from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.server.app import ServerApp
from segue.server.settings import ServerSettings
from segue.store.sqlite import SQLiteStore
from tests.interfaces.rest.api import HEADERS


@pytest.mark.parametrize(
    ("path", "status", "media_type"),
    [
        ("/v1/sessions", 401, "application/json"),
        ("/v1/nothing", 404, "application/json"),
        ("/v1/", 404, "application/json"),
        ("/healthz", 200, "text/plain; charset=utf-8"),
        ("/readyz", 200, "text/plain; charset=utf-8"),
        ("/metrics", 200, "text/plain; version=0.0.4; charset=utf-8"),
        ("/openapi.json", 200, "application/json"),
        ("/", 401, "text/html; charset=utf-8"),
        ("/login", 200, "text/html; charset=utf-8"),
        ("/v1", 404, "text/html; charset=utf-8"),
        ("/healthz/", 404, "text/html; charset=utf-8"),
    ],
)
async def test_a_path_belongs_to_one_interface(
    tmp_path: Path, path: str, status: int, media_type: str
) -> None:
    async with Hub(SQLiteStore.open(tmp_path / "segue.db"), tmp_path) as hub:
        app = ServerApp(hub, ServerSettings(directory=tmp_path))
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            response = await client.get(path)
    assert (response.status_code, response.headers["content-type"]) == (status, media_type)


async def test_both_interfaces_serve_the_same_hosts_and_stop_together(tmp_path: Path) -> None:
    async with Hub(SQLiteStore.open(tmp_path / "segue.db"), tmp_path) as hub:
        _, key = await hub.keys.create("local")
        app = ServerApp(hub, ServerSettings(directory=tmp_path, hosts=("segue.example",)))
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for host, allowed in (("segue.example", True), ("other.example", False)):
                for path in ("/v1/sessions", "/login"):
                    headers = {**HEADERS, "x-api-key": key, "host": host}
                    response = await client.get(path, headers=headers)
                    assert response.status_code == (200 if allowed else 403)
            assert app.rest.closing is app.web.closing is app.closing


async def test_rate_limit_counts_the_requests_of_a_key_to_all_interfaces(tmp_path: Path) -> None:
    async with Hub(SQLiteStore.open(tmp_path / "segue.db"), tmp_path) as hub:
        _, key = await hub.keys.create("local")
        _, other_key = await hub.keys.create("local")
        app = ServerApp(hub, ServerSettings(directory=tmp_path, rate_limit=3))
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await client.post("/login", data={"key": key})
            headers = {**HEADERS, "x-api-key": key}
            assert (await client.get("/")).status_code == 200
            assert (await client.get("/v1/sessions", headers=headers)).status_code == 200
            assert (await client.get("/rows")).status_code == 200
            refused = await client.get("/")
            assert refused.status_code == 429
            assert "3 requests a minute" in refused.text
            assert int(refused.headers["retry-after"]) >= 1
            assert (await client.get("/v1/sessions", headers=headers)).status_code == 429
            headers["x-api-key"] = other_key
            assert (await client.get("/v1/sessions", headers=headers)).status_code == 200


async def test_rate_limit_counts_readers_of_a_share_link_and_attempts_to_sign_in(
    tmp_path: Path,
) -> None:
    async with Hub(SQLiteStore.open(tmp_path / "segue.db"), tmp_path) as hub:
        session = await hub.editor.create(LOCAL, cwd="/p")
        link = f"/shared/local/{session.id}/{await hub.shares.share(LOCAL, session.id)}"
        app = ServerApp(hub, ServerSettings(directory=tmp_path, rate_limit=2))
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            statuses = [(await client.get(link)).status_code for _ in range(3)]
            assert statuses == [200, 200, 429]
            attempts = [
                (await client.post("/login", data={"key": "wrong"})).status_code for _ in range(3)
            ]
            assert attempts == [401, 401, 429]
            assert (await client.get("/favicon.ico")).status_code == 307
