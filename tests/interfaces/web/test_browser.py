"""The session list, search, filters, keyboard and dashboard in a real browser."""

import asyncio
import re
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from playwright.async_api import Page, Route, expect

from segue.interfaces.web.pages import actions
from segue.model import clock
from segue.model.principal import LOCAL
from tests.interfaces.web import examples
from tests.interfaces.web.harness import SCROLL_SECONDS, BrowserHarness, accessibility_problems


async def list_titles(page: Page) -> list[str]:
    """Return the titles in the session list."""
    return [title.strip() for title in await page.locator(".row .title").all_text_contents()]


async def test_a_row_of_the_list_opens_its_session(harness: BrowserHarness) -> None:
    session = await examples.create_full_session(harness.hub)
    await harness.session("Another", "hello")
    page = await harness.window()
    assert await list_titles(page) == ["Another", session.title]
    await page.locator(".row > a", has_text="Retry the upload").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(session.title or "")
    assert page.url.endswith(f"/s/{session.id}")
    await expect(page.locator("#e12")).to_contain_text("retries three times")
    if harness.phone:
        await expect(page.locator("#sidebar")).to_be_hidden()
        await page.get_by_role("link", name="List", exact=True).click()
        await expect(page.locator("#sidebar")).to_be_visible()
    else:
        await expect(page.locator(".row > a[aria-current=page]")).to_contain_text("Retry")
        await page.go_back()
        await expect(page.get_by_role("heading", level=1)).to_have_text("All sessions")


async def test_a_transcript_shows_every_kind_of_event(harness: BrowserHarness) -> None:
    session = await examples.create_full_session(harness.hub)
    page = await harness.window(f"/s/{session.id}")
    await expect(page.locator(".failed").last).to_be_in_viewport()  # it opens at its end
    thought = page.locator("details.thought").first
    await thought.locator("summary").click()
    await expect(thought.locator(".prose")).to_contain_text("First look")
    edit = page.locator("details.tool.m-edit")
    await expect(edit.locator(".diff .added").filter(has_text="attempt in range")).to_be_visible()
    await expect(edit.locator(".facts")).to_contain_text("+8 −3")
    await expect(page.locator("details.tool.failed .inside")).to_contain_text("1 failed, 41 passed")
    await page.locator(".item.plan > summary").click()
    await expect(page.locator(".item.plan li.completed")).to_contain_text("Find the upload")
    image = page.locator(".user img")
    await image.scroll_into_view_if_needed()
    await expect(image).to_have_js_property("naturalWidth", 240)
    await expect(page.locator(".turn-end").first).to_contain_text("3 tools")
    await expect(page.locator(".turn-end").first).to_contain_text("$0.0234")
    await expect(page.locator(".compacted")).to_contain_text("61.0k → 4.0k tokens")
    await expect(page.locator("code .k-k").first).to_be_attached()  # the server highlights code
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_an_opened_transcript_has_no_accessibility_problems(
    harness: BrowserHarness, scheme: str
) -> None:
    session = await examples.create_full_session(harness.hub)
    page = await harness.window(f"/s/{session.id}", color_scheme=scheme)
    await page.locator("details").evaluate_all("all => all.forEach(details => details.open = true)")
    assert await accessibility_problems(page) == []


async def test_search_as_you_type_links_to_the_matching_message(harness: BrowserHarness) -> None:
    match = await harness.session("The needle", "/say hay\n/say the wombat is here\n/say more hay")
    await harness.session("No match", "/say hay")
    page = await harness.window()
    await page.get_by_role("searchbox").press_sequentially("wom")
    await expect(page.locator(".row")).to_have_count(1)
    await expect(page.locator(".row .snippet mark").first).to_have_text("wombat")
    await page.locator(".row > a").click()
    item = page.locator(".item", has_text="the wombat is here").last
    await expect(item).to_be_in_viewport()
    assert f"/s/{match.id}?q=wom&at=" in page.url
    assert await page.evaluate("CSS.highlights.get('match').size") >= 1
    await page.goto(f"{harness.url}/?q=unheard-of")
    await expect(page.locator("#list")).to_contain_text("No results")


