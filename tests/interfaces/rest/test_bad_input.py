"""Invalid requests get documented responses and never make the server fail."""

import asyncio
import json
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from segue.interfaces.rest.routes import ROUTES
from segue.model import ids
from tests.interfaces.rest.api import Api, message, open_api

TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [
            "",
            "0",
            "-1",
            "1" * 30,
            "true",
            "asc",
            "idle",
            "user.message",
            "2026-02-30T00:00:00Z",
            "0001-01-01T00:00:00+23:59",
            "9999-12-31T23:59:59.999999-23:59",
            "page_AAAA",
            "/",
            "\0",
            "\ud800",
            "sevt_01" + "1" * 22,
            ids.format_id("agent", ids.new_id()),
            "coordinator",
            "text",
        ]
    ),
)
_WORDS = """
agent environment_id title metadata vault_ids resources initial_events budget type id version
name model system tools mcp_servers skills multiagent description config scope networking
packages events content text tool_use_id result session_thread_id source data agents configs
default_config input_schema custom_tool_use_id rubric file_id
"""
FIELDS = st.sampled_from(_WORDS.split())
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(FIELDS, TEXTS), inner, max_size=4)
    ),
    max_leaves=12,
)
NAMES = sorted({part[1:-1] for e in ROUTES for part in e.path.split("/") if part[:1] == "{"})
TYPES = [
    "user.message",
    "user.interrupt",
    "agent",
    "agent_with_overrides",
    "agent_toolset_20260401",
    "mcp_toolset",
    "custom",
    "cloud",
    "github_repository",
    "image",
    "document",
    "base64",
    "url",
]


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, list[tuple[str, str]], Any]:
    endpoint = draw(st.sampled_from([item for item in ROUTES if not item.path.endswith("/stream")]))
    path = endpoint.path
    for name in NAMES:
        value = draw(st.sampled_from([f"<{name}>", "nothing", "%00", "%F0%9F%98%80", "sesn_01x"]))
        path = path.replace("{" + name + "}", value)
    names = st.sampled_from([*endpoint.query, "beta", "surprise"])
    query = draw(
        st.lists(st.tuples(names, TEXTS.filter(lambda text: "\ud800" not in text)), max_size=3)
    )
    body = draw(st.dictionaries(FIELDS, VALUES, max_size=5))
    if draw(st.booleans()):
        body["type"] = draw(st.sampled_from(TYPES))
    if draw(st.booleans()):
        events = [{"type": kind, "content": draw(VALUES)} for kind in TYPES[:2]]
        body = {"events": events}
    return endpoint.method, path, query, body


async def create_resources(api: Api) -> dict[str, str]:
    repository = {"type": "github_repository", "url": "https://github.com/a/b"}
    session = await api.session(resources=[repository])
    thread = (await api.ok("GET", f"/v1/sessions/{session['id']}/threads"))["data"][0]
    store = await api.ok("POST", "/v1/memory_stores", {"name": "m"})
    vault = await api.ok("POST", "/v1/vaults", {"display_name": "v"})
    deployment = await api.ok(
        "POST",
        "/v1/deployments",
        {
            "name": "d",
            "agent": session["agent"]["id"],
            "environment_id": session["environment_id"],
            "initial_events": [message("hello")],
        },
    )
    return {
        "memory_store_id": store["id"],
        "vault_id": vault["id"],
        "deployment_id": deployment["id"],
        "session_id": session["id"],
        "resource_id": session["resources"][0]["id"],
        "thread_id": thread["id"],
        "agent_id": (await api.agent())["id"],
        "environment_id": await api.environment(),
        "model_id": "demo",
    }


@pytest.mark.parametrize("examples", [10, pytest.param(40, marks=pytest.mark.full)])
def test_no_request_makes_the_server_fail(tmp_path_factory: Any, examples: int) -> None:
    directory: Path = tmp_path_factory.mktemp("fuzz")

    async def send_all(drawn: list[tuple[str, str, list[tuple[str, str]], Any]]) -> None:
        async with open_api(directory) as api:
            names = await create_resources(api)
            for method, path, query, body in drawn:
                for name, value in names.items():
                    path = path.replace(f"<{name}>", value)
                options = {"params": query} if query else {}
                if method == "POST":
                    options["content"] = json.dumps(body).encode()
                status, response = await api.call(method, path, **options)
                assert status < 500, (method, path, query, body, response)
                assert status == 200 or response["error"]["message"]

    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        database=None,
    )
    @hypothesis.given(st.lists(requests(), min_size=5, max_size=25))
    def check(drawn: list[tuple[str, str, list[tuple[str, str]], Any]]) -> None:
        asyncio.run(send_all(drawn))

    check()


async def test_invalid_unicode_from_other_interfaces_is_shown_in_lists_and_events(
    tmp_path: Path,
) -> None:
    async with open_api(tmp_path) as api:
        odd = "cut \ud83d emoji \0"
        session = await api.hub.editor.create(api.principal, title=odd, metadata={"k": odd})
        await api.hub.turns.run(api.principal, session.id, odd)
        (shown,) = (await api.ok("GET", "/v1/sessions"))["data"]
        assert (shown["title"], shown["metadata"]) == (odd, {"k": odd})
        assert shown["agent"]["name"] == "segue"
        (sent,) = await api.events(shown["id"], **{"types[]": "user.message"})
        assert sent["content"][0]["text"] == odd
