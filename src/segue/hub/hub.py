"""The hub: the services that every interface calls.

Each method takes the principal that makes the call. A session of another workspace does not exist
for it. Reads wait for nothing but the store, so with an embedded store a command line can run
them without an event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from segue.model.principal import Principal
from segue.store.base import Store

from .sessions.lookup import SessionLookup, SourceSet

if TYPE_CHECKING:
    from segue.agents.registry import AgentRegistry
    from segue.encryption import SecretBox
    from segue.sources.base import Source

    from .access.config import Config
    from .access.diagnostics import Diagnostics
    from .access.idempotency import IdempotencyKeys
    from .access.keys import Keys
    from .access.logins import Logins
    from .access.models import ModelChoices
    from .access.pins import Pins
    from .access.quotas import Quotas
    from .access.shares import Shares
    from .history.reader import HistoryReader
    from .resources.agents import AgentResolver
    from .resources.attachments import Attachments
    from .resources.credentials import Credentials
    from .resources.files import Files
    from .resources.first_events import FirstEvents
    from .resources.memories import Memories
    from .resources.records import Records
    from .resources.scheduling.deployments import Deployments
    from .resources.scheduling.scheduler import Scheduler
    from .resources.session_factory import SessionFactory
    from .resources.skills import Skills
    from .resources.work_queue import WorkQueue
    from .session_deps import SessionDeps
    from .sessions.catalog import SessionCatalog
    from .sessions.editor import SessionEditor
    from .sessions.retention import Retention
    from .sync.continuing import SessionContinuer
    from .sync.exchange import SessionExchange
    from .sync.import_all import ImportAll
    from .sync.importer import SourceSync
    from .turns.agents import SessionAgents
    from .turns.service import TurnService
    from .webhooks.dispatcher import Dispatcher
    from .webhooks.service import Webhooks
    from .workdir.mounts import Mounts
    from .workdir.outputs import Outputs
    from .workdir.prepare import WorkDirectories


class Hub:
    """The services over one store, each built when it is first used.

    A service's modules are imported then too, so that a list of sessions loads nothing else.
    """

    def __init__(
        self,
        store: Store,
        data_dir: Path,
        *,
        sources: Sequence[Source] = (),
        agent_registry: AgentRegistry | None = None,
        lease: int | None = None,
        clone: Sequence[str] = (),
        quotas: Mapping[str, int] | None = None,
        database_url: str | None = None,
        private_webhooks: bool = True,
    ) -> None:
        """Create a hub.

        `lease` is the number of microseconds after which another process may take over the
        sessions of a process that died. Repositories can be cloned if their URL begins with one
        of `clone`. `quotas` are limits by name for workspaces that have none of their own.
        `database_url` is the URL of a store that is not in `data_dir`. Webhooks may be at addresses
        of this machine and of private networks if `private_webhooks` is set.
        """
        self.store = store
        self.data_dir = data_dir
        self.database_url = database_url
        self.sources = SourceSet(store, sources)
        self._agent_registry = agent_registry
        self._lease = lease
        self._clone = clone
        self._quotas = quotas or {}
        self._private_webhooks = private_webhooks
        self._lookup = SessionLookup(store, self.sources)

    async def __aenter__(self) -> Hub:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancel this process's turns, release its leases and close the store."""
        await self.detach()
        await self.store.close()

    async def detach(self) -> None:
        """Do what `close` does, but leave the store open for its owner."""
        if "turns" in self.__dict__:
            await self.turns.engine.close()
        if "workdirs" in self.__dict__:
            await self.workdirs.close()
        if "history" in self.__dict__:
            await self.history.close()
        if "webhook_dispatcher" in self.__dict__:
            await self.webhook_dispatcher.close()
        if "idempotency_keys" in self.__dict__:
            self.idempotency_keys.close()
        await self.sources.close()
        if "agent_registry" in self.__dict__:
            await self.agent_registry.close()

    # Sessions and their history.

    @cached_property
    def _session_deps(self) -> SessionDeps:
        from .session_deps import SessionDeps

        return SessionDeps(
            self.store, self.data_dir, self.sources, self._lookup, self.records, self.quotas
        )

    @cached_property
    def sessions(self) -> SessionCatalog:
        """Get, list and search sessions."""
        from .sessions.catalog import SessionCatalog

        return SessionCatalog(self.store, self.sources, self._lookup)

    @cached_property
    def history(self) -> HistoryReader:
        """Read and follow the events of sessions."""
        from .history.reader import HistoryReader

        def ensure_current(workspace: str, id: str) -> Awaitable[None]:
            return self.sync.ensure_current(Principal(workspace=workspace), id)

        return HistoryReader(self.store, self.sources, self._lookup, ensure_current)

    @cached_property
    def editor(self) -> SessionEditor:
        """Create, edit, fork and delete sessions."""
        from .sessions.editor import SessionEditor

        return SessionEditor(self._session_deps, self.mounts, self.outputs, self.shares)

    @cached_property
    def retention(self) -> Retention:
        """Archive, trash and purge old sessions."""
        from .sessions.retention import Retention

        return Retention(self.store, self.editor)

    @cached_property
    def exchange(self) -> SessionExchange:
        """Export sessions to files and import them."""
        from .sync.exchange import SessionExchange

        return SessionExchange(self._session_deps)

    @cached_property
    def sync(self) -> SourceSync:
        """Import sessions of other tools and keep the copies current."""
        from .sync.importer import SourceSync

        return SourceSync(self._session_deps)

    @cached_property
    def import_all(self) -> ImportAll:
        """Import all sessions of the sources."""
        from .sync.import_all import ImportAll

        return ImportAll(self.store, self.sources, self.sync)

    @cached_property
    def continuing(self) -> SessionContinuer:
        """Continue sessions in other tools."""
        from .sync.continuing import SessionContinuer

        return SessionContinuer(
            self._session_deps,
            self.history,
            self.sync,
            self.editor,
            self.agents,
            lambda definition: definition.open(self.data_dir, unused=True, progress=None),
        )

    # Turns and agents.

    @cached_property
    def turns(self) -> TurnService:
        """Prompt sessions, answer and cancel turns."""
        from .turns.deps import TurnDeps
        from .turns.engine import LEASE_MICROSECONDS, TurnEngine
        from .turns.service import TurnService

        deps = TurnDeps(self.store, self.history.live, self.agents.for_turn, self)
        return TurnService(
            self._session_deps,
            TurnEngine(deps, self._lease or LEASE_MICROSECONDS),
            self.agents,
            self.history,
            self.sync,
            self.editor,
            self.work_queue,
        )

    @cached_property
    def agents(self) -> SessionAgents:
        """Build the agents that answer in sessions."""
        from .turns.agents import SessionAgents

        return SessionAgents(
            self.store,
            self.sources,
            self.agent_registry,
            self.records,
            self.config,
            self.work_queue,
            lambda: self.workdirs,
        )

    @cached_property
    def agent_registry(self) -> AgentRegistry:
        """The kinds of agents that this process can build."""
        from segue.agents.registry import AgentRegistry

        return self._agent_registry or AgentRegistry()

    # Resources that sessions refer to.

    @cached_property
    def records(self) -> Records:
        """Agents, environments and other versioned records."""
        from segue.sources.base import agent_id

        from .resources.records import Records

        agents = {
            (source.workspace, agent_id(source.workspace, source.name)): source.agent_record
            for source in self.sources
            if source.agent_record is not None
        }
        return Records(self.store, agents)

    @cached_property
    def agent_resolver(self) -> AgentResolver:
        """Find the agents that sessions and deployments refer to."""
        from .resources.agents import AgentResolver

        return AgentResolver(self.records, self.skills, self.agent_registry, self.config)

    @cached_property
    def files(self) -> Files:
        """Uploaded files."""
        from .resources.files import Files

        return Files(self.store, self.records, self.quotas)

    @cached_property
    def skills(self) -> Skills:
        """Skills and their versions."""
        from .resources.skills import Skills

        return Skills(self.store, self.records, self.quotas)

    @cached_property
    def memories(self) -> Memories:
        """Memory stores and their texts."""
        from .resources.memories import Memories

        return Memories(self.records, self.quotas)

    @cached_property
    def credentials(self) -> Credentials:
        """Credentials in vaults."""
        from .resources.credentials import Credentials

        return Credentials(self.store, self.records, self.secrets)

    @cached_property
    def attachments(self) -> Attachments:
        """Files, repositories and memory stores that are mounted into sessions."""
        from .resources.attachments import Attachments

        return Attachments(self.records, self.files, self.mounts, self.workdirs)

    @cached_property
    def first_events(self) -> FirstEvents:
        """The events that new sessions start with."""
        from .resources.first_events import FirstEvents

        return FirstEvents(self.records, self.files, self.turns)

    @cached_property
    def session_factory(self) -> SessionFactory:
        """Create sessions with everything that they refer to."""
        from .resources.session_factory import SessionFactory

        return SessionFactory(
            self.records,
            self.agent_resolver,
            self.attachments,
            self.first_events,
            self.editor,
            self.turns,
            self.quotas,
        )

    @cached_property
    def deployments(self) -> Deployments:
        """Stored setups of sessions that are run on request or on a schedule."""
        from .resources.scheduling.deployments import Deployments

        return Deployments(
            self.store,
            self.records,
            self.secrets,
            self.first_events,
            self.session_factory,
            self.quotas,
        )

    @cached_property
    def scheduler(self) -> Scheduler:
        """Run deployments on their schedules."""
        from .resources.scheduling.scheduler import Scheduler

        return Scheduler(self.store, self.records, self.deployments)

    @cached_property
    def work_queue(self) -> WorkQueue:
        """Tool calls that workers of self-hosted environments run."""
        from .resources.work_queue import WorkQueue

        return WorkQueue(self.store, self.records)

    # Webhooks.

    @cached_property
    def webhooks(self) -> Webhooks:
        """Webhooks and the log of their deliveries."""
        from .webhooks.service import Webhooks

        return Webhooks(
            self.store,
            self.records,
            self.secrets,
            lambda delivery: self.webhook_dispatcher.attempt_now(delivery),
            private=self._private_webhooks,
        )

    @cached_property
    def webhook_dispatcher(self) -> Dispatcher:
        """Deliver what happened to webhooks."""
        from .webhooks.dispatcher import Dispatcher

        return Dispatcher(
            self.store, self.records, lambda: self.webhooks, private=self._private_webhooks
        )

    # Working directories.

    @cached_property
    def mounts(self) -> Mounts:
        """Files and repositories that are copied into a session's directory."""
        from .workdir.mounts import Mounts

        return Mounts(
            self.store,
            self.data_dir,
            self.records,
            self.files,
            self.secrets,
            self.quotas,
            self._clone,
        )

    @cached_property
    def outputs(self) -> Outputs:
        """Files that a session's agent made for people."""
        from .workdir.outputs import Outputs

        return Outputs(self.records, self.files)

    @cached_property
    def session_directories(self) -> str:
        """The directory below which segue makes those of sessions."""
        from .workdir.mounts import WORK

        return str(self.data_dir / WORK)

    @cached_property
    def workdirs(self) -> WorkDirectories:
        """Session directories: prepared before a turn, collected after it."""
        from .workdir.prepare import WorkDirectories

        return WorkDirectories(
            self.store,
            Path(self.session_directories),
            self.records,
            self.mounts,
            self.memories,
            self.skills,
            self.outputs,
            self.quotas,
        )

    # Access and settings.

    @cached_property
    def config(self) -> Config:
        """The settings of a workspace."""
        from .access.config import Config

        return Config(self.store)

    @cached_property
    def model_choices(self) -> ModelChoices:
        """The models that users can choose."""
        from .access.models import ModelChoices

        return ModelChoices(self.config, self.records, self.sessions)

    @cached_property
    def keys(self) -> Keys:
        """API keys."""
        from .access.keys import Keys

        return Keys(self.store)

    @cached_property
    def idempotency_keys(self) -> IdempotencyKeys:
        """Keys with which a repeated request takes effect once."""
        from .access.idempotency import IdempotencyKeys

        return IdempotencyKeys(self.store, self.records, self.secrets)

    @cached_property
    def quotas(self) -> Quotas:
        """Limits of what each workspace stores and runs."""
        from .access.quotas import Quotas

        return Quotas(self.store, self._quotas)

    @cached_property
    def logins(self) -> Logins:
        """Browser logins."""
        from .access.logins import Logins

        return Logins(self.records, self.keys)

    @cached_property
    def pins(self) -> Pins:
        """The sessions that are pinned."""
        from .access.pins import Pins

        return Pins(self.store)

    @cached_property
    def shares(self) -> Shares:
        """Links that let anyone read a session."""
        from .access.shares import Shares

        return Shares(self.records)

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """Checks of the store and the sources."""
        from .access.diagnostics import Diagnostics

        return Diagnostics(
            self.store, self.data_dir, self.database_url, self.sources, self._lookup, self.sessions
        )

    @cached_property
    def secrets(self) -> SecretBox:
        """Encryption of secrets at rest."""
        from segue.encryption import SecretBox

        return SecretBox(self.data_dir)
