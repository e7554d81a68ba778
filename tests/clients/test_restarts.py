"""Official clients whose server stops or dies in the middle, and starts again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.agents.provider import Provider, Say, Use
from tests.faults.processes import TIMEOUT_SECONDS, StoreLocation
from tests.faults.restarting_server import RestartingServer

if TYPE_CHECKING:  # importing it takes seconds, also for processes that run other tests
    from anthropic import AsyncAnthropic

WEATHER: Any = {
    "type": "custom",
    "name": "weather",
    "description": "The weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
SIGNALS = [pytest.param("SIGTERM", marks=pytest.mark.full), "SIGKILL"]


@asynccontextmanager
async def restarting_server(
    directory: Path, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[RestartingServer, "AsyncAnthropic"]]:
    from anthropic import AsyncAnthropic

    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    restarting = RestartingServer(StoreLocation(directory))
    await restarting.use_model(provider.url)
    async with restarting:
        server = restarting.server
        client = AsyncAnthropic(base_url=server.url, auth_token=server.key, api_key=None)
        async with client, asyncio.timeout(TIMEOUT_SECONDS):
            yield restarting, client


async def create_session(client: "AsyncAnthropic", tools: list[Any], config: str) -> Any:
    settings: Any = {"type": config}
    environment = await client.beta.environments.create(name="e", config=settings)
    agent = await client.beta.agents.create(name="a", model="claude-sonnet-4-6", tools=tools)
    return await client.beta.sessions.create(agent=agent.id, environment_id=environment.id)


async def say(client: "AsyncAnthropic", session: str, text: str) -> None:
    message: Any = {"type": "user.message", "content": [{"type": "text", "text": text}]}
    await client.beta.sessions.events.send(session, events=[message])


async def until_idle(client: "AsyncAnthropic", session: str) -> Any:
    """Return the last idle event, once the session has one."""
    while True:
        events = [event async for event in client.beta.sessions.events.list(session)]
        if events and events[-1].type == "session.status_idle":
            return events[-1]
        await asyncio.sleep(0.05)


@pytest.mark.full
@pytest.mark.parametrize("how", SIGNALS)
async def test_tool_runner_of_the_official_client_runs_through_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    from anthropic import beta_async_tool

    began, proceed, runs = asyncio.Event(), asyncio.Event(), []

    @beta_async_tool
    async def weather(city: str) -> str:
        """Return the weather."""
        runs.append(city)
        if city == "Oslo":
            began.set()
            await proceed.wait()
        return f"rain in {city}"

    scripts = [[Use("weather", {"city": "Oslo"})], [Use("weather", {"city": "Rome"})]]
    async with (
        Provider(*scripts, [Say("done")]) as provider,
        restarting_server(tmp_path, provider, monkeypatch) as (restarting, client),
    ):
        session = await create_session(client, [WEATHER], "cloud")
        await say(client, session.id, "Go")

        async def restart() -> None:
            await began.wait()
            await restarting.restart(how)
            proceed.set()

        restarted = asyncio.create_task(restart())
        runner = client.beta.sessions.events.tool_runner(session.id, tools=[weather], max_idle=0.2)
        calls = [call async for call in runner]
        await restarted
        assert [(call.name, call.posted, call.is_error) for call in calls] == [
            ("weather", True, False)
        ] * 2
        assert (await until_idle(client, session.id)).stop_reason.type == "end_turn"
        assert runs == ["Oslo", "Rome"]
        assert "rain in Rome" in str(provider.requests[-1]["messages"][-1])


@pytest.mark.full
@pytest.mark.parametrize("how", SIGNALS)
async def test_confirmation_loop_of_the_official_client_runs_through_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    policy = {"permission_policy": {"type": "always_ask"}}
    toolset = {"type": "agent_toolset_20260401", "default_config": policy}
    uses = [Use("bash", {"command": f"echo {number} >> ran.txt"}) for number in range(3)]
    async with (
        Provider(uses[:2], uses[2:], [Say("done")]) as provider,
        restarting_server(tmp_path, provider, monkeypatch) as (restarting, client),
    ):
        session = await create_session(client, [toolset], "cloud")
        await say(client, session.id, "Go")
        answered: list[str] = []
        while (idle := await until_idle(client, session.id)).stop_reason.type != "end_turn":
            assert idle.stop_reason.type == "requires_action"
            open_ids = [id for id in idle.stop_reason.event_ids if id not in answered]
            for id in open_ids:
                if not answered:
                    await restarting.restart(how)
                confirmation: Any = {"type": "user.tool_confirmation", "tool_use_id": id}
                event = {**confirmation, "result": "allow"}
                await client.beta.sessions.events.send(session.id, events=[event])
                answered.append(id)
            await asyncio.sleep(0.05)
        assert len(answered) == 3
        (ran,) = tmp_path.rglob("ran.txt")
        assert ran.read_text().split() == ["0", "1", "2"]


@pytest.mark.parametrize("how", SIGNALS)
async def test_official_worker_runs_through_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    wait = "echo run >> ran.txt; while [ ! -e go ]; do sleep 0.05; done; echo finished"
    scripts = [[Use("bash", {"command": wait})], [Use("bash", {"command": "echo run >> ran.txt"})]]
    async with (
        Provider(*scripts, [Say("done")]) as provider,
        restarting_server(tmp_path / "data", provider, monkeypatch) as (restarting, client),
    ):
        session = await create_session(client, [{"type": "agent_toolset_20260401"}], "self_hosted")
        await say(client, session.id, "Go")
        worker = client.beta.environments.work.worker(
            environment_id=session.environment_id,
            environment_key=restarting.server.key,
            workdir=work,
            max_idle=0.2,
        )
        working = asyncio.create_task(worker.run())
        while not (work / "ran.txt").exists():
            await asyncio.sleep(0.05)
        await restarting.restart(how)
        (work / "go").touch()
        while (await until_idle(client, session.id)).stop_reason.type != "end_turn":
            await asyncio.sleep(0.05)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        assert (work / "ran.txt").read_text().split() == ["run", "run"]
        assert "finished" in str(provider.requests[1]["messages"][-1])
