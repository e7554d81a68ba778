"""Operating a server: metrics, logs, rate limits, retry headers and readiness."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from segue.http import limits as limits_module
from segue.http import logs
from segue.http.errors import RateLimited
from segue.http.limits import RateLimiter
from segue.model import errors
from tests.interfaces.rest.api import Api, message, open_api


async def read_metrics(api: Api) -> dict[str, float]:
    response = await api.client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = [line for line in response.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


async def test_metrics_count_requests_by_route_and_status(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        session = await api.session()
        for _ in range(3):
            await api.ok("GET", f"/v1/sessions/{session['id']}")
        await api.fails(404, "GET", "/v1/sessions/sesn_nothing")
        await api.client.get("/v1/nothing")
        samples = await read_metrics(api)
        route = 'route="/v1/sessions/{session_id}"'
        name = "segue_http_requests_total"
        assert samples[f'{name}{{method="GET",{route},status="200"}}'] == 3
        assert samples[f'{name}{{method="GET",{route},status="404"}}'] == 1
        assert samples[f'{name}{{method="GET",route="none",status="404"}}'] == 1
        buckets = [value for key, value in samples.items() if f"seconds_bucket{{{route}" in key]
        assert buckets == sorted(buckets) and buckets[-1] == 4
        assert samples[f"segue_http_request_seconds_count{{{route}}}"] == 4
        assert samples[f"segue_http_request_seconds_sum{{{route}}}"] > 0
        assert samples["segue_store_commits_total"] >= 1
        assert (samples["segue_streams_open"], samples["segue_store_queue"]) == (0, 0)


async def test_metrics_count_running_turns(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        id = (await api.session())["id"]
        for event, running in ((message("/ask Proceed?"), 1), ({"type": "user.interrupt"}, 0)):
            await api.send(id, event)
            async with asyncio.timeout(60):
                while (await read_metrics(api))["segue_turns_running"] != running:
                    await asyncio.sleep(0.01)


async def test_metrics_contain_no_ids_titles_queries_or_keys(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        session = await api.session(title="secret")
        await api.ok("GET", "/v1/sessions", q="hushed")
        text = (await api.client.get("/metrics")).text
        for word in (session["id"], "secret", "hushed", "local", api.key):
            assert word not in text


async def test_log_lines_of_requests_contain_no_secrets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.setFormatter(logs.JsonFormatter())
    caplog.set_level(logging.INFO, "segue.rest")
    async with open_api(tmp_path) as api:
        response = await api.raw("GET", "/v1/sessions", params={"q": "hushed"})
        await api.session(title="a private matter")
        await api.client.get("/v1/sessions", headers={"x-api-key": "sk-segue-guessed"})
    lines = [json.loads(line) for line in caplog.text.splitlines()]
    first = lines[0]
    assert first["request_id"] == response.headers["request-id"]
    assert {name: first[name] for name in ("level", "method", "route", "status", "workspace")} == {
        "level": "info",
        "method": "GET",
        "route": "/v1/sessions",
        "status": 200,
        "workspace": "local",
    }
    assert first["ms"] > 0
    assert (lines[-1]["status"], lines[-1]["workspace"]) == (401, None)
    for word in ("hushed", "private", "guessed", api.key):
        assert word not in caplog.text


async def test_key_over_its_rate_limit_gets_a_retry_after_header(tmp_path: Path) -> None:
    async with open_api(tmp_path, rate_limit=3) as api:
        other = await api.other("w2")
        for left in (2, 1, 0):
            response = await api.raw("GET", "/v1/sessions")
            assert response.status_code == 200
            assert response.headers["anthropic-ratelimit-requests-limit"] == "3"
            assert response.headers["anthropic-ratelimit-requests-remaining"] == str(left)
            assert response.headers["anthropic-ratelimit-requests-reset"].endswith("Z")
        refused = await api.raw("GET", "/v1/sessions")
        assert refused.status_code == 429
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert 1 <= int(refused.headers["retry-after"]) <= 20
        # Another key has its own limit; requests without a key are not counted.
        assert (await other.raw("GET", "/v1/sessions")).status_code == 200
        assert (await api.client.get("/healthz")).status_code == 200
        assert (await api.client.get("/v1/sessions")).status_code == 401


def test_token_bucket_refills_evenly_up_to_the_limit() -> None:
    now = 0.0
    limits = RateLimiter(60, lambda: now)

    def spend() -> int:
        count = 0
        while True:
            try:
                limits.count_request("key")
            except RateLimited:
                return count
            count += 1

    assert spend() == 60
    now += 5.0
    assert spend() == 5
    now += 1e6
    assert spend() == 60


def test_rate_limiter_forgets_the_caller_that_has_sent_nothing_for_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits_module, "MAX_BUCKETS", 3)
    limiter = RateLimiter(1, lambda: 0.0)
    for caller in ("first", "second", "third"):
        limiter.count_request(caller)
    with pytest.raises(RateLimited):
        limiter.count_request("first")  # now the second caller has sent nothing for longest
    limiter.count_request("fourth")
    for caller in ("first", "third", "fourth"):
        with pytest.raises(RateLimited):
            limiter.count_request(caller)
    limiter.count_request("second")


async def test_without_a_rate_limit_there_are_no_rate_limit_headers(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        headers = (await api.raw("GET", "/v1/sessions")).headers
        assert not [name for name in headers if "ratelimit" in name]


@pytest.mark.parametrize(
    ("error", "status", "hint"),
    [
        (errors.StoreLocked("held"), 503, ("retry-after", "1")),
        (errors.StoreFull("full"), 503, ("x-should-retry", "false")),
        (errors.Conflict("taken"), 409, ("x-should-retry", "false")),
        (errors.LeaseLost("lost"), 409, None),
    ],
)
async def test_error_responses_say_whether_to_retry(
    tmp_path: Path, error: errors.SegueError, status: int, hint: tuple[str, str] | None
) -> None:
    async with open_api(tmp_path) as api:

        async def broken(*_: object, **__: object) -> None:
            raise error

        api.hub.sessions.list = broken  # type: ignore[method-assign, assignment]
        response = await api.raw("GET", "/v1/sessions")
        assert response.status_code == status
        retry_headers: dict[str, Any] = {
            name: response.headers[name]
            for name in ("retry-after", "x-should-retry")
            if name in response.headers
        }
        assert retry_headers == (dict([hint]) if hint else {})


async def test_server_that_is_stopping_is_not_ready(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        assert (await api.client.get("/readyz")).status_code == 200
        api.app.closing.set()
        assert (await api.client.get("/readyz")).status_code == 503
        assert (await api.client.get("/healthz")).status_code == 200
