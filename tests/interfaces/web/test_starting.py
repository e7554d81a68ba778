"""Start a session from pickers; search all sessions; compare two of them."""

import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from segue.model import ids
from segue.model.event import AgentMessage, Created, InfoChanged, UserMessage
from segue.model.principal import LOCAL, Principal
from segue.model.query import Query
from tests.interfaces.web import examples
from tests.interfaces.web.examples import text
from tests.interfaces.web.harness import BrowserHarness, accessibility_problems
from tests.interfaces.web.site import open_site


async def test_a_session_is_started_from_pickers(harness: BrowserHarness) -> None:
    project = harness.directory / "orders"
    project.mkdir()
    await harness.session("Earlier", "/say hello", cwd=str(project))
    page = await harness.window()
    await page.get_by_role("link", name="New session").click()
    await expect(page.locator("#first-message")).to_be_focused()
    await page.keyboard.type("/write report.md All is well")
    field = page.locator("#n-project")
    await field.fill("rders")  # a part of the name
    await expect(page.locator("#n-project-options [data-value]")).to_have_count(1)
    assert await accessibility_problems(page) == []
    await field.press("Enter")
    await expect(field).to_have_value("orders")
    await page.locator("#n-mode").select_option("Accept edits")
    assert len((await harness.hub.sessions.list(LOCAL)).sessions) == 1
    assert await accessibility_problems(page) == []
    await page.reload()  # the draft is kept
    await expect(page.locator("#first-message")).to_have_value("/write report.md All is well")
    await field.fill("odrers")
    await page.locator("#first-message").press("Control+Enter")
    assert await field.evaluate("field => field.validity.customError")
    await field.fill("")
    await page.locator("#n-project-options").get_by_text("orders", exact=True).click()
    await page.locator("#n-mode").select_option("Accept edits")
    await page.locator("#first-message").press("Control+Enter")
    await expect(page.locator(".item.user")).to_contain_text("/write report.md")
    await expect(page.locator("#head .status")).to_have_text("idle")  # no permission was asked for
    session = (await harness.hub.sessions.list(LOCAL)).sessions[0]
    assert session.cwd == str(project) and session.mode == "acceptEdits"
    await page.get_by_role("heading", level=1).click()
    await page.keyboard.press("n")
    await expect(page.locator("#first-message")).to_be_focused()
    await expect(page.locator("#first-message")).to_have_value("")


