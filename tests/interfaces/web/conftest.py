"""Fixtures for tests with a real browser, which all tests share.

The browser, the server and the tests that use `harness` run in one event loop in its own thread.
"""

import asyncio
import inspect
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interfaces.web.chromium import ARGUMENTS, NoBrowser, find_or_install_chromium
from tests.interfaces.web.harness import BrowserHarness, BrowserThread

WIDTHS = {"phone": (390, 800), "desktop": (1280, 800)}


@pytest.fixture(scope="session")
def browser_thread() -> Iterator[BrowserThread]:
    try:
        path = find_or_install_chromium()
    except NoBrowser as error:
        pytest.skip(str(error))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="browser tests")
    thread.start()

    async def start() -> tuple[Any, Any]:
        from playwright.async_api import async_playwright

        playwright = await async_playwright().start()
        return playwright, await playwright.chromium.launch(executable_path=path, args=ARGUMENTS)

    async def stop(playwright: Any, browser: Any) -> None:
        await browser.close()
        await playwright.stop()

    try:
        opened = asyncio.run_coroutine_threadsafe(start(), loop).result(120)
        yield BrowserThread(loop, opened[1])
        asyncio.run_coroutine_threadsafe(stop(*opened), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(params=WIDTHS)
def width(request: pytest.FixtureRequest) -> str:
    """Return the name of each screen width in turn."""
    return str(request.param)


@pytest.fixture
def harness(browser_thread: BrowserThread, tmp_path: Path, width: str) -> Iterator[BrowserHarness]:
    harness = BrowserHarness(browser_thread, tmp_path, WIDTHS[width])
    browser_thread.do(harness.open())
    yield harness
    browser_thread.do(harness.close())


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    harness = pyfuncitem.funcargs.get("harness")
    if not isinstance(harness, BrowserHarness) or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    parameters = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in parameters}

    async def run() -> None:
        await pyfuncitem.obj(**arguments)
        harness.check()

    harness.browser_thread.do(run())
    return True
