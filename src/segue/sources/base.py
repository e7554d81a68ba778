"""The interface through which the hub reads another tool's sessions.

docs/sources.md explains how to write a source; `segue.testing.SourceContract` tests one.

One package per tool implements `Source`, and `SourceDefinition` for the registry. A source belongs
to one workspace. It reads the sessions that the tool made, with the same methods as a store. It
writes the edits that the tool's own format can hold; `edits` says which. The other edits are in the
store's overlay, which the hub passes to the source so that lists and filters see them.

`Transcripts` is how sessions pass between the tool's files and the store. A source without it
cannot be imported.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Unpack, runtime_checkable

from segue.model import ids
from segue.model.cursor import ChangePoint
from segue.model.event import AgentRef, AnyBody, Draft, Event, InfoChanged
from segue.model.query import Position, Query, SearchHit, WindowOptions
from segue.model.search_text import Term
from segue.model.session import Checkpoint, Session, Thread

if TYPE_CHECKING:
    from segue.model.source_command import SourceCommands

    from .writing.port import SessionWriter
    from .writing.tool_names import ToolNames

# `trash` can be undone, `delete` is permanent.
Edit = Literal["title", "tag", "archive", "trash", "delete", "fork"]
Progress = Callable[[int, int], None]  # bytes read, bytes to read


def agent_id(workspace: str, source: str) -> str:
    """Return the id of the agent whose sessions a source has."""
    return ids.derived_id("segue", "source", workspace, source)


class Source(Protocol):
    """Sessions that another tool keeps in its own files or its own database.

    Reads never change those. A method that takes the id of a session raises NotFound if the source
    has no such session, except `get`, which returns None.
    """

    name: str  # used in flags, fields and the registry
    label: str  # shown to people
    workspace: str
    # The record of the agent whose sessions these are; None if its sessions name no agent.
    agent_record: Mapping[str, Any] | None

    @property
    def edits(self) -> frozenset[Edit]:
        """The edits that the tool's own files can hold now; it may need the tool's program."""
        ...

    @property
    def transcripts(self) -> Transcripts | None:
        """How sessions are imported and written; None if the source can do neither."""
        ...

    async def close(self) -> None:
        """Stop watching, and close the index."""
        ...

    async def refresh(self, cwd: str | None = None) -> None:
        """Notice what the tool has changed; the hub calls this before the first page of a list.

        A session that cannot be read is left out; the others are listed. `cwd` is the directory
        whose sessions are wanted, if not all are.
        """
        ...

    def unreadable_sessions(self) -> int:
        """Return how many files or sessions the last refresh could not read."""
        ...

    async def get(self, id: str) -> Session | None:
        """Return a session as the tool has it now; None if there is none."""
        ...

    async def in_id_range(self, low: str, high: str, limit: int) -> list[Session]:
        """Do what `Store.in_id_range` does."""
        ...

    async def page(
        self, query: Query, after: Position | None = None, *, backward: bool = False
    ) -> list[Session]:
        """Do what `Store.page` does."""
        ...

    async def change_point(self) -> ChangePoint:
        """Do what `Store.change_point` does."""
        ...

    async def sweep(self, query: Query, since: ChangePoint, after: str) -> list[Session]:
        """Do what `Store.sweep` does."""
        ...

    async def events(
        self,
        id: str,
        **window: Unpack[WindowOptions],
    ) -> list[Event]:
        """Do what `Store.events` does; `seq` is a position in the tool's transcript.

        A seq stays the same while the tool appends to the session. Seqs may have gaps.
        """
        ...

    def conversation(self, id: str) -> AsyncIterator[Event]:
        """Yield the events of the active branch."""
        ...

    async def threads(self, id: str) -> list[Thread]:
        """Return the subagents that a session started, in the order of their start."""
        ...

    def thread(self, id: str, thread: str) -> AsyncIterator[Event]:
        """Yield the events of a thread, which have a seq of their own; raises NotFound."""
        ...

    async def locate(self, id: str, event_id: str) -> int | None:
        """Return the seq of an event; None if the session has no such event."""
        ...

    async def newest_matches(
        self, sessions: Sequence[Session], terms: Sequence[Term]
    ) -> list[Event | None]:
        """Do what `Store.newest_matches` does."""
        ...

    async def occurrences(
        self, id: str, terms: Sequence[Term], before: int | None, limit: int
    ) -> list[int]:
        """Do what `Store.occurrences` does."""
        ...

    async def known_words(self, words: Sequence[str]) -> set[str]:
        """Do what `Store.known_words` does."""
        ...

    async def ranked(self, query: Query) -> list[SearchHit]:
        """Do what `Store.ranked` does."""
        ...

    async def change(self, id: str, info: InfoChanged) -> str:
        """Write an edit to the tool's own files; the hub asks only for those in `edits`.

        Return the id that the session has now: a tool may give a restored session a new one.
        Raises OverlayOnly if the tool cannot hold this edit of this session.
        """
        ...

    async def delete(self, id: str) -> None:
        """Delete a session from the tool's own files; this cannot be undone."""
        ...

    async def fork(
        self, id: str, new_id: str, *, at: int | None, cwd: str | None, title: str | None
    ) -> Session:
        """Create a session in the tool's own files, with the history up to the event `at`.

        Its id is `new_id`, unless the tool chooses the ids of its sessions. Raises OverlayOnly if
        the tool cannot fork this session: the hub then forks it into the store.
        """
        ...

    async def apply_overlay(self, patches: Mapping[str, Mapping[str, Any]]) -> None:
        """Show the store's edits in lists, by session id: title, tag, archived_at, deleted_at.

        `fork` is the original of a session that segue wrote for the tool: `session` and `seq`.

        `patches` has all of them: a session that it does not name is shown as the tool has it.
        """
        ...

    def watch(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call `listener` with the ids of sessions that change, until the returned call."""
        ...


@runtime_checkable
class ListsOnly(Protocol):
    """A source that knows its sessions' rows and has their history only after an import."""

    async def import_session(self, session: Session) -> Session:
        """Copy a session into the store and return the copy."""
        ...


@runtime_checkable
class FindsNativeIds(Protocol):
    """A source whose tool gives its sessions ids that differ from those of segue."""

    async def with_native_id(self, native_id: str) -> Session | None:
        """Return the session with the tool's own id; None if there is none."""
        ...


class SourceProblem(NamedTuple):
    """A file, a database or a session that a source cannot read, and why."""

    path: str
    reason: str


class SourceReport(NamedTuple):
    """Where a source looks, how many sessions it lists, and what it cannot read."""

    paths: Sequence[str]
    sessions: int
    problems: Sequence[SourceProblem] = ()


@runtime_checkable
class Examined(Protocol):
    """A source that reports on itself, for `segue doctor`."""

    async def examine(self) -> SourceReport:
        """Return where the source looks, how many sessions it lists, and what it cannot read."""
        ...


class OverlayOnly(Exception):
    """The tool cannot hold an edit of a session: the store's overlay has it instead."""


class NeedsFullImport(Exception):
    """A transcript does not continue at its checkpoint: the whole transcript must be compared."""


class NativeSession(NamedTuple):
    """A session that was written to a tool's files."""

    id: str
    path: str


class ResumeCommand(NamedTuple):
    """How to continue a session in its tool: a program with its arguments, and variables."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = {}


class Batch(NamedTuple):
    """Events to append to an imported session.

    `lines` is the number of the tool's records that they come from: lines of a file, or rows.
    """

    drafts: list[AnyBody | Draft]
    lines: int


class Pulled(NamedTuple):
    """The events that a tool added to a session since a checkpoint, and the new checkpoint."""

    batch: Batch
    checkpoint: Checkpoint


class Comparison(Protocol):
    """Finds what a stored session lacks of its transcript."""

    def add_event(self, event: Event) -> None:
        """Add the next stored event."""
        ...

    def missing(self) -> Iterator[Batch]:
        """Yield what is missing, after the last stored event was added."""
        ...


class SessionCopy(Protocol):
    """A session as it was read from a tool's files.

    The tool may replace or delete the files afterwards. The methods here, the comparison and the
    iteration of the events then raise SegueError, and no other exception.
    """

    @property
    def id(self) -> str:
        """The id that the session has in the store."""
        ...

    @property
    def checkpoint(self) -> Checkpoint:
        """How far the transcript was read."""
        ...

    @property
    def overlay(self) -> tuple[str, Mapping[str, Any]] | None:
        """A name and a patch that the store's overlay gets for the session."""
        ...

    @property
    def derived_extra(self) -> Mapping[str, Any]:
        """The `extra` of events that no line of the transcript says."""
        ...

    def events(self, agent: AgentRef | None) -> CopiedEvents:
        """Return the whole history; the session begins with this agent."""
        ...

    def is_copy(self, session: Session) -> bool:
        """Return whether a stored session with the same id was imported from this one."""
        ...

    def compare(self, session: Session) -> Comparison:
        """Return a comparison with a stored session."""
        ...


class CopiedEvents(Protocol):
    """A history that can be iterated several times.

    `lines` is the number of the tool's records, and known after the first time.
    """

    lines: int

    def __iter__(self) -> Iterator[Event]: ...


FindEvent = Callable[[str], Awaitable[Event | None]]
ReadEvents = Callable[[Sequence[str]], AsyncIterator[Event]]  # of some types, or all


class Transcripts(Protocol):
    """Pass sessions between a tool's files and the store.

    The methods raise SegueError if the files cannot be read, and no other exception. The
    exception is `pull`, which may raise NeedsFullImport too.
    """

    can_write: bool  # whether `lines` and `write` exist for the tool; else they raise ReadOnly

    def read(self, reference: str) -> SessionCopy:
        """Read a session by its native id or by the path of its transcript.

        Raises NotFound if there is none, InvalidInput if the file is not a transcript.
        """
        ...

    def read_session(self, session: Session) -> SessionCopy:
        """Read the original of a session of the source or the store; raises NotFound."""
        ...

    async def pull(
        self, session: Session, checkpoint: Checkpoint, find_event: FindEvent
    ) -> Pulled | None:
        """Read what was added to a session since a checkpoint; None if nothing was.

        Raises NeedsFullImport if the transcript was replaced, truncated or rewritten, and
        NotFound if it is gone.
        """
        ...

    async def threads(self, session: Session, read_events: ReadEvents) -> dict[str, Thread]:
        """Return the threads that a stored session carries, by a key of the source's own."""
        ...

    def thread_events(
        self, session: Session, key: str, read_events: ReadEvents
    ) -> AsyncIterator[Event]:
        """Yield the events of a thread of a stored session."""
        ...

    def lines(self, session: Session, read_events: ReadEvents) -> AsyncIterator[bytes]:
        """Yield a stored session as the lines of the tool's transcript."""
        ...

    def original_lines(self, session: Session) -> Iterable[bytes]:
        """Return the lines of the transcript that the tool has; raises NotFound."""
        ...

    async def write(
        self, session: Session, read_events: ReadEvents, scratch: Path
    ) -> NativeSession:
        """Write a stored session to the tool's files, so that the tool can resume it.

        Temporary files go to `scratch`. Raises Conflict if the tool has a session with its id.
        """
        ...


class SourceSetting(NamedTuple):
    """A setting of a workspace that only this source or its agent uses."""

    name: str
    about: str
    example: str
    kind: type[str] | type[bool] = str


class SourceDefinition(Protocol):
    """The registry's description of a tool. Its module imports nothing heavy."""

    name: str
    label: str
    agent: str | None  # registry name of the agent that can answer in the tool's own files
    answer_setting: str | None  # the setting by which that agent answers in them
    settings: tuple[SourceSetting, ...]
    program: str  # the command that resumes its sessions
    resume_usage: str  # how people resume a session, without its id
    symbol: str  # one character, in narrow lists

    def home(self) -> str:
        """Return a directory or a file that exists if the tool was used on this machine."""
        ...

    def open(self, index_dir: Path, *, unused: bool, progress: Progress | None) -> Source | None:
        """Open the source; None if its tool was never used here, unless `unused` is set."""
        ...

    def transcripts(self) -> Transcripts:
        """Return the tool's transcripts, which need no open source."""
        ...

    def resume_command(self, session: Session, *, local: bool) -> ResumeCommand:
        """Return how to continue a session in the tool.

        `local` says that the reader uses this machine, whose variables are then named.
        """
        ...

    def writer(self) -> SessionWriter | None:
        """Return how sessions of other tools are written for this one; None if they cannot be."""
        ...

    def tool_names(self) -> ToolNames | None:
        """Return what the tools of its agent mean; None if that is not known."""
        ...

    def commands(self) -> SourceCommands | None:
        """Return the commands of `segue NAME`, which maintain the tool's files; None if none."""
        ...
