"""Send a request to a model, stream the response into the turn, and retry failures."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from msgspec import UNSET
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
from segue.model.errors import without_locations
from segue.model.event import (
    AgentThought,
    Event,
    Failed,
    ModelCalled,
    StatusChanged,
    Usage,
)

from .conversation import DIALECT, provider_extra
from .errors import connection_message, is_unlikely_to_recover
from .settings import Settings, unsupported_by_provider

MAX_BACKOFF_SECONDS = 60.0
# If the provider asks for a longer pause than this, the request fails.
MAX_RETRY_AFTER_SECONDS = 300.0
DEFAULT_CONTEXT_TOKENS = 128_000
# More attempts seldom repair a malformed response.
MAX_MALFORMED_ATTEMPTS = 3
# A local server that refuses connections may be starting; it will not start after minutes. A host
# name that cannot be resolved is wrong, or the network is down.
MAX_UNREACHABLE_ATTEMPTS = 3

_TRANSIENT = (
    errors.ModelRateLimitError,
    errors.ModelUnavailableError,
    errors.ModelServerError,
    errors.ModelConnectionError,
    errors.ModelRequestTimeout,
)


class ModelFailed(Exception):
    """A request failed and will not be retried; `event` reports it."""

    def __init__(self, message: str, code: str, *, retried: bool) -> None:
        super().__init__(message)
        self.event = Failed(
            message=message,
            remote_message=without_locations(message),
            code=code,
            retry="exhausted" if retried else "terminal",
        )


class BudgetReached(Exception):
    """The session has used up its budget."""


class ContextFull(Exception):
    """The conversation no longer fits into the model's context."""


class ModelAnswer(NamedTuple):
    """A complete response, the event that reports its usage, and the events stored so far."""

    response: ModelResponse
    called: ModelCalled
    stored: list[Event]


def unsupported_option(model: Model, settings: Settings) -> str | None:
    """Return which option of the agent its model does not have; None if it has all."""
    profile = model.profile
    if settings.fast and not profile.get("anthropic_supports_fast_speed"):
        return f"model.speed: {settings.model} has no fast mode"
    has_effort = profile.get("supports_thinking") or profile.get("anthropic_supports_effort")
    if settings.effort is not None and not has_effort:
        return f"model.effort: {settings.model} has no levels of effort; use high, the default"
    return unsupported_by_provider(
        settings.model, fast=settings.fast, inference_geo=settings.inference_geo
    )


