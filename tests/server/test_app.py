"""The REST API and the session browser as one application."""

from pathlib import Path

import httpx2
import pytest

from segue.hub import Hub
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
