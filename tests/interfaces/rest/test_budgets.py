"""Budgets: a session stops when its budget is spent, and resumes when it is raised."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from segue.agents.base import Turn
from segue.agents.registry import AgentRegistry
from segue.hub.turns import service
from segue.model import ids, projection
from segue.model.event import Created, Event, ModelCalled, StatusChanged, Usage
from segue.model.lifecycle import StopReason
from segue.render.items import build_items
from segue.render.pairing import Pairs
from tests.agents.provider import Provider, Say, Use
from tests.clients.rest_server import serving
from tests.interfaces.rest.api import Api, message, open_api
from tests.interfaces.rest.test_turns import Shown, rests, result, types, until

if TYPE_CHECKING:  # importing it takes seconds, also for processes that run other tests
    from anthropic import AsyncAnthropic

# With this many tokens each, two requests cost 3.021 cents.
TOKENS = 5_000
LOOK = [Use("glob", {"pattern": "*"})]
TOOLS = [{"type": "agent_toolset_20260401"}]


def limit(cents: Any, currency: str = "USD") -> dict[str, Any]:
    return {"type": "limit", "max_list_cost": {"amount": cents, "currency": currency}}


@asynccontextmanager
async def open_with_model(model: Provider, directory: Path, **options: Any) -> AsyncIterator[Api]:
    """Yield the API with a model that the provider answers for."""
    model.input_tokens = TOKENS
    async with open_api(directory, **options) as api:
        await api.hub.config.set("local", "model", "anthropic:claude-sonnet-4-6")
        await api.hub.config.set("local", "model.base_url", model.url)
        yield api


async def error_code(api: Api, path: str, body: Any) -> str:
    """Send a request that must fail, and return its error code."""
    status, response = await api.call("POST", path, json=body)
    assert status == 400, response
    return str(response["error"]["details"]["error_code"])


def stop_reasons(events: Shown) -> list[str]:
    return [
        event["stop_reason"]["type"] for event in events if event["type"] == "session.status_idle"
    ]


async def test_turn_stops_at_its_budget_and_resumes_with_a_higher_one(
    tmp_path: Path, database: str | None, model: Provider
) -> None:
    async with model:
        model.scripts = [LOOK, LOOK]
        async with open_with_model(model, tmp_path, database=database) as api:
            agent = (await api.agent(tools=TOOLS))["id"]
            session = await api.session(agent=agent, budget=limit("2"))
            assert session["budget"] == limit("2")
            path = f"/v1/sessions/{session['id']}"
            await api.send(session["id"], message("look around"))
            events = await until(api, session["id"], rests(1))
            assert stop_reasons(events) == ["budget_reached"]
            assert events[-3]["stop_reason"] == {"type": "budget_reached"}  # of the thread
            usage = events[-2]
            assert (usage["type"], usage["budget"]) == ("session.usage", limit("2"))
            assert usage["usage"]["list_cost"] == {"amount": "3", "currency": "USD"}
            assert types(events).count("agent.tool_result") == len(model.requests) == 2
        # Another process refuses new turns, too.
        async with open_with_model(model, tmp_path, database=database) as api:
            define: dict[str, Any] = {"type": "user.define_outcome", "description": "d"}
            define["rubric"] = {"type": "text", "content": "r"}
            for event in (message("more"), define):
                assert (
                    await error_code(api, f"{path}/events", {"events": [event]}) == "budget_reached"
                )
            for cents in ("1", "2", "3"):
                body = {"title": "t", "budget": limit(cents)}
                assert await error_code(api, path, body) == "budget_not_raised"
            assert (await api.ok("GET", path))["title"] != "t"
            changed = await api.ok("POST", path, {"title": "t", "budget": limit("900")})
            assert (changed["budget"], changed["title"]) == (limit("900"), "t")
            events = await until(
                api, session["id"], lambda results: "end_turn" in stop_reasons(results)
            )
            updated = [item for item in events if item["type"] == "session.updated"]
            assert [item.get("budget") for item in updated][-1] == limit("900")
            assert types(events).count("user.message") == 1 and len(model.requests) == 3
            assert "Continue where" in str(model.requests[-1]["messages"][-1])
            before = len(events)
            await api.ok("POST", path, {"budget": limit("900")})
            assert len(await api.events(session["id"])) == before
            assert (await api.say(session["id"], "and now?"))[-2]["budget"] == limit("900")


async def test_budget_can_only_be_set_when_the_session_is_created(
    tmp_path: Path, model: Provider
) -> None:
    async with model, open_with_model(model, tmp_path) as api:
        path = f"/v1/sessions/{(await api.session())['id']}"
        assert await error_code(api, path, {"budget": limit("5")}) == "budget_create_only"
        assert (await api.ok("POST", path, {"budget": None}))["budget"] is None
        path = f"/v1/sessions/{(await api.session(budget=limit('5')))['id']}"
        assert (await api.ok("POST", path, {"budget": limit("4")}))["budget"] == limit("4")
        assert (await api.ok("POST", path, {"budget": None}))["budget"] is None
        events = await api.events(path.rpartition("/")[2])
        assert [event["budget"] for event in events] == [limit("4"), None]
        assert await error_code(api, path, {"budget": limit("5")}) == "budget_create_only"
        for wrong in ("25.00", "025", "0", "-1", "", 25, "9" * 15):
            await api.fails(400, "POST", path, {"budget": limit(wrong)})
        assert "EUR" in await api.fails(400, "POST", path, {"budget": limit("5", "EUR")})


async def test_session_with_a_budget_needs_prices_for_all_its_models(
    tmp_path: Path, model: Provider
) -> None:
    async with model, open_with_model(model, tmp_path) as api:
        local = (await api.agent(model="ollama:llama3"))["id"]
        demo = (await api.agent(model="demo"))["id"]
        roster = {"type": "coordinator", "agents": [{"type": "self"}, local]}
        coordinator = (await api.agent(multiagent=roster))["id"]
        environment_id = await api.built_in("environments")
        for agent in (local, demo, coordinator):
            body = {"agent": agent, "environment_id": environment_id, "budget": limit("5")}
            assert await error_code(api, "/v1/sessions", body) == "model_not_budgetable"
        assert (await api.ok("GET", "/v1/sessions"))["data"] == []


async def test_unknown_cost_counts_as_a_spent_budget(
    tmp_path: Path, model: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider reports that another model answered, whose price is unknown."""
    monkeypatch.setenv("OPENAI_API_KEY", "test-key")
    async with model, open_with_model(model, tmp_path) as api:
        await api.hub.config.set("local", "model", "openai-chat:gpt-5")
        await api.hub.config.set("local", "model.base_url", f"{model.url}/v1")
        model.scripts = [LOOK, [Say("there")]]
        agent = (await api.agent(model="openai-chat:gpt-5", tools=TOOLS))["id"]
        id = (await api.session(agent=agent, budget=limit("500")))["id"]
        await api.send(id, message("look"))
        assert stop_reasons(await until(api, id, rests(1))) == ["budget_reached"]
        assert len(model.requests) == 1
        path = f"/v1/sessions/{id}"
        assert await error_code(api, path, {"budget": limit("900")}) == "model_not_budgetable"
        await api.ok("POST", path, {"budget": None})
        events = await until(api, id, lambda results: "end_turn" in stop_reasons(results))
        assert len(model.requests) == 2 and events[-2]["budget"] is None


