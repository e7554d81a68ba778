"""Every page of the session browser: accessible, valid HTML and no wider than the screen."""

import re
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Page

from segue.interfaces.web.routes import ROUTES, SHARE_LINK
from segue.model.content import Diff
from segue.model.event import (
    AgentMessage,
    InfoChanged,
    ThreadMessage,
    ThreadStarted,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.principal import LOCAL
from segue.model.session import Session
from tests.interfaces.web import examples
from tests.interfaces.web.examples import text
from tests.interfaces.web.harness import BrowserHarness, accessibility_problems
from tests.interfaces.web.site import check_html

LONG = "<b>&amp;'\"" + "a-very-long-word-without-a-space" * 8
STREAMS = ("/live", f"{SHARE_LINK}/live")
# The controls that are too small for a finger. Links in texts are not controls.
SMALL_TARGETS = """[...document.querySelectorAll(
    'a.brand, a.chip, a.button, a.ghost, button, summary, select, .segmented a')]
  .filter(control => control.checkVisibility() && !control.closest('.hidden'))
  .map(control => [control, control.getBoundingClientRect()])
  .filter(([control, box]) => box.width && (box.height < 43.5 || box.width < 43.5))
  .map(([control, box]) => `${box.width} x ${box.height}: ${control.outerHTML.slice(0, 120)}`)"""
# Queries that change what a page contains, besides the page without a query.
VARIANTS = {
    "/": ("q=unheard-of", "q=parser", "group=project", "state=trash", "state=only", "tag=x"),
    "/activity": ("sort=cost&order=reverse", "state=trash", "state=only", "status=failed", "q=zz"),
    "/search": ("q=parser", "q=unheard-of", "q=praser&since=7d"),
    "/compare": ("a={id}", "a={id}&b={other}", "a={fork}&b={id}", "a={fork}&b={fork2}", "a=x"),
    "/dashboard": ("days=365", "by=model", "from=2020-01-01&to=2020-01-02"),
    "/new": ("cwd=/nowhere",),
    "/s/{id}": ("at=1", "at=x"),
    "/s/{id}/continue-in": ("tool=codex", "tool=x"),
    "/login": ("token=x",),
}


async def create_sessions(harness: BrowserHarness) -> dict[str, str]:
    """Create sessions whose texts are as long as they can be; return values for paths."""
    hub = harness.hub
    session = await examples.create_full_session(hub)
    others = await examples.create_many_sessions(hub, 6)
    await hub.editor.append(
        LOCAL,
        session.id,
        InfoChanged(title=f"Long {LONG}", tag="a-long-tag" * 6),
        UserMessage(content=text(LONG)),
        ToolCall(call_id="d", name="delegate"),
        ThreadStarted(id="th1", name="tester", call_id="d", title=f"Test {LONG}"),
        ThreadMessage(thread="th1", call_id="d", content=text("Test it.")),
        AgentMessage(thread="th1", content=text(f"Tested. {LONG}")),
        ToolResult(call_id="d", content=text("done")),
        ToolCall(
            call_id="e",
            name="Edit",
            kind="edit",
            content=(Diff(path=f"/home/{LONG}", old="a", new=LONG),),
        ),
        ToolResult(call_id="e"),
        AgentMessage(content=text("word " * 20_000)),  # has a page of its own
    )
    seq = (await hub.sessions.get(LOCAL, session.id)).last_seq
    forks: list[Session] = []
    for answer in ("left", "right"):
        fork = await hub.editor.fork(LOCAL, session.id, at=seq, in_store=True)
        await hub.turns.run(LOCAL, fork.id, f"/say {answer}\n/say {LONG}")
        forks.append(fork)
    await hub.editor.trash(LOCAL, others[0].id)
    await hub.editor.archive(LOCAL, others[1].id)
    secret = await hub.shares.share(LOCAL, session.id)
    return {
        "id": session.id,
        "other": others[2].id,
        "fork": forks[0].id,
        "fork2": forks[1].id,
        "workspace": "local",
        "secret": secret,
        "thread": "th1",
        "seq": str(seq),
        "index": "0",
        "format": "md",
        "version": "-",
        "name": "app.css",
    }


async def open_every_page(
    page: Page, harness: BrowserHarness, values: dict[str, str], *, public: bool
) -> AsyncIterator[str]:
    """Open the pages among all routes, and yield the address of each."""
    paths = [route.path for route in ROUTES if route.method == "GET" and route.path not in STREAMS]
    for path in [*paths, "/nowhere"]:
        if public != (path.startswith(("/login", "/shared/")) or path == "/nowhere"):
            continue
        for query in ("", *VARIANTS.get(path, ())):
            url = re.sub(r"{(\w+)}", lambda match: values[match[1]], f"{path}?{query}".rstrip("?"))
            response = await page.request.get(harness.url + url)
            if not response.headers.get("content-type", "").startswith("text/html"):
                continue
            html = await response.text()
            if not html.startswith("<!DOCTYPE html>"):
                continue  # a part of a page, which our script asks for
            check_html(html)
            await page.goto(harness.url + url)
            yield url


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_page_is_accessible_and_fits_the_screen(
    harness: BrowserHarness, scheme: str
) -> None:
    for status in ("400", "401", "404"):
        harness.expect_problem(status)
    problems: dict[str, list[str]] = {}
    empty = await harness.window(color_scheme=scheme)
    for path in ("/", "/activity", "/dashboard", "/search", "/new"):
        await empty.goto(harness.url + path)
        problems[f"empty {path}"] = await page_problems(empty)
    values = await create_sessions(harness)
    signed_in = await harness.window(color_scheme=scheme)
    async for url in open_every_page(signed_in, harness, values, public=False):
        problems[url] = await page_problems(signed_in)
    signed_out = await harness.anonymous_page(color_scheme=scheme)
    for path in ("/", f"/s/{values['id']}"):
        await signed_out.goto(harness.url + path)
        problems[f"signed out {path}"] = await page_problems(signed_out)
    async for url in open_every_page(signed_out, harness, values, public=True):
        problems[url] = await page_problems(signed_out)
    assert {url: found for url, found in problems.items() if found} == {}
    assert len(problems) >= 50


async def page_problems(page: Page) -> list[str]:
    problems = await accessibility_problems(page)
    for scroller in ("document.documentElement", "document.querySelector('#main')"):
        excess = await page.evaluate(
            f"{scroller} ? {scroller}.scrollWidth - {scroller}.clientWidth : 0"
        )
        if excess > 0:
            problems.append(f"{scroller} is {excess} pixels too wide")
    if await page.evaluate("innerWidth < 761"):
        problems += await page.evaluate(SMALL_TARGETS)
    return problems
