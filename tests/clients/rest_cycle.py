"""Run by each official Python client, in its own environment: the whole life of sessions.

Every object is validated strictly. So are events, by clients that know all of today's (0.121 and
later); older ones drop what they do not know, and read events without strictness.
"""

import sys
from datetime import datetime, timedelta, timezone
from typing import Any

import anthropic
import rest_things

URL, KEY = sys.argv[1:]
VERSION = tuple(int(part) for part in anthropic.__version__.split(".")[:2])
NEW = VERSION >= (0, 121)
SEED = VERSION >= (0, 109)  # from here on with every filter, and with threads
# `strict_response_validation` is private, and the only way to have the client check.
strict = anthropic.Anthropic(
    base_url=URL, api_key=KEY, max_retries=0, _strict_response_validation=True
).beta
lenient = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0).beta
reader = strict if NEW else lenient


def message(text: str) -> Any:
    return {"type": "user.message", "content": [{"type": "text", "text": text}]}


def records() -> tuple[Any, Any]:
    """An agent with versions and an environment, by every call on them."""
    agent = strict.agents.create(
        name="Tester",
        model="claude-sonnet-4-6",
        system="Be brief.",
        description="Tests.",
        metadata={"a": "1"},
        mcp_servers=[{"type": "url", "name": "s", "url": "https://example.com/mcp"}],
        tools=[
            {"type": "agent_toolset_20260401", "configs": [{"name": "bash", "enabled": True}]},
            {"type": "mcp_toolset", "mcp_server_name": "s", "configs": [{"name": "t"}]},
            {
                "type": "custom",
                "name": "weather",
                "description": "The weather",
                "input_schema": {"type": "object", "properties": {}},
            },
        ],
    )
    second = strict.agents.update(agent.id, version=agent.version, system="Be brief!")
    assert second.version == 2
    try:
        strict.agents.update(agent.id, version=1, system="late")
        raise AssertionError("a stale version was taken")
    except anthropic.ConflictError as error:
        assert error.status_code == 409
    assert strict.agents.retrieve(agent.id, version=1).system == "Be brief."
    assert [each.version for each in strict.agents.versions.list(agent.id, limit=1)] == [2, 1]
    assert agent.id in [each.id for each in strict.agents.list(limit=1)]
    spare = strict.agents.create(name="Spare", model="m")
    assert strict.agents.archive(spare.id).archived_at is not None
    environment = strict.environments.create(name="e", metadata={"k": "v"})
    assert strict.environments.update(environment.id, name="f").name == "f"
    assert strict.environments.retrieve(environment.id).name == "f"
    assert environment.id in [each.id for each in strict.environments.list(limit=1)]
    other = strict.environments.create(name="g")
    assert strict.environments.archive(other.id).archived_at is not None
    assert strict.environments.delete(other.id).type == "environment_deleted"
    assert [model.id for model in strict.models.list()] == ["demo"]
    return second, environment


def sessions(agent: Any, environment: Any) -> str:
    """Create, list with every filter, update, archive, delete."""
    created = [
        strict.sessions.create(
            agent={"type": "agent", "id": agent.id, "version": 1 + number % 2},
            environment_id=environment.id,
            title=str(number),
            metadata={"number": str(number)},
            resources=[
                {
                    "type": "github_repository",
                    "url": "https://example.com/a/b",
                    "authorization_token": "t",
                    "checkout": {"type": "branch", "name": "main"},
                }
            ],
        )
        for number in range(5)
    ]
    titles = [each.title for each in strict.sessions.list(limit=2, agent_id=agent.id)]
    assert titles == ["4", "3", "2", "1", "0"], titles
    titles = [each.title for each in strict.sessions.list(limit=2, order="asc", agent_id=agent.id)]
    assert titles == ["0", "1", "2", "3", "4"], titles
    hour = timedelta(hours=1)
    now = datetime.now(timezone(2 * hour))
    for filters, count in (
        ({"agent_id": agent.id, "agent_version": 1}, 3),
        ({"agent_id": agent.id, "created_at_gt": now - hour, "created_at_lt": now + hour}, 5),
        ({"agent_id": agent.id, "created_at_gte": now + hour}, 0),
        ({"agent_id": agent.id, "created_at_lte": datetime(2001, 1, 1)}, 0),
        ({"agent_id": agent.id, "statuses": ["idle", "running"]}, 5),
        ({"agent_id": agent.id, "statuses": ["terminated"]}, 0),
        ({"agent_id": agent.id, "include_archived": True}, 5),
        ({"deployment_id": "depl_1"}, 0),
        ({"memory_store_id": "memstore_1"}, 0),
        ({"agent_id": agent.id, "extra_query": {"q": "nothing like it"}}, 0),
        ({"agent_id": agent.id, "extra_query": {"source": "segue"}}, 5),
    ):
        if not SEED and filters.keys() & {"statuses", "deployment_id", "memory_store_id"}:
            continue
        sessions = list(strict.sessions.list(limit=1000, **filters))
        assert len(sessions) == count, (filters, len(sessions))
    page = strict.sessions.list(limit=2, agent_id=agent.id)
    following = page.get_next_page()
    token = getattr(following, "prev_page", None) or following.model_extra.get("prev_page")
    previous_page = strict.sessions.list(limit=2, agent_id=agent.id, page=token)
    assert [each.id for each in previous_page.data] == [each.id for each in page.data]
    one = created[0].id
    updated = strict.sessions.update(one, title="new", metadata={"number": None, "x": "y"})
    assert (updated.title, updated.metadata) == ("new", {"x": "y"})
    assert strict.sessions.retrieve(one).title == "new"
    (resource,) = strict.sessions.resources.list(one)
    assert strict.sessions.resources.retrieve(resource.id, session_id=one).url == resource.url
    assert strict.sessions.archive(created[1].id).status == "terminated"
    assert strict.sessions.delete(created[2].id).type == "session_deleted"
    try:
        strict.sessions.retrieve(created[2].id)
        raise AssertionError("a deleted session is still there")
    except anthropic.NotFoundError as error:
        assert error.request_id
    return one


