"""Tests that the settings of REST agents reach the model."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from segue.agents.sandbox import launch
from segue.interfaces.python import create_session
from segue.interfaces.rest import RestApp
from segue.model import ids
from segue.model.event import ConfigChanged, Event, PermissionAsked, StatusChanged
from segue.model.principal import LOCAL, Principal
from tests.interfaces.rest.api import Api, message, open_api
from tests.interfaces.rest.test_turns import rests, result, types, until

from .provider import Provider, Say, Use
from .test_egress import web_server

WEATHER = {
    "type": "custom",
    "name": "weather",
    "description": "What it is like outside.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


@pytest.fixture(autouse=True)
def api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")


@asynccontextmanager
async def served(
    directory: Path, database: str | None = None
) -> AsyncIterator[tuple[Api, Provider]]:
    """Open the REST API with a scripted model provider."""
    async with Provider() as provider, open_api(directory, database=database) as api:
        await configure_model(api, "claude-opus-4-8")
        await api.hub.config.set("local", "model.base_url", provider.url)
        yield api, provider


async def configure_model(api: Api, model: str) -> None:
    await api.hub.config.set("local", "model", f"anthropic:{model}")


async def test_the_client_runs_the_models_custom_tools(tmp_path: Path) -> None:
    async with served(tmp_path) as (api, provider):
        toolset = {"type": "agent_toolset_20260401"}
        agent = await api.agent(tools=[WEATHER, toolset])
        id = (await api.session(agent=agent["id"]))["id"]
        provider.scripts = [
            [
                Say("I ask."),
                Use("weather", {"city": "Oslo"}),
                Use("glob", {"pattern": "*"}),
                Use("weather", {"city": "Rome"}),
            ],
            [Say("Rain there, none here.")],
        ]
        await api.send(id, message("What is it like?"))

        def both_asked(events: list[dict[str, Any]]) -> bool:
            """Return True if both client tools wait and the local tool has its result."""
            idle = [event for event in events if event["type"] == "session.status_idle"]
            has_both_requests = bool(idle) and len(idle[-1]["stop_reason"]["event_ids"]) == 2
            return has_both_requests and "agent.tool_result" in types(events)

        events = await until(api, id, both_asked)
        oslo, rome = [event for event in events if event["type"] == "agent.custom_tool_use"]
        assert (oslo["name"], oslo["input"]) == ("weather", {"city": "Oslo"})
        await api.send(id, result(rome["id"], "no such place", is_error=True))
        await api.send(id, result(oslo["id"], "rain"))
        events = await until(
            api, id, lambda events: events[-1].get("stop_reason") == {"type": "end_turn"}
        )
    first, second = provider.requests
    offered = {tool["name"]: tool for tool in first["tools"]}
    assert offered["weather"]["description"] == WEATHER["description"]
    assert offered["weather"]["input_schema"]["properties"] == {"city": {"type": "string"}}
    calls, answered = second["messages"][-2:]
    uses = [block["id"] for block in calls["content"] if block["type"] == "tool_use"]
    results = {block["tool_use_id"]: block for block in answered["content"]}
    assert set(results) == set(uses) and len(uses) == 3
    assert results[uses[0]]["content"] == [{"type": "text", "text": "rain"}]
    assert (results[uses[0]]["is_error"], results[uses[2]]["is_error"]) == (False, True)


async def test_a_session_continues_after_a_turn_that_waits_for_the_client_is_interrupted(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as (api, provider):
        agent = await api.agent(tools=[WEATHER])
        id = (await api.session(agent=agent["id"]))["id"]
        provider.scripts = [[Use("weather", {"city": "Oslo"})]]
        await api.send(id, message("What is it like?"))
        await until(api, id, rests(1))
        await api.send(id, {"type": "user.interrupt"})
        await until(api, id, rests(2))
        events = await api.say(id, "Never mind")
        assert events[-1]["stop_reason"] == {"type": "end_turn"}
    messages = provider.requests[-1]["messages"]
    (answered,) = [b for m in messages for b in m["content"] if b["type"] == "tool_result"]
    assert answered["is_error"]


async def test_one_idle_lists_all_parallel_requests_and_repeated_answers_change_nothing(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as (api, provider):
        policy = {"permission_policy": {"type": "always_ask"}}
        toolset = {"type": "agent_toolset_20260401", "default_config": policy}
        agent = await api.agent(tools=[toolset, WEATHER])
        id = (await api.session(agent=agent["id"]))["id"]
        uses = [Use("bash", {"command": f"echo {number} >> ran.txt"}) for number in range(2)]
        provider.scripts = [[*uses, Use("weather", {"city": "Oslo"})], [Say("Done.")]]
        await api.send(id, message("Go"))
        events = await until(api, id, rests(1))
        (idle,) = [event for event in events if event["type"] == "session.status_idle"]
        calls = [event for event in events if event["type"].endswith("tool_use")]
        waiting = [call["id"] for call in calls]
        assert sorted(idle["stop_reason"]["event_ids"]) == sorted(waiting)
        answers = [
            {"type": "user.tool_confirmation", "tool_use_id": use, "result": "allow"}
            for use in waiting[:2]
        ]
        # A client that answers at each idle, and one that repeats itself, do no harm.
        for answer in [answers[0], answers[0], answers[1], answers[1]]:
            await api.send(id, answer)
        events = await until(api, id, rests(2))
        last = [event for event in events if event["type"] == "session.status_idle"][-1]
        assert last["stop_reason"]["event_ids"] == waiting[2:]
        for _ in range(2):
            await api.send(id, result(waiting[2], "rain"))
        events = await until(
            api, id, lambda events: events[-1].get("stop_reason") == {"type": "end_turn"}
        )
        for answer in answers:
            await api.send(id, answer)
        refused = {**answers[0], "result": "deny"}
        await api.fails(400, "POST", f"/v1/sessions/{id}/events", {"events": [refused]})
        kinds = types(await api.events(id))
        assert kinds.count("user.tool_confirmation") == 2
        assert kinds.count("user.custom_tool_result") == 1
        assert kinds.count("agent.tool_result") == 2


async def test_server_writes_no_result_in_the_name_of_a_client(tmp_path: Path) -> None:
    async with served(tmp_path) as (api, provider):
        agent = await api.agent(tools=[WEATHER])
        id = (await api.session(agent=agent["id"]))["id"]
        provider.scripts = [[Use("weather", {"city": "Oslo"})]]
        await api.send(id, message("What is it like?"))
        await until(api, id, rests(1))
        await api.send(id, {"type": "user.interrupt"})
        kinds = types(await until(api, id, rests(2)))
        assert "user.custom_tool_result" not in kinds
        assert kinds.count("agent.tool_result") == 1


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ({}, (None, None)),
        ({"effort": "high", "speed": "standard"}, (None, None)),
        ({"effort": "low"}, ("low", None)),
        ({"effort": {"type": "max"}, "speed": "fast"}, ("max", "fast")),
        ({"inference_geo": "us"}, (None, None)),
    ],
)
async def test_effort_speed_and_geography_are_sent_to_the_model(
    tmp_path: Path, asked: dict[str, Any], sent: tuple[Any, Any]
) -> None:
    async with served(tmp_path) as (api, provider):
        agent = await api.agent(model={"id": "claude-opus-4-8", **asked})
        await api.say((await api.session(agent=agent["id"]))["id"], "Hi")
    (request,) = provider.requests
    assert request["model"] == "claude-opus-4-8"
    assert (request.get("output_config", {}).get("effort"), request.get("speed")) == sent
    assert request.get("inference_geo") == asked.get("inference_geo")


@pytest.mark.parametrize(
    ("option", "name"),
    [({"speed": "fast"}, "speed"), ({"inference_geo": "us"}, "inference_geo")],
)
async def test_option_that_the_answering_model_lacks_is_refused(
    tmp_path: Path, option: dict[str, str], name: str
) -> None:
    async with served(tmp_path) as (api, provider):
        agent = await api.agent(model={"id": "claude-opus-4-8", **option})
        await api.hub.config.set("local", "model", "openai:gpt-5")
        body = {"name": "b", "model": {"id": "claude-opus-4-8", **option}}
        assert f"model.{name}: " in await api.fails(400, "POST", "/v1/agents", body)
        # The model was configured after the agent had been created.
        await api.hub.config.set("local", "model", "ollama:m")
        events = await api.say((await api.session(agent=agent["id"]))["id"], "Hi")
        (error,) = [event["error"] for event in events if event["type"] == "session.error"]
        assert f"model.{name}: " in error["message"]
    assert provider.requests == []


async def test_effort_of_a_model_without_levels_of_effort_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as (api, provider):
        agent = await api.agent(model={"id": "claude-haiku-4-5", "effort": "low"})
        await api.hub.config.set("local", "model", "ollama:m")
        events = await api.say((await api.session(agent=agent["id"]))["id"], "Hi")
        (error,) = [event["error"] for event in events if event["type"] == "session.error"]
        assert "model.effort: " in error["message"]
    assert provider.requests == []


async def test_title_and_context_of_a_document_reach_the_model(tmp_path: Path) -> None:
    async with served(tmp_path) as (api, provider):
        session = await api.session(agent=(await api.agent())["id"])
        source = {"type": "text", "media_type": "text/plain", "data": "the text"}
        document = {"type": "document", "source": source, "title": "Minutes", "context": "draft"}
        sent = await api.send(session["id"], {"type": "user.message", "content": [document]})
        prompt = ids.parse(sent["data"][0]["id"]) or ""
        await api.hub.turns.wait(api.principal, ids.parse(session["id"]) or "", prompt)
    text = str(provider.requests[0]["messages"])
    assert "title: Minutes" in text and "context: draft" in text and "the text" in text


async def test_the_built_in_agent_shows_the_configured_model(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as (api, provider):
        await api.hub.config.unset("local", "model")
        address = f"/v1/agents/{await api.built_in('agents')}"
        old = await api.session()
        assert old["agent"]["model"]["id"] == "demo"
        await configure_model(api, "claude-sonnet-4-6")
        shown = await api.ok("GET", address)
        assert (shown["model"]["id"], shown["version"]) == ("anthropic:claude-sonnet-4-6", 2)
        new = await api.session()
        assert new["agent"]["model"]["id"] == "anthropic:claude-sonnet-4-6"
        (listed,) = (await api.ok("GET", "/v1/models"))["data"]
        assert listed["id"] == "anthropic:claude-sonnet-4-6"
        # The configured model answers in older sessions too.
        await api.say(old["id"], "Hi")
        assert provider.requests[-1]["model"] == "claude-sonnet-4-6"
        await configure_model(api, "claude-opus-4-8")
        await api.say(new["id"], "Hi")
        assert provider.requests[-1]["model"] == "claude-opus-4-8"
        await api.hub.config.unset("local", "model")
        assert (await api.ok("GET", address))["model"]["id"] == "demo"


async def test_a_session_created_in_python_is_valid_over_rest(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as (api, _):
        options: Any = {"store": api.hub, "max_turns": 5, "append_system_prompt": "Be brief."}
        async with create_session(model="claude-sonnet-4-6", cwd=tmp_path, **options) as session:
            await session.send("Hi")
            async for _ in session.stream():
                pass
        shown = await api.ok("GET", f"/v1/sessions/{ids.format_id('sesn', session.session_id)}")
    assert shown["agent"]["model"]["id"] == "anthropic:claude-sonnet-4-6"
    assert shown["agent"]["model"]["effort"] == {"type": "high"}
    assert not {"append_system", "max_turns"} & shown["agent"].keys()


async def test_a_session_shows_the_model_that_answered_its_last_turn(tmp_path: Path) -> None:
    """A session from before the configuration shows the model from its next turn on."""
    async with open_api(tmp_path) as api:
        id = (await api.session())["id"]
        await api.say(id, "/say hello")
        before = (await api.ok("GET", f"/v1/sessions/{id}"))["agent"]
        assert (before["model"]["id"], before["version"]) == ("demo", 1)
        async with Provider() as provider:
            await configure_model(api, "claude-opus-4-8")
            await api.hub.config.set("local", "model.base_url", provider.url)
            await api.say(id, "And now?")
            assert [request["model"] for request in provider.requests] == ["claude-opus-4-8"]
        after = (await api.ok("GET", f"/v1/sessions/{id}"))["agent"]
        assert after["id"] == before["id"] and after["version"] > 1
        assert after["model"]["id"] == "anthropic:claude-opus-4-8"
        (row,) = (await api.ok("GET", "/v1/sessions"))["data"]
        assert row["agent"] == after


async def test_an_agent_with_the_model_demo_uses_the_demo_agent(tmp_path: Path) -> None:
    async with served(tmp_path) as (api, provider):
        agent = await api.agent(model="demo")
        id = (await api.session(agent=agent["id"]))["id"]
        events = await api.say(id, "/say it is me")
        assert (await api.ok("GET", f"/v1/sessions/{id}"))["agent"]["model"]["id"] == "demo"
        assert "it is me" in str(events) and provider.requests == []


async def test_tools_that_a_key_sets_for_the_built_in_agent_ask_in_the_local_users_turns(
    tmp_path: Path,
) -> None:
    toolset = {"type": "agent_toolset_20260401"}  # its policy is always_allow
    write = Use("write", {"file_path": "a", "content": "x"})
    async with served(tmp_path) as (api, provider):

        async def asks(principal: Principal) -> bool:
            provider.scripts = [[write], [Say("Done.")]]
            id = (await api.hub.editor.create(LOCAL)).id
            turn = await api.hub.turns.submit(principal, id, "Go")
            async for item in api.hub.history.follow(LOCAL, id):
                if not isinstance(item, Event):
                    continue
                if isinstance(item.body, PermissionAsked):
                    await api.hub.turns.answer(principal, id, item.body.ask_id, "reject")
                    await api.hub.turns.wait(principal, id, turn)
                    return True
                if isinstance(item.body, StatusChanged) and item.body.stop_reason == "end_turn":
                    return False
            raise AssertionError("the session was deleted")

        agent = f"/v1/agents/{await api.built_in('agents')}"
        await api.ok("POST", agent, {"tools": [toolset]})
        assert [await asks(LOCAL), await asks(api.principal)] == [True, False]
        local_app = RestApp(api.hub, principal=LOCAL)
        transport = httpx2.ASGITransport(app=local_app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await Api(local_app, client, "local", "").ok("POST", agent, {"tools": [toolset]})
        assert not await asks(LOCAL)


async def test_agent_cannot_write_to_a_read_only_memory_store(tmp_path: Path) -> None:
    async with served(tmp_path) as (api, provider):
        store = await api.ok("POST", "/v1/memory_stores", {"name": "Rules"})
        memory = {"path": "/deep/rule.md", "content": "the rule"}
        await api.ok("POST", f"/v1/memory_stores/{store['id']}/memories", memory)
        resource = {"type": "memory_store", "memory_store_id": store["id"], "access": "read_only"}
        agent = await api.agent(tools=[{"type": "agent_toolset_20260401"}])
        session = await api.session(agent=agent["id"], resources=[resource])
        top = "mnt/memory/rules"
        write = {"file_path": f"/{top}/deep/rule.md", "content": "another"}
        commands = (
            f"cat {top}/deep/rule.md",
            f"echo no > {top}/deep/rule.md",
            f"echo no > {top}/new.md",
            f"rm {top}/deep/rule.md",
            f"chmod -R u+w {top} && echo no > {top}/new.md",
        )
        for _ in range(2):
            provider.scripts = [
                [Use("write", write), *(Use("bash", {"command": command}) for command in commands)],
                [Say("done")],
            ]
            events = await api.say(session["id"], "change the rule")
            results = [event for event in events if event["type"] == "agent.tool_result"][-6:]
            assert "read-only memory store" in results[0]["content"][0]["text"]
            assert [event["is_error"] for event in results] == [True, False, *[True] * 4]
            assert [event for event in events if event["type"] == "session.error"] == []
        directory = api.directory(session) / top
        assert [path.name for path in directory.rglob("*")] == ["deep", "rule.md"]
        assert (directory / "deep/rule.md").read_text() == "the rule"
        await api.ok("DELETE", f"/v1/sessions/{session['id']}")
        assert not api.directory(session).exists()


async def environment_with(api: Api, **networking: Any) -> str:
    config = {"type": "cloud", "networking": {"type": "limited", **networking}}
    return (await api.ok("POST", "/v1/environments", {"name": "e", "config": config}))["id"]


@pytest.mark.parametrize("caller", ["key", "local"])
async def test_limited_networking_applies_to_all_tools(tmp_path: Path, caller: str) -> None:
    async with served(tmp_path) as (api, provider), web_server() as web:
        await api.hub.config.set("local", "web.private", "true")
        toolset = {
            "type": "agent_toolset_20260401",
            "default_config": {"permission_policy": {"type": "always_allow"}},
        }
        agent = await api.agent(tools=[toolset])
        environment = await environment_with(api, allowed_hosts=["127.0.0.1"])
        session = (await api.session(agent=agent["id"], environment_id=environment))["id"]
        allowed, refused = f"http://127.0.0.1:{web.port}/", f"http://localhost:{web.port}/"
        provider.scripts = [
            [
                Use("bash", {"command": f"curl -sS {allowed}"}),
                Use("bash", {"command": f"curl -sSf {refused}"}),
                Use("bash", {"command": f"curl -sS --noproxy '*' {refused}"}),
                Use("web_fetch", {"url": refused}),
            ],
            [Say("done")],
        ]
        if caller == "key":
            events = await api.say(session, "Look")
        else:
            id = ids.parse(session) or ""
            await api.hub.editor.configure(LOCAL, id, ConfigChanged(mode="bypassPermissions"))
            prompt = await api.hub.turns.submit(LOCAL, id, "Look")
            await api.hub.turns.wait(LOCAL, id, prompt)
            events = await api.events(session)
        results = [event for event in events if event["type"] == "agent.tool_result"]
        texts = [" ".join(block["text"] for block in event["content"]) for event in results]
        assert texts[0] == "hi"
        assert [event["is_error"] for event in results] == [False, True, True, True]
        for text in (texts[1], texts[3]):
            assert f"[refused connection: localhost:{web.port} " in text
        assert "through the proxy in HTTPS_PROXY only" in texts[2]
        assert len(web.requests) == 1
        errors = [event["error"]["message"] for event in events if event["type"] == "session.error"]
        direct = [text for text in errors if "cannot be reached without the proxy" in text]
        assert any(f":{web.port} " in text for text in direct)
        errors = [text for text in errors if text not in direct]
        assert len(errors) == 2 and all("refused connection: localhost" in text for text in errors)


async def test_programs_without_limits_reach_no_private_address(tmp_path: Path) -> None:
    async with served(tmp_path) as (api, provider), web_server() as web:
        agent = await api.agent(tools=[{"type": "agent_toolset_20260401"}])
        session = (await api.session(agent=agent["id"]))["id"]
        url = f"http://localhost:{web.port}/"
        provider.scripts = [[Use("bash", {"command": f"curl -sSf {url}"})], [Say("done")]]
        events = await api.say(session, "Look")
        (error,) = [event["error"] for event in events if event["type"] == "session.error"]
        assert "is not on the public internet" in error["message"]
        assert web.requests == []


async def test_mcp_server_of_a_limited_environment_needs_permission(tmp_path: Path) -> None:
    async with served(tmp_path) as (api, provider), web_server() as web:
        await api.hub.config.set("local", "web.private", "true")
        server = {"type": "url", "name": "s", "url": f"http://127.0.0.1:{web.port}/mcp"}
        tools = [{"type": "mcp_toolset", "mcp_server_name": "s"}]
        agent = await api.agent(mcp_servers=[server], tools=tools)
        for allowed in (False, True):
            environment = await environment_with(api, allow_mcp_servers=allowed)
            session = (await api.session(agent=agent["id"], environment_id=environment))["id"]
            provider.scripts = [[Say("done")]]
            await api.say(session, "Hi")
            assert bool(web.requests) is allowed


async def test_limited_networking_is_refused_where_it_cannot_be_enforced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "supports_proxy", lambda: False)
    async with open_api(tmp_path) as api:
        config = {"type": "cloud", "networking": {"type": "limited"}}
        body = {"name": "e", "config": config}
        assert "config.networking: " in await api.fails(400, "POST", "/v1/environments", body)
