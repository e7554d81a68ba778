"""Quotas of a workspace, as its API keys meet them."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from segue.agents.base import Turn
from segue.agents.registry import AgentRegistry
from segue.hub import Hub
from segue.hub.access.quotas import MAX_CONCURRENT_CREATIONS
from segue.hub.resources.files import PART_BYTES
from segue.model import ids
from segue.model.lifecycle import StopReason
from segue.model.principal import LOCAL
from segue.store.postgres import PostgresStore
from segue.store.sqlite import SQLiteStore
from tests.clients.rest_server import serving
from tests.interfaces.rest.api import Api, message, open_api
from tests.interfaces.rest.directory_agent import DirectoryAgent, registry_with
from tests.interfaces.rest.test_files import upload_file
from tests.interfaces.rest.test_scheduled import HOURLY, create_deployment, scheduler
from tests.interfaces.rest.test_skills import FILES, form
from tests.interfaces.rest.test_stream import Client
from tests.interfaces.rest.test_turns import rests, result, until

Database = str | None


async def refused(
    api: Api, quota: str, method: str, path: str, body: Any = None, **options: Any
) -> str:
    """Send a request that a quota must refuse, and return the message."""
    options |= {} if body is None else {"json": body}
    response = await api.raw(method, path, **options)
    error = response.json()["error"]
    passing = quota in ("turns", "streams")
    assert response.status_code == (429 if passing else 403), error
    assert error["type"] == ("rate_limit_error" if passing else "permission_error")
    assert ("retry-after" in response.headers) == passing
    assert error["details"]["quota"] == quota
    message: str = error["message"]
    assert f"the quota '{quota}' of this workspace is used up" in message
    assert "ask the operator" in message
    return message


async def session_body(api: Api, **fields: Any) -> dict[str, Any]:
    agent, environment = await api.built_in("agents"), await api.built_in("environments")
    return {"agent": agent, "environment_id": environment, **fields}


class WaitingAgent:
    """Run turns that end when `done` is set."""

    def __init__(self) -> None:
        self.done = asyncio.Event()

    async def run(self, turn: Turn) -> StopReason:
        await self.done.wait()
        return "end_turn"


async def test_sessions_beyond_the_quota_are_refused_until_one_is_deleted(
    tmp_path: Path, database: Database
) -> None:
    async with open_api(tmp_path, database=database, quotas={"sessions": 2}) as api:
        first = await api.session()
        await api.session()
        body = await session_body(api)
        text = await refused(api, "sessions", "POST", "/v1/sessions", body)
        assert "2 of 2; delete sessions that are not needed" in text
        work = tmp_path / "work"
        assert len([entry for entry in work.iterdir() if entry.is_dir()]) == 2
        await api.ok("DELETE", f"/v1/sessions/{first['id']}")
        await api.session()
        await refused(api, "sessions", "POST", "/v1/sessions", body)


async def test_quota_does_not_limit_other_workspaces_and_the_local_user(
    tmp_path: Path, database: Database
) -> None:
    quotas = dict.fromkeys(("sessions", "files", "schedules", "turns", "streams"), 0)
    quotas["bytes"] = 100_000
    async with open_api(tmp_path, database=database, quotas=quotas) as api:
        other = await api.other("elsewhere")
        await api.hub.quotas.set_limit("elsewhere", "sessions", "unlimited")
        await other.session()
        await refused(api, "sessions", "POST", "/v1/sessions", await session_body(api))
        session = await api.hub.editor.create(LOCAL)
        assert await api.hub.turns.run(LOCAL, session.id, "hello") == "end_turn"
        await api.hub.editor.fork(LOCAL, session.id)
        (await api.hub.quotas.open_stream(LOCAL))()


async def test_concurrent_creations_do_not_exceed_a_quota(
    tmp_path: Path, database: Database
) -> None:
    async with open_api(tmp_path, database=database, quotas={"sessions": 5, "files": 3}) as api:
        body = await session_body(api)
        responses = await asyncio.gather(
            *(api.raw("POST", "/v1/sessions", json=body) for _ in range(20))
        )
        assert Counter(response.status_code for response in responses) == {200: 5, 403: 15}
        uploads = await asyncio.gather(
            *(api.raw("POST", "/v1/files", files={"file": ("a", b"x")}) for _ in range(10))
        )
        assert Counter(response.status_code for response in uploads) == {200: 3, 403: 7}
        usage = await api.hub.store.usage("local")
        assert (usage.sessions, usage.files) == (5, 3)


async def test_concurrent_records_do_not_exceed_the_bytes(
    tmp_path: Path, database: Database
) -> None:
    limit = 200_000
    async with open_api(tmp_path, database=database, quotas={"bytes": limit}) as api:
        body = {"name": "a", "model": "claude-sonnet-4-6", "system": "x" * 50_000}
        responses = await asyncio.gather(
            *(api.raw("POST", "/v1/agents", json=body) for _ in range(20))
        )
        assert Counter(response.status_code for response in responses) == {200: 3, 403: 17}
        assert (await api.hub.store.usage("local")).bytes <= limit


async def test_each_further_process_exceeds_a_quota_by_a_bounded_number(
    tmp_path: Path, database: Database
) -> None:
    async def open_hub() -> Hub:
        store = await PostgresStore.open(database) if database else None
        return Hub(store or SQLiteStore.open(tmp_path / "segue.db"), tmp_path, quotas=quotas)

    quotas = {"sessions": 6}
    hubs = [await open_hub() for _ in range(3)]
    async with open_api(tmp_path, database=database) as api:
        attempts = [hub.editor.create(api.principal) for _ in range(12) for hub in hubs]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        created = sum(not isinstance(result, Exception) for result in results)
        assert 6 <= created <= 6 + 2 * MAX_CONCURRENT_CREATIONS
        assert (await api.hub.store.usage("local")).sessions == created
    for hub in hubs:
        await hub.close()


async def test_files_beyond_the_quota_are_refused(tmp_path: Path, database: Database) -> None:
    async with open_api(tmp_path, database=database, quotas={"files": 3}) as api:
        file = await upload_file(api)
        status, _ = await api.call("POST", "/v1/skills", files=form(FILES))
        assert status == 200
        store = await api.ok("POST", "/v1/memory_stores", {"name": "m"})
        memories = f"/v1/memory_stores/{store['id']}/memories"
        await api.ok("POST", memories, {"path": "/a", "content": "one"})
        upload = {"files": {"file": ("a", b"x")}}
        await refused(api, "files", "POST", "/v1/files", **upload)
        await refused(api, "files", "POST", "/v1/skills", files=form(FILES))
        await refused(api, "files", "POST", memories, {"path": "/b", "content": "two"})
        attached = [{"type": "file", "file_id": file["id"]}]
        body = await session_body(api, resources=attached)
        await refused(api, "files", "POST", "/v1/sessions", body)
        usage = await api.hub.store.usage("local")
        assert (usage.sessions, usage.files) == (0, 3)
        await api.ok("DELETE", f"/v1/files/{file['id']}")
        await upload_file(api)


async def test_upload_is_refused_where_its_bytes_exceed_the_quota(
    tmp_path: Path, database: Database
) -> None:
    limit = 3 * PART_BYTES
    async with open_api(tmp_path, database=database, quotas={"bytes": limit}) as api:
        await upload_file(api, b"x" * PART_BYTES)
        before = await api.hub.store.usage("local")
        large = {"files": {"file": ("large", b"y" * limit)}}
        text = await refused(api, "bytes", "POST", "/v1/files", **large)
        assert "3,145,728 bytes (3.15 MB)" in text
        assert await api.hub.store.usage("local") == before
        await upload_file(api, b"z" * PART_BYTES)


async def test_body_without_a_length_counts_for_the_quota(
    tmp_path: Path, database: Database
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        tool = {"type": "custom", "name": "t", "description": "x" * 300_000, "input_schema": {}}
        yield json.dumps({"name": "a", "model": "m", "tools": [tool]}).encode()

    async with open_api(tmp_path, database=database, quotas={"bytes": 200_000}) as api:
        options: Any = {"content": chunks(), "headers": {"content-type": "application/json"}}
        await refused(api, "bytes", "POST", "/v1/agents", **options)


async def test_a_workspace_without_bytes_left_reads_and_deletes_but_stores_nothing(
    tmp_path: Path, database: Database
) -> None:
    async with open_api(tmp_path, database=database) as api:
        session = await api.session()
        agent = await api.agent()
        store = await api.ok("POST", "/v1/memory_stores", {"name": "m"})
        memories = f"/v1/memory_stores/{store['id']}/memories"
        memory = await api.ok("POST", memories, {"path": "/a", "content": "one"})
        deployment = await create_deployment(api, schedule=None)
        used = (await api.hub.store.usage("local")).bytes
        await api.hub.quotas.set_limit("local", "bytes", str(used))
        before = await api.hub.store.usage("local")
        events = f"/v1/sessions/{session['id']}/events"
        writes = {
            events: {"events": [message("hello")]},
            f"/v1/sessions/{session['id']}": {"metadata": {"a": "b"}},
            f"/v1/agents/{agent['id']}": {"version": 1, "name": "b"},
            f"{memories}/{memory['id']}": {"content": "changed"},
            f"/v1/deployments/{deployment['id']}/run": None,
            "/v1/sessions": await session_body(api),
            "/v1/agents": {"name": "a", "model": "claude-sonnet-4-6"},
            "/v1/environments": {"name": "e"},
            "/v1/vaults": {"display_name": "v"},
            "/v1/memory_stores": {"name": "m"},
            memories: {"path": "/b", "content": "two"},
        }
        for path, body in writes.items():
            await refused(api, "bytes", "POST", path, body)
        assert await api.hub.store.usage("local") == before
        await api.ok("POST", events, {"events": [{"type": "user.interrupt"}]})
        await api.ok("GET", f"/v1/sessions/{session['id']}")
        await api.ok("DELETE", f"/v1/sessions/{session['id']}")
        await api.session()


async def test_a_long_prompt_is_refused_if_it_does_not_fit(
    tmp_path: Path, database: Database
) -> None:
    async with open_api(tmp_path, database=database, quotas={"bytes": 200_000}) as api:
        session = await api.session()
        path = f"/v1/sessions/{session['id']}/events"
        await refused(api, "bytes", "POST", path, {"events": [message("x" * 200_000)]})
        await api.say(session["id"], "short")


async def test_a_long_tool_result_is_refused_and_a_shorter_one_accepted(
    tmp_path: Path, database: Database
) -> None:
    async with open_api(tmp_path, database=database, quotas={"bytes": 200_000}) as api:
        session = (await api.session())["id"]
        await api.send(session, message('/custom weather {"city": "Oslo"}'))
        events = await until(api, session, rests(1))
        use = next(event["id"] for event in events if event["type"] == "agent.custom_tool_use")
        path = f"/v1/sessions/{session}/events"
        await refused(api, "bytes", "POST", path, {"events": [result(use, "x" * 200_000)]})
        await api.send(session, result(use, "rain"))
        await until(api, session, rests(2))


async def test_outputs_beyond_a_quota_are_reported_and_not_stored(
    tmp_path: Path, database: Database, directory_agent: DirectoryAgent
) -> None:
    def write_outputs(directory: Path) -> None:
        outputs = directory / "mnt/session/outputs"
        outputs.mkdir(parents=True, exist_ok=True)
        for name in "abc":
            (outputs / name).write_text(name)

    directory_agent.act = write_outputs
    registry = registry_with(directory_agent)
    async with open_api(
        tmp_path, database=database, agent_registry=registry, quotas={"files": 1}
    ) as api:
        session = await api.session()
        events = await api.say(session["id"], "write")
        errors = [event["error"]["message"] for event in events if event["type"] == "session.error"]
        assert len(errors) == 1
        assert "/mnt/session/outputs/b: not stored, the quota 'files'" in errors[0]
        listed = (await api.ok("GET", "/v1/files", scope_id=session["id"]))["data"]
        assert [file["filename"] for file in listed] == ["a"]


async def test_files_in_the_directory_of_a_session_count_until_it_is_deleted(
    tmp_path: Path, database: Database, directory_agent: DirectoryAgent
) -> None:
    def write_file(directory: Path) -> None:
        (directory / "large").write_bytes(b"x" * 3_000_000)

    directory_agent.act = write_file
    options: Any = {"agent_registry": registry_with(directory_agent), "quotas": {"bytes": 2000000}}
    async with open_api(tmp_path, database=database, **options) as api:
        session = await api.session()
        await api.say(session["id"], "write")
        text = await refused(api, "bytes", "POST", "/v1/sessions", await session_body(api))
        assert "3," in text and "of 2,000,000 bytes" in text
        path = f"/v1/sessions/{session['id']}"
        await refused(api, "bytes", "POST", f"{path}/events", {"events": [message("more")]})
        (state,) = [row for row in await api.hub.quotas.states("local") if row.name == "bytes"]
        assert state.used is not None and state.used > 3_000_000
        await api.ok("DELETE", path)
        await api.session()


async def test_schedules_are_counted_until_they_are_removed_or_archived(
    tmp_path: Path, database: Database
) -> None:
    async with open_api(tmp_path, database=database, quotas={"schedules": 1}) as api:
        first = await create_deployment(api)
        second = await create_deployment(api, schedule=None)
        path = f"/v1/deployments/{second['id']}"
        body = {name: second[name] for name in ("name", "environment_id", "initial_events")}
        body |= {"agent": second["agent"]["id"], "schedule": HOURLY}
        await refused(api, "schedules", "POST", "/v1/deployments", body)
        await refused(api, "schedules", "POST", path, {"schedule": HOURLY})
        assert (await api.ok("GET", path))["schedule"] is None
        await api.ok("POST", f"/v1/deployments/{first['id']}", {"schedule": HOURLY})
        await api.ok("POST", f"/v1/deployments/{first['id']}", {"schedule": None})
        await api.ok("POST", path, {"schedule": HOURLY})
        await refused(api, "schedules", "POST", "/v1/deployments", body)
        await api.ok("POST", f"{path}/archive")
        await scheduler(api).run_due()
        await api.ok("POST", "/v1/deployments", body)
        assert (await api.hub.store.usage("local")).schedules == 1


async def test_a_scheduled_run_beyond_a_quota_fails_and_the_deployment_stays_active(
    tmp_path: Path, database: Database
) -> None:
    async with open_api(tmp_path, database=database, quotas={"sessions": 0}) as api:
        deployment = await create_deployment(api)
        id = ids.parse(deployment["id"]) or ""
        record = await api.hub.records.get("local", "deployment", id)
        await api.hub.deployments.run_scheduled(record, 1)
        (run,) = (await api.ok("GET", "/v1/deployment_runs"))["data"]
        assert "the quota 'sessions'" in run["error"]["message"]
        path = f"/v1/deployments/{deployment['id']}"
        assert (await api.ok("GET", path))["status"] == "active"


async def test_turns_beyond_the_quota_are_refused_until_one_ends(
    tmp_path: Path, database: Database
) -> None:
    agent = WaitingAgent()
    registry = AgentRegistry({"default": lambda _: agent})
    async with open_api(
        tmp_path, database=database, agent_registry=registry, quotas={"turns": 3}
    ) as api:
        sessions = [(await api.session())["id"] for _ in range(3)]
        sends = [
            api.raw("POST", f"/v1/sessions/{id}/events", json={"events": [message("go")]})
            for id in sessions * 3
        ]
        responses = await asyncio.gather(*sends)
        assert Counter(response.status_code for response in responses) == {200: 3, 429: 6}
        body = await session_body(api, initial_events=[message("go")])
        text = await refused(api, "turns", "POST", "/v1/sessions", body)
        assert "3 of 3; wait until a turn has ended" in text
        assert (await api.hub.store.usage("local")).sessions == 3
        agent.done.set()
        await api.hub.turns.engine.wait_idle()
        assert (await api.hub.store.usage("local")).turns == 0
        await api.ok("POST", "/v1/sessions", body)
        await api.hub.turns.engine.wait_idle()


@pytest.mark.parametrize("ending", ["closed", "deleted"])
def test_streams_beyond_the_quota_are_refused_until_one_ends(tmp_path: Path, ending: str) -> None:
    with serving(tmp_path, "--quota", "streams=2") as server, (client := Client(server)).http:
        first, second = client.session(), client.session()
        path = f"/v1/sessions/{second}/events/stream"
        with client.stream(second):
            with client.stream(first) as frames:
                response = client.http.get(path)
                assert (response.status_code, response.headers["retry-after"]) == (429, "5")
                details = response.json()["error"]["details"]
                assert details == {"quota": "streams", "limit": 2, "used": 2}
                if ending == "deleted":
                    client.ok("DELETE", f"/v1/sessions/{first}")
                    assert [frame["data"]["type"] for frame in frames][-1] == "session.deleted"
            for _ in range(600):  # the server notices soon that a client is gone
                with client.http.stream("GET", path) as response:
                    if response.status_code == 200:
                        return
                time.sleep(0.05)
        raise AssertionError("the ended stream is still counted")
