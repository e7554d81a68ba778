"""Count the tokens and the cost of a session's models.

Every line of a response reports the tokens of the whole response. While a response is still
streamed, only its last line has the final number of output tokens. Some versions of Claude Code
copy the whole history into the file of a resumed session. So a response is identified by its id,
and counted once, with its highest number.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from msgspec import UNSET
from msgspec.structs import replace

from segue.model.event import Usage
from segue.prices.estimate import with_cost
from segue.sources.claude.format.jsonl import Entry

from .summary import TranscriptSummary
from .translator import parse_cost, parse_usage, response_cost

_MAX_RESPONSES = 256  # the last ones, whose ids are remembered
_MAX_MODELS = 64  # counted separately
_MAX_NAME_LENGTH = 256


def add_usage(summary: TranscriptSummary, entry: Entry, at: int | None, *, inherited: bool) -> None:
    """Add an entry's usage to the summary; an inherited entry counts for the parent session.

    `at` is the entry's time, whose prices count if Claude Code reports no cost.
    """
    if entry.get("type") == "cost-state":
        _set_costs(summary, entry.get("modelUsage"))
    message = entry.get("message")
    if not isinstance(message, dict) or entry.get("type") != "assistant":
        return
    tokens, model, id = message.get("usage"), message.get("model"), message.get("id")
    if not isinstance(tokens, dict) or not _is_name(model) or entry.get("isApiErrorMessage"):
        return
    used = parse_usage(tokens)
    if used.is_zero:
        return  # no model wrote this message
    summary.model = model
    if inherited:
        return
    used = response_cost(used, model, entry, at or summary.active_at or 0)
    if _is_name(id):
        before = summary.responses.pop(id, None)
        summary.responses[id] = max(before or 0, used.output_tokens or 0)
        if len(summary.responses) > _MAX_RESPONSES:
            summary.responses.pop(next(iter(summary.responses)))
        if before is not None:
            used = _added_output(used, before, model, at or summary.active_at or 0)
    if model in summary.models or len(summary.models) < _MAX_MODELS:
        summary.models[model] = summary.models.get(model, Usage()) + used


def _added_output(used: Usage, before: int, model: str, at: int) -> Usage:
    """Return what a later line of a response adds: output tokens and their estimated cost."""
    added = Usage(output_tokens=max(0, (used.output_tokens or 0) - before))
    if not added.output_tokens or not used.estimated_cost:
        return added
    counted = replace(used, output_tokens=before, cost=None, estimated_cost=UNSET)
    cost = used.estimated_cost - (with_cost(counted, model, at).cost or 0)
    return replace(added, cost=cost, estimated_cost=cost)


def usage_by_model(summary: TranscriptSummary) -> dict[str, Usage]:
    """Return what each model used, for the session and its subagents."""
    totals = {**summary.models}
    for agent in summary.agents.values():
        for model, used in agent.models.items():
            totals[model] = totals.get(model, Usage()) + used
    for model, cost in summary.costs.items():  # they are the whole session's
        used = totals.get(model, Usage())
        totals[model] = replace(used, cost=cost, estimated_cost=UNSET)
    return totals


def _set_costs(summary: TranscriptSummary, costs_by_model: Any) -> None:
    """Replace the costs by those that Claude Code reports for the whole session."""
    if isinstance(costs_by_model, dict):
        costs = {
            model: parse_cost(report.get("costUSD"))
            for model, report in list(costs_by_model.items())[:_MAX_MODELS]
            if isinstance(report, dict) and _is_name(model)
        }
        summary.costs = {model: cost for model, cost in costs.items() if cost}


def _is_name(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= _MAX_NAME_LENGTH
