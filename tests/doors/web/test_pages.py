"""The pages as the server makes them, without any script."""

from pathlib import Path

from segue.model.principal import LOCAL
from tests.doors.web.site import open_site


async def test_an_empty_store_says_what_to_do_first(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        page = await site.get("/")
        assert "No sessions yet" in page and "segue prompt new" in page


async def test_a_session_is_listed_and_shown_without_a_script(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        session = await site.hub.create(LOCAL, cwd="/home/me/parser", title="Fix it", tag="red")
        await site.say(
            session, "/think hm\n/plan a; x b\n/tool grep found\n/say **Done**\n/usage 9 1"
        )
        home = await site.get("/")
        assert f'href="/s/{session.id}"' in home and "parser" in home and "red" in home
        page = await site.get(f"/s/{session.id}")
        assert "<strong>Done</strong>" in page
        assert "grep" in page and "found" in page
        assert 'class="completed"' in page


async def test_the_dashboard_counts_what_is_in_the_workspace(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        assert "No session was active" in await site.get("/dashboard")
        session = await site.hub.create(LOCAL, cwd="/p/courier", title="Spender")
        await site.say(session, "/usage 1200 34\n/say there")
        for path in ("/dashboard", "/dashboard?days=365"):
            page = await site.get(path)
            assert "<dd>1.2k</dd>" in page and "courier" in page and "Spender" in page
        await site.get("/dashboard?days=13", 400)
