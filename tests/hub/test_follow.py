"""Follow the events of sessions and the changes of workspaces."""

import asyncio
from collections.abc import Callable

import pytest

from segue.hub import Hub
from segue.hub.history import background_pull
from segue.hub.history.background_pull import BackgroundPulls
from segue.hub.history.follow import LiveUpdates
from segue.model import ids
from segue.model.content import as_content
from segue.model.errors import StoreLocked
from segue.model.event import AgentMessage, Created, Delta, Event, UserMessage
from segue.model.principal import LOCAL, Principal
from segue.model.requests.spans import OpenRequest, encode_request
from segue.store.memory import MemoryStore
from segue.testing.source import MemorySource

MakeHub = Callable[..., Hub]


def user_message(text: str) -> UserMessage:
    return UserMessage(content=as_content(text))


async def test_subscriber_receives_stored_events_and_then_new_ones(make_hub: MakeHub) -> None:
    async with make_hub() as hub, asyncio.timeout(20):
        id = (await hub.editor.create(LOCAL)).id
        await hub.editor.append(LOCAL, id, user_message("0"), user_message("1"))
        seen: list[int] = []
        async for event in hub.history.follow(LOCAL, id, after=1):
            seen.append(event.seq)
            if event.seq == 10:
                break
            await hub.editor.append(LOCAL, id, user_message("more"))
        assert seen == list(range(2, 11))


async def test_each_subscriber_receives_every_event_in_order(make_hub: MakeHub) -> None:
    async with make_hub() as hub, asyncio.timeout(20):
        id = (await hub.editor.create(LOCAL)).id

        async def follow() -> list[int]:
            seen = []
            async for event in hub.history.follow(LOCAL, id):
                seen.append(event.seq)
                if len(seen) == 201:
                    return seen
            return seen

        subscribers = [asyncio.create_task(follow()) for _ in range(5)]
        await asyncio.gather(
            *(hub.editor.append(LOCAL, id, user_message(str(n))) for n in range(200))
        )
        for subscriber in subscribers:
            assert await subscriber == list(range(1, 202))


async def test_request_is_announced_only_to_subscribers_that_ask_for_requests(
    make_hub: MakeHub,
) -> None:
    async with make_hub() as hub, asyncio.timeout(20):
        id = (await hub.editor.create(LOCAL)).id
        name = ("local", id)
        text = encode_request(OpenRequest(id="r", asked_at="2026-01-31T12:00:00Z"))
        hub.history.live.add_delta(name, "r", "request", 0, text)
        with_requests = hub.history.follow(LOCAL, id, after=1, requests=True)
        with_deltas = hub.history.follow(LOCAL, id, after=1, deltas=True)
        delta = await anext(with_requests)
        assert isinstance(delta, Delta)
        assert (delta.kind, delta.message, delta.text) == ("request", "r", text)
        hub.history.live.add_delta(name, "m", "message", 0, "half")
        other = await anext(with_deltas)
        assert isinstance(other, Delta) and other.message == "m"
        # The first event of the response replaces the announcement, also for late subscribers.
        response = AgentMessage(
            content=as_content("half"), request="r", asked_at="2026-01-31T12:00:00Z"
        )
        await hub.editor.append(LOCAL, id, response)
        late = hub.history.follow(LOCAL, id, after=1, requests=True)
        for follower in (with_requests, late):
            event = await anext(follower)
            assert isinstance(event, Event) and event.body == response
        await hub.editor.append(LOCAL, id, user_message("next"))
        for follower in (with_requests, late):
            event = await anext(follower)
            assert isinstance(event, Event) and event.type == "user_message"
        for follower in (with_requests, with_deltas, late):
            await follower.aclose()


async def test_session_of_a_source_can_be_followed(make_hub: MakeHub) -> None:
    source = MemorySource()
    async with make_hub(sources=[source]) as hub, asyncio.timeout(20):
        id = ids.new_id()
        await source.create(id, [Created(cwd="/p")])
        seen = 0
        async for event in hub.history.follow(LOCAL, id):
            seen += 1
            if event.seq == 4:
                break
            await source.append(id, [user_message("next")])
        assert seen == 4


async def test_changes_of_a_workspace_exclude_other_workspaces(make_hub: MakeHub) -> None:
    async with make_hub() as hub, asyncio.timeout(20):
        changes = hub.history.changes(LOCAL)
        first = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        await hub.editor.create(Principal(workspace="other"))
        session = await hub.editor.create(LOCAL)
        assert await first == (session.id, False)
        await hub.editor.purge(LOCAL, session.id)
        async for change in changes:
            if change.gone:
                assert change.session == session.id
                break
        await changes.aclose()


async def test_failed_background_pull_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_pull, "RETRY_SECONDS", 0.01)
    succeeded = asyncio.Event()
    failures = [StoreLocked("locked"), ValueError("unexpected")]

    async def ensure_current(workspace: str, id: str) -> None:
        if failures:
            raise failures.pop()
        succeeded.set()

    pulls = BackgroundPulls(LiveUpdates(MemoryStore(), ()), ensure_current)
    with pulls.while_followed(("local", ids.new_id())):
        async with asyncio.timeout(20):
            await succeeded.wait()


async def test_next_follower_restarts_pulls_that_ended() -> None:
    pulled = asyncio.Event()

    async def ensure_current(workspace: str, id: str) -> None:
        pulled.set()

    pulls = BackgroundPulls(LiveUpdates(MemoryStore(), ()), ensure_current)
    name = ("local", ids.new_id())
    with pulls.while_followed(name):
        await pulls.close()
        pulled.clear()
        with pulls.while_followed(name):
            async with asyncio.timeout(20):
                await pulled.wait()


async def test_closed_hub_does_not_pull_in_the_background(make_hub: MakeHub) -> None:
    async with make_hub(sources=[MemorySource()]) as hub, asyncio.timeout(20):
        id = ids.new_id()
        await hub.store.create("local", id, [Created(cwd="/w", origin="memory")])
        follower = hub.history.follow(LOCAL, id)
        await anext(follower)
        tasks = [task for task in asyncio.all_tasks() if "BackgroundPulls" in repr(task)]
        assert len(tasks) == 1
    assert tasks[0].done()
    await follower.aclose()