async def test_turn_stopped_by_its_budget_can_be_answered_or_cancelled(
    tmp_path: Path, model: Provider
) -> None:
    custom = {"type": "custom", "name": "ask", "description": "d"}
    custom["input_schema"] = {"type": "object"}  # type: ignore[assignment]  # any JSON
    async with model, open_with_model(model, tmp_path) as api:
        model.scripts = [[Use("ask", {})]]
        agent = (await api.agent(tools=[custom]))["id"]
        id = (await api.session(agent=agent, budget=limit("1")))["id"]
        await api.send(id, message("ask"))
        events = await until(api, id, rests(1))
        assert stop_reasons(events) == ["requires_action"]
        (use,) = [event["id"] for event in events if event["type"] == "agent.custom_tool_use"]
        both = {"events": [message("and?"), result(use, "yes")]}
        assert await error_code(api, f"/v1/sessions/{id}/events", both) == "budget_reached"
        await api.send(id, result(use, "yes"))
        events = await until(api, id, rests(2))
        assert stop_reasons(events)[-1] == "budget_reached"
        assert "user.custom_tool_result" in types(events)
        await api.send(id, {"type": "user.interrupt"})
        assert stop_reasons(await api.events(id))[-1] == "end_turn"
        await api.ok("POST", f"/v1/sessions/{id}", {"budget": limit("900")})
        await api.say(id, "something else")
        # The cancelled turn was not resumed.
        assert len(model.requests) == 2 and "something else" in str(model.requests[-1])


