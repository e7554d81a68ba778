"""The loop of a turn: ask the model, do what it calls for, until it has nothing more to call."""

from __future__ import annotations

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model

from segue.agents.base import Tools, Turn
from segue.agents.tools import ToolContext
from segue.agents.turn_hooks import Hooks
from segue.model.content import as_content
from segue.model.event import AnyBody, Event, OutcomeEvaluated, SystemMessage, Usage, UserMessage
from segue.model.lifecycle import StopReason

from .compaction import FULL, compact
from .conversation import Conversation
from .grader import grade
from .instructions import instructions
from .request import BudgetReached, ContextFull, ModelFailed, Requests
from .settings import Settings
from .tool_runner import Toolbox


class Loop:
    """One turn of the model agent."""

    def __init__(
        self,
        turn: Turn,
        model: Model,
        settings: Settings,
        context: ToolContext,
        servers: Tools,
        hooks: Hooks | None = None,
    ) -> None:
        self._turn = turn
        self._settings = settings
        self._context = context
        self._requests = Requests(turn, model, settings)
        self._hooks = hooks
        self._toolbox = Toolbox(turn, context, settings, servers, hooks)
        self._conversation = Conversation()
        self._said = ""
        self._left = settings.max_turns

    async def run(self) -> StopReason:
        turn = self._turn
        self._instructions = instructions(
            self._settings,
            turn.roots,
            turn.session.resources,
            await turn.outputs(),
            self._context.variables,
            turn.mounts,
        )
        self._add(await self._turn.history(whole=False))
        asked = self._turn.outcome or UserMessage(content=self._turn.prompt)
        self._add([Event(seq=0, id=self._turn.id, at=0, body=asked)])
        if self._turn.system:
            said = SystemMessage(content=self._turn.system)
            self._add([Event(seq=0, id="", at=0, body=said)])
        self._tools = await self._toolbox.open()
        try:
            if self._turn.outcome is not None:
                return await self._reach()
            return await self._work()
        except ModelFailed as error:
            await self._turn.emit(error.failed)
            return "error"
        except BudgetReached:
            return "budget_reached"

    async def _work(self) -> StopReason:
        """Until the model is done with what it was asked."""
        again = False
        while self._left > 0:
            self._left -= 1
            stop = await self._step()
            if stop == "end_turn" and self._hooks is not None:
                why = await self._hooks.before_stop(self._turn, continued=again)
                if why is not None:
                    await self._store(SystemMessage(content=as_content(why)))
                    again, stop = True, None
            if stop is not None:
                return stop
            self._add(await self._turn.more())
        return "max_turn_requests"

    async def _step(self) -> StopReason | None:
        """One request and what follows from it; None if there is more to do."""
        if self._conversation.tokens > self._requests.window * FULL:
            await self._compact()
        try:
            asked = self._requests.ask(self._messages(), self._tools)
            response, called, stored = await asked
        except ContextFull:
            await self._compact()
            response, called, stored = await self._requests.ask(self._messages(), self._tools)
        self._add(stored)
        cut = response.finish_reason == "length"
        parts = [] if cut else response.tool_calls  # the last call may be half a call
        try:
            calls = [await self._toolbox.understand(part) for part in parts]
        except BaseException:
            self._turn.emit_at_end(called)
            raise
        await self._store(*(call.event for call in calls), called)
        self._said = response.text or self._said
        if response.finish_reason == "content_filter":
            return "refusal"
        if not calls:
            return "max_tokens" if cut else "end_turn"
        self._add(await self._toolbox.perform(calls))
        return "cancelled" if self._toolbox.stopped else None

    async def _reach(self) -> StopReason:
        """Work, be graded, and work on it again, until the outcome is reached or it is enough."""
        outcome = self._turn.outcome
        assert outcome is not None
        begun = {each.outcome_id: each.iteration for each in self._turn.session.outcomes}
        first = begun.get(outcome.outcome_id, 0)  # where a budget cut it short
        for iteration in range(first, outcome.max_iterations):
            await self._evaluated(iteration, "running")
            stop = await self._work()
            if stop != "end_turn":
                await self._evaluated(iteration, "failed", f"the work ended early: {stop}")
                return stop
            await self._evaluated(iteration, "evaluating")
            verdict, spent = await grade(
                self._turn, self._requests, self._context, outcome, self._said
            )
            last = iteration == outcome.max_iterations - 1
            result = verdict.result
            if result == "needs_revision" and last:
                await self._evaluated(
                    iteration, "max_iterations_reached", verdict.explanation, spent
                )
                return "end_turn"
            await self._evaluated(iteration, result, verdict.explanation, spent)
            if result != "needs_revision":
                return "end_turn"
        return "end_turn"

    async def _evaluated(
        self, iteration: int, result: str, why: str | None = None, spent: Usage | None = None
    ) -> None:
        assert self._turn.outcome is not None
        await self._store(
            OutcomeEvaluated(
                outcome_id=self._turn.outcome.outcome_id,
                iteration=iteration,
                result=result,  # type: ignore[arg-type]  # each of ours is one of its own
                explanation=why,
                usage=spent,
            )
        )

    async def _compact(self) -> None:
        if self._hooks is not None:
            await self._hooks.before_compaction(self._turn)
        self._add(await compact(self._turn, self._requests, self._conversation, self._instructions))

    def _messages(self) -> list[ModelMessage]:
        return self._conversation.messages(self._instructions)

    async def _store(self, *bodies: AnyBody) -> None:
        self._add(await self._turn.emit(*bodies))

    def _add(self, events: list[Event]) -> None:
        for event in events:
            self._conversation.add(event)