async def test_filters_are_chips_that_can_be_removed(harness: BrowserHarness) -> None:
    await examples.create_many_sessions(harness.hub, 10)
    page = await harness.window()
    assert len(await list_titles(page)) == 10
    await page.locator("#filter > summary").click()
    await expect(page.locator("#facet-tag option")).to_have_count(1)
    await page.locator("#f-tag").fill("review")
    await page.get_by_role("button", name="Apply").click()
    await expect(page.locator(".row")).to_have_count(2)
    await expect(page.locator(".chip.on")).to_contain_text("tag review")
    assert "tag=review" in page.url
    await page.locator("#filter > summary").click()
    field = page.locator("#f-cwd")
    await expect(field).to_have_attribute("aria-autocomplete", "list")  # the script is attached
    await field.fill("ect-1")  # a part of the name
    await field.press("Enter")
    await expect(field).to_have_value("project-1")
    await page.get_by_role("button", name="Apply").click()
    await expect(page.locator(".row")).to_have_count(1)
    await expect(page.locator(".chip.on")).to_have_count(2)
    await page.locator(".chip.on", has_text="project-1").click()
    await expect(page.locator(".row")).to_have_count(2)
    await page.locator(".chip.on").click()
    await expect(page.locator(".row")).to_have_count(10)
    await page.get_by_role("link", name="By project").click()
    await expect(page.locator(".group h2")).to_have_count(4)
    await expect(page.locator(".group h2").first).to_have_text("project-0")


async def test_text_typed_before_the_script_of_a_field_is_loaded_shows_its_options(
    harness: BrowserHarness,
) -> None:
    await examples.create_many_sessions(harness.hub, 10)
    page = await harness.window()
    typed = asyncio.Event()

    async def hold(route: Route) -> None:
        await typed.wait()
        await route.continue_()

    await page.route("**/combobox.js*", hold)
    await page.locator("#filter > summary").click()
    await expect(page.locator("#facet-cwd option")).to_have_count(4)
    await page.locator("#f-cwd").fill("ect-1")
    typed.set()
    await expect(page.locator("#f-cwd-options [role=option]")).to_have_text(
        ["project-1/home/me/src/project-1"]
    )


async def test_scrolling_loads_more_of_the_list(harness: BrowserHarness) -> None:
    sessions = await examples.create_many_sessions(harness.hub, 400)
    page = await harness.window()
    seen_ids: set[str] = set()
    async with asyncio.timeout(SCROLL_SECONDS):
        while True:
            seen_ids |= set(
                await page.locator(".row").evaluate_all("all => all.map(r => r.dataset.id)")
            )
            headings = await page.locator(".group h2").all_text_contents()
            assert len(headings) == len(set(headings))  # a group on several pages has one heading
            if len(seen_ids) == 400:
                break
            await page.locator("#list").evaluate("list => { list.scrollTop += 2500 }")
            await page.wait_for_timeout(60)
    assert seen_ids == {session.id for session in sessions}
    assert await page.locator(".row").count() < 400  # groups far from the visible part have no rows
    await page.locator("#list").evaluate("list => { list.scrollTop = 0 }")
    await expect(page.locator(".row").first).to_contain_text("(0)")


@pytest.mark.full
async def test_a_project_has_one_group_with_a_link_to_all_its_sessions(
    harness: BrowserHarness,
) -> None:
    await examples.create_many_sessions(harness.hub, 1100)
    page = await harness.window("/?group=project")
    headings = page.locator(".group h2")
    await expect(headings).to_have_count(4)
    await page.locator("#list").evaluate("list => { list.scrollTop = list.scrollHeight }")
    await expect(page.locator("#list .more")).to_have_count(0)
    await expect(headings).to_have_count(4)
    await page.get_by_role("link", name="All sessions of project-2").click()
    await expect(page.locator(".chip.on")).to_contain_text("project-2")
    await expect(page.locator(".row .where").first).to_have_text("project-2")
    assert len(set(await page.locator(".row .where").all_text_contents())) == 1


