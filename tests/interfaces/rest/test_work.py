"""The work queue of self-hosted environments, and the workers that poll it."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from segue.agents.base import Turn
from segue.factory import open_hub
from segue.hub.resources.work_queue import kind
from segue.hub.turns import engine
from segue.interfaces.rest.handlers import work
from segue.model import clock, ids
from segue.model.lifecycle import StopReason
from segue.model.record import Record
from tests.agents.provider import Provider, Say, Use
from tests.clients.rest_server import Server, serving
from tests.clients.toolbox import node, node_packages
from tests.interfaces.rest.api import Api, message, open_api
from tests.interfaces.rest.directory_agent import DirectoryAgent, registry_with
from tests.interfaces.rest.test_skills import skill

if TYPE_CHECKING:  # importing it takes seconds, also for processes that run other tests
    from anthropic import AsyncAnthropic

WORKER = Path(__file__).parents[2] / "clients" / "rest_worker.mjs"
HOSTED = {"name": "h", "config": {"type": "self_hosted"}}


async def create_environment(api: Api) -> str:
    """Create a self-hosted environment and return the path of its work queue."""
    environment = await api.ok("POST", "/v1/environments", HOSTED)
    assert environment["config"] == {"type": "self_hosted"}
    return f"/v1/environments/{environment['id']}"


async def start_session(api: Api, path: str) -> str:
    """Create a session in a self-hosted environment and send it a message."""
    session = await api.session(environment_id=path.rpartition("/")[2])
    await api.say(session["id"], "on")
    return str(session["id"])


async def test_work_item_passes_from_queued_to_stopped(
    tmp_path: Path, database: str | None, directory_agent: DirectoryAgent
) -> None:
    async with open_api(
        tmp_path, database=database, agent_registry=registry_with(directory_agent)
    ) as api:
        environment_path = await create_environment(api)
        assert await api.ok("GET", f"{environment_path}/work/poll") is None
        session = await start_session(api, environment_path)
        await api.say(session, "on")  # one item is enough
        stats = await api.ok("GET", f"{environment_path}/work/stats")
        assert (stats["depth"], stats["pending"]) == (1, 0)
        item = await api.ok("GET", f"{environment_path}/work/poll", block_ms=999)
        assert (item["state"], item["data"]) == ("queued", {"type": "session", "id": session})
        packed = item["secret"] + "=" * (-len(item["secret"]) % 4)
        assert json.loads(base64.urlsafe_b64decode(packed)) == {"sessions_token": api.key}
        assert await api.ok("GET", f"{environment_path}/work/poll", block_ms=10) is None
        stats = await api.ok("GET", f"{environment_path}/work/stats")
        assert (stats["depth"], stats["pending"]) == (0, 1)
        assert stats["oldest_queued_at"] == item["created_at"]
        path = f"{environment_path}/work/{item['id']}"
        assert (await api.ok("POST", f"{path}/ack"))["state"] == "starting"
        await api.fails(409, "POST", f"{path}/ack")
        beat = await api.ok(
            "POST", f"{path}/heartbeat?expected_last_heartbeat=NO_HEARTBEAT&desired_ttl_seconds=60"
        )
        assert (beat["state"], beat["lease_extended"], beat["ttl_seconds"]) == ("active", True, 60)
        changed = await api.ok("POST", path, {"metadata": {"k": "v"}})
        assert changed["metadata"] == {"k": "v"} and changed["secret"] is None
        assert (await api.ok("POST", f"{path}/stop", {}))["state"] == "stopping"
        beat = await api.ok("POST", f"{path}/heartbeat?expected_last_heartbeat=any")
        assert (beat["state"], beat["lease_extended"]) == ("stopping", False)
        stopped_item = await api.ok("POST", f"{path}/stop", {"force": True})
        assert stopped_item["state"] == "stopped" and stopped_item["stopped_at"] is not None
        await api.fails(409, "POST", f"{path}/stop", {"force": True})
        assert await api.ok("GET", path) == stopped_item
        # The next message needs a worker again.
        await api.say(session, "on")
        first, second = (await api.ok("GET", f"{environment_path}/work"))["data"]
        assert (first["state"], second) == ("queued", stopped_item)
        only = await api.ok("GET", f"{environment_path}/work", limit=1)
        after = await api.ok("GET", f"{environment_path}/work", limit=1, page=only["next_page"])
        assert (only["data"], after["data"]) == ([first], [second])


async def test_heartbeat_is_accepted_only_from_the_worker_that_holds_the_item(
    tmp_path: Path, database: str | None, directory_agent: DirectoryAgent
) -> None:
    async with open_api(
        tmp_path, database=database, agent_registry=registry_with(directory_agent)
    ) as api:
        environment_path = await create_environment(api)
        await start_session(api, environment_path)
        item = await api.ok("GET", f"{environment_path}/work/poll")
        path = f"{environment_path}/work/{item['id']}"
        await api.ok("POST", f"{path}/ack")
        expected = "NO_HEARTBEAT"
        for _ in range(3):
            beat = await api.ok("POST", f"{path}/heartbeat?expected_last_heartbeat={expected}")
            expected = beat["last_heartbeat"]
        # Only one version of the item is stored.
        ours = [ids.parse(name) or "" for name in (environment_path.rpartition("/")[2], item["id"])]
        stored = await api.hub.store.get_record("local", f"work:{ours[0]}", ours[1])
        assert stored is not None and stored.version == 6
        for version in range(1, 6):
            assert not await api.hub.store.get_record("local", stored.kind, stored.id, version)
        beats = [
            api.call("POST", f"{path}/heartbeat?expected_last_heartbeat={expected}")
            for _ in range(4)
        ]
        answers = await asyncio.gather(*beats)
        assert sorted(status for status, _ in answers) == [200, 412, 412, 412]
        (beat,) = [result for status, result in answers if status == 200]
        for wrong in ("NO_HEARTBEAT", "2026-01-01T00:00:00Z"):
            status, response = await api.call(
                "POST", f"{path}/heartbeat?expected_last_heartbeat={wrong}"
            )
            details = response["error"]["details"]
            assert (status, details["error_code"]) == (412, "heartbeat_precondition_failed")
            assert details["current_state"] == {
                "last_heartbeat": beat["last_heartbeat"],
                "lease_extended": False,
                "state": "active",
                "ttl_seconds": 300,
            }


async def test_item_that_is_not_acknowledged_or_held_is_handed_out_again(
    tmp_path: Path,
    database: str | None,
    directory_agent: DirectoryAgent,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_api(
        tmp_path, database=database, agent_registry=registry_with(directory_agent)
    ) as api:
        environment_path = await create_environment(api)
        session = await start_session(api, environment_path)
        item = await api.ok("GET", f"{environment_path}/work/poll")
        later = clock.now()
        monkeypatch.setattr(clock, "now", lambda: later)

        def wait(seconds: int) -> None:
            nonlocal later
            later += seconds * clock.SECOND

        wait(4)
        assert await api.ok("GET", f"{environment_path}/work/poll") is None
        assert (
            await api.ok("GET", f"{environment_path}/work/poll", reclaim_older_than_ms=5000) is None
        )
        wait(2)
        again = await api.ok("GET", f"{environment_path}/work/poll")
        assert again["id"] == item["id"]
        path = f"{environment_path}/work/{item['id']}"
        await api.ok("POST", f"{path}/ack")
        wait(299)
        assert await api.ok("GET", f"{environment_path}/work/poll") is None
        # The session is idle, so a lost worker is not replaced.
        wait(2)
        assert await api.ok("GET", f"{environment_path}/work/poll") is None
        assert (await api.ok("GET", path))["state"] == "stopped"
        # A deleted session needs no worker either.
        await api.say(session, "on")
        await api.ok("DELETE", f"/v1/sessions/{session}")
        assert await api.ok("GET", f"{environment_path}/work/poll") is None


@pytest.mark.parametrize("how", ["leaves", "is lost", "is stopped"])
async def test_item_of_a_running_turn_is_queued_again_unless_it_was_stopped(
    tmp_path: Path, database: str | None, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    class Endless(DirectoryAgent):
        async def run(self, turn: Turn) -> StopReason:
            await asyncio.Event().wait()
            return "end_turn"

    # The turn's lease must not expire with the worker's.
    monkeypatch.setattr(engine, "LEASE_MICROSECONDS", 3600 * clock.SECOND)
    async with open_api(
        tmp_path, database=database, agent_registry=registry_with(Endless())
    ) as api:
        environment_path = await create_environment(api)
        session = (await api.session(environment_id=environment_path.rpartition("/")[2]))["id"]
        await api.send(session, message("on"))
        item = await api.ok("GET", f"{environment_path}/work/poll")
        path = f"{environment_path}/work/{item['id']}"
        await api.ok("POST", f"{path}/ack")
        if how == "is stopped":
            await api.ok("POST", f"{path}/stop", {})
        if how == "is lost":
            later = clock.now() + 301 * clock.SECOND
            monkeypatch.setattr(clock, "now", lambda: later)
        else:
            await api.ok("POST", f"{path}/stop", {"force": True})
        again = await api.ok("GET", f"{environment_path}/work/poll")
        assert (again is None) == (how == "is stopped")
        if again is not None:
            assert again["data"]["id"] == session
            assert (again["id"] == item["id"]) == (how == "is lost")
            assert again["acknowledged_at"] is None


async def test_prompt_sent_while_a_lost_worker_is_replaced_gets_another_item(
    tmp_path: Path, directory_agent: DirectoryAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Endless(DirectoryAgent):
        async def run(self, turn: Turn) -> StopReason:
            await asyncio.Event().wait()
            return "end_turn"

    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        environment_path = await create_environment(api)
        session = await start_session(api, environment_path)
        item = await api.ok("GET", f"{environment_path}/work/poll")
        await api.ok("POST", f"{environment_path}/work/{item['id']}/ack")
        later = clock.now() + 301 * clock.SECOND
        monkeypatch.setattr(clock, "now", lambda: later)
        needed = api.hub.work_queue._needed

        async def check_slowly(item: Record) -> bool:
            results = await needed(item)
            api.hub.agent_registry.register("default", lambda _: Endless())
            await api.send(session, message("on"))
            return results

        monkeypatch.setattr(api.hub.work_queue, "_needed", check_slowly)
        assert await api.ok("GET", f"{environment_path}/work/poll") is None
        monkeypatch.undo()
        again = await api.ok("GET", f"{environment_path}/work/poll")
        assert again["id"] != item["id"] and again["data"]["id"] == session


async def test_session_leaves_tools_to_workers_after_its_environment_is_deleted(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        environment_path = await create_environment(api)
        session = await start_session(api, environment_path)
        own = (await api.session())["id"]
        await api.ok("DELETE", environment_path)
        for name, elsewhere in ((session, True), (own, False)):
            results = await api.hub.sessions.get(api.principal, ids.parse(name) or "")
            assert await api.hub.work_queue.runs_on_worker(results) is elsewhere


async def test_one_of_many_polling_workers_gets_the_item(
    tmp_path: Path, database: str | None, directory_agent: DirectoryAgent
) -> None:
    async with open_api(
        tmp_path, database=database, agent_registry=registry_with(directory_agent)
    ) as api:
        environment_path = await create_environment(api)
        session = (await api.session(environment_id=environment_path.rpartition("/")[2]))["id"]
        sent = [api.send(session, message(str(number))) for number in range(5)]
        await asyncio.gather(*sent)
        polls = [api.ok("GET", f"{environment_path}/work/poll") for _ in range(8)]
        (item,) = [entry for entry in await asyncio.gather(*polls) if entry is not None]
        acks = [api.call("POST", f"{environment_path}/work/{item['id']}/ack") for _ in range(4)]
        answers = [status for status, _ in await asyncio.gather(*acks)]
        assert sorted(answers) == [200, 409, 409, 409]


async def test_waiting_poll_reads_the_queue_once(
    tmp_path: Path,
    database: str | None,
    directory_agent: DirectoryAgent,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_api(
        tmp_path, database=database, agent_registry=registry_with(directory_agent)
    ) as api:
        environment_path = await create_environment(api)
        queue = kind(ids.parse(environment_path.rpartition("/")[2]) or "")
        stored = {"session": ids.new_id(), "state": "active", "metadata": {}, "ttl": 300}
        stored["latest_heartbeat_at"] = clock.now()
        for _ in range(12):
            await api.hub.records.create("local", queue, stored)
        records, read = api.hub.store.records, []

        async def count_reads(workspace: str, kind: str, **options: Any) -> list[Record]:
            results = await records(workspace, kind, **options)
            if kind == queue:
                read.append(len(results))
            return results

        monkeypatch.setattr(api.hub.store, "records", count_reads)
        times = count(0, 0.1)  # the poll's time does not depend on the machine's load
        monkeypatch.setattr(work, "time", SimpleNamespace(monotonic=lambda: next(times)))
        assert await api.ok("GET", f"{environment_path}/work/poll", block_ms=450) is None
        assert read == [12, 0, 1, 1, 1, 1]
        read.clear()
        monkeypatch.setattr(work, "time", SimpleNamespace(monotonic=lambda: 0.0))
        async with asyncio.timeout(60):
            poll = asyncio.ensure_future(
                api.ok("GET", f"{environment_path}/work/poll", block_ms=999)
            )
            while len(read) < 4:
                await asyncio.sleep(0.02)
            session = await start_session(api, environment_path)
            assert (await poll)["data"]["id"] == session
        assert read[:4] == [12, 0, 1, 1] and read[-2:] == [13, 0] and set(read[4:-2]) == {1}


async def test_disconnected_worker_gets_no_item(tmp_path: Path) -> None:
    from anthropic import AsyncAnthropic

    with serving(tmp_path) as server:
        client = AsyncAnthropic(base_url=server.url, api_key=server.key, max_retries=0)
        async with client:
            environment = await client.beta.environments.create(
                name="h", config={"type": "self_hosted"}
            )
            agent = await client.beta.agents.create(name="a", model="m")
            session = await client.beta.sessions.create(
                agent=agent.id, environment_id=environment.id
            )
            poll = client.beta.environments.work.poll
            deleted = asyncio.create_task(poll(environment.id, block_ms=999))
            await asyncio.sleep(0.3)
            deleted.cancel()
            await asyncio.gather(deleted, return_exceptions=True)
            text: Any = message("on")
            await client.beta.sessions.events.send(session.id, events=[text])
            item = await poll(environment.id, block_ms=999)
            assert item is not None and item.data.id == session.id


async def test_only_self_hosted_environments_have_a_work_queue(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        cloud = f"/v1/environments/{await api.environment()}"
        assert "not self_hosted" in await api.fails(400, "GET", f"{cloud}/work/poll")
        environment_path = await create_environment(api)
        for path, body in ((cloud, HOSTED["config"]), (environment_path, {"type": "cloud"})):
            assert "config.type" in await api.fails(400, "POST", path, {"config": body})
        other = await api.other("theirs")
        await start_session(api, environment_path)
        (item,) = (await api.ok("GET", f"{environment_path}/work"))["data"]
        for end in ("poll", "stats", item["id"]):
            await other.fails(404, "GET", f"{environment_path}/work/{end}")
        other_api = await create_environment(other)
        for end in ("ack", "heartbeat", "stop"):
            await other.fails(404, "POST", f"{other_api}/work/{item['id']}/{end}")
        sent = {"type": "github_repository", "url": "https://github.com/a/b"}
        setup = {"agent": await api.built_in("agents"), "resources": [sent]}
        setup["environment_id"] = environment_path.rpartition("/")[2]
        assert "cloud" in await api.fails(400, "POST", "/v1/sessions", setup)
        program = {"name": "p", "spec": {"kind": "acp", "command": ["p"]}}
        other_tools = await api.hub.records.create("local", "agent", program)
        setup |= {"agent": ids.format_id("agent", other_tools.id), "resources": []}
        assert "tools itself" in await api.fails(400, "POST", "/v1/sessions", setup)


async def test_system_prompt_has_the_directories_of_the_worker(
    tmp_path: Path, model: Provider
) -> None:
    async with model, open_api(tmp_path) as api:
        await api.hub.config.set("local", "model", "anthropic:claude-sonnet-4-6")
        await api.hub.config.set("local", "model.base_url", model.url)
        environment_path = await create_environment(api)
        skill_ref = await skill(api)
        agent = await api.agent(skills=[{"type": "custom", "skill_id": skill_ref["id"]}])
        store = await api.ok("POST", "/v1/memory_stores", {"name": "My notes"})
        session = await api.session(
            agent=agent["id"],
            environment_id=environment_path.rpartition("/")[2],
            resources=[{"type": "memory_store", "memory_store_id": store["id"]}],
        )
        await api.say(session["id"], "on")
        response = str(model.requests[0]["system"])
        assert "(skills/" in response and "- /mnt/memory/my-notes " in response
        assert str(tmp_path) not in response


async def test_result_is_accepted_as_soon_as_its_call_is_listed(
    tmp_path: Path, model: Provider
) -> None:
    async with model, open_api(tmp_path) as api:
        await api.hub.config.set("local", "model", "anthropic:claude-sonnet-4-6")
        await api.hub.config.set("local", "model.base_url", model.url)
        environment_path = await create_environment(api)
        session = await api.session(
            agent=(await api.agent(tools=[{"type": "agent_toolset_20260401"}]))["id"],
            environment_id=environment_path.rpartition("/")[2],
        )
        model.scripts.append([Use("bash", {"command": "true", "of_tomorrow": 1})])
        sent = await api.send(session["id"], message("on"))
        called: list[dict[str, Any]] = []
        while not called:
            await asyncio.sleep(0.001)
            called = await api.events(session["id"], **{"types[]": "agent.tool_use"})
        (call,) = called
        assert call["input"] == {"command": "true", "of_tomorrow": 1}
        result = {"type": "user.tool_result", "tool_use_id": call["id"]}
        text = [{"type": "text", "text": "from afar"}]
        await api.send(session["id"], {**result, "content": text})
        await api.hub.turns.wait(
            api.principal, ids.parse(session["id"]) or "", ids.parse(sent["data"][0]["id"]) or ""
        )
        assert "from afar" in str(model.requests[1]["messages"])
        (events,) = await api.events(session["id"], **{"types[]": "user.tool_result"})
        assert events["content"] == text
        await api.send(session["id"], {**result, "content": text})  # changes nothing
        assert await api.events(session["id"], **{"types[]": "user.tool_result"}) == [events]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    return tmp_path / "data"


async def configure(data: Path, **settings: str) -> None:
    async with await open_hub(data, sources="none") as hub:
        for name, value in settings.items():
            await hub.config.set("local", name.replace("__", "."), value)


@pytest.mark.parametrize("language", ["python", pytest.param("typescript", marks=pytest.mark.full)])
async def test_official_workers_run_the_tools_of_a_session(
    data: Path, tmp_path: Path, model: Provider, language: str
) -> None:
    from anthropic import AsyncAnthropic

    position = tmp_path / "sandbox"
    position.mkdir()
    async with model:
        await configure(data, model="anthropic:claude-sonnet-4-6", model__base_url=model.url)
        model.scripts += [
            [Use("bash", {"command": "pwd; echo made > here.txt"})],
            [Use("read", {"file_path": "here.txt"}), Use("glob", {"pattern": "*.txt"})],
            [Say("all is done")],
            [Use("bash", {"command": "cat here.txt"})],
            [Say("and again")],
        ]
        with serving(data) as server:
            client = AsyncAnthropic(
                base_url=server.url,
                auth_token=server.key,
                max_retries=0,
                _strict_response_validation=True,
            )
            async with client:
                await run_worker_turns(client, server, position, language)
    assert (position / "here.txt").read_text() == "made\n"
    assert str(position) in str(model.requests[1]) and "made" in str(model.requests[2])
    assert "Working directory" not in str(model.requests[0]["system"])
    assert not list(data.rglob("here.txt"))


@asynccontextmanager
async def worker(
    client: "AsyncAnthropic", server: Server, environment: str, directory: Path, language: str
) -> AsyncIterator[None]:
    """Run an official worker."""
    if language == "typescript":
        command = [node(), WORKER, node_packages(), "anthropic-1.10", server.url, server.key]
        process = await asyncio.create_subprocess_exec(*command, environment, directory)
        try:
            yield
        finally:
            process.terminate()
            await process.wait()
        return
    own = client.beta.environments.work.worker(
        environment_id=environment, environment_key=server.key, workdir=directory, max_idle=0.2
    )
    working = asyncio.create_task(own.run())
    try:
        yield
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def run_worker_turns(
    client: "AsyncAnthropic", server: Server, directory: Path, language: str
) -> None:
    """Run two turns with a worker, then poll with a lease that another worker has."""
    from anthropic.types.beta.environments import BetaHeartbeatPreconditionFailedError

    beta = client.beta
    environment = await beta.environments.create(name="h", config={"type": "self_hosted"})
    agent = await beta.agents.create(
        name="a", model="claude-sonnet-4-6", tools=[{"type": "agent_toolset_20260401"}]
    )
    session = await beta.sessions.create(agent=agent.id, environment_id=environment.id)
    async with worker(client, server, environment.id, directory, language):
        for response in ("all is done", "and again"):
            events = await run_turn(beta, session.id, "on")
            assert response in texts(events)
            results = [event for event in events if event.type == "user.tool_result"]
            assert results and not any(result.is_error for result in results)
            waits = [e.stop_reason for e in events if e.type == "session.status_idle"][:-1]
            assert all(reason.type == "requires_action" for reason in waits)
            await wait_until_stopped(beta, environment.id)
    # The turn must be over before the item is stopped: a session that is running when its worker
    # leaves gets another item.
    await run_turn(beta, session.id, "once more")
    item = await beta.environments.work.poll(environment.id, block_ms=999)
    assert item is not None
    await beta.environments.work.ack(item.id, environment_id=environment.id)
    calls = beta.environments.work
    await calls.heartbeat(
        item.id, environment_id=environment.id, expected_last_heartbeat="NO_HEARTBEAT"
    )
    with pytest.raises(BetaHeartbeatPreconditionFailedError) as refused:
        await calls.heartbeat(
            item.id, environment_id=environment.id, expected_last_heartbeat="NO_HEARTBEAT"
        )
    assert refused.value.details.current_state.state == "active"
    assert (await calls.stats(environment.id)).depth == 0
    assert (await calls.update(item.id, environment_id=environment.id, metadata={"a": "b"})).id
    assert (await calls.retrieve(item.id, environment_id=environment.id)).metadata == {"a": "b"}
    await calls.stop(item.id, environment_id=environment.id, force=True)
    listed = [entry async for entry in calls.list(environment.id, limit=1)]
    assert [entry.state for entry in listed] == ["stopped"] * len(listed) and len(listed) >= 3


async def run_turn(beta: Any, session_id: str, text: str) -> list[Any]:
    """Send a prompt and return the turn's events."""
    events = []
    async with await beta.sessions.events.stream(session_id) as stream, asyncio.timeout(240):
        await beta.sessions.events.send(session_id, events=[message(text)])
        async for event in stream:
            events.append(event)
            if event.type == "session.status_idle" and event.stop_reason.type == "end_turn":
                break
    return events


def texts(events: list[Any]) -> list[str]:
    """Return the texts of the agent's messages."""
    return [block.text for e in events if e.type == "agent.message" for block in e.content]


async def wait_until_stopped(beta: Any, environment: str) -> None:
    """Wait until the worker has stopped all its items."""
    async with asyncio.timeout(120):
        while any([e.state != "stopped" async for e in beta.environments.work.list(environment)]):
            await asyncio.sleep(0.1)
