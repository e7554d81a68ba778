"""A server with real browsers. Every error that a page or the server reports fails the test."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import uvicorn
from playwright.async_api import Browser, ConsoleMessage, Error, Page, Request, expect

from segue.hub import Hub
from segue.interfaces.web import WebApp
from segue.model.principal import LOCAL, Principal
from segue.model.session import Session
from segue.sources.base import Source
from segue.store.sqlite import SQLiteStore
from tests.clients import toolbox
from tests.cutting_proxy import CuttingProxy

T = TypeVar("T")

expect.set_options(timeout=15_000)  # a loaded machine is slow

SCROLL_SECONDS = 120  # to scroll through a list, on a slow machine
# Animations would be drawn in software, and change colours while a test reads them.
PAGE_OPTIONS: dict[str, Any] = {"color_scheme": "light", "reduced_motion": "reduce"}
LOGGERS = ("segue.web", "segue.http")  # streams log to the second


class BrowserThread:
    """The thread with the event loop and the browser that all tests share."""

    def __init__(self, loop: asyncio.AbstractEventLoop, browser: Browser) -> None:
        self.loop = loop
        self.browser = browser
        self._idle_pages: dict[str, list[Page]] = {}  # by size and options

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(300)

    async def take_page(self, size: tuple[int, int], **options: Any) -> Page:
        """Return an idle page with these options, or a new one in its own browser context.

        A page that was used before has loaded the fonts and compiled the scripts.
        """
        if idle := self._idle_pages.get(repr((size, PAGE_OPTIONS | options))):
            return idle.pop()
        return await self.new_page(size, **options)

    async def new_page(self, size: tuple[int, int], **options: Any) -> Page:
        """Return a page in a new browser context; less than 760 pixels wide, a touch screen."""
        width, height = size
        context = await self.browser.new_context(
            viewport={"width": width, "height": height},
            has_touch=width < 760,
            **PAGE_OPTIONS | options,
        )
        return await context.new_page()

    async def return_page(
        self, page: Page, site: str, size: tuple[int, int], **options: Any
    ) -> None:
        """Make a page like new: stored data belongs to an address, and each test has its own.

        It waits at a file of this site, because another site's page would get a new process.
        """
        try:
            await page.unroute_all()
            await page.goto(f"{site}/static/-/early.js")
        except Error:  # the test failed, and its server does not answer
            await page.context.close()
            return
        await page.set_viewport_size({"width": size[0], "height": size[1]})
        await page.context.clear_cookies()
        await page.context.clear_permissions()
        self._idle_pages.setdefault(repr((size, PAGE_OPTIONS | options)), []).append(page)


class _LogCollector(logging.Handler):
    """Collects the server's warnings and errors."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._problems = problems

    def emit(self, record: logging.LogRecord) -> None:
        self._problems.append(self.format(record))


class BrowserHarness:
    """A hub on a real SQLite file, its pages on a real port, and browser pages that show them."""

    def __init__(
        self, browser_thread: BrowserThread, directory: Path, size: tuple[int, int]
    ) -> None:
        self.browser_thread = browser_thread
        self.directory = directory
        self.size = size
        self.phone = size[0] < 760
        self.problems: list[str] = []
        self.expected_problems: list[str] = []
        self.foreign_urls: list[str] = []
        self._port = 0
        self._handlers: dict[Any, Any] = {
            "pageerror": self._note_error,
            "console": self._note_message,
            "request": self._note_request,
        }
        self._own_pages: list[Page] = []
        self._shared_pages: list[tuple[Page, dict[str, Any]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def open(self) -> None:
        self._handler = _LogCollector(self.problems)
        for name in LOGGERS:
            logging.getLogger(name).addHandler(self._handler)
        self.hub = Hub(SQLiteStore.open(self.directory / "segue.db"), self.directory)
        await self.start()

    async def restart_with_sources(self, *sources: Source) -> None:
        """Restart the server with the sessions of other tools."""
        await self.stop()
        await self.hub.close()
        store = SQLiteStore.open(self.directory / "segue.db")
        self.hub = Hub(store, self.directory, sources=sources)
        await self.start()

    async def start(self) -> None:
        """Start the server, on the same port as before."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", self._port))
        self._port = sock.getsockname()[1]
        self.app = WebApp(self.hub)
        config = uvicorn.Config(
            self.app, lifespan="off", ws="none", log_config=None, timeout_graceful_shutdown=2
        )
        self._server = uvicorn.Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[sock]))
        while not self._server.started:
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self.app.closing.set()
        self._server.should_exit = True
        await self._serving

    @asynccontextmanager
    async def proxied(self, cut_bytes: int) -> AsyncIterator[CuttingProxy]:
        """Let pages that are opened now connect through a proxy, which cuts after so many bytes."""
        async with CuttingProxy.open(self._port, lambda: cut_bytes) as proxy:
            server_port, self._port = self._port, proxy.port
            try:
                yield proxy
            finally:
                self._port = server_port

    async def close(self) -> None:
        for page in self._own_pages:
            await page.context.close()
        for page, options in self._shared_pages:
            for event, handler in self._handlers.items():
                page.remove_listener(event, handler)
            await self.browser_thread.return_page(page, self.url, self.size, **options)
        await self.stop()
        await self.hub.close()
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(self._handler)

    # Browsers.

    async def window(
        self, path: str = "/", *, principal: Principal = LOCAL, **options: Any
    ) -> Page:
        """Open a page in a new browser that is signed in."""
        page = await self.anonymous_page(**options)
        token = await self.hub.logins.create_link(principal)
        await page.goto(f"{self.url}/login?token={token}&next={path}")
        return page

    async def anonymous_page(self, *, own_context: bool = False, **options: Any) -> Page:
        """Open a page that is not signed in.

        Tests share browser contexts with the same options. A test that changes one in a lasting
        way, such as its clock, needs its own.
        """
        if own_context:
            page = await self.browser_thread.new_page(self.size, **options)
            self._own_pages.append(page)
        else:
            page = await self.browser_thread.take_page(self.size, **options)
            self._shared_pages.append((page, options))
        for event, handler in self._handlers.items():
            page.on(event, handler)
        return page

    def _note_error(self, error: Error) -> None:
        self.problems.append(str(error))

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _note_request(self, request: Request) -> None:
        """Note a request to another server. The browser finds no address of another server."""
        if not request.url.startswith(self.url):
            self.foreign_urls.append(request.url)

    def expect_problem(self, text: str) -> None:
        """Expect a problem that contains this text."""
        self.expected_problems.append(text)

    def check(self) -> None:
        """Fail if a page reported a problem or sent a request to another server."""
        unexpected = [
            problem
            for problem in self.problems
            if not any(text in problem for text in self.expected_problems)
        ]
        assert unexpected == [] and self.foreign_urls == []

    # Sessions.

    async def session(self, title: str, *prompts: str, **fields: Any) -> Session:
        session = await self.hub.editor.create(LOCAL, title=title, **fields)
        for prompt in prompts:
            await self.hub.turns.run(LOCAL, session.id, prompt)
        return await self.hub.sessions.get(LOCAL, session.id)


async def accessibility_problems(page: Page) -> list[str]:
    """Return the accessibility problems that axe-core finds in a page."""
    script = toolbox.node_packages() / "node_modules" / "axe-core" / "axe.min.js"
    await page.evaluate(script.read_text() + "; undefined")
    results = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for violation in results["violations"]
        for node in violation["nodes"]
    ]
