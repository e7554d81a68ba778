"""The pages as the server renders them, without scripts."""

import html
import json
import re
import threading
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace

from segue.interfaces import web
from segue.interfaces.web.pages import transcript
from segue.model import clock, ids
from segue.model.content import Text
from segue.model.event import (
    Body,
    Created,
    Draft,
    ModelCalled,
    Option,
    PermissionAsked,
    StatusChanged,
    ToolCall,
    ToolCallChanged,
    Usage,
    UserMessage,
)
from segue.model.principal import LOCAL
from segue.render.text import markdown
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.source import ClaudeSource
from tests.claude.entries import Home as Claude
from tests.claude.entries import S, assistant, user
from tests.claude.helpers import append, timed_user, write_session_with_subagent
from tests.interfaces.web import examples
from tests.interfaces.web.site import open_site

ID = "0198c0de-1111-4111-8111-000000000001"


async def test_an_empty_list_shows_a_command_to_start_with(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        page = await site.get("/")
        assert "No sessions yet" in page
        assert f"segue prompt --data-dir {tmp_path} new &#39;What can you do?&#39;" in page


async def test_a_session_of_a_tool_is_resumed_in_a_terminal_if_no_agent_can_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_site(tmp_path) as site:
        session = await site.hub.editor.create(LOCAL, cwd="/home/me/parser")
        created = Created(cwd="/home/me/parser", source="opencode", agent=session.agent)
        other = await site.hub.store.create("local", ids.new_id(), [Draft(body=created)])
        button = ">Resume in terminal</button>"
        describe = AsyncMock(return_value="a model")
        monkeypatch.setattr(type(site.hub.agents), "describe", describe)
        assert button not in await site.get(f"/s/{other.id}")
        describe.return_value = ""
        assert button not in await site.get(f"/s/{session.id}")
        page = await site.get(f"/s/{other.id}")
        assert "No agent can answer" in page and button in page
        monkeypatch.setattr(
            transcript.listing,
            "agent_names",
            AsyncMock(return_value={session.agent.id: "opencode"}),
        )
        assert "<span>opencode</span>" not in await site.get(f"/s/{other.id}")
        assert "<span>opencode</span>" in await site.get(f"/s/{session.id}")


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


@pytest.mark.parametrize("changes", [0, 1, 101])
async def test_all_of_a_long_change_can_be_read_before_it_is_allowed(
    tmp_path: Path, changes: int
) -> None:
    text = "".join(f"line {number}\n" for number in range(20_000))
    call = ToolCall(call_id="c", name="write", kind="edit", input={"path": "a", "content": text})
    calls: list[Body] = [call]
    if changes:  # the agent says later what it will write
        early = ToolCallChanged(call_id="c", input={"path": "a", "content": text[:9000]})
        change = ToolCallChanged(call_id="c", input=call.input)
        calls = [replace(call, input={}), *[early] * (changes - 1), change]
    async with open_site(tmp_path) as site:
        session = await site.hub.store.create("local", ids.new_id(), [Created(cwd="/x")])
        options = (Option(id="yes", name="Allow", kind="allow_once"),)
        await site.hub.editor.append(
            LOCAL,
            session.id,
            UserMessage(content=(Text(text="go"),)),
            StatusChanged(status="running", turn="t"),
            *calls,
            PermissionAsked(ask_id="a", call_id="c", options=options),
        )
        page = await site.get(f"/s/{session.id}")
        dock = page.partition('class="dock"')[2]
        assert "300 of 20,000 lines" in dock and "too long to compare" not in dock
        link = re.search(r'href="([^"]+/whole/\d+)"', dock)
        assert link is not None and "+line 19999" in await site.get(link[1])


async def test_a_row_shows_how_many_lines_its_session_changed(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        session = await examples.create_full_session(site.hub)
        for path in ("/", f"/s/{session.id}/info"):
            page = await site.get(path)
            assert '<span class="added">+8</span> <span class="removed">−3</span>' in page


async def test_only_rows_for_the_script_are_compressed(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        await examples.create_many_sessions(site.hub, 3)
        plain = await site.client.get("/rows")
        compressed = await site.client.get("/rows", headers={"x-segue": "1"})
        assert compressed.headers["content-encoding"] == "gzip"
        assert "content-encoding" not in plain.headers and compressed.text == plain.text
        for headers in ({}, {"x-segue": "1"}):  # has a CSRF token
            assert "content-encoding" not in (await site.client.get("/", headers=headers)).headers


async def test_the_agent_filter_accepts_any_form_of_an_id_and_a_name(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        agent = await site.hub.records.program("local", "Painter", {"kind": "demo"})
        await site.hub.editor.create(LOCAL, title="Hers", agent=agent)
        await site.hub.editor.create(LOCAL, title="Not hers")
        for name in (agent.id, ids.format_id("agent", agent.id), "painter"):
            page = await site.get(f"/?agent={name}")
            assert ">Hers<" in page and "Not hers" not in page and "agent Painter" in page
        assert ">Hers<" not in await site.get("/?agent=unknown")


async def test_pinned_sessions_are_listed_alone_without_a_script(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        first = await site.hub.editor.create(LOCAL, title="The first")
        second = await site.hub.editor.create(LOCAL, title="The second")
        await site.post(f"/s/{first.id}/pin")
        page = await site.get("/?pinned=1")
        assert first.id in page and f'data-id="{second.id}"' not in page
        assert "Unpin" in await site.get(f"/s/{first.id}")
        await site.post("/bulk", action="unpin", id=first.id)
        assert f'data-id="{first.id}"' not in await site.get("/?pinned=1")
        missing = await site.get("/s/nothing", status=404)
        assert "Session not found. It may have been deleted." in missing


async def test_the_dashboard_counts_the_sessions_of_the_workspace(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        assert "No session was active" in await site.get("/dashboard")
        session = await site.hub.editor.create(LOCAL, cwd="/p/courier", title="Spender")
        await site.say(session, "/usage 1200 34\n/say there")
        for path in ("/dashboard", "/dashboard?days=365"):
            page = await site.get(path)
            assert "<dd>1.2k</dd>" in page and "courier" in page and "Spender" in page
            assert "<dd>no price</dd>" in page
            assert "1 session used a model without a known price" in page
        await site.get("/dashboard?days=13", 400)
        await site.get("/dashboard?from=2026-02-30", 400)
        await site.get("/dashboard?by=colour", 400)


async def test_the_dashboard_counts_only_what_was_used_in_the_period(tmp_path: Path) -> None:
    day = clock.from_rfc3339("2026-03-05")
    async with open_site(tmp_path) as site:
        drafts = [
            Draft(body=body, at=at)
            for at, body in (
                (day - 30 * clock.DAY, Created(cwd="/p/=courier")),
                (day - 30 * clock.DAY, UserMessage(content=(Text(text="first"),))),
                (day - 30 * clock.DAY, called("old-model", 5_000_000)),
                (day, UserMessage(content=(Text(text="second"),))),
                (day, called("new-model", 2_000_000)),
                (day + 40 * clock.DAY, UserMessage(content=(Text(text="third"),))),
                (day + 40 * clock.DAY, called("new-model", 1_000_000)),
            )
        ]
        session = await site.hub.store.create("local", ids.new_id(), drafts)
        march = "/dashboard?month=2026-03&by=model"
        page = await site.get(march)
        assert "<dd>$2.00</dd>" in page and "new-model" in page and "old-model" not in page
        page = await site.get("/dashboard?from=2026-02-01&to=2026-04-30&by=model")
        assert "<dd>$8.00</dd>" in page and "old-model" in page
        for model, is_listed in (("new-model", True), ("old-model", False)):
            sessions = (await site.get(f"{march}&name={model}")).partition('id="sessions"')[2]
            assert (f"/s/{session.id}" in sessions) is is_listed
        table = await site.get("/dashboard.csv?month=2026-03&by=model")
        assert table.splitlines()[1].startswith("new-model,1,1,9,0,0,0,2.000000")
        table = await site.get("/dashboard.csv?month=2026-03&name=/p/%3Dcourier")
        assert session.id in table and "/p/=courier" in table


def called(model: str, cost: int) -> ModelCalled:
    return ModelCalled(model=model, usage=Usage(input_tokens=9, cost=cost))


async def test_estimated_costs_are_marked(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        session = await site.hub.editor.create(LOCAL, cwd="/p/courier", title="Spender")
        estimated = Usage(input_tokens=9, cost=3_400_000, estimated_cost=3_400_000)
        calls = [ModelCalled(model="a", usage=estimated)]
        await site.hub.store.change("local", session.id, lambda _: calls)
        for path in ("/", f"/s/{session.id}", "/dashboard", f"/s/{session.id}/export.html"):
            assert "≈ $3.40<" in await site.get(path)
        assert "estimated from list prices" in await site.get("/dashboard")
        unpriced = [ModelCalled(model="b", usage=Usage(input_tokens=9))]
        await site.hub.store.change("local", session.id, lambda _: unpriced)
        for path in ("/", f"/s/{session.id}", "/dashboard"):
            assert "≈ $3.40 + no price<" in await site.get(path)


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
async def test_an_attachment_that_is_not_a_picture_is_refused(
    tmp_path: Path, picture: str, words: str
) -> None:
    async with open_site(tmp_path) as site:
        session = await site.hub.editor.create(LOCAL, title="Look")
        response = await site.post(f"/s/{session.id}/prompt", 400, text="", picture=picture)
        assert words in response.text
        assert (await site.hub.sessions.get(LOCAL, session.id)).messages == 0


async def test_the_first_page_says_which_tools_were_found(tmp_path: Path) -> None:
    home = tmp_path / "claude"
    source = ClaudeSource(tmp_path / "claude.index", ClaudeHome(str(home)))
    async with open_site(tmp_path, sources=[source]) as site:
        assert "<span>Claude Code</span>" in (page := await site.get("/")) and "not found" in page
        (project := home / "projects" / "-w").mkdir(parents=True)
        append(project / f"{ID}.jsonl", user(ID, None, "Hello"))
        await source.refresh()
        assert re.search(r"Found on this computer: .*Claude Code</a> 1 ", await site.get("/"))
        await site.hub.editor.create(LOCAL, title="Own")
        assert "Found on this computer" not in await site.get("/")


async def test_all_messages_of_a_claude_code_session_can_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    projects = tmp_path / "claude" / "projects" / "-w"
    projects.mkdir(parents=True)
    lines, parent = [], None
    for number in range(60):
        kind = "assistant" if number % 2 else "user"
        message = {
            "role": kind,
            "content": f"word{number} " + "and more " * (number * 7 % 90),
        }
        uuid = f"0198c0de-0000-4000-8000-{number:012}"
        entry = {"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": ID, "cwd": "/w"}
        entry |= {"timestamp": f"2026-01-02T03:{number:02}:00.000Z", "message": message}
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
        matches = await site.get(f"/s/{ID}/turns?q=word7")
        assert matches.count("data-jump") == 1 and "<mark>word7</mark>" in matches
        [seq] = re.findall(r'data-jump="(\d+)"', matches)
        assert "word7 " in await site.get(f"/s/{ID}?at={seq}")
        forked = (await site.post(f"/s/{ID}/fork")).headers["location"]
        fork_page = await site.get(forked)
        assert 'id="prompt"' in fork_page  # a fork can be prompted
        assert fork_page.count(f'<a href="/s/{ID}">Continued from here;') == 1
        assert "also in 1 fork" in await site.get("/?q=word7")
        url = f"/s/{ID}"
        seen_words: set[str] = set()
        for _ in range(20):  # follows the links for browsers without scripts
            page = await site.get(url)
            seen_words |= set(re.findall(r"word\d+ ", page))
            earlier = re.search(r'class="nav earlier" href="([^"]+)"', page)
            if earlier is None:
                break
            url = earlier[1].replace("&amp;", "&")
        await site.hub.config.set("local", "model", "demo")
        await site.post(f"/s/{ID}/continue")
        page = await site.get(f"/s/{ID}")
        assert "word59 " in page and 'id="prompt"' in page
    assert len(seen_words) == 60


async def test_events_of_an_agent_are_folded_in_the_session_and_have_their_own_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude_home = Claude(tmp_path / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(claude_home.root))
    write_session_with_subagent(claude_home)
    source = ClaudeSource(tmp_path / "claude.index", ClaudeHome(str(claude_home.root)))
    async with open_site(tmp_path, sources=[source]) as site:
        for _ in ("in its files", "in the store"):
            page = await site.get(f"/s/{S}")
            tool_item = page[page.index('class="item tool') :]
            agent_url = f"/s/{S}/agent/a1b2c3"
            assert tool_item.index("What the agent did: count birds") < tool_item.index("Nine.")
            assert f'<a href="{agent_url}">' in tool_item and "A kingfisher, too" not in page
            assert "A kingfisher, too" in await site.get(agent_url, headers={"x-segue": "aside"})
            agent_page = await site.get(agent_url)
            assert "<h1>count birds</h1>" in agent_page and "A kingfisher, too" in agent_page
            assert (await site.get(f"/s/{S}/export.html")).count("A kingfisher, too") == 1
            results = await site.get("/?q=kingfisher")
            assert "Nine" not in results and f"/s/{S}" in results
            matches = await site.get(f"/s/{S}/agents?q=kingfisher")
            [at] = re.findall(rf'href="{agent_url}\?at=(\d+)#e\1"', matches)
            assert f'id="e{at}"' in await site.get(f"{agent_url}?at={at}")
            assert "<mark>kingfisher</mark>" in matches
            assert "data-jump" not in await site.get(f"/s/{S}/turns?q=kingfisher")
            assert await site.get(f"/s/{S}/agents?q=wombat") == ""
            await site.get(f"/s/{S}/agent/unknown", 404)
            await site.hub.sync.import_session(LOCAL, S, "claude")


async def test_events_of_an_agent_are_paged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude_home = Claude(tmp_path / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(claude_home.root))
    _, file = write_session_with_subagent(claude_home)
    fields = {"isSidechain": True, "agentId": "a1b2c3"}
    for number in range(500):
        append(
            file,
            timed_user(f"x{number}", "s2", f"word{number}", "2026-01-02T03:04:05Z", **fields),
        )
    source = ClaudeSource(tmp_path / "claude.index", ClaudeHome(str(claude_home.root)))
    async with open_site(tmp_path, sources=[source]) as site:
        url, seen_words = f"/s/{S}/agent/a1b2c3", []
        for _ in range(9):
            page = await site.get(url)
            seen_words += re.findall(r"word\d+", page)
            if not (later := re.search(r'class="nav" href="([^"#]+)#e\d+">Later', page)):
                break
            url = later[1]
        assert set(seen_words) == {f"word{number}" for number in range(500)}
        paged_backward = set()
        for _ in range(9):
            page = await site.get(url)
            paged_backward |= set(re.findall(r"word\d+", page))
            if not (earlier := re.search(r'class="nav" href="([^"#]+)">Earlier', page)):
                break
            url = earlier[1]
        assert paged_backward == set(seen_words)


async def test_events_of_an_agent_are_rendered_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude_home = Claude(tmp_path / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(claude_home.root))
    write_session_with_subagent(claude_home)
    threads: list[threading.Thread] = []

    def render_and_record(text: str) -> str:
        threads.append(threading.current_thread())
        return text

    source = ClaudeSource(tmp_path / "claude.index", ClaudeHome(str(claude_home.root)))
    async with open_site(tmp_path, sources=[source]) as site:
        secret = await site.hub.shares.share(LOCAL, S)
        monkeypatch.setattr(markdown, "_markdown", render_and_record)
        for base in (f"/s/{S}", f"/shared/local/{S}/{secret}"):
            for kind in ({}, {"x-segue": "1"}, {"x-segue": "aside"}):
                threads.clear()
                page = await site.get(f"{base}/agent/a1b2c3", headers=kind)
                assert "A kingfisher, too" in page
                assert threads and threading.current_thread() not in threads


async def test_an_agents_page_shows_only_the_end_of_a_very_long_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude_home = Claude(tmp_path / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(claude_home.root))
    _, file = write_session_with_subagent(claude_home)
    fields = {"isSidechain": True, "agentId": "a1b2c3"}
    call = [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "seq"}}]
    long_text = "begins " + "0123456789 " * 10_000 + "the end"
    image = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}
    parts = [{"type": "text", "text": long_text}, {"type": "image", "source": image}]
    result = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": parts}]
    append(file, assistant("s3", "s2", call, "m10", **fields), user("s4", "s3", result, **fields))
    source = ClaudeSource(tmp_path / "claude.index", ClaudeHome(str(claude_home.root)))
    async with open_site(tmp_path, sources=[source]) as site:
        for _ in ("in its files", "in the store"):
            secret = await site.hub.shares.share(LOCAL, S)
            for base in (f"/s/{S}", f"/shared/local/{S}/{secret}"):
                agent_url = f"{base}/agent/a1b2c3"
                for headers in ({}, {"x-segue": "aside"}):
                    page = await site.get(agent_url, headers=headers)
                    assert "the end" in page and "begins" not in page and len(page) < 60_000
                    [full_text_url] = re.findall(rf'"({agent_url}/whole/\d+)"', page)
                    assert await site.get(full_text_url) == long_text
                    [picture] = set(re.findall(rf'src="({agent_url}/blob/\d+/1)"', page))
                    assert (await site.client.get(picture)).content == b"hello"
                for path in (
                    f"{agent_url}/whole/999",
                    f"{agent_url}/blob/1/7",
                    f"{base}/agent/x/whole/1",
                ):
                    await site.get(path, 404)
            export = await site.get(f"/s/{S}/export.html")
            assert "the end" in export  # an export is complete
            await site.hub.sync.import_session(LOCAL, S, "claude")


def test_the_help_names_every_key() -> None:
    package = Path(web.__file__).parent
    script = (package / "static" / "app.js").read_text()
    table = script[script.index("const keys = {") :]
    keys = re.findall(r'^  "?(\S)"?: \(\) =>', table[: table.index("\n};")], re.MULTILINE)
    help_page = (package / "templates" / "help.html").read_text()
    documented_keys = re.findall(r"(?<!<kbd>Ctrl</kbd> )<kbd>(\S)</kbd>", help_page)
    assert sorted(keys) == sorted(documented_keys) and "s" in keys
