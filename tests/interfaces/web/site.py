"""The session browser in this process: a hub on a real SQLite file, and a browser's requests."""

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
        """A page, which must be valid HTML."""
        answer = await self.client.get(path, **options)
        assert answer.status_code == status, answer.text[:2000]
        if answer.headers["content-type"].startswith("text/html"):
            if "<!DOCTYPE" in answer.text:
                valid(answer.text)
            if found := re.search(r'name="csrf" content="(\w+)"', answer.text):
                self.csrf = found[1]
        return answer.text

    async def post(self, path: str, status: int = 303, **fields: str) -> httpx2.Response:
        answer = await self.client.post(path, data={"csrf": self.csrf, **fields})
        assert answer.status_code == status, answer.text[:2000]
        return answer

    async def sign_in(self, principal: Principal = LOCAL) -> None:
        token = await self.hub.logins.create_link(principal)
        answer = await self.client.get("/login", params={"token": token})
        assert answer.status_code == 303, answer.text
        await self.get("/")

    async def say(self, session: Session, text: str) -> None:
        await self.hub.turns.run(LOCAL, session.id, text)


def valid(page: str) -> None:
    """Fail for what a browser would have to repair."""
    parser = html5lib.HTMLParser(strict=False)
    parser.parse(page)
    errors = [(place, code) for place, code, _ in parser.errors]
    lines = page.splitlines()
    assert not errors, [(code, lines[place[0] - 1][:200]) for place, code in errors[:5]]


@asynccontextmanager
async def open_site(directory: Path, signed_in: bool = True, **options: Any) -> AsyncIterator[Site]:
    store = SQLiteStore.open(directory / "segue.db")
    async with Hub(store, directory, **options) as hub, site_of(hub, signed_in) as site:
        yield site


@asynccontextmanager
async def site_of(hub: Hub, signed_in: bool = True) -> AsyncIterator[Site]:
    app = WebApp(hub)
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
        site = Site(hub, app, client)
        if signed_in:
            await site.sign_in()
        yield site
