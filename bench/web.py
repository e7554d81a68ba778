"""Measure the session browser: first page and search, long sessions and long lists.

`segue serve` and `agentsview serve`, each a process of its own, have the same 10,000 sessions.
agentsview imports them from Claude Code transcripts; segue has them in its store. Both are measured
in turn over persistent connections, with the requests that their pages send: a search returns 12
results of segue (more when the user scrolls) and 30 of agentsview. The system's file cache has both
databases, so the disk is not measured. Then Chromium opens a session of 30,000 messages and
scrolls a list of 100,000 sessions to its end. A page at a phone's width shows permission requests
that another process stores.
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
from _common import (
    NOW,
    WORKSPACE,
    Bench,
    Times,
    Vocabulary,
    build_database,
    list_corpus,
    temporary_directory,
    wait_until_idle,
)

from segue.factory import open_hub
from segue.model import clock, ids
from segue.model.content import Text
from segue.model.event import AgentMessage, Created, Draft, InfoChanged, ToolCall, UserMessage
from segue.model.event import ToolResult as Result
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.interfaces.web.chromium import ARGUMENTS, NoBrowser, find_or_install_chromium

MIN_RATIO, MAX_OPEN_MS, MAX_VISIBLE_MS, MAX_PAGE_MB = 10.0, 50.0, 300.0, 100.0
MAX_APPROVAL_MS, MAX_TRANSFERRED_KB = 100.0, 150.0
# The requests that agentsview's page needs before it shows its list, and its search request.
PEER_PAGE = ("/", "/api/v1/sessions/sidebar-index?timezone=UTC&include_one_shot=true&limit=500")
PEER_SEARCH = "/api/v1/search?q={}&limit=30&sort=relevance"
CALLS_IN_A_ROW = 20  # consecutive searches: the first few run on a processor that was idle


# The sessions.


class Conversation:
    """The texts of one session; its title is its first prompt, in both programs."""

    def __init__(self, number: int, count: int, words: Vocabulary, rng: random.Random) -> None:
        self.id = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        self.cwd = f"/home/ada/src/project-{number % 20}"
        self.at = NOW - (count - number) * 100 * clock.SECOND
        self.texts = [words.text(rng) for _ in range(6)]

    def drafts(self) -> Iterator[Draft]:
        """Yield the events that create the session in segue's store."""
        yield Draft(body=Created(cwd=self.cwd, origin="cli"), at=self.at)
        for number, text in enumerate(self.texts):
            kind = AgentMessage if number % 2 else UserMessage
            at = self.at + number * clock.SECOND
            yield Draft(body=kind(content=(Text(text=text),)), at=at)
        title = InfoChanged(title=self.texts[0][:80], by="auto")
        yield Draft(body=title, at=self.at + len(self.texts) * clock.SECOND)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the entries of the session's Claude Code transcript."""
        parent = None
        for number, text in enumerate(self.texts):
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


async def write_sessions(
    bench: Bench, data: Path, home: Path, count: int
) -> tuple[Path, list[str]]:
    """Write the same sessions to a segue store and to transcripts; return the store and words."""
    rng, words = random.Random(7), Vocabulary()
    conversations = [Conversation(number, count, words, rng) for number in range(count)]
    data.mkdir()
    store = SQLiteStore.open(data / "segue.db")
    for start in range(0, count, 2000):
        batch = conversations[start : start + 2000]
        await asyncio.gather(*(store.create(WORKSPACE, t.id, list(t.drafts())) for t in batch))
    await wait_until_idle(data / "segue.db")
    await store.close()
    for conversation in conversations:
        directory = home / ".claude" / "projects" / conversation.cwd.replace("/", "-")
        directory.mkdir(parents=True, exist_ok=True)
        lines = "".join(json.dumps(line) + "\n" for line in conversation.lines())
        (directory / f"{conversation.id}.jsonl").write_text(lines)
    bench.progress(f"wrote {count:,} sessions for both programs")
    return data, words.words


