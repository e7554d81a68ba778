"""Navigation keeps the reader's position, and an open page stays current."""

import asyncio

import pytest
from playwright.async_api import Page, Route, expect

from segue.model import clock
from segue.model.principal import LOCAL
from tests.interfaces.web import examples
from tests.interfaces.web.harness import BrowserHarness, accessibility_problems

desktop = pytest.mark.parametrize("width", ["desktop"], indirect=True)
phone = pytest.mark.parametrize("width", ["phone"], indirect=True)
HIDE = """hidden => {
    Object.defineProperty(document, 'hidden', {configurable: true, get: () => hidden});
    document.dispatchEvent(new Event('visibilitychange'));
}"""


class HeldRequests:
    """A request handler that delays requests until `continue_event` is set."""

    def __init__(self) -> None:
        self.continue_event = asyncio.Event()

    async def __call__(self, route: Route) -> None:
        await self.continue_event.wait()
        await route.continue_()


async def _send(page: Page, text: str) -> None:
    await page.locator("#text").fill(text)
    await page.keyboard.press("Control+Enter")


@desktop
async def test_a_late_response_does_not_replace_the_session_opened_since(
    harness: BrowserHarness,
) -> None:
    slow = await harness.session("Slow")
    quick = await harness.session("Quick")
    page = await harness.window()
    held_requests = HeldRequests()
    await page.route(f"**/s/{slow.id}", held_requests)
    await page.locator(".row", has_text="Slow").click()
    await page.locator(".row", has_text="Quick").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Quick")
    async with page.expect_response(f"**/s/{slow.id}"):
        held_requests.continue_event.set()
    await page.wait_for_timeout(100)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Quick")
    assert page.url.endswith(quick.id)


@desktop
async def test_answering_and_stopping_by_keyboard_keeps_the_focus(harness: BrowserHarness) -> None:
    session = await harness.session("Ask me")
    page = await harness.window(f"/s/{session.id}")
    await page.locator("#text").fill("/ask May I?\n/slow 1\n/say" + " one two three four" * 20)
    await page.keyboard.press("Control+Enter")
    await expect(page.locator(".permission.open")).to_be_visible()
    await page.keyboard.press("r")
    await expect(page.locator(".dock summary")).to_be_focused()
    await page.keyboard.press("3")
    await expect(page.locator(".permission.done")).to_contain_text("Allowed")
    await expect(page.locator("#text")).to_be_focused()
    await expect(page.locator("#writing .who")).to_have_text("Agent")
    assert await accessibility_problems(page) == []  # while it runs
    stop = page.get_by_role("button", name="Stop")
    await stop.evaluate("button => { button.dataset.same = ''; }")
    await harness.hub.editor.set_tag(LOCAL, session.id, "changed")
    await expect(page.locator("#head .tag")).to_have_text("changed")
    await expect(page.locator(".stop [data-same]")).to_have_count(
        1
    )  # the same button, which can still be pressed
    await stop.press("Enter")
    await expect(stop).to_have_count(0)
    await expect(page.locator("#text")).to_be_focused()
    await page.keyboard.press("Escape")
    await page.keyboard.press("e")
    await expect(page.locator("#notices")).to_contain_text("Archived")
    await page.keyboard.press("u")
    await expect(page.locator("#notices")).to_be_empty()


@pytest.mark.full
@phone
async def test_a_linked_message_is_shown_below_the_page_head(harness: BrowserHarness) -> None:
    session = await examples.create_long_session(
        harness.hub, 60, title="A title that takes two lines on a phone"
    )
    await harness.hub.editor.archive(LOCAL, session.id)
    page = await harness.window(f"/s/{session.id}?at=20%23e20")
    head = page.locator("#top")
    item = page.locator("#e20")

    async def is_below_head() -> bool:
        head_box, item_box = await head.bounding_box(), await item.bounding_box()
        return bool(
            head_box and item_box and 0 <= item_box["y"] - head_box["y"] - head_box["height"] < 60
        )

    await expect(item).to_be_in_viewport()
    assert await is_below_head()
    await page.keyboard.press("]")
    await page.keyboard.press("[")
    await page.wait_for_function(
        """() => {
            const edge = document.querySelector('#top').getBoundingClientRect().bottom;
            const tops = [...document.querySelectorAll('.item.user')].map(
                item => item.getBoundingClientRect().top - edge);
            return tops.find(top => top >= 0) < 60;
        }"""
    )


