"""The official Python and TypeScript clients, old and new, against a live server."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from segue.hub.webhooks import signing
from segue.hub.webhooks.payload import encode_payload, event_id
from segue.model import clock, ids
from segue.model.webhooks.delivery import Delivery
from tests.clients.rest_server import Server, serving
from tests.clients.toolbox import PACKAGES, node, node_packages, python_with, source_of
from tests.interfaces.rest.api import HEADERS

CYCLE = Path(__file__).with_name("rest_cycle.py")
UNWRAP = Path(__file__).with_name("webhook_unwrap.mjs")
TS_CYCLE = Path(__file__).with_name("rest_cycle.mjs")
PYTHON_VERSIONS = [
    *("0.94.1", "0.105.0", "0.109.2", "0.115.0", "0.125.0"),
    *("1.0.0", "1.17.0", "2.0.0", "2.3.0", "2.8.0", "2.9.0", "2.10.0"),
]
TYPESCRIPT_VERSIONS = [
    "0.105.0",
    "0.109.1",
    "0.122.0",
    "0.137.0",
    "1.0.0",
    "1.3.0",
    "1.8.0",
    "1.10.0",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("rest")) as server:
        yield server


@pytest.mark.parametrize("version", PYTHON_VERSIONS)
def test_official_python_client_uses_every_part_of_a_session(server: Server, version: str) -> None:
    done = subprocess.run(
        [python_with(f"anthropic=={version}"), "-W", "ignore", str(CYCLE), server.url, server.key],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == f"anthropic {version}: all is well\n"


@pytest.mark.parametrize("version", TYPESCRIPT_VERSIONS)
def test_official_typescript_client_uses_every_part_of_a_session(
    server: Server, version: str
) -> None:
    name = f"anthropic-{version.rsplit('.', 1)[0]}"  # as package.json calls it
    is_listed = name in json.loads(PACKAGES.read_text())["dependencies"]
    packages = node_packages(*([] if is_listed else [f"{name}@npm:@anthropic-ai/sdk@{version}"]))
    done = subprocess.run(
        [node(), TS_CYCLE, packages, name, server.url, server.key],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == f"@anthropic-ai/sdk {version}: all is well\n"


@pytest.mark.parametrize("version", ["0.137.0", "1.10.0"])  # older ones have no webhooks
def test_official_typescript_client_verifies_webhooks(version: str) -> None:
    delivery = Delivery(
        event=ids.new_id(),
        type="session.status_idled",
        at=clock.now(),
        object_ids={"id": ids.new_id()},
        workspace="local",
    )
    body, now = encode_payload(delivery), clock.now() // clock.SECOND
    old, new, other = (signing.new_secret() for _ in range(3))
    cases = [
        {
            "body": body.decode(),
            "headers": signing.signed_headers([new, old], event_id(delivery), at, body),
            "key": key,
            "valid": key != other and at == now,
        }
        for key in (old, new, other)
        for at in (now, now - 600)
    ]
    name = f"anthropic-{version.rsplit('.', 1)[0]}"
    done = subprocess.run(
        [node(), UNWRAP, node_packages(), name, json.dumps(cases)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "all is well\n", done.stderr[-4000:]


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("agents.py", '"type": "session.status_idle"'),
        ("agents_with_files.py", '"type": "session.status_idle"'),
        ("agents_comprehensive.py", '"type": "session.status_idle"'),
        ("managed-agents-streaming-deltas-manual.py", "[final] "),
        # It listens for a minute after the last event.
        pytest.param(
            "managed-agents-observe-tool-calls.py",
            "deleted session sesn_01",
            marks=pytest.mark.full,
        ),
    ],
)
def test_examples_of_the_official_client_run_unchanged(
    server: Server, tmp_path: Path, name: str, last: str
) -> None:
    package = "anthropic==2.10.0"
    done = subprocess.run(
        [python_with(package), "-W", "ignore", source_of(package) / "examples" / name],
        env={
            "PATH": os.environ["PATH"],
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": server.key,
            "ANTHROPIC_ENVIRONMENT_ID": environment(server),
            "ANTHROPIC_WORKDIR": str(tmp_path),
            "GITHUB_TOKEN": "an unused token",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert last in done.stdout[-2000:], done.stdout[-2000:]


def environment(server: Server) -> str:
    headers = {**HEADERS, "x-api-key": server.key}
    answer = httpx2.get(f"{server.url}/v1/environments", headers=headers)
    return str(answer.json()["data"][-1]["id"])
