"""Sessions whose process died read as recovery will leave them."""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from segue.hub import Hub
from segue.hub.sessions.interrupted import ended
from segue.hub.turns import holder
from segue.hub.turns.holder import holder_name
from segue.model import ids
from segue.model.content import as_content
from segue.model.errors import Busy
from segue.model.event import (
    AgentMessage,
    AgentThought,
    AnyBody,
    Delta,
    ModelCalled,
    PermissionAsked,
    StatusChanged,
    ToolCall,
    Usage,
    UserMessage,
)
from segue.model.lifecycle import Status
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.model.requests.spans import OpenRequest, encode_request
from segue.model.session import Session

MakeHub = Callable[..., Hub]
OTHER_HOST = "another-boot:1:2:3:token"


@pytest.fixture(scope="module")
def dead_process() -> str:
    """Return the name of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = holder_name(child.pid, holder._start_time(child.pid) or "", ids.new_id())
    child.kill()
    child.communicate()
    return name


async def running_session(
    hub: Hub, process: str, *bodies: AnyBody, resumable: bool = False
) -> Session:
    """Return a session with a turn that a process runs."""
    session = await hub.editor.create(LOCAL, cwd="/work")
    turn = await hub.store.put_inbox("local", session.id, "prompt", ids.new_id(), {}, process)
    lease = await hub.store.acquire("local", session.id, process)
    prompt = UserMessage(content=as_content("hello"))
    stored, _ = await hub.store.change(
        "local",
        session.id,
        lambda _: [StatusChanged(status="running", turn=turn.id), prompt, *bodies],
        lease=lease,
        begin=[replace(turn, body={"resumable": resumable})],
    )
    return stored


async def ids_with_status(hub: Hub, *statuses: Status, **options: Any) -> list[str]:
    """Return the ids of all pages of a list, and check that no page but the last is short."""
    listed: list[str] = []
    cursor: str | None = None
    query = Query(statuses=statuses, **options)
    while True:
        page = await hub.sessions.list(LOCAL, query, cursor)
        listed += [session.id for session in page.sessions]
        assert page.next is None or len(page.sessions) == query.limit
        if (cursor := page.next) is None:
            return listed


@pytest.mark.parametrize("order", ["active", "created"])
@pytest.mark.parametrize("limit", [1, 2, 3, 50])
async def test_status_filter_finds_sessions_where_they_read(
    make_hub: MakeHub, dead_process: str, order: Any, limit: int
) -> None:
    async with make_hub() as hub:
        alive = hub.turns.engine.holder
        expected: dict[str, list[str]] = {"idle": [], "running": []}
        for process in (alive, dead_process, dead_process, None, alive, OTHER_HOST, dead_process):
            if process is None:
                session = await hub.editor.create(LOCAL, cwd="/work")
            else:
                session = await running_session(hub, process)
            reads_as = "idle" if process in (None, dead_process) else "running"
            expected[reads_as].insert(0, session.id)
        options = {"order": order, "limit": limit}
        assert await ids_with_status(hub, "idle", **options) == expected["idle"]
        assert await ids_with_status(hub, "running", **options) == expected["running"]
        everything = await ids_with_status(hub, "idle", "running", **options)
        assert everything == await ids_with_status(hub, **options)
        assert len(everything) == 7


@pytest.mark.parametrize("stored", ["nothing", "a thought"])
async def test_running_request_of_a_dead_process_is_unfinished(
    make_hub: MakeHub, dead_process: str, stored: str
) -> None:
    """Its end says that its usage was not reported, and the first of its events when it began."""
    asked_at = "2026-01-31T12:00:00.000000Z"
    request = OpenRequest(id=ids.new_id(), model="m", asked_at=asked_at)
    async with make_hub() as hub:
        bodies: list[AnyBody] = []
        if stored != "nothing":
            thought = AgentThought(content=as_content("hm"), request=request.id, asked_at=asked_at)
            bodies.append(thought)
        id = (await running_session(hub, dead_process, *bodies)).id
        lease = await hub.store.lease_of("local", id)
        assert lease is not None
        texts = [Delta(session=id, message="m1", kind="message", offset=0, text="half")]
        if stored == "nothing":
            text = encode_request(request)
            delta = Delta(session=id, message=request.id, kind="request", offset=0, text=text)
            texts.insert(0, delta)
        await hub.store.put_deltas(lease, texts)
        row = await hub.store.get("local", id)
        assert row is not None
        session, events = await ended(hub.store, row)
        partial, called = events[0].body, events[1].body
        assert isinstance(partial, AgentMessage) and isinstance(called, ModelCalled)
        assert (partial.partial, partial.request, partial.usage) == (True, request.id, None)
        assert partial.asked_at == (asked_at if stored == "nothing" else None)
        assert called == ModelCalled(usage=Usage(), asked=request.id, is_error=True)
        assert session.usage == Usage()
        await hub.turns.engine.recover()
        async with asyncio.timeout(20):
            async for event in hub.history.follow(LOCAL, id, row.last_seq):
                if event.type == "status_changed":
                    break
        (stored_end,) = await hub.history.events(LOCAL, id, types=["model_called"])
        assert stored_end.body == called


async def test_session_of_a_process_on_another_host_reads_as_it_is_stored(
    make_hub: MakeHub,
) -> None:
    async with make_hub() as hub:
        session = await running_session(hub, OTHER_HOST)
        assert await hub.sessions.get(LOCAL, session.id) == session
        history = await hub.history.as_ended(LOCAL, session.id)
        assert history.session == session


ASKED = (
    ToolCall(call_id="call", name="bash", kind="execute", input={}),
    PermissionAsked(ask_id="ask", call_id="call", options=()),
)


async def test_turn_that_can_be_resumed_reads_as_waiting_for_its_answer(
    make_hub: MakeHub, dead_process: str
) -> None:
    async with make_hub() as hub:
        stored = await running_session(hub, dead_process, *ASKED, resumable=True)
        session = await hub.sessions.get(LOCAL, stored.id)
        assert (session.status, session.stop_reason) == ("idle", "requires_action")
        assert (session.turn, session.pending) == (stored.turn, ("ask",))
        assert session.open_asks == ("ask",)


async def test_turn_that_cannot_be_resumed_withdraws_its_requests(
    make_hub: MakeHub, dead_process: str
) -> None:
    async with make_hub() as hub:
        stored = await running_session(hub, dead_process, *ASKED)
        session = await hub.sessions.get(LOCAL, stored.id)
        assert (session.status, session.stop_reason) == ("idle", "error")
        assert (session.turn, session.open_asks, session.open_calls) == (None, (), ())
        position = (session.last_seq, session.active_at, session.updated_at)
        assert position == (stored.last_seq, stored.active_at, stored.updated_at)


async def test_session_that_waits_for_a_person_is_not_interrupted(
    make_hub: MakeHub, dead_process: str
) -> None:
    waits = StatusChanged(status="idle", stop_reason="requires_action", pending=("ask",))
    async with make_hub() as hub:
        stored = await running_session(hub, dead_process, *ASKED, waits, resumable=True)
        assert await hub.sessions.get(LOCAL, stored.id) == stored
        assert (await hub.history.as_ended(LOCAL, stored.id)).session == stored


@pytest.mark.parametrize("edit", ["archive", "trash", "purge"])
async def test_interrupted_session_can_be_edited_and_a_running_one_cannot(
    make_hub: MakeHub, dead_process: str, edit: str
) -> None:
    async with make_hub() as hub:
        change = getattr(hub.editor, edit)
        dead = await running_session(hub, dead_process)
        await change(LOCAL, dead.id)
        assert dead.id not in await ids_with_status(hub)
        for process in (hub.turns.engine.holder, OTHER_HOST):
            running = await running_session(hub, process)
            with pytest.raises(Busy):
                await change(LOCAL, running.id)


class CountingStore:
    """Count the calls of a store's methods."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(*arguments: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return method(*arguments, **options)

        return call


@pytest.mark.parametrize("statuses", [(), ("idle",), ("running",)])
async def test_list_without_running_sessions_reads_one_page(
    make_hub: MakeHub, statuses: tuple[Status, ...]
) -> None:
    async with make_hub() as hub:
        for _ in range(3):
            await hub.editor.create(LOCAL, cwd="/work")
        store: Any = CountingStore(hub.store)
        reader = Hub(store, hub.data_dir)
        page = await reader.sessions.list(LOCAL, Query(statuses=statuses, limit=2))
        assert store.calls == {"cursor_key": 1, "change_point": 1, "page": 1}
        store.calls.clear()
        for session in page.sessions:
            await reader.sessions.get(LOCAL, session.id)
        assert store.calls == ({"get": 2} if page.sessions else {})


async def test_list_of_running_sessions_reads_the_leases_once(
    make_hub: MakeHub, dead_process: str
) -> None:
    async with make_hub() as hub:
        for _ in range(5):
            await running_session(hub, hub.turns.engine.holder)
        store: Any = CountingStore(hub.store)
        reader = Hub(store, hub.data_dir)
        await reader.sessions.list(LOCAL)
        assert store.calls == {"cursor_key": 1, "change_point": 1, "page": 1, "leases": 1}
