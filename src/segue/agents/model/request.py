"""One request to a model: streamed into the turn, tried again when the model is overloaded."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pydantic_ai import exceptions as errors
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from segue.agents.base import Turn
from segue.model.event import (
    AgentThought,
    Event,
    Failed,
    ModelAsked,
    ModelCalled,
    StatusChanged,
    Usage,
)

from .conversation import DIALECT
from .errors import nobody_there, told
from .settings import Settings

MAX_DELAY = 60.0
# Whoever asks for a longer pause than this is not waited for.
PATIENCE = 300.0
# An answer that makes no sense is seldom better the fourth time.
MALFORMED = 3
# Where nothing listens on this machine, a server may be starting; minutes would help nobody.
NOBODY = 3

_TRANSIENT = (
    errors.ModelRateLimitError,
    errors.ModelUnavailableError,
    errors.ModelServerError,
    errors.ModelConnectionError,
    errors.ModelRequestTimeout,
)


class ModelFailed(Exception):
    """A request that came to nothing, for good."""

    def __init__(self, message: str, code: str, *, tried: bool) -> None:
        super().__init__(message)
        self.failed = Failed(message=message, code=code, retry="exhausted" if tried else "terminal")


class BudgetReached(Exception):
    """The session may not cost more."""


class ContextFull(Exception):
    """The conversation no longer fits into the model's context."""


class Requests:
    """The requests of one turn."""

    def __init__(self, turn: Turn, model: Model, settings: Settings) -> None:
        self._turn = turn
        self._model = model
        self._settings = settings
        self._asked: str | None = None  # the event with which the current request began
        self.window = settings.context or model.context_window or 128_000
        self._options = ModelSettings(max_retries=0, cache=True)
        if settings.max_tokens is not None:
            self._options["max_tokens"] = settings.max_tokens
        if settings.thinking is not None:
            self._options["thinking"] = settings.thinking  # type: ignore[typeddict-item]  # checked when it was set
        claude = settings.model.startswith("anthropic:")
        if settings.fast and claude and model.profile.get("anthropic_supports_fast_speed"):
            self._options["anthropic_speed"] = "fast"  # type: ignore[typeddict-unknown-key]  # one provider's own

    async def ask(
        self,
        messages: Sequence[ModelMessage],
        tools: Sequence[ToolDefinition] = (),
        *,
        shown: bool = True,
        must_call: str | None = None,
    ) -> tuple[ModelResponse, ModelCalled, list[Event]]:
        """The whole response, its cost, and the events that were stored of it meanwhile.

        What is `shown` is streamed into the turn. ModelCalled is the caller's to store, together
        with what follows from the response.
        """
        if self._turn.session.at_budget:
            raise BudgetReached
        options = self._options.copy()
        if must_call is not None:
            options["tool_choice"] = [must_call]
            options.pop("thinking", None)  # providers do not have both
        attempt = 0
        while True:
            attempt += 1
            began = time.monotonic()
            asked = (await self._turn.emit(ModelAsked(model=self._settings.model)))[-1]
            self._asked = asked.id
            stored: list[Event] = []
            try:
                response = await self._once(messages, tools, options, stored if shown else None)
                return response, self._called(response, began, shown), stored
            except errors.ModelContextWindowExceededError as error:
                await self._turn.emit(self._failure())
                raise ContextFull from error
            except (errors.AgentRunError, errors.UserError, ValueError) as error:
                # ValueError: a stream that is not what it says, which no client has a name for.
                await self._again(error, attempt)

    async def _once(
        self,
        messages: Sequence[ModelMessage],
        tools: Sequence[ToolDefinition],
        options: ModelSettings,
        stored: list[Event] | None,
    ) -> ModelResponse:
        parameters = ModelRequestParameters(function_tools=list(tools))
        began = time.monotonic()
        async with model_request_stream(
            self._model,
            messages,
            model_settings=options,
            model_request_parameters=parameters,
            instrument=False,
        ) as stream:
            try:
                async for event in stream:
                    if stored is not None:
                        await self._show(event, stored)
            except asyncio.CancelledError:
                # What was said so far has been paid for.
                self._turn.emit_at_end(self._called(stream.get(), began, True))
                raise
            return stream.get()

    async def _show(self, event: Any, stored: list[Event]) -> None:
        turn = self._turn
        if isinstance(event, PartDeltaEvent):
            delta = event.delta
            if isinstance(delta, TextPartDelta):
                if delta.content_delta:
                    await turn.delta(delta.content_delta)
            elif isinstance(delta, ThinkingPartDelta) and delta.content_delta:
                await turn.delta(delta.content_delta, "thought")
        elif isinstance(event, PartStartEvent):
            if isinstance(event.part, TextPart):
                if event.part.content:
                    await turn.delta(event.part.content)
            elif isinstance(event.part, ThinkingPart) and event.part.content:
                await turn.delta(event.part.content, "thought")
        elif isinstance(event, PartEndEvent) and isinstance(event.part, ThinkingPart):
            extra = _kept(event.part)
            if event.part.content:
                stored += await turn.finish(extra=extra)
            elif extra:  # a thought that the provider keeps to itself
                stored += await turn.emit(AgentThought(content=(), extra=extra))

    async def _again(self, error: Exception, attempt: int) -> None:
        """Wait until it is worth another attempt; ModelFailed if it never will be."""
        address = self._model.base_url
        code, message = _code(error), told(error, address) or _words(error)
        again = isinstance(error, _TRANSIENT) or (_malformed(error) and attempt < MALFORMED)
        tries = self._settings.retries + 1
        if nobody_there(error, address):
            tries = min(tries, NOBODY)
        asked = getattr(error, "retry_after", None) or 0.0
        if getattr(error, "provider_retry_hint", None) is False or asked > PATIENCE:
            again = False
        turn = self._turn
        await turn.finish(partial=True, extra={DIALECT: {"discarded": True}})
        if not again or attempt >= tries:
            await turn.emit(self._failure())
            tried = f" (tried {attempt} times)" if attempt > 1 else ""
            raise ModelFailed(message + tried, code, tried=again or attempt > 1) from error
        pause = min(self._settings.backoff * 2 ** (attempt - 1), MAX_DELAY)
        pause = max(asked, pause * random.uniform(0.5, 1.0))
        soon = f"trying again in {pause:.0f} s" if pause >= 1 else "trying again"
        message = f"{message} (try {attempt} of {tries}; {soon})"
        await turn.emit(
            self._failure(),
            Failed(message=message, code=code, retry="retrying"),
            StatusChanged(status="rescheduling", turn=turn.id),
        )
        await asyncio.sleep(pause)
        await turn.emit(StatusChanged(status="running", turn=turn.id))

    def _failure(self) -> ModelCalled:
        """The end of a request that got no answer."""
        model = self._settings.model
        return ModelCalled(usage=Usage(), asked=self._asked, model=model, is_error=True)

    def _called(self, response: ModelResponse, began: float, counted: bool) -> ModelCalled:
        """`counted` says that the request was the conversation as it is."""
        spent = response.usage
        cached = spent.cache_read_tokens + spent.cache_write_tokens
        cost = 0
        with suppress(Exception):  # a model without a price list is no error
            cost = round(response.cost().total_price * 1_000_000)
        total = spent.input_tokens + spent.output_tokens
        return ModelCalled(
            asked=self._asked,
            model=self._settings.model,
            usage=Usage(
                input_tokens=max(0, spent.input_tokens - cached),
                output_tokens=spent.output_tokens,
                cache_read_tokens=spent.cache_read_tokens,
                cache_5m_tokens=spent.cache_write_tokens - spent.cache_write_1h_tokens,
                cache_1h_tokens=spent.cache_write_1h_tokens,
                cost=cost,
            ),
            duration=round((time.monotonic() - began) * 1_000_000),
            context_used=total if counted and total else None,
            context_size=self.window if counted else None,
        )