async def test_keyboard_shortcuts_navigate_the_page(harness: BrowserHarness) -> None:
    await examples.create_many_sessions(harness.hub, 5)
    page = await harness.window()
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await expect(page.locator(".row > a").nth(1)).to_be_focused()
    await page.keyboard.press("k")
    await expect(page.locator(".row > a").nth(0)).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Look at the parser (0)")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await page.keyboard.press("r")
    await expect(page.locator("#text")).to_be_focused()
    await page.keyboard.type("j/?")  # typed into the field, not shortcuts
    await expect(page.locator("#text")).to_have_value("j/?")
    await page.keyboard.press("Escape")
    await page.keyboard.press("/")
    await expect(page.get_by_role("searchbox")).to_be_focused()
    await page.keyboard.type("schema")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("schema"))
    await expect(page.locator(".row")).to_have_count(1)


async def test_enter_opens_the_first_search_result(harness: BrowserHarness) -> None:
    match = await harness.session("The needle", "/say the wombat is here")
    await harness.session("Newer", "/say hay")
    page = await harness.window()
    box = page.get_by_role("searchbox")
    await box.fill("unheard-of")
    await box.press("Enter")
    await expect(page.locator("#list")).to_contain_text("No results")
    assert "/s/" not in page.url
    await box.fill("wombat")
    await box.press("Enter")  # before the delayed search starts
    await expect(page.get_by_role("heading", level=1)).to_have_text("The needle")
    await expect(page.locator(".item", has_text="the wombat is here").last).to_be_in_viewport()
    assert f"/s/{match.id}?q=wombat&at=" in page.url
    await page.goto(f"{harness.url}/?q=wombat")
    await box.press("Enter")  # the results are on the page already
    await expect(page.get_by_role("heading", level=1)).to_have_text("The needle")


@pytest.mark.full
async def test_the_chosen_theme_is_kept_after_a_reload(harness: BrowserHarness) -> None:
    page = await harness.window(color_scheme="light")
    colour = "getComputedStyle(document.body).backgroundColor"
    light = await page.evaluate(colour)
    await page.get_by_role("button", name="Switch between light and dark").click()
    dark = await page.evaluate(colour)
    assert light != dark
    await page.reload()
    assert await page.evaluate(colour) == dark


async def test_a_page_works_without_a_script(
    harness: BrowserHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await examples.create_full_session(harness.hub)
    await examples.create_many_sessions(harness.hub, 60)
    page = await harness.window(java_script_enabled=False)
    await expect(page.locator(".row")).to_have_count(40)
    await page.get_by_role("link", name="More sessions").click()
    await expect(page.locator(".row")).to_have_count(21)
    await page.goto(f"{harness.url}/s/{session.id}")
    await expect(page.locator("#e12")).to_contain_text("retries three times")
    await page.locator("#text").fill("/say by a form")
    await page.get_by_role("button", name="Send").click()
    await page.wait_for_url(f"**/s/{session.id}#writing")
    await expect(page.locator(".item.agent").last).to_contain_text("by a form")
    await expect(page.locator(".item.agent").last).to_be_in_viewport()
    working_notice = page.locator(".notice", has_text="The agent is working")
    await expect(working_notice).to_have_count(0)
    await page.locator("#text").fill("/ask May I?\n/say thanks")
    await page.get_by_role("button", name="Send").click()
    await page.get_by_role("button", name="Allow", exact=True).click()
    await expect(page.locator(".dock")).to_have_count(0)  # it is not asked again
    await expect(page.locator(".item.agent").last).to_contain_text("thanks")
    await page.locator("#text").fill("/wait 60")
    monkeypatch.setattr(actions, "ANSWER_WAIT_SECONDS", 0.3)
    await page.get_by_role("button", name="Send").click()
    monkeypatch.undo()
    await page.get_by_role("button", name="Stop").click()
    await expect(page.locator("#head .status")).to_have_text("idle")
    monkeypatch.setattr(actions, "ANSWER_WAIT_SECONDS", 0.3)
    await page.locator("#text").fill("/wait 1\n/say in the end")
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator(".item.user").last).to_contain_text("in the end")
    await expect(working_notice).to_be_visible()
    turn = (await harness.hub.sessions.get(LOCAL, session.id)).turn
    if turn:
        await harness.hub.turns.wait(LOCAL, session.id, turn)
    await working_notice.get_by_role("link", name="Reload this page").click()
    await expect(page.locator(".item.agent").last).to_contain_text("in the end")
    await expect(working_notice).to_have_count(0)
    await page.goto(harness.url)
    for name in ("Help", "Switch between light and dark"):  # they need a script
        await expect(page.get_by_role("button", name=name)).to_have_count(0)
    harness.expect_problem("401")
    await page.get_by_role("button", name="Sign out").click()
    await page.goto(harness.url)
    await expect(page.get_by_label("Key")).to_be_visible()


