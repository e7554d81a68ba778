"""Every read of the hub works on a read-only store and writes nothing."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from segue.hub import Hub
from segue.model.content import as_content
from segue.model.cursor import ListPosition
from segue.model.event import AgentMessage, UserMessage
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.store.memory import MemoryStore
from tests.claude.entries import Home, S
from tests.claude.helpers import claude_hub
from tests.read_only_store import ReadOnlyStore

POSITION = ListPosition(of="test", descending=False, number=1, text="x")

Read = Callable[[Hub, str], Any]
# Each read of a service, with arguments. A new public method must be added here or to WRITES.
READS: dict[str, dict[str, Read]] = {
    "sessions": {
        "get": lambda hub, id: hub.sessions.get(LOCAL, id),
        "resolve": lambda hub, id: hub.sessions.resolve(LOCAL, id[:8]),
        "owner": lambda hub, id: hub.sessions.owner(LOCAL, id),
        "list": lambda hub, id: hub.sessions.list(LOCAL, Query(cwd="/", worktrees=True)),
        "with_native_id": lambda hub, id: hub.sessions.with_native_id(LOCAL, "unknown"),
        "in_id_range": lambda hub, id: hub.sessions.in_id_range(LOCAL, id, id),
        "count": lambda hub, id: hub.sessions.count(LOCAL, Query(cwd="/")),
        "count_unreadable": lambda hub, id: hub.sessions.count_unreadable(LOCAL),
        "search": lambda hub, id: hub.sessions.search(LOCAL, Query(text="hello"), ranked=True),
        "stats": lambda hub, id: hub.sessions.stats(LOCAL, 0, 30_000, hub.history.events),
        "encode_cursor": lambda hub, id: hub.sessions.encode_cursor(LOCAL, POSITION),
        "decode_cursor": lambda hub, id: _decoded_cursor(hub),
    },
    "history": {
        "events": lambda hub, id: hub.history.events(LOCAL, id),
        "read": lambda hub, id: hub.history.read(LOCAL, id),
        "conversation": lambda hub, id: hub.history.conversation(LOCAL, id),
        "as_ended": lambda hub, id: hub.history.as_ended(LOCAL, id),
        "locate": lambda hub, id: _located(hub, id),
        "find": lambda hub, id: hub.history.find(LOCAL, id, "hello"),
        "find_in_threads": lambda hub, id: hub.history.find_in_threads(LOCAL, id, "hello"),
        "threads": lambda hub, id: hub.history.threads(LOCAL, id),
        "thread_events": lambda hub, id: _thread_events(hub, id),
        "acked_seq": lambda hub, id: hub.history.acked_seq(LOCAL, id),
        "follow": lambda hub, id: _first(hub.history.follow(LOCAL, id)),
        "follow_with_updates": lambda hub, id: _first(
            hub.history.follow_with_updates(LOCAL, id, 0)
        ),
        "open_request": lambda hub, id: hub.history.open_request(LOCAL, id),
        "open_requests": lambda hub, id: _open_requests(hub, id),
    },
    "sync": {
        "ensure_current": lambda hub, id: hub.sync.ensure_current(LOCAL, id),
        "transcript": lambda hub, id: hub.sync.transcript(LOCAL, id, "claude"),
        "resuming_tool": lambda hub, id: _resuming_tool(hub, id),
        "missing_original": lambda hub, id: _missing_original(hub, id),
        "find_new": lambda hub, id: hub.sync.find_new(LOCAL, id, "/"),
    },
    "continuing": {"report": lambda hub, id: hub.continuing.report(LOCAL, id, "codex")},
    "exchange": {"export": lambda hub, id: hub.exchange.export(LOCAL, id)},
    "retention": {
        "policy": lambda hub, id: hub.retention.policy(LOCAL),
        "prune": lambda hub, id: hub.retention.prune(LOCAL, dry_run=True),
    },
    "turns": {
        "queued": lambda hub, id: hub.turns.queued(LOCAL, id),
        "was_withdrawn": lambda hub, id: hub.turns.was_withdrawn(LOCAL, id, id),
    },
    "diagnostics": {"run": lambda hub, id: hub.diagnostics.run(LOCAL, deep=True)},
    "keys": {"list": lambda hub, id: hub.keys.list()},
    "config": {"all": lambda hub, id: hub.config.all("local")},
}
WRITES = {
    "sessions": set[str](),
    "history": {"ack", "changes", "close"},  # `changes` waits until something changes
    "sync": {"import_from_source", "import_if_listed_only", "import_session", "pull", "write"}
    | {"label", "resume_command"},  # which read nothing
    "continuing": {"continue_in", "keep_copy", "recover", "targets"},  # `targets` reads nothing
    "exchange": {"import_session", "redact", "redact_in_place"},
    "retention": {"set_policy", "purge_idle"},
}


async def _decoded_cursor(hub: Hub) -> Any:
    return await hub.sessions.decode_cursor(
        LOCAL, await hub.sessions.encode_cursor(LOCAL, POSITION)
    )


async def _resuming_tool(hub: Hub, id: str) -> Any:
    return await hub.sync.resuming_tool(LOCAL, await hub.sessions.get(LOCAL, id))


async def _missing_original(hub: Hub, id: str) -> Any:
    return await hub.sync.missing_original(LOCAL, await hub.sessions.get(LOCAL, id))


async def _open_requests(hub: Hub, id: str) -> Any:
    return await hub.history.open_requests(LOCAL, await hub.sessions.get(LOCAL, id))


async def _located(hub: Hub, id: str) -> Any:
    first = (await hub.history.events(LOCAL, id, limit=1))[0]
    return await hub.history.locate(LOCAL, id, first.id)


async def _thread_events(hub: Hub, id: str) -> None:
    for thread in await hub.history.threads(LOCAL, id):
        async for _ in hub.history.thread_events(LOCAL, id, thread.id):
            pass


async def _first(events: AsyncIterator[Any]) -> Any:
    async for event in events:
        await events.aclose()  # type: ignore[attr-defined]
        return event


async def finish(result: Any) -> None:
    if isinstance(result, Awaitable):
        await result
    else:
        async for _ in result:
            pass


@pytest.mark.parametrize("service", READS)
async def test_reads_of_a_stored_session_write_nothing(tmp_path: Path, service: str) -> None:
    store = MemoryStore()
    async with Hub(store, tmp_path) as hub:
        session = await hub.editor.create(LOCAL, cwd="/", title="A title")
        await hub.editor.append(
            LOCAL,
            session.id,
            UserMessage(content=as_content("hello")),
            AgentMessage(content=as_content("hello again")),
        )
        reader = Hub(ReadOnlyStore(store), tmp_path)  # type: ignore[arg-type]
        for read in READS[service].values():
            await finish(read(reader, session.id))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Return an empty home of Claude Code."""
    root = tmp_path / "claude"
    (root / "projects").mkdir(parents=True)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(root))
    return Home(root)


@pytest.mark.parametrize("imported", [False, True])
async def test_reads_of_a_source_and_of_an_imported_session_write_nothing(
    home: Home, imported: bool
) -> None:
    home.write_conversation(prompt="hello")
    async with claude_hub(home) as (hub, source):
        if imported:
            await hub.sync.import_session(LOCAL, S, "claude")
        store = ReadOnlyStore(hub.store)  # type: ignore[arg-type]
        reader = Hub(store, hub.data_dir, sources=[source])  # type: ignore[arg-type]
        for service in ("sessions", "history", "sync", "exchange"):
            for read in READS[service].values():
                await finish(read(reader, S))


@pytest.mark.parametrize("service", WRITES)
def test_every_public_method_is_classified_as_a_read_or_a_write(
    tmp_path: Path, service: str
) -> None:
    methods = {
        name
        for name, member in inspect.getmembers(type(getattr(Hub(MemoryStore(), tmp_path), service)))
        if not name.startswith("_") and callable(member)
    }
    assert methods == set(READS[service]) | WRITES[service]