async def test_outcome_is_graded_after_the_budget_is_raised(
    tmp_path: Path, model: Provider
) -> None:
    rubric = {"type": "text", "content": "There is one."}
    expected = {"type": "user.define_outcome", "description": "A poem", "rubric": rubric}
    verdict = {"result": "needs_revision", "explanation": "too short"}
    async with model, open_with_model(model, tmp_path) as api:
        model.scripts = [[Say("Here.")], [Use("verdict", verdict)]]
        id = (await api.session(budget=limit("2")))["id"]
        path = f"/v1/sessions/{id}"
        await api.send(id, expected)
        assert stop_reasons(await until(api, id, rests(1))) == ["budget_reached"]
        (outcome,) = (await api.ok("GET", path))["outcome_evaluations"]
        assert (outcome["iteration"], outcome["completed_at"]) == (1, None)
        model.scripts = [[Say("Longer.")], [Use("verdict", {**verdict, "result": "satisfied"})]]
        await api.ok("POST", path, {"budget": limit("900")})
        await until(api, id, lambda events: "end_turn" in stop_reasons(events))
        (outcome,) = (await api.ok("GET", path))["outcome_evaluations"]
        assert (outcome["iteration"], outcome["result"]) == (1, "satisfied")
        assert len(model.requests) == 4 and "A poem" in str(model.requests[2]["messages"][-1])
        # An outcome that is interrupted before it resumes is settled.
        id = (await api.session(budget=limit("1")))["id"]
        await api.send(id, expected)
        await until(api, id, rests(1))
        await api.send(id, {"type": "user.interrupt"})
        (outcome,) = (await api.ok("GET", f"/v1/sessions/{id}"))["outcome_evaluations"]
        assert outcome["result"] == "interrupted"


async def test_fork_has_the_budget_of_its_session_and_no_usage(
    tmp_path: Path, model: Provider
) -> None:
    async with model, open_with_model(model, tmp_path) as api:
        model.scripts = [[Say("one")]]
        id = (await api.session(budget=limit("1")))["id"]
        await api.say(id, "go")
        await api.fails(400, "POST", f"/v1/sessions/{id}/events", {"events": [message("on")]})
        await api.ok("POST", f"/v1/sessions/{id}", {"budget": limit("7")})
        forked = await api.hub.editor.fork(api.principal, ids.parse(id) or "")
        shown = await api.ok("GET", f"/v1/sessions/{ids.format_id('sesn', forked.id)}")
        assert (shown["budget"], shown["usage"]["list_cost"]["amount"]) == (limit("7"), "0")


