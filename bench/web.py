"""The session browser: first page and search beside agentsview, and long things in a real browser.

`segue serve` and `agentsview serve`, each a process of its own, hold the same 10,000 sessions, each
in its own database: agentsview takes them from Claude Code transcripts, segue has the same words in
its store. Both are asked over kept-open connections, in turn, for what their pages ask for: of a
search, segue's for 12 results, and for more when they are scrolled to; agentsview's for 30. The
system's file cache has both databases by then, so that no disk is measured. Then Chromium opens a
session of 30,000 messages, and scrolls a list of 100,000 sessions to its end.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httptools
from _common import NOW, WORKSPACE, Bench, Times, Words, built, listed, rested, scratch

from segue.factory import open_hub
from segue.model import clock, ids
from segue.model.content import Text
from segue.model.event import AgentMessage, Created, Draft, InfoChanged, ToolCall, UserMessage
from segue.model.event import ToolResult as Result
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.interfaces.web.chromium import ARGUMENTS, NoBrowser, chromium

TIMES_FASTER, OPEN_MS, SHOWN_MS, PAGE_MB = 10.0, 50.0, 300.0, 100.0
# What agentsview's page asks for before it can show its list, and what its search sends.
PEER_PAGE = ("/", "/api/v1/sessions/sidebar-index?timezone=UTC&include_one_shot=true&limit=500")
PEER_SEARCH = "/api/v1/search?q={}&limit=30&sort=relevance"
ROW = 20  # searches that follow each other: the first few only wake a processor up


# The sessions.


class Talk:
    """One session's words: a title is its first prompt, as both programs have it."""

    def __init__(self, number: int, count: int, words: Words, chance: random.Random) -> None:
        self.id = str(uuid.UUID(int=chance.getrandbits(128), version=4))
        self.cwd = f"/home/ada/src/project-{number % 20}"
        self.at = NOW - (count - number) * 100 * clock.SECOND
        self.said = [words.text(chance) for _ in range(6)]

    def drafts(self) -> Iterator[Draft]:
        yield Draft(body=Created(cwd=self.cwd, origin="cli"), at=self.at)
        for number, text in enumerate(self.said):
            kind = AgentMessage if number % 2 else UserMessage
            at = self.at + number * clock.SECOND
            yield Draft(body=kind(content=(Text(text=text),)), at=at)
        title = InfoChanged(title=self.said[0][:80], by="auto")
        yield Draft(body=title, at=self.at + len(self.said) * clock.SECOND)

    def lines(self) -> Iterator[dict[str, Any]]:
        parent = None
        for number, text in enumerate(self.said):
            own = ids.derived_id(self.id, str(number))
            moment = datetime.fromtimestamp(self.at / clock.SECOND + number, UTC)
            role = "assistant" if number % 2 else "user"
            message: dict[str, Any] = {"role": role, "content": text}
            if role == "assistant":
                message["content"] = [{"type": "text", "text": text}]
                message |= {"id": f"msg_{own[:8]}", "type": "message", "model": "claude-sonnet-4-5"}
                message["usage"] = {"input_tokens": 100, "output_tokens": 50}
            yield {
                "parentUuid": parent,
                "isSidechain": False,
                "userType": "external",
                "cwd": self.cwd,
                "sessionId": self.id,
                "version": "2.1.141",
                "gitBranch": "main",
                "type": role,
                "message": message,
                "uuid": own,
                "timestamp": moment.isoformat().replace("+00:00", "Z"),
            }
            parent = own


async def furnish(bench: Bench, data: Path, home: Path, count: int) -> tuple[Path, list[str]]:
    """The same sessions as segue's database and as Claude Code's files; some words to look for."""
    chance, words = random.Random(7), Words()
    talks = [Talk(number, count, words, chance) for number in range(count)]
    data.mkdir()
    store = SQLiteStore.open(data / "segue.db")
    for start in range(0, count, 2000):
        batch = talks[start : start + 2000]
        await asyncio.gather(*(store.create(WORKSPACE, t.id, list(t.drafts())) for t in batch))
    await rested(data / "segue.db")
    await store.close()
    for talk in talks:
        directory = home / ".claude" / "projects" / talk.cwd.replace("/", "-")
        directory.mkdir(parents=True, exist_ok=True)
        made = "".join(json.dumps(line) + "\n" for line in talk.lines())
        (directory / f"{talk.id}.jsonl").write_text(made)
    bench.say(f"made {count:,} sessions for both")
    return data, words.all


