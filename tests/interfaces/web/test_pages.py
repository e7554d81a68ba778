"""The pages as the server makes them, without any script."""

import html
import json
import re
import threading
from pathlib import Path

import pytest

from segue.interfaces import web
from segue.model import ids
from segue.model.principal import LOCAL
from segue.render import markdown
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.source import ClaudeSource
from tests.claude.entries import Home as Claude
from tests.claude.entries import S, assistant, user
from tests.claude.helpers import append, timed_user, write_session_with_subagent
from tests.interfaces.web.site import open_site

ID = "0198c0de-1111-4111-8111-000000000001"


async def test_an_empty_store_says_what_to_do_first(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        page = await site.get("/")
        assert "No sessions yet" in page
        assert f"segue prompt --data-dir {tmp_path} new &#39;What can you do?&#39;" in page


async def test_a_session_is_listed_and_shown_without_a_script(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        session = await site.hub.editor.create(
            LOCAL, cwd="/home/me/parser", title="Fix it", tag="red"
        )
        await site.say(
            session, "/think hm\n/plan a; x b\n/tool grep found\n/say **Done**\n/usage 9 1"
        )
        home = await site.get("/")
        assert f'href="/s/{session.id}"' in home and "parser" in home and "red" in home
        page = await site.get(f"/s/{session.id}")
        assert "<strong>Done</strong>" in page
        assert "grep" in page and "found" in page
        assert 'class="completed"' in page


async def test_the_agent_of_a_list_is_named_by_any_spelling_or_its_name(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        agent = await site.hub.records.program("local", "Painter", {"kind": "demo"})
        await site.hub.editor.create(LOCAL, title="Hers", agent=agent)
        await site.hub.editor.create(LOCAL, title="Not hers")
        for name in (agent.id, ids.format_id("agent", agent.id), "painter"):
            page = await site.get(f"/?agent={name}")
            assert ">Hers<" in page and "Not hers" not in page and "agent Painter" in page
        assert ">Hers<" not in await site.get("/?agent=unknown")


async def test_the_dashboard_counts_what_is_in_the_workspace(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        assert "No session was active" in await site.get("/dashboard")
        session = await site.hub.editor.create(LOCAL, cwd="/p/courier", title="Spender")
        await site.say(session, "/usage 1200 34\n/say there")
        for path in ("/dashboard", "/dashboard?days=365"):
            page = await site.get(path)
            assert "<dd>1.2k</dd>" in page and "courier" in page and "Spender" in page
            assert "<dd>not known</dd>" in page and "1 session has no cost data" in page
        await site.get("/dashboard?days=13", 400)


async def test_projects_have_the_shortest_unique_names(
    tmp_path: Path,
) -> None:
    async with open_site(tmp_path) as site:
        for cwd in ("/a/x/app", "/a/y/app", "/a/site", "/b/x/app"):
            session = await site.hub.editor.create(LOCAL, cwd=cwd)
            await site.say(session, "/usage 10 10")
        for path in ("/dashboard", "/?group=project"):
            page = await site.get(path)
            for name in ("a/x/app", "b/x/app", "y/app", "site"):
                assert f">{name}<" in page


@pytest.mark.parametrize(
    ("picture", "words"),
    [
        ("data:image/svg+xml;base64,PHN2Zy8+", "must be PNG"),
        ("data:image/png;base64,!!!!", "damaged"),
        ("data:image/png;base64," + "A" * (8 << 20), "5 MB"),
        ("javascript:alert(1)", "must be PNG"),
    ],
    ids=["svg", "damaged", "large", "odd"],
)
async def test_what_is_no_picture_is_refused(tmp_path: Path, picture: str, words: str) -> None:
    async with open_site(tmp_path) as site:
        session = await site.hub.editor.create(LOCAL, title="Look")
        answer = await site.post(f"/s/{session.id}/prompt", 400, text="", picture=picture)
        assert words in answer.text
        assert (await site.hub.sessions.get(LOCAL, session.id)).messages == 0


async def test_a_session_of_claude_code_is_shown_whole_however_far_apart_its_lines_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    projects = tmp_path / "claude" / "projects" / "-w"
    projects.mkdir(parents=True)
    lines, parent = [], None
    for number in range(60):
        kind = "assistant" if number % 2 else "user"
        said = {"role": kind, "content": f"word{number} " + "and more " * (number * 7 % 90)}
        uuid = f"0198c0de-0000-4000-8000-{number:012}"
        entry = {"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": ID, "cwd": "/w"}
        entry |= {"timestamp": f"2026-01-02T03:{number:02}:00.000Z", "message": said}
        lines.append(json.dumps(entry))
        parent = uuid
    (projects / f"{ID}.jsonl").write_text("\n".join(lines) + "\n")
    source = ClaudeSource(tmp_path / "claude.index", ClaudeHome(str(tmp_path / "claude")))
    async with open_site(tmp_path, sources=[source]) as site:
        page = await site.get(f"/s/{ID}")
        assert "word59 " in page and "From Claude Code." in page
        [command] = re.findall(r'id="a-command" readonly value="([^"]+)"', page)
        resume = f"CLAUDE_CONFIG_DIR={tmp_path / 'claude'} claude --resume {ID}"
        assert html.unescape(command) == f"cd /w && {resume}"
        hits = await site.get(f"/s/{ID}/turns?q=word7")
        assert hits.count("data-jump") == 1 and "<mark>word7</mark>" in hits
        [place] = re.findall(r'data-jump="(\d+)"', hits)
        assert "word7 " in await site.get(f"/s/{ID}?at={place}")
        forked = (await site.post(f"/s/{ID}/fork")).headers["location"]
        assert 'id="prompt"' in await site.get(forked)  # where it can be continued
        address = f"/s/{ID}"
        seen: set[str] = set()
        for _ in range(20):  # by the links that work without a script
            page = await site.get(address)
            seen |= set(re.findall(r"word\d+ ", page))
            earlier = re.search(r'class="nav earlier" href="([^"]+)"', page)
            if earlier is None:
                break
            address = earlier[1].replace("&amp;", "&")
        await site.post(f"/s/{ID}/continue")
        page = await site.get(f"/s/{ID}")
        assert "word59 " in page and 'id="prompt"' in page
    assert len(seen) == 60


async def test_what_an_agent_did_is_a_fold_away_and_on_a_page_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Claude(tmp_path / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(made.root))
    write_session_with_subagent(made)
    source = ClaudeSource(tmp_path / "claude.index", ClaudeHome(str(made.root)))
    async with open_site(tmp_path, sources=[source]) as site:
        for _ in ("in its files", "in the store"):
            page = await site.get(f"/s/{S}")
            inside = page[page.index('class="item tool') :]
            there = f"/s/{S}/agent/a1b2c3"
            assert inside.index("What the agent did: count birds") < inside.index("Nine.")
            assert f'<a href="{there}">' in inside and "A kingfisher, too" not in page
            assert "A kingfisher, too" in await site.get(there, headers={"x-segue": "aside"})
            own = await site.get(there)
            assert "<h1>count birds</h1>" in own and "A kingfisher, too" in own
            assert (await site.get(f"/s/{S}/export.html")).count("A kingfisher, too") == 1
            found = await site.get("/?q=kingfisher")
            assert "Nine" not in found and f"/s/{S}" in found
            hits = await site.get(f"/s/{S}/agents?q=kingfisher")
            [at] = re.findall(rf'href="{there}\?at=(\d+)#e\1"', hits)
            assert f'id="e{at}"' in await site.get(f"{there}?at={at}")
            assert "<mark>kingfisher</mark>" in hits
            assert "data-jump" not in await site.get(f"/s/{S}/turns?q=kingfisher")
            assert await site.get(f"/s/{S}/agents?q=wombat") == ""
            await site.get(f"/s/{S}/agent/unknown", 404)
            await site.hub.sync.import_session(LOCAL, S, "claude")


async def test_events_of_an_agent_are_paged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Claude(tmp_path / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(made.root))
    _, file = write_session_with_subagent(made)
    aside = {"isSidechain": True, "agentId": "a1b2c3"}
    for number in range(500):
        append(
            file, timed_user(f"x{number}", "s2", f"word{number}", "2026-01-02T03:04:05Z", **aside)
        )
    source = ClaudeSource(tmp_path / "claude.index", ClaudeHome(str(made.root)))
    async with open_site(tmp_path, sources=[source]) as site:
        address, seen = f"/s/{S}/agent/a1b2c3", []
        for _ in range(9):
            page = await site.get(address)
            seen += re.findall(r"word\d+", page)
            if not (later := re.search(r'class="nav" href="([^"#]+)#e\d+">Later', page)):
                break
            address = later[1]
        assert set(seen) == {f"word{number}" for number in range(500)}
        back = set()
        for _ in range(9):
            page = await site.get(address)
            back |= set(re.findall(r"word\d+", page))
            if not (earlier := re.search(r'class="nav" href="([^"#]+)">Earlier', page)):
                break
            address = earlier[1]
        assert back == set(seen)


async def test_events_of_an_agent_are_rendered_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Claude(tmp_path / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(made.root))
    write_session_with_subagent(made)
    threads: list[threading.Thread] = []

    def watched(text: str) -> str:
        threads.append(threading.current_thread())
        return text

    source = ClaudeSource(tmp_path / "claude.index", ClaudeHome(str(made.root)))
    async with open_site(tmp_path, sources=[source]) as site:
        secret = await site.hub.shares.share(LOCAL, S)
        monkeypatch.setattr(markdown, "_markdown", watched)
        for base in (f"/s/{S}", f"/shared/local/{S}/{secret}"):
            for kind in ({}, {"x-segue": "1"}, {"x-segue": "aside"}):
                threads.clear()
                page = await site.get(f"{base}/agent/a1b2c3", headers=kind)
                assert "A kingfisher, too" in page
                assert threads and threading.current_thread() not in threads


async def test_of_a_very_long_output_an_agents_page_has_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Claude(tmp_path / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(made.root))
    _, file = write_session_with_subagent(made)
    aside = {"isSidechain": True, "agentId": "a1b2c3"}
    call = [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "seq"}}]
    long = "begins " + "0123456789 " * 10_000 + "the end"
    source = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}
    parts = [{"type": "text", "text": long}, {"type": "image", "source": source}]
    done = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": parts}]
    append(file, assistant("s3", "s2", call, "m10", **aside), user("s4", "s3", done, **aside))
    source_of = ClaudeSource(tmp_path / "claude.index", ClaudeHome(str(made.root)))
    async with open_site(tmp_path, sources=[source_of]) as site:
        for _ in ("in its files", "in the store"):
            secret = await site.hub.shares.share(LOCAL, S)
            for base in (f"/s/{S}", f"/shared/local/{S}/{secret}"):
                there = f"{base}/agent/a1b2c3"
                for headers in ({}, {"x-segue": "aside"}):
                    page = await site.get(there, headers=headers)
                    assert "begins" in page and "the end" not in page and len(page) < 60_000
                    [all_of_it] = re.findall(rf'"({there}/whole/\d+)"', page)
                    assert await site.get(all_of_it) == long
                    [picture] = set(re.findall(rf'src="({there}/blob/\d+/1)"', page))
                    assert (await site.client.get(picture)).content == b"hello"
                for path in (f"{there}/whole/999", f"{there}/blob/1/7", f"{base}/agent/x/whole/1"):
                    await site.get(path, 404)
            export = await site.get(f"/s/{S}/export.html")
            assert "the end" in export  # a file stands alone
            await site.hub.sync.import_session(LOCAL, S, "claude")


def test_the_help_names_every_key() -> None:
    here = Path(web.__file__).parent
    script = (here / "static" / "app.js").read_text()
    table = script[script.index("const keys = {") :]
    keys = re.findall(r'^  "?(\S)"?: \(\) =>', table[: table.index("\n};")], re.MULTILINE)
    named = re.findall(r"<kbd>(\S)</kbd>", (here / "templates" / "help.html").read_text())
    assert sorted(keys) == sorted(named) and "s" in keys
