"""A client of the session browser in this process, over a real SQLite file."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import html5lib
import httpx2

from segue.hub import Hub
from segue.interfaces.web import WebApp
from segue.model.principal import LOCAL, Principal
from segue.model.session import Session
from segue.store.sqlite import SQLiteStore

BASE = "http://localhost:8787"


class Site:
    """A signed-in client of the session browser."""

    def __init__(self, hub: Hub, app: WebApp, client: httpx2.AsyncClient) -> None:
        self.hub = hub
        self.app = app
        self.client = client
        self.csrf = ""

    async def get(self, path: str, status: int = 200, **options: Any) -> str:
        """Request a page, check that its HTML is valid, and return it."""
        response = await self.client.get(path, **options)
        assert response.status_code == status, response.text[:2000]
        if response.headers["content-type"].startswith("text/html"):
            if "<!DOCTYPE" in response.text:
                check_html(response.text)
            if match := re.search(r'name="csrf" content="(\w+)"', response.text):
                self.csrf = match[1]
        return response.text

    async def post(self, path: str, status: int = 303, **fields: str) -> httpx2.Response:
        response = await self.client.post(path, data={"csrf": self.csrf, **fields})
        assert response.status_code == status, response.text[:2000]
        return response

    async def sign_in(self, principal: Principal = LOCAL) -> None:
        token = await self.hub.logins.create_link(principal)
        response = await self.client.get("/login", params={"token": token})
        assert response.status_code == 303, response.text
        await self.get("/")

    async def say(self, session: Session, text: str) -> None:
        await self.hub.turns.run(LOCAL, session.id, text)


def check_html(page: str) -> None:
    """Fail if a browser would have to repair the page."""
    parser = html5lib.HTMLParser(strict=False)
    parser.parse(page)
    errors = [(position, code) for position, code, _ in parser.errors]
    lines = page.splitlines()
    assert not errors, [(code, lines[position[0] - 1][:200]) for position, code in errors[:5]]


@asynccontextmanager
async def open_site(
    directory: Path, *, signed_in: bool = True, **options: Any
) -> AsyncIterator[Site]:
    """Yield a client of the pages of a new hub over a SQLite store."""
    store = SQLiteStore.open(directory / "segue.db")
    async with Hub(store, directory, **options) as hub, site_of(hub, signed_in=signed_in) as site:
        yield site


@asynccontextmanager
async def site_of(hub: Hub, *, signed_in: bool = True) -> AsyncIterator[Site]:
    """Yield a client of a hub's pages."""
    app = WebApp(hub)
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
        site = Site(hub, app, client)
        if signed_in:
            await site.sign_in()
        yield site
