"""Make the screenshots in docs/images from a small store of example sessions.

Run it in the test environment: `.venv/test/bin/python docs/screenshots.py`. `--all DIRECTORY`
writes every page in both themes, on a phone and on a desktop, to look at.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn
from playwright.async_api import Browser, async_playwright

from segue.hub import Hub
from segue.interfaces.web import WebApp
from segue.model import clock, ids
from segue.model.content import Diff, Text
from segue.model.event import (
    AgentMessage,
    AgentThought,
    Created,
    Draft,
    InfoChanged,
    Location,
    PlanChanged,
    PlanEntry,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
from tests.interfaces.web.chromium import ARGUMENTS, find_or_install_chromium  # noqa: E402

IMAGES = Path(__file__).parent / "images"
WIDTHS = {"phone": (390, 844), "tablet": (1024, 768), "desktop": (1440, 900)}
MODEL = "claude-sonnet-4-5"
OLD = """def charge(invoice, gateway):
    total = invoice.net * 1.19
    return gateway.charge(invoice.customer, total)
"""
NEW = """def charge(invoice, gateway):
    rate = vat_rate(invoice.country)
    total = invoice.net * (1 + rate)
    return gateway.charge(invoice.customer, total)
"""
FILE = "\n".join(f"{number:6}→{line}" for number, line in enumerate(OLD.splitlines(), 1))
RED, GREEN, BOLD, PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[1m", "\x1b[0m"
FAILURE = f"""{BOLD}=================== test session starts ==================={PLAIN}
platform linux -- Python 3.12.3, pytest-8.3.4
rootdir: /home/dev/payments-api
collected 42 items

tests/test_charge.py {GREEN}......{RED}F{GREEN}...{PLAIN}                [ 23%]
tests/test_invoice.py {GREEN}....................{PLAIN}     [ 71%]
tests/test_refund.py {GREEN}............{PLAIN}              [100%]

========================= FAILURES =========================
{RED}{BOLD}____________ test_reverse_charge_has_no_vat ________________{PLAIN}

    def test_reverse_charge_has_no_vat():
        invoice = Invoice(net=100, country="FR", customer=BUSINESS)
>       assert charge(invoice, gateway) == 100
{RED}E       assert 120.0 == 100{PLAIN}

tests/test_charge.py:58: AssertionError
{RED}=============== 1 failed, 41 passed in 1.20s ==============={PLAIN}"""
MATCHES = r"""src/charge.py:2:    total = invoice.net * 1.19
src/refund.py:9:    net = total / 1.19
tests/test_charge.py:12:    assert total == 119"""
ISSUE = '{"id": "PAY-213", "title": "VAT of foreign buyers", "state": "In progress"}'
PROMPT = "Invoices to France are charged with German VAT. Use the rate of the buyer's country."
REFUNDS = "Also refunds, please."
PROJECT = "/home/dev/payments-api"
RATES = "EU = {'DE', 'FR'}\nHOME = 'DE'\nRATES = {'DE': 0.19, 'FR': 0.20}\n"
ANSWER = """Charges now use the **VAT rate of the buyer's country**.

- `vat_rate` reads the table in `rates.toml`
- a business in another EU country pays no VAT (reverse charge)

```python
def vat_rate(country: str, *, business: bool = False) -> float:
    if business and country in EU and country != HOME:
        return 0.0
    return RATES[country]
```

