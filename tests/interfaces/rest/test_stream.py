"""Event streams of a real server, read frame by frame."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from segue.interfaces.rest.events.stream import MAX_SEARCHED_EVENTS
from segue.model import ids
from segue.model.event import Event, ToolCall
from segue.model.principal import LOCAL
from tests.clients.rest_server import Server, serving
from tests.interfaces.rest.api import HEADERS, message, open_api
from tests.interfaces.rest.response_check import check_frame


class Client:
    """A client over plain HTTP, which sees frames as they are sent."""

    def __init__(self, server: Server) -> None:
        headers = {**HEADERS, "x-api-key": server.key}
        self.http = httpx2.Client(base_url=server.url, headers=headers, timeout=30)

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        response = self.http.request(method, path, **({} if body is None else {"json": body}))
        assert response.status_code == 200, response.text
        return response.json()

    def session(self) -> str:
        agent = self.ok("GET", "/v1/agents")["data"][0]["id"]
        environment_id = self.ok("GET", "/v1/environments")["data"][0]["id"]
        return self.ok("POST", "/v1/sessions", {"agent": agent, "environment_id": environment_id})[
            "id"
        ]

    def send(self, session: str, *events: Any) -> Any:
        return self.ok("POST", f"/v1/sessions/{session}/events", {"events": list(events)})

    @contextmanager
    def stream(
        self, session: str, query: str = "", **headers: str
    ) -> Iterator[Iterator[dict[str, Any]]]:
        path = f"/v1/sessions/{session}/events/stream{query}"
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        with self.http.stream("GET", path, headers=names) as response:
            assert response.status_code == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            yield frames(response.iter_lines())

    def idle(self, session: str) -> None:
        """Wait until a session is idle, without a stream."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if self.ok("GET", f"/v1/sessions/{session}/events?types[]=session.status_idle")["data"]:
                return
            time.sleep(0.05)
        raise AssertionError("the session does not come to rest")


