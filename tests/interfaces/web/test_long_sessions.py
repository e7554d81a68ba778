"""Very long sessions: a page has only the chunks near its visible part."""

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, Route, expect

from segue.model.event import (
    AgentMessage,
    Body,
    ModelCalled,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from segue.model.principal import LOCAL
from segue.render.chunks import CHUNK_EVENTS
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.source import ClaudeSource
from tests.claude.entries import Home as Claude
from tests.claude.entries import S
from tests.claude.helpers import write_session_with_subagent
from tests.interfaces.web import examples
from tests.interfaces.web.harness import SCROLL_SECONDS, BrowserHarness, accessibility_problems

MESSAGES = 2000
MAX_PIXELS_BELOW = 12_000


async def count_items(page: Page) -> int:
    """Return the number of items that the page has."""
    return await page.locator("#chunks .item").count()


async def top_question(page: Page) -> int:
    """Return the number of the highest question in the visible part."""
    text = await page.evaluate(
        """() => [...document.querySelectorAll('#chunks .item.user')]
            .find(item => item.getBoundingClientRect().top > 60)?.textContent ?? ''"""
    )
    return int(re.search(r"Question (\d+)", text)[1])


async def pixels_below(page: Page) -> int:
    """Return how much of the transcript the page has below its visible part."""
    pixels: int = await page.evaluate(
        "document.querySelector('#chunks').getBoundingClientRect().bottom - innerHeight"
    )
    return pixels


async def test_a_long_session_opens_at_its_end_with_few_items_in_the_page(
    harness: BrowserHarness,
) -> None:
    session = await examples.create_long_session(harness.hub, MESSAGES)
    page = await harness.window(f"/s/{session.id}")
    await expect(page.locator(".item.agent").last).to_contain_text(f"Answer {MESSAGES // 2 - 1}")
    await expect(page.locator(".item.agent").last).to_be_in_viewport()
    assert await count_items(page) < 700
    height = await page.evaluate("document.querySelector('#main').scrollHeight")
    assert height > 40_000  # the scroll bar shows the full length


async def test_the_end_of_a_session_is_visible_before_the_scripts_load(
    harness: BrowserHarness,
) -> None:
    session = await examples.create_long_session(harness.hub, MESSAGES)
    secret = await harness.hub.shares.share(LOCAL, session.id)
    link = f"/shared/local/{session.id}/{secret}"
    page = await harness.window()
    harness.expect_problem("Failed to load resource")

    async def without_modules(route: Route) -> None:
        await (route.fallback() if "early.js" in route.request.url else route.abort())

    await page.route("**/*.js", without_modules)
    await page.goto(f"{harness.url}/s/{session.id}")
    await expect(page.locator(".item.agent").last).to_be_in_viewport()
    await expect(page.locator(".item").first).not_to_be_in_viewport()  # the screen is full
    assert await count_items(page) < 60
    await page.goto(harness.url + link)
    await expect(page.locator(".item").first).to_be_in_viewport()  # readers begin at the beginning


async def test_scrolling_up_loads_every_message_without_jumps(harness: BrowserHarness) -> None:
    session = await examples.create_long_session(harness.hub, 400)
    page = await harness.window(f"/s/{session.id}")
    await expect(page.locator(".item.agent").last).to_be_in_viewport()
    seen: set[int] = set()
    previous_question = 10**9
    async with asyncio.timeout(SCROLL_SECONDS):
        while True:
            questions = await page.locator(".item.user .prose").all_text_contents()
            seen |= {
                int(number) for text in questions for number in re.findall(r"Question (\d+)", text)
            }
            question = await top_question(page)
            assert question <= previous_question  # loading and removing chunks does not scroll
            previous_question = question
            assert await pixels_below(page) < MAX_PIXELS_BELOW
            if 0 in seen:
                break
            await page.evaluate("document.querySelector('#main').scrollBy(0, -900)")
            await page.wait_for_timeout(30)
    assert seen == set(range(200))
    assert await count_items(page) < 700


@pytest.mark.full
async def test_keys_links_and_the_outline_jump_to_any_turn(harness: BrowserHarness) -> None:
    session = await examples.create_long_session(harness.hub, MESSAGES)
    page = await harness.window(f"/s/{session.id}")
    await expect(page.locator(".item.agent").last).to_be_in_viewport()
    await page.keyboard.press("g")
    await expect(page.locator(".item.user", has_text="Question 0").first).to_be_in_viewport()
    await page.get_by_role("button", name="Find in this session").click()
    await page.locator("#jump .more").click()
    await page.locator("#jump a", has_text="Question 300").first.click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(page.locator(".item.user", has_text="Question 300").first).to_be_in_viewport()
    await page.keyboard.press("]")
    await page.wait_for_timeout(100)
    await page.keyboard.press("]")
    await expect(page.locator(".item.user", has_text="Question 302").first).to_be_in_viewport()
    await page.keyboard.press("G")
    await expect(page.locator(".item.agent").last).to_contain_text(f"Answer {MESSAGES // 2 - 1}")
    await expect(page.locator(".item.agent").last).to_be_in_viewport()
    # A link to a message in the middle, and dragging the scroll bar somewhere else.
    events = await harness.hub.history.events(
        LOCAL, session.id, after=1500, types=("user_message",), limit=1
    )
    await page.goto(f"{harness.url}/s/{session.id}?at={events[0].seq}#e{events[0].seq}")
    await expect(page.locator(f"#e{events[0].seq}")).to_be_in_viewport()
    await page.evaluate(
        "main = document.querySelector('#main'); main.scrollTop = main.scrollHeight / 4"
    )
    await expect(page.locator(".item.user").first).to_contain_text(re.compile("Question [1-4]"))
    number = await top_question(page)
    assert 150 < number < 400


@pytest.mark.parametrize("messages", [400, MESSAGES])
async def test_search_in_a_session_finds_all_its_messages(
    harness: BrowserHarness, messages: int
) -> None:
    session = await examples.create_long_session(harness.hub, messages)
    page = await harness.window(f"/s/{session.id}")
    await expect(page.locator(".item.agent").last).to_be_in_viewport()
    await page.keyboard.press("s")
    field = page.get_by_role("searchbox", name="Find in this session")
    await expect(field).to_be_focused()
    await field.press_sequentially("question 17")
    results = page.locator("#jump [data-jump]")
    await expect(results).to_have_count(11)  # 17, and 170 to 179
    await expect(results.last.locator("mark")).to_have_text(["Question", "17"])
    await page.keyboard.press("ArrowDown")
    await expect(results.first).to_be_focused()
    assert await accessibility_problems(page) == []
    await results.last.click()
    item = page.locator(".item.user", has_text=re.compile(r"Question 17\s*$")).last
    await expect(item).to_be_in_viewport()
    assert await page.evaluate("CSS.highlights.get('match').size") >= 1
    await page.keyboard.press("s")
    await field.fill("unheard of")
    await expect(page.locator("#jump")).to_contain_text("No message of this session")
    await field.fill("question 15")
    await expect(results.first).to_contain_text("Question 159")
    await field.press("Enter")
    await expect(page.locator(".item.user", has_text="Question 159")).to_be_in_viewport()


async def test_the_prompt_of_a_long_turn_of_folded_tool_calls_can_be_reached(
    harness: BrowserHarness,
) -> None:
    session = await harness.session("One long turn")
    drafts: list[Body] = [UserMessage(content=examples.text("Count all the birds"))]
    for number in range(150):
        call = f"call-{number}"
        drafts += [
            ToolCall(call_id=call, name="Read", kind="read", input={"path": "a.py"}),
            ToolResult(call_id=call, content=examples.text("x = 1")),
            ModelCalled(model="test-model", usage=Usage(input_tokens=10)),
        ]
    drafts.append(AgentMessage(content=examples.text("There are 150 birds")))
    await harness.hub.editor.append(LOCAL, session.id, *drafts)
    page = await harness.window()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    await page.goto(f"{harness.url}/s/{session.id}")
    prompt = page.locator(".item.user", has_text="Count all the birds")
    await expect(prompt).to_be_in_viewport()  # the folded steps take one line
    await expect(page.locator("#above")).to_be_hidden()
    seq = await prompt.get_attribute("data-seq")
    await page.goto(f"{harness.url}/s/{session.id}?at={seq}")
    await expect(prompt).to_be_in_viewport()
    await expect(page.locator(".item.agent")).to_be_in_viewport()
    await page.evaluate("document.querySelector('#main').scrollTop = 0")
    await page.wait_for_load_state("networkidle")
    chunk_requests = [url for url in requests if "/chunks?" in url]
    assert len(chunk_requests) < 30
    steps = page.locator(".fold > summary:visible")
    await expect(steps).to_have_count(1)
    await expect(steps).to_contain_text("150 steps")
    await steps.click()
    await expect(page.locator(".item.tool:visible")).to_have_count(150)


async def test_a_live_turn_does_not_move_a_page_that_is_scrolled_up(
    harness: BrowserHarness,
) -> None:
    session = await examples.create_long_session(harness.hub, 500)
    page = await harness.window(f"/s/{session.id}")
    await expect(page.locator(".item.agent").last).to_be_in_viewport()
    await page.keyboard.press("g")
    await expect(page.locator(".item.user", has_text="Question 0").first).to_be_in_viewport()
    before = await top_question(page)
    await harness.hub.turns.run(LOCAL, session.id, "/say news from the end")
    await expect(page.get_by_role("button", name="Latest")).to_be_visible()
    assert await top_question(page) == before
    await page.get_by_role("button", name="Latest").click()
    await expect(page.locator(".item.agent").last).to_contain_text("news from the end")
    await expect(page.locator(".item.agent").last).to_be_in_viewport()


@pytest.mark.full
async def test_a_long_session_can_be_paged_without_a_script(harness: BrowserHarness) -> None:
    session = await examples.create_long_session(harness.hub, 500)
    page = await harness.window(f"/s/{session.id}", java_script_enabled=False)
    await expect(page.locator(".item.agent").last).to_contain_text("Answer 249")
    for _ in range(3):
        await page.get_by_role("link", name="Earlier").click()
    await expect(page.locator(".item.user").first).not_to_contain_text("Question 2")
    await page.get_by_role("link", name="Later").click()
    await expect(page.locator(".item.user").first).to_be_visible()


@pytest.mark.full
async def test_search_in_a_session_finds_the_events_of_its_agents(
    harness: BrowserHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude_home = Claude(tmp_path / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(claude_home.root))
    write_session_with_subagent(claude_home)
    await harness.restart_with_sources(
        ClaudeSource(tmp_path / "claude.index", ClaudeHome(str(claude_home.root)))
    )
    page = await harness.window(f"/s/{S}")
    await page.locator("details.tool > summary").click()
    thread = page.locator("details.aside")
    await thread.locator("summary").click()
    await expect(thread).to_contain_text("A kingfisher, too")  # loaded when it was unfolded
    await page.keyboard.press("s")
    field = page.get_by_role("searchbox", name="Find in this session")
    await field.fill("kingfisher")
    item = page.locator("#jump .agent-matches a")
    await expect(item.locator("mark")).to_have_text("kingfisher")
    assert await accessibility_problems(page) == []
    await field.press("ArrowDown")
    await expect(item).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("count birds")
    await expect(page.locator(".item.agent", has_text="A kingfisher, too")).to_be_in_viewport()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert await accessibility_problems(page) == []
    await page.get_by_role("link", name="The session that started this agent").click()
    await expect(page.locator("details.tool[open] details.aside")).to_be_visible()


@pytest.mark.full
async def test_readers_of_a_share_link_can_search_the_session(
    harness: BrowserHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude_home = Claude(tmp_path / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(claude_home.root))
    write_session_with_subagent(claude_home)
    await harness.restart_with_sources(
        ClaudeSource(tmp_path / "claude.index", ClaudeHome(str(claude_home.root)))
    )
    long_session = await examples.create_long_session(harness.hub, MESSAGES)
    page = await harness.anonymous_page()
    secret = await harness.hub.shares.share(LOCAL, long_session.id)
    await page.goto(f"{harness.url}/shared/local/{long_session.id}/{secret}")
    await page.get_by_role("button", name="Find in this session").click()
    field = page.get_by_role("searchbox", name="Find in this session")
    await field.fill("question 77")
    results = page.locator("#jump [data-jump]")
    await expect(results).to_have_count(11)
    assert await accessibility_problems(page) == []
    await results.last.click()
    item = page.locator(".item.user", has_text=re.compile(r"Question 77\s*$")).last
    await expect(item).to_be_in_viewport()
    assert "/shared/" in page.url
    assert await page.evaluate("CSS.highlights.get('match').size") >= 1
    secret = await harness.hub.shares.share(LOCAL, S)
    await page.goto(f"{harness.url}/shared/local/{S}/{secret}")
    await page.keyboard.press("s")
    await field.fill("kingfisher")
    await page.locator("#jump .agent-matches a").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("count birds")
    await expect(page.locator(".item.agent", has_text="A kingfisher, too")).to_be_in_viewport()
    await expect(page.locator("form")).to_have_count(0)
    assert await accessibility_problems(page) == []
    await page.get_by_role("link", name="The session that started this agent").click()
    await page.locator("details.tool[open] details.aside summary").click()
    await expect(page.locator("details.aside")).to_contain_text("A kingfisher, too")
    await harness.hub.shares.revoke(LOCAL, S)
    harness.expect_problem("404")
    answer = await page.goto(f"{harness.url}/shared/local/{S}/{secret}/agent/a1b2c3")
    assert answer is not None and answer.status == 404


async def test_an_open_page_of_a_growing_session_keeps_a_limited_number_of_items(
    harness: BrowserHarness,
) -> None:
    session = await harness.session("Growing", "/say it begins")
    page = await harness.window(f"/s/{session.id}")
    await expect(page.locator(".item.agent")).to_have_count(1)
    limit = 33 * CHUNK_EVENTS
    messages = [
        AgentMessage(content=examples.text(f"Line {number}.")) for number in range(limit + 30)
    ]
    for start in range(0, len(messages), 100):
        await harness.hub.editor.append(LOCAL, session.id, *messages[start : start + 100])
    last_message = page.locator(".item.agent", has_text=f"Line {limit + 29}.")
    await expect(last_message).to_be_in_viewport()
    assert await count_items(page) <= limit
    await page.locator("#main").press("g")
    await expect(page.locator(".item.agent", has_text="it begins")).to_be_in_viewport()
    await page.locator("#main").press("G")
    await expect(last_message).to_be_in_viewport()