@pytest.mark.full
@desktop
async def test_the_url_keeps_the_lists_filters_during_navigation(harness: BrowserHarness) -> None:
    await examples.create_many_sessions(harness.hub, 8)
    page = await harness.window()
    await page.locator(".row > a").first.click()
    await page.get_by_role("link", name="By project").click()
    await page.wait_for_url("**/s/*?group=project")
    await page.go_back()
    await page.wait_for_url("**/?group=project")
    await page.locator(".row > a").nth(1).click()
    await page.locator(".item.user .at").click()
    await page.wait_for_url("**/s/*?group=project&at=2#e2")
    await page.keyboard.press("/")
    await page.keyboard.type("nightly")
    await page.wait_for_url("**/s/*?group=project&q=nightly&at=2#e2")
    await expect(
        page.get_by_role("link", name="By project")
    ).to_be_hidden()  # search results are not grouped
    await expect(page.locator(".row")).to_have_count(1)
    await page.keyboard.press("ArrowDown")
    await expect(page.locator(".row > a")).to_be_focused()
    await page.get_by_role("link", name="segue", exact=True).click()
    await expect(page.locator(".row")).to_have_count(8)
    await expect(page.get_by_role("searchbox")).to_have_value("")
    await page.wait_for_url(f"{harness.url}/")
    await expect(page.locator(".chip[aria-current]")).to_have_text("All")


async def open_page_at(harness: BrowserHarness, time: int) -> Page:
    """Open a page in a browser whose clock starts at this time."""
    page = await harness.anonymous_page(own_context=True, timezone_id="UTC")
    await _open_at(harness, page, time)
    return page


async def _open_at(harness: BrowserHarness, page: Page, time: int) -> None:
    await page.clock.install(time=time / clock.SECOND)
    await page.goto(
        f"{harness.url}/login?token={await harness.hub.logins.create_link(LOCAL)}&next=/"
    )