def frames(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Yield the frames of a stream with their names and ids, without pings."""
    frame: dict[str, Any] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line:
            frame[name] = json.loads(value) if name == "data" else value
            continue
        assert frame["event"] == frame["data"]["type"]
        check_frame(frame["data"])
        if frame["event"] != "ping":
            yield frame
        frame = {}


def read_until(frames: Iterator[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    results = []
    for frame in frames:
        results.append(frame)
        if frame["event"] == kind:
            return results
    raise AssertionError(f"the stream ended before {kind}: {[f['event'] for f in results]}")


def data(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [frame["data"] for frame in frames]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("rest")) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    client = Client(server)
    yield client
    client.http.close()


def test_stream_shows_a_turn_as_the_list_does(client: Client) -> None:
    id = client.session()
    with client.stream(id) as stream:
        client.send(id, message("/say hello\n/usage 1 2"))
        seen = read_until(stream, "session.status_idle")
    assert data(seen) == client.ok("GET", f"/v1/sessions/{id}/events")["data"]
    assert all("id" in frame for frame in seen)


def test_stream_opened_after_a_quick_turn_replays_it(client: Client) -> None:
    id = client.session()
    client.send(id, message("quick"))
    deadline = time.monotonic() + 60
    while client.ok("GET", f"/v1/sessions/{id}")["stats"]["active_seconds"] == 0:
        assert time.monotonic() < deadline
    with client.stream(id) as stream:
        seen = read_until(stream, "session.status_idle")
    assert seen[0]["event"] == "session.status_running"


def test_turn_whose_end_was_received_is_not_replayed(client: Client) -> None:
    id = client.session()
    for number in range(3):
        with client.stream(id) as stream:
            client.send(id, message(f"/say {number}"))
            seen = read_until(stream, "session.status_idle")
        sent = [
            item["content"][0]["text"] for item in data(seen) if item["type"] == "agent.message"
        ]
        assert sent == [str(number)]


def test_turn_of_another_interface_is_not_replayed(client: Client, server: Server) -> None:
    id = client.session()
    prompting = [sys.executable, "-m", "segue", "prompt", id, "/say from the terminal"]
    subprocess.run(prompting, env=server.environment, check=True, capture_output=True)
    with client.stream(id) as stream:
        client.send(id, message("/say from here"))
        seen = read_until(stream, "session.status_idle")
    sent = [item["content"][0]["text"] for item in data(seen) if item["type"] == "agent.message"]
    assert sent == ["from here"]


def test_stream_that_opens_during_a_turn_starts_with_that_turn(client: Client) -> None:
    id = client.session()
    with client.stream(id) as first:
        client.send(id, message("/say one\n/wait 1\n/say two"))
        read_until(first, "agent.message")
        with client.stream(id) as second:
            seen = read_until(second, "session.status_idle")
    assert seen[0]["event"] == "session.status_running"
    sent = [item["content"][0]["text"] for item in data(seen) if item["type"] == "agent.message"]
    assert sent == ["one", "two"]


def test_last_event_id_resumes_after_any_event(client: Client) -> None:
    id = client.session()
    with client.stream(id) as stream:
        client.send(id, message("/say hello\n/tool x y\n/usage 1 1"))
        full = read_until(stream, "session.status_idle")
    for number, frame in enumerate(full[:-1]):
        for event_id in (frame["id"], frame["data"]["id"]):
            with client.stream(id, last_event_id=event_id) as stream:
                assert read_until(stream, "session.status_idle") == full[number + 1 :], event_id
    for wrong in ("sevt_nothing", "99999.0", "0.0", "x"):
        headers = {"last-event-id": wrong}
        response = client.http.get(f"/v1/sessions/{id}/events/stream", headers=headers)
        assert response.status_code == 400


async def test_unknown_last_event_id_reads_few_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_api(tmp_path) as api:
        id = (await api.session())["id"]
        bodies = [
            ToolCall(call_id=str(number), name="x") for number in range(2 * MAX_SEARCHED_EVENTS)
        ]
        await api.hub.editor.append(LOCAL, ids.parse(id) or "", *bodies)
        rows = 0
        read_events = api.hub.store.events

        async def count_events(*arguments: Any, **options: Any) -> Sequence[Event]:
            nonlocal rows
            events = await read_events(*arguments, **options)
            rows += len(events)
            return events

        monkeypatch.setattr(api.hub.store, "events", count_events)
        path = f"/v1/sessions/{id}/events/stream"
        unknown = ids.format_id("sevt", ids.new_id())
        response = await api.raw("GET", path, headers={"last-event-id": unknown})
        assert response.status_code == 400
        assert unknown in response.json()["error"]["message"]
        assert rows <= MAX_SEARCHED_EVENTS + 1


def test_stream_ends_when_its_key_is_revoked(server: Server, client: Client) -> None:
    def keys(*arguments: str) -> bytes:
        command = [sys.executable, "-m", "segue", "keys", *arguments]
        done = subprocess.run(command, env=server.environment, check=True, capture_output=True)
        return done.stdout

    created = json.loads(keys("create", "--name", "short-lived", "--format", "json"))
    id = client.session()
    other = Client(server._replace(key=created["key"]))
    with client.stream(id) as lasting, other.stream(id) as stream:
        keys("revoke", created["id"])
        assert [frame["data"]["error"]["type"] for frame in stream] == ["authentication_error"]
        client.send(id, message("/say still here"))
        assert read_until(lasting, "session.status_idle")
    other.http.close()


def test_start_of_a_model_request_is_sent_before_its_response_and_once(client: Client) -> None:
    id = client.session()
    with client.stream(id) as stream:
        client.send(id, message("/model\n/slow 0.3\n/say one\n/usage 3 4"))
        seen = read_until(stream, "session.status_idle")
    starts = [frame for frame in seen if frame["event"] == "span.model_request_start"]
    # A running request has no position yet, so its frame has no id.
    assert len(starts) == 1 and "id" not in starts[0]
    listed = client.ok("GET", f"/v1/sessions/{id}/events")["data"]
    assert data(seen) == listed
    start, text, end = (
        next(item for item in listed if item["type"] == type)
        for type in ("span.model_request_start", "agent.message", "span.model_request_end")
    )
    assert end["model_request_start_id"] == start["id"]
    assert start["processed_at"] < text["processed_at"]
    assert listed.index(start) + 1 == listed.index(text) < listed.index(end)
    # A stream can continue after each of them, by its id.
    for item in (start, text, end):
        with client.stream(id, last_event_id=item["id"]) as stream:
            rest = data(read_until(stream, "session.status_idle"))
        assert rest == listed[listed.index(item) + 1 :]


def test_deltas_are_sent_on_request_and_add_up_to_the_message(client: Client) -> None:
    id = client.session()
    with client.stream(id, "?event_deltas[]=agent.message&event_deltas[]=agent.thinking") as stream:
        client.send(id, message("/slow 0.05\n/think let me see\n/say one two three four"))
        seen = data(read_until(stream, "session.status_idle"))
    starts = [item["event"] for item in seen if item["type"] == "event_start"]
    full = [item for item in seen if item["type"] in ("agent.message", "agent.thinking")]
    assert [(start["type"], start["id"]) for start in starts] == [
        (item["type"], item["id"]) for item in full
    ]
    pieces = [item for item in seen if item["type"] == "event_delta"]
    assert {item["event_id"] for item in pieces} == {full[-1]["id"]}
    streamed = "".join(item["delta"]["content"]["text"] for item in pieces)
    assert len(pieces) > 1 and "one two three four".startswith(streamed) and len(streamed) > 4
    with client.stream(id) as stream:
        client.send(id, message("/slow 0.02\n/say one two three"))
        plain = read_until(stream, "session.status_idle")
    assert not any(frame["event"].startswith("event_") for frame in plain)
    wrong = client.http.get(f"/v1/sessions/{id}/events/stream?event_deltas[]=user.message")
    assert wrong.status_code == 400


def test_stream_ends_when_its_session_is_deleted_or_archived(client: Client) -> None:
    deleted, archived = client.session(), client.session()
    with client.stream(deleted) as stream:
        client.ok("DELETE", f"/v1/sessions/{deleted}")
        assert [frame["event"] for frame in stream] == ["session.deleted"]
    with client.stream(archived) as stream:
        client.ok("POST", f"/v1/sessions/{archived}/archive")
        assert [frame["event"] for frame in stream] == [
            "session.thread_status_terminated",
            "session.status_terminated",
        ]
    with client.stream(archived) as stream:
        assert list(stream) == []


def test_stream_ends_when_the_cli_deletes_its_session(client: Client, server: Server) -> None:
    id = client.session()
    with client.stream(id) as stream:
        deleting = [sys.executable, "-m", "segue", "delete", "--yes", id]
        subprocess.run(deleting, env=server.environment, check=True, capture_output=True)
        assert [frame["event"] for frame in stream] == ["session.deleted"]


def test_stream_of_the_primary_thread_is_the_stream_of_the_session(client: Client) -> None:
    id = client.session()
    (thread,) = client.ok("GET", f"/v1/sessions/{id}/threads")["data"]
    path = f"/v1/sessions/{id}/threads/{thread['id']}/stream"
    with client.http.stream("GET", path) as response:
        client.send(id, message("hi"))
        seen = read_until(frames(response.iter_lines()), "session.status_idle")
    assert seen[0]["event"] == "session.status_running"


def test_permission_request_on_a_stream_is_answered_by_a_request(client: Client) -> None:
    id = client.session()
    with client.stream(id) as stream:
        client.send(id, message("/ask May I?"))
        waits = read_until(stream, "session.status_idle")[-1]["data"]["stop_reason"]
        assert waits["type"] == "requires_action"
        response = {"type": "user.tool_confirmation", "result": "allow"}
        client.send(id, {**response, "tool_use_id": waits["event_ids"][0]})
        frames = read_until(stream, "session.status_idle")
    assert frames[-1]["data"]["stop_reason"] == {"type": "end_turn"}


def test_permission_request_is_replayed_to_a_late_stream_but_not_twice(client: Client) -> None:
    id = client.session()
    client.send(id, message("/ask May I?"))
    with client.stream(id) as stream:
        waits = read_until(stream, "session.status_idle")[-1]["data"]["stop_reason"]
    with client.stream(id) as stream:
        response = {"type": "user.tool_confirmation", "result": "deny"}
        client.send(id, {**response, "tool_use_id": waits["event_ids"][0]})
        frames = read_until(stream, "session.status_idle")
    assert frames[0]["event"] == "user.tool_confirmation"
    assert frames[-1]["data"]["stop_reason"] == {"type": "end_turn"}


def test_stopping_the_server_ends_open_streams_at_once(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with serving(tmp_path_factory.mktemp("stopped")) as server:
        client = Client(server)
        id = client.session()
        with client.stream(id) as stream:
            client.send(id, message("hello"))
            read_until(stream, "session.status_idle")
            server.process.terminate()
            assert list(stream) == []
        client.http.close()
        assert server.process.wait(60) == 0
        assert server.process.stderr is not None
        assert server.process.stderr.read() == ""
