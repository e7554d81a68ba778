"""The interface between the kit and one tool: a `Reader`.

A tool's package has a reader and a `ToolDefinition`. The kit does the rest: the index, lists,
search, history, watching, import and pulls.

A reader answers three questions:

- `discover`: which sessions exist? It returns a `SessionRef` for each: a key, the tool's own id and
  a fingerprint that differs after each change. It costs one stat for each file, or one query for
  each database. It opens no transcript.
- `read`: what happened in a session? It is a generator. It yields an `Item` for each event, in
  order, and returns `End`: the facts of the session, and where a later read can continue.
- `session_paths`: where does the tool keep its sessions?

`read` gets the `Resume` of an earlier read and then yields only what was added since. It raises
`Rewritten` if what was read before is no longer there: the kit then reads the session again from
its beginning. A reader that always reads everything returns `End(facts)` without a `Resume`, and
is never called with one.

The rules for items:

- `seq` rises, and stays the same while the tool adds to the session. It begins at FIRST_SEQ, and
  may have gaps. For files it is the position of the line (`kit.files` computes it). For a database
  it is the number of a row, or a time, if rows are completed out of order: an event must not get a
  lower seq than one that a client has received before.
- `at` is in microseconds.
- `record` names the event if the seq does not: the id of the tool's record. Event ids are derived
  from it.
- Prompts that a person typed are made with `bodies.prompt`; they count as turns. Text that the tool
  injected into the conversation is no prompt: use `bodies.injected`.
- Events of a subagent that is in the same file or rows have a body with `thread`, and the facts
  name the thread. A subagent with a file or rows of its own is a `ThreadRef` with a key.
- Events that a fork copied from its parent are `inherited`: their tokens are not counted again.
- Events that the tool removed from the conversation (a rollback, a rewind) are made with
  `bodies.off_branch`. If it concerns events of an earlier read, raise `Rewritten`.

Errors: raise `Unreadable` with a reason for a session that cannot be read. It hides only this
session, and `segue doctor` names it. Let OSError and sqlite3.Error pass: the kit does the same for
them. A record that cannot be understood is skipped and named in the facts' `problems`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import msgspec

from segue.model import codec
from segue.model.event import AnyBody, InfoChanged
from segue.sources.base import Edit
from segue.sources.index.database import FileKey

from . import bodies

T = TypeVar("T")
CREATED_SEQ = 1  # of the event Created, which the kit makes
FIRST_SEQ = 2

# The status of a session's files or rows: inode, size, time of the last write in nanoseconds, and a
# digest of everything else that the row depends on. The size of a database's rows is estimated.
Fingerprint = FileKey


class SessionRef(NamedTuple):
    """A session of the tool. `key` is the path of its main file, or names its rows.

    `identity` differs between two sessions for which the tool used the same id.
    """

    key: str
    native_id: str
    fingerprint: Fingerprint
    identity: str = ""


class Item(NamedTuple):
    """One event of a session."""

    seq: int
    at: int
    body: AnyBody
    record: str = ""
    inherited: bool = False


class Resume(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a later read continues.

    `inode`, `offset` and `tail_hash` are those of a file. `data` is the reader's own: what it
    needs to know of the part before, as JSON.
    """

    inode: int = 0
    offset: int = 0
    tail_hash: str = ""
    data: dict[str, Any] = {}


def encode_resume_data(state: msgspec.Struct) -> dict[str, Any]:
    """Return what a reader needs to know of the part before as the `data` of a Resume."""
    data: dict[str, Any] = msgspec.to_builtins(state)
    return data


def decode_resume_data(resume: Resume | None, type: type[T]) -> T:
    """Return the state in a Resume; without one, the state at the beginning."""
    state: T = type() if resume is None else codec.convert(resume.data, type)
    return state


class ThreadRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A subagent. Without a `key`, its events are those of the session with this `thread`.

    `call_id` is the tool call that started it, `parent` the thread that made the call.
    """

    id: str
    key: str | None = None
    kind: str | None = None
    title: str | None = None
    parent: str | None = None
    call_id: str | None = None


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a reader knows of a session besides its events.

    `title` is None if the session was not named: the first prompt is shown then. `parent` is the
    native id of the session that started this one as its subagent: lists leave it out.
    `forked_from` is the native id, or the identity, of the session that a fork copied.
    `open_since` is when the last turn began, if nothing says that it ended. `deleted_at` is when
    segue moved it to the trash, if the session is there. `extra` is kept with the session. The kit
    computes counts, times and usage from the events.
    """

    created_at: int
    updated_at: int | None = None
    cwd: str = "/"
    title: str | None = None
    title_by: Literal["person", "agent", "auto"] = "person"
    model: str | None = None
    git_branch: str | None = None
    archived_at: int | None = None
    deleted_at: int | None = None
    forked_from: str | None = None
    parent: str | None = None
    open_since: int | None = None
    threads: tuple[ThreadRef, ...] = ()
    problems: tuple[str, ...] = ()
    extra: dict[str, Any] = {}