async def long_session(data: Path, messages: int) -> str:
    """Create a session of so many messages and some tool calls; return its id."""
    words, rng = Vocabulary(), random.Random(3)
    async with await open_hub(data, sources="none") as hub:
        id = ids.new_id()
        created = [Created(cwd="/home/ada/src/long"), InfoChanged(title="A long one")]
        await hub.store.create(WORKSPACE, id, created)
        bodies: list[Any] = []
        for number in range(messages // 2):
            bodies.append(UserMessage(content=(Text(text=words.text(rng, 5, 40)),)))
            if number % 2:
                name = f"call-{number}"
                bodies.append(ToolCall(call_id=name, name="Bash", input={"command": "make test"}))
                bodies.append(Result(call_id=name, content=(Text(text=words.text(rng)),)))
            text = words.text(rng, 30, 300)
            bodies.append(AgentMessage(content=(Text(text=f"**{number}** {text}\n\n- {text}"),)))
        for start in range(0, len(bodies), 2000):
            await hub.editor.append(LOCAL, id, *bodies[start : start + 2000])
    return id


async def restore_trashed(data: Path) -> None:
    """Restore all sessions from the trash, so that the list has all sessions."""
    connection = sqlite3.connect(data / "segue.db")
    trashed_ids = [id for (id,) in connection.execute("SELECT id FROM sessions WHERE state = 2")]
    connection.close()
    async with await open_hub(data, sources="none") as hub:
        restored = InfoChanged(deleted=False)
        for start in range(0, len(trashed_ids), 2000):
            batch = trashed_ids[start : start + 2000]
            await asyncio.gather(*(hub.editor.append(LOCAL, id, restored) for id in batch))


# The servers.


@contextmanager
def running(port: int, *command: str, **environment: str) -> Iterator[None]:
    """Start a server and wait until it answers; stop it when the block ends."""
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
    """Run segue until the block ends."""
    command = (sys.executable, "-m", "segue", "serve", "--port", str(port), "--sources", "none")
    with running(port, *command, SEGUE_DATA_DIR=str(data)):
        yield


def free_port() -> int:
    """Return a port that is not in use."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


class HttpConnection:
    """A persistent connection whose own cost is small compared with a server's."""

    def __init__(self, port: int, cookie: str = "") -> None:
        self._port = port
        self._lines = [f"Host: 127.0.0.1:{port}", "Accept: */*"]
        self._lines += [f"Cookie: {cookie}"] if cookie else []
        self._sock = self._connect()

    def search(self, word: str) -> bytes:
        """Send the request that segue's page sends while the user types."""
        return self.get(f"/rows?q={word}", "X-Segue: list")

    def get(self, path: str, *lines: str) -> bytes:
        head = [f"GET {path} HTTP/1.1", *self._lines, *lines, "", ""]
        request = "\r\n".join(head).encode()
        response = self._send(request)
        if response is None:  # a server may close an idle connection
            self._sock.close()
            self._sock = self._connect()
            response = self._send(request)
        if response is None or response.status != 200:
            raise RuntimeError(f"{path}: {response and response.status}")
        return b"".join(response.body)

    def _send(self, request: bytes) -> HttpResponse | None:
        response = HttpResponse()
        try:
            self._sock.sendall(request)
            while not response.complete:
                data = self._sock.recv(1 << 18)
                if not data:
                    return None
                response.feed(data)
        except (ConnectionError, TimeoutError):
            return None
        return response

    def _connect(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self._port), 600)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock


class HttpResponse:
    """A response, as it arrives."""

    def __init__(self) -> None:
        self.body: list[bytes] = []
        self.on_body = self.body.append
        self.status = 0
        self.complete = False
        self._parser = httptools.HttpResponseParser(self)  # looks up the `on_` methods now
        self.feed = self._parser.feed_data

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_message_complete(self) -> None:
        self.complete = True


async def sign_in(data: Path, port: int) -> str:
    """Sign in and return the cookie."""
    async with await open_hub(data, sources="none") as hub:
        token = await hub.logins.use_link(await hub.logins.create_link(LOCAL))
    return f"segue-{port}={token}"


