"""The home page as an inbox, and changes of several sessions at once."""

import asyncio
import re
from pathlib import Path

from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.model.session import Session
from tests.interfaces.web import examples
from tests.interfaces.web.site import Site, open_site


async def ask(site: Site, title: str, prompt: str) -> Session:
    """Start a turn that asks for permission; return the session once it waits."""
    session = await site.hub.editor.create(LOCAL, title=title)
    await site.hub.turns.submit(LOCAL, session.id, prompt)
    async with asyncio.timeout(60):
        while not (session := await site.hub.sessions.get(LOCAL, session.id)).open_asks:
            await asyncio.sleep(0.01)
    return session


async def test_waiting_session_shows_what_it_asks_and_is_answered_with_a_reason(
    tmp_path: Path,
) -> None:
    async with open_site(tmp_path) as site:
        session = await ask(site, "Report", "/write report.md All is well")
        page = await site.get("/activity")
        assert "Waiting for you" in page and "All is well" in page
        assert f'<meta name="waiting" content="{session.id}">' in page
        assert session.id in await site.get("/rows?status=waiting")
        [choice] = re.findall(r'value="(\S+ \S+)" class="danger"', page)
        await site.post(
            f"/s/{session.id}/answer", choice=choice, note="not today", **{"from": "inbox"}
        )
        turn = (await site.hub.sessions.get(LOCAL, session.id)).turn
        if turn:
            await site.hub.turns.wait(LOCAL, session.id, turn)
        page = await site.get(f"/s/{session.id}")
        assert "Rejected:" in page and "<q>not today</q>" in page
        assert session.id not in await site.get("/rows?status=waiting")


async def test_several_sessions_are_archived_tagged_deleted_and_restored(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        sessions = await examples.create_many_sessions(site.hub, 3)
        await site.get("/")
        ids = [session.id for session in sessions[:2]]

        async def change(action: str, **fields: str) -> str:
            data = {"csrf": site.csrf, "action": action, "id": ids, **fields}
            response = await site.client.post("/bulk", data=data)
            assert response.status_code == 303, response.text
            return await site.get(response.headers["location"])

        async def states() -> set[str]:
            return {(await site.hub.sessions.get(LOCAL, id)).state for id in ids}

        page = await change("archive")
        assert await states() == {"archived"} and "Archived: 2 sessions." in page
        assert 'name="action" value="unarchive">Undo' in page
        await change("unarchive")
        await change("tag", tag="old")
        assert {(await site.hub.sessions.get(LOCAL, id)).tag for id in ids} == {"old"}
        page = await change("tag", tag="new")
        assert page.count('name="was" value="old"') == 2
        await change("retag", was=["old", ""])  # type: ignore[arg-type]  # a repeated field
        assert {(await site.hub.sessions.get(LOCAL, id)).tag for id in ids} == {"old", None}
        await change("delete")
        assert await states() == {"trashed"}
        await change("restore")
        assert await states() == {"active"}
        await change("delete")
        await site.post("/bulk", action="empty")
        assert (await site.hub.sessions.list(LOCAL, Query(trash=True))).sessions == []
        await site.post("/bulk", 400, action="archive")
        await site.post("/bulk", 400, action="paint", id=sessions[2].id)


async def test_recent_sessions_are_sorted_by_a_column(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        await examples.create_many_sessions(site.hub, 6)

        async def titles(query: str) -> list[str]:
            page = await site.get(f"/?{query}")
            return re.findall(r'<td class="title"><a href="[^"]+">([^<]+)', page)

        by_title = await titles("sort=title")
        assert by_title == sorted(by_title, key=str.casefold) and len(by_title) == 6
        assert await titles("sort=title&order=reverse") == by_title[::-1]
        assert await titles("sort=nothing") == await titles("sort=age")


async def test_project_is_found_by_its_name_and_source_in_any_case(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        await examples.create_many_sessions(site.hub, 8)
        for name in ("project-1", "Project-1", "ject-1"):
            assert (await site.get(f"/rows?cwd={name}")).count('class="row"') == 2
        assert "No sessions match these filters" in await site.get("/?cwd=unheard-of")
        await site.hub.editor.create(LOCAL, cwd="/home/me/other/project-1")
        assert (await site.get("/rows?cwd=other/project-1")).count('class="row"') == 1
        assert '<option value="src/project-1">/home/me/src/' in await site.get("/facets")
        assert (await site.get("/rows?source=Segue")).count('class="row"') == 9


async def test_first_page_says_what_was_found_and_offers_the_demo(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        page = await site.get("/")
        assert "No sessions yet" in page and "Use this model" in page
        assert "Try it with the demo agent" in page and "the demo agent answers" in page
