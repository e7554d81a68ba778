"""Sessions of other tools over REST."""

from pathlib import Path

from segue.model import ids
from segue.model.content import as_content
from segue.model.event import AgentMessage, Created, ModelCalled, ToolCall, Usage, UserMessage
from segue.testing.source import MemorySource
from tests.interfaces.rest.api import message, open_api

HISTORY = [
    Created(cwd="/p", source="memory"),
    UserMessage(content=as_content("Why is it slow?")),
    ToolCall(call_id="toolu_1", name="Bash", input={"command": "time make"}),
    AgentMessage(content=as_content("Nothing is cached.")),
    ModelCalled(usage=Usage(input_tokens=7)),
]


async def test_session_of_a_source_is_listed_with_a_built_in_agent_and_read(tmp_path: Path) -> None:
    source = MemorySource()
    async with open_api(tmp_path, sources=[source]) as api:
        created = await source.create(ids.new_id(), HISTORY)
        await api.session(title="own")
        id = ids.format_id("sesn", created.id)
        (shown,) = (await api.ok("GET", "/v1/sessions", source="memory"))["data"]
        assert (shown["id"], shown["source"], shown["cwd"]) == (id, "memory", "/p")
        assert shown["agent"]["id"] == await api.built_in("agents")
        assert shown["environment_id"] == await api.built_in("environments")
        assert (await api.ok("GET", f"/v1/sessions/{id}"))["usage"]["input_tokens"] == 7
        assert [event["type"] for event in await api.events(id)] == [
            "user.message",
            "agent.tool_use",
            "agent.message",
        ]  # the start of the request is unknown, so it has no span
        (thread,) = (await api.ok("GET", f"/v1/sessions/{id}/threads"))["data"]
        assert thread["status"] == "idle"


async def test_edits_that_a_source_does_not_support_are_refused_or_stored_in_the_overlay(
    tmp_path: Path,
) -> None:
    source = MemorySource()
    async with open_api(tmp_path, sources=[source]) as api:
        created = await source.create(ids.new_id(), HISTORY)
        id = ids.format_id("sesn", created.id)
        path = f"/v1/sessions/{id}"
        assert (await api.ok("POST", path, {"title": "Slow build"}))["title"] == "Slow build"
        response = await api.fails(400, "POST", path, {"metadata": {"k": "v"}})
        assert "metadata" in response
        response = await api.fails(400, "POST", f"{path}/events", {"events": [message("continue")]})
        assert id in response and "fork or import" in response
        assert (await api.ok("POST", f"{path}/archive"))["status"] == "terminated"
        assert (await api.ok("GET", "/v1/sessions"))["data"] == []
        await api.ok("DELETE", path)
        await api.fails(404, "GET", path)
        assert await source.get(created.id) is not None