async def test_times_are_in_the_browsers_time_zone(harness: BrowserHarness) -> None:
    session = await harness.session("Far east", "/say hi")
    [event] = await harness.hub.history.events(LOCAL, session.id, types=("agent_message",))
    local_time = datetime.fromtimestamp(event.at / clock.SECOND, ZoneInfo("Asia/Tokyo"))
    page = await harness.window(f"/s/{session.id}", timezone_id="Asia/Tokyo")
    times = page.locator(".item.agent .at time")
    await expect(times).to_have_text(f"{local_time:%H:%M}")
    await harness.hub.turns.run(LOCAL, session.id, "/say again")
    await expect(times).to_have_count(2)
    assert "UTC" not in str(await times.last.get_attribute("title"))
    scriptless_page = await harness.window(f"/s/{session.id}", java_script_enabled=False)
    title = await scriptless_page.locator(".item.agent .at time").last.get_attribute("title")
    assert str(title).endswith("UTC")


@pytest.mark.full
async def test_days_are_in_the_browsers_time_zone(
    harness: BrowserHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    noon = clock.now() // clock.DAY * clock.DAY + clock.DAY // 2  # in UTC
    monkeypatch.setattr(clock, "now", lambda: noon)
    await harness.session("Before noon", "/say hi")
    monkeypatch.setattr(clock, "now", lambda: noon + 6 * 3600 * clock.SECOND)
    page = await harness.window(timezone_id="Asia/Tokyo")  # nine hours ahead, so tomorrow
    headings = page.locator(".group h2")
    await expect(headings).to_have_text(["Yesterday"])
    await harness.session("After midnight", "/say hi")
    await expect(headings).to_have_text(["Today", "Yesterday"])
    requested_urls: list[str] = []
    page.on("request", lambda request: requested_urls.append(request.url))
    await page.goto(harness.url)
    await expect(headings).to_have_text(["Today", "Yesterday"])
    await page.keyboard.press("j")
    await expect(page.locator(".row > a").first).to_be_focused()
    assert not [
        url for url in requested_urls if "/rows" in url
    ]  # the cookie has the UTC offset now
    utc_page = await harness.window(timezone_id="UTC")
    await expect(utc_page.locator(".group h2")).to_have_text(["Today"])
    scriptless_page = await harness.window(java_script_enabled=False, timezone_id="Asia/Tokyo")
    await expect(scriptless_page.locator(".group h2")).to_have_text(["Today"])


async def test_the_dashboard_leads_from_costs_to_sessions(harness: BrowserHarness) -> None:
    await examples.create_many_sessions(harness.hub, 40, days=20)
    session = await examples.create_full_session(harness.hub)
    page = await harness.window()
    await page.get_by_role("link", name="Dashboard").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Dashboard")
    await page.get_by_role("link", name="30 days").click()
    await expect(page.locator(".tiles dd")).to_have_text(["$0.0234", "41", "84", "54.8k"])
    assert await page.locator(".days:not(.costs) rect").count() >= 19
    await expect(page.locator(".costs rect")).to_have_count(1)
    await page.get_by_role("link", name="By model").click()
    await expect(page.locator(".bars")).to_contain_text("claude-sonnet-4-5")
    await page.get_by_role("link", name="By project").last.click()
    await page.locator(".bars").get_by_role("link", name="courier").click()
    await expect(page.locator(".spent tbody tr")).to_have_count(1)
    assert await accessibility_problems(page) == []
    await page.locator(".spent a").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(session.title or "")
