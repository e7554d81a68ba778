"""Follow the events of sessions and the changes of workspaces."""

import asyncio
from collections.abc import Callable

from segue.hub import Hub
from segue.model import ids
from segue.model.content import as_content
from segue.model.event import Created, UserMessage
from segue.model.principal import LOCAL, Principal
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
