"""Self-hosted environments: work that is offered, handed out, held and let go, and who does it."""

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from anthropic.types.beta.environments import BetaHeartbeatPreconditionFailedError

from segue.agents.base import Turn
from segue.hub.resources.work_queue import kind
from segue.hub.turns import engine
from segue.model import clock, ids
from segue.model.lifecycle import StopReason
from segue.model.record import Record
from tests.agents.provider import Provider, Say, Use
from tests.clients.rest_server import Server, serving
from tests.clients.toolbox import node, node_packages
from tests.interfaces.rest.api import Api, message, open_api
from tests.interfaces.rest.directory_agent import DirectoryAgent, registry_with
from tests.interfaces.rest.test_skills import skill

WORKER = Path(__file__).parents[2] / "clients" / "rest_worker.mjs"
HOSTED = {"name": "h", "config": {"type": "self_hosted"}}


async def hosted(api: Api) -> str:
    """The address of a self-hosted environment."""
    made = await api.ok("POST", "/v1/environments", HOSTED)
    assert made["config"] == {"type": "self_hosted"}
    return f"/v1/environments/{made['id']}"


async def offered(api: Api, place: str) -> str:
    """A session there that was told something."""
    session = await api.session(environment_id=place.rpartition("/")[2])
    await api.say(session["id"], "on")
    return str(session["id"])


async def test_an_item_goes_its_way_from_queued_to_stopped(
    tmp_path: Path, database: str | None, directory_agent: DirectoryAgent
) -> None:
    async with open_api(
        tmp_path, database=database, agent_registry=registry_with(directory_agent)
    ) as api:
        place = await hosted(api)
        assert await api.ok("GET", f"{place}/work/poll") is None
        session = await offered(api, place)
        await api.say(session, "on")  # one item is enough
        stats = await api.ok("GET", f"{place}/work/stats")
        assert (stats["depth"], stats["pending"]) == (1, 0)
        item = await api.ok("GET", f"{place}/work/poll", block_ms=999)
        assert (item["state"], item["data"]) == ("queued", {"type": "session", "id": session})
        packed = item["secret"] + "=" * (-len(item["secret"]) % 4)
        assert json.loads(base64.urlsafe_b64decode(packed)) == {"sessions_token": api.key}
        assert await api.ok("GET", f"{place}/work/poll", block_ms=10) is None
        stats = await api.ok("GET", f"{place}/work/stats")
        assert (stats["depth"], stats["pending"]) == (0, 1)
        assert stats["oldest_queued_at"] == item["created_at"]
        path = f"{place}/work/{item['id']}"
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
        stopped = await api.ok("POST", f"{path}/stop", {"force": True})
        assert stopped["state"] == "stopped" and stopped["stopped_at"] is not None
        await api.fails(409, "POST", f"{path}/stop", {"force": True})
        assert await api.ok("GET", path) == stopped
        # What is said next needs a worker again.
        await api.say(session, "on")
        first, second = (await api.ok("GET", f"{place}/work"))["data"]
        assert (first["state"], second) == ("queued", stopped)
        only = await api.ok("GET", f"{place}/work", limit=1)
        after = await api.ok("GET", f"{place}/work", limit=1, page=only["next_page"])
        assert (only["data"], after["data"]) == ([first], [second])


async def test_a_heartbeat_is_only_for_who_holds_the_work(
    tmp_path: Path, database: str | None, directory_agent: DirectoryAgent
) -> None:
    async with open_api(
        tmp_path, database=database, agent_registry=registry_with(directory_agent)
    ) as api:
        place = await hosted(api)
        await offered(api, place)
        item = await api.ok("GET", f"{place}/work/poll")
        path = f"{place}/work/{item['id']}"
        await api.ok("POST", f"{path}/ack")
        expected = "NO_HEARTBEAT"
        for _ in range(3):
            beat = await api.ok("POST", f"{path}/heartbeat?expected_last_heartbeat={expected}")
            expected = beat["last_heartbeat"]
        # Of all the steps that were, one version is kept.
        ours = [ids.parse(name) or "" for name in (place.rpartition("/")[2], item["id"])]
        kept = await api.hub.store.get_record("local", f"work:{ours[0]}", ours[1])
        assert kept is not None and kept.version == 6
        for version in range(1, 6):
            assert not await api.hub.store.get_record("local", kept.kind, kept.id, version)
        beats = [
            api.call("POST", f"{path}/heartbeat?expected_last_heartbeat={expected}")
            for _ in range(4)
        ]
        answers = await asyncio.gather(*beats)
        assert sorted(status for status, _ in answers) == [200, 412, 412, 412]
        (beat,) = [told for status, told in answers if status == 200]
        for wrong in ("NO_HEARTBEAT", "2026-01-01T00:00:00Z"):
            status, answer = await api.call(
                "POST", f"{path}/heartbeat?expected_last_heartbeat={wrong}"
            )
            details = answer["error"]["details"]
            assert (status, details["error_code"]) == (412, "heartbeat_precondition_failed")
            assert details["current_state"] == {
                "last_heartbeat": beat["last_heartbeat"],
                "lease_extended": False,
                "state": "active",
                "ttl_seconds": 300,
            }