def time_calls(cases: dict[str, Any], rounds: int, row: int = 1) -> dict[str, Times]:
    """Time `row` consecutive calls of each case per round; each round has another order."""
    seconds_by_name: dict[str, list[float]] = {name: [] for name in cases}
    rng, order = random.Random(0), list(cases.items())
    for number in range(rounds):
        rng.shuffle(order)
        for name, case in order:
            for index in range(row):
                start = time.perf_counter()
                case(number * row + index)
                seconds_by_name[name].append(time.perf_counter() - start)
    return {name: Times(elapsed) for name, elapsed in seconds_by_name.items()}


async def compare_agentsview(bench: Bench, directory: Path, count: int, rounds: int) -> None:
    """Compare the first page and searches with agentsview."""
    home = directory / "home"
    data, words = await write_sessions(bench, directory / "data", home, count)
    own_port, other_port = free_port(), free_port()
    program = shutil.which("agentsview", path=str(Path(sys.executable).parent))
    if program is None:
        raise SystemExit("bench/web.py needs agentsview: pip install 'segue[bench]'")
    peer = [program, "serve", "--no-browser", "--no-update-check", "--port", str(other_port)]
    peer += ["--write-timeout", "0"]  # its list of 10,000 takes longer than the default timeout
    cookie = await sign_in(data, own_port)
    own = {"HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / ".claude")}
    with segue_at(data, own_port), running(other_port, *peer, **own):
        segue_connection = HttpConnection(own_port, cookie)
        agentsview_connection = HttpConnection(other_port)
        wait_for_import(bench, agentsview_connection, count)
        first_rank_by_frequency = {"common word": 60, "medium word": 1500, "rare word": 20_000}
        pages = {
            "segue first page": lambda _: segue_connection.get("/"),
            "agentsview first page": lambda _: [
                agentsview_connection.get(path) for path in PEER_PAGE
            ],
        }
        searches: dict[str, Any] = {}
        for name, rank in first_rank_by_frequency.items():
            group = words[rank : rank + rounds * CALLS_IN_A_ROW]
            searches[f"segue {name}"] = lambda at, group=group: segue_connection.search(group[at])
            searches[f"agentsview {name}"] = lambda at, group=group: agentsview_connection.get(
                PEER_SEARCH.format(group[at])
            )
        fill_file_cache(data, home / ".agentsview")
        # agentsview's first page can take a minute, so it is measured a few times only.
        times = time_calls(searches, rounds, CALLS_IN_A_ROW) | time_calls(pages, 3)
    for name in ("first page", *first_rank_by_frequency):
        own_median, other_median = times[f"segue {name}"].median, times[f"agentsview {name}"].median
        label = name if name == "first page" else f"search, {name}"
        bench.row(
            label,
            target=f">= {MIN_RATIO:g}x",
            ok=other_median / own_median >= MIN_RATIO,
            **{
                "segue ms": own_median * 1e3,
                "agentsview ms": other_median * 1e3,
                "ratio": other_median / own_median,
            },
        )


def fill_file_cache(*directories: Path) -> None:
    """Read databases into the system's file cache."""
    for directory in directories:
        for path in directory.glob("*.db*"):
            with path.open("rb") as file:
                while file.read(1 << 20):
                    pass


def wait_for_import(bench: Bench, agentsview_connection: HttpConnection, count: int) -> None:
    """Wait until agentsview has imported all sessions."""
    start = time.perf_counter()
    while time.perf_counter() - start < 1200:
        stats = json.loads(agentsview_connection.get("/api/v1/stats?include_one_shot=true"))
        if stats.get("session_count", 0) >= count:
            bench.progress(f"agentsview imported them in {time.perf_counter() - start:.0f} s")
            return
        time.sleep(1)
    raise RuntimeError(f"agentsview has not imported all sessions: {stats}")


# The web browser.


async def measure_in_browser(
    bench: Bench, directory: Path, messages: int, rows: int, rounds: int
) -> None:
    """Measure a long session and a long list in Chromium."""
    try:
        path = find_or_install_chromium()
    except NoBrowser as error:
        bench.note(str(error))
        return
    from playwright.async_api import async_playwright

    data = directory / "long"
    data.mkdir()
    shutil.copy(
        await build_database(bench, f"listed-{rows}", directory, list_corpus(rows), rows),
        data / "segue.db",
    )
    await restore_trashed(data)
    id = await long_session(data, messages)
    port = free_port()
    cookie = await sign_in(data, port)
    with segue_at(data, port):
        connection = HttpConnection(port, cookie)
        server_times = time_calls({"open": lambda _: connection.get(f"/s/{id}")}, rounds)["open"]
        bench.row(
            f"open a session of {messages:,} messages, server time",
            target=f"< {MAX_OPEN_MS:g} ms",
            ok=server_times.median * 1e3 < MAX_OPEN_MS,
            **{"segue ms": server_times.median * 1e3},
        )
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
            context = await browser.new_context(viewport={"width": 1280, "height": 800})
            name, _, value = cookie.partition("=")
            base = f"http://127.0.0.1:{port}"
            await context.add_cookies([{"name": name, "value": value, "url": base}])
            await measure_first_page(bench, context, base)
            approvals = 3 if bench.quick else 20  # each makes a session
            await measure_approvals(bench, context, base, data, approvals)
            await measure_long_session(bench, context, f"{base}/s/{id}", messages, rounds)
            total = rows + 1 + approvals  # including the long session
            await measure_scrolling(bench, context, base, total)
            await browser.close()


async def measure_first_page(bench: Bench, context: Any, base: str) -> None:
    """Count the bytes of the first page and all that it loads, fonts excepted."""
    page = await context.new_page()
    session = await context.new_cdp_session(page)
    sizes: dict[str, float] = {}
    await session.send("Network.enable")
    await session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    urls: dict[str, str] = {}
    session.on(
        "Network.requestWillBeSent",
        lambda event: urls.update({event["requestId"]: event["request"]["url"]}),
    )
    session.on(
        "Network.loadingFinished",
        lambda event: sizes.update({event["requestId"]: event["encodedDataLength"]}),
    )
    await page.goto(base, wait_until="load")
    await page.wait_for_timeout(2000)  # until the list has loaded the rows below the view
    kilobytes = (
        sum(size for key, size in sizes.items() if not urls.get(key, "").endswith(".woff2")) / 1e3
    )
    bench.row(
        "transferred for the first page, without fonts",
        target=f"<= {MAX_TRANSFERRED_KB:g} KB",
        ok=kilobytes <= MAX_TRANSFERRED_KB,
        KB=kilobytes,
    )
    await page.close()


# Notes when a card of a session that waits appears: the time and the session.
NOTE_CARDS = """() => {
    window.seen = {};
    const note = () => document.querySelectorAll('.waiting-card').forEach(
        card => { if (card.querySelector('.dock')) window.seen[card.dataset.id] ??= Date.now(); });
    new MutationObserver(note).observe(document.body, { childList: true, subtree: true });
}"""


async def measure_approvals(bench: Bench, context: Any, base: str, data: Path, rounds: int) -> None:
    """Measure when a request that another process stores is on an open page of a phone."""
    page = await context.new_page()
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.goto(f"{base}/activity")
    await page.wait_for_timeout(1000)
    await page.evaluate(NOTE_CARDS)
    elapsed = []
    async with await open_hub(data, sources="none") as hub:
        for _ in range(rounds):
            session = await hub.editor.create(LOCAL, title="Waits")
            await hub.turns.submit(LOCAL, session.id, "/write report.md All is well")
            seen = await page.wait_for_function("id => window.seen[id]", arg=session.id, polling=5)
            asked = await hub.history.events(LOCAL, session.id, types=("permission_asked",))
            elapsed.append(await seen.json_value() / 1e3 - asked[-1].at / clock.SECOND)
            await hub.turns.cancel(LOCAL, session.id)
            await page.wait_for_timeout(400)
    times = Times(elapsed)
    bench.row(
        "a request of another process is on an open phone page",
        target=f"< {MAX_APPROVAL_MS:g} ms",
        ok=times.median * 1e3 < MAX_APPROVAL_MS,
        **{"segue ms": times.median * 1e3},
    )
    await page.close()


LAST_ITEM_VISIBLE = """() => {
    const items = document.querySelectorAll('#chunks .item');
    const last = items[items.length - 1]?.getBoundingClientRect();
    return last && last.top < innerHeight && last.bottom > 0 ? performance.now() : 0;
}"""


async def measure_long_session(
    bench: Bench, context: Any, address: str, messages: int, rounds: int
) -> None:
    """Measure when the end of a long session is visible, and the page's memory while scrolling."""
    elapsed = []
    page = await context.new_page()
    for _ in range(rounds):
        await page.goto("about:blank")
        await page.goto(address, wait_until="commit")
        visible_at = await page.wait_for_function(LAST_ITEM_VISIBLE, polling="raf")
        elapsed.append(await visible_at.json_value() / 1e3)
    times_to_end = Times(elapsed[1:])
    bench.row(
        f"the end of {messages:,} messages is visible after the click",
        target=f"< {MAX_VISIBLE_MS:g} ms",
        ok=times_to_end.median * 1e3 < MAX_VISIBLE_MS,
        **{"segue ms": times_to_end.median * 1e3},
    )
    worst, max_items = 0.0, 0
    session = await context.new_cdp_session(page)
    for number in range(150):
        await page.evaluate("document.querySelector('#main').scrollBy(0, -1500)")
        await page.wait_for_timeout(20)
        if number % 15 == 14:
            await session.send("HeapProfiler.collectGarbage")  # garbage must not count
            worst = max(worst, page_megabytes())
            max_items = max(max_items, await page.locator("#chunks .item").count())
    bench.row(
        f"memory of the page while scrolling (at most {max_items} items)",
        target=f"< {MAX_PAGE_MB:g} MB",
        ok=worst < MAX_PAGE_MB,
        MB=worst,
    )
    await page.close()


def page_megabytes() -> float:
    """Return the private memory of the page's process in MB."""
    import psutil

    sizes = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "--type=renderer" in " ".join(process.cmdline()):
                sizes.append(process.memory_full_info().uss / 1e6)
        except psutil.Error:
            continue
    return max(sizes, default=0.0)


async def measure_scrolling(bench: Bench, context: Any, base: str, total: int) -> None:
    """Scroll the list to its end; check that all sessions appear and no request fails."""
    page = await context.new_page()
    failed_urls: list[str] = []
    requests = 0

    def check_response(response: Any) -> None:
        nonlocal requests
        requests += "/rows" in response.url
        if response.status >= 400:
            failed_urls.append(response.url)

    page.on("response", check_response)
    page.on(
        "requestfailed",
        lambda request: failed_urls.append(request.url) if "/live" not in request.url else None,
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
    elapsed = time.perf_counter() - start
    seen = await page.evaluate("seen.size")
    row_count = await page.locator(".row").count()
    bench.row(
        f"failed requests while scrolling {total:,} sessions",
        target="0",
        ok=not failed_urls and seen == total,
        failed=len(failed_urls),
    )
    bench.note(
        f"{seen:,} of {total:,} sessions appeared in {elapsed:.0f} s with {requests:,} requests;"
        f" the page had {row_count:,} rows at the end"
    )
    await page.close()


async def main() -> int:
    bench = Bench(
        "The session browser", ("segue ms", "agentsview ms", "ratio", "MB", "KB", "failed")
    )
    count, rows, messages = (500, 2000, 3000) if bench.quick else (10_000, 100_000, 30_000)
    rounds = 1 if bench.quick else 2
    with temporary_directory() as directory:
        await compare_agentsview(bench, directory, count, rounds)
        await measure_in_browser(bench, directory, messages, rows, 5 if bench.quick else 15)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
