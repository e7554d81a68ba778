"""Count the tokens and the cost of a session's models.

Every line of a response reports the tokens of the whole response. While a response is still
streamed, only its last line has the final number of output tokens. Some versions of Claude Code
copy the whole history into the file of a resumed session. So a response is identified by its id,
and counted once, with its highest number.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from msgspec.structs import replace

from segue.model.event import Usage
from segue.sources.claude.format.jsonl import Entry

from .summary import TranscriptSummary
from .translator import parse_usage

_MAX_RESPONSES = 256  # the last ones, whose ids are remembered
_MAX_MODELS = 64  # that are counted separately
_MAX_NAME_LENGTH = 256
_MAX_COST_MICROS = 1 << 50


def add_usage(summary: TranscriptSummary, entry: Entry, *, inherited: bool) -> None:
    """Add an entry's usage to the summary; an inherited entry counts for the parent session."""
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
    used = replace(used, cost=_micros(entry.get("costUSD")))
    if _is_name(id):
        before = summary.responses.pop(id, None)
        summary.responses[id] = max(before or 0, used.output_tokens or 0)
        if len(summary.responses) > _MAX_RESPONSES:
            summary.responses.pop(next(iter(summary.responses)))
        if before is not None:
            used = Usage(output_tokens=max(0, (used.output_tokens or 0) - before))
    if model in summary.models or len(summary.models) < _MAX_MODELS:
        summary.models[model] = summary.models.get(model, Usage()) + used


def usage_by_model(summary: TranscriptSummary) -> dict[str, Usage]:
    """Return what each model used, for the session and its subagents."""
    totals = {**summary.models}
    for agent in summary.agents.values():
        for model, used in agent.models.items():
            totals[model] = totals.get(model, Usage()) + used
    for model, cost in summary.costs.items():  # they are the whole session's
        totals[model] = replace(totals.get(model, Usage()), cost=cost)
    return totals


def _set_costs(summary: TranscriptSummary, costs_by_model: Any) -> None:
    """Replace the costs by those that Claude Code reports for the whole session."""
    if isinstance(costs_by_model, dict):
        costs = {
            model: _micros(report.get("costUSD"))
            for model, report in list(costs_by_model.items())[:_MAX_MODELS]
            if isinstance(report, dict) and _is_name(model)
        }
        summary.costs = {model: cost for model, cost in costs.items() if cost}


def _micros(dollars: Any) -> int | None:
    """Return a cost in millionths of a dollar, or None if it is unknown."""
    if not isinstance(dollars, int | float) or not 0 < dollars < _MAX_COST_MICROS / 1e6:
        return None
    return round(dollars * 1e6)


def _is_name(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= _MAX_NAME_LENGTH