async def test_a_session_that_cannot_be_started_is_not_kept(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        page = await site.get("/new?cwd=/nowhere")
        assert 'name="project" value="/nowhere"' in page
        await site.post("/new", 400, text="")
        for fields in (
            {"project": "no-such-project"},
            {"project": "/nowhere"},
            {"mode": "anything"},
            {"agent": "agent_unknown"},
            {"model": "no-such-provider:model"},
        ):
            response = await site.client.post(
                "/new", data={"csrf": site.csrf, "text": "hello", **fields}
            )
            assert response.status_code >= 400, fields
        assert (await site.hub.sessions.list(LOCAL)).sessions == []
        assert (await site.hub.sessions.list(LOCAL, Query(trash=True))).sessions == []
        response = await site.post("/new", text="/say hello to you")
        page = await site.get(response.headers["location"])  # it waits for a quick answer
        assert "hello to you" in page.partition('class="item agent')[2]


async def test_only_agents_that_answer_here_are_offered(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        records = site.hub.records
        records.add_source_agent("local", "codex", {"name": "Codex"})
        body = {"name": "Claude Code", "spec": {"kind": "claude_code"}}
        records.add_source_agent("local", "claude", body)
        ids_of_same_name = [ids.new_id(), ids.new_id()]
        for id in ids_of_same_name:
            await site.hub.agent_resolver.create(LOCAL, {"name": "Echo"}, id)
        page = await site.get("/new")
        assert "Codex</option>" not in page and "Claude Code</option>" not in page
        for id in ids_of_same_name:
            assert f"Echo ({id})</option>" in page
        assert "unless you choose another agent or model" in page
        await site.hub.config.set("local", "claude.continue", "true")
        assert "Claude Code</option>" in await site.get("/new")


async def test_a_message_with_code_is_one_text(harness: BrowserHarness) -> None:
    page = await harness.window()
    await page.evaluate("""async () => {
        const script = document.querySelector('script[src$="early.js"]').src;
        (await import(script.replace("early.js", "dom.js"))).notify("Run `segue resume` there.");
    }""")
    await expect(page.locator("#toast > div > *")).to_have_count(1)
    await expect(page.locator("#toast code")).to_have_text("segue resume")


async def test_a_project_is_found_by_its_name_without_a_script(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        for parent in ("one", "two"):
            (tmp_path / parent / "Shop").mkdir(parents=True)
            await site.hub.editor.create(LOCAL, cwd=str(tmp_path / parent / "Shop"))
        page = await site.get("/new")
        assert '<option value="one/Shop">' in page
        await site.post("/new", text="/say hello", project="two/shop")
        session = (await site.hub.sessions.list(LOCAL)).sessions[0]
        assert session.cwd == str(tmp_path / "two" / "Shop")


async def test_the_first_run_offers_a_model_to_choose(harness: BrowserHarness) -> None:
    page = await harness.window("/activity")
    await expect(page.get_by_role("heading", level=1)).to_have_text("No sessions yet")
    field = page.get_by_label("Provider and name")
    await field.fill("gpt-5")
    harness.expect_problem("Failed to load resource")
    await page.get_by_role("button", name="Use this model").click()
    await expect(page.locator("#toast")).to_contain_text("use provider:name")
    assert await accessibility_problems(page) == []
    await field.fill("ollama:qwen3")  # needs no key
    await field.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("New session")
    await expect(page.locator("#start")).to_contain_text("Answered by ollama:qwen3")
    assert (await harness.hub.config.all("local"))["model"] == "ollama:qwen3"
    await page.get_by_role("link", name="Change").click()
    await expect(page.get_by_label("Provider and name")).to_have_value("ollama:qwen3")
    assert await accessibility_problems(page) == []


async def test_a_model_without_its_key_is_saved_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
    async with open_site(tmp_path, signed_in=False) as site:
        await site.sign_in(LOCAL)
        assert '<option value="anthropic:claude-sonnet-4-6">' in await site.get("/")
        response = await site.post("/model", model="openai:gpt-5")
        assert response.headers["location"] == "/model"
        page = await site.get("/model")
        assert "cannot be used yet" in page and "OPENAI_API_KEY" in page
        await site.post("/model", 400, model="")
        await site.sign_in(Principal(workspace="team"))
        await site.get("/model", 403)
        await site.post("/model", 403, model="openai:gpt-5")


async def test_the_palette_finds_messages_and_runs_commands(harness: BrowserHarness) -> None:
    first = await harness.session("The needle", "/say the wombat is here\n/say a wombat again")
    await harness.session("No match", "/say hay")
    page = await harness.window()
    await page.keyboard.press("Control+k")
    palette = page.locator("#palette")
    await expect(palette.locator(".found > li")).to_have_count(2)  # the newest sessions
    await page.keyboard.type("wombta")
    await expect(palette.locator(".notice")).to_contain_text("These results are for “wombat”")
    hits = palette.locator(".found ol .hit")
    await expect(hits).to_have_count(3)
    assert await accessibility_problems(page) == []
    if not harness.phone:
        await expect(palette.locator(".preview")).to_contain_text("the wombat is here")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(palette).to_be_hidden()
    await expect(page.get_by_role("heading", level=1)).to_have_text("The needle")
    assert f"/s/{first.id}?at=" in page.url
    await page.keyboard.press("Control+k")
    await palette.get_by_role("searchbox").fill("dash")
    await expect(palette.locator(".command")).to_have_count(1)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Dashboard")


async def test_the_search_page_ranks_filters_by_date_and_corrects(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        await examples.create_many_sessions(site.hub, 8, days=80)

        async def titles(query: str) -> list[str]:
            page = await site.get(f"/search?{query}", headers={"x-segue": "results"})
            return re.findall(r'class="title">([^<]+)', page)

        assert len(await titles("q=parser")) == 2
        assert await titles("q=parser&since=7d") == ["Look at the parser (0)"]
        assert "These results are for “parser”" in await site.get("/search?q=praser")
        assert "Nothing contains “praser”" in await site.get("/rows?q=praser")
        assert "No results" in await site.get("/search?q=unheard-of")
        assert len(await titles("")) == 8


async def test_a_search_keeps_the_filters_that_are_no_part_of_the_query(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        sessions = await examples.create_many_sessions(site.hub, 40)
        await site.hub.pins.pin(LOCAL, sessions[-1].id)

        async def rows(query: str) -> list[str]:
            page = await site.get(f"/rows?{query}")
            return re.findall(r'class="row" data-id="([^"]+)', page)

        assert len(await rows("q=look")) == 12
        assert await rows("q=look&pinned=1") == [sessions[-1].id]
        assert await rows("q=look&status=failed") == []
        page = await site.get("/rows?q=look&since=30d")
        (following,) = re.findall(r'class="more" href="/\?([^"]+)', page)
        assert len(await rows(following.replace("&amp;", "&"))) == 12


async def test_forks_are_compared_from_their_common_ancestor(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        hub = site.hub
        parent = await hub.editor.create(LOCAL, title="Parent")
        await hub.turns.run(LOCAL, parent.id, "/say shared words")
        seq = (await hub.sessions.get(LOCAL, parent.id)).last_seq
        forks = [await hub.editor.fork(LOCAL, parent.id, at=seq, in_store=True) for _ in range(2)]
        for fork, words in zip(forks, ("left way", "right way"), strict=True):
            await hub.turns.run(LOCAL, fork.id, f"/say {words}")
        await hub.turns.run(LOCAL, parent.id, "/say parent went on")

        async def compared(a: str, b: str) -> str:
            page = await site.get(f"/compare?a={a}&b={b}")
            return page.partition('class="compare"')[2]

        page = await compared(forks[0].id, forks[1].id)
        assert "left way" in page and "right way" in page and "shared words" not in page
        page = await compared(parent.id, forks[1].id)
        assert "parent went on" in page and "right way" in page and "shared words" not in page
        other = await site.hub.store.create(
            "local",
            ids.new_id(),
            [Created(cwd="/x"), InfoChanged(title="Else"), UserMessage(content=text("alone"))],
        )
        page = await compared(parent.id, other.id)
        assert "no common ancestor" in page and "shared words" in page and "alone" in page
        assert f"b={forks[0].id}" in await site.get(f"/compare?a={parent.id}")
        info = await site.get(f"/s/{forks[0].id}/info")
        assert "Forked from" in info and f'href="/s/{parent.id}?at={seq}' in info
        await site.get(f"/compare?a={parent.id}&b={parent.id}", 400)
        await site.get("/compare?a=nothing", 404)


async def test_a_fork_at_a_message_is_compared_from_that_message(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        bodies = [
            Created(cwd="/x"),
            UserMessage(content=text("common")),
            AgentMessage(content=text("common answer")),
        ]
        session = await site.hub.store.create("local", ids.new_id(), bodies)
        fork = await site.hub.editor.fork(LOCAL, session.id, at=2, in_store=True)
        await site.hub.turns.run(LOCAL, fork.id, "/say other")
        page = (await site.get(f"/compare?a={session.id}&b={fork.id}")).partition("sums")[2]
        assert "common answer" in page and "other" in page and ">common<" not in page
