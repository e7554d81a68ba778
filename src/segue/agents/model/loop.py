"""The loop of a model turn: send a request, run the tool calls, repeat until there are none."""

from __future__ import annotations

import asyncio

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model

from segue.agents.base import Tools, Turn
from segue.agents.base.turn_hooks import Hooks
from segue.agents.tools import ToolContext
from segue.model.content import as_content, plain_text
from segue.model.event import (
    AgentMessage,
    AnyBody,
    Event,
    OutcomeDefined,
    OutcomeEvaluated,
    SystemMessage,
    Usage,
    UserMessage,
)
from segue.model.lifecycle import StopReason
from segue.model.requests.spans import request_end

from .compaction import COMPACTION_THRESHOLD, compact
from .conversation import Conversation
from .delegation import Delegations
from .grader import Verdict, grade
from .instructions import instructions
from .request import BudgetReached, ContextFull, ModelAnswer, ModelFailed, ModelRequests
from .settings import Settings
from .tool_runner import ToolProgress, ToolRunner

EVALUATION_REPORT_SECONDS = 10.0


class ModelLoop:
    """One turn of the model agent."""

    def __init__(
        self,
        turn: Turn,
        model: Model,
        settings: Settings,
        context: ToolContext,
        servers: Tools,
        hooks: Hooks | None = None,
        delegations: Delegations | None = None,
    ) -> None:
        self._turn = turn
        self._settings = settings
        self._context = context
        self._requests = ModelRequests(turn, model, settings)
        self._hooks = hooks
        self._tool_runner = ToolRunner(turn, context, settings, servers, hooks, delegations)
        self._conversation = Conversation(thread=turn.thread)
        self.last_text = ""
        self._remaining_requests = settings.max_turns

    async def run(self) -> StopReason:
        """Answer the turn's prompt."""
        turn = self._turn
        await self._prepare()
        prompt = turn.outcome or UserMessage(content=turn.prompt, thread=turn.thread)
        self._add([Event(seq=0, id=turn.id, at=0, body=prompt)])
        if turn.system:
            self._add([Event(seq=0, id="", at=0, body=SystemMessage(content=turn.system))])
        return await self._answer([])

    async def resume(self) -> StopReason:
        """Continue the turn from its stored events."""
        turn = self._turn
        await self._prepare()
        events = await turn.events()
        if all(event.id != turn.id or event.type == "status_changed" for event in events):
            # A turn that continues after a budget was raised has no message of its own.
            message = UserMessage(content=turn.prompt, thread=turn.thread)
            self._add([Event(seq=0, id=turn.id, at=0, body=message)])
        self._add(events)
        for event in events:
            if isinstance(event.body, AgentMessage):
                self.last_text = plain_text(event.body.content) or self.last_text
            self._remaining_requests -= request_end(event.body) is not None
        return await self._answer(events)

    async def _prepare(self) -> None:
        """Read the history, and collect the tools."""
        turn = self._turn
        self._instructions = instructions(
            self._settings,
            turn.roots,
            turn.session.resources,
            await turn.outputs(),
            self._context.variables,
            turn.mounts,
        )
        self._add(await turn.history(since_compaction=True))
        self._tools = await self._tool_runner.load_tools()

    async def _answer(self, resumed_from: list[Event]) -> StopReason:
        try:
            if self._turn.outcome is not None:
                return await self._reach_outcome(resumed_from)
            return await self._work(resumed_from)
        except ModelFailed as error:
            await self._turn.emit(error.event)
            return "error"
        except BudgetReached:
            return "budget_reached"

    async def _work(self, resumed_from: list[Event]) -> StopReason:
        """Send requests until the model calls no more tools.

        A turn that waited for clients has events, and first continues its tool calls.
        """
        continued = False
        while resumed_from or self._remaining_requests > 0:
            if resumed_from:
                stop = self._after_tools(await self._tool_runner.resume(resumed_from))
                resumed_from = []
            else:
                self._remaining_requests -= 1
                stop = await self._step()
            if stop == "end_turn" and self._hooks is not None:
                reason = await self._hooks.before_stop(self._turn, continued=continued)
                if reason is not None:
                    await self._store(SystemMessage(content=as_content(reason)))
                    continued, stop = True, None
            if stop is not None:
                return stop
            self._add(await self._turn.take_new_prompts())
        return "max_turn_requests"

    async def _step(self) -> StopReason | None:
        """Send one request and run its tool calls; return None if the turn continues."""
        response, called, stored = await self._request()
        self._add(stored)
        truncated = response.finish_reason == "length"
        parts = [] if truncated else response.tool_calls  # the last call may be incomplete
        try:
            calls = [await self._tool_runner.prepare(part) for part in parts]
        except BaseException:
            self._turn.emit_at_end(called)
            raise
        await self._store(*(call.event for call in calls), called)
        self.last_text = response.text or self.last_text
        if response.finish_reason == "content_filter":
            return "refusal"
        if not calls:
            return "max_tokens" if truncated else "end_turn"
        return self._after_tools(await self._tool_runner.run(calls))

    def _after_tools(self, progress: ToolProgress) -> StopReason | None:
        """Return why the turn stops after its tool calls; None if it continues."""
        self._add(progress.events)
        if self._tool_runner.stopped:
            return "cancelled"
        return "requires_action" if progress.waits else None

    async def _request(self) -> ModelAnswer:
        """Send the conversation, compacted first if it does not fit into the context."""
        if self._conversation.tokens > self._requests.context_tokens * COMPACTION_THRESHOLD:
            await self._compact()
        try:
            return await self._requests.send(self._messages(), self._tools)
        except ContextFull:
            await self._compact()
            return await self._requests.send(self._messages(), self._tools)

    async def _reach_outcome(self, resumed_from: list[Event]) -> StopReason:
        """Work and grade in turns, until the outcome is reached or the iterations are used up."""
        outcome = self._turn.outcome
        assert outcome is not None
        iterations = {state.outcome_id: state.iteration for state in self._turn.session.outcomes}
        # A turn that continues after a budget was raised begins with the interrupted iteration.
        first = iterations.get(outcome.outcome_id, 0)
        for iteration in range(first, outcome.max_iterations):
            if not resumed_from:
                await self._store_evaluation(iteration, "running")
            stop = await self._work(resumed_from)
            resumed_from = []
            if stop == "requires_action":
                return stop
            if stop != "end_turn":
                await self._store_evaluation(iteration, "failed", f"the work ended early: {stop}")
                return stop
            await self._store_evaluation(iteration, "evaluating")
            verdict, usage = await self._grade(iteration, outcome)
            is_last = iteration == outcome.max_iterations - 1
            result: str = verdict.result
            if result == "needs_revision" and is_last:
                result = "max_iterations_reached"
            await self._store_evaluation(iteration, result, verdict.explanation, usage)
            if result != "needs_revision":
                return "end_turn"
        return "end_turn"

    async def _grade(self, iteration: int, outcome: OutcomeDefined) -> tuple[Verdict, Usage]:
        """Grade the work, and report from time to time that the evaluation still runs."""
        reports = asyncio.get_running_loop().create_task(self._report_evaluation(iteration))
        try:
            return await grade(self._turn, self._requests, self._context, outcome, self.last_text)
        finally:
            reports.cancel()
            await asyncio.wait([reports])

    async def _report_evaluation(self, iteration: int) -> None:
        while True:
            await asyncio.sleep(EVALUATION_REPORT_SECONDS)
            await self._store_evaluation(iteration, "evaluating", ongoing=True)

    async def _store_evaluation(
        self,
        iteration: int,
        result: str,
        explanation: str | None = None,
        usage: Usage | None = None,
        *,
        ongoing: bool = False,
    ) -> None:
        assert self._turn.outcome is not None
        await self._store(
            OutcomeEvaluated(
                outcome_id=self._turn.outcome.outcome_id,
                iteration=iteration,
                result=result,  # type: ignore[arg-type]  # every caller passes a valid result
                explanation=explanation,
                usage=usage,
                ongoing=ongoing,
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
