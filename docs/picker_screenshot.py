"""Make docs/images/picker.png: the picker over example sessions of several tools.

Run it in the test environment: `.venv/test/bin/python docs/picker_screenshot.py`. segue's own
writers write the sessions in the format of each tool, the real program lists them in a terminal
emulator, and Chromium draws its screen.
"""

from __future__ import annotations

import asyncio
import html
import os
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import pexpect
import pyte
from playwright.async_api import async_playwright

import segue
from segue.hub import Hub
from segue.model import clock, ids
from segue.model.content import Text
from segue.model.event import (
    AgentMessage,
    Created,
    Draft,
    InfoChanged,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.store.sqlite import SQLiteStore

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
from tests.interfaces.web.chromium import ARGUMENTS, find_or_install_chromium  # noqa: E402

IMAGE = Path(__file__).parent / "images" / "picker.png"
COLUMNS, LINES = 110, 18
SETTLE_SECONDS = 3.0

# Tool, project, age in hours, prompt, command, its output, answer.
SESSIONS = (
    (
        "claude",
        "payments-api",
        0.2,
        "Retry charges when the gateway says connection refused",
        "pytest -q tests/test_charge.py",
        "12 passed in 0.41s",
        "The gateway client now retries three times, with a pause that doubles each time.",
    ),
    (
        "codex",
        "build-tools",
        2,
        "Speed up the nightly build",
        "make -j8 dist",
        "built in 212 s",
        "The build reuses the package cache now: 212 s instead of 840 s.",
    ),
    (
        "gemini",
        "web-shop",
        5,
        "Remember the chosen language on the login page",
        "npm test",
        "31 passing",
        "The language is kept in a cookie and used before the login.",
    ),
    (
        "copilot",
        "importer",
        21,
        "Why does the importer skip empty rows?",
        "grep -n empty src/rows.py",
        "41: if not row: continue",
        "Line 41 skips rows without a value. An empty row in the middle is skipped too.",
    ),
    (
        "qwen",
        "web-shop",
        49,
        "Write a migration for the orders table",
        "make migrate",
        "1 migration applied",
        "The migration adds `shipped_at` and fills it from the log.",
    ),
    (
        "kimi",
        "docs",
        98,
        "Draft the release notes",
        "git log --oneline v2.1..",
        "46 commits",
        "The notes have four sections: new, changed, fixed and removed.",
    ),
    (
        "segue",
        "payments-api",
        170,
        "Upgrade to Python 3.13",
        "pytest -q",
        "420 passed in 18.2s",
        "All tests pass with Python 3.13. Two deprecated calls are replaced.",
    ),
)


async def write_sessions(home: Path) -> None:
    """Write the example sessions in the files of their tools, and segue's own in its store."""
    staging = home / "staging"
    for tool, project, hours, prompt, command, output, answer in SESSIONS:
        directory = home / "code" / project
        directory.mkdir(parents=True, exist_ok=True)
        at = clock.now() - int(hours * 3600) * clock.SECOND
        bodies = (
            Created(cwd=str(directory), git_branch="main", origin="cli"),
            InfoChanged(title=prompt),
            UserMessage(content=(Text(text=prompt),)),
            ToolCall(call_id="c1", name="bash", kind="execute", input={"command": command}),
            ToolResult(call_id="c1", content=(Text(text=output),), status="completed", exit_code=0),
            AgentMessage(content=(Text(text=answer),)),
        )
        store = Path(os.environ["SEGUE_DATA_DIR"]) if tool == "segue" else staging
        store.mkdir(exist_ok=True)
        async with Hub(SQLiteStore.open(store / "segue.db"), store) as hub:
            drafts = [Draft(body=body, at=at) for body in bodies]
            session = await hub.store.create("local", ids.new_id(), drafts)
        if tool != "segue":
            # The new session has the time at which it is written.
            with patch.object(clock, "now", lambda at=at: at):
                await segue.resume_in(session.id, tool, store=store)


def read_screen() -> pyte.Screen:
    """Run the picker in a terminal emulator and return its screen."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    child = pexpect.spawn(
        sys.executable, ["-m", "segue"], env=environment, dimensions=(LINES, COLUMNS)
    )
    end = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < end:
        try:
            stream.feed(child.read_nonblocking(65536, timeout=0.2))
        except pexpect.TIMEOUT:
            continue
    child.close(force=True)
    return screen


COLORS = {
    "default": "#d8dee9",
    "black": "#2b303b",
    "red": "#e06c75",
    "green": "#98c379",
    "brown": "#e5c07b",
    "blue": "#61afef",
    "magenta": "#c678dd",
    "cyan": "#56b6c2",
    "white": "#d8dee9",
    "brightblack": "#7f8795",
}
BACKGROUND = "#1e222a"


def _color(name: str) -> str:
    return COLORS.get(name) or (f"#{name}" if len(name) == 6 else COLORS["default"])


def as_html(screen: pyte.Screen) -> str:
    """Return a page that looks like the screen."""
    lines = []
    for row in range(LINES):
        cells = []
        for column in range(COLUMNS):
            cell = screen.buffer[row][column]
            front = _color(cell.fg)
            back = BACKGROUND if cell.bg == "default" else _color(cell.bg)
            if cell.reverse:
                front, back = back, front
            style = (
                f"color:{front};background:{back};font-weight:{'bold' if cell.bold else 'normal'}"
            )
            cells.append(f'<span style="{style}">{html.escape(cell.data) or " "}</span>')
        lines.append("".join(cells))
    return (
        f'<body style="margin:0;background:{BACKGROUND}"><pre id="screen" style="margin:0;'
        "display:inline-block;padding:14px;font:15px/20px 'DejaVu Sans Mono',monospace\">"
        + "\n".join(lines)
        + "</pre></body>"
    )


async def main() -> None:
    """Write the image."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        for name in list(os.environ):
            if name.endswith(("_HOME", "_CONFIG_DIR")) or name.startswith(("XDG_", "SEGUE_")):
                del os.environ[name]
        os.environ |= {"HOME": str(home), "SEGUE_DATA_DIR": str(home / "data")}
        await write_sessions(home)
        os.chdir(home / "code" / "payments-api")
        page_text = as_html(read_screen())
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=find_or_install_chromium(), args=ARGUMENTS
        )
        page = await browser.new_page()
        await page.set_content(page_text)
        IMAGE.parent.mkdir(exist_ok=True)
        await page.locator("#screen").screenshot(path=IMAGE)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