async def long_session(data: Path, messages: int) -> str:
    """A session of so many messages, with tool calls among them; its id."""
    words, chance = Words(), random.Random(3)
    async with await open_hub(data, sources="none") as hub:
        id = ids.new_id()
        created = [Created(cwd="/home/ada/src/long"), InfoChanged(title="A long one")]
        await hub.store.create(WORKSPACE, id, created)
        bodies: list[Any] = []
        for number in range(messages // 2):
            bodies.append(UserMessage(content=(Text(text=words.text(chance, 5, 40)),)))
            if number % 2:
                name = f"call-{number}"
                bodies.append(ToolCall(call_id=name, name="Bash", input={"command": "make test"}))
                bodies.append(Result(call_id=name, content=(Text(text=words.text(chance)),)))
            said = words.text(chance, 30, 300)
            bodies.append(AgentMessage(content=(Text(text=f"**{number}** {said}\n\n- {said}"),)))
        for start in range(0, len(bodies), 2000):
            await hub.editor.append(LOCAL, id, *bodies[start : start + 2000])
    return id


async def untrash(data: Path) -> None:
    """Take what is in the trash out of it: a list that is scrolled has all sessions."""
    bare = sqlite3.connect(data / "segue.db")
    gone = [id for (id,) in bare.execute("SELECT id FROM sessions WHERE state = 2")]
    bare.close()
    async with await open_hub(data, sources="none") as hub:
        back = InfoChanged(deleted=False)
        for start in range(0, len(gone), 2000):
            batch = gone[start : start + 2000]
            await asyncio.gather(*(hub.editor.append(LOCAL, id, back) for id in batch))


# The servers.


@contextmanager
def running(port: int, *command: str, **environment: str) -> Iterator[None]:
    child = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(6000):
            if child.poll() is not None:
                raise RuntimeError(f"{command[0]} ended with {child.returncode}")
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield
    finally:
        child.terminate()
        child.wait()


@contextmanager
def segue_at(data: Path, port: int) -> Iterator[None]:
    command = (sys.executable, "-m", "segue", "serve", "--port", str(port), "--sources", "none")
    with running(port, *command, SEGUE_DATA_DIR=str(data)):
        yield


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


class Line:
    """A kept-open connection. It costs little beside what a server takes to answer."""

    def __init__(self, port: int, cookie: str = "") -> None:
        self._port = port
        self._lines = [f"Host: 127.0.0.1:{port}", "Accept: */*"]
        self._lines += [f"Cookie: {cookie}"] if cookie else []
        self._sock = self._connected()

    def search(self, word: str) -> bytes:
        """As segue's page sends it while one types."""
        return self.get(f"/rows?q={word}", "X-Segue: list")

    def get(self, path: str, *lines: str) -> bytes:
        head = [f"GET {path} HTTP/1.1", *self._lines, *lines, "", ""]
        request = "\r\n".join(head).encode()
        answer = self._asked(request)
        if answer is None:  # a server may close what was idle
            self._sock.close()
            self._sock = self._connected()
            answer = self._asked(request)
        if answer is None or answer.status != 200:
            raise RuntimeError(f"{path}: {answer and answer.status}")
        return b"".join(answer.body)

    def _asked(self, request: bytes) -> Answer | None:
        answer = Answer()
        try:
            self._sock.sendall(request)
            while not answer.whole:
                data = self._sock.recv(1 << 18)
                if not data:
                    return None
                answer.take(data)
        except (ConnectionError, TimeoutError):
            return None
        return answer

    def _connected(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self._port), 600)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock


class Answer:
    """A response, as it arrives."""

    def __init__(self) -> None:
        self.body: list[bytes] = []
        self.on_body = self.body.append
        self.status = 0
        self.whole = False
        self._parser = httptools.HttpResponseParser(self)  # it asks for the `on_` methods here
        self.take = self._parser.feed_data

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_message_complete(self) -> None:
        self.whole = True


async def sign_in(data: Path, port: int) -> str:
    """A browser's cookie."""
    async with await open_hub(data, sources="none") as hub:
        token = await hub.logins.use_link(await hub.logins.create_link(LOCAL))
    return f"segue-{port}={token}"


