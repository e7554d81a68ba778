"""A page whose connection is lost in the middle of an answer continues with what it missed."""

import asyncio
from collections.abc import Callable

import pytest
from playwright.async_api import Page, expect

from segue.http import sse
from segue.model.principal import LOCAL
from tests.interfaces.web.harness import BrowserHarness

WORDS = " ".join(f"word-{number}" for number in range(40))
ANSWER = f"Here it comes {WORDS}"
# The bytes of a connection before a cut: less than a frame of a stream or the head of a response.
CUT_BYTES = 60
TEXTS_OF_ITEMS = """() => [...document.querySelectorAll('#chunks .item, #writing .item')]
    .map(item => item.innerText)"""


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def check_items(page: Page, harness: BrowserHarness) -> None:
    """Check that a page shows the same items as a page that is opened now."""
    await expect(page.locator("#head .status")).to_have_text("idle")
    await expect(page.locator("#writing")).to_be_empty()
    await expect(page.locator("#offline")).to_be_hidden()
    shown = await page.evaluate(TEXTS_OF_ITEMS)
    reference = await harness.window(f"/s/{page.url.rpartition('/')[2]}")
    assert shown == await reference.evaluate(TEXTS_OF_ITEMS)


@pytest.mark.parametrize("width", ["phone"], indirect=True)
async def test_page_shows_an_answer_once_after_cuts_in_the_middle_of_it(
    harness: BrowserHarness,
) -> None:
    session = await harness.session("Cut", "/say before")
    harness.expect_problem("Failed to load resource")
    harness.expect_problem("MIME type")  # of a response whose head was cut
    async with harness.proxied(CUT_BYTES) as proxy:
        page = await harness.window(f"/s/{session.id}")
        writing = page.locator("#writing .item.agent")
        await expect(page.locator("#head .status")).to_have_text("idle")
        prompt = f"/slow 0.1\n/tool ls a b\n/say {ANSWER}\n/ask May I?\n/say bye"
        await harness.hub.turns.submit(LOCAL, session.id, prompt)
        await expect(writing).to_contain_text("word-2")
        proxy.is_cutting = True
        await until(lambda: proxy.cuts > 0)
        proxy.is_cutting = False
        await expect(writing).to_contain_text("word-20")
        # The text has its beginning again, once.
        assert "Here it comes word-0 word-1 word-2 word-3" in await writing.inner_text()
        await expect(writing).to_have_count(1)
        proxy.is_cutting = proxy.is_refusing = True
        await expect(page.locator("#offline")).to_be_visible()
        # The answer ends and the agent asks while the page has no connection.
        asks: tuple[str, ...] = ()
        while not asks:
            await asyncio.sleep(0.05)
            asks = tuple((await harness.hub.sessions.get(LOCAL, session.id)).open_asks)
        proxy.is_cutting = proxy.is_refusing = False
        await expect(page.get_by_role("form", name="The agent asks")).to_have_count(1)
        await expect(page.locator("#chunks .item.agent")).to_have_count(2)
        await harness.hub.turns.answer(LOCAL, session.id, asks[0], "allow")
        await expect(page.locator("#chunks .item.agent").last).to_contain_text("bye")
        await expect(page.locator("#chunks .item.user")).to_have_count(2)
        await check_items(page, harness)


@pytest.mark.parametrize("width", ["desktop"], indirect=True)
async def test_page_opens_a_new_stream_after_a_connection_was_lost_without_an_error(
    harness: BrowserHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", 0.8)
    session = await harness.session("Silent", "/say before")
    async with harness.proxied(CUT_BYTES) as proxy:
        page = await harness.window(f"/s/{session.id}")
        await expect(page.locator("#head .status")).to_have_text("idle")
        prompt = f"/slow 0.05\n/say {ANSWER}"
        await harness.hub.turns.submit(LOCAL, session.id, prompt)
        await expect(page.locator("#writing .item.agent")).to_contain_text("word-2")
        proxy.silence()
        await expect(page.locator("#offline")).to_be_visible()
        await expect(page.locator("#chunks .item.agent").last).to_contain_text("word-39")
        await check_items(page, harness)


@pytest.mark.full
async def test_shared_page_opens_a_new_stream_after_a_connection_was_lost_without_an_error(
    harness: BrowserHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", 0.8)
    session = await harness.session("Silent", "/say before")
    secret = await harness.hub.shares.share(LOCAL, session.id)
    async with harness.proxied(CUT_BYTES) as proxy:
        page = await harness.anonymous_page()
        await page.goto(f"{harness.url}/shared/local/{session.id}/{secret}")
        await harness.hub.turns.submit(LOCAL, session.id, f"/slow 0.05\n/say {ANSWER}")
        # A link that masks secrets has no unfinished answers.
        await expect(page.locator("#chunks .item.user")).to_have_count(2)
        proxy.silence()
        await expect(page.locator("#chunks .item.agent").last).to_contain_text("word-39")
        await expect(page.locator("#chunks .item.agent")).to_have_count(2)
        await expect(page.locator("#writing")).to_be_empty()
