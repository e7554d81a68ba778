"""The pages as `segue serve` serves them: from several processes, over either store, and again."""

import asyncio
import re
import socket
from pathlib import Path

import httpx2
import pytest
from playwright.async_api import Page, expect

from tests.clients.rest_server import Server, serving
from tests.interfaces.web.harness import BrowserThread


@pytest.fixture(params=["sqlite", "postgres"])
def options(request: pytest.FixtureRequest) -> list[str]:
    """What `segue serve` is started with, to have two workers over a store."""
    given = ["--workers", "2"]
    if request.param == "postgres":
        given += ["--database-url", request.getfixturevalue("migrated_database_url")]
    return given


def test_a_browser_is_at_home_at_every_worker(
    browser_thread: BrowserThread, tmp_path: Path, options: list[str]
) -> None:
    with serving(tmp_path, *options) as server:
        cookies = browser_thread.do(_talk(browser_thread, server))
        for _ in range(8):  # a new connection each, for any worker to take
            page = httpx2.get(server.url, cookies=cookies)
            assert page.status_code == 200 and "Over here" in page.text
            assert httpx2.get(server.url).status_code == 401


def test_a_server_that_is_killed_and_started_again_finds_its_browsers_waiting(
    browser_thread: BrowserThread, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = str(sock.getsockname()[1])
    with serving(tmp_path, "--port", port) as server:
        page = browser_thread.do(_begin(browser_thread, server))
        server.process.kill()
        server.process.wait()
        browser_thread.do(expect(page.locator("#offline")).to_be_visible())
        browser_thread.do(page.locator("#text").fill("/say still here"))
    with serving(tmp_path, "--port", port):
        browser_thread.do(_check_page_after_restart(page))


async def _begin(browser_thread: BrowserThread, server: Server) -> Page:
    context = await browser_thread.browser.new_context()
    page = await context.new_page()
    link = next(word for word in server.startup_output.split() if "/login?token=" in word)
    await page.goto(link)
    await page.get_by_role("button", name="Start a session").click()
    await expect(page.locator("#text")).to_be_visible()
    return page


async def _check_page_after_restart(page: Page) -> None:
    """The draft is kept, and the browser is still signed in."""
    await expect(page.locator("#offline")).to_be_hidden(timeout=30_000)
    await expect(page.locator("#text")).to_have_value("/say still here")
    await page.locator("#text").press("Control+Enter")
    await expect(page.locator(".item.agent").last).to_contain_text("still here")
    await expect(page.locator("#head .status")).to_have_text("idle")
    await page.context.close()


async def _talk(browser_thread: BrowserThread, server: Server) -> dict[str, str]:
    problems: list[str] = []
    link = next(word for word in server.startup_output.split() if "/login?token=" in word)
    context = await browser_thread.browser.new_context()
    one, two = await context.new_page(), await context.new_page()
    for page in (one, two):
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "console",
            lambda message: problems.append(message.text) if message.type == "error" else None,
        )
    await one.goto(link)
    await one.get_by_role("button", name="Start a session").click()
    await expect(one).to_have_url(re.compile("/s/"))
    await two.goto(one.url)
    await expect(two.locator("#text")).to_be_visible()
    # The turn runs in one process, and is seen from any.
    seen = [expect(page.locator("#writing strong")).to_have_text("comes") for page in (one, two)]
    await _say(one, "/slow 0.2\n/say Here it **comes**, one word after another and another")
    await asyncio.gather(*seen)
    for page in (one, two):
        await expect(page.locator("#chunks .item.agent")).to_contain_text("and another")
    await _say(two, "/ask May I?\n/say thanks")
    await one.get_by_role("group", name="The agent asks").get_by_role("button").first.click()
    for page in (one, two):
        await expect(page.locator(".item.agent").last).to_contain_text("thanks")
        await expect(page.locator("#head .status")).to_have_text("idle")
    await one.locator("#actions > summary").click()
    await one.get_by_label("Name").fill("Over here")
    await one.get_by_role("button", name="Rename").click()
    await expect(two.get_by_role("heading", level=1)).to_have_text("Over here")
    await expect(two.locator(".row .title")).to_have_text("Over here")
    await two.get_by_role("searchbox").fill("another")
    await expect(two.locator(".row .snippet mark").first).to_have_text("another")
    cookies = {each["name"]: each["value"] for each in await context.cookies()}
    await context.close()
    assert problems == []
    return cookies


async def _say(page: Page, words: str) -> None:
    await page.locator("#text").fill(words)
    await page.keyboard.press("Control+Enter")
