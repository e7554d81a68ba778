"""Build the agent that answers in a session."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from segue.agents.base import (
    Agent,
    ConnectedTools,
    HasOptions,
    OfferedOptions,
    OwnsSessions,
    SupportsCheck,
    SupportsSummary,
    Tools,
)
from segue.agents.base.spec import (
    FUNCTIONS,
    NETWORKING,
    OF_TURN,
    PACKAGE_CACHE,
    PACKAGES,
    REMOTE,
    ROSTER,
    SUBAGENTS,
    TOOLS_BY_KEY,
)
from segue.agents.registry import DEFAULT, NEEDS_MODEL, AgentRegistry
from segue.hub.access.config import Config
from segue.hub.resources.agent_settings import for_local_turns, member_ref
from segue.hub.resources.records import Records
from segue.hub.resources.work_queue import WorkQueue
from segue.hub.sessions.lookup import SourceSet
from segue.hub.workdir.prepare import WorkDirectories
from segue.model import ids
from segue.model.anthropic.agents import ADVISOR_NAME, Roster, roster_of
from segue.model.errors import InvalidInput, NoAgent
from segue.model.event import AgentRef, ConfigChanged
from segue.model.principal import Principal
from segue.model.record import Record
from segue.model.session import Session
from segue.sources import registry as source_registry
from segue.sources.base import SourceDefinition
from segue.store.base import Lease, Store

if TYPE_CHECKING:
    from segue.agents.mcp import McpServerConfig

AgentSpec = dict[str, Any]
DEMO_LABEL = "the demo agent"
ADVISOR = "You advise another agent. Answer its question, name risks it has missed, and be brief."
MCP_WAIT_SECONDS = 1.0  # how long the opening of a session waits for its MCP servers


class SessionAgents:
    """Build agents from a session's agent record, its overrides and the workspace's settings."""

    def __init__(
        self,
        store: Store,
        sources: SourceSet,
        registry: AgentRegistry,
        records: Records,
        config: Config,
        work_queue: WorkQueue,
        workdirs: Callable[[], WorkDirectories],
    ) -> None:
        self._store = store
        self._sources = sources
        self._records = records
        self._config = config
        self._work_queue = work_queue
        self._workdirs = workdirs  # built only for agents with skills
        self.registry = registry

    async def from_spec(self, principal: Principal, spec: AgentSpec) -> Agent:
        """Build an agent from a specification; raises NoAgent if its kind is unknown here."""
        config = await self._config.all(principal.workspace)
        return self.registry.build({"config": config, **spec})

    async def require_model(self, principal: Principal, model: str | None) -> None:
        """Raise NoAgent if neither `model` nor a configured one can answer."""
        agent = await self._model_agent(principal, model)
        if isinstance(agent, SupportsCheck):
            await agent.check()

    async def summarizer(self, principal: Principal, model: str | None) -> SupportsSummary:
        """Return the agent of `model` or of the configured one, which can be used.

        Raises NoAgent if there is none.
        """
        agent = await self._model_agent(principal, model)
        if not isinstance(agent, SupportsSummary) or not isinstance(agent, SupportsCheck):
            raise NoAgent("the demo agent writes no summaries; choose a model")
        await agent.check()
        return agent

    async def _model_agent(self, principal: Principal, model: str | None) -> Agent:
        missing = "no model is configured"
        overrides = {} if model is None else {"model": model}
        return await self.from_spec(principal, {"kind": DEFAULT, NEEDS_MODEL: missing, **overrides})

    async def for_session(
        self, session: Session, overrides: AgentSpec | None = None, *, local: bool = False
    ) -> Agent:
        """Build the agent of a session; raises NoAgent if its kind is unknown here.

        With `local`, settings that API keys have changed are as the local user left them.
        """
        spec = await self.spec(session, overrides or {}, local=local)
        roster = roster_of(spec.get("multiagent"))
        spec = await self._in_environment(session, spec)
        subagents = spec.pop(SUBAGENTS, ())
        if roster != Roster() or subagents:
            resolved = await self._resolve_roster(session, spec, roster, local=local)
            resolved["members"] += _defined_members(spec, subagents)
            spec[ROSTER] = resolved
        return self.registry.build(spec)

    async def _resolve_roster(
        self, session: Session, spec: AgentSpec, roster: Roster, *, local: bool
    ) -> dict[str, Any]:
        """Return the specifications of the agents that a session's agent may start threads of."""
        refs = [member_ref(member) for member in roster.members]
        members = []
        for ref in refs:
            if session.agent is not None and ref.id == session.agent.id:
                ref, own = session.agent, spec
            else:
                own = await self.spec_of(session.workspace, ref, local=local)
                own = await self._in_environment(session, own)
            members.append({"agent": ref, "name": own["name"], "spec": own})
        names = [member["name"] for member in members]
        for member in members:
            if names.count(member["name"]) > 1:
                member["name"] = ids.format_id("agent", member["agent"].id)
            member["description"] = member["spec"].get("description")
        advisor = None
        if roster.advisor is not None:
            definition = {"model": roster.advisor}
            advisor = {
                "name": ADVISOR_NAME,
                "definition": definition,
                "spec": {**definition, "config": spec["config"], "system": ADVISOR, "tools": []},
            }
        return {"members": members, "advisor": advisor, "inline_agents": roster.inline_agents}

    async def _in_environment(self, session: Session, spec: AgentSpec) -> AgentSpec:
        """Return a specification with what depends on the session's environment."""
        spec = dict(spec)
        if spec.get("skills"):
            spec["skills"] = await self._workdirs().install_skills(session, spec["skills"])
        if await self._work_queue.runs_on_worker(session):
            # A worker puts the skills that it fetches at these paths.
            skills = [
                {**skill, "path": f"skills/{skill['name']}/SKILL.md", "text": None}
                for skill in spec.get("skills", ())
            ]
            spec |= {REMOTE: True, "skills": skills}
        networking = await self._work_queue.networking(session)
        if networking is not None:
            if networking["type"] == "limited" and spec.get("kind", DEFAULT) != DEFAULT:
                raise NoAgent(
                    "the environment of this session limits networking, which segue cannot enforce"
                    " for an agent that is a program of its own; use another environment"
                )
            spec[NETWORKING] = networking
        packages = await self._work_queue.packages(session)
        if packages:
            if spec.get("kind", DEFAULT) != DEFAULT:
                raise NoAgent(
                    "the environment of this session has packages, which segue cannot install for"
                    " an agent that is a program of its own; use another environment"
                )
            spec[PACKAGES] = packages
            spec[PACKAGE_CACHE] = self._workdirs().package_cache(session.workspace)
        return spec

    async def for_turn(
        self, session: Session, overrides: AgentSpec, lease: Lease, *, local: bool
    ) -> Agent:
        """Build the agent of a turn that is about to begin under a lease.

        The built-in agent answers with the model that is configured now. If that has changed, the
        session's row is updated to say so. With `local`, the turn is the local user's: settings
        that API keys have changed are as that user left them.
        """
        if local:
            session = session.for_local_turn()
        ref = session.agent
        if ref is not None and self._records.is_default(session.workspace, ref):
            current = await self._records.built_in_agent(session.workspace)
            if current.version != ref.version:
                await self._records.store_built_in(session.workspace, current)
                changed = ConfigChanged(
                    agent=replace(ref, version=current.version), by_key=session.agent_by_key
                )
                await self._store.change(
                    session.workspace,
                    session.id,
                    lambda row: [changed] if row.agent == ref else [],
                    lease=lease,
                )
        return await self.for_session(session, overrides, local=local)

    async def describe(self, session: Session, *, local: bool = False) -> str:
        """Return the name of what answers in a session: a model, a program, or the demo agent.

        It is "" if no agent can answer. With `local`, the turn is the local user's.
        """
        if local:
            session = session.for_local_turn()
        try:
            return self.describe_spec(await self.spec(session, {}, local=local))
        except NoAgent:
            return ""

    def describe_spec(self, spec: AgentSpec) -> str:
        """Return the name of the agent that a specification builds; "" if it cannot be built."""
        from segue.agents.model.settings import resolve_model

        kind = spec.get("kind", DEFAULT)
        if kind not in (DEFAULT, "model"):
            return str(spec.get("name") or kind)
        model = resolve_model(spec)
        if model is None and NEEDS_MODEL in spec:
            return ""
        return model or DEMO_LABEL

    async def spec(
        self, session: Session, overrides: AgentSpec, *, local: bool = False
    ) -> AgentSpec:
        """Return the specification of a session's agent, with the overrides of a turn."""
        if session.agent is None:
            config = await self._config.all(session.workspace)
            spec = {"kind": DEFAULT, "config": config, **overrides}
        else:
            spec = await self.spec_of(session.workspace, session.agent, local=local)
            spec = _with_overrides(spec, overrides)
        # A session that was imported from a file may name no agent or segue's own one.
        tool = source_registry.find(session.source)
        return spec if tool is None else {**model_spec(tool.label), **spec}

    async def spec_of(self, workspace: str, agent: AgentRef, *, local: bool = False) -> AgentSpec:
        """Return the specification of an agent: its record, the session's overrides, settings."""
        config = await self._config.all(workspace)
        answering = source_registry.answering(workspace, agent)
        answers = answering is not None and _is_enabled(answering, config)
        author = source_registry.of_agent(workspace, agent)
        if author is not None and not answers:
            # The configured model answers in a copy of another tool's session.
            own = {name: value for name, value in agent.overrides.items() if name != "model"}
            return _stored({**own, "config": config, **model_spec(author.label)})
        record = await self._records.find(workspace, "agent", agent.id, agent.version)
        if record is None:
            raise NoAgent(f"this workspace has no agent {agent.id}; choose another for the session")
        spec = record.body.get("spec", {"kind": "default"})
        body = for_local_turns(record.body) if local else record.body
        return _stored(_with_overrides({**body, "config": config, **spec}, agent.overrides))

    async def answers_itself(self, agent: Record) -> bool:
        """Return whether this process can run an agent; most tools' agents run in their tool."""
        workspace = agent.workspace
        source = source_registry.of_agent(workspace, AgentRef(id=agent.id, version=agent.version))
        if source is not None and not _is_enabled(source, await self._config.all(workspace)):
            return False
        return self.registry.can_build(agent.body.get("spec", {"kind": DEFAULT}))

    async def answers_in_source(self, principal: Principal, source: str) -> bool:
        """Return whether the user wants a tool's own agent to answer in the tool's files."""
        definition = source_registry.find(source)
        if definition is None or definition.agent is None or not principal.local:
            return False
        return _is_enabled(definition, await self._config.all(principal.workspace))

    async def connect_mcp(
        self,
        principal: Principal,
        servers: Sequence[McpServerConfig],
        cwd: str,
        session: Session | None = None,
        agent: Agent | None = None,
    ) -> ConnectedTools | None:
        """Connect to the MCP servers of a session, or return None if it has none.

        Servers that do not answer at once connect later; turns wait for them. They are listed, not
        connected, if the agent of `session`, or `agent`, does that itself.
        """
        if not servers:
            return None
        from segue.agents.mcp import McpServers
        from segue.agents.tools import PathGuard, ToolContext

        if agent is None and session is not None:
            with contextlib.suppress(NoAgent):
                agent = await self.for_session(session)
        if isinstance(agent, OwnsSessions):
            return McpServers.unconnected(servers, cwd)
        networking = None if session is None else await self._work_queue.networking(session)
        if networking is not None and networking["type"] == "limited":
            raise InvalidInput(
                "the environment of this session limits networking; only MCP servers of its agent"
                " can be used"
            )
        sandbox = None
        if not principal.local:
            private = self._workdirs().private_directories
            sandbox = ToolContext(
                session=ids.new_id() if session is None else session.id,
                paths=PathGuard([cwd], private=private),
                local=False,
                config=await self._config.all(principal.workspace),
                private=private,
            )
        return await McpServers.connect(
            servers, cwd, sandbox=sandbox, wait_seconds=MCP_WAIT_SECONDS
        )

    async def set_option(
        self,
        session: Session,
        option: str,
        value: str | bool,
        agent: Agent | None = None,
        tools: Tools | None = None,
        meta: Any = None,
    ) -> OfferedOptions:
        """Set an option that a session's agent, or `agent`, defines itself.

        Returns what the session should store. `meta` comes from a client that uses the agent's
        protocol.
        """
        agent = agent or await self.for_session(session)
        if not isinstance(agent, HasOptions):
            raise InvalidInput(f"the agent of session {session.id} has no options")
        return await agent.set_option(session, tools, option, value, meta)

    async def register_agent(self, principal: Principal, name: str, spec: AgentSpec) -> Agent:
        """Build a program's agent; the sessions that it lists itself become a source."""
        from segue.agents.acp import AcpAgent
        from segue.hub.sync.acp_source import AcpSource

        agent = await self.from_spec(principal, spec)
        if isinstance(agent, AcpAgent):
            ref = await self._records.program(principal.workspace, name, spec)
            workspace, sources = principal.workspace, self._sources
            source = AcpSource(self._store, agent, ref, name, workspace, sources)
            sources.add(source)
        return agent