async def test_what_is_not_acknowledged_or_held_is_handed_out_again(
    tmp_path: Path,
    database: str | None,
    directory_agent: DirectoryAgent,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_api(
        tmp_path, database=database, agent_registry=registry_with(directory_agent)
    ) as api:
        place = await hosted(api)
        session = await offered(api, place)
        item = await api.ok("GET", f"{place}/work/poll")
        later = clock.now()
        monkeypatch.setattr(clock, "now", lambda: later)

        def wait(seconds: int) -> None:
            nonlocal later
            later += seconds * clock.SECOND

        wait(4)
        assert await api.ok("GET", f"{place}/work/poll") is None
        assert await api.ok("GET", f"{place}/work/poll", reclaim_older_than_ms=5000) is None
        wait(2)
        again = await api.ok("GET", f"{place}/work/poll")
        assert again["id"] == item["id"]
        path = f"{place}/work/{item['id']}"
        await api.ok("POST", f"{path}/ack")
        wait(299)
        assert await api.ok("GET", f"{place}/work/poll") is None
        # The session rests: a worker that was lost need not be replaced.
        wait(2)
        assert await api.ok("GET", f"{place}/work/poll") is None
        assert (await api.ok("GET", path))["state"] == "stopped"
        # One that is deleted needs nobody either.
        await api.say(session, "on")
        await api.ok("DELETE", f"/v1/sessions/{session}")
        assert await api.ok("GET", f"{place}/work/poll") is None


@pytest.mark.parametrize("how", ["leaves", "is lost", "is stopped"])
async def test_in_the_middle_of_a_turn_another_worker_comes_unless_it_was_to_stop(
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
        place = await hosted(api)
        session = (await api.session(environment_id=place.rpartition("/")[2]))["id"]
        await api.send(session, message("on"))
        item = await api.ok("GET", f"{place}/work/poll")
        path = f"{place}/work/{item['id']}"
        await api.ok("POST", f"{path}/ack")
        if how == "is stopped":
            await api.ok("POST", f"{path}/stop", {})
        if how == "is lost":
            later = clock.now() + 301 * clock.SECOND
            monkeypatch.setattr(clock, "now", lambda: later)
        else:
            await api.ok("POST", f"{path}/stop", {"force": True})
        again = await api.ok("GET", f"{place}/work/poll")
        assert (again is None) == (how == "is stopped")
        if again is not None:
            assert again["data"]["id"] == session
            assert (again["id"] == item["id"]) == (how == "is lost")
            assert again["acknowledged_at"] is None


async def test_what_is_asked_while_a_lost_worker_is_given_up_gets_another(
    tmp_path: Path, directory_agent: DirectoryAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Endless(DirectoryAgent):
        async def run(self, turn: Turn) -> StopReason:
            await asyncio.Event().wait()
            return "end_turn"

    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        place = await hosted(api)
        session = await offered(api, place)
        item = await api.ok("GET", f"{place}/work/poll")
        await api.ok("POST", f"{place}/work/{item['id']}/ack")
        later = clock.now() + 301 * clock.SECOND
        monkeypatch.setattr(clock, "now", lambda: later)
        needed = api.hub.work_queue._needed

        async def slowly(item: Record) -> bool:
            found = await needed(item)
            api.hub.agent_registry.register("default", lambda _: Endless())
            await api.send(session, message("on"))
            return found

        monkeypatch.setattr(api.hub.work_queue, "_needed", slowly)
        assert await api.ok("GET", f"{place}/work/poll") is None
        monkeypatch.undo()
        again = await api.ok("GET", f"{place}/work/poll")
        assert again["id"] != item["id"] and again["data"]["id"] == session


async def test_without_its_environment_a_session_still_leaves_its_tools_to_workers(
    tmp_path: Path, directory_agent: DirectoryAgent
) -> None:
    async with open_api(tmp_path, agent_registry=registry_with(directory_agent)) as api:
        place = await hosted(api)
        session = await offered(api, place)
        own = (await api.session())["id"]
        await api.ok("DELETE", place)
        for name, elsewhere in ((session, True), (own, False)):
            found = await api.hub.sessions.get(api.principal, ids.parse(name) or "")
            assert await api.hub.work_queue.runs_on_worker(found) is elsewhere


async def test_of_many_who_want_the_same_item_one_gets_it(
    tmp_path: Path, database: str | None, directory_agent: DirectoryAgent
) -> None:
    async with open_api(
        tmp_path, database=database, agent_registry=registry_with(directory_agent)
    ) as api:
        place = await hosted(api)
        session = (await api.session(environment_id=place.rpartition("/")[2]))["id"]
        sent = [api.send(session, message(str(number))) for number in range(5)]
        await asyncio.gather(*sent)
        polls = [api.ok("GET", f"{place}/work/poll") for _ in range(8)]
        (item,) = [each for each in await asyncio.gather(*polls) if each is not None]
        acks = [api.call("POST", f"{place}/work/{item['id']}/ack") for _ in range(4)]
        answers = [status for status, _ in await asyncio.gather(*acks)]
        assert sorted(answers) == [200, 409, 409, 409]


async def test_who_waits_for_work_reads_all_of_it_once(
    tmp_path: Path,
    database: str | None,
    directory_agent: DirectoryAgent,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_api(
        tmp_path, database=database, agent_registry=registry_with(directory_agent)
    ) as api:
        place = await hosted(api)
        queue = kind(ids.parse(place.rpartition("/")[2]) or "")
        held = {"session": ids.new_id(), "state": "active", "metadata": {}, "ttl": 300}
        held["latest_heartbeat_at"] = clock.now()
        for _ in range(12):
            await api.hub.records.create("local", queue, held)
        records, read = api.hub.store.records, []

        async def counted(workspace: str, kind: str, **options: Any) -> list[Record]:
            found = await records(workspace, kind, **options)
            if kind == queue:
                read.append(len(found))
            return found

        monkeypatch.setattr(api.hub.store, "records", counted)
        assert await api.ok("GET", f"{place}/work/poll", block_ms=450) is None
        assert read[:2] == [12, 0] and len(read) > 3 and set(read[2:]) == {1}
        polls = asyncio.ensure_future(api.ok("GET", f"{place}/work/poll", block_ms=999))
        while len(read) < 8:
            await asyncio.sleep(0.02)
        session = await offered(api, place)
        assert (await polls)["data"]["id"] == session
        assert sum(read) < 12 * 3 + len(read)


async def test_nothing_is_handed_to_a_worker_that_has_gone(tmp_path: Path) -> None:
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
            gone = asyncio.create_task(poll(environment.id, block_ms=999))
            await asyncio.sleep(0.3)
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
            words: Any = message("on")
            await client.beta.sessions.events.send(session.id, events=[words])
            item = await poll(environment.id, block_ms=999)
            assert item is not None and item.data.id == session.id


async def test_only_self_hosted_environments_have_work(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        cloud = f"/v1/environments/{await api.environment()}"
        assert "not self_hosted" in await api.fails(400, "GET", f"{cloud}/work/poll")
        place = await hosted(api)
        for path, body in ((cloud, HOSTED["config"]), (place, {"type": "cloud"})):
            assert "config.type" in await api.fails(400, "POST", path, {"config": body})
        other = await api.other("theirs")
        await offered(api, place)
        (item,) = (await api.ok("GET", f"{place}/work"))["data"]
        for end in ("poll", "stats", item["id"]):
            await other.fails(404, "GET", f"{place}/work/{end}")
        theirs = await hosted(other)
        for end in ("ack", "heartbeat", "stop"):
            await other.fails(404, "POST", f"{theirs}/work/{item['id']}/{end}")
        given = {"type": "github_repository", "url": "https://github.com/a/b"}
        setup = {"agent": await api.built_in("agents"), "resources": [given]}
        setup["environment_id"] = place.rpartition("/")[2]
        assert "cloud" in await api.fails(400, "POST", "/v1/sessions", setup)
        program = {"name": "p", "spec": {"kind": "acp", "command": ["p"]}}
        other_tools = await api.hub.records.create("local", "agent", program)
        setup |= {"agent": ids.format_id("agent", other_tools.id), "resources": []}
        assert "tools itself" in await api.fails(400, "POST", "/v1/sessions", setup)


async def test_the_model_is_told_where_the_worker_puts_things(
    tmp_path: Path, model: Provider
) -> None:
    async with model, open_api(tmp_path) as api:
        await api.hub.config.set("local", "model", "anthropic:claude-sonnet-4-6")
        await api.hub.config.set("local", "model.base_url", model.url)
        place = await hosted(api)
        able = await skill(api)
        agent = await api.agent(skills=[{"type": "custom", "skill_id": able["id"]}])
        store = await api.ok("POST", "/v1/memory_stores", {"name": "My notes"})
        session = await api.session(
            agent=agent["id"],
            environment_id=place.rpartition("/")[2],
            resources=[{"type": "memory_store", "memory_store_id": store["id"]}],
        )
        await api.say(session["id"], "on")
        told = str(model.requests[0]["system"])
        assert "(skills/" in told and "- /mnt/memory/my-notes " in told
        assert str(tmp_path) not in told


async def test_a_result_is_taken_as_soon_as_its_call_is_seen_whatever_the_arguments(
    tmp_path: Path, model: Provider
) -> None:
    async with model, open_api(tmp_path) as api:
        await api.hub.config.set("local", "model", "anthropic:claude-sonnet-4-6")
        await api.hub.config.set("local", "model.base_url", model.url)
        place = await hosted(api)
        session = await api.session(
            agent=(await api.agent(tools=[{"type": "agent_toolset_20260401"}]))["id"],
            environment_id=place.rpartition("/")[2],
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
        words = [{"type": "text", "text": "from afar"}]
        await api.send(session["id"], {**result, "content": words})
        await api.hub.turns.wait(
            api.principal, ids.parse(session["id"]) or "", ids.parse(sent["data"][0]["id"]) or ""
        )
        assert "from afar" in str(model.requests[1]["messages"])
        (told,) = await api.events(session["id"], **{"types[]": "user.tool_result"})
        assert told["content"] == words
        await api.send(session["id"], {**result, "content": words})  # once more changes nothing
        assert await api.events(session["id"], **{"types[]": "user.tool_result"}) == [told]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    return tmp_path / "data"


def configure(data: Path, **settings: str) -> None:
    for name, value in settings.items():
        command = [sys.executable, "-m", "segue", "config", "set", name.replace("__", "."), value]
        environment = {**os.environ, "SEGUE_DATA_DIR": str(data)}
        subprocess.run(command, env=environment, check=True, capture_output=True)


@pytest.mark.parametrize("language", ["python", pytest.param("typescript", marks=pytest.mark.full)])
async def test_the_official_workers_run_the_tools_of_a_session(
    data: Path, tmp_path: Path, model: Provider, language: str
) -> None:
    place = tmp_path / "sandbox"
    place.mkdir()
    async with model:
        configure(data, model="anthropic:claude-sonnet-4-6", model__base_url=model.url)
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
                await worked(client, server, place, language)
    assert (place / "here.txt").read_text() == "made\n"
    assert str(place) in str(model.requests[1]) and "made" in str(model.requests[2])
    assert "Working directory" not in str(model.requests[0]["system"])
    assert not list(data.rglob("here.txt"))


@asynccontextmanager
async def worker(
    client: AsyncAnthropic, server: Server, environment: str, place: Path, language: str
) -> AsyncIterator[None]:
    """An official worker at work."""
    if language == "typescript":
        command = [node(), WORKER, node_packages(), "anthropic-1.8", server.url, server.key]
        process = await asyncio.create_subprocess_exec(*command, environment, place)
        try:
            yield
        finally:
            process.terminate()
            await process.wait()
        return
    own = client.beta.environments.work.worker(
        environment_id=environment, environment_key=server.key, workdir=place, max_idle=0.2
    )
    working = asyncio.create_task(own.run())
    try:
        yield
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def worked(client: AsyncAnthropic, server: Server, place: Path, language: str) -> None:
    """Two turns, each with a worker at work; then a lease that somebody else has."""
    beta = client.beta
    environment = await beta.environments.create(name="h", config={"type": "self_hosted"})
    agent = await beta.agents.create(
        name="a", model="claude-sonnet-4-6", tools=[{"type": "agent_toolset_20260401"}]
    )
    session = await beta.sessions.create(agent=agent.id, environment_id=environment.id)
    async with worker(client, server, environment.id, place, language):
        for answer in ("all is done", "and again"):
            events = await run_turn(beta, session.id, "on")
            assert answer in texts(events)
            results = [event for event in events if event.type == "user.tool_result"]
            assert results and not any(result.is_error for result in results)
            waits = [e.stop_reason for e in events if e.type == "session.status_idle"][:-1]
            assert all(reason.type == "requires_action" for reason in waits)
            await stopped(beta, environment.id)
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
    listed = [each async for each in calls.list(environment.id, limit=1)]
    assert [each.state for each in listed] == ["stopped"] * len(listed) and len(listed) >= 3


async def run_turn(beta: Any, session_id: str, text: str) -> list[Any]:
    """Send a prompt and return the turn's events."""
    events = []
    async with await beta.sessions.events.stream(session_id) as stream, asyncio.timeout(60):
        await beta.sessions.events.send(session_id, events=[message(text)])
        async for event in stream:
            events.append(event)
            if event.type == "session.status_idle" and event.stop_reason.type == "end_turn":
                break
    return events


def texts(events: list[Any]) -> list[str]:
    """Return the texts of the agent's messages."""
    return [block.text for e in events if e.type == "agent.message" for block in e.content]


async def stopped(beta: Any, environment: str) -> None:
    """Wait until the worker has let go of all that it had."""
    async with asyncio.timeout(30):
        while any([e.state != "stopped" async for e in beta.environments.work.list(environment)]):
            await asyncio.sleep(0.1)
