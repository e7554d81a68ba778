"""Several workers on one store: streams across workers, dying workers and shutdown."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from segue.factory import open_hub
from segue.hub.turns.holder import holder_pid
from segue.model import ids
from tests.interfaces.rest.api import HEADERS, message

PROGRAM = Path(__file__).with_name("children") / "serving.py"


class WorkerGroup:
    """Several workers of a server, and an HTTP client."""

    def __init__(self, process: subprocess.Popen[str], directory: Path, database: str) -> None:
        assert process.stdout is not None
        self.process = process
        self.directory, self.database = directory, database
        self.url, self.key = process.stdout.readline().split()
        headers = {**HEADERS, "x-api-key": self.key}
        # A new connection for each request: any of the workers may get it.
        limits = httpx2.Limits(max_keepalive_connections=0)
        self.http = httpx2.Client(base_url=self.url, headers=headers, timeout=120, limits=limits)

    def workers(self) -> list[psutil.Process]:
        """Return the worker processes, without multiprocessing's own helper."""
        children = psutil.Process(self.process.pid).children()
        return [child for child in children if "spawn_main" in " ".join(_command(child))]

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.request(method, path, **({} if body is None else {"json": body}))
        assert answer.status_code == 200, answer.text
        return answer.json()

    def session(self) -> str:
        agent = self.ok("GET", "/v1/agents")["data"][0]["id"]
        environment = self.ok("GET", "/v1/environments")["data"][0]["id"]
        return self.ok("POST", "/v1/sessions", {"agent": agent, "environment_id": environment})[
            "id"
        ]

    def send(self, session: str, text: str) -> None:
        self.ok("POST", f"/v1/sessions/{session}/events", {"events": [message(text)]})

    def events(self, session: str) -> list[dict[str, Any]]:
        return self.ok("GET", f"/v1/sessions/{session}/events")["data"]

    def until(self, session: str, count: int, kind: str) -> list[dict[str, Any]]:
        """Return the events once `count` of them have this type."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            events = self.events(session)
            if sum(event["type"] == kind for event in events) >= count:
                return events
            time.sleep(0.05)
        raise AssertionError([event["type"] for event in self.events(session)])

    async def runner(self, session: str) -> int:
        """Return the process id of the worker that runs a session's turn."""
        async with await open_hub(self.directory, self.database or None) as hub:
            lease = await hub.store.lease_of("local", ids.parse(session) or "")
            assert lease is not None
            return holder_pid(lease.holder)


@contextmanager
def serve_workers(
    directory: Path, database: str = "", *, workers: int = 2, grace: float = 10.0
) -> Iterator[WorkerGroup]:
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(directory), database, str(workers), str(grace)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        group = WorkerGroup(process, directory, database)
        yield group
        group.http.close()
    finally:
        process.terminate()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()


class Listener(threading.Thread):
    """Reads a stream until the session has become idle `rests` times."""

    def __init__(self, serve_workers: WorkerGroup, session: str, rests: int) -> None:
        super().__init__(daemon=True)
        self._crew, self._session, self._rests = serve_workers, session, rests
        self.seen: list[dict[str, Any]] = []
        self.open = threading.Event()
        self.start()

    def run(self) -> None:
        path = f"/v1/sessions/{self._session}/events/stream"
        remaining = self._rests
        with self._crew.http.stream("GET", path) as answer:
            for line in answer.iter_lines():
                self.open.set()
                if line.startswith("data: ") and "ping" not in line:
                    event = json.loads(line[6:])
                    self.seen.append(event)
                    remaining -= event["type"] == "session.status_idle"
                    if not remaining:
                        return


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return ""
    url: str = request.getfixturevalue("migrated_database_url")
    return url


def test_streams_on_every_worker_show_the_turns_of_all_workers(
    tmp_path: Path, database: str
) -> None:
    with serve_workers(tmp_path, database) as team:
        session = team.session()
        listeners = [Listener(team, session, 3) for _ in range(8)]
        assert all(listener.open.wait(20) for listener in listeners)
        for number in range(3):
            team.send(session, f"/say {number}\n/tool x y")
            team.until(session, number + 1, "session.status_idle")
        for listener in listeners:
            listener.join(20)
        events = team.events(session)
        assert [listener.seen for listener in listeners] == [events] * 8


