"""Open pages show changes as they happen, and keep drafts when something fails."""

import asyncio
import base64
import re
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, Route, expect

from segue.interfaces.web import live
from segue.model import clock
from segue.model.principal import LOCAL
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.source import ClaudeSource
from tests.claude.entries import Home as Claude
from tests.claude.entries import S
from tests.interfaces.web import examples
from tests.interfaces.web.harness import BrowserHarness, accessibility_problems


async def send(page: Page, text: str) -> None:
    """Send a message with the keyboard."""
    await page.locator("#text").fill(text)
    await page.keyboard.press("Control+Enter")


async def test_two_browsers_show_the_same_streamed_turn(harness: BrowserHarness) -> None:
    session = await harness.session("Talk")
    first = await harness.window(f"/s/{session.id}")
    second = await harness.window(f"/s/{session.id}")
    streamed = [
        check
        for page in (first, second)
        for check in (
            expect(page.locator("#writing strong")).to_have_text("comes"),  # not yet stored
            expect(page.locator("#head .status")).to_have_text("running"),
        )
    ]
    prompt = "/slow 0.3\n/say Here it **comes**, word by word by word by word"
    await asyncio.gather(*streamed, send(first, prompt))
    await expect(first.locator("#text")).to_have_value("")
    for page in (first, second):
        await expect(page.locator("#chunks .item.agent")).to_contain_text("word by word")
        await expect(page.locator("#writing")).to_be_empty()
        await expect(page.locator("#head .status")).to_have_text("idle")
        await expect(page.locator(".item.user")).to_have_count(1)
        await expect(page.locator(".item.agent").last).to_be_in_viewport()


async def test_a_permission_request_can_be_answered(harness: BrowserHarness) -> None:
    session = await harness.session("Ask me")
    page = await harness.window(f"/s/{session.id}")
    await send(page, "/ask May I sing?\n/say done")
    question = page.get_by_role("form", name="The agent asks")
    await expect(question).to_contain_text("May I sing?")
    await expect(page.locator("#head .status")).to_have_text("waiting for you")
    await expect(page.locator("#announcement")).to_have_text("waiting for you")
    await question.get_by_role("button", name=re.compile("^(Yes|Allow)")).first.click()
    await expect(page.locator(".item.agent").last).to_contain_text("done")
    await expect(page.get_by_role("form", name="The agent asks")).to_have_count(0)
    await expect(page.locator("#announcement")).to_have_text("The agent is done")
    await expect(page.locator(".permission.done")).to_contain_text("Allowed: May I sing?")
    await expect(page.locator("details.tool.completed")).to_have_count(
        1
    )  # the result is part of the call


async def test_a_turn_can_be_stopped(harness: BrowserHarness) -> None:
    session = await harness.session("Slow")
    page = await harness.window(f"/s/{session.id}")
    await send(page, "/slow 1\n/say one two three four five six seven eight nine ten")
    await page.get_by_role("button", name="Stop").click()
    await expect(page.locator(".mark", has_text="Interrupted")).to_be_visible()
    await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    await expect(page.locator("#head .status")).to_have_text("idle")


