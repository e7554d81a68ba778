"""What a stopping server waits for, and what it accepts meanwhile."""

import asyncio

import httpx2
import pytest

from tests.agents.provider import Provider, Say, Use, Wait
from tests.faults.processes import StoreLocation
from tests.faults.restarting_server import (
    RestartingServer,
    RestClient,
    open_requests,
    stop_reason,
)
from tests.faults.test_restarts import WEATHER
from tests.interfaces.rest.api import HEADERS

GRACE_SECONDS = 3600  # longer than `RestartingServer.end` waits
TOOLSET = {
    "type": "agent_toolset_20260401",
    "default_config": {"permission_policy": {"type": "always_ask"}},
}


@pytest.fixture(autouse=True)
def api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")


@pytest.mark.parametrize(
    ("turns", "workers"),
    [
        pytest.param("no turn", 1, marks=pytest.mark.full),
        ("no turn", 2),
        ("waiting turns", 1),
        pytest.param("waiting turns", 2, marks=pytest.mark.full),  # each worker imports a model
    ],
)
async def test_server_that_runs_no_turn_stops_at_once(
    sqlite_location: StoreLocation, turns: str, workers: int
) -> None:
    restarting = RestartingServer(sqlite_location, workers, GRACE_SECONDS)
    async with Provider() as provider:
        await restarting.use_model(provider.url)
        provider.otherwise = [Use("bash", {"command": "true"}), Use("weather", {})]
        async with restarting:
            rest = RestClient(restarting)
            session = await rest.session([TOOLSET, WEATHER], {"type": "cloud"})
            if turns == "waiting turns":
                await rest.say(session, "Go")
                events = await rest.until_idle(session)
                assert len(open_requests(events)) == 2
            headers = {**HEADERS, "x-api-key": restarting.server.key}
            async with (
                httpx2.AsyncClient(base_url=restarting.server.url, headers=headers) as http,
                http.stream("GET", f"/v1/sessions/{session}/events/stream") as stream,
            ):
                assert stream.status_code == 200  # an open stream does not delay the end
                await restarting.end("SIGTERM")


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.full)])
async def test_stopping_server_accepts_answers_and_results(
    sqlite_location: StoreLocation, workers: int
) -> None:
    restarting = RestartingServer(sqlite_location, workers)
    hold = Wait()
    async with Provider() as provider:
        await restarting.use_model(provider.url)
        calls = [Use("bash", {"command": "true"}), Use("weather", {})]
        provider.scripts = [calls, [hold, Say("finished")]]
        async with restarting:
            rest = RestClient(restarting)
            waiting, running = [
                await rest.session([TOOLSET, WEATHER], {"type": "cloud"}) for _ in range(2)
            ]
            await rest.say(waiting, "Go")
            permission, custom = open_requests(await rest.until_idle(waiting))
            await rest.say(running, "Go")
            await hold.reached.wait()
            ending = asyncio.create_task(restarting.end("SIGTERM"))
            await asyncio.sleep(1)  # a worker that runs no turn has ended by now
            confirmation = {"type": "user.tool_confirmation", "tool_use_id": permission}
            await rest.send(waiting, {**confirmation, "result": "allow"})
            result = {"type": "user.custom_tool_result", "custom_tool_use_id": custom}
            text = [{"type": "text", "text": "rain"}]
            await rest.send(waiting, {**result, "content": text})
            hold.event.set()
            await ending
            await restarting.start()
            for session in (waiting, running):
                events = await rest.until(session, lambda events: not open_requests(events))
                events = await rest.until_idle(session)
                assert stop_reason(events) == {"type": "end_turn"}
                assert "session.error" not in {event["type"] for event in events}
            assert "rain" in str(provider.requests[-1]["messages"][-1])