def test_no_worker_replays_a_turn_that_another_has_delivered(tmp_path: Path) -> None:
    with serve_workers(tmp_path) as team:
        session = team.session()
        for number in range(12):
            with _stream(team, session) as stream:  # on any of the workers
                team.send(session, f"/say {number}")
                replies = []
                while True:
                    (event,) = _read(stream, 1)
                    if event["type"] == "agent.message":
                        replies.append(event["content"][0]["text"])
                    if event["type"] == "session.status_idle":
                        break
            assert replies == [str(number)]


async def test_turn_of_a_killed_worker_ends_and_the_other_workers_serve(
    tmp_path: Path, database: str
) -> None:
    with serve_workers(tmp_path, database) as team:
        session = team.session()
        team.send(session, "/say begun\n/tool x\n/wait 60")
        team.send(session, "/say picked up")  # waits, unbegun
        team.until(session, 1, "agent.message")
        before = {worker.pid for worker in team.workers()}
        killed = await team.runner(session)
        assert killed in before
        os.kill(killed, signal.SIGKILL)
        events = team.until(session, 2, "session.status_idle")
        errors = [event["error"]["message"] for event in events if event["type"] == "session.error"]
        assert errors == ["the process that ran this turn ended before it did"]
        ends = [event["stop_reason"]["type"] for event in events if event["type"].endswith("_idle")]
        assert ends == ["retries_exhausted"] * 2 + ["end_turn"] * 2
        replies = [
            event["content"][0]["text"] for event in events if event["type"] == "agent.message"
        ]
        assert replies == ["begun", "picked up"]
        # Another worker replaced it.
        deadline = time.monotonic() + 60
        while len(team.workers()) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        after = {worker.pid for worker in team.workers()}
        assert len(after) == 2 and killed not in after
        team.send(session, "/say still here")
        assert "still here" in str(team.until(session, 3, "session.status_idle"))


def test_a_server_whose_workers_cannot_start_does_not_announce_itself(tmp_path: Path) -> None:
    program = f"""
import pathlib
from segue.server.settings import ServerSettings
from segue.server.sockets import listen
from segue.server.workers import supervise
if __name__ == "__main__":
    directory = pathlib.Path({str(tmp_path)!r})
    settings = ServerSettings(directory=directory, database_url="postgresql://127.0.0.1:1/none")
    supervise(settings, listen("127.0.0.1", 0), 2, ready=lambda: print("ready"))
"""
    path = tmp_path / "program.py"
    path.write_text(program)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=300)
    assert "the workers end just after they start" in done.stderr
    assert (done.returncode, done.stdout) == (1, "")


def test_workers_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    with serve_workers(tmp_path) as team:
        team.session()
        workers = team.workers()
        assert len(workers) == 2
        team.process.kill()
        _, alive = psutil.wait_procs(workers, timeout=120)
        assert not alive


def test_each_worker_reports_the_metrics_of_living_and_dead_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with serve_workers(tmp_path / "data") as team:
        for _ in range(20):
            team.ok("GET", "/v1/models")

        def counted() -> float:
            text = team.http.get("/metrics").text
            for line in text.splitlines():
                if line.startswith("segue_http_requests_total") and "/v1/models" in line:
                    return float(line.split()[-1])
            return 0.0

        def published() -> float:
            """Return the sum of the workers' own files."""
            files = [path for path in temporary.glob("segue-workers-*/*") if not path.suffix]
            return sum(
                value
                for path in files
                for name, labels, value in json.loads(path.read_bytes())
                if name == "segue_http_requests_total" and "/v1/models" in str(labels)
            )

        deadline = time.monotonic() + 60
        # What a worker has counted and not published dies with it.
        while published() != 20.0 or {counted() for _ in range(10)} != {20.0}:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        killed = team.workers()[0]
        killed.kill()
        while len(team.workers()) < 2 or killed.pid in {worker.pid for worker in team.workers()}:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert {counted() for _ in range(10)} == {20.0}