@pytest.mark.full
@desktop
async def test_open_page_updates_its_times_and_days(
    harness: BrowserHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    noon = clock.now() // clock.DAY * clock.DAY + clock.DAY // 2
    monkeypatch.setattr(clock, "now", lambda: noon)
    await harness.session("Left open", "/say hi")
    page = await open_page_at(harness, noon)
    await expect(page.locator(".row time")).to_have_text("now")
    await page.clock.fast_forward("05:10")
    await expect(page.locator(".row time")).to_have_text("5m")
    monkeypatch.setattr(clock, "now", lambda: noon + clock.DAY)
    await page.clock.fast_forward("24:00:00")
    await expect(page.locator(".group h2")).to_have_text(["Yesterday"])
    await expect(page.locator(".row time")).to_have_text("1d")


@pytest.mark.full
@desktop
async def test_search_results_are_not_replaced_when_the_day_changes(
    harness: BrowserHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    noon = clock.now() // clock.DAY * clock.DAY + clock.DAY // 2
    monkeypatch.setattr(clock, "now", lambda: noon)
    await harness.session("Red", "/say kingfisher")
    await harness.session("Blue", "/say heron")
    page = await open_page_at(harness, noon)
    held_requests = HeldRequests()
    await page.route("**/rows?q=*", held_requests)
    async with page.expect_request("**/rows?q=*"):
        await page.locator("#search input").fill("kingfisher")
        await page.clock.run_for(200)
    async with page.expect_response("**/rows"):
        await page.clock.fast_forward("24:00:00")
    held_requests.continue_event.set()
    await expect(page.locator(".row .title")).to_have_text(["Red"])


@pytest.mark.full
@desktop
async def test_an_open_page_follows_a_change_of_the_time_zone(
    harness: BrowserHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    nine_oclock = clock.now() // clock.DAY * clock.DAY + 9 * 60 * 60 * clock.SECOND
    monkeypatch.setattr(clock, "now", lambda: nine_oclock)
    session = await harness.session("Left open", "/say hi")
    page = await harness.anonymous_page(own_context=True)
    devtools = await page.context.new_cdp_session(page)
    await devtools.send("Emulation.setTimezoneOverride", {"timezoneId": "UTC"})
    eleven_oclock = nine_oclock + 2 * 60 * 60 * clock.SECOND
    monkeypatch.setattr(clock, "now", lambda: eleven_oclock)
    await _open_at(harness, page, eleven_oclock)
    await expect(page.locator(".group h2")).to_have_text(["Today"])
    await devtools.send("Emulation.setTimezoneOverride", {"timezoneId": "Pacific/Kiritimati"})
    async with page.expect_request("**/live?*"):
        await page.clock.fast_forward("00:31")
    await expect(page.locator(".group h2")).to_have_text(["Yesterday"])
    await harness.hub.editor.set_title(LOCAL, session.id, "Renamed")
    await expect(page.locator(".row .title")).to_have_text("Renamed")
    await expect(page.locator(".group h2")).to_have_text(["Yesterday"])


@pytest.mark.full
@desktop
async def test_a_session_that_moved_while_the_page_was_hidden_has_one_row(
    harness: BrowserHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    noon = clock.now() // clock.DAY * clock.DAY + clock.DAY // 2
    monkeypatch.setattr(clock, "now", lambda: noon - clock.DAY)
    old = await harness.session("Old", "/say hi")
    monkeypatch.setattr(clock, "now", lambda: noon)
    await harness.session("New", "/say hi")
    page = await open_page_at(harness, noon)
    await expect(page.locator(".group h2")).to_have_text(["Today", "Yesterday"])
    await page.evaluate(HIDE, True)
    await harness.hub.turns.run(LOCAL, old.id, "/say again")
    held_requests = HeldRequests()
    await page.route("**/live?*", held_requests)
    async with page.expect_response("**/rows*"):
        await page.evaluate(HIDE, False)
    await expect(page.locator(".row")).to_have_count(2)
    held_requests.continue_event.set()
    await expect(page.locator(".group h2")).to_have_text(["Today"])


@desktop
@pytest.mark.parametrize("change", ["archive", "trash"])
async def test_session_that_leaves_the_list_before_the_stream_connects_is_removed(
    harness: BrowserHarness, change: str
) -> None:
    sessions = await examples.create_many_sessions(harness.hub, 2)
    page = await harness.anonymous_page()
    held_requests = HeldRequests()
    await page.route("**/live?*", held_requests)
    token = await harness.hub.logins.create_link(LOCAL)
    await page.goto(f"{harness.url}/login?token={token}&next=/")
    await expect(page.locator(".row")).to_have_count(2)
    await getattr(harness.hub.editor, change)(LOCAL, sessions[1].id)
    held_requests.continue_event.set()
    await expect(page.locator(".row .title")).to_have_text([sessions[0].title or ""])


@phone
async def test_a_message_sent_during_a_turn_is_shown_as_queued(harness: BrowserHarness) -> None:
    session = await harness.session("Busy")
    page = await harness.window(f"/s/{session.id}")
    text = page.locator("#text")
    await text.fill("/think so\n/wait 8\n/say first")
    await page.keyboard.press("Control+Enter")
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    await text.fill("/say second " + "x" * 100)
    box = await page.get_by_role("button", name="Send").bounding_box()
    assert box and box["x"] + box["width"] <= 390  # a long word does not widen the page
    await page.keyboard.press("Control+Enter")
    waiting = page.locator("#writing .waiting")
    await expect(waiting).to_contain_text("/say second")
    await expect(page.locator("#announcement")).to_have_text("Queued until this turn ends")
    await harness.hub.editor.set_tag(LOCAL, session.id, "changed")
    await expect(page.locator("#head .tag")).to_have_text("changed")
    await expect(waiting).to_have_count(1)
    scriptless_page = await harness.window(f"/s/{session.id}", java_script_enabled=False)
    await expect(scriptless_page.locator("#writing .waiting")).to_have_text(
        "A message is queued until this turn ends"
    )
    await expect(page.locator("#chunks .item.user")).to_have_count(2)
    await expect(page.locator(".item.agent").last).to_contain_text("second")
    await expect(waiting).to_have_count(0)
    await text.fill("/wait 60")
    await page.keyboard.press("Control+Enter")
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    await text.fill("/say third")
    await page.keyboard.press("Control+Enter")
    await expect(waiting).to_contain_text("third")
    assert await accessibility_problems(page) == []
    await page.get_by_role("button", name="Stop").click()
    await expect(page.locator("#head .status")).to_have_text("idle")
    await expect(waiting).to_have_count(0)
    await expect(text).to_have_value("/say third")  # so that it can be sent again


@pytest.mark.full
@desktop
async def test_each_queued_message_is_shown_until_its_turn_starts(
    harness: BrowserHarness,
) -> None:
    session = await harness.session("Busy")
    page = await harness.window(f"/s/{session.id}")
    await _send(page, "/wait 8\n/ask One?")
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    waiting = "#writing .waiting"
    for count, text in enumerate(["/ask Two?", "/say three"], 1):
        await _send(page, text)
        await expect(page.locator(waiting)).to_have_count(count)
    second_page = await harness.window(f"/s/{session.id}")
    await expect(second_page.locator(waiting)).to_have_count(2)
    await page.get_by_role("button", name="Allow", exact=True).click()
    for open_page in (page, second_page):
        await expect(open_page.locator(".permission.open")).to_contain_text("Two?")
        await expect(open_page.locator(waiting)).to_have_count(1)
    await page.get_by_role("button", name="Stop").click()
    await expect(page.locator("#text")).to_have_value("/say three")
    await expect(second_page.locator(waiting)).to_have_count(0)


@pytest.mark.full
@desktop
async def test_a_cancelled_queued_message_returns_to_the_draft_of_its_session(
    harness: BrowserHarness,
) -> None:
    await harness.session("Other")
    session = await harness.session("Busy")
    page = await harness.window(f"/s/{session.id}")
    await _send(page, "/wait 60")
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    await _send(page, "/say two")
    await expect(page.locator("#writing .waiting")).to_have_count(1)
    await page.locator("#text").fill("three")
    held_requests = HeldRequests()
    await page.route(f"**/s/{session.id}/cancel", held_requests)
    await page.get_by_role("button", name="Stop").click()
    await page.locator(".row", has_text="Other").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Other")
    async with page.expect_response(f"**/s/{session.id}/cancel"):
        held_requests.continue_event.set()
    await page.wait_for_function("id => localStorage[`draft ${id}`] !== 'three'", arg=session.id)
    await expect(page.locator("#text")).to_have_value("")
    await page.locator(".row", has_text="Busy").click()
    await expect(page.locator("#text")).to_have_value("/say two\n\nthree")


@pytest.mark.full
@phone
async def test_words_in_a_wide_table_are_not_broken(harness: BrowserHarness) -> None:
    row = "| lorem ipsum | dolor sit amet | consectetur | adipiscing | eiusmod |"
    session = await harness.session("Table", f"{row}\n|---|---|---|---|---|\n{row}")
    page = await harness.window(f"/s/{session.id}")
    cell = page.locator(".item.user td", has_text="consectetur")
    lines = """cell => {
        const range = new Range();
        range.selectNodeContents(cell);
        return range.getClientRects().length;
    }"""
    assert await cell.evaluate(lines) == 1
    assert await page.evaluate("document.querySelector('#main').scrollWidth <= innerWidth")


@desktop
async def test_search_results_update_after_changes_by_other_interfaces(
    harness: BrowserHarness,
) -> None:
    match = await harness.session("Before", "/say the wombat is here")
    await harness.session("Other", "/say hay")
    page = await harness.window("/?q=wombat")
    row = page.locator(".row")
    await expect(row).to_have_count(1)
    await harness.hub.editor.set_title(LOCAL, match.id, "After")
    await expect(row.locator(".title")).to_have_text("After")
    await expect(row.locator("mark")).to_have_text("wombat")
    await harness.hub.editor.trash(LOCAL, match.id)
    await expect(row).to_have_count(0)
    assert "Other" not in await page.locator("#list").inner_text()


@desktop
async def test_sessions_can_be_archived_one_after_another_by_keyboard(
    harness: BrowserHarness,
) -> None:
    await examples.create_many_sessions(harness.hub, 5)
    page = await harness.window()
    titles = page.locator(".row .title")
    third = (await titles.all_text_contents())[2]
    for key in ("j", "j", "Enter"):
        await page.keyboard.press(key)
    await expect(page.locator("#main")).to_be_focused()
    await page.keyboard.press("e")
    await expect(titles).to_have_count(4)
    await page.keyboard.press("J")
    await expect(page.locator(".row", has_text=third).locator("> a")).to_be_focused()


@desktop
async def test_a_session_is_pinned_in_its_row_and_the_pinned_ones_are_listed(
    harness: BrowserHarness,
) -> None:
    [_, pinned, _] = await examples.create_many_sessions(harness.hub, 3)
    page = await harness.window()
    row = page.locator(f'.row[data-id="{pinned.id}"]')
    await row.hover()
    await row.get_by_role("button", name="Pin", exact=True).click()
    await expect(row.locator(".badge")).to_have_text("pinned")
    await page.locator(".chips").get_by_role("link", name="Pinned").click()
    await expect(page.locator(".row")).to_have_count(1)
    await page.keyboard.press("J")
    await expect(row.locator("> a")).to_be_focused()
    await page.keyboard.press("p")
    await expect(page.locator(".row")).to_have_count(0)
