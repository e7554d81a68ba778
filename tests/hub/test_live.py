"""Following sessions and workspaces."""

import asyncio
from collections.abc import Callable

from segue.hub import Hub
from segue.model import ids
from segue.model.content import as_content
from segue.model.event import Created, UserMessage
from segue.model.principal import LOCAL, Principal
from segue.testing.source import MemorySource

MakeHub = Callable[..., Hub]


def said(text: str) -> UserMessage:
    return UserMessage(content=as_content(text))


async def test_a_follower_gets_what_is_stored_and_then_what_comes(make_hub: MakeHub) -> None:
    async with make_hub() as hub, asyncio.timeout(20):
        id = (await hub.editor.create(LOCAL)).id
        await hub.editor.append(LOCAL, id, said("0"), said("1"))
        seen: list[int] = []
        async for event in hub.history.follow(LOCAL, id, after=1):
            seen.append(event.seq)
            if event.seq == 10:
                break
            await hub.editor.append(LOCAL, id, said("more"))
        assert seen == list(range(2, 11))


async def test_followers_do_not_disturb_each_other(make_hub: MakeHub) -> None:
    async with make_hub() as hub, asyncio.timeout(20):
        id = (await hub.editor.create(LOCAL)).id

        async def follow() -> list[int]:
            seen = []
            async for event in hub.history.follow(LOCAL, id):
                seen.append(event.seq)
                if len(seen) == 201:
                    return seen
            return seen

        followers = [asyncio.create_task(follow()) for _ in range(5)]
        await asyncio.gather(*(hub.editor.append(LOCAL, id, said(str(n))) for n in range(200)))
        for follower in followers:
            assert await follower == list(range(1, 202))


async def test_a_source_s_session_is_followed_too(make_hub: MakeHub) -> None:
    source = MemorySource()
    async with make_hub(sources=[source]) as hub, asyncio.timeout(20):
        id = ids.new_id()
        await source.add(id, [Created(cwd="/p")])
        seen = 0
        async for event in hub.history.follow(LOCAL, id):
            seen += 1
            if event.seq == 4:
                break
            await source.grow(id, [said("next")])
        assert seen == 4


async def test_a_workspace_s_changes_are_told_and_no_other_s(make_hub: MakeHub) -> None:
    async with make_hub() as hub, asyncio.timeout(20):
        changes = hub.history.changes(LOCAL)
        first = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        await hub.editor.create(Principal(workspace="other"))
        mine = await hub.editor.create(LOCAL)
        assert await first == (mine.id, False)
        await hub.editor.purge(LOCAL, mine.id)
        async for change in changes:
            if change.gone:
                assert change.session == mine.id
                break
        await changes.aclose()
