"""What happens elsewhere is seen as it happens, and what goes wrong loses nothing."""

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


async def say(page: Page, words: str) -> None:
    await page.locator("#text").fill(words)
    await page.keyboard.press("Control+Enter")


async def test_a_turn_streams_in_and_two_browsers_agree(harness: BrowserHarness) -> None:
    session = await harness.session("Talk")
    one = await harness.window(f"/s/{session.id}")
    two = await harness.window(f"/s/{session.id}")
    await say(one, "/slow 0.15\n/say Here it **comes**, word by word by word by word")
    for page in (one, two):
        await expect(page.locator("#writing strong")).to_have_text("comes")  # not yet stored
        await expect(page.locator("#head .status")).to_have_text("running")
    await expect(one.locator("#text")).to_have_value("")
    for page in (one, two):
        await expect(page.locator("#chunks .item.agent")).to_contain_text("word by word")
        await expect(page.locator("#writing")).to_be_empty()
        await expect(page.locator("#head .status")).to_have_text("idle")
        await expect(page.locator(".item.user")).to_have_count(1)
        await expect(page.locator(".item.agent").last).to_be_in_viewport()


async def test_the_agents_questions_are_answered(harness: BrowserHarness) -> None:
    session = await harness.session("Ask me")
    page = await harness.window(f"/s/{session.id}")
    await say(page, "/ask May I sing?\n/say done")
    question = page.get_by_role("group", name="The agent asks")
    await expect(question).to_contain_text("May I sing?")
    await expect(page.locator("#head .status")).to_have_text("waiting for you")
    await expect(page.locator("#announcement")).to_have_text("waiting for you")
    await question.get_by_role("button").first.click()
    await expect(page.locator(".item.agent").last).to_contain_text("done")
    await expect(page.get_by_role("group", name="The agent asks")).to_have_count(0)
    await expect(page.locator("#announcement")).to_have_text("The agent is done")
    await expect(page.locator(".permission")).to_contain_text("Asked:")
    await expect(page.locator("details.tool.completed")).to_have_count(1)  # its result came to it


async def test_a_turn_is_stopped(harness: BrowserHarness) -> None:
    session = await harness.session("Slow")
    page = await harness.window(f"/s/{session.id}")
    await say(page, "/slow 1\n/say one two three four five six seven eight nine ten")
    await page.get_by_role("button", name="Stop").click()
    await expect(page.locator(".mark", has_text="Interrupted")).to_be_visible()
    await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    await expect(page.locator("#head .status")).to_have_text("idle")


async def test_pictures_are_sent_with_a_message(harness: BrowserHarness, tmp_path: Path) -> None:
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
            const bytes = Uint8Array.from(atob(data), each => each.charCodeAt(0));
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
    await say(page, "/say a graph and a scrap")
    await expect(page.locator("#send-error")).to_contain_text("cannot be reached")
    await expect(attached).to_have_count(2)  # nothing is lost
    await harness.start()
    await page.keyboard.press("Control+Enter")
    await expect(page.locator(".item.agent").last).to_contain_text("a graph and a scrap")
    await expect(attached).to_have_count(0)
    shown = page.locator(".item.user img")
    await expect(shown).to_have_count(2)
    await shown.first.scroll_into_view_if_needed()
    await expect(shown.first).to_have_js_property("naturalWidth", 240)
    await page.locator("#files").set_input_files([picture])
    await page.get_by_role("button", name="remove").click()
    await expect(attached).to_have_count(0)


async def test_titles_and_lists_update_after_changes_by_other_interfaces(
    harness: BrowserHarness,
) -> None:
    sessions = await examples.crowd(harness.hub, 4)
    page = await harness.window() if harness.phone else await harness.window(f"/s/{sessions[3].id}")
    last = page.locator(f'.row[data-id="{sessions[3].id}"]')
    await harness.hub.editor.set_title(LOCAL, sessions[3].id, "Renamed elsewhere")
    await expect(last.locator(".title")).to_have_text("Renamed elsewhere")
    if not harness.phone:
        await expect(page.get_by_role("heading", level=1)).to_have_text("Renamed elsewhere")
    await harness.hub.turns.run(LOCAL, sessions[3].id, "/say up")
    await expect(page.locator(".row").first).to_contain_text("Renamed elsewhere")
    await expect(page.locator(".group").first.locator("h2")).to_have_text("Today")
    made = await harness.session("Brand new")
    await expect(page.locator(".row").first).to_contain_text("Brand new")
    await harness.hub.editor.archive(LOCAL, made.id)
    await expect(page.locator(f'.row[data-id="{made.id}"]')).to_have_count(0)
    await harness.hub.editor.purge(LOCAL, sessions[2].id)
    await expect(page.locator(f'.row[data-id="{sessions[2].id}"]')).to_have_count(0)


