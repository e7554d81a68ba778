"""What a session's models used, and what that cost, as its transcript tells it.

Every line of a response tells the tokens of all of it, and of those that are written while it still
comes only the last one tells how many were put out. Some versions copy a whole history into the
file of a resumed session. So a response is known by its id, and counted once, at its most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from msgspec.structs import replace

from segue.model.event import Usage
from segue.sources.claude.format.jsonl import Entry

from .translator import usage

if TYPE_CHECKING:
    from segue.sources.claude.index.transcript_summary import Known

_RESPONSES = 256  # the last ones, which are known again
_MODELS = 64  # that are told apart; nobody has as many
_LONG = 256  # characters of a name, of a model or of a response
_MOST = 1 << 50  # millionths of a dollar


def spend(known: Known, entry: Entry, inherited: bool) -> None:
    """What an entry adds; what one cost that a fork took over was its parent's."""
    if entry.get("type") == "cost-state":
        _priced(known, entry.get("modelUsage"))
    message = entry.get("message")
    if not isinstance(message, dict) or entry.get("type") != "assistant":
        return
    told, model, id = message.get("usage"), message.get("model"), message.get("id")
    if not isinstance(told, dict) or not _is_name(model) or entry.get("isApiErrorMessage"):
        return
    spent = usage(told)
    if spent == Usage():
        return  # a message that the program made up
    known.model = model
    if inherited:
        return
    spent = replace(spent, cost=_micros(entry.get("costUSD")))
    if _is_name(id):
        before = known.responses.pop(id, None)
        known.responses[id] = max(before or 0, spent.output_tokens)
        if len(known.responses) > _RESPONSES:
            known.responses.pop(next(iter(known.responses)))
        if before is not None:
            spent = Usage(output_tokens=max(0, spent.output_tokens - before))
    if model in known.models or len(known.models) < _MODELS:
        known.models[model] = known.models.get(model, Usage()) + spent


def models(known: Known) -> dict[str, Usage]:
    """What each model used, for the session's own agent and those that it started."""
    found = {**known.models}
    for agent in known.agents.values():
        for model, used in agent.models.items():
            found[model] = found.get(model, Usage()) + used
    for model, cost in known.costs.items():  # which are the whole session's
        found[model] = replace(found.get(model, Usage()), cost=cost)
    return found


def _priced(known: Known, told: Any) -> None:
    """What Claude Code itself says it cost so far, model by model."""
    if isinstance(told, dict):
        costs = {
            model: _micros(each.get("costUSD"))
            for model, each in list(told.items())[:_MODELS]
            if isinstance(each, dict) and _is_name(model)
        }
        known.costs = {model: cost for model, cost in costs.items() if cost}


def _micros(dollars: Any) -> int:
    if not isinstance(dollars, int | float) or not 0 < dollars < _MOST / 1e6:
        return 0
    return round(dollars * 1e6)


def _is_name(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= _LONG