async def test_pictures_can_be_sent_with_a_message(harness: BrowserHarness, tmp_path: Path) -> None:
    session = await harness.session("Look")
    page = await harness.window(f"/s/{session.id}")
    picture = tmp_path / "graph.png"
    picture.write_bytes(base64.b64decode(examples.picture()))
    (tmp_path / "notes.txt").write_text("no picture")
    await page.locator("#files").set_input_files([picture, tmp_path / "notes.txt"])
    await expect(page.locator("#toast")).to_contain_text("notes.txt cannot be sent")
    await page.locator("#text").focus()
    await page.evaluate(
        """async (data) => {
            const bytes = Uint8Array.from(atob(data), character => character.charCodeAt(0));
            const files = new DataTransfer();
            files.items.add(new File([bytes], 'pasted.png', {type: 'image/png'}));
            const options = {clipboardData: files, bubbles: true, cancelable: true};
            document.querySelector('#text').dispatchEvent(new ClipboardEvent('paste', options));
        }""",
        examples.picture(30, 20),
    )
    attached = page.locator("#pictures img")
    await expect(attached).to_have_count(2)
    assert await accessibility_problems(page) == []
    harness.expect_problem("Failed to load resource")
    await harness.stop()
    await send(page, "/say a graph and a scrap")
    await expect(page.locator("#send-error")).to_contain_text("cannot be reached")
    await expect(attached).to_have_count(2)  # the pictures are kept
    await harness.start()
    await page.keyboard.press("Control+Enter")
    await expect(page.locator(".item.agent").last).to_contain_text("a graph and a scrap")
    await expect(attached).to_have_count(0)
    pictures = page.locator(".item.user img")
    await expect(pictures).to_have_count(2)
    await pictures.first.scroll_into_view_if_needed()
    await expect(pictures.first).to_have_js_property("naturalWidth", 240)
    await page.locator("#files").set_input_files([picture])
    await page.get_by_role("button", name="remove").click()
    await expect(attached).to_have_count(0)


async def test_titles_and_lists_update_after_changes_by_other_interfaces(
    harness: BrowserHarness,
) -> None:
    sessions = await examples.create_many_sessions(harness.hub, 4)
    page = await harness.window() if harness.phone else await harness.window(f"/s/{sessions[3].id}")
    last = page.locator(f'.row[data-id="{sessions[3].id}"]')
    await harness.hub.editor.set_title(LOCAL, sessions[3].id, "Renamed elsewhere")
    await expect(last.locator(".title")).to_have_text("Renamed elsewhere")
    if not harness.phone:
        await expect(page.get_by_role("heading", level=1)).to_have_text("Renamed elsewhere")
    await harness.hub.turns.run(LOCAL, sessions[3].id, "/say up")
    await expect(page.locator(".row").first).to_contain_text("Renamed elsewhere")
    await expect(page.locator(".group").first.locator("h2")).to_have_text("Today")
    session = await harness.session("Brand new")
    await expect(page.locator(".row").first).to_contain_text("Brand new")
    await harness.hub.editor.archive(LOCAL, session.id)
    await expect(page.locator(f'.row[data-id="{session.id}"]')).to_have_count(0)
    await harness.hub.editor.purge(LOCAL, sessions[2].id)
    await expect(page.locator(f'.row[data-id="{sessions[2].id}"]')).to_have_count(0)


async def test_a_lost_connection_is_shown_and_keeps_the_draft(harness: BrowserHarness) -> None:
    session = await harness.session("Far away")
    page = await harness.window(f"/s/{session.id}")
    await page.locator("#text").fill("half a thought")
    harness.expect_problem("Failed to load resource")
    await harness.stop()
    await expect(page.locator("#offline")).to_be_visible()
    await page.locator("#text").fill("/say a whole thought")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator("#send-error")).to_contain_text("cannot be reached")
    await expect(page.locator("#text")).to_have_value("/say a whole thought")
    await harness.hub.turns.run(LOCAL, session.id, "/say meanwhile")
    await harness.start()
    await expect(page.locator("#offline")).to_be_hidden()
    await expect(page.locator(".item.agent")).to_contain_text(
        "meanwhile"
    )  # sent while the page was offline
    await page.reload()
    await expect(page.locator("#text")).to_have_value("/say a whole thought")
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator(".item.agent").last).to_contain_text("a whole thought")
    await expect(page.locator(".item.user")).to_have_count(2)


