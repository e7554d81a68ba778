"""The hub: the application core that every door calls.

Each method takes the Principal that asks. A session of another workspace does not exist here.
Reads never wait on anything but the store, so that with an embedded store a command line can use
them without an event loop. The parts are Reading, Editing, Transcripts and, here, prompting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from msgspec.structs import replace

from segue.agents.registry import CLAUDE_CODE, AgentRegistry
from segue.hub.turns.end_turn import end_turn_events
from segue.model import clock, ids
from segue.model.content import Block, Text, as_content
from segue.model.errors import InvalidInput, NoAgent, NotFound
from segue.model.event import (
    AgentRef,
    AnyBody,
    ConfigChanged,
    Draft,
    Event,
    Interrupted,
    OutcomeDefined,
    StatusChanged,
    ToolResult,
)
from segue.model.lifecycle import StopReason
from segue.model.principal import Principal
from segue.model.record import Record
from segue.model.session import Session
from segue.sources.base import Source, agent_id
from segue.store.base import Lease, Store

from .sessions.catalog import Reading
from .sessions.editor import Editing, at_rest
from .sync.importer import CLAUDE, Transcripts
from .turns.budgets import changing, check_left, check_prices

if TYPE_CHECKING:
    from segue.agents.base import Agent, Tools

    from .turns.engine import Hold, Turns
    from .turns.inbox import Prompt, Said

CONTINUE = "claude.continue"  # the setting by which Claude Code answers in its own sessions


class Hub(Reading, Editing, Transcripts):
    """Every operation on sessions, for every door."""

    def __init__(
        self,
        store: Store,
        data_dir: Path,
        *,
        sources: Sequence[Source] = (),
        agent_registry: AgentRegistry | None = None,
        lease: int | None = None,
        clone: Sequence[str] = (),
        database: str | None = None,
    ) -> None:
        """`lease` is how long, in microseconds, a process that died keeps its sessions.

        Repositories that sessions name are cloned if their address begins as one in `clone` does.
        `database` is the address by which the store was opened, for what people are told to type.
        """
        super().__init__(
            store,
            data_dir,
            sources=sources,
            agent_registry=agent_registry,
            clone=clone,
            database=database,
        )
        self._lease = lease
        self._turns: Turns | None = None

    async def close(self) -> None:
        """Cancel this process's turns, let its sessions go, and close the store."""
        await self.leave()
        await self.store.close()

    async def leave(self) -> None:
        """Do the same, but leave the store open: it is somebody else's."""
        if self._turns is not None:
            await self._turns.close()
        if "rooms" in self.__dict__:
            await self.rooms.close()
        if self._live is not None:
            self._live.close()
        for source in self.sources:
            await source.close()
        await self.agent_registry.close()

    async def __aenter__(self) -> Hub:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def turns(self) -> Turns:
        if self._turns is None:
            from .turns.engine import LEASE, Turns
            from .turns.runner import Engine

            engine = Engine(self.store, self.live, self._answering, self)
            self._turns = Turns(engine, self._lease or LEASE)
        return self._turns

    async def prompt(
        self,
        principal: Principal,
        id: str,
        content: str | Block | Iterable[Block],
        *,
        extra: dict[str, Any] | None = None,
        turn_id: str | None = None,
        system: Said | None = None,
        overrides: dict[str, Any] | None = None,
        mode: str | None = None,
        later: bool = False,
    ) -> str:
        """Ask a session's agent something; the id of the turn, which is the message's id too.

        A caller that must know the id beforehand may choose it, new and never used again.
        `overrides` of the agent and the permission `mode` hold for this turn and are not kept.
        With `later`, a stream that opens after the turn still has it to tell.
        The prompt is durable when this returns. It runs in the process that holds the session
        open, else here; NoAgent if that is impossible.
        """
        from .turns.inbox import Prompt

        prompt = Prompt(
            content=as_content(content),
            extra=extra or {},
            local=principal.local,
            system=system,
            overrides=overrides or {},
            mode=mode,
            later=later,
        )
        return await self._prompt(principal, id, prompt, turn_id)

    async def get(self, principal: Principal, id: str) -> Session:
        """The session; NotFound if there is none of that id in the principal's workspace.

        A copy of one of Claude Code's comes with what was said there since.
        """
        return await self._caught_up(principal, await super().get(principal, id))

    async def promptable(
        self, principal: Principal, id: str, *, overrides: dict[str, Any] | None = None
    ) -> Session:
        """The session, in the store. One of another agent's is taken in first, with all it has.

        Claude Code's files stay as they are, unless the user wants Claude Code to answer: then it
        goes on in its file, and what was said there since comes along. Who brings `overrides` for
        its turns does not want that. NoAgent, and nothing is taken in, if nobody could answer.
        """
        session, source = await self._find(principal, id)
        if session.state == "trashed":
            raise InvalidInput(f"session {id} is in the trash; restore it first", session=id)
        if source is None:
            if _is_claude_code(session.workspace, session.agent) and principal.local:
                with suppress(NotFound):
                    return await self._take_claude(principal, session)
            return await self._caught_up(principal, session)
        if source.name != CLAUDE:
            await self.take_in(principal, id)
            return await self._native(principal, id)  # which says why not, of other sources
        at_rest(session)
        by_claude = not overrides and await self._by_claude(principal)
        if not self.turns.answers((principal.workspace, id)):
            kind = CLAUDE_CODE if by_claude else "default"
            agent = await self.agent(principal, {"kind": kind, **(overrides or {})})
            await _checked(agent)
        session = await self._take_claude(principal, session)
        if by_claude:
            ref = await self.records.agent_of(principal.workspace, CLAUDE)
            session = await self.configure(principal, id, ConfigChanged(agent=ref))
        return session

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
        """Ask a session's agent to reach something, and to be graded until it has.

        A turn of its own, like a prompt's; its id is the event's.
        """
        from .turns.inbox import Prompt

        outcome = OutcomeDefined(
            outcome_id=ids.new_id(),
            description=description,
            rubric=rubric,
            max_iterations=max_iterations,
        )
        content, local = as_content(description), principal.local
        prompt = Prompt(content=content, local=local, outcome=outcome, later=True)
        await self._prompt(principal, id, prompt, turn_id)
        return outcome

    async def _prompt(
        self, principal: Principal, id: str, prompt: Prompt, turn_id: str | None
    ) -> str:
        if all(isinstance(block, Text) and not block.text.strip() for block in prompt.content):
            raise InvalidInput("a prompt needs some content")
        session = await self.promptable(principal, id, overrides=prompt.overrides)
        name = (principal.workspace, id)
        if session.status == "terminated":
            raise InvalidInput(f"session {id} has terminated; fork it to go on", session=id)
        check_left(session)
        if not self.turns.answers(name) and not await self._held_elsewhere(name):
            spec = await self._spec(session, prompt.overrides)
            if not self.agent_registry.can_build(spec):
                self.agent_registry.build(spec)  # says why not
        turn_id = turn_id or ids.new_id()
        body: dict[str, Any] = to_builtins(prompt)
        await self.store.put_inbox(*name, "prompt", turn_id, body)
        await self.turns.kick(name)
        await self.work.offer(session)
        return turn_id

    async def check_budget(self, workspace: str, *agents: AgentRef) -> None:
        """Refuse a budget for sessions of agents whose models have no list price."""
        await check_prices([await self._described(workspace, agent) for agent in agents])

    async def set_budget(self, principal: Principal, id: str, budget: int | None) -> Session:
        """Change or remove what a session may cost; what the old budget cut short goes on.

        Who was cut off in the middle of that may ask for the same again.
        """
        session, _ = await self._find(principal, id)
        if changing(session, budget):
            session, _ = await self._change(principal, id, lambda now: changing(now, budget))
        if session.stop_reason == "budget_reached" and not session.at_budget:
            from .turns.runner import resume

            name = (principal.workspace, id)
            await resume(self.store, name)
            await self.turns.kick(name)
            await self.work.offer(session)
        return session

    async def run(
        self, principal: Principal, id: str, content: str | Block | Iterable[Block]
    ) -> StopReason:
        """Ask, and wait for the turn to end."""
        return await self.wait(principal, id, await self.prompt(principal, id, content))

    async def wait(self, principal: Principal, id: str, turn_id: str) -> StopReason:
        """How a turn ended, once it has. A prompt that was withdrawn counts as cancelled."""
        seq = await self.begun(principal, id, turn_id)
        if seq is None:
            return "cancelled"
        async for event in self.follow(principal, id, seq):
            if isinstance(event, Event) and isinstance(event.body, StatusChanged):
                reason = event.body.stop_reason
                if reason is not None and reason != "requires_action":
                    return reason
        raise NotFound(f"no session {id}", session=id)

    async def begun(self, principal: Principal, id: str, turn_id: str) -> int | None:
        """Where a prompt stands in the history, once it does; None if it was taken back."""
        import asyncio

        name = (principal.workspace, id)
        with self.live.sleeper(name) as awake:
            while True:
                awake.clear()
                seq = await self.store.locate(*name, turn_id)
                if seq is not None or await self.vanished(principal, id, turn_id):
                    return seq
                # A prompt withdrawn in another process makes no event to be woken by.
                with suppress(TimeoutError):
                    await asyncio.wait_for(awake.wait(), 1.0)

    async def cancel(self, principal: Principal, id: str) -> str | None:
        """Cancel the turn that runs now and the prompts that wait, wherever they are.

        What a budget cut short does not go on afterwards, whatever becomes of the budget.
        The id that the turn's Interrupted event will have; None if there is nothing to cancel.
        """
        # In this order: a prompt that leaves the inbox meanwhile is the turn that we find then.
        waiting = await self.waiting(principal, id)
        name = (principal.workspace, id)
        cancel_id = ids.new_id()
        if not waiting and (session := await self._native(principal, id)).turn is None:
            if session.stop_reason != "budget_reached":
                return None
            _, events = await self.store.change(*name, lambda now: _given_up(now, cancel_id))
            return cancel_id if events else None
        await self.store.put_inbox(*name, "cancel", cancel_id, {})
        await self.turns.kick(name)
        return cancel_id

    async def waiting(self, principal: Principal, id: str) -> Sequence[str]:
        """The ids of prompts that have not begun, in their order."""
        await self._native(principal, id)
        items = await self.store.inbox(principal.workspace, id)
        return [item.id for item in items if item.kind == "prompt"]

    async def vanished(self, principal: Principal, id: str, turn_id: str) -> bool:
        """Whether a prompt was taken back before it began."""
        name = (principal.workspace, id)
        if any(item.id == turn_id for item in await self.store.inbox(*name)):
            return False
        return await self.store.locate(*name, turn_id) is None

    async def withdraw(self, principal: Principal, id: str, turn_id: str) -> bool:
        """Take back a prompt that has not begun; whether there was still time."""
        name = (principal.workspace, id)
        numbers = [item.number for item in await self.store.inbox(*name) if item.id == turn_id]
        return bool(await self.store.drop_inbox(*name, numbers))

    async def answer(
        self,
        principal: Principal,
        id: str,
        ask_id: str,
        option: str | None,
        note: str | None = None,
        *,
        input: dict[str, Any] | None = None,
    ) -> str:
        """Answer a permission question of a running turn; no option withdraws it.

        What is allowed is done with `input`, if there is one, instead of what was asked about.
        The id that the PermissionAnswered event will have.
        """
        session = await self._native(principal, id)
        if ask_id not in session.open_asks:
            raise NotFound(f"session {id} has no open question {ask_id}", session=id)
        body = {"ask_id": ask_id, "option": option, "note": note, "input": input}
        answer_id = ids.new_id()
        await self.store.put_inbox(principal.workspace, id, "answer", answer_id, body)
        return answer_id

    async def give(
        self,
        principal: Principal,
        id: str,
        result: ToolResult,
        *,
        system: Said | None = None,
    ) -> str:
        """Give the result of a tool call that a running turn has others run.

        The id that the ToolResult event will have.
        """
        from .turns.inbox import Result

        session = await self._native(principal, id)
        if result.call_id not in session.open_calls:
            raise NotFound(f"session {id} has no open tool call {result.call_id}", session=id)
        result_id = ids.new_id()
        body: dict[str, Any] = to_builtins(Result(result=result, system=system))
        await self.store.put_inbox(principal.workspace, id, "result", result_id, body)
        return result_id

    async def hold(
        self,
        principal: Principal,
        id: str,
        *,
        agent: Agent | None = None,
        tools: Tools | None = None,
    ) -> Hold:
        """Hold a session open in this process: its prompts run here, with this agent and tools.

        One of Claude Code's stays as it is until it is prompted.
        """
        _, source = await self._find(principal, id)
        kept = source is not None and source.name == CLAUDE
        if not kept or await self._by_claude(principal):
            try:
                await self.promptable(principal, id)
                kept = False
            except NoAgent:
                if not kept:
                    raise
        return await self.turns.hold((principal.workspace, id), agent, tools, stored=not kept)

    async def agent(self, principal: Principal, spec: dict[str, Any]) -> Agent:
        """An agent of this process, from its specification; NoAgent if that is impossible."""
        return self.agent_registry.build(
            {"config": await self.config.all(principal.workspace), **spec}
        )

    async def connects(self, session: Session, agent: Agent | None = None) -> bool:
        """Whether a session's agent, or the one given, connects MCP servers itself."""
        from segue.agents.base import OwnsSessions

        try:
            return isinstance(agent or await self._build(session, {}), OwnsSessions)
        except NoAgent:
            return False

    async def chosen(
        self,
        principal: Principal,
        session: Session,
        option: str,
        value: str | bool,
        agent: Agent | None = None,
        tools: Tools | None = None,
    ) -> ConfigChanged:
        """Have a session's agent, or the one given, take a value of an option of its own."""
        from segue.agents.base import HasOptions

        agent = agent or await self._build(session, {})
        if not isinstance(agent, HasOptions):
            raise InvalidInput(f"session {session.id} has an agent without options")
        offered = await agent.set_option(session, tools, option, value)
        return ConfigChanged(options={"offered": offered})

    async def join(self, principal: Principal, name: str, spec: dict[str, Any]) -> Agent:
        """A program's agent; the sessions that it keeps itself are in the lists, if it can."""
        from segue.agents.acp import AcpAgent

        from .sync.acp_source import OtherAgent

        agent = await self.agent(principal, spec)
        if isinstance(agent, AcpAgent):
            ref = await self.records.program(principal.workspace, name, spec)
            self.sources += (OtherAgent(self.store, agent, ref, name, principal.workspace),)
        return agent

    async def take_in(self, principal: Principal, id: str) -> Session:
        """A session that can go on here: another agent's own is copied from it first."""
        from .sync.acp_source import OtherAgent

        session, source = await self._find(principal, id)
        return await source.take_in(session) if isinstance(source, OtherAgent) else session

    async def _spec(self, session: Session, overrides: dict[str, Any]) -> dict[str, Any]:
        """A session's agent: its record, what session and turn override, what is configured."""
        agent = session.agent
        if agent is None:
            config = await self.config.all(session.workspace)
            return {"kind": "default", "config": config, **overrides}
        return {**await self._described(session.workspace, agent), **overrides}

    async def _described(self, workspace: str, agent: AgentRef) -> dict[str, Any]:
        """An agent: its record, what a session overrides, what is configured."""
        config = await self.config.all(workspace)
        answers = _is_claude_code(workspace, agent) and config.get(CONTINUE)
        if agent.id == agent_id(workspace, CLAUDE) and not answers:
            own = {name: each for name, each in agent.overrides.items() if name != "model"}
            return {**own, "config": config, "kind": "default"}
        record: Record | None = await self.store.get_record(
            workspace, "agent", agent.id, agent.version
        )
        if record is None:
            raise NoAgent(f"agent {agent.id} is not known here")
        spec = record.body.get("spec", {"kind": "default"})
        return {**record.body, "config": config, **spec, **agent.overrides}

    async def _by_claude(self, principal: Principal) -> bool:
        """Whether the user's own Claude Code is to answer in its sessions."""
        config = await self.config.all(principal.workspace)
        return principal.local and bool(config.get(CONTINUE))

    async def _answering(self, session: Session, overrides: dict[str, Any], lease: Lease) -> Agent:
        """The agent of a turn that is about to begin under a lease.

        The built-in one answers with the model that is configured now, and the session says so.
        """
        ref, name = session.agent, (session.workspace, session.id)
        if ref is not None and self.records.is_usual(session.workspace, ref):
            now = await self.records.built_in_agent(session.workspace)
            if now.version != ref.version:
                changed = ConfigChanged(agent=replace(ref, version=now.version))
                await self.store.change(
                    *name, lambda current: [changed] if current.agent == ref else [], lease=lease
                )
        return await self._build(session, overrides)

    async def _build(self, session: Session, overrides: dict[str, Any]) -> Agent:
        spec = await self._spec(session, overrides)
        if spec.get("skills"):
            spec["skills"] = await self.rooms.equip(session, spec["skills"])
        if await self.work.elsewhere(session):
            # Where a worker puts what it fetches.
            placed = [
                {**each, "path": f"skills/{each['name']}/SKILL.md", "text": None}
                for each in spec.get("skills", ())
            ]
            spec |= {"elsewhere": True, "skills": placed}
        return self.agent_registry.build(spec)

    async def _held_elsewhere(self, name: tuple[str, str]) -> bool:
        lease = await self.store.lease_of(*name)
        elsewhere = lease is not None and lease.holder != self.turns.holder
        return lease is not None and elsewhere and lease.expires_at > clock.now()


def _given_up(session: Session, cancel_id: str) -> list[AnyBody | Draft]:
    """What leaves be what a budget cut short."""
    if session.stop_reason != "budget_reached":
        return []
    rest = StatusChanged(status="idle", stop_reason="cancelled")
    settled = end_turn_events(session, "what the budget cut short was given up")
    return [Draft(id=cancel_id, body=Interrupted()), *settled, rest]


async def _checked(agent: Agent) -> None:
    from segue.agents.base import SupportsCheck

    if isinstance(agent, SupportsCheck):
        await agent.check()


def _is_claude_code(workspace: str, agent: AgentRef | None) -> bool:
    """Whether Claude Code answers for the agent of a session of the store."""
    if agent is None:
        return False
    own = CLAUDE_CODE if agent.id == agent_id(workspace, CLAUDE) else None
    return agent.overrides.get("kind", own) == CLAUDE_CODE