| country | rate |
|---|---:|
| DE | 19 % |
| FR | 20 % |
"""


def text(value: str) -> tuple[Text, ...]:
    """Return a text as content."""
    return (Text(text=value),)


def tool(
    call: str, name: str, kind: Any, output: str, failed: bool = False, **fields: Any
) -> list[Any]:
    """Return a tool call and its result."""
    content = fields.pop("content", ())
    locations = fields.pop("locations", ())
    exit_code = fields.pop("exit_code", None)
    return [
        ToolCall(
            call_id=call, name=name, kind=kind, input=fields, content=content, locations=locations
        ),
        ToolResult(
            call_id=call,
            content=text(output),
            status="failed" if failed else "completed",
            exit_code=exit_code,
        ),
    ]


async def create_sessions(hub: Hub) -> dict[str, str]:
    """Create the example sessions; return their ids by name."""
    now = clock.now()
    bodies: list[Any] = [
        Created(cwd="/home/dev/payments-api", git_branch="vat-by-country", origin="cli"),
        InfoChanged(title="Charge VAT by country", tag="billing"),
        UserMessage(content=text(PROMPT)),
        AgentThought(content=text("I need to find where the rate is applied.")),
        PlanChanged(
            entries=(
                PlanEntry(content="Find where VAT is added", status="completed"),
                PlanEntry(content="Use the rate of the country", status="completed"),
                PlanEntry(content="Handle reverse charge", status="in_progress"),
            )
        ),
        *tool("c1", "Grep", "search", MATCHES, pattern=r"1\.19", path="/home/dev/payments-api"),
        *tool("c2", "Read", "read", FILE, file_path=f"{PROJECT}/src/charge.py", offset=1, limit=33),
        *tool(
            "c3",
            "Read",
            "read",
            "     1→[rates]\n     2→DE = 0.19\n     3→FR = 0.20",
            file_path="/home/dev/payments-api/rates.toml",
        ),
        *tool(
            "c4",
            "Bash",
            "execute",
            "On branch vat-by-country\nnothing to commit",
            command="git status",
        ),
        *tool(
            "c5",
            "Edit",
            "edit",
            "The file has been updated.",
            content=(Diff(path=f"{PROJECT}/src/charge.py", old=OLD, new=NEW),),
            locations=(Location(path=f"{PROJECT}/src/charge.py", line=1),),
        ),
        *tool("c6", "Bash", "execute", FAILURE, failed=True, command="pytest -q", exit_code=1),
        *tool("c7", "mcp__linear__get_issue", "other", ISSUE, id="PAY-213"),
        AgentMessage(
            content=text(
                "One test fails: a business in another EU country pays no VAT. I add that."
            ),
            model=MODEL,
            usage=Usage(
                input_tokens=8200, output_tokens=640, cache_read_tokens=51_000, cost=84_000
            ),
        ),
        *tool(
            "c8",
            "Write",
            "edit",
            "The file was written.",
            file_path=f"{PROJECT}/src/rates.py",
            content=(Diff(path=f"{PROJECT}/src/rates.py", new=RATES),),
        ),
        *tool("c9", "Bash", "execute", "42 passed in 1.11s", command="pytest -q", exit_code=0),
        AgentMessage(
            content=text(ANSWER),
            model=MODEL,
            usage=Usage(
                input_tokens=1840, output_tokens=912, cache_read_tokens=62_000, cost=41_000
            ),
        ),
        UserMessage(content=text(REFUNDS)),
        *tool(
            "d1",
            "Edit",
            "edit",
            "The file has been updated.",
            content=(
                Diff(
                    path=f"{PROJECT}/src/refund.py",
                    old="    net = total / 1.19\n",
                    new="    net = total / (1 + vat_rate(country))\n",
                ),
            ),
        ),
        *tool("d2", "Bash", "execute", "42 passed in 1.13s", command="pytest -q", exit_code=0),
        AgentMessage(
            content=text("Refunds use the same rate now. All 42 tests pass."),
            model=MODEL,
            usage=Usage(input_tokens=940, output_tokens=210, cache_read_tokens=64_000, cost=23_000),
        ),
    ]
    start = now - 9 * 60 * clock.SECOND
    drafts = [
        Draft(body=body, at=start + index * 7 * clock.SECOND) for index, body in enumerate(bodies)
    ]
    main = await hub.store.create("local", ids.new_id(), drafts)
    topics = (
        ("Speed up the nightly build", "build-tools", "codex", 2),
        ("Login page: remember the chosen language", "web-shop", "cli", 5),
        ("Why does the importer skip empty rows?", "importer", "cli", 20),
        ("Upgrade to Python 3.13", "payments-api", "acp", 26),
        ("Write a migration for the orders table", "web-shop", "cli", 50),
        ("Flaky test in the scheduler", "build-tools", "cli", 75),
        ("Translate the error pages", "web-shop", "acp", 120),
        ("Draft the release notes", "docs", "cli", 200),
    )
    for number, (title, project, origin, hours) in enumerate(topics):
        at = now - hours * 3600 * clock.SECOND
        usage = Usage(
            input_tokens=4000 * (number + 1), output_tokens=900, cost=52_000 * (number + 1)
        )
        await hub.store.create(
            "local",
            ids.new_id(),
            [
                Draft(body=body, at=at)
                for body in (
                    Created(cwd=f"/home/dev/{project}", git_branch="main", origin=origin),
                    InfoChanged(title=title),
                    UserMessage(content=text(title)),
                    *tool("a", "Bash", "execute", "ok", command="make", exit_code=0),
                    AgentMessage(content=text("Done."), model=MODEL, usage=usage),
                )
            ],
        )
    before_refunds = next(
        number
        for number, body in enumerate(bodies)
        if isinstance(body, UserMessage) and body.content == text(REFUNDS)
    )
    fork = await hub.editor.fork(LOCAL, main.id, at=before_refunds, origin="web", in_store=True)
    await hub.turns.run(LOCAL, fork.id, "/say Refunds keep the rate of their invoice.")
    waiting = await hub.editor.create(LOCAL, title="Write the report", origin="web")
    await hub.turns.submit(LOCAL, waiting.id, [Text(text="/write report.md All tests pass.")])
    for _ in range(100):
        if (await hub.sessions.get(LOCAL, waiting.id)).open_asks:
            break
        await asyncio.sleep(0.05)
    return {"main": main.id, "fork": fork.id, "waiting": waiting.id}


async def shoot(
    browser: Browser,
    url: str,
    token: str,
    path: str,
    file: Path,
    width: str,
    scheme: Any,
    prepare: str = "",
) -> None:
    """Write the screenshot of one page."""
    size = WIDTHS[width]
    context = await browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,
        reduced_motion="reduce",
        has_touch=width == "phone",
    )
    page = await context.new_page()
    page.on(
        "console",
        lambda message: (
            print(path, message.type, message.text) if message.type == "error" else None
        ),
    )
    page.on("pageerror", lambda error: print(path, error))
    await page.goto(f"{url}/login?token={token}&next={quote(path)}")
    await page.wait_for_timeout(700)
    if prepare:
        await page.evaluate(prepare)
        await page.wait_for_timeout(600)
    await page.screenshot(path=file)
    await context.close()


OPEN = "innerWidth < 1280 && document.querySelector('#inspector-toggle').click();"
TOP = "document.querySelector('#main').scrollTop = 0"


def pages(ids: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Return the pages by name: the path, and a script that prepares the page."""
    main = f"/s/{ids['main']}"
    return {
        "home": ("/", ""),
        "activity": ("/activity", ""),
        "session": (main, TOP),
        "session-end": (main, ""),
        "changes": (main, OPEN + "document.querySelector('[data-pane=changes]').click()"),
        "info": (main, OPEN + "document.querySelector('[data-pane=info]').click()"),
        "errors": (main, "document.querySelector('[data-view=errors]').click()"),
        "approval": (f"/s/{ids['waiting']}", ""),
        "dashboard": ("/dashboard?days=30", ""),
        "new": ("/new", ""),
        "search": ("/search?q=vat", ""),
        "palette": ("/", "document.querySelector('#palette-open').click()"),
        "compare": (f"/compare?a={ids['main']}&b={ids['fork']}", ""),
        "share": (f"{main}/share", ""),
    }


