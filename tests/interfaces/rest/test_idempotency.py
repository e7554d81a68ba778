"""A POST that is sent again with its Idempotency-Key takes effect once."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from segue.hub.access import idempotency
from segue.hub.turns import holder
from segue.interfaces.rest.handlers import agents
from segue.interfaces.rest.routes import ROUTES
from segue.store.memory import MemoryStore
from tests.interfaces.rest.api import Api, open_api

AGENT = {"name": "a", "model": "m"}


async def post(
    api: Api, path: str = "/v1/agents", body: Any = None, key: str = "k", **options: Any
) -> httpx2.Response:
    headers = {"idempotency-key": key}
    if body is not None:
        options["json"] = body
    return await api.raw("POST", path, headers=headers, **options)


async def agent_count(api: Api) -> int:
    agents = (await api.ok("GET", "/v1/agents"))["data"]
    return len([agent for agent in agents if agent["name"] == "a"])


async def test_repeated_request_gets_the_first_answer(tmp_path: Path) -> None:
    await check_repeated_requests(tmp_path)


async def test_postgres_repeats_the_first_answer(tmp_path: Path, fresh_database_url: str) -> None:
    await check_repeated_requests(tmp_path, database=fresh_database_url)


async def test_memory_store_repeats_the_first_answer(tmp_path: Path) -> None:
    await check_repeated_requests(tmp_path, store=MemoryStore())


async def check_repeated_requests(tmp_path: Path, **options: Any) -> None:
    async with open_api(tmp_path, **options) as api:
        answers = await asyncio.gather(*(post(api, body=AGENT) for _ in range(5)))
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.content for answer in answers}) == 1
        replayed = [answer.headers.get("idempotent-replayed") for answer in answers]
        assert replayed.count("true") == 4
        assert await agent_count(api) == 1
        for body, path in (({**AGENT, "name": "b"}, "/v1/agents"), (AGENT, "/v1/vaults")):
            other = await post(api, path, body)
            assert other.status_code == 400 and other.headers["x-should-retry"] == "false"
            assert "another request" in other.json()["error"]["message"]
        assert (await post(api, body=AGENT, key="l")).content != answers[0].content
        assert await agent_count(api) == 2
        neighbour = await api.other("another")
        assert (await post(neighbour, body=AGENT)).content != answers[0].content
    if "store" in options:
        return
    async with open_api(tmp_path, **options) as api:  # after a restart
        assert (await post(api, body=AGENT)).content == answers[0].content
        assert await agent_count(api) == 2


async def test_error_is_repeated_unless_it_asks_to_try_later(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        first = await post(api, body={"name": "a"})
        assert first.status_code == 400
        assert (await post(api, body={"name": "a"})).json() == first.json()
        await api.hub.quotas.set_limit("local", "turns", "1")
        session = (await api.session())["id"]
        events = {
            "events": [{"type": "user.message", "content": [{"type": "text", "text": "/sleep 3"}]}]
        }
        path = f"/v1/sessions/{session}/events"
        other = (await api.session())["id"]
        await api.ok("POST", path, events)
        refused = await post(api, f"/v1/sessions/{other}/events", events, "m")
        assert refused.status_code == 429
        assert await api.hub.records.find("local", "idempotency_key", "m") is None
        again = await post(api, f"/v1/sessions/{other}/events", events, "m")
        assert "idempotent-replayed" not in again.headers


async def test_request_whose_process_ended_is_not_carried_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_api(tmp_path) as api:
        # As if the process had been killed between the effect and the answer.
        assert await api.hub.idempotency_keys.reserve("local", "k") is not None
    async with open_api(tmp_path) as api:
        answer = await post(api, body=AGENT)
        assert answer.status_code == 409 and answer.headers["x-should-retry"] == "false"
        assert "may have taken effect" in answer.json()["error"]["message"]
        assert await agent_count(api) == 0
        # A process on another host cannot be observed, but no request takes this long.
        monkeypatch.setattr(holder, "_own_namespace", lambda: ("another", "host"))
        monkeypatch.setattr(idempotency, "WAIT_SECONDS", 0.1)
        assert (await post(api, body=AGENT)).status_code == 503
        monkeypatch.setattr(idempotency, "MAX_REQUEST_SECONDS", 0)
        assert (await post(api, body=AGENT)).headers["x-should-retry"] == "false"


async def test_unexpected_failure_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_api(tmp_path) as api:

        def fail(_: Any) -> Any:
            raise RuntimeError

        with monkeypatch.context() as patch:
            patch.setattr(agents, "show", fail)
            assert (await post(api, body=AGENT)).status_code == 500
        assert (await post(api, body=AGENT)).status_code == 500
        assert await agent_count(api) == 1


async def test_upload_is_the_same_with_another_boundary(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:

        async def upload(data: bytes, boundary: str) -> httpx2.Response:
            headers = {
                "idempotency-key": "k",
                "content-type": f"multipart/form-data; boundary={boundary}",
            }
            part = b'Content-Disposition: form-data; name="file"; filename="a.bin"'
            start = f"--{boundary}\r\n".encode() + part + b"\r\n\r\n"
            body = start + data + f"\r\n--{boundary}--\r\n".encode()
            return await api.raw("POST", "/v1/files", headers=headers, content=body)

        data = bytes(range(256)) * 5000
        first = await upload(data, "one")
        assert first.status_code == 200
        assert (await upload(data, "another-boundary")).content == first.content
        assert (await upload(data + b"!", "one")).status_code == 400
        assert len((await api.ok("GET", "/v1/files"))["data"]) == 1


async def test_keys_are_forgotten_after_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_api(tmp_path) as api:
        await post(api, body=AGENT)
        monkeypatch.setattr(idempotency, "KEY_SECONDS", 0)
        await post(api, body=AGENT)
        assert await agent_count(api) == 2
        assert len(await api.hub.store.records("local", "idempotency_key")) == 1


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb"])
async def test_invalid_key_is_refused(tmp_path: Path, key: str) -> None:
    async with open_api(tmp_path) as api:
        answer = await post(api, body=AGENT, key=key)
        assert answer.status_code == 400
        assert "idempotency-key: " in answer.json()["error"]["message"]


def test_every_post_has_an_answer_that_can_be_stored() -> None:
    for route in ROUTES:
        if route.method == "POST":
            returned = route.handler.__annotations__["return"]
            assert "Response" not in str(returned).removesuffix("Response"), route.path
