"""What all turns of a process use."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from segue.agents.base import Agent
from segue.hub.history.follow import LiveUpdates
from segue.model.session import Session
from segue.store.base import Lease, Store

if TYPE_CHECKING:
    from segue.agents.registry import AgentRegistry
    from segue.hub.resources.credentials import Credentials
    from segue.hub.workdir.prepare import WorkDirectories


class BuildAgent(Protocol):
    """Build the agent of a turn; `local` says that the local user starts it."""

    def __call__(
        self, session: Session, overrides: dict[str, Any], lease: Lease, *, local: bool
    ) -> Awaitable[Agent]: ...


class TurnServices(Protocol):
    """The services that a turn uses, each built by the first turn that needs it."""

    @property
    def workdirs(self) -> WorkDirectories: ...
    @property
    def credentials(self) -> Credentials: ...
    @property
    def agent_registry(self) -> AgentRegistry: ...


class TurnDeps(NamedTuple):
    """What all turns of a process use."""

    store: Store
    live: LiveUpdates
    build_agent: BuildAgent
    services: TurnServices
