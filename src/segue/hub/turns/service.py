"""Prompt a session's agent, wait for its turns, answer and cancel them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import aclosing, suppress
from typing import Any

from msgspec import to_builtins

from segue.agents.base import Agent, SpeaksBetweenTurns, SupportsCheck, Tools
from segue.agents.base.client import ClientPort
from segue.agents.base.turn_hooks import HOOKS_KEY
from segue.hub.history.reader import HistoryReader
from segue.hub.resources.work_queue import WorkQueue
from segue.hub.session_deps import SessionDeps
from segue.hub.sessions.editor import SessionEditor, require_idle
from segue.hub.sync.importer import SourceSync
from segue.hub.turns.end_turn import end_turn_events
from segue.model import codec, ids
from segue.model.anthropic.agents import roster_of
from segue.model.content import Block, Content, Text, as_content
from segue.model.errors import InvalidInput, NoAgent, NotFound, StoreReadOnly
from segue.model.event import (
    AgentRef,
    AnyBody,
    ConfigChanged,
    Draft,
    Event,
    Interrupted,
    OutcomeDefined,
    StatusChanged,
    ThreadChanged,
)
from segue.model.lifecycle import StopReason
from segue.model.principal import Principal
from segue.model.session import Session, Thread
from segue.sources import registry

from . import budgets
from .agents import SessionAgents, model_spec
from .answers import RequestAnswers, require_not_trashed
from .engine import TurnEngine
from .inbox import Prompt, SystemText, resume
from .opened import OpenSession

# A prompt that is withdrawn in another process appends no event that would wake a waiting client.
WITHDRAWN_POLL_SECONDS = 1.0


class TurnService:
    """Everything a client can do with the turns of a session."""

    def __init__(
        self,
        deps: SessionDeps,
        engine: TurnEngine,
        agents: SessionAgents,
        history: HistoryReader,
        sync: SourceSync,
        editor: SessionEditor,
        work_queue: WorkQueue,
    ) -> None:
        self.engine = engine
        self._store = deps.store
        self._lookup = deps.lookup
        self._records = deps.records
        self._quotas = deps.quotas
        self._agents = agents
        self._history = history
        self._sync = sync
        self._editor = editor
        self._work_queue = work_queue
        self._answers = RequestAnswers(deps.store, engine, deps.lookup, deps.quotas)
        self.answer = self._answers.answer
        self.submit_tool_result = self._answers.submit_tool_result

    async def submit(
        self,
        principal: Principal,
        id: str,
        content: str | Block | Iterable[Block],
        *,
        turn_id: str | None = None,
        system: SystemText | None = None,
        overrides: dict[str, Any] | None = None,
        mode: str | None = None,
        replay_to_late_stream: bool = False,
        opened: OpenSession | None = None,
        extra: dict[str, Any] | None = None,
    ) -> str:
        """Prompt a session's agent; return the id of the turn, which is the message's id too.

        A caller that must know the id in advance may choose a new one. `overrides` of the agent
        and the permission `mode` apply to this turn only. With `replay_to_late_stream`, a stream
        that opens shortly after the turn replays it. The prompt is durable when this returns. It
        runs in this process, with the agent, MCP servers and roots of `opened`. `extra` has fields
        that only the client's protocol has. Raises NoAgent if this process cannot run it,
        QuotaExceeded if the workspace has too many turns or bytes.
        """
        prompt = Prompt(
            content=as_content(content),
            local=principal.local,
            system=system,
            overrides=overrides or {},
            mode=mode,
            replay_to_late_stream=replay_to_late_stream,
            opened=None if opened is None else opened.id,
            roots=None if opened is None else opened.roots,
            needs=_process_needs(overrides or {}, opened),
            extra=extra or {},
        )
        return await self._submit(principal, id, prompt, turn_id, opened)

    async def define_outcome(
        self,
        principal: Principal,
        id: str,
        description: str,
        rubric: dict[str, Any],
        max_iterations: int = 3,
        *,
        turn_id: str | None = None,
    ) -> OutcomeDefined:
        """Ask a session's agent to reach an outcome, and grade its work until it has.

        This is a turn like a prompt's; its id is the event's id.
        """
        outcome = OutcomeDefined(
            outcome_id=ids.new_id(),
            description=description,
            rubric=rubric,
            max_iterations=max_iterations,
        )
        content = as_content(description)
        prompt = Prompt(
            content=content, local=principal.local, outcome=outcome, replay_to_late_stream=True
        )
        await self._submit(principal, id, prompt, turn_id, None)
        return outcome

    async def run(
        self,
        principal: Principal,
        id: str,
        content: str | Block | Iterable[Block],
        *,
        opened: OpenSession | None = None,
    ) -> StopReason:
        """Submit a prompt, wait for its turn to end and return why it ended."""
        turn = await self.submit(principal, id, content, opened=opened)
        return await self.wait(principal, id, turn)

    async def wait(self, principal: Principal, id: str, turn_id: str) -> StopReason:
        """Return why a turn ended, once it has; a withdrawn prompt counts as cancelled."""
        seq = await self.wait_started(principal, id, turn_id)
        if seq is None:
            return "cancelled"
        async with aclosing(self._history.follow(principal, id, seq)) as events:
            async for event in events:
                if isinstance(event, Event) and isinstance(event.body, StatusChanged):
                    reason = event.body.stop_reason
                    if reason is not None and reason != "requires_action":
                        return reason
        raise NotFound(f"no session {id}", session=id)

    async def wait_started(self, principal: Principal, id: str, turn_id: str) -> int | None:
        """Return the seq of a turn's first message once it runs; None if it was withdrawn."""
        name = (principal.workspace, id)
        with self._history.live.subscribe(name) as subscription:
            while True:
                subscription.clear()
                seq = await self._store.locate(*name, turn_id)
                if seq is not None or await self.was_withdrawn(principal, id, turn_id):
                    return seq
                with suppress(TimeoutError):
                    await asyncio.wait_for(subscription.wait(), WITHDRAWN_POLL_SECONDS)

    async def cancel(self, principal: Principal, id: str, turn_id: str | None = None) -> str | None:
        """Withdraw the queued prompts and cancel the running turn, in any process.

        With `turn_id`, only that turn or prompt. A turn that a budget stopped is not resumed
        afterwards, even if the budget changes. Returns the id that the turn's Interrupted event
        will have; None if nothing is running.
        """
        name = (principal.workspace, id)
        cancel_id = ids.new_id()
        # In this order: a prompt that leaves the inbox in between is the turn that is found then.
        queued = await self.queued(principal, id)
        for prompt in queued:
            if turn_id in (None, prompt):
                await self.withdraw(principal, id, prompt)
        session = await self._lookup.find_stored(principal, id)
        if session.turn is not None and turn_id in (None, session.turn):
            body = {} if turn_id is None else {"turn": turn_id}
            await self._store.put_inbox(*name, "cancel", cancel_id, body, self.engine.holder)
            await self.engine.kick(name)
            return cancel_id
        if session.stop_reason != "budget_reached" or turn_id is not None:
            return None
        _, events = await self._store.change(
            *name, lambda row: _abandon_budget_stop(row, cancel_id)
        )
        return cancel_id if events else None

    async def cancel_thread(self, principal: Principal, id: str, thread: str) -> str | None:
        """Interrupt what one thread of a session does, in any process.

        Returns the id that the Interrupted event will have; None if the thread does nothing.
        """
        session = await self._lookup.find_stored(principal, id)
        if thread not in session.open_threads:
            return None
        name = (principal.workspace, id)
        items = await self._store.inbox(*name)
        return await self._answers.put(name, items, "cancel", {"thread": thread})

    async def archive_thread(self, principal: Principal, id: str, thread: Thread) -> None:
        """Archive a thread: it keeps its history and takes no more messages.

        Raises InvalidInput if it works or waits for an answer.
        """

        def decide(session: Session) -> list[ThreadChanged]:
            if thread.id in session.open_threads:
                raise InvalidInput(
                    "the thread is working; interrupt it or wait for its end", session=id
                )
            ended = ThreadChanged(
                thread=thread.id,
                status="terminated",
                usage=thread.usage,
                running_time=thread.running_time,
            )
            return [] if thread.archived_at is not None else [ended]

        await self._lookup.find_stored(principal, id)
        await self._store.change(principal.workspace, id, decide)

    def runs_here(self, principal: Principal, id: str) -> bool:
        """Return whether this process runs a turn of a session."""
        return self.engine.has_lease((principal.workspace, id))

    async def queued(self, principal: Principal, id: str) -> Sequence[str]:
        """Return the ids of prompts whose turns have not begun, in order."""
        await self._lookup.find_stored(principal, id)
        items = await self._store.inbox(principal.workspace, id)
        return [item.id for item in items if item.kind == "prompt"]

    async def queued_messages(self, principal: Principal, id: str) -> list[tuple[str, Content]]:
        """Return the ids and contents of prompts whose turns have not begun, in order."""
        await self._lookup.find_stored(principal, id)
        items = await self._store.inbox(principal.workspace, id)
        prompts = (item for item in items if item.kind == "prompt")
        return [(item.id, codec.convert(item.body, Prompt).content) for item in prompts]

    async def was_withdrawn(self, principal: Principal, id: str, turn_id: str) -> bool:
        """Return whether a prompt was withdrawn before its turn began."""
        name = (principal.workspace, id)
        if any(item.id == turn_id for item in await self._store.inbox(*name)):
            return False
        return await self._store.locate(*name, turn_id) is None

    async def withdraw(self, principal: Principal, id: str, turn_id: str) -> bool:
        """Withdraw a prompt whose turn has not begun; return False if it has."""
        name = (principal.workspace, id)
        numbers = [item.number for item in await self._store.inbox(*name) if item.id == turn_id]
        return bool(await self._store.drop_inbox(*name, numbers))

    async def open(
        self,
        principal: Principal,
        id: str,
        *,
        agent: Agent | None = None,
        tools: Tools | None = None,
        roots: Sequence[str] | None = None,
        client: ClientPort | None = None,
    ) -> OpenSession:
        """Open a session for a client, whose prompts run with this agent, these tools and roots.

        The agent sends its requests to `client`.

        A source's session is not imported before its first prompt, unless the tool's own agent
        answers in it. Raises StoreReadOnly if the store can only be read.
        """
        if self._store.read_only:
            raise StoreReadOnly("the store is read-only, so its sessions cannot be prompted")
        _, source = await self._lookup.find(principal, id)
        is_imported = source is None or source.transcripts is None
        if is_imported or (source and await self._agents.answers_in_source(principal, source.name)):
            try:
                await self.prepare_for_prompt(principal, id)
            except NoAgent:
                if is_imported:
                    raise
        name = (principal.workspace, id)
        if isinstance(agent, SpeaksBetweenTurns):
            session, _ = await self._lookup.find(principal, id)
            agent.connect(session, self.engine.session_port(name))
        return self.engine.open(name, agent, tools, roots, client)

    async def prepare_for_prompt(
        self,
        principal: Principal,
        id: str,
        *,
        overrides: dict[str, Any] | None = None,
        opened: OpenSession | None = None,
    ) -> Session:
        """Return the session as the store has it; import it first if a source owns it.

        The tool's files stay as they are, unless the user wants the tool's own agent to answer:
        then it continues in its own file. A caller with `overrides` for its turns does not want
        that. Raises NoAgent, without importing, if no agent could answer.
        """
        session, source = await self._lookup.find(principal, id)
        require_not_trashed(session)
        if source is None:
            answering = registry.answering(session.workspace, session.agent)
            if answering is not None and principal.local:
                with suppress(NotFound):
                    return await self._sync.import_from_source(principal, session, answering)
            return await self._sync.pull(principal, session)
        if source.transcripts is None:
            await self._sync.import_if_listed_only(principal, id)
            return await self._lookup.find_stored(principal, id)
        require_idle(session)
        definition = registry.find(source.name)
        in_source = not overrides and await self._agents.answers_in_source(principal, source.name)
        if opened is None or opened.agent is None:
            spec = model_spec(source.label)
            if in_source and definition is not None:
                spec = {"kind": definition.agent}
            agent = await self._agents.from_spec(principal, {**spec, **(overrides or {})})
            if isinstance(agent, SupportsCheck):
                await agent.check()
        session = await self._sync.import_from_source(principal, session)
        if in_source:
            ref = self._records.agent_of(principal.workspace, source.name)
            session = await self._editor.configure(principal, id, ConfigChanged(agent=ref))
        return session

    async def check_budget(self, workspace: str, *agents: AgentRef) -> None:
        """Raise InvalidInput if a model of one of the agents has no list price."""
        specs = [await self._agents.spec_of(workspace, agent) for agent in agents]
        advisors = [(spec, roster_of(spec.get("multiagent")).advisor) for spec in specs]
        specs += [{**spec, "model": model} for spec, model in advisors if model is not None]
        await budgets.check_prices(specs)

    async def set_budget(self, principal: Principal, id: str, budget: int | None) -> Session:
        """Change or remove a session's budget, and resume the turn that the old one stopped.

        Repeating the call after a crash is safe.
        """
        session, _ = await self._lookup.find(principal, id)
        if budgets.budget_changes(session, budget):
            session, _ = await self._editor.change(
                principal, id, lambda row: budgets.budget_changes(row, budget)
            )
        if session.stop_reason == "budget_reached" and not session.at_budget:
            name = (principal.workspace, id)
            await resume(self._store, name)
            await self.engine.kick(name)
            await self._work_queue.enqueue(session)
        return session

    async def _submit(
        self,
        principal: Principal,
        id: str,
        prompt: Prompt,
        turn_id: str | None,
        opened: OpenSession | None,
    ) -> str:
        if all(isinstance(block, Text) and not block.text.strip() for block in prompt.content):
            raise InvalidInput("the prompt is empty; write a text, or attach something")
        session = await self.prepare_for_prompt(
            principal, id, overrides=prompt.overrides, opened=opened
        )
        name = (principal.workspace, id)
        if session.status == "terminated":
            raise InvalidInput(
                f"session {id} has terminated; fork it to continue the conversation", session=id
            )
        budgets.require_budget_left(session)
        if opened is None or opened.agent is None:
            spec = await self._agents.spec(session, prompt.overrides)
            if not self._agents.registry.can_build(spec):
                self._agents.registry.build(spec)  # raises NoAgent
        turn_id = turn_id or ids.new_id()
        body: dict[str, Any] = to_builtins(prompt)
        prompt_bytes = 0 if principal.local else len(codec.encode(body))
        async with self._quotas.reserve(principal, turns=1, bytes=prompt_bytes):
            await self._store.put_inbox(*name, "prompt", turn_id, body, self.engine.holder)
        await self.engine.kick(name)
        await self._work_queue.enqueue(session)
        return turn_id


def _process_needs(overrides: dict[str, Any], opened: OpenSession | None) -> str | None:
    """Return what a turn needs that only the process that received its prompt has."""
    if HOOKS_KEY in overrides:
        return "the hooks"
    return "the MCP servers" if opened is not None and opened.tools.servers() else None


def _abandon_budget_stop(session: Session, cancel_id: str) -> list[AnyBody | Draft]:
    """Return the events that end a turn which a budget stopped, so that it is not resumed."""
    if session.stop_reason != "budget_reached":
        return []
    idle = StatusChanged(status="idle", stop_reason="cancelled")
    closed = end_turn_events(session, "the turn was cancelled after its budget was reached")
    return [Draft(id=cancel_id, body=Interrupted()), *closed, idle]