async def test_a_lost_connection_says_so_and_loses_nothing_typed(harness: BrowserHarness) -> None:
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
    await expect(page.locator(".item.agent")).to_contain_text("meanwhile")  # nothing was missed
    await page.reload()
    await expect(page.locator("#text")).to_have_value("/say a whole thought")
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator(".item.agent").last).to_contain_text("a whole thought")
    await expect(page.locator(".item.user")).to_have_count(2)


async def test_a_session_that_is_deleted_under_ones_eyes_says_so(harness: BrowserHarness) -> None:
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


async def test_a_key_that_expires_says_so_and_leads_to_the_login(harness: BrowserHarness) -> None:
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
    await page.keyboard.press("Escape")
    await page.keyboard.press("e")
    await expect(page.locator("#toast")).to_contain_text("no longer valid")
    await expect(banner).to_contain_text("signed out")  # what passes does not take its place
    await page.get_by_role("button", name="Sign in again").click()
    await expect(page).to_have_url(re.compile(r"/login\?next=%2Fs%2F"))
    _, secret = await harness.hub.keys.create("local")
    await page.get_by_label("Key").fill(secret)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.locator("#text")).to_have_value("not lost")


async def test_a_hidden_page_holds_no_connection(harness: BrowserHarness) -> None:
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
    made = Claude(tmp_path / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(made.root))
    # The positions in a file are larger numbers than those of the store.
    made.write_conversation(prompt="word " * 400)
    await harness.keep(ClaudeSource(tmp_path / "claude.index", ClaudeHome(str(made.root))))
    page = await harness.window(f"/s/{S}")
    await expect(page.locator("#composer")).to_contain_text("From Claude Code.")
    before = (await harness.hub.sessions.get(LOCAL, S)).last_seq
    await harness.hub.turns.run(LOCAL, S, "/say first here")
    after = (await harness.hub.sessions.get(LOCAL, S)).last_seq
    assert after < before
    await expect(page.locator("#chunks .item.agent").last).to_contain_text("first here")
    await expect(page.locator("#text")).to_be_visible()
    await expect(page.locator(".item.user")).to_have_count(2)
    await page.evaluate("document.dispatchEvent(new Event('segue:list'))")  # reopens its stream
    await harness.hub.turns.run(LOCAL, S, "/say second here")
    await expect(page.locator("#chunks .item.agent").last).to_contain_text("second here")


async def test_disconnected_page_reloads_after_its_session_is_imported(
    harness: BrowserHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Claude(tmp_path / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(made.root))
    made.write_conversation(prompt="word " * 400)
    await harness.keep(ClaudeSource(tmp_path / "claude.index", ClaudeHome(str(made.root))))
    page = await harness.window(f"/s/{S}?at=1")
    await expect(page.locator("#composer")).to_contain_text("From Claude Code.")
    harness.expect_problem("Failed to load resource")
    await harness.stop()
    await harness.hub.turns.run(LOCAL, S, "/say meanwhile")
    await harness.start()
    await expect(page.locator("#chunks .item.agent").last).to_contain_text("meanwhile")
    await expect(page).to_have_url(re.compile(f"/s/{S}$"))


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
    await harness.hub.turns.run(
        LOCAL, session.id, "/say not for them"
    )  # it is seen before it is shown
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
    _, another = await harness.hub.keys.create("local")
    await page.get_by_label("Key").fill(another)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.locator("#text")).to_have_value("not lost")
    await expect(page.locator(".item.agent").last).to_contain_text("not for them")