def conversation(id: str) -> None:
    """Send, then listen; listen, then send; questions; interrupts; lists."""
    reader.sessions.events.send(
        id, events=[message("/think hm\n/say Hello\n/tool ls a\n/usage 5 6")]
    )
    first = stream_events(id)
    assert first[0].type == "session.status_running"
    replies = [each.content[0].text for each in first if each.type == "agent.message"]
    assert replies == ["Hello"], replies
    listed = [each.id for each in reader.sessions.events.list(id, limit=3)]
    assert [each.id for each in first] == [each for each in listed if each in by_id(first)]
    newest = [each.id for each in reader.sessions.events.list(id, limit=3, order="desc")]
    assert newest == listed[::-1]
    event_types = ["agent.message", "user.message"]
    if SEED:
        only = reader.sessions.events.list(id, types=event_types)
    else:
        only = reader.sessions.events.list(id, extra_query={"types": event_types})
    assert [each.type for each in only] == ["user.message", "agent.message"]
    with reader.sessions.events.stream(id) as stream:
        reader.sessions.events.send(id, events=[message("/ask May I?")])
        for event in stream:
            if event.type != "session.status_idle":
                continue
            if event.stop_reason.type == "end_turn":
                break
            (tool,) = event.stop_reason.event_ids
            confirmation: Any = {"type": "user.tool_confirmation", "tool_use_id": tool}
            reader.sessions.events.send(id, events=[{**confirmation, "result": "allow"}])
    replies = []
    with reader.sessions.events.stream(id) as stream:
        reader.sessions.events.send(id, events=[message('/custom weather {"city": "Oslo"}')])
        for event in stream:
            if event.type == "agent.custom_tool_use":
                use = event
            if event.type == "agent.message":
                replies.append(event.content[0].text)
            if event.type != "session.status_idle":
                continue
            if event.stop_reason.type == "end_turn":
                break
            assert event.stop_reason.event_ids == [use.id] and use.input == {"city": "Oslo"}
            result: Any = {"type": "user.custom_tool_result", "custom_tool_use_id": use.id}
            content = [{"type": "text", "text": "rain"}]
            reader.sessions.events.send(id, events=[{**result, "content": content}])
    assert replies == ["weather completed: rain"], replies
    with reader.sessions.events.stream(id) as stream:
        reader.sessions.events.send(id, events=[message("/say begun\n/wait 60")])
        for event in stream:
            if event.type == "agent.message":
                reader.sessions.events.send(id, events=[{"type": "user.interrupt"}])
            if event.type == "session.status_idle":
                break
    assert strict.sessions.retrieve(id).usage.output_tokens == 6
    if not SEED:
        return
    (thread,) = strict.sessions.threads.list(id)
    assert strict.sessions.threads.retrieve(thread.id, session_id=id).status == "idle"
    inside = [each.id for each in reader.sessions.threads.events.list(thread.id, session_id=id)]
    assert inside == [each.id for each in reader.sessions.events.list(id)]


def stream_events(id: str) -> list[Any]:
    events = []
    with reader.sessions.events.stream(id) as stream:
        for event in stream:
            events.append(event)
            if event.type == "session.status_idle":
                return events
    raise AssertionError("the stream ended early")


