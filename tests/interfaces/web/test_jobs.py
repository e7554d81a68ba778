"""Ten jobs that people come for, each from start to end, in both themes."""

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from segue.model.content import Diff
from segue.model.event import AgentMessage, ToolCall, ToolResult, Usage, UserMessage
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.model.session import Session
from tests.interfaces.web import examples
from tests.interfaces.web.examples import text
from tests.interfaces.web.harness import BrowserHarness, accessibility_problems


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def clipboard(harness: BrowserHarness) -> list[str]:
    return ["clipboard-read", "clipboard-write"]


async def open_window(harness: BrowserHarness, path: str, scheme: str) -> Page:
    """Open a page at a phone's width or at 1440 pixels."""
    page = await harness.window(path, color_scheme=scheme)
    if not harness.phone:
        await page.set_viewport_size({"width": 1440, "height": 900})
    return page


async def check_page(page: Page) -> None:
    """Fail if a page is wider than the screen or not accessible."""
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    docks = "[...document.querySelectorAll('.dock')]"
    assert await page.evaluate(f"{docks}.every(dock => dock.scrollWidth <= dock.clientWidth)")
    assert await accessibility_problems(page) == []


async def asking_session(harness: BrowserHarness, title: str) -> Session:
    session = await harness.hub.editor.create(LOCAL, title=title)
    prompt = f"/write report.md All is well{', as it was' * 50}"  # a long line
    await harness.hub.turns.submit(LOCAL, session.id, prompt)
    async with asyncio.timeout(60):
        while not (session := await harness.hub.sessions.get(LOCAL, session.id)).open_asks:
            await asyncio.sleep(0.02)
    return session


async def test_find_a_fix_and_continue_it(harness: BrowserHarness, scheme: str) -> None:
    session = await harness.session("The fix", "/say the flaky scheduler is fixed")
    await harness.session("Other", "/say hay")
    page = await open_window(harness, "/", scheme)
    await page.locator("#palette-open").click()
    await page.keyboard.type("flakey schedular")  # two typing errors
    await expect(page.locator("#palette .found ol .hit").first).to_contain_text("flaky scheduler")
    notice = await page.locator("#palette .notice").bounding_box()
    assert notice is not None and notice["height"] < 100  # its two lines, not the free space
    await check_page(page)
    await page.locator("#palette .found ol .hit").first.click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("The fix")
    await page.locator("#text").fill("/say and continued")
    await page.locator("#text").press("Control+Enter")
    await expect(page.locator("#chunks .item.agent").last).to_contain_text("and continued")
    await page.locator("#actions > summary").click()
    resume = re.compile(rf"segue resume .*{session.id}$")
    await expect(page.locator("#a-command")).to_have_value(resume)
    await page.get_by_role("link", name="Continue in…").click()
    await page.get_by_role("link", name="Codex").click()
    continue_command = re.compile(rf"segue resume .*{session.id} --in codex$")
    await expect(page.locator("#continue-command")).to_have_value(continue_command)
    await check_page(page)


async def test_see_and_answer_what_waits(harness: BrowserHarness, scheme: str) -> None:
    page = await open_window(harness, "/activity", scheme)
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    first = await asking_session(harness, "Write the report")
    second = await asking_session(harness, "Another report")
    card = page.locator(f'.waiting-card[data-id="{first.id}"]')
    await expect(card.locator(".diff")).to_contain_text("All is well")  # all that is approved
    await expect(page).to_have_title(re.compile(r"^\(2\) "))
    icon = page.locator('link[rel="icon"]')
    await expect(icon).to_have_attribute("href", expect_icon("icon-waiting.svg"))
    await check_page(page)
    await card.get_by_role("button", name="Allow", exact=False).last.click()
    await expect(card).to_have_count(0)
    other = page.locator(f'.waiting-card[data-id="{second.id}"]')
    await other.locator(".reject > summary").click()
    await other.locator("input[name=note]").fill("not this file")
    await other.locator(".reason button").click()
    await expect(other).to_have_count(0)
    await expect(icon).to_have_attribute("href", expect_icon("icon.svg"))
    events = await harness.hub.history.events(LOCAL, second.id, types=("permission_answered",))
    assert getattr(events[-1].body, "note", None) == "not this file"
    await expect(page).to_have_title(re.compile(r"^[^(]"))


def expect_icon(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(f"/{name}") + "$")


async def test_an_answer_that_came_too_late_says_so(harness: BrowserHarness, scheme: str) -> None:
    session = await asking_session(harness, "Write the report")
    page = await open_window(harness, f"/s/{session.id}", scheme)
    await page.route("**/live?*", lambda route: route.abort())  # the page does not hear of it
    await page.reload()
    harness.expect_problem("Failed to load resource")
    [asked] = await harness.hub.history.open_requests(LOCAL, session)
    options = {option.kind: option.id for option in asked.request.options}
    await harness.hub.turns.answer(LOCAL, session.id, session.open_asks[0], options["reject_once"])
    async with asyncio.timeout(60):
        while (await harness.hub.sessions.get(LOCAL, session.id)).turn:
            await asyncio.sleep(0.02)
    await page.locator("#composer .dock .primary").click()
    await expect(page.locator("#toast")).to_contain_text("answered")