async def test_an_open_page_says_that_its_session_was_deleted(harness: BrowserHarness) -> None:
    session = await harness.session("Doomed", "/say last words")
    page = await harness.window(f"/s/{session.id}")
    await expect(page.locator(".item.agent")).to_contain_text("last words")
    await harness.hub.editor.trash(LOCAL, session.id)
    await expect(page.locator("#notices")).to_contain_text("in the trash")
    await expect(page.locator("#composer")).to_contain_text("Restore")
    await harness.hub.editor.restore(LOCAL, session.id)
    await expect(page.locator("#text")).to_be_visible()
    harness.expect_problem("404")
    await harness.hub.editor.purge(LOCAL, session.id)
    await expect(page.locator("#notices")).to_contain_text("was deleted")
    await expect(page.locator(".item.agent")).to_contain_text("last words")


async def test_a_revoked_key_shows_a_link_to_sign_in_again(harness: BrowserHarness) -> None:
    session = await harness.session("Guarded", "/say hi")
    key, secret = await harness.hub.keys.create("local")
    page = await harness.anonymous_page()
    harness.expect_problem("401")
    await page.goto(f"{harness.url}/s/{session.id}")
    await page.get_by_label("Key").fill(secret)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.locator(".item.agent")).to_contain_text("hi")
    await page.locator("#text").fill("not lost")
    await harness.hub.keys.revoke("local", key.id)
    await page.keyboard.press("Control+Enter")
    banner = page.locator("#banner")
    await expect(banner).to_contain_text("signed out")
    await expect(page.locator("#text")).to_have_value("not lost")
    await expect(page.get_by_role("button", name="Send")).to_be_enabled()  # the attempt ended
    await page.keyboard.press("Escape")
    await page.keyboard.press("e")
    await expect(page.locator("#toast")).to_contain_text("no longer valid")
    await expect(banner).to_contain_text("signed out")  # the toast does not replace it
    await page.get_by_role("button", name="Sign in again").click()
    await expect(page).to_have_url(re.compile(r"/login\?next=%2Fs%2F"))
    _, secret = await harness.hub.keys.create("local")
    await page.get_by_label("Key").fill(secret)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.locator("#text")).to_have_value("not lost")


async def test_a_hidden_page_closes_its_event_stream(harness: BrowserHarness) -> None:
    session = await harness.session("Hidden")
    page = await harness.window(f"/s/{session.id}")
    await expect(page.locator("#offline")).to_be_hidden()
    hide = """hidden => {
        Object.defineProperty(document, 'hidden', {configurable: true, get: () => hidden});
        document.dispatchEvent(new Event('visibilitychange'));
    }"""
    await page.evaluate(hide, True)
    await harness.hub.turns.run(LOCAL, session.id, "/say unseen")
    await page.wait_for_timeout(200)
    assert await page.locator(".item.agent").count() == 0
    await page.evaluate(hide, False)
    await expect(page.locator(".item.agent")).to_contain_text("unseen")