class ModelRequests:
    """Sends the requests of one turn."""

    def __init__(self, turn: Turn, model: Model, settings: Settings) -> None:
        self._turn = turn
        self._model = model
        self._settings = settings
        self._request_id: str | None = None  # the current request
        self.context_tokens = (
            settings.context_tokens or model.context_window or DEFAULT_CONTEXT_TOKENS
        )
        # Without system messages in the conversation, the system prompt is sent as it was written.
        self._options = ModelSettings(max_retries=0, cache=True, framing_announcement="when_needed")
        if settings.max_tokens is not None:
            self._options["max_tokens"] = settings.max_tokens
        if settings.thinking is not None:
            self._options["thinking"] = settings.thinking  # type: ignore[typeddict-item]  # the setting was validated
        if settings.fast:
            self._options["anthropic_speed"] = "fast"  # type: ignore[typeddict-unknown-key]  # of one provider
        if settings.inference_geo is not None:
            self._options["extra_body"] = {"inference_geo": settings.inference_geo}

    async def send(
        self,
        messages: Sequence[ModelMessage],
        tools: Sequence[ToolDefinition] = (),
        *,
        streamed: bool = True,
        must_call: str | None = None,
    ) -> ModelAnswer:
        """Send a request, retry it if necessary, and return the answer.

        If `streamed` is set, the response is streamed into the turn. The caller must emit the
        answer's ModelCalled event, together with the events that follow from the response.
        Raises BudgetReached, ContextFull or ModelFailed.
        """
        if self._turn.session.at_budget:
            raise BudgetReached
        options = self._options.copy()
        if must_call is not None:
            options["tool_choice"] = [must_call]
            options.pop("thinking", None)  # providers do not support both
        attempt = 0
        while True:
            attempt += 1
            began = time.monotonic()
            self._request_id = await self._turn.begin_request(self._settings.model)
            stored: list[Event] = []
            try:
                response = await self._send_once(
                    messages, tools, options, stored if streamed else None
                )
                called = self._called(response, began, is_conversation=streamed)
                return ModelAnswer(response, called, stored)
            except errors.ModelContextWindowExceededError as error:
                await self._turn.emit(self._failed_call())
                raise ContextFull from error
            except (errors.AgentRunError, errors.UserError, ValueError) as error:
                # Clients raise ValueError for a stream that is not valid.
                await self._wait_for_retry(error, attempt)

    async def _send_once(
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
                        await self._stream_event(event, stored)
            except asyncio.CancelledError:
                # The provider charges for the tokens up to the cancellation.
                called = self._called(stream.get(), began, is_conversation=True)
                self._turn.emit_at_end(called)
                raise
            return stream.get()

    async def _stream_event(self, event: Any, stored: list[Event]) -> None:
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
            extra = _provider_extra(event.part)
            if event.part.content:
                stored += await turn.finish(extra=extra)
            elif extra:  # a thought whose text the provider does not reveal
                stored += await turn.emit(AgentThought(content=(), extra=extra))

    async def _wait_for_retry(self, error: Exception, attempt: int) -> None:
        """Wait before the next attempt. Raises ModelFailed if there should be none."""
        turn = self._turn
        address = self._model.base_url
        code = _error_code(error)
        message = connection_message(error, address) or _provider_message(error)
        retryable = self._is_retryable(error, attempt)
        max_attempts = self._settings.retries + 1
        if is_unlikely_to_recover(error, address):
            max_attempts = min(max_attempts, MAX_UNREACHABLE_ATTEMPTS)
        await turn.finish(partial=True, extra={DIALECT: {"discarded": True}})
        if not retryable or attempt >= max_attempts:
            await turn.emit(self._failed_call())
            attempts = f" (tried {attempt} times)" if attempt > 1 else ""
            raise ModelFailed(message + attempts, code, retried=retryable or attempt > 1) from error
        seconds = self._retry_seconds(error, attempt)
        when = f"trying again in {seconds:.0f} s" if seconds >= 1 else "trying again"
        message = f"{message} (try {attempt} of {max_attempts}; {when})"
        await turn.emit(
            self._failed_call(),
            Failed(
                message=message,
                remote_message=without_locations(message),
                code=code,
                retry="retrying",
            ),
            StatusChanged(status="rescheduling", turn=turn.id),
        )
        await asyncio.sleep(seconds)
        await turn.emit(StatusChanged(status="running", turn=turn.id))

    def _is_retryable(self, error: Exception, attempt: int) -> bool:
        if getattr(error, "provider_retry_hint", None) is False:
            return False
        if _retry_after(error) > MAX_RETRY_AFTER_SECONDS:
            return False
        return isinstance(error, _TRANSIENT) or (
            _malformed(error) and attempt < MAX_MALFORMED_ATTEMPTS
        )

    def _retry_seconds(self, error: Exception, attempt: int) -> float:
        """Return the pause before the next attempt: exponential backoff with jitter."""
        backoff: float = min(self._settings.backoff * 2 ** (attempt - 1), MAX_BACKOFF_SECONDS)
        return max(_retry_after(error), backoff * random.uniform(0.5, 1.0))

    def _failed_call(self) -> ModelCalled:
        """Return the event that ends a request without an answer."""
        model = self._settings.model
        return ModelCalled(usage=Usage(), asked=self._request_id, model=model, is_error=True)

    def _called(
        self, response: ModelResponse, began: float, *, is_conversation: bool
    ) -> ModelCalled:
        """Return the event that reports a response's usage.

        It includes the size of the context if the request was the conversation itself.
        """
        usage = response.usage
        cached = usage.cache_read_tokens + usage.cache_write_tokens
        cost: int | None = None
        with suppress(Exception):  # the price of many models is unknown
            if price := response.cost().total_price:
                cost = round(price * 1_000_000)
        total = usage.input_tokens + usage.output_tokens
        return ModelCalled(
            asked=self._request_id,
            model=self._settings.model,
            usage=Usage(
                input_tokens=max(0, usage.input_tokens - cached),
                output_tokens=usage.output_tokens,
                cache_read_tokens=usage.cache_read_tokens,
                cache_write_tokens=usage.cache_write_tokens,
                cost=cost,
                estimated_cost=cost or UNSET,
                cache_1h_tokens=usage.cache_write_1h_tokens or UNSET,
            )
            if usage.has_values()
            else Usage(),
            duration=round((time.monotonic() - began) * 1_000_000),
            context_used=total if is_conversation and total else None,
            context_size=self.context_tokens if is_conversation else None,
        )


def _provider_extra(part: ThinkingPart) -> dict[str, Any]:
    """Return the fields that the provider needs back with a thought."""
    return provider_extra(part, ("id", "signature", "provider_name", "provider_details"))


def _retry_after(error: Exception) -> float:
    """Return the pause that the provider asks for, in seconds; 0 if it names none."""
    seconds: float | None = getattr(error, "retry_after", None)
    return seconds or 0.0


def _malformed(error: Exception) -> bool:
    """Return True if the provider answered, but not with a valid response or error."""
    if isinstance(error, errors.ModelAPIError):
        valid_errors = (
            errors.ModelHTTPError,
            errors.ModelRequestRejectedError,
            errors.ModelQuotaExceededError,
        )
        return not isinstance(error, valid_errors)
    return isinstance(error, errors.UnexpectedModelBehavior | ValueError)


def _error_code(error: Exception) -> str:
    match error:
        case errors.ModelRateLimitError():
            return "model_rate_limited_error"
        case errors.ModelOverloadedError():
            return "model_overloaded_error"
        case errors.ModelQuotaExceededError():
            return "billing_error"
    return "model_request_failed_error"


def _provider_message(error: Exception) -> str:
    """Return the provider's error message."""
    body = getattr(error, "body", None)
    if isinstance(body, dict):
        details = body.get("error", body)
        if isinstance(details, dict) and isinstance(details.get("message"), str):
            status = getattr(error, "status_code", None)
            return f"{details['message']} (HTTP {status})" if status else details["message"]
    return str(getattr(error, "message", None) or error or type(error).__name__)