def timed(cases: dict[str, Any], rounds: int, row: int = 1) -> dict[str, Times]:
    """Each case some times in a row each round, in another order every round."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    chance, order = random.Random(0), list(cases.items())
    for number in range(rounds):
        chance.shuffle(order)
        for name, case in order:
            for each in range(row):
                start = time.perf_counter()
                case(number * row + each)
                found[name].append(time.perf_counter() - start)
    return {name: Times(took) for name, took in found.items()}


async def beside(bench: Bench, place: Path, count: int, rounds: int) -> None:
    """First page and search, of both."""
    home = place / "home"
    data, words = await furnish(bench, place / "data", home, count)
    mine, theirs = free_port(), free_port()
    program = shutil.which("agentsview", path=str(Path(sys.executable).parent))
    if program is None:
        raise SystemExit("bench/web.py needs agentsview: pip install 'segue[bench]'")
    peer = (program, "serve", "--no-browser", "--no-update-check", "--port", str(theirs))
    peer += ("--write-timeout", "0")  # its list of 10,000 can take longer than it waits by default
    cookie = await sign_in(data, mine)
    own = {"HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / ".claude")}
    with segue_at(data, mine), running(theirs, *peer, **own):
        us, them = Line(mine, cookie), Line(theirs)
        settle(bench, them, count)
        frequent = {"a common word": 60, "a middling word": 1500, "a rare word": 20_000}
        pages = {
            "us first page": lambda _: us.get("/"),
            "them first page": lambda _: [them.get(path) for path in PEER_PAGE],
        }
        searches: dict[str, Any] = {}
        for name, rank in frequent.items():
            some = words[rank : rank + rounds * ROW]
            searches[f"us {name}"] = lambda at, some=some: us.search(some[at])
            searches[f"them {name}"] = lambda at, some=some: them.get(PEER_SEARCH.format(some[at]))
        cached(data, home / ".agentsview")
        # Its first page can take a minute: a few rounds say enough.
        times = timed(searches, rounds, ROW) | timed(pages, 3)
    for name in ("first page", *frequent):
        ours, peers = times[f"us {name}"].median, times[f"them {name}"].median
        what = name if name == "first page" else f"search, {name}"
        bench.row(
            what,
            f">= {TIMES_FASTER:g}x",
            peers / ours >= TIMES_FASTER,
            **{"segue ms": ours * 1e3, "agentsview ms": peers * 1e3, "x": peers / ours},
        )


def cached(*places: Path) -> None:
    """Put databases into the system's file cache, which may have dropped what was idle."""
    for place in places:
        for path in place.glob("*.db*"):
            with path.open("rb") as file:
                while file.read(1 << 20):
                    pass


def settle(bench: Bench, them: Line, count: int) -> None:
    """Wait until agentsview has taken in all sessions."""
    start = time.perf_counter()
    while time.perf_counter() - start < 1200:
        stats = json.loads(them.get("/api/v1/stats?include_one_shot=true"))
        if stats.get("session_count", 0) >= count:
            bench.say(f"agentsview has them after {time.perf_counter() - start:.0f} s")
            return
        time.sleep(1)
    raise RuntimeError(f"agentsview has not taken in all sessions: {stats}")


# In a browser.


async def in_browser(bench: Bench, place: Path, messages: int, rows: int, rounds: int) -> None:
    try:
        path = chromium()
    except NoBrowser as error:
        bench.note(str(error))
        return
    from playwright.async_api import async_playwright

    data = place / "long"
    data.mkdir()
    shutil.copy(await built(bench, f"listed-{rows}", place, listed(rows), rows), data / "segue.db")
    await untrash(data)
    id = await long_session(data, messages)
    port = free_port()
    cookie = await sign_in(data, port)
    with segue_at(data, port):
        line = Line(port, cookie)
        served = timed({"open": lambda _: line.get(f"/s/{id}")}, rounds)["open"]
        bench.row(
            f"open {messages:,} messages, server",
            f"< {OPEN_MS:g} ms",
            served.median * 1e3 < OPEN_MS,
            **{"segue ms": served.median * 1e3},
        )
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
            context = await browser.new_context(viewport={"width": 1280, "height": 800})
            name, _, value = cookie.partition("=")
            base = f"http://127.0.0.1:{port}"
            await context.add_cookies([{"name": name, "value": value, "url": base}])
            await opened(bench, context, f"{base}/s/{id}", messages, rounds)
            await scrolled(bench, context, base, rows + 1)  # and the long one
            await browser.close()