async def test_see_what_was_spent(harness: BrowserHarness, scheme: str) -> None:
    for project, cost in (("shop", 3_000_000), ("api", 1_000_000)):
        session = await harness.session(f"Work on {project}", cwd=f"/home/me/{project}")
        used = Usage(input_tokens=100, output_tokens=10, cost=cost)
        await harness.hub.editor.append(
            LOCAL,
            session.id,
            UserMessage(content=text("go")),
            AgentMessage(content=text("done"), model=f"model-{project}", usage=used),
        )
    page = await open_window(harness, "/dashboard", scheme)
    await expect(page.locator(".tiles dd").first).to_have_text("$4.00")
    await check_page(page)
    for dimension in ("By model", "By tool", "By project"):
        await page.locator(".segmented").get_by_role("link", name=dimension).click()
        await expect(page.locator('.segmented [aria-current="true"]')).to_have_text(dimension)
    async with page.expect_download() as download:
        await page.get_by_role("link", name="CSV").click()
    table = Path(await (await download.value).path()).read_text()
    assert "/home/me/shop,1,2,100,10,0,0,3.000000,0.000000" in table
    await page.locator(".bars").get_by_role("link", name="shop").click()
    await expect(page.locator(".spent tbody tr")).to_have_count(1)
    await page.locator(".spent a").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Work on shop")


async def test_share_a_conversation(harness: BrowserHarness, scheme: str) -> None:
    session = await examples.create_full_session(harness.hub)
    page = await open_window(harness, f"/s/{session.id}", scheme)
    await page.locator("#actions > summary").click()
    await page.get_by_role("link", name="Share…").click()
    await expect(page.locator(".notice")).to_contain_text("Only this computer can reach")
    await page.get_by_label("Valid for").select_option("1 day")
    await page.get_by_label("Hide it").check()
    await check_page(page)
    await page.get_by_role("button", name="Create link").click()
    link = await page.locator("#link").input_value()
    reader = await harness.anonymous_page(color_scheme=scheme)
    await reader.goto(link)
    await expect(reader.locator(".item.user").first).to_be_in_viewport()
    await expect(reader.locator("#chunks")).not_to_contain_text("1 failed, 41 passed")
    await check_page(reader)


async def test_clean_up_many_sessions(harness: BrowserHarness, scheme: str) -> None:
    await examples.create_many_sessions(harness.hub, 5)
    page = await open_window(harness, "/activity", scheme)
    rows = page.locator(".recent tbody tr")
    for number in (0, 1):
        await rows.nth(number).get_by_role("checkbox").check()
    await expect(page.locator("[data-selected]")).to_have_text("2 selected")
    await check_page(page)
    await page.locator("#bulk input[name=tag]").fill("old")
    await page.locator("#bulk").get_by_role("button", name="Tag").click()
    await expect(page.get_by_role("status").filter(has_text="Tagged")).to_be_visible()
    await page.locator(".notice").get_by_role("button", name="Undo").click()
    await page.wait_for_url("**/activity?did=retag*")  # the page before has the same list
    await expect(page.locator(".recent")).to_be_visible()
    await rows.nth(0).get_by_role("checkbox").check()
    await page.locator("#bulk").get_by_role("button", name="Delete").click()
    await expect(rows).to_have_count(4)
    await page.locator(".notice").get_by_role("button", name="Undo").click()
    await expect(rows).to_have_count(5)
    tagged = await harness.hub.sessions.list(LOCAL, Query(tag="old"))
    assert tagged.sessions == []
    await rows.nth(0).get_by_role("checkbox").check()
    await page.locator("#bulk").get_by_role("button", name="Delete").click()
    await expect(rows).to_have_count(4)
    await page.goto(f"{harness.url}/activity?state=trash")
    await page.get_by_text("Empty the trash…").click()
    await page.get_by_role("button", name="Empty the trash").click()
    await expect(page.get_by_text("The trash is empty.")).to_be_attached()


