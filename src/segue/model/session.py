"""The session row, projected from the session's events, and what belongs to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from . import codec
from .event import AgentRef, ForkPoint, Usage, always_encoded
from .lifecycle import Status, StopReason

# The session option that lists the tools that the user always allows.
ALWAYS_ALLOWED = "always_allow"
# The option with the directory that an imported file chose and the local user has not accepted.
UNCONFIRMED_DIRECTORY = "unconfirmed_directory"

OWN = "segue"  # the owner of the store's sessions, and the source of those that no tool began
# Origins that are not a source: what creates sessions in the store.
_INTERFACES = frozenset(("acp", "ahp", "cli", "demo", "python", "rest", "web"))

SessionState = Literal["active", "archived", "trashed"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of one outcome that a client has defined."""

    outcome_id: str
    description: str
    result: str = "pending"
    iteration: int = 0
    explanation: str | None = None
    completed_at: int | None = None


class OpenThread(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A thread that runs or waits for clients: the call that it answers, its parent and sums.

    `running_since` is None while it waits. `pending` is what it waits for.
    """

    call_id: str
    parent: str | None = None
    running_since: int | None = None
    running_time: int = 0
    usage: Usage = msgspec.field(default_factory=Usage)
    pending: tuple[str, ...] = ()


class ChangedLines(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many lines of files completed tool calls added and removed.

    `open` has the lines that each open call will add and remove if it is completed.
    """

    added: int = 0
    removed: int = 0
    open: dict[str, tuple[int, int]] = {}


def settled(lines: ChangedLines | None) -> ChangedLines | None:
    """Return the numbers of a session whose open calls are not known."""
    return lines if lines is None else ChangedLines(added=lines.added, removed=lines.removed)


class Session(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One conversation. `active_at` moves with the conversation only, `updated_at` with any change.

    `models` has the usage of each model, as far as it is known. `days` has the number of messages
    by day, counted from 1970 in UTC. `budget` is the most that the session may cost. The model that
    was used last is the last one of `models`. `tool_calls` and `lines` are None in rows that were
    written before segue counted these.

    `agent_by_key` says that an API key chose the agent. `local_settings` has the settings that API
    keys have changed, as the local user left them: "mode", ALWAYS_ALLOWED and "agent".

    `threads` is the number of threads that the session's turns have started, `open_threads` are
    those that run or wait. `thread_of` has the thread of each open call and request of a thread.
    """

    id: str
    workspace: str
    cwd: str
    created_at: int
    active_at: int
    updated_at: int
    last_seq: int
    real_cwd: str | None = None
    status: Status = "idle"
    title: str | None = None
    title_by: Literal["person", "agent", "auto"] | None = None
    tag: str | None = None
    metadata: dict[str, str] = {}
    archived_at: int | None = None
    deleted_at: int | None = None
    terminated_at: int | None = None
    owner: str = msgspec.field(name="source", default=OWN)  # in whose files the session is
    native_id: str | None = None
    origin: str = always_encoded("python")
    agent: AgentRef | None = None
    environment_id: str | None = None
    deployment_id: str | None = None
    memory_store_ids: tuple[str, ...] = ()
    vault_ids: tuple[str, ...] = ()
    resources: tuple[dict[str, Any], ...] = ()
    roots: tuple[str, ...] = ()
    mode: str | None = None
    options: dict[str, Any] = {}
    git_branch: str | None = None
    fork: ForkPoint | None = None
    turn: str | None = None
    turns: int = 0
    stop_reason: StopReason | None = None
    pending: tuple[str, ...] = ()
    open_calls: tuple[str, ...] = ()
    open_asks: tuple[str, ...] = ()
    messages: int = 0
    tool_calls: int | None = None
    lines: ChangedLines | None = None
    errors: int = 0
    usage: Usage = msgspec.field(default_factory=Usage)
    models: dict[str, Usage] = {}
    days: dict[str, int] = {}
    running_since: int | None = None
    running_time: int = 0
    budget: int | None = None
    outcomes: tuple[Outcome, ...] = ()
    agent_by_key: bool = False
    local_settings: dict[str, Any] = {}
    threads: int = 0
    open_threads: dict[str, OpenThread] = {}
    thread_of: dict[str, str] = {}
    extra: dict[str, Any] = {}

    def as_copy(self, fork: ForkPoint, made_at: int) -> Session:
        """Return the session as a copy of another one, which is no older than `made_at`."""
        times = {
            name: max(getattr(self, name), made_at)
            for name in ("created_at", "active_at", "updated_at")
        }
        return msgspec.structs.replace(self, fork=fork, **times)

    def for_local_turn(self) -> Session:
        """Return the session with the settings of the local user's turns."""
        settings = self.local_settings
        changes: dict[str, Any] = {}
        if "mode" in settings:
            changes["mode"] = settings["mode"]
        if ALWAYS_ALLOWED in settings:
            changes["options"] = {**self.options, ALWAYS_ALLOWED: settings[ALWAYS_ALLOWED]}
        if "agent" in settings:
            agent = msgspec.convert(settings["agent"], AgentRef | None)
            changes |= {"agent": agent, "agent_by_key": False}
        return msgspec.structs.replace(self, **changes) if changes else self

    @property
    def source(self) -> str:
        """Return the tool whose session this is, also of an imported copy; OWN if there is none."""
        if self.owner != OWN or self.origin in _INTERFACES:
            return self.owner
        return self.origin

    @property
    def directory(self) -> str:
        """Return the working directory with links resolved, as lists compare it."""
        return self.cwd if self.real_cwd is None else self.real_cwd

    @property
    def directory_is_unconfirmed(self) -> bool:
        """Return whether an imported file chose the directory, and not the local user."""
        return self.options.get(UNCONFIRMED_DIRECTORY) == self.directory

    @property
    def state(self) -> SessionState:
        """Return the list that shows the session: the normal one, the archive or the trash."""
        if self.deleted_at is not None:
            return "trashed"
        return "active" if self.archived_at is None else "archived"

    @property
    def is_priced(self) -> bool:
        """Return whether the cost of every model it used is known."""
        return all(used.is_priced for used in self.models.values())

    @property
    def has_full_cost(self) -> bool:
        """Return whether the cost covers all tokens, those of models without a price included."""
        if not self.usage.is_priced or not self.is_priced:
            return False
        if not self.usage.estimated_cost:
            return True
        # Only tokens of a known model can be estimated.
        return self.usage.tokens <= sum(used.tokens for used in self.models.values())

    @property
    def at_budget(self) -> bool:
        """Return whether the budget is spent or the cost unknown; no model may be called then."""
        if self.budget is None:
            return False
        return (self.usage.cost or 0) >= self.budget or not self.is_priced

    def active_seconds(self, now: int) -> float:
        """Return how long its turns have run in total."""
        current = 0 if self.running_since is None else max(0, now - self.running_since)
        return (self.running_time + current) / 1e6

    def duration_seconds(self, now: int) -> float:
        """Return its age; it does not grow after the session terminated."""
        end = now if self.terminated_at is None else self.terminated_at
        return max(0, end - self.created_at) / 1e6


def is_session_directory(directory: str) -> bool:
    """Return whether segue made the directory for one session: it is named by the session's id."""
    name = directory.replace("\\", "/").rsplit("/", 1)[-1]
    return len(name) == 36 and name.count("-") == 4 and not set(name) - set("0123456789abcdef-")


class Thread(NamedTuple):
    """A subagent of a session; `seq` is the seq of the call that started it.

    `parent` is the thread that started it; None for the session's own agent. The fields after
    `usage` are known of threads that segue ran. `status` and `stop_reason` are from its last
    change. `call_id` is the tool call that started it, `last_call_id` the last tool call that it
    answered. `agent` is None if its agent has no record; `definition` is then that of its
    ThreadStarted event.
    """

    id: str
    seq: int | None = None
    parent: str | None = None
    kind: str | None = None
    title: str | None = None
    created_at: int | None = None
    active_at: int | None = None
    usage: Usage = Usage()
    status: Status = "idle"
    stop_reason: StopReason | None = None
    call_id: str | None = None
    last_call_id: str | None = None
    agent: AgentRef | None = None
    definition: Any = None
    running_time: int = 0
    running_since: int | None = None
    archived_at: int | None = None
    is_own: bool = False  # whether its events are in the session's history


_decode_session: codec.Decoder[Session] = codec.Decoder(Session)
_decode_session_list = msgspec.json.Decoder(list[Session]).decode
_decode_raw: codec.Decoder[dict[str, Any]] = codec.Decoder(dict[str, Any])
_IN_EVERY_ROW = b'"cache_write_tokens"'  # except in rows that were written before events' version 2


def decode_session(row: bytes) -> Session:
    """Return the session of a row. Rows of older versions are converted."""
    if _IN_EVERY_ROW in row:
        return _decode_session(row)
    from .formats.version_1 import convert_usage  # late: no new row needs it

    raw = _decode_raw(row)
    models = {name: convert_usage(used) for name, used in raw.get("models", {}).items()}
    raw |= {"usage": convert_usage(raw.get("usage", {})), "models": models}
    session: Session = codec.convert(raw, Session)
    return session


def decode_sessions(rows: Sequence[bytes]) -> list[Session]:
    """Return the sessions of rows, decoded together because that is faster."""
    if [True for row in rows if _IN_EVERY_ROW not in row]:  # faster than any()
        return [decode_session(row) for row in rows]
    try:
        return _decode_session_list(b"[" + b",".join(rows) + b"]")
    except msgspec.DecodeError:  # a row has text that is not valid UTF-8
        return [decode_session(row) for row in rows]


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The position in a source's transcript up to which a session has been imported.

    `inode`, `offset` and `tail_hash` (of the last bytes before `offset`) tell a file that grew
    from one that was replaced. A source over a database leaves them out, and keeps its own position
    in `extra`, as does a source whose sessions have several files.
    """

    source: str
    path: str
    inode: int = 0
    offset: int = 0
    tail_hash: str = ""
    extra: dict[str, Any] = {}
