"""The session browser of `segue serve`: several workers, both stores, and a restart."""

import asyncio
import re
import socket
from pathlib import Path

import httpx2
import pytest
from playwright.async_api import Page, expect

from tests.clients.rest_server import Server, serving
from tests.interfaces.web.harness import BrowserThread

SIZE = (1280, 800)


@pytest.fixture(params=["sqlite", "postgres"])
def options(request: pytest.FixtureRequest) -> list[str]:
    """Return the arguments of `segue serve` for two workers over each store."""
    arguments = ["--workers", "2"]
    if request.param == "postgres":
        arguments += ["--database-url", request.getfixturevalue("migrated_database_url")]
    return arguments


def test_every_worker_serves_a_signed_in_browser(
    browser_thread: BrowserThread, tmp_path: Path, options: list[str]
) -> None:
    with serving(tmp_path, *options) as server:
        cookies = browser_thread.do(_use_two_pages(browser_thread, server))
        # Each request has a new connection, which may go to another worker.
        with httpx2.Client(headers={"connection": "close"}) as client:
            for _ in range(8):
                assert client.get(server.url).status_code == 401
            client.cookies.update(cookies)
            for _ in range(8):
                page = client.get(server.url)
                assert page.status_code == 200 and "Over here" in page.text


def test_a_browser_reconnects_to_a_server_that_was_killed_and_restarted(
    browser_thread: BrowserThread, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = str(sock.getsockname()[1])
    with serving(tmp_path, "--port", port) as server:
        page = browser_thread.do(_start_session(browser_thread, server))
        server.process.kill()
        server.process.wait()
        browser_thread.do(expect(page.locator("#offline")).to_be_visible())
        browser_thread.do(page.locator("#text").fill("/say still here"))
    with serving(tmp_path, "--port", port) as server:
        browser_thread.do(_check_page_after_restart(page))
        browser_thread.do(browser_thread.return_page(page, server.url, SIZE))


async def _start_session(browser_thread: BrowserThread, server: Server) -> Page:
    page = await browser_thread.take_page(SIZE)
    link = await asyncio.to_thread(server.login_link)
    await page.goto(link)
    await _begin(page)
    return page


async def _check_page_after_restart(page: Page) -> None:
    """Check that the draft is kept and that the browser is still signed in."""
    await expect(page.locator("#offline")).to_be_hidden(timeout=30_000)
    await expect(page.locator("#text")).to_have_value("/say still here")
    await page.locator("#text").press("Control+Enter")
    await expect(page.locator(".item.agent").last).to_contain_text("still here")
    await expect(page.locator("#head .status")).to_have_text("idle")


async def _use_two_pages(browser_thread: BrowserThread, server: Server) -> dict[str, str]:
    problems: list[str] = []
    link = await asyncio.to_thread(server.login_link)
    first = await browser_thread.take_page(SIZE)
    context = first.context
    second = await context.new_page()
    for page in (first, second):
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "console",
            lambda message: problems.append(message.text) if message.type == "error" else None,
        )
    await first.goto(link)
    await _begin(first)
    await expect(first).to_have_url(re.compile("/s/"))
    await second.goto(first.url)
    await expect(second.locator("#text")).to_be_visible()
    # The turn runs in one process, and every process streams it.
    streamed = [
        expect(page.locator("#writing strong")).to_have_text("comes") for page in (first, second)
    ]
    prompt = "/slow 0.4\n/say Here it **comes**, one word after another and another"
    await asyncio.gather(*streamed, _send(first, prompt))
    for page in (first, second):
        await expect(page.locator("#chunks .item.agent").last).to_contain_text("and another")
    await _send(second, "/ask May I?\n/say thanks")
    await first.get_by_role("form", name="The agent asks").get_by_role("button").first.click()
    for page in (first, second):
        await expect(page.locator(".item.agent").last).to_contain_text("thanks")
        await expect(page.locator("#head .status")).to_have_text("idle")
    await first.locator("#actions > summary").click()
    await first.get_by_label("Name").fill("Over here")
    await first.get_by_role("button", name="Rename").click()
    await expect(second.get_by_role("heading", level=1)).to_have_text("Over here")
    await expect(second.locator(".row .title")).to_have_text("Over here")
    await second.get_by_role("searchbox").fill("another")
    await expect(second.locator(".row .snippet mark").first).to_have_text("another")
    await second.close()
    cookies = {cookie["name"]: cookie["value"] for cookie in await context.cookies()}
    await browser_thread.return_page(first, server.url, SIZE)
    assert problems == []
    return cookies


async def _begin(page: Page) -> None:
    """Start a session from the first page."""
    await page.get_by_role("link", name="Try it with the demo agent").click()
    await page.locator("#first-message").fill("/say begun")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator("#chunks .item.agent")).to_contain_text("begun")
    await expect(page.locator("#head .status")).to_have_text("idle")


async def _send(page: Page, text: str) -> None:
    await page.locator("#text").fill(text)
    await page.keyboard.press("Control+Enter")
