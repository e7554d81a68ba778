"""Deployments that run by themselves, when their time has come."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic

from segue.hub.resources.scheduler import Scheduler
from segue.model import clock, ids
from segue.model.errors import StoreFull
from segue.model.record import Record
from tests.clients.rest_server import serving
from tests.interfaces.rest.api import Api, message, open_api
from tests.interfaces.rest.directory_agent import DirectoryAgent, registry_with

HOURLY = {"type": "cron", "expression": "0 * * * *", "timezone": "Asia/Kathmandu"}
MINUTE = 60 * clock.SECOND


class Time:
    """A clock that a test moves, and servers that look at it."""

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
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch, "2026-11-16T10:00:00Z")  # a quarter to four in Kathmandu


def scheduler(api: Api) -> Scheduler:
    """Return the scheduler of another server over the same store."""
    return Scheduler(api.hub.store, api.hub.records, api.hub.deployments)


async def deployed(api: Api, **fields: Any) -> dict[str, Any]:
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


async def test_what_is_due_runs_once_whoever_looks(
    tmp_path: Path, database: str | None, time: Time, directory_agent: DirectoryAgent
) -> None:
    async with open_api(
        tmp_path, database=database, agent_registry=registry_with(directory_agent)
    ) as api:
        time.servers = [scheduler(api) for _ in range(3)]
        made = await deployed(api)
        expected = [f"2026-11-16T{hour}:15:00.000000Z" for hour in range(10, 15)]
        assert made["schedule"] == {
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
        assert session["deployment_id"] == made["id"]
        await time.passes(1)
        assert await runs(api) == [run]
        # Of what came due while nobody looked, the last one is done.
        await time.passes(180)
        newest, first = await runs(api)
        assert (first, newest["trigger_context"]["scheduled_at"]) == (run, expected[3])
        path = f"/v1/deployments/{made['id']}"
        asked = await api.ok("POST", f"{path}/run")
        assert await runs(api, trigger_type="manual") == [asked]
        assert await runs(api, trigger_type="schedule") == [newest, first]
        shown = await api.ok("GET", path)
        assert shown["schedule"]["upcoming_runs_at"][0] == expected[4]
        assert newest["created_at"] > shown["schedule"]["last_run_at"] > expected[3]
        assert shown["updated_at"] == made["updated_at"]
        await api.hub.turns.engine.rest()


async def test_a_server_that_wakes_early_looks_when_the_minute_has_come(
    tmp_path: Path, time: Time, monkeypatch: pytest.MonkeyPatch
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
        monkeypatch.setattr("segue.hub.resources.scheduler.asyncio.sleep", sleep)
        begun = clock.now() // MINUTE
        await server.run(api.app.closing)
    assert looked == [begun + 1, begun + 2, begun + 3]


async def test_paused_archived_and_without_a_schedule_nothing_runs(
    tmp_path: Path, database: str | None, time: Time, directory_agent: DirectoryAgent
) -> None:
    async with open_api(
        tmp_path, database=database, agent_registry=registry_with(directory_agent)
    ) as api:
        time.servers = [scheduler(api)]
        path = f"/v1/deployments/{(await deployed(api))['id']}"
        await api.ok("POST", f"{path}/pause")
        await time.passes(60)
        # Nor is it made up for.
        await api.ok("POST", f"{path}/unpause")
        await time.passes(1)
        assert (await api.ok("POST", path, {"schedule": None}))["schedule"] is None
        await time.passes(60)
        daily = {**HOURLY, "expression": "0 0 * * *"}
        assert (await api.ok("POST", path, {"schedule": daily}))["schedule"]["expression"]
        await api.ok("POST", path, {"name": "other"})  # which leaves it as it is
        archived = await api.ok("POST", f"{path}/archive")
        assert archived["schedule"]["upcoming_runs_at"] == []
        await time.passes(24 * 60)
        assert await runs(api) == []
        assert await api.hub.store.records("", "scheduled") == []
        for wrong, field in (("expression", "0 0 31 2 *"), ("timezone", "Nowhere")):
            bad = {**HOURLY, wrong: field}
            body = {**(await given(api)), "schedule": bad}
            assert f"schedule.{wrong}" in await api.fails(400, "POST", "/v1/deployments", body)


async def given(api: Api) -> dict[str, Any]:
    return {
        "name": "d",
        "agent": await api.built_in("agents"),
        "environment_id": await api.built_in("environments"),
        "initial_events": [message("go")],
    }


async def test_one_that_cannot_run_is_paused_and_says_why(
    tmp_path: Path, database: str | None, time: Time, directory_agent: DirectoryAgent
) -> None:
    async with open_api(
        tmp_path, database=database, agent_registry=registry_with(directory_agent)
    ) as api:
        time.servers = [scheduler(api)]
        vault = (await api.ok("POST", "/v1/vaults", {"display_name": "v"}))["id"]
        path = f"/v1/deployments/{(await deployed(api, vault_ids=[vault]))['id']}"
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
        await api.hub.turns.engine.rest()


async def test_a_run_that_fails_after_its_session_was_made_is_among_the_runs(
    tmp_path: Path,
    database: str | None,
    time: Time,
    directory_agent: DirectoryAgent,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_api(
        tmp_path, database=database, agent_registry=registry_with(directory_agent)
    ) as api:
        time.servers = [scheduler(api)]
        made = await deployed(api)
        failures = [StoreFull("the disk is full"), ZeroDivisionError("what nobody should read")]
        prompt = api.hub.turns.submit

        async def prompted(*given: Any, **more: Any) -> str:
            if failures:
                raise failures.pop(0)
            return await prompt(*given, **more)

        monkeypatch.setattr(api.hub.turns, "submit", prompted)
        for _ in range(3):
            await time.passes(60)
        last, *failed = await runs(api)
        assert (last["error"], last["session_id"] is None) == (None, False)
        assert [run["error"]["type"] for run in failed] == ["unknown_error"] * 2
        assert [run["session_id"] for run in failed] == [None, None]
        told = [run["error"]["message"] for run in failed]
        assert "the disk is full" in told[1] and "log" in told[0] and "nobody" not in told[0]
        sessions = (await api.ok("GET", "/v1/sessions", deployment_id=made["id"]))["data"]
        spelt = [each["id"] for each in sessions]
        assert len(spelt) == 3 and spelt[1] in told[0] and spelt[2] in told[1]
        assert (await runs(api, has_error="true")) == failed
        assert (await api.ok("GET", f"/v1/deployments/{made['id']}"))["status"] == "active"
        await api.hub.turns.engine.rest()


async def test_what_somebody_changes_just_then_or_fails_on_keeps_nothing_from_running(
    tmp_path: Path, time: Time, directory_agent: DirectoryAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        time.servers = [scheduler(api)]
        made = [await deployed(api) for _ in range(2)]
        claim, seen = Scheduler._claim, []

        async def claimed(self: Scheduler, deployment: Record, due: int) -> Record:
            seen.append(deployment.id)
            if len(seen) == 1:
                raise OSError("the disk is full")
            if len(seen) == 2:
                name = ids.format_id("depl", deployment.id)
                await api.ok("POST", f"/v1/deployments/{name}", {"name": "other"})
            return await claim(self, deployment, due)

        monkeypatch.setattr(Scheduler, "_claim", claimed)
        await time.passes(60)
        assert len(seen) == 3 and seen[1] == seen[2]
        (run,) = await runs(api)
        assert run["deployment_id"] == made[0]["id"]  # the older one, which is looked at last
        await api.hub.turns.engine.rest()
        path = f"/v1/deployments/{made[0]['id']}"
        assert (await api.ok("GET", path))["name"] == "other"
        # However often it runs, one version is kept.
        for _ in range(3):
            await time.passes(60)
        id = ids.parse(made[0]["id"]) or ""
        kept = await api.hub.store.get_record("local", "deployment", id)
        assert kept is not None and kept.version == 6
        assert await api.hub.store.get_record("local", "deployment", id, 5) is None
        await api.hub.turns.engine.rest()


async def test_who_archives_or_schedules_one_as_it_is_looked_at_has_the_last_word(
    tmp_path: Path,
    database: str | None,
    time: Time,
    directory_agent: DirectoryAgent,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_api(
        tmp_path, database=database, agent_registry=registry_with(directory_agent)
    ) as api:
        time.servers = [scheduler(api)]
        path = f"/v1/deployments/{(await deployed(api))['id']}"
        claim, delete = Scheduler._claim, api.hub.records.delete

        async def archived(self: Scheduler, deployment: Record, due: int) -> Record:
            await api.ok("POST", f"{path}/archive")
            return await claim(self, deployment, due)

        with monkeypatch.context() as patch:
            patch.setattr(Scheduler, "_claim", archived)
            await time.passes(60)
        assert (await api.ok("GET", path))["archived_at"] is not None
        assert await runs(api) == []
        path = f"/v1/deployments/{(await deployed(api))['id']}"
        await api.ok("POST", path, {"schedule": None})

        async def scheduled(record: Record) -> None:
            await api.ok("POST", path, {"schedule": HOURLY})
            await delete(record)

        with monkeypatch.context() as patch:
            patch.setattr(api.hub.records, "delete", scheduled)
            await time.passes(1)
        await time.passes(60)
        assert len(await runs(api)) == 1
        await api.hub.turns.engine.rest()


def test_the_official_client_takes_it_as_its_own(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        client = Anthropic(
            base_url=server.url, api_key=server.key, max_retries=0, _strict_response_validation=True
        )
        beta = client.beta
        schedule: Any = {**HOURLY, "expression": "*/5 9-17 * * 1-5"}
        words: Any = message("go")
        made = beta.deployments.create(
            name="d",
            agent=beta.agents.create(name="a", model="m").id,
            environment_id=beta.environments.create(name="e").id,
            initial_events=[words],
            schedule=schedule,
        )
        assert made.schedule is not None and len(made.schedule.upcoming_runs_at or ()) == 5
        assert [each.schedule for each in beta.deployments.list()] == [made.schedule]
        run = beta.deployments.run(made.id)
        assert list(beta.deployment_runs.list(trigger_type="manual")) == [run]
        assert list(beta.deployment_runs.list(trigger_type="schedule")) == []
        assert beta.deployments.update(made.id, schedule=None).schedule is None
        client.close()


@pytest.mark.full
def test_a_live_server_runs_it_when_the_minute_comes(tmp_path: Path) -> None:
    from time import sleep

    with serving(tmp_path, "--workers", "2") as server:
        client = Anthropic(
            base_url=server.url, api_key=server.key, max_retries=0, _strict_response_validation=True
        )
        beta = client.beta
        words: Any = message("go")
        schedule: Any = {**HOURLY, "expression": "* * * * *"}
        beta.deployments.create(
            name="d",
            agent=beta.agents.create(name="a", model="m").id,
            environment_id=beta.environments.create(name="e").id,
            initial_events=[words],
            schedule=schedule,
        )
        for _ in range(90):
            if found := list(beta.deployment_runs.list()):
                break
            sleep(1)
        (run,) = found
        assert run.session_id is not None and run.trigger_context.type == "schedule"
        sleep(2)
        assert list(beta.deployment_runs.list()) == [run]
        client.close()