def by_id(events: list[Any]) -> set[str]:
    return {event.id for event in events}


def deployments(agent: Any, environment: Any) -> None:
    """Memory stores, vaults and deployments, and the sessions that refer to them."""
    store = strict.memory_stores.create(name="Preferences", description="d")
    assert strict.memory_stores.update(store.id, name="Likes").name == "Likes"
    assert store.id in [each.id for each in strict.memory_stores.list(limit=1)]
    vault = strict.vaults.create(display_name="v", metadata={"k": "v"})
    assert strict.vaults.update(vault.id, display_name="w").display_name == "w"
    assert vault.id in [each.id for each in strict.vaults.list(limit=1)]
    deployment = strict.deployments.create(
        name="d",
        agent=agent.id,
        environment_id=environment.id,
        initial_events=[message("hello")],
        vault_ids=[vault.id],
        resources=[
            {"type": "memory_store", "memory_store_id": store.id},
            {
                "type": "github_repository",
                "url": "https://example.com/a/b",
                "authorization_token": "t",
            },
        ],
    )
    run = strict.deployments.run(deployment.id)
    for filters in ({"deployment_id": deployment.id}, {"memory_store_id": store.id}):
        (session,) = strict.sessions.list(**filters)
        assert (session.id, session.deployment_id) == (run.session_id, deployment.id)
        assert session.vault_ids == [vault.id]
    assert strict.deployment_runs.retrieve(run.id).session_id == run.session_id
    assert [each.id for each in strict.deployment_runs.list(deployment_id=deployment.id)] == [
        run.id
    ]
    assert strict.deployments.pause(deployment.id).status == "paused"
    assert strict.deployments.unpause(deployment.id).status == "active"
    assert deployment.id in [each.id for each in strict.deployments.list(limit=1)]
    assert strict.deployments.archive(deployment.id).archived_at is not None
    assert strict.vaults.archive(vault.id).archived_at is not None
    assert strict.vaults.delete(vault.id).type == "vault_deleted"
    assert strict.memory_stores.archive(store.id).archived_at is not None
    assert strict.memory_stores.delete(store.id).type == "memory_store_deleted"


def newer(agent: Any, environment: Any) -> None:
    """Use the features that only later clients have: overrides, initial events, deltas."""
    session = strict.sessions.create(
        agent={"type": "agent_with_overrides", "id": agent.id, "system": None, "model": "m"},
        environment_id=environment.id,
        initial_events=[message("/slow 0.02\n/say one two three four five six")],
    )
    assert (session.status, session.agent.system, session.agent.model.id) == ("running", None, "m")
    kinds = []
    with strict.sessions.events.stream(session.id, event_deltas=["agent.message"]) as stream:
        for event in stream:
            kinds.append(event.type)
            if event.type == "session.status_idle":
                break
    assert kinds.count("event_start") == 1 and "event_delta" in kinds, kinds
    outcomes(session.id)


def outcomes(id: str) -> None:
    """An outcome, a system message, a model's request and a retry, all validated."""
    system: Any = {"type": "system.message", "content": [{"type": "text", "text": "briefly"}]}
    rubric: Any = {"type": "text", "content": "five sections"}
    define: Any = {"type": "user.define_outcome", "description": "A summary", "rubric": rubric}
    prompt = message("/model\n/system\n/usage 1 2\n/retry once more")
    for events, last in (([prompt, system], "system.message"), ([define], "user.define_outcome")):
        with strict.sessions.events.stream(id) as stream:
            sent = strict.sessions.events.send(id, events=events)
            assert sent.data is not None and sent.data[-1].type == last
            kinds = []
            for event in stream:
                kinds.append(event.type)
                if event.type == "session.status_idle":
                    break
        assert last in kinds, kinds
    assert "span.outcome_evaluation_end" in kinds
    (outcome,) = strict.sessions.retrieve(id).outcome_evaluations
    assert (outcome.description, outcome.result) == ("A summary", "failed")
    seen = {each.type for each in strict.sessions.events.list(id)}
    assert {"span.model_request_start", "session.status_rescheduled", "system.message"} <= seen


def main() -> None:
    agent, environment = records()
    conversation(sessions(agent, environment))
    rest_things.files(strict, agent, environment)
    rest_things.credentials(strict, SEED)
    rest_things.skills(strict, agent, environment)
    if SEED:
        deployments(agent, environment)
        rest_things.memories(strict)
    if NEW:
        newer(agent, environment)
    print(f"anthropic {anthropic.__version__}: all is well")


main()