async def test_budget_raised_while_the_turn_stops_resumes_it(tmp_path: Path) -> None:
    class SpendingAgent:
        async def run(self, turn: Turn) -> StopReason:
            turns.append(turn.text)
            if len(turns) > 1:
                return "end_turn"
            await turn.emit(ModelCalled(usage=Usage(input_tokens=1, cost=20_000), model="m"))
            assert turn.session.at_budget
            await api.hub.turns.set_budget(api.principal, turn.session.id, 50_000)
            return "budget_reached"  # the turn does not know the new budget

    turns: list[str] = []
    async with open_api(
        tmp_path, agent_registry=AgentRegistry({"default": lambda _: SpendingAgent()})
    ) as api:
        id = (await api.hub.editor.create(api.principal, budget=10_000)).id
        await api.hub.turns.run(api.principal, id, "go")
        await api.hub.turns.engine.wait_idle()
        session = await api.hub.sessions.get(api.principal, id)
        assert turns == ["go", "Continue where you stopped."]
        assert (session.stop_reason, session.turns) == ("end_turn", 2)


async def test_interrupted_budget_change_can_be_repeated_and_resumes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SpendingAgent:
        async def run(self, turn: Turn) -> StopReason:
            turns.append(turn.text)
            await turn.emit(ModelCalled(usage=Usage(input_tokens=1, cost=20_000), model="m"))
            return "budget_reached" if turn.session.at_budget else "end_turn"

    turns: list[str] = []
    async with open_api(
        tmp_path, agent_registry=AgentRegistry({"default": lambda _: SpendingAgent()})
    ) as api:
        id = (await api.hub.editor.create(api.principal, budget=10_000)).id
        await api.hub.turns.run(api.principal, id, "go")
        await api.hub.turns.engine.wait_idle()
        with monkeypatch.context() as patch:
            patch.setattr(service, "resume", None)
            with pytest.raises(TypeError):
                await api.hub.turns.set_budget(api.principal, id, 30_000)
        with monkeypatch.context() as patch:
            patch.setattr(type(api.hub.turns.engine), "kick", leave_waiting)
            for _ in range(2):
                await api.hub.turns.set_budget(api.principal, id, 30_000)
        await api.hub.turns.engine.kick(("local", id))
        await api.hub.turns.engine.wait_idle()
        session = await api.hub.sessions.get(api.principal, id)
        # The resumed turn spent the rest of the budget, so the second change resumed nothing.
        assert turns == ["go", "Continue where you stopped."]
        assert (session.stop_reason, session.turns) == ("budget_reached", 2)


async def test_fork_does_not_resume_the_turn_that_a_budget_stopped(tmp_path: Path) -> None:
    class SpendingAgent:
        async def run(self, turn: Turn) -> StopReason:
            turns.append(turn.session.id)
            await turn.emit(ModelCalled(usage=Usage(input_tokens=1, cost=20_000), model="m"))
            return "budget_reached" if turn.session.at_budget else "end_turn"

    turns: list[str] = []
    async with open_api(
        tmp_path, agent_registry=AgentRegistry({"default": lambda _: SpendingAgent()})
    ) as api:
        id = (await api.hub.editor.create(api.principal, budget=10_000)).id
        assert await api.hub.turns.run(api.principal, id, "go") == "budget_reached"
        forked = await api.hub.editor.fork(api.principal, id)
        for session in (id, forked.id):
            await api.hub.turns.set_budget(api.principal, session, 50_000)
        await api.hub.turns.engine.wait_idle()
        assert turns == [id, id]
        assert await api.hub.turns.run(api.principal, forked.id, "go") == "end_turn"


async def leave_waiting(*_: object) -> None:
    """Leave waiting turns alone."""