# The screenshots of README and docs: file, page, width, theme.
SHOTS = (
    ("session.png", "session", "desktop", "light"),
    ("session-dark.png", "changes", "desktop", "dark"),
    ("home.png", "home", "desktop", "light"),
    ("search.png", "search", "desktop", "light"),
    ("dashboard.png", "dashboard", "desktop", "light"),
    ("compare.png", "compare", "desktop", "dark"),
    ("approval-phone.png", "approval", "phone", "dark"),
)


async def main() -> None:
    """Start a server with the example sessions and write the screenshots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path)
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        async with Hub(SQLiteStore.open(Path(directory) / "segue.db"), Path(directory)) as hub:
            session_ids = await create_sessions(hub)
            sock = socket.socket()
            sock.bind(("127.0.0.1", 0))
            app = WebApp(hub)
            config = uvicorn.Config(app, lifespan="off", ws="none", log_level="warning")
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve(sockets=[sock]))
            url = f"http://127.0.0.1:{sock.getsockname()[1]}"
            shots = SHOTS
            if arguments.all:
                arguments.all.mkdir(parents=True, exist_ok=True)
                shots = tuple(
                    (f"{name}-{width}-{scheme}.png", name, width, scheme)
                    for name in arguments.only or pages(session_ids)
                    for width in ("phone", "desktop")
                    for scheme in ("light", "dark")
                )
            target = arguments.all or IMAGES
            target.mkdir(exist_ok=True)
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(
                    executable_path=find_or_install_chromium(), args=ARGUMENTS
                )
                for file, name, width, scheme in shots:
                    path, prepare = pages(session_ids)[name]
                    token = await hub.logins.create_link(LOCAL)
                    await shoot(browser, url, token, path, target / file, width, scheme, prepare)
                await browser.close()
            app.closing.set()
            server.should_exit = True
            await serving


if __name__ == "__main__":
    asyncio.run(main())
