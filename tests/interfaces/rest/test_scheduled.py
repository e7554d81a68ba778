"""Deployments that run on a schedule."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from segue.hub.resources.scheduling.scheduler import Scheduler
from segue.model import clock, ids
from segue.model.errors import StoreFull
from segue.model.record import Record
from tests.clients.rest_server import serving
from tests.interfaces.rest.api import Api, message, open_api
from tests.interfaces.rest.directory_agent import DirectoryAgent, registry_with

HOURLY = {"type": "cron", "expression": "0 * * * *", "timezone": "Asia/Kathmandu"}
MINUTE = 60 * clock.SECOND


class MovableClock:
    """A clock that a test moves, and the schedulers that read it."""

    def __init__(self, patch: pytest.MonkeyPatch, begin: str) -> None:
        self.now = clock.from_rfc3339(begin)
        patch.setattr(clock, "now", self.tick)
        self.servers: list[Scheduler] = []

    def tick(self) -> int:
        self.now += 1
        return self.now

    async def passes(self, minutes: int) -> None:
        self.now += minutes * MINUTE
        await asyncio.gather(*(server.run_due() for server in self.servers))


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> MovableClock:
    return MovableClock(monkeypatch, "2026-11-16T10:00:00Z")  # a quarter to four in Kathmandu


def scheduler(api: Api) -> Scheduler:
    """Return the scheduler of another server over the same store."""
    return Scheduler(api.hub.store, api.hub.records, api.hub.deployments)


async def create_deployment(api: Api, **fields: Any) -> dict[str, Any]:
    body = {
        "name": "d",
        "agent": (await api.agent())["id"],
        "environment_id": await api.environment(),
        "initial_events": [message("go")],
        "schedule": HOURLY,
        **fields,
    }
    return await api.ok("POST", "/v1/deployments", body)


async def runs(api: Api, **params: str) -> list[dict[str, Any]]:
    return (await api.ok("GET", "/v1/deployment_runs", **params))["data"]


async def test_due_deployment_runs_once_with_several_servers(
    tmp_path: Path, database: str | None, time: MovableClock, directory_agent: DirectoryAgent
) -> None:
    async with open_api(
        tmp_path, database=database, agent_registry=registry_with(directory_agent)
    ) as api:
        time.servers = [scheduler(api) for _ in range(3)]
        created = await create_deployment(api)
        expected = [f"2026-11-16T{hour}:15:00.000000Z" for hour in range(10, 15)]
        assert created["schedule"] == {
            **HOURLY,
            "last_run_at": None,
            "upcoming_runs_at": expected,
        }
        await time.passes(14)
        assert await runs(api) == []
        await time.passes(1)
        (run,) = await runs(api)
        assert run["trigger_context"] == {"type": "schedule", "scheduled_at": expected[0]}
        session = await api.ok("GET", f"/v1/sessions/{run['session_id']}")
        assert session["deployment_id"] == created["id"]
        await time.passes(1)
        assert await runs(api) == [run]
        # Of the runs that became due while no scheduler ran, only the last one is made.
        await time.passes(180)
        newest, first = await runs(api)
        assert (first, newest["trigger_context"]["scheduled_at"]) == (run, expected[3])
        path = f"/v1/deployments/{created['id']}"
        request = await api.ok("POST", f"{path}/run")
        assert await runs(api, trigger_type="manual") == [request]
        assert await runs(api, trigger_type="schedule") == [newest, first]
        shown = await api.ok("GET", path)
        assert shown["schedule"]["upcoming_runs_at"][0] == expected[4]
        assert newest["created_at"] > shown["schedule"]["last_run_at"] > expected[3]
        assert shown["updated_at"] == created["updated_at"]
        await api.hub.turns.engine.wait_idle()


async def test_scheduler_that_wakes_early_waits_for_the_minute(
    tmp_path: Path, time: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    early, looked = [300, 20, 0, 0, 300, 0, 0, 0], list[int]()

    async def sleep(seconds: float) -> None:
        time.now += max(0, round(seconds * clock.SECOND) - early.pop(0))

    async with open_api(tmp_path) as api:
        server = scheduler(api)

        async def run_due() -> None:
            looked.append(clock.now() // MINUTE)
            if len(looked) == 3:
                api.app.closing.set()

        monkeypatch.setattr(server, "run_due", run_due)
        monkeypatch.setattr("segue.hub.resources.scheduling.scheduler.asyncio.sleep", sleep)
        started = clock.now() // MINUTE
        await server.run(api.app.closing)
    assert looked == [started + 1, started + 2, started + 3]


async def test_paused_archived_and_unscheduled_deployments_do_not_run(
    tmp_path: Path, database: str | None, time: MovableClock, directory_agent: DirectoryAgent
) -> None:
    async with open_api(
        tmp_path, database=database, agent_registry=registry_with(directory_agent)
    ) as api:
        time.servers = [scheduler(api)]
        path = f"/v1/deployments/{(await create_deployment(api))['id']}"
        await api.ok("POST", f"{path}/pause")
        await time.passes(60)
        # The missed run is not made later.
        await api.ok("POST", f"{path}/unpause")
        await time.passes(1)
        assert (await api.ok("POST", path, {"schedule": None}))["schedule"] is None
        await time.passes(60)
        daily = {**HOURLY, "expression": "0 0 * * *"}
        assert (await api.ok("POST", path, {"schedule": daily}))["schedule"]["expression"]
        await api.ok("POST", path, {"name": "other"})  # the status stays as it is
        archived = await api.ok("POST", f"{path}/archive")
        assert archived["schedule"]["upcoming_runs_at"] == []
        await time.passes(24 * 60)
        assert await runs(api) == []
        assert await api.hub.store.records("", "scheduled") == []
        for wrong, field in (("expression", "0 0 31 2 *"), ("timezone", "Nowhere")):
            bad = {**HOURLY, wrong: field}
            body = {**(await arguments(api)), "schedule": bad}
            assert f"schedule.{wrong}" in await api.fails(400, "POST", "/v1/deployments", body)


async def arguments(api: Api) -> dict[str, Any]:
    return {
        "name": "d",
        "agent": await api.built_in("agents"),
        "environment_id": await api.built_in("environments"),
        "initial_events": [message("go")],
    }


async def test_deployment_that_cannot_run_is_paused_with_a_reason(
    tmp_path: Path, database: str | None, time: MovableClock, directory_agent: DirectoryAgent
) -> None:
    async with open_api(
        tmp_path, database=database, agent_registry=registry_with(directory_agent)
    ) as api:
        time.servers = [scheduler(api)]
        vault = (await api.ok("POST", "/v1/vaults", {"display_name": "v"}))["id"]
        path = f"/v1/deployments/{(await create_deployment(api, vault_ids=[vault]))['id']}"
        await api.ok("POST", f"/v1/vaults/{vault}/archive")
        await time.passes(60)
        (run,) = await runs(api)
        assert (run["session_id"], run["error"]["type"]) == (None, "vault_archived_error")
        paused = await api.ok("GET", path)
        assert paused["paused_reason"] == {"type": "error", "error": run["error"]}
        await time.passes(60)
        assert await runs(api) == [run]
        await api.ok("POST", path, {"vault_ids": []})
        assert (await api.ok("POST", f"{path}/unpause"))["paused_reason"] is None
        await time.passes(60)
        assert (await runs(api))[0]["error"] is None
        await api.hub.turns.engine.wait_idle()


async def test_run_that_fails_after_creating_its_session_is_listed(
    tmp_path: Path,
    database: str | None,
    time: MovableClock,
    directory_agent: DirectoryAgent,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_api(
        tmp_path, database=database, agent_registry=registry_with(directory_agent)
    ) as api:
        time.servers = [scheduler(api)]
        created = await create_deployment(api)
        failures = [StoreFull("the disk is full"), ZeroDivisionError("internal details")]
        prompt = api.hub.turns.submit

        async def submit_and_fail(*arguments: Any, **options: Any) -> str:
            if failures:
                raise failures.pop(0)
            return await prompt(*arguments, **options)

        monkeypatch.setattr(api.hub.turns, "submit", submit_and_fail)
        for _ in range(3):
            await time.passes(60)
        last, *failed = await runs(api)
        assert (last["error"], last["session_id"] is None) == (None, False)
        assert [run["error"]["type"] for run in failed] == ["unknown_error"] * 2
        assert [run["session_id"] for run in failed] == [None, None]
        response = [run["error"]["message"] for run in failed]
        assert (
            "the disk is full" in response[1]
            and "log" in response[0]
            and "internal details" not in response[0]
        )
        sessions = (await api.ok("GET", "/v1/sessions", deployment_id=created["id"]))["data"]
        session_ids = [session["id"] for session in sessions]
        assert (
            len(session_ids) == 3
            and session_ids[1] in response[0]
            and session_ids[2] in response[1]
        )
        assert (await runs(api, has_error="true")) == failed
        assert (await api.ok("GET", f"/v1/deployments/{created['id']}"))["status"] == "active"
        await api.hub.turns.engine.wait_idle()


async def test_concurrent_edit_or_failure_does_not_stop_other_deployments(
    tmp_path: Path,
    time: MovableClock,
    directory_agent: DirectoryAgent,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        time.servers = [scheduler(api)]
        created = [await create_deployment(api) for _ in range(2)]
        claim, seen = Scheduler._claim, []

        async def claim_after_edit(self: Scheduler, deployment: Record, due: int) -> Record:
            seen.append(deployment.id)
            if len(seen) == 1:
                raise OSError("the disk is full")
            if len(seen) == 2:
                name = ids.format_id("depl", deployment.id)
                await api.ok("POST", f"/v1/deployments/{name}", {"name": "other"})
            return await claim(self, deployment, due)

        monkeypatch.setattr(Scheduler, "_claim", claim_after_edit)
        await time.passes(60)
        assert len(seen) == 3 and seen[1] == seen[2]
        (run,) = await runs(api)
        assert run["deployment_id"] == created[0]["id"]  # the older one, which is read last
        await api.hub.turns.engine.wait_idle()
        path = f"/v1/deployments/{created[0]['id']}"
        assert (await api.ok("GET", path))["name"] == "other"
        # Runs store no new versions of the deployment.
        for _ in range(3):
            await time.passes(60)
        id = ids.parse(created[0]["id"]) or ""
        stored = await api.hub.store.get_record("local", "deployment", id)
        assert stored is not None and stored.version == 6
        assert await api.hub.store.get_record("local", "deployment", id, 5) is None
        await api.hub.turns.engine.wait_idle()


async def test_archive_or_schedule_during_a_scheduler_pass_takes_effect(
    tmp_path: Path,
    database: str | None,
    time: MovableClock,
    directory_agent: DirectoryAgent,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_api(
        tmp_path, database=database, agent_registry=registry_with(directory_agent)
    ) as api:
        time.servers = [scheduler(api)]
        path = f"/v1/deployments/{(await create_deployment(api))['id']}"
        claim, delete = Scheduler._claim, api.hub.records.delete

        async def archived(self: Scheduler, deployment: Record, due: int) -> Record:
            await api.ok("POST", f"{path}/archive")
            return await claim(self, deployment, due)

        with monkeypatch.context() as patch:
            patch.setattr(Scheduler, "_claim", archived)
            await time.passes(60)
        assert (await api.ok("GET", path))["archived_at"] is not None
        assert await runs(api) == []
        path = f"/v1/deployments/{(await create_deployment(api))['id']}"
        await api.ok("POST", path, {"schedule": None})

        async def scheduled(record: Record) -> None:
            await api.ok("POST", path, {"schedule": HOURLY})
            await delete(record)

        with monkeypatch.context() as patch:
            patch.setattr(api.hub.records, "delete", scheduled)
            await time.passes(1)
        await time.passes(60)
        assert len(await runs(api)) == 1
        await api.hub.turns.engine.wait_idle()


def test_official_client_parses_scheduled_deployments(tmp_path: Path) -> None:
    from anthropic import Anthropic

    with serving(tmp_path) as server:
        client = Anthropic(
            base_url=server.url, api_key=server.key, max_retries=0, _strict_response_validation=True
        )
        beta = client.beta
        schedule: Any = {**HOURLY, "expression": "*/5 9-17 * * 1-5"}
        text: Any = message("go")
        created = beta.deployments.create(
            name="d",
            agent=beta.agents.create(name="a", model="m").id,
            environment_id=beta.environments.create(name="e").id,
            initial_events=[text],
            schedule=schedule,
        )
        assert created.schedule is not None and len(created.schedule.upcoming_runs_at or ()) == 5
        assert [item.schedule for item in beta.deployments.list()] == [created.schedule]
        run = beta.deployments.run(created.id)
        assert list(beta.deployment_runs.list(trigger_type="manual")) == [run]
        assert list(beta.deployment_runs.list(trigger_type="schedule")) == []
        assert beta.deployments.update(created.id, schedule=None).schedule is None
        client.close()


@pytest.mark.full
def test_running_server_starts_a_deployment_at_its_minute(tmp_path: Path) -> None:
    from time import sleep

    from anthropic import Anthropic

    with serving(tmp_path, "--workers", "2") as server:
        client = Anthropic(
            base_url=server.url, api_key=server.key, max_retries=0, _strict_response_validation=True
        )
        beta = client.beta
        text: Any = message("go")
        schedule: Any = {**HOURLY, "expression": "* * * * *"}
        beta.deployments.create(
            name="d",
            agent=beta.agents.create(name="a", model="m").id,
            environment_id=beta.environments.create(name="e").id,
            initial_events=[text],
            schedule=schedule,
        )
        for _ in range(90):
            if results := list(beta.deployment_runs.list()):
                break
            sleep(1)
        (run,) = results
        assert run.session_id is not None and run.trigger_context.type == "schedule"
        sleep(2)
        assert list(beta.deployment_runs.list()) == [run]
        client.close()
