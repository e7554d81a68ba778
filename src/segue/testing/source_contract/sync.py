"""Contract: sessions are imported from a source, pulled and written to the tool's files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from segue.hub import Hub
from segue.model import ids
from segue.model.content import as_content
from segue.model.errors import Conflict, NotFound, SegueError
from segue.model.event import AgentMessage, Event, UserMessage
from segue.model.principal import Principal
from segue.model.query import Query
from segue.model.session import Checkpoint, Session
from segue.sources.base import Pulled, ReadEvents, Source, Transcripts
from segue.testing.helpers import message_texts

from .harness import (
    CWD,
    Contract,
    ToolSessions,
    create_session,
    list_ids,
    minutes,
    require_definition,
    require_session,
    require_transcripts,
)
from .history import create_long_session, read_all

ADDED_TURN_COUNT = 150
LONG_ANSWER = "words " * 500  # a history that is much longer than one turn
PROCESS_IO = Path("/proc/self/io")


class SyncContract(Contract):
    """Imports, pulls from a checkpoint, and writes."""

    async def test_copy_has_the_history_of_the_session(
        self, source: Source, tool: ToolSessions
    ) -> None:
        transcripts = require_transcripts(source)
        id = await create_long_session(tool)
        session = await require_session(source, id)
        copy = transcripts.read_session(session)
        events = copy.events(None)
        assert copy.id == id
        assert copy.checkpoint.source == source.name
        assert message_texts(events) == ["one", "two", "three", "four", "five", "six"]
        assert message_texts(events) == message_texts(iter(events)), "it is iterated several times"
        assert [event.seq for event in events] == list(range(1, len(list(events)) + 1))
        assert events.lines > 0
        assert message_texts(transcripts.read(session.native_id or id).events(None)) == (
            message_texts(events)
        )

    async def test_imported_session_has_the_facts_of_the_original(
        self, source: Source, tool: ToolSessions, hub: Hub
    ) -> None:
        require_transcripts(source)
        id = await create_long_session(tool)
        original = await require_session(source, id)
        imported = await import_session(hub, source, id)
        for name in ("id", "cwd", "title", "messages", "created_at", "active_at", "usage"):
            assert getattr(imported, name) == getattr(original, name), name
        assert (imported.owner, imported.source) == ("segue", source.name)
        checkpoint = await hub.store.checkpoint(source.workspace, id)
        assert checkpoint is not None and checkpoint.source == source.name

    async def test_repeated_import_adds_nothing(
        self, source: Source, tool: ToolSessions, hub: Hub
    ) -> None:
        require_transcripts(source)
        id = await create_long_session(tool)
        imported = await import_session(hub, source, id)
        imported_again = await import_session(hub, source, id)
        assert imported_again.last_seq == imported.last_seq

    async def test_repeated_import_adds_what_is_new(
        self, source: Source, tool: ToolSessions, hub: Hub
    ) -> None:
        require_transcripts(source)
        id = await create_session(tool)
        await import_session(hub, source, id)
        await tool.add_turn(id, "another question", "another reply", at=minutes(5))
        await import_session(hub, source, id)
        assert await stored_texts(hub, source, id) == [
            "question",
            "reply",
            "another question",
            "another reply",
        ]

    async def test_pull_adds_what_the_tool_appended(
        self, source: Source, tool: ToolSessions, hub: Hub
    ) -> None:
        require_transcripts(source)
        principal = Principal(workspace=source.workspace)
        id = await create_session(tool)
        await import_session(hub, source, id)
        for number in range(3):
            await tool.add_turn(id, f"prompt {number}", f"answer {number}", at=minutes(number + 1))
            await hub.sync.ensure_current(principal, id)
            assert (await stored_texts(hub, source, id))[-2:] == [
                f"prompt {number}",
                f"answer {number}",
            ]
        assert len(await stored_texts(hub, source, id)) == 8

    async def test_pull_returns_only_the_additions(
        self, source: Source, tool: ToolSessions, hub: Hub
    ) -> None:
        transcripts = require_transcripts(source)
        id = await create_long_session(tool)
        session = await import_session(hub, source, id)
        checkpoint = await checkpoint_of(hub, source, id)
        lookups = 0

        async def find_event(event_id: str) -> Event | None:
            nonlocal lookups
            lookups += 1
            seq = await hub.store.locate(source.workspace, id, event_id)
            return None if seq is None else (await stored_events(hub, source, id))[seq - 1]

        assert await transcripts.pull(session, checkpoint, find_event) is None
        await tool.add_turn(id, "another question", "another reply", at=minutes(9))
        pulled = await transcripts.pull(session, checkpoint, find_event)
        assert pulled is not None and pulled.batch.lines > 0
        after = await append_pulled(hub, session, pulled)
        added = (await stored_texts(hub, source, id))[session.messages :]
        assert added == ["another question", "another reply"]
        assert lookups <= 10, "a pull looks up the events that it adds, not the history"
        checkpoint = await checkpoint_of(hub, source, id)
        assert await transcripts.pull(after, checkpoint, find_event) is None

    async def test_pull_does_not_read_the_history_again(
        self, source: Source, tool: ToolSessions, hub: Hub
    ) -> None:
        transcripts = require_transcripts(source)
        if not PROCESS_IO.exists():
            pytest.skip("the system does not count the bytes that a process reads")
        id = await create_session(tool)
        for number in range(ADDED_TURN_COUNT):
            await tool.add_turn(id, f"prompt {number}", LONG_ANSWER, at=minutes(number))
        session = await import_session(hub, source, id)

        async def find_event(event_id: str) -> Event | None:
            return None

        for number in range(2):  # the first pull also reads the modules that it imports
            checkpoint = await checkpoint_of(hub, source, id)
            await tool.add_turn(id, f"new {number}", "reply", at=minutes(ADDED_TURN_COUNT + number))
            before = bytes_read()
            pulled = await transcripts.pull(session, checkpoint, find_event)
            cost = bytes_read() - before
            assert pulled is not None
            session = await append_pulled(hub, session, pulled)
        assert cost < ADDED_TURN_COUNT * len(LONG_ANSWER) / 2

    async def test_imported_session_hides_the_original(
        self, source: Source, tool: ToolSessions, hub: Hub
    ) -> None:
        require_transcripts(source)
        principal = Principal(workspace=source.workspace)
        id = await create_session(tool)
        await import_session(hub, source, id)
        rows = (await hub.sessions.list(principal)).sessions
        assert [(row.id, row.owner) for row in rows] == [(id, "segue")]

    async def test_copy_has_the_edits_of_the_user(
        self, source: Source, tool: ToolSessions, hub: Hub
    ) -> None:
        """Edits that the tool's files cannot hold are in the overlay: the copy has them too."""
        require_transcripts(source)
        principal = Principal(workspace=source.workspace, local=True)

        async def import_one(session: Session) -> None:
            await hub.sync.import_from_source(principal, session)

        async def import_all(session: Session) -> None:
            assert {step.error async for step in hub.import_all.run(principal)} == {None}

        async def prompt(session: Session) -> None:
            await hub.turns.prepare_for_prompt(principal, session.id)

        async def resume(session: Session) -> None:
            await hub.continuing.keep_copy(principal, session)

        for number, import_copy in enumerate((import_one, import_all, prompt, resume)):
            id = await create_session(tool, minute=number)
            await source.refresh()
            await hub.editor.set_title(principal, id, "A new title")
            await hub.editor.set_tag(principal, id, "urgent")
            original = await hub.editor.archive(principal, id)
            await import_copy(original)
            copy = await hub.store.get(source.workspace, id)
            assert copy is not None, import_copy.__name__
            for name in ("title", "title_by", "tag", "state"):
                edit = getattr(original, name)
                assert getattr(copy, name) == edit, f"{name} after {import_copy.__name__}"
            await tool.add_turn(id, "another question", "another reply", at=minutes(9))
            await hub.sync.ensure_current(principal, id)
            pulled = await hub.sessions.get(principal, id)
            assert pulled.messages == 4
            assert (pulled.title, pulled.tag, pulled.state) == ("A new title", "urgent", "archived")
            await hub.editor.purge(principal, id)
            shown = await hub.editor.restore(principal, id)
            id = shown.id  # the tool may give it a new id
            assert (shown.title, shown.tag, shown.state) == ("A new title", "urgent", "archived")
            await hub.editor.unarchive(principal, id)
            await import_copy(await hub.sessions.get(principal, id))
            again = await hub.sessions.get(principal, id)
            assert (again.title, again.tag, again.state) == ("A new title", "urgent", "active")

    async def test_imported_session_is_still_listed_and_resumed_as_one_of_its_tool(
        self, source: Source, tool: ToolSessions, hub: Hub
    ) -> None:
        require_transcripts(source)
        principal = Principal(workspace=source.workspace)
        id = await create_session(tool)
        original = await require_session(source, id)
        other_id = await create_session(tool, minute=5)
        command = await hub.sync.resume_command(principal, original)
        imported = await import_session(hub, source, id)
        query = Query(source=source.name, limit=1)
        page = await hub.sessions.list(principal, query)
        assert [row.id for row in page.sessions] == [other_id]
        page = await hub.sessions.list(principal, query, page.next)
        assert [(row.id, row.source, page.next) for row in page.sessions] == [
            (id, source.name, None)
        ]
        assert not (await hub.sessions.list(principal, Query(source="segue"))).sessions
        assert await hub.sync.resume_command(principal, imported) == command
        await tool.delete(id)
        await source.refresh()
        assert await hub.sync.resume_command(principal, imported) is None

    async def test_stored_session_is_written_to_the_tools_files(
        self, source: Source, tool: ToolSessions, hub: Hub, scratch: Path
    ) -> None:
        transcripts = require_writes(source)
        session = await create_stored_session(hub, source)
        native = await transcripts.write(session, reader(hub, session), scratch)
        (written,) = await list_ids(source)
        row = await require_session(source, written)
        assert native.id in (row.native_id, row.id)
        assert (row.cwd, row.title) == (CWD, "Written by segue")
        conversation = await read_all(source.conversation(written))
        assert message_texts(conversation) == ["a prompt", "an answer"]
        assert list(scratch.iterdir()) == [], "temporary files are removed"

    async def test_written_session_is_imported_unchanged(
        self, source: Source, tool: ToolSessions, hub: Hub, scratch: Path
    ) -> None:
        transcripts = require_writes(source)
        session = await create_stored_session(hub, source)
        await transcripts.write(session, reader(hub, session), scratch)
        (written,) = await list_ids(source)
        await tool.add_turn(written, "another prompt", "another answer", at=minutes(60))
        copy = transcripts.read_session(await require_session(source, written))
        assert message_texts(copy.events(None)) == [
            "a prompt",
            "an answer",
            "another prompt",
            "another answer",
        ]

    async def test_session_that_the_tool_has_is_not_overwritten(
        self, source: Source, tool: ToolSessions, hub: Hub, scratch: Path
    ) -> None:
        transcripts = require_writes(source)
        session = await create_stored_session(hub, source)
        await transcripts.write(session, reader(hub, session), scratch)
        before = tool.snapshot()
        with pytest.raises(Conflict):
            await transcripts.write(session, reader(hub, session), scratch)
        assert tool.snapshot() == before

    async def test_transcript_of_a_stored_session_can_be_printed(
        self, source: Source, tool: ToolSessions, hub: Hub
    ) -> None:
        transcripts = require_writes(source)
        session = await create_stored_session(hub, source)
        lines = [line async for line in transcripts.lines(session, reader(hub, session))]
        assert lines and all(isinstance(line, bytes) for line in lines)
        id = await create_session(tool)
        assert list(transcripts.original_lines(await require_session(source, id)))

    async def test_unknown_transcript_is_not_found(
        self, source: Source, tool: ToolSessions, tmp_path: Path
    ) -> None:
        transcripts = require_transcripts(source)
        id = await create_session(tool)
        session = await require_session(source, id)
        with pytest.raises(NotFound):
            transcripts.read(ids.new_id())
        with pytest.raises(NotFound):
            transcripts.read(str(tmp_path / "missing"))
        await tool.delete(id)
        with pytest.raises(NotFound):
            transcripts.read_session(session)

    async def test_deleting_a_transcript_during_an_import_raises_only_segue_errors(
        self, source: Source, tool: ToolSessions
    ) -> None:
        transcripts = require_transcripts(source)
        id = await create_session(tool)
        session = await require_session(source, id)
        copy = transcripts.read_session(session)
        events = copy.events(None)
        lines = transcripts.original_lines(session)
        await tool.delete(id)
        steps: list[Callable[[], object]] = [
            lambda: copy.is_copy(session),
            lambda: copy.events(None),
            lambda: list(events),
            lambda: list(copy.compare(session).missing()),
            lambda: list(lines),
        ]
        for step in steps:
            with suppress(SegueError):
                step()

    async def test_resume_command_names_the_program_and_the_session(
        self, source: Source, tool: ToolSessions
    ) -> None:
        definition = require_definition(tool)
        session = await require_session(source, await create_session(tool))
        for local in (True, False):
            command = definition.resume_command(session, local=local)
            assert command.arguments[0] == definition.program
            assert any(
                (session.native_id or session.id) in argument for argument in command.arguments
            )


