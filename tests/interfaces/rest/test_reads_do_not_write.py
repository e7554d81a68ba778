"""Every GET route works on a read-only store and writes nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from segue.hub import Hub
from segue.interfaces.rest import RestApp
from segue.interfaces.rest.routes import PUBLIC_ROUTES, ROUTES
from segue.model import clock
from tests.hub.test_reads_do_not_write import ReadOnlyStore
from tests.interfaces.rest.api import Api, open_api
from tests.interfaces.rest.test_files import upload_file
from tests.interfaces.rest.test_isolation import create_resources

POLL = "/v1/environments/{environment_id}/work/poll"  # a GET that hands out work
READS = [route.path for route in ROUTES if route.method == "GET" and route.path != POLL]


@asynccontextmanager
async def read_only_api(api: Api) -> AsyncIterator[Api]:
    """Yield the same API on a store that fails the test when it is written to."""
    store: Any = ReadOnlyStore(api.hub.store)  # type: ignore[arg-type]
    app = RestApp(Hub(store, api.hub.data_dir))
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app), base_url="http://localhost"
    ) as client:
        yield Api(app, client, api.workspace, api.key)


async def queue_work(api: Api) -> dict[str, str]:
    """Queue work in a self-hosted environment, and return the ids in the paths of its routes."""
    config = {"name": "workers", "config": {"type": "self_hosted"}}
    environment_id = (await api.ok("POST", "/v1/environments", config))["id"]
    session = await api.session(environment_id=environment_id)
    await api.say(session["id"], "hello")
    (item,) = (await api.ok("GET", f"/v1/environments/{environment_id}/work"))["data"]
    return {"environment_id": environment_id, "work_id": item["id"]}


async def end_session(api: Api) -> dict[str, str]:
    """Archive a session, whose streams end at once, and return the ids in their paths."""
    session = await api.session()
    await api.say(session["id"], "hello")
    threads = await api.ok("GET", f"/v1/sessions/{session['id']}/threads")
    await api.ok("POST", f"/v1/sessions/{session['id']}/archive")
    return {"session_id": session["id"], "thread_id": threads["data"][0]["id"]}


async def test_get_requests_write_nothing(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        names = {**await create_resources(api), **await queue_work(api), "model_id": "demo"}
        ended = await end_session(api)
        async with read_only_api(api) as reader:
            for path in READS:
                values = {**names, **ended} if path.endswith("/stream") else names
                response = await reader.raw("GET", path.format(**values))
                assert response.status_code == 200, (path, response.text)
            for path in PUBLIC_ROUTES.keys() - {"/readyz"}:  # which tests a write
                assert (await reader.raw("GET", path)).status_code == 200


async def test_reading_an_expired_file_writes_nothing_to_a_read_only_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_api(tmp_path) as api:
        file = await upload_file(api, expires_in_seconds="3600")
        later = clock.now() + 3601 * clock.SECOND
        monkeypatch.setattr(clock, "now", lambda: later)
        async with read_only_api(api) as reader:
            message = await reader.fails(404, "GET", f"/v1/files/{file['id']}/content")
            assert "expired" in message
