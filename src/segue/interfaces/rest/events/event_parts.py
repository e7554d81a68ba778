"""Encode the parts of events that depend on one stored event alone."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, cast, get_args

import msgspec
from msgspec import UNSET

from segue.hub.resources.first_events import FileRubric, TextRubric
from segue.interfaces.rest.schemas import events as schemas
from segue.interfaces.rest.schemas.session import outcome_id
from segue.model import clock, ids
from segue.model.event import Event, Failed, OutcomeEvaluated, Policy, ToolCall, Usage

from .event_lookup import event_id, tool_use_id

# An event that is shown as several has the ids of the others derived from its own.
DerivedItem = Literal["thread", "usage", "terminated", "title", "received"]
_AUTO_VERDICTS: dict[schemas.Verdict, schemas.AutoAllow | schemas.AutoAsk | schemas.AutoDeny] = {
    "allow": schemas.AutoAllow(),
    "ask": schemas.AutoAsk(),
    "deny": schemas.AutoDeny(),
}
_MCP_ERRORS = ("mcp_connection_failed_error", "mcp_authentication_failed_error")
_OTHER_ERRORS = frozenset(get_args(schemas.ErrorType)) - {*_MCP_ERRORS}


class EventFields(TypedDict):
    """The fields of all events."""

    id: str
    processed_at: str


def event_fields(event: Event, *, derive_from: DerivedItem | None = None) -> EventFields:
    """Return the fields of an event that shows a stored one, or another item of it."""
    id = event_id(event.id) if derive_from is None else ids.derived_id(event.id, derive_from)
    return {"id": ids.format_id("sevt", id), "processed_at": clock.to_rfc3339(event.at)}


def tool_use(event: Event, body: ToolCall) -> schemas.Event:
    """Return the event that shows a tool call."""
    fields = event_fields(event)
    fields["id"] = ids.format_id("sevt", tool_use_id(body.call_id))
    if isinstance(body.input, dict):
        arguments = body.input
    else:
        arguments = {} if body.input is None else {"input": body.input}
    if body.custom:
        return schemas.AgentCustomToolUse(**fields, name=body.name, input=arguments)
    verdict: schemas.Verdict | msgspec.UnsetType = UNSET
    evaluation: schemas.Evaluation | msgspec.UnsetType = UNSET
    if body.policy is not None and (decided := body.effective_verdict) is not None:
        verdict = decided
        evaluation = permission_evaluation(body.policy, decided)
    if body.server is not None:
        return schemas.AgentMCPToolUse(
            **fields,
            name=body.name,
            input=arguments,
            evaluated_permission=verdict,
            evaluation=evaluation,
            mcp_server_name=body.server,
        )
    return schemas.AgentToolUse(
        **fields,
        name=body.name,
        input=arguments,
        evaluated_permission=verdict,
        evaluation=evaluation,
    )


def permission_evaluation(policy: Policy, verdict: schemas.Verdict) -> schemas.Evaluation:
    """Return the policy that decided about a tool call."""
    if policy == "auto":
        return schemas.Auto(evaluated_permission=_AUTO_VERDICTS[verdict])
    return schemas.AlwaysAllow() if policy == "always_allow" else schemas.AlwaysAsk()


def failure(event: Event, body: Failed) -> schemas.SessionError:
    """Return the event that shows a failure."""
    if body.server is not None and body.code in _MCP_ERRORS:
        return error(event, body.code, body.message, body.retry, server=body.server)
    code = body.code if body.code in _OTHER_ERRORS else "unknown_error"
    return error(event, code, body.message, body.retry)


def error(
    event: Event,
    code: str,
    message: str,
    retry: schemas.RetryStatus,
    *,
    server: str | msgspec.UnsetType = UNSET,
) -> schemas.SessionError:
    """Return an error event with a code of this API."""
    error = schemas.SessionErrorDetail(
        type=cast(schemas.ErrorType, code),
        message=message,
        retry_status=schemas.Retry(type=retry),
        mcp_server_name=server,
    )
    return schemas.SessionError(**event_fields(event), error=error)


def model_usage(tokens: Usage) -> schemas.ModelUsage:
    """Return the usage of model requests."""
    return schemas.ModelUsage(
        input_tokens=tokens.input_tokens or 0,
        output_tokens=tokens.output_tokens or 0,
        cache_read_input_tokens=tokens.cache_read_tokens or 0,
        cache_creation_input_tokens=tokens.cache_write_tokens or 0,
        speed=None,
    )


def rubric(rubric: dict[str, Any]) -> TextRubric | FileRubric:
    """Return a rubric as the client sent it: of a file only the id."""
    if rubric.get("type") == "file":
        return FileRubric(file_id=str(rubric.get("file_id")))
    return TextRubric(content=str(rubric.get("content")))


def evaluation_start_id(body: OutcomeEvaluated) -> str:
    """Return the id of the event that shows the start of an evaluation."""
    return ids.derived_id("evaluation", body.outcome_id, str(body.iteration))


def evaluation(event: Event, body: OutcomeEvaluated) -> schemas.Event:
    """Return the event that shows the start, the progress or the end of an evaluation."""
    fields = event_fields(event)
    outcome = outcome_id(body.outcome_id)
    start_id = ids.format_id("sevt", evaluation_start_id(body))
    if body.ongoing:
        return schemas.OutcomeEvaluationOngoing(
            **fields, outcome_id=outcome, iteration=body.iteration
        )
    if body.result == "evaluating":
        return schemas.OutcomeEvaluationStart(
            id=start_id,
            processed_at=fields["processed_at"],
            outcome_id=outcome,
            iteration=body.iteration,
        )
    return schemas.OutcomeEvaluationEnd(
        **fields,
        outcome_id=outcome,
        iteration=body.iteration,
        outcome_evaluation_start_id=start_id,
        result=body.result,
        explanation=body.explanation or "",
        usage=model_usage(body.usage or Usage()),
    )