def require_writes(source: Source) -> Transcripts:
    """Return the source's transcripts; skip the test if segue does not write the tool's format."""
    transcripts = require_transcripts(source)
    if not transcripts.can_write:
        pytest.skip("segue does not write the tool's format")
    return transcripts


async def import_session(hub: Hub, source: Source, id: str) -> Session:
    """Import a session of the source, or what is new in it, and return the copy."""
    session = await require_session(source, id)
    return await hub.sync.import_from_source(Principal(workspace=source.workspace), session)


async def create_stored_session(hub: Hub, source: Source) -> Session:
    """Create a session in the store, with one prompt and its answer."""
    principal = Principal(workspace=source.workspace)
    session = await hub.editor.create(principal, cwd=CWD, title="Written by segue")
    await hub.editor.append(
        principal,
        session.id,
        UserMessage(content=as_content("a prompt")),
        AgentMessage(content=as_content("an answer")),
    )
    return await hub.sessions.get(principal, session.id)


async def checkpoint_of(hub: Hub, source: Source, id: str) -> Checkpoint:
    """Return the checkpoint of an imported session."""
    checkpoint = await hub.store.checkpoint(source.workspace, id)
    assert checkpoint is not None
    return checkpoint


async def stored_events(hub: Hub, source: Source, id: str) -> list[Event]:
    """Return the events of a stored session."""
    return await hub.store.events(source.workspace, id)


async def stored_texts(hub: Hub, source: Source, id: str) -> list[str]:
    """Return the texts of the messages of a stored session."""
    return message_texts(await stored_events(hub, source, id))


async def append_pulled(hub: Hub, session: Session, pulled: Pulled) -> Session:
    """Append what was pulled to a stored session, and store the new checkpoint."""
    session, _ = await hub.store.change(
        session.workspace, session.id, lambda _: pulled.batch.drafts, checkpoint=pulled.checkpoint
    )
    return session


def reader(hub: Hub, session: Session) -> ReadEvents:
    """Return a function that reads the events of a stored session."""

    async def read(types: Sequence[str]) -> AsyncIterator[Event]:
        for event in await hub.store.events(session.workspace, session.id, types=types):
            yield event

    return read


def bytes_read() -> int:
    """Return how many bytes this process has read from files, as Linux counts them."""
    counters = dict(line.split(": ") for line in PROCESS_IO.read_text().splitlines())
    return int(counters["rchar"])
