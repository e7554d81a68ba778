"""Agent, and the abilities that an agent may have besides answering prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from segue.model.lifecycle import StopReason
from segue.model.session import Session

from .client import Client
from .ports import SessionPort, Tools
from .turn import Turn

if TYPE_CHECKING:
    from segue.acp.wire import LoginMethod


class Agent(Protocol):
    """An object that answers prompts."""

    async def run(self, turn: Turn) -> StopReason:
        """Answer `turn.prompt` by emitting events, and return why the turn ended."""
        ...


@runtime_checkable
class SupportsCheck(Protocol):
    """An agent that can check before a turn whether it is able to answer."""

    async def check(self) -> None:
        """Raise NoAgent, with a message that names what is missing, if the agent cannot answer."""
        ...


@runtime_checkable
class SupportsSummary(Protocol):
    """An agent that can summarise a conversation."""

    async def summarize(self, text: str) -> str:
        """Return a summary of a conversation; raises NoAgent or AgentFailed."""
        ...


@runtime_checkable
class SupportsResume(Protocol):
    """An agent that can continue a turn from its stored events, also in another process.

    It does not wait for answers and results of clients: `run` and `resume` return
    `requires_action` when nothing else is left to do. The turn is stored then, and has no task.
    """

    async def run(self, turn: Turn) -> StopReason: ...
    async def resume(self, turn: Turn) -> StopReason:
        """Continue a turn; `turn.events()` has what was done and answered so far."""
        ...


@runtime_checkable
class SupportsRelease(Protocol):
    """An agent that keeps resources for a session between its turns."""

    async def release(self, session: str) -> None:
        """Free the resources of a session that was closed."""
        ...


NO_FIELDS: Mapping[str, Any] = MappingProxyType({})


class AgentSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that an agent has started on its side.

    `id` is the session id to use in segue, `native_id` the agent's own. `bind` receives the segue
    id that the session got, and returns the session options that identify it to the agent. `meta`
    is for clients that use the protocol of the agent.
    """

    id: str
    native_id: str
    bind: Callable[[str], dict[str, Any]]
    meta: Any = None


class OfferedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that an agent offers now.

    `meta` is for clients that use the protocol of the agent.
    """

    offered: Any
    meta: Any = None


@runtime_checkable
class OwnsSessions(Protocol):
    """An agent that has its own sessions, one for each session of segue.

    Such an agent connects a session's MCP servers itself: `tools` only lists them.
    """

    async def start_session(
        self,
        cwd: str,
        roots: Sequence[str],
        tools: Tools | None,
        fields: Mapping[str, Any] = NO_FIELDS,
    ) -> AgentSession:
        """Start a session in the agent; `fields` come from a client that uses its protocol."""
        ...

    async def fork_session(
        self,
        parent: Session,
        cwd: str,
        roots: Sequence[str],
        tools: Tools | None,
        fields: Mapping[str, Any] = NO_FIELDS,
    ) -> AgentSession:
        """Start a session in the agent for a fork of `parent`."""
        ...

    async def reopen_session(
        self, session: Session, tools: Tools | None, fields: Mapping[str, Any] = NO_FIELDS
    ) -> OfferedOptions | None:
        """Open a session again in the agent; None if the agent does not have it."""
        ...


@runtime_checkable
class ReadsDirectorySettings(Protocol):
    """An agent whose program reads settings in the working directory, such as hooks to run.

    It does not run for the local user in a directory that an API key may have written to.
    """

    @property
    def directory_settings(self) -> str:
        """Return the name of the program, for messages."""
        ...


@runtime_checkable
class HasOptions(Protocol):
    """An agent that offers options of its own; the session's `offered` option lists them."""

    async def set_option(
        self,
        session: Session,
        tools: Tools | None,
        option: str,
        value: str | bool,
        meta: Any = None,
    ) -> OfferedOptions:
        """Set an option, and return all; `meta` comes from a client that uses its protocol."""
        ...


@runtime_checkable
class NeedsLogin(Protocol):
    """An agent that may require the user to log in."""

    async def logins(self) -> Sequence[LoginMethod]:
        """Return the login methods that the agent offers."""
        ...

    async def log_in(self, id: str) -> None:
        """Log in with one of the methods."""
        ...

    async def log_out(self) -> None:
        """Log out."""
        ...


@runtime_checkable
class HandlesOpened(Protocol):
    """An agent that wants to know which sessions its client opens."""

    async def session_opened(self, session: Session, client: Client) -> None:
        """Prepare for a session that the client creates, loads, resumes or forks.

        The client has no answer yet: an error, such as Unauthorized, becomes the answer.
        """
        ...


@runtime_checkable
class HandlesConfigured(Protocol):
    """An agent that wants to know when a user changes one of its options."""

    async def session_configured(self, session: Session, option: str, value: str | bool) -> None:
        """Act on a new value before it is stored; raise InvalidInput to refuse it."""
        ...


@runtime_checkable
class HandlesClosed(Protocol):
    """An agent that wants to know when its client closes a session, or disconnects."""

    async def session_closed(self, session: Session) -> None:
        """Free what the agent has for a session. No turn of the client runs any more."""
        ...


@runtime_checkable
class HandlesLogin(Protocol):
    """An agent that declares login methods which it runs itself."""

    async def log_in(self, id: str) -> None:
        """Log in with one of the declared methods."""
        ...

    async def log_out(self) -> None:
        """Log out."""
        ...


@runtime_checkable
class HandlesExtensions(Protocol):
    """An agent with methods that are not part of the protocol; their names begin with `_`."""

    async def extension(self, method: str, params: Any) -> Any:
        """Answer a request. Raise NotImplementedError for a method that the agent does not have."""
        ...


@runtime_checkable
class HandlesNotifications(Protocol):
    """An agent with notifications that are not part of the protocol."""

    async def notify(self, method: str, params: Any) -> None:
        """Act on a notification."""
        ...


@runtime_checkable
class SpeaksBetweenTurns(Protocol):
    """An agent that may add to a session while no turn of it runs."""

    def connect(self, session: Session, port: SessionPort) -> None:
        """Use the port for a session from now on, until the session is released."""
        ...