class End(NamedTuple):
    """The end of a read. `facts` is None if this is not a session: it is left out silently."""

    facts: SessionFacts | None
    resume: Resume | None = None


class Rewritten(Exception):
    """What was read before is no longer in the tool's files: read everything again."""


class Unreadable(Exception):
    """A session, a directory or a database cannot be read, for a reason that people understand."""


# Called by `discover` with a path and a reason. The sessions whose keys begin with the path stay
# listed as they were: a locked database loses no session.
Report = Callable[[str, str], None]
Items = Generator[Item, None, End]


class Reader(ABC):
    """Reads the sessions of one tool. It holds paths only, so that it can be pickled."""

    name: ClassVar[str]  # of the source
    version: ClassVar[int] = 1  # raise it when `read` returns other events: sources index again
    resumes: ClassVar[bool] = True  # whether `read` continues from a Resume

    @property
    def edits(self) -> frozenset[Edit]:
        """The edits that the tool would understand, with what is installed now."""
        return frozenset()

    @abstractmethod
    def session_paths(self) -> Sequence[str]:
        """Return the directories and databases with the tool's sessions, which need not exist."""

    @abstractmethod
    def discover(self, report: Report) -> Iterable[SessionRef]:
        """Return all sessions, subagents with a file of their own included or not."""

    def status(self) -> object:
        """Return a value that differs after each change of any session, such as of a database.

        None if only `discover` notices changes.
        """
        return None

    @abstractmethod
    def ref(self, key: str) -> SessionRef | None:
        """Return a session as it is now; None if it is gone."""

    @abstractmethod
    def read(self, ref: SessionRef, resume: Resume | None = None) -> Items:
        """Yield a session's events, from its beginning or from an earlier read."""

    def find(self, native_id: str) -> SessionRef | None:
        """Return the session with a native id; None if there is none."""
        refs = self.discover(ignore_report)
        return next((ref for ref in refs if ref.native_id == native_id), None)

    def is_running(self, ref: SessionRef) -> bool | None:
        """Return whether a process works on a session whose last turn is open.

        None if the tool leaves no trace of its processes: the kit then goes by recent writes.
        """
        return None

    def original_lines(self, ref: SessionRef) -> Iterable[bytes] | None:
        """Return the transcript as the tool has it, such as rows as JSON.

        None stands for the lines of the file that the key names.
        """
        return None

    def change(self, ref: SessionRef, info: InfoChanged) -> str | None:
        """Write an edit as the tool would; the kit asks only for those in `edits`.

        Return the native id of the session if the tool gave it a new one. Raises OverlayOnly if
        the tool cannot hold this edit of this session.
        """
        raise NotImplementedError

    def delete(self, ref: SessionRef) -> None:
        """Delete a session as the tool would."""
        raise NotImplementedError

    def fork(
        self, ref: SessionRef, new_id: str, *, at: int | None, cwd: str | None, title: str | None
    ) -> str:
        """Create a session with the history up to the event `at`; return its native id.

        Raises OverlayOnly if the tool cannot fork this session.
        """
        raise NotImplementedError


def collect(items: Generator[Item, None, T]) -> tuple[list[Item], T]:
    """Return all items of a generator, and the value that it returns."""
    collected: list[Item] = []
    while True:
        try:
            collected.append(next(items))
        except StopIteration as stop:
            return collected, stop.value


def mark_rolled_back(items: list[Item], rollbacks: list[tuple[int, int]]) -> Iterator[Item]:
    """Yield all items; those of turns that were rolled back are off the active branch.

    A rollback is a seq and the number of turns before it that no longer count.
    """
    off: set[int] = set()
    for rollback_seq, turns in rollbacks:
        before = [number for number, item in enumerate(items) if item.seq < rollback_seq]
        prompts = [
            number for number in before if items[number].body.starts_turn and number not in off
        ]
        if turns > 0 and prompts:
            first = prompts[-turns] if turns <= len(prompts) else prompts[0]
            off.update(number for number in before if number >= first)
    for number, item in enumerate(items):
        yield item._replace(body=bodies.off_branch(item.body)) if number in off else item


def ignore_report(path: str, reason: str) -> None:
    """Ignore what `discover` could not read."""