async def test_a_stream_ends_with_the_key_that_opened_it(
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
    await expect(page.locator("#banner")).to_be_empty()  # nothing ends soon
    await harness.hub.keys.revoke("local", key.id)
    await expect(page.locator("#banner")).to_contain_text("is no longer valid")


async def test_what_is_said_at_the_foot_covers_nothing_that_one_types_in(
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
    for place in (text, page.locator("#send-error"), page.locator("#prompt .send")):
        assert not await overlap(place, offline)
        await expect(place).to_be_in_viewport(ratio=1)
    await expect(page.locator(".item.agent")).to_be_in_viewport()  # the end stays in view
    await harness.start()
    await expect(offline).to_be_hidden()
    await expect(page.locator("#send-error")).to_be_hidden()
    await text.fill("\n".join("many lines"))
    await page.wait_for_timeout(100)  # until it is laid out
    assert not await overlap(page.locator("#composer"), page.locator(".item.agent"))


async def overlap(one: Locator, other: Locator) -> bool:
    a, b = await one.bounding_box(), await other.bounding_box()
    assert a is not None and b is not None
    side_by_side = a["x"] + a["width"] <= b["x"] or b["x"] + b["width"] <= a["x"]
    apart = a["y"] + a["height"] <= b["y"] or b["y"] + b["height"] <= a["y"]
    return not side_by_side and not apart


async def test_a_picture_is_dropped_onto_the_page(harness: BrowserHarness) -> None:
    session = await harness.session("Look")
    page = await harness.window(f"/s/{session.id}")
    drop = """async ([data, where]) => {
        const bytes = Uint8Array.from(atob(data), each => each.charCodeAt(0));
        const files = new DataTransfer();
        files.items.add(new File([bytes], 'dropped.png', {type: 'image/png'}));
        const place = document.querySelector(where);
        const fire = (name) => {
            const options = {dataTransfer: files, bubbles: true, cancelable: true};
            const event = new DragEvent(name, options);
            place.dispatchEvent(event);
            return event.defaultPrevented;
        };
        const over = [fire('dragenter'), fire('dragover')];
        return [...over, document.body.matches('.dropping'), fire('drop')];
    }"""
    attached = page.locator("#pictures img")
    for count, where in enumerate(("#text", "#composer", "#transcript"), 1):
        said = await page.evaluate(drop, [examples.picture(30, 20), where])
        assert said == [True, True, True, True]  # or the browser would leave for the picture
        await expect(attached).to_have_count(count)
        assert not await page.evaluate("document.body.matches('.dropping')")
    said = await page.evaluate(drop, [examples.picture(), "#sidebar"])
    assert said[-1] is True  # nothing to do with it there, but the page stays
    await expect(attached).to_have_count(3)
    await say(page, "/say three of them")
    await expect(page.locator(".item.user img")).to_have_count(3)
    await expect(attached).to_have_count(0)


async def test_what_is_sent_leaves_the_drafts_of_other_sessions_alone(
    harness: BrowserHarness,
) -> None:
    one, two = await harness.session("One"), await harness.session("Two")
    page = await harness.window(f"/s/{two.id}")
    await page.locator("#text").fill("for two, later")
    await page.goto(f"{harness.url}/s/{one.id}")
    await page.locator("#text").fill("/say sent")
    sending = asyncio.Event()

    async def held(route: Route) -> None:
        await sending.wait()
        await route.continue_()

    await page.route("**/prompt", held)
    await page.keyboard.press("Control+Enter")
    await page.locator(f'.row[data-id="{two.id}"] a').dispatch_event("click")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Two")
    async with page.expect_response("**/prompt"):
        sending.set()
    for session, draft in ((two, "for two, later"), (one, "")):
        await page.goto(f"{harness.url}/s/{session.id}")
        await expect(page.locator("#text")).to_have_value(draft)


async def test_what_was_typed_is_there_again_when_a_session_comes_back(
    harness: BrowserHarness,
) -> None:
    session = await harness.session("Back and forth")
    page = await harness.window(f"/s/{session.id}")
    await page.locator("#text").fill("half a thought")
    await harness.hub.editor.trash(LOCAL, session.id)
    await expect(page.locator("#text")).to_have_count(0)
    await harness.hub.editor.restore(LOCAL, session.id)
    await expect(page.locator("#text")).to_have_value("half a thought")
