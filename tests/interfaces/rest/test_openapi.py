"""The OpenAPI document is complete and valid, and a running server conforms to it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import httpx2
import pytest
from jsonschema import Draft202012Validator

from segue.interfaces.rest.events.event_types import TYPES
from segue.interfaces.rest.openapi import response_type
from segue.interfaces.rest.routes import ROUTES
from segue.interfaces.rest.schemas.events import Event, Streamed
from tests.clients.rest_server import Server, serving
from tests.interfaces.rest.api import HEADERS, message, open_api
from tests.interfaces.rest.response_check import DOCUMENT, check_frame, check_response
from tests.interfaces.rest.test_random_isolation import FORMS
from tests.interfaces.rest.test_skills import FILES, form

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance"
)


def test_document_has_every_route_with_its_request_and_response_types() -> None:
    documented = {
        (method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods
    }
    assert documented == {(route.method, route.path) for route in ROUTES}
    for route in ROUTES:
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        assert response_type(route) not in (dict, None)
        assert {"200", "400", "401", "404", "413", "429", "503"} <= operation["responses"].keys()
        named = [
            parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "query"
        ]
        assert tuple(named) == route.query
        takes = route.request_type is not None or (route.method, route.path) in FORMS
        assert takes == ("requestBody" in operation)


def test_schemas_are_valid_and_references_resolve() -> None:
    text = json.dumps(DOCUMENT)
    for name, schema in DOCUMENT["components"]["schemas"].items():
        Draft202012Validator.check_schema(schema)
        assert name.isalnum()
    for part in text.split('"#/components/schemas/')[1:]:
        assert part.split('"')[0] in DOCUMENT["components"]["schemas"]
    operations = [
        operation["operationId"]
        for path in DOCUMENT["paths"].values()
        for operation in path.values()
    ]
    assert len(set(operations)) == len(operations)


def test_every_event_type_has_a_schema() -> None:
    shown = {name for names in TYPES.values() for name in names}
    assert {shape.__struct_config__.tag for shape in get_args(Event)} == shown
    live = {shape.__struct_config__.tag for shape in get_args(Streamed)}
    assert live - shown == {"session.deleted", "event_start", "event_delta", "ping"}
    for invalid in (
        {"type": "agent.message", "id": "sevt_x", "processed_at": None},
        {"type": "session.status_running", "id": "sevt_x", "processed_at": None, "more": 1},
        {"type": "agent.nothing", "id": "sevt_x", "processed_at": None},
    ):
        with pytest.raises(AssertionError):
            check_frame(invalid)


async def test_document_needs_no_key(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        answer = await api.client.get("/openapi.json")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == DOCUMENT


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (200, {"type": "vault", "id": "x"}),
        (200, None),
        (418, {}),
        (400, {"error": "no envelope"}),
    ],
)
def test_judge_rejects_an_invalid_response(status: int, answer: object) -> None:
    with pytest.raises(AssertionError):
        check_response("GET", "/v1/vaults/vlt_x", status, "application/json", answer or [])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("openapi")) as server:
        yield server


def create_resources(server: Server) -> dict[str, list[str]]:
    """Create a few resources of each kind, and return their ids by path parameter."""
    names: dict[str, list[str]] = {}
    with httpx2.Client(base_url=server.url, headers={**HEADERS, "x-api-key": server.key}) as client:

        def create(path: str, **options: object) -> dict[str, str]:
            answer = client.post(path, **options)  # type: ignore[arg-type]
            assert answer.status_code == 200, answer.text
            return answer.json()

        for number in range(3):
            agent = create("/v1/agents", json={"name": "a", "model": "m"})["id"]
            environment = create("/v1/environments", json={"name": "e"})["id"]
            store = create("/v1/memory_stores", json={"name": "m"})["id"]
            vault = create("/v1/vaults", json={"display_name": "v"})["id"]
            file = create("/v1/files", files={"file": ("f", b"x" * number, "text/plain")})["id"]
            skill = create("/v1/skills", files=form(FILES))
            memory = create(
                f"/v1/memory_stores/{store}/memories", json={"path": "/a", "content": ""}
            )
            auth = {"type": "static_bearer", "mcp_server_url": "https://a.example", "token": "t"}
            secret = create(f"/v1/vaults/{vault}/credentials", json={"auth": auth})["id"]
            setup = {"agent": agent, "environment_id": environment}
            session = create("/v1/sessions", json={**setup, "initial_events": [message("hi")]})[
                "id"
            ]
            mounted = {"type": "file", "file_id": file}
            resource = create(f"/v1/sessions/{session}/resources", json=mounted)["id"]
            thread = client.get(f"/v1/sessions/{session}/threads").json()["data"][0]["id"]
            over = create("/v1/sessions", json=setup)["id"]
            create(f"/v1/sessions/{over}/archive")
            ended = client.get(f"/v1/sessions/{over}/threads").json()["data"][0]["id"]
            planned = {**setup, "name": "d", "initial_events": [message("hi")]}
            deployment = create("/v1/deployments", json=planned)["id"]
            run = create(f"/v1/deployments/{deployment}/run")["id"]
            for name, id in (
                ("agent_id", agent),
                ("environment_id", environment),
                ("memory_store_id", store),
                ("memory_id", memory["id"]),
                ("memory_version_id", memory["memory_version_id"]),
                ("vault_id", vault),
                ("credential_id", secret),
                ("file_id", file),
                ("skill_id", skill["id"]),
                ("version", skill["latest_version_id"]),
                ("session_id", session),
                ("resource_id", resource),
                ("thread_id", thread),
                ("deployment_id", deployment),
                ("deployment_run_id", run),
                ("over.session_id", over),
                ("over.thread_id", ended),
            ):
                names.setdefault(name, []).append(id)
    return names


def parameters(named: dict[str, list[str]]) -> list[str]:
    return [f'"path.{name}" = {json.dumps(ids)}' for name, ids in named.items()]


@pytest.mark.parametrize(
    "options",
    [
        ["--phases=fuzzing", "--max-examples=1"],
        pytest.param(["--phases=coverage"], marks=pytest.mark.full),
        pytest.param(["--phases=fuzzing", "--max-examples=60"], marks=pytest.mark.full),
    ],
    ids=["short", "coverage", "long"],
)
def test_responses_to_generated_requests_match_the_document(
    server: Server, tmp_path: Path, options: list[str]
) -> None:
    config = tmp_path / "schemathesis.toml"
    named = create_resources(server)
    # Only the stream of an ended session ends by itself.
    over = {name: named.pop(f"over.{name}") for name in ("session_id", "thread_id")}
    operations = ["[[operations]]", 'include-path-regex = "stream$"', "[operations.parameters]"]
    config.write_text(
        "\n".join(["[parameters]", *parameters(named), *operations, *parameters(over)])
    )
    command = [Path(sys.executable).with_name("st"), f"--config-file={config}", "run"]
    done = subprocess.run(
        [
            *command,
            f"{server.url}/openapi.json",
            f"--header=x-api-key: {server.key}",
            f"--checks={CHECKS}",
            "--mode=all",
            "--continue-on-failure",
            "--no-color",
            *options,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    assert "passed" in done.stdout
    assert server.process.poll() is None