def _kept(part: ThinkingPart) -> dict[str, Any]:
    """What the provider wants back with a thought."""
    names = ("id", "signature", "provider_name", "provider_details")
    kept = {name: value for name in names if (value := getattr(part, name)) is not None}
    return {DIALECT: kept} if kept else {}


def _malformed(error: Exception) -> bool:
    """Whether it was no refusal, but an answer that could not be understood."""
    if isinstance(error, errors.ModelAPIError):
        told = errors.ModelHTTPError | errors.ModelRequestRejectedError
        return not isinstance(error, told | errors.ModelQuotaExceededError)
    return isinstance(error, errors.UnexpectedModelBehavior | ValueError)


def _code(error: Exception) -> str:
    match error:
        case errors.ModelRateLimitError():
            return "model_rate_limited_error"
        case errors.ModelOverloadedError():
            return "model_overloaded_error"
        case errors.ModelQuotaExceededError():
            return "billing_error"
    return "model_request_failed_error"


def _words(error: Exception) -> str:
    """What the provider said is wrong, without the envelope."""
    body = getattr(error, "body", None)
    if isinstance(body, dict):
        inner = body.get("error", body)
        if isinstance(inner, dict) and isinstance(inner.get("message"), str):
            status = getattr(error, "status_code", None)
            return f"{inner['message']} (HTTP {status})" if status else inner["message"]
    return str(getattr(error, "message", None) or error or type(error).__name__)