@pytest.mark.full  # in the default tier, test_stopping.py has a turn that ends in the grace period
def test_a_stopping_server_waits_for_running_turns(tmp_path: Path) -> None:
    with serve_workers(tmp_path, grace=20) as team:
        session = team.session()
        team.send(session, "/say begun\n/wait 1.5\n/say done")
        team.send(session, "/say later")
        team.until(session, 1, "agent.message")
        team.process.terminate()
        assert team.process.wait(60) == 0
    with serve_workers(tmp_path, workers=1) as team:
        events = team.until(session, 2, "session.status_idle")
        replies = [
            event["content"][0]["text"] for event in events if event["type"] == "agent.message"
        ]
        assert replies == ["begun", "done", "later"]
        assert not [event for event in events if event["type"] == "session.error"]


def test_a_turn_that_exceeds_the_grace_period_ends_with_an_error(tmp_path: Path) -> None:
    with serve_workers(tmp_path, grace=0.2) as team:
        session = team.session()
        team.send(session, "/say begun\n/wait 60")
        team.until(session, 1, "agent.message")
        team.process.terminate()
        assert team.process.wait(60) == 0
    with serve_workers(tmp_path, workers=1) as team:
        events = team.events(session)
        assert events[-1]["stop_reason"] == {"type": "retries_exhausted"}
        (error,) = [event["error"] for event in events if event["type"] == "session.error"]
        assert error["message"] == "the server was stopped before this turn had ended"
        assert "user.interrupt" not in {event["type"] for event in events}


def _sockets(team: WorkerGroup) -> int:
    """Return the number of TCP sockets of all workers. Files of the store are not in it."""
    return sum(len(worker.net_connections("tcp")) for worker in team.workers())


@pytest.mark.parametrize("streams_per_session", [10, pytest.param(50, marks=pytest.mark.full)])
def test_hundreds_of_streams_neither_lose_nor_repeat_events(
    tmp_path: Path, streams_per_session: int
) -> None:
    sessions, turns = 10, 3
    with serve_workers(tmp_path) as team, ExitStack() as stack:
        names = [team.session() for _ in range(sessions)]
        idle = [(worker.num_fds(), worker.memory_info().rss) for worker in team.workers()]
        idle_sockets = _sockets(team)
        streams = [
            (name, stack.enter_context(_stream(team, name)))
            for name in names
            for _ in range(streams_per_session)
        ]
        descriptor_counts = [worker.num_fds() for worker in team.workers()]
        assert (
            sum(descriptor_counts) - sum(fds for fds, _ in idle) >= sessions * streams_per_session
        )
        _counted(team, sessions * streams_per_session)
        for number in range(turns):
            for name in names:
                team.send(name, f"/say {number}\n/tool x y")
        histories = {name: team.until(name, turns, "session.status_idle") for name in names}
        for name, answer in streams:
            assert _read(answer, len(histories[name])) == histories[name]
        grown = sum(worker.memory_info().rss for worker in team.workers())
        grown -= sum(rss for _, rss in idle)
        assert grown < sessions * streams_per_session * 400_000, (
            "a stream should cost well under 400 kB"
        )
        stack.close()
        _counted(team, 0)
        deadline = time.monotonic() + 60
        while _sockets(team) > idle_sockets + 20:
            assert time.monotonic() < deadline, "streams that were closed keep their sockets"
            time.sleep(0.1)


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []  # it has just ended


def _counted(team: WorkerGroup, streams: int) -> None:
    """Wait until that is how many streams the workers say are open."""
    deadline = time.monotonic() + 60
    while f"segue_streams_open {streams}\n" not in team.http.get("/metrics").text:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@contextmanager
def _stream(team: WorkerGroup, session: str) -> Iterator[Any]:
    """A socket with an open stream: a thread or a client each would be the heavier part."""
    import socket

    host, port = team.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 30) as sock:
        lines = [f"GET /v1/sessions/{session}/events/stream HTTP/1.1", f"Host: {host}"]
        headers = {**HEADERS, "x-api-key": team.key}
        lines += [f"{name}: {value}" for name, value in headers.items()]
        sock.sendall("\r\n".join([*lines, "", ""]).encode())
        file = sock.makefile("rb")
        while not file.readline().startswith(b"event: ping"):
            pass
        yield file
        file.close()


def _read(file: Any, count: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    while len(events) < count:
        line = file.readline()
        assert line
        if line.startswith(b"data: ") and b'"ping"' not in line:
            events.append(json.loads(line[6:]))
    return events