SHOWN = """() => {
    const items = document.querySelectorAll('#chunks .item');
    const last = items[items.length - 1]?.getBoundingClientRect();
    return last && last.top < innerHeight && last.bottom > 0 ? performance.now() : 0;
}"""


async def opened(bench: Bench, context: Any, address: str, messages: int, rounds: int) -> None:
    """How soon the end of a long session is in view, and what the page weighs after a long read."""
    took = []
    page = await context.new_page()
    for _ in range(rounds):
        await page.goto("about:blank")
        await page.goto(address, wait_until="commit")
        found = await page.wait_for_function(SHOWN, polling="raf")
        took.append(await found.json_value() / 1e3)
    shown = Times(took[1:])
    bench.row(
        f"its end in view, from the click, {messages:,} messages",
        f"< {SHOWN_MS:g} ms",
        shown.median * 1e3 < SHOWN_MS,
        **{"segue ms": shown.median * 1e3},
    )
    worst, most = 0.0, 0
    session = await context.new_cdp_session(page)
    for number in range(150):
        await page.evaluate("document.querySelector('#main').scrollBy(0, -1500)")
        await page.wait_for_timeout(20)
        if number % 15 == 14:
            await session.send("HeapProfiler.collectGarbage")  # what is kept, not what is left over
            worst = max(worst, weight())
            most = max(most, await page.locator("#chunks .item").count())
    bench.row(
        f"the page's weight while it is read ({most} items in it at most)",
        f"< {PAGE_MB:g} MB",
        worst < PAGE_MB,
        MB=worst,
    )
    await page.close()


def weight() -> float:
    """Megabytes that the page's process has to itself."""
    import psutil

    sizes = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "--type=renderer" in " ".join(process.cmdline()):
                sizes.append(process.memory_full_info().uss / 1e6)
        except psutil.Error:
            continue
    return max(sizes, default=0.0)


async def scrolled(bench: Bench, context: Any, base: str, there: int) -> None:
    """Scroll the list to its end: every session seen, no request dropped or failed."""
    page = await context.new_page()
    trouble: list[str] = []
    asked = 0

    def finished(answer: Any) -> None:
        nonlocal asked
        asked += "/rows" in answer.url
        if answer.status >= 400:
            trouble.append(answer.url)

    page.on("response", finished)
    page.on(
        "requestfailed",
        lambda request: trouble.append(request.url) if "/live" not in request.url else None,
    )
    await page.goto(f"{base}/?state=include")
    start = time.perf_counter()
    await page.evaluate(
        """async () => {
            window.seen = new Set();
            const list = document.querySelector('#list');
            const look = () => list.querySelectorAll('.row').forEach(r => seen.add(r.dataset.id));
            let still = 0;
            while (still < 200) {
                const before = seen.size;
                look();
                list.scrollTop = list.scrollHeight;
                await new Promise(next => setTimeout(next, 10));
                still = seen.size > before || list.querySelector('.more') ? 0 : still + 1;
            }
        }"""
    )
    took = time.perf_counter() - start
    seen = await page.evaluate("seen.size")
    left = await page.locator(".row").count()
    bench.row(
        f"scroll {there:,} sessions: requests dropped",
        "0",
        not trouble and seen == there,
        dropped=len(trouble),
    )
    bench.note(
        f"the scroll saw {seen:,} of {there:,} sessions in {took:.0f} s by {asked:,} requests;"
        f" {left:,} rows were in the page at its end"
    )
    await page.close()


async def main() -> int:
    bench = Bench("The session browser", ("segue ms", "agentsview ms", "x", "MB", "dropped"))
    count, rows, messages = (500, 2000, 3000) if bench.quick else (10_000, 100_000, 30_000)
    rounds = 1 if bench.quick else 2
    with scratch() as place:
        await beside(bench, place, count, rounds)
        await in_browser(bench, place, messages, rows, 5 if bench.quick else 15)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