def model_spec(label: str) -> AgentSpec:
    """Return the specification of the agent that answers in sessions of a tool with this label.

    That is the configured model, and never the demo agent.
    """
    missing = (
        f"this is a session of {label}, which `segue resume` continues in {label},"
        " and no model is configured to answer here"
    )
    return {"kind": DEFAULT, NEEDS_MODEL: missing}


def _with_overrides(spec: AgentSpec, overrides: Mapping[str, Any]) -> AgentSpec:
    """Return a specification with overrides. Overridden tools were not chosen by an API key."""
    by_key = {TOOLS_BY_KEY: False} if "tools" in overrides else {}
    return {**spec, **by_key, **overrides}


def _stored(spec: AgentSpec) -> AgentSpec:
    """Return the specification of a stored agent, without what the hub sets for a turn."""
    return {name: value for name, value in spec.items() if name not in OF_TURN}


def _defined_members(
    spec: AgentSpec, subagents: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the agents that a program defines: its session's agent with other settings."""
    not_shared = ("append_system", "multiagent", FUNCTIONS)
    shared = {name: value for name, value in spec.items() if name not in not_shared}
    return [
        {
            "name": subagent["name"],
            "description": subagent["description"],
            "definition": subagent["definition"],
            "spec": {**shared, **subagent["settings"]},
        }
        for subagent in subagents
    ]


def _is_enabled(source: SourceDefinition, config: Mapping[str, Any]) -> bool:
    return source.answer_setting is not None and bool(config.get(source.answer_setting))
