"""The checks of every request: their order and their responses."""

from pathlib import Path

import httpx2
import pytest

from tests.interfaces.rest.api import BETA, HEADERS, open_api


async def test_unknown_path_is_404_even_without_a_key(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        for path in ("/v1/nothing", "/", "/v1/sessions/", "/v1", "/v1/sessions/x/nothing"):
            response = await api.client.get(path)
            assert response.status_code == 404, path
            assert response.json()["error"] == {"type": "not_found_error", "message": "Not found"}


async def test_known_path_is_401_without_a_valid_key(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        for headers in (
            {},
            {"x-api-key": "sk-segue-wrong"},
            {"authorization": "Bearer sk-segue-wrong"},
            {"authorization": f"Basic {api.key}"},
        ):
            response = await api.client.get("/v1/sessions", headers=headers)
            assert response.status_code == 401
            assert response.json()["error"] == {
                "type": "authentication_error",
                "message": "Authentication failed",
            }


async def test_revoked_key_is_401(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        await api.fails(404, "GET", "/v1/sessions/x")
        (key,) = await api.hub.keys.list("local")
        await api.hub.keys.revoke("local", key.id)
        await api.fails(401, "GET", "/v1/sessions/x")


@pytest.mark.parametrize("beta", ["", "other-2026-01-01"])
async def test_missing_beta_header_is_404_and_named_in_the_message(
    tmp_path: Path, beta: str
) -> None:
    async with open_api(tmp_path) as api:
        for path, header in (
            ("/v1/sessions", BETA),
            ("/v1/memory_stores", f"agent-memory-2026-07-22 or {BETA}"),
        ):
            status, response = await api.call("GET", path, headers={"anthropic-beta": beta})
            expected = f"not found without the header anthropic-beta: {header}"
            assert status == 404
            assert response["error"] == {"type": "not_found_error", "message": expected}


async def test_other_beta_headers_are_accepted_with_the_required_one(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        beta = {"anthropic-beta": f"foo-2026-01-01, {BETA}"}
        assert (await api.call("GET", "/v1/sessions", headers=beta))[0] == 200


async def test_version_is_checked_after_the_beta_header(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        key = {"x-api-key": api.key}
        assert (await api.client.get("/v1/sessions", headers=key)).status_code == 404
        beta = {**key, "anthropic-beta": BETA}
        response = await api.client.get("/v1/sessions", headers=beta)
        assert response.status_code == 400
        assert response.json()["error"]["message"] == "anthropic-version: header is required"
        for version, status in (("2023-06-01", 200), ("2026-10-21", 200), ("1999-01-01", 400)):
            headers = {**beta, "anthropic-version": version}
            assert (await api.client.get("/v1/sessions", headers=headers)).status_code == status


async def test_both_key_headers_work_with_and_without_beta_true(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        for sent in ({"x-api-key": api.key}, {"authorization": f"Bearer {api.key}"}):
            for path in ("/v1/sessions", "/v1/sessions?beta=true"):
                response = await api.client.get(path, headers={**HEADERS, **sent})
                assert response.status_code == 200


async def test_request_id_is_in_the_header_and_in_the_envelope(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        bad = await api.raw("GET", "/v1/sessions/nothing")
        good = await api.raw("GET", "/v1/sessions")
        assert bad.json()["request_id"] == bad.headers["request-id"]
        assert good.headers["request-id"].startswith("req_")
        assert good.headers["request-id"] != bad.headers["request-id"]


async def test_unsupported_method_on_a_known_path_is_405(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        status, response = await api.call("PUT", "/v1/sessions")
        assert (status, response["error"]["type"]) == (405, "invalid_request_error")


async def test_unknown_parameter_is_refused_with_the_names_of_the_valid_ones(
    tmp_path: Path,
) -> None:
    async with open_api(tmp_path) as api:
        session = await api.session()
        error = await api.fails(400, "GET", f"/v1/sessions/{session['id']}/events", foo="1")
        assert "'foo'" in error
        for name in ("created_at[gt]", "limit", "order", "page", "types[]"):
            assert name in error
        assert "statuses[]" in await api.fails(400, "GET", "/v1/sessions", foo="1")
        await api.fails(400, "GET", f"/v1/sessions/{session['id']}", limit="1")


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:8787"},
        {"host": ""},
        {"host": "localhost.evil.example"},
        {"host": "[oops"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
    ],
)
async def test_unknown_host_or_origin_is_refused(tmp_path: Path, headers: dict[str, str]) -> None:
    async with open_api(tmp_path) as api:
        status, response = await api.call("GET", "/v1/sessions", headers=headers)
        assert (status, response["error"]["type"]) == (403, "permission_error")


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "127.0.0.1:8787"},
        {"host": "[::1]:1"},
        {"host": "LOCALHOST"},
        {"origin": "http://localhost:5173"},
    ],
)
async def test_loopback_host_names_are_served(tmp_path: Path, headers: dict[str, str]) -> None:
    async with open_api(tmp_path) as api:
        assert (await api.call("GET", "/v1/sessions", headers=headers))[0] == 200


async def test_body_over_32_mb_is_413_and_has_no_effect(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        big = b'{"name": "' + b"x" * (32 * 1024 * 1024) + b'"}'
        status, response = await api.call("POST", "/v1/environments", content=big)
        assert (status, response["error"]["type"]) == (413, "request_too_large")
        assert len((await api.ok("GET", "/v1/environments"))["data"]) == 1


async def test_health_needs_no_key(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        for path in ("/healthz", "/readyz"):
            assert (await api.client.get(path)).status_code == 200


async def test_internal_error_does_not_reveal_its_details(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:

        async def broken(*_: object, **__: object) -> None:
            raise RuntimeError("the secret is plover")

        api.hub.sessions.list = broken  # type: ignore[method-assign, assignment]
        response: httpx2.Response = await api.raw("GET", "/v1/sessions")
        assert response.status_code == 500
        assert response.json()["error"]["type"] == "api_error"
        assert "plover" not in response.text


async def test_request_for_another_workspace_than_the_keys_is_400(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        own = {"anthropic-workspace-id": "local"}
        assert (await api.call("GET", "/v1/sessions", headers=own))[0] == 200
        for other in ("wrkspc_other", ""):
            named = {"anthropic-workspace-id": other}
            status, response = await api.call("GET", "/v1/sessions", headers=named)
            assert status == 400
            assert "anthropic-workspace-id" in response["error"]["message"]


@pytest.mark.parametrize(
    "path",
    [
        *(f"/v1/sessions?{name}=" for name in ("agent_id", "memory_store_id", "deployment_id")),
        "/v1/deployments?agent_id=",
        "/v1/deployment_runs?deployment_id=",
        "/v1/files?scope_id=",
    ],
)
async def test_empty_id_in_a_filter_is_400(tmp_path: Path, path: str) -> None:
    async with open_api(tmp_path) as api:
        name = path.partition("?")[2].removesuffix("=")
        assert await api.fails(400, "GET", path) == f"{name}: must not be empty"


async def test_errors_describe_a_form_of_text_without_its_regular_expression(
    tmp_path: Path,
) -> None:
    async with open_api(tmp_path) as api:
        server = {"type": "url", "name": "s", "url": "ftp://x"}
        sent = {"name": "a", "model": "demo", "mcp_servers": [server]}
        error = await api.fails(400, "POST", "/v1/agents", sent)
        assert error == "mcp_servers[0].url: expected a URL that begins with http:// or https://"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"title": ', "is not valid JSON"),
        (b"\xff", "is not valid JSON"),
        (rb'{"title": "\ud83d\ude00"', "is not valid JSON"),
        (rb'{"title": "cut \ud83d"}', "has text with half a character"),
        (rb'{"title": "cut \ude00"}', "has text with half a character"),
    ],
)
async def test_body_that_cannot_be_read_is_400_and_says_why(
    tmp_path: Path, body: bytes, problem: str
) -> None:
    async with open_api(tmp_path) as api:
        headers = {**HEADERS, "x-api-key": api.key, "content-type": "application/json"}
        response = await api.client.post("/v1/sessions", content=body, headers=headers)
        assert response.status_code == 400
        assert problem in response.json()["error"]["message"]