async def test_compare_two_forks(harness: BrowserHarness, scheme: str) -> None:
    session = await harness.session("Parent", "/say common ground")
    forks = []
    for words in ("went left", "went right"):
        fork = await harness.hub.editor.fork(LOCAL, session.id, in_store=True)
        await harness.hub.turns.run(LOCAL, fork.id, f"/say {words}")
        forks.append(fork)
    page = await open_window(harness, "/activity", scheme)
    boxes = page.locator(".recent tbody").get_by_role("checkbox")
    compare = page.locator("#bulk").get_by_role("button", name="Compare")
    for count in (1, 2, 3):
        await boxes.nth(count - 1).check()
        await expect(compare).to_be_visible(visible=count == 2)
    await boxes.nth(2).uncheck()
    await compare.click()
    await expect(page.locator(".side")).to_have_count(2)
    await expect(page.locator(".side-a.side")).to_contain_text("went left")
    await expect(page.locator(".side-b.side")).to_contain_text("went right")
    await expect(page.locator(".pairs")).not_to_contain_text("common ground")
    await check_page(page)
    await page.goto(f"{harness.url}/s/{forks[0].id}/info")
    await page.locator(".pane").get_by_role("link", name="Parent", exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Parent")


async def test_jump_through_a_long_session(harness: BrowserHarness, scheme: str) -> None:
    session = await examples.create_long_session(harness.hub, 5000)
    failed = ToolCall(call_id="bad", name="Bash", kind="execute", input={"command": "false"})
    await harness.hub.editor.append(
        LOCAL,
        session.id,
        UserMessage(content=text("The last question")),
        failed,
        ToolResult(call_id="bad", status="failed", content=text("no")),
        AgentMessage(content=text("It failed")),
    )
    page = await open_window(harness, f"/s/{session.id}", scheme)
    await expect(page.locator(".item.agent").last).to_contain_text("It failed")
    await page.get_by_role("heading", level=1).click()
    for key, name in (
        ("x", "error"),
        ("X", "error"),
        ("T", "tool"),
        ("[", "prompt"),
        ("k", "message"),
    ):
        before = await page.evaluate("document.querySelector('#main').scrollTop")
        await page.keyboard.press(key)
        await page.wait_for_timeout(50)
        assert name and before is not None
    if harness.phone:
        await page.locator("#inspector-toggle").click()
    links = page.locator(".outline a")
    await expect(page.locator(".outline a[aria-current]")).to_be_visible()  # it is near the view
    count = await links.count()
    await page.get_by_role("link", name="Earlier prompts").click()
    await expect(links).not_to_have_count(count)
    number = int((await links.nth(50).inner_text()).split()[-1])
    await links.nth(50).click()
    for key, shown in ("", number), ("]", number + 1):
        if key:
            await page.keyboard.press(key)
        prompt = page.locator(".item.user", has_text=re.compile(rf"Question {shown}\b"))
        await expect(prompt.first).to_be_in_viewport()
    await page.keyboard.press("g")
    await expect(page.locator(".item.user", has_text="Question 0").first).to_be_in_viewport()
    await page.keyboard.press("x")
    await expect(page.locator(".tool.failed")).to_be_in_viewport()
    assert await page.locator("#chunks .item").count() < 700


async def test_copy_code_messages_and_turns(
    harness: BrowserHarness, scheme: str, clipboard: list[str]
) -> None:
    session = await examples.create_full_session(harness.hub)
    page = await open_window(harness, f"/s/{session.id}", scheme)
    await page.context.grant_permissions(clipboard, origin=harness.url)

    async def copied() -> str:
        return str(await page.evaluate("navigator.clipboard.readText()"))

    block = page.locator(".item.agent .code").first
    await block.scroll_into_view_if_needed()
    await block.hover()
    await block.locator(".copy").click()
    assert (await copied()).startswith("for attempt in range(attempts):")
    shell = page.locator(".tool.m-shell.failed")
    await shell.locator(".code .copy").first.click()
    assert "pytest -q" in await copied() or "1 failed" in await copied()
    message = page.locator(".item.agent").first
    await message.hover()
    await message.get_by_role("button", name="Copy message").click()
    await expect(page.locator("#toast")).to_contain_text("Copied as Markdown")
    assert "**retries three times**" in await copied()
    await page.locator(".turn-end button").first.click()
    await page.wait_for_timeout(300)
    turn = await copied()
    assert "Make it retry" in turn and "pytest -q" in turn


async def test_see_the_changed_files(harness: BrowserHarness, scheme: str) -> None:
    session = await harness.session("Edits")
    edits = [("a = 1\n", "a = 2\n"), ("a = 2\n", "a = 3\n")]
    for number, (old, new) in enumerate(edits):
        call = ToolCall(
            call_id=f"c{number}",
            name="Edit",
            kind="edit",
            content=(Diff(path="src/a.py", old=old, new=new),),
        )
        result = ToolResult(call_id=f"c{number}", content=text("done"))
        await harness.hub.editor.append(LOCAL, session.id, call, result)
    page = await open_window(harness, f"/s/{session.id}", scheme)
    if harness.phone:
        await page.locator("#inspector-toggle").click()
    await page.locator("#tab-changes").click()
    file = page.locator("#pane .changes details")
    await expect(file).to_have_count(1)
    await expect(file.locator(".facts")).to_contain_text("+1 −1")
    await file.locator("summary").click()
    await expect(file.locator(".removed").last).to_contain_text("a = 1")
    await expect(file.locator(".line.added")).to_contain_text("a = 3")
    await check_page(page)