async def test_sessions_of_a_deployment_have_its_budget(tmp_path: Path, model: Provider) -> None:
    async with model, open_with_model(model, tmp_path) as api:
        body = {
            "name": "d",
            "agent": (await api.agent())["id"],
            "environment_id": await api.environment(),
            "initial_events": [message("go")],
            "budget": limit("5"),
        }
        deployment = await api.ok("POST", "/v1/deployments", body)
        path = f"/v1/deployments/{deployment['id']}"
        assert deployment["budget"] == limit("5")

        async def budget() -> Any:
            run = await api.ok("POST", f"{path}/run")
            return (await api.ok("GET", f"/v1/sessions/{run['session_id']}"))["budget"]

        assert await budget() == limit("5")
        assert (await api.ok("POST", path, {"budget": limit("6")}))["budget"] == limit("6")
        assert (await api.ok("POST", path, {"name": "e"}))["budget"] == limit("6")
        assert await budget() == limit("6")
        await api.hub.config.set("local", "model", "ollama:llama3")
        run = await api.ok("POST", f"{path}/run")
        assert run["error"]["type"] == "session_creation_rejected_error"
        assert await error_code(api, path, {"budget": limit("9")}) == "model_not_budgetable"
        assert (await api.ok("POST", path, {"budget": None}))["budget"] is None
        assert await budget() is None


async def test_official_client_and_rendered_session_show_the_budget(
    tmp_path: Path, model: Provider
) -> None:
    from anthropic import AsyncAnthropic, BadRequestError

    data = tmp_path / "data"
    async with model:
        async with open_with_model(model, data):
            pass  # stores the configuration
        model.scripts = [LOOK, LOOK]
        with serving(data) as server:
            client = AsyncAnthropic(
                base_url=server.url,
                api_key=server.key,
                max_retries=0,
                _strict_response_validation=True,
            )
            async with client:
                beta = client.beta
                agent = await beta.agents.create(
                    name="a",
                    model="claude-sonnet-4-6",
                    tools=[{"type": "agent_toolset_20260401"}],
                )
                environment = await beta.environments.create(name="e")
                low_budget: Any = limit("2")
                session = await beta.sessions.create(
                    agent=agent.id, environment_id=environment.id, budget=low_budget
                )
                text: Any = message("look around")
                send = beta.sessions.events.send(session.id, events=[text])
                assert await stop_reason_of(client, session.id, send) == "budget_reached"
                with pytest.raises(BadRequestError, match=r"budget of \$0.02"):
                    await beta.sessions.events.send(session.id, events=[text])
                response = await asyncio.to_thread(
                    run_segue, server.environment, "show", session.id
                )
                assert "-- the session has reached its budget of $0.02 --" in response
                more: Any = limit("2500")
                update = beta.sessions.update(session.id, budget=more)
                assert await stop_reason_of(client, session.id, update) == "end_turn"
                assert len(model.requests) == 3
                changed = await beta.sessions.retrieve(session.id)
                assert changed.budget is not None and changed.budget.to_dict() == more
    body = StatusChanged(status="idle", stop_reason="budget_reached")
    started = Event(seq=1, id=ids.new_id(), at=0, body=Created(cwd="/"))
    created = projection.start("local", ids.new_id(), started)
    event = Event(seq=9, id=ids.new_id(), at=0, body=body)
    (shown,) = build_items(created, [event], Pairs({}, {}))
    assert shown.text == "Stopped: the session has reached its budget."


async def stop_reason_of(client: "AsyncAnthropic", session: str, act: Awaitable[object]) -> str:
    """Start a turn and return its stop reason."""
    stream = await client.beta.sessions.events.stream(session)
    async with asyncio.timeout(60), stream:
        await act
        async for event in stream:
            if event.type == "session.status_idle":
                return event.stop_reason.type
    raise AssertionError("the stream ended")


def run_segue(environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-m", "segue", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


async def test_budget_without_a_model_is_refused_with_a_hint(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        agent = (await api.agent())["id"]
        environment_id = await api.built_in("environments")
        body = {"agent": agent, "environment_id": environment_id, "budget": limit("5")}
        assert "segue config set model" in await api.fails(400, "POST", "/v1/sessions", body)