async def test_open_page_continues_after_its_session_is_imported(
    harness: BrowserHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude_home = Claude(tmp_path / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(claude_home.root))
    claude_home.write_conversation(
        prompt="word " * 400
    )  # seqs of the file are larger than those of the store
    await harness.restart_with_sources(
        ClaudeSource(tmp_path / "claude.index", ClaudeHome(str(claude_home.root)))
    )
    page = await harness.window(f"/s/{S}")
    await expect(page.locator("#composer")).to_contain_text("From Claude Code.")
    before = (await harness.hub.sessions.get(LOCAL, S)).last_seq
    await harness.hub.config.set(LOCAL.workspace, "model", "demo")
    await harness.hub.turns.run(LOCAL, S, "/say first here")
    after = (await harness.hub.sessions.get(LOCAL, S)).last_seq
    assert after < before
    await expect(page.locator("#chunks .item.agent").last).to_contain_text("first here")
    await expect(page.locator("#text")).to_be_visible()
    await expect(page.locator(".item.user")).to_have_count(2)
    await page.evaluate("document.dispatchEvent(new Event('segue:list'))")  # reopens its stream
    await harness.hub.turns.run(LOCAL, S, "/say second here")
    await expect(page.locator("#chunks .item.agent").last).to_contain_text("second here")


@pytest.mark.full
async def test_disconnected_page_reloads_after_its_session_is_imported(
    harness: BrowserHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude_home = Claude(tmp_path / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(claude_home.root))
    claude_home.write_conversation(prompt="word " * 400)
    await harness.restart_with_sources(
        ClaudeSource(tmp_path / "claude.index", ClaudeHome(str(claude_home.root)))
    )
    page = await harness.window(f"/s/{S}?at=1")
    await expect(page.locator("#composer")).to_contain_text("From Claude Code.")
    harness.expect_problem("Failed to load resource")
    await harness.stop()
    await harness.hub.config.set("local", "model", "demo")
    await harness.hub.turns.run(LOCAL, S, "/say meanwhile")
    await harness.start()
    await expect(page.locator("#chunks .item.agent").last).to_contain_text("meanwhile")
    await expect(page).to_have_url(re.compile(f"/s/{S}$"))


@pytest.mark.full
async def test_open_page_says_that_its_key_expired(
    harness: BrowserHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await harness.session("Guarded", "/say hi")
    now = clock.now()
    _, secret = await harness.hub.keys.create("local", expires_at=now + 180 * clock.SECOND)
    page = await harness.anonymous_page()
    harness.expect_problem("401")
    await page.goto(f"{harness.url}/s/{session.id}")
    await page.get_by_label("Key").fill(secret)
    await page.get_by_role("button", name="Sign in").click()
    await page.locator("#text").fill("not lost")
    await expect(page.locator("#banner")).to_contain_text("Your login ends in 3 minutes")
    monkeypatch.setattr(clock, "now", lambda: now + 181 * clock.SECOND)
    # The stream checks the key before it sends the next event.
    await harness.hub.turns.run(LOCAL, session.id, "/say not for them")
    banner = page.locator("#banner")
    await expect(banner).to_contain_text("the key you signed in with has expired")
    await expect(page.locator(".item", has_text="not for them")).to_have_count(0)
    text = page.locator("#text")
    await expect(text).to_have_value("not lost")
    assert not await overlap(text, banner) and await accessibility_problems(page) == []
    await page.get_by_role("button", name="Sign in again").click()
    await page.get_by_label("Key").fill(secret)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_contain_text("This key is not valid")
    _, new_secret = await harness.hub.keys.create("local")
    await page.get_by_label("Key").fill(new_secret)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.locator("#text")).to_have_value("not lost")
    await expect(page.locator(".item.agent").last).to_contain_text("not for them")


async def test_an_event_stream_ends_when_its_key_is_revoked(
    harness: BrowserHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LOGIN_CHECK_SECONDS", 0.05)
    key, secret = await harness.hub.keys.create("local")
    page = await harness.anonymous_page()
    harness.expect_problem("401")
    await page.goto(harness.url)
    await page.get_by_label("Key").fill(secret)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.locator("#list")).to_be_visible()
    await expect(page.locator("#banner")).to_be_empty()  # the key does not expire soon
    await harness.hub.keys.revoke("local", key.id)
    await expect(page.locator("#banner")).to_contain_text("is no longer valid")


@pytest.mark.full
async def test_messages_at_the_bottom_do_not_cover_the_composer(
    harness: BrowserHarness,
) -> None:
    session = await harness.session("Talk", "/say hi")
    page = await harness.window(f"/s/{session.id}")
    text = page.locator("#text")
    await text.fill("a\nfew\nlines\nof\nthought")
    await page.locator(".item.agent").hover()
    await page.locator(".item.agent").get_by_role("button", name="Copy link").click()
    await expect(page.locator("#toast > div")).to_be_visible()
    assert not await overlap(text, page.locator("#toast"))
    harness.expect_problem("Failed to load resource")
    await harness.stop()
    offline = page.locator("#offline")
    await expect(offline).to_be_visible()
    assert not await overlap(text, offline)
    await page.keyboard.press("r")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator("#send-error")).to_be_visible()
    for element in (text, page.locator("#send-error"), page.locator("#prompt .send")):
        assert not await overlap(element, offline)
        await expect(element).to_be_in_viewport(ratio=1)
    await expect(page.locator(".item.agent")).to_be_in_viewport()  # the last message stays visible
    await harness.start()
    await expect(offline).to_be_hidden()
    await expect(page.locator("#send-error")).to_be_hidden()
    await text.fill("\n".join("many lines"))
    await page.wait_for_timeout(100)  # for the layout
    assert not await overlap(page.locator("#composer"), page.locator(".item.agent"))


async def overlap(first: Locator, second: Locator) -> bool:
    """Return whether two elements overlap on the screen."""
    a, b = await first.bounding_box(), await second.bounding_box()
    assert a is not None and b is not None
    side_by_side = a["x"] + a["width"] <= b["x"] or b["x"] + b["width"] <= a["x"]
    apart = a["y"] + a["height"] <= b["y"] or b["y"] + b["height"] <= a["y"]
    return not side_by_side and not apart


@pytest.mark.full
async def test_pictures_can_be_dropped_onto_the_page(harness: BrowserHarness) -> None:
    session = await harness.session("Look")
    page = await harness.window(f"/s/{session.id}")
    drop = """async ([data, where]) => {
        const bytes = Uint8Array.from(atob(data), character => character.charCodeAt(0));
        const files = new DataTransfer();
        files.items.add(new File([bytes], 'dropped.png', {type: 'image/png'}));
        const target = document.querySelector(where);
        const fire = (name) => {
            const options = {dataTransfer: files, bubbles: true, cancelable: true};
            const event = new DragEvent(name, options);
            target.dispatchEvent(event);
            return event.defaultPrevented;
        };
        const over = [fire('dragenter'), fire('dragover')];
        return [...over, document.body.matches('.dropping'), fire('drop')];
    }"""
    attached = page.locator("#pictures img")
    for count, where in enumerate(("#text", "#composer", "#transcript"), 1):
        prevented = await page.evaluate(drop, [examples.picture(30, 20), where])
        assert prevented == [True, True, True, True]  # else the browser would open the picture
        await expect(attached).to_have_count(count)
        assert not await page.evaluate("document.body.matches('.dropping')")
    prevented = await page.evaluate(drop, [examples.picture(), "#sidebar"])
    assert prevented[-1] is True  # ignored here, but the browser does not open it
    await expect(attached).to_have_count(3)
    await send(page, "/say three of them")
    await expect(page.locator(".item.user img")).to_have_count(3)
    await expect(attached).to_have_count(0)


@pytest.mark.full
async def test_sending_a_message_keeps_the_drafts_of_other_sessions(
    harness: BrowserHarness,
) -> None:
    first, second = await harness.session("One"), await harness.session("Two")
    page = await harness.window(f"/s/{second.id}")
    await page.locator("#text").fill("for two, later")
    await page.goto(f"{harness.url}/s/{first.id}")
    await page.locator("#text").fill("/say sent")
    continue_event = asyncio.Event()

    async def hold_request(route: Route) -> None:
        await continue_event.wait()
        await route.continue_()

    await page.route("**/prompt", hold_request)
    await page.keyboard.press("Control+Enter")
    await page.locator(f'.row[data-id="{second.id}"] a').dispatch_event("click")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Two")
    async with page.expect_response("**/prompt"):
        continue_event.set()
    for session, draft in ((second, "for two, later"), (first, "")):
        await page.goto(f"{harness.url}/s/{session.id}")
        await expect(page.locator("#text")).to_have_value(draft)


@pytest.mark.full
async def test_a_restored_session_has_its_draft_again(
    harness: BrowserHarness,
) -> None:
    session = await harness.session("Back and forth")
    page = await harness.window(f"/s/{session.id}")
    await page.locator("#text").fill("half a thought")
    await harness.hub.editor.trash(LOCAL, session.id)
    await expect(page.locator("#text")).to_have_count(0)
    await harness.hub.editor.restore(LOCAL, session.id)
    await expect(page.locator("#text")).to_have_value("half a thought")
