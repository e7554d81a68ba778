"""Sessions that another tool keeps: read here as they are, marked by their source."""

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


async def test_a_source_s_session_is_listed_with_a_built_in_agent_and_read(tmp_path: Path) -> None:
    source = MemorySource()
    async with open_api(tmp_path, sources=[source]) as api:
        made = await source.create(ids.new_id(), HISTORY)
        await api.session(title="own")
        id = ids.format_id("sesn", made.id)
        (shown,) = (await api.ok("GET", "/v1/sessions", source="memory"))["data"]
        assert (shown["id"], shown["source"], shown["cwd"]) == (id, "memory", "/p")
        assert shown["agent"]["id"] == await api.built_in("agents")
        assert shown["environment_id"] == await api.built_in("environments")
        assert (await api.ok("GET", f"/v1/sessions/{id}"))["usage"]["input_tokens"] == 7
        assert [event["type"] for event in await api.events(id)] == [
            "user.message",
            "agent.tool_use",
            "agent.message",
        ]  # when the request began is not known, so no span is told
        (thread,) = (await api.ok("GET", f"/v1/sessions/{id}/threads"))["data"]
        assert thread["status"] == "idle"


async def test_what_a_source_cannot_hold_is_refused_or_laid_over_it(tmp_path: Path) -> None:
    source = MemorySource()
    async with open_api(tmp_path, sources=[source]) as api:
        made = await source.create(ids.new_id(), HISTORY)
        id = ids.format_id("sesn", made.id)
        path = f"/v1/sessions/{id}"
        assert (await api.ok("POST", path, {"title": "Slow build"}))["title"] == "Slow build"
        told = await api.fails(400, "POST", path, {"metadata": {"k": "v"}})
        assert "metadata" in told
        told = await api.fails(400, "POST", f"{path}/events", {"events": [message("go on")]})
        assert id in told and "fork or import" in told
        assert (await api.ok("POST", f"{path}/archive"))["status"] == "terminated"
        assert (await api.ok("GET", "/v1/sessions"))["data"] == []
        await api.ok("DELETE", path)
        await api.fails(404, "GET", path)
        assert await source.get(made.id) is not None
