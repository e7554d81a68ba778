"""Count the tokens of a Copilot session once.

Versions from 1.0.102 write a record for each model call. Before, the record of a shutdown has them:
in some versions those of its own run, in others the total of all runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from segue.model.event import Usage
from segue.sources.kit import bodies

_NAMES = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")


class UsageState(msgspec.Struct, omit_defaults=True):
    """The tokens that the records before have: the last total of each model."""

    has_records: bool = False  # whether each model call has a record
    messages: int = 0  # of the agent and its subagents
    messages_before: int = 0  # the last shutdown
    totals: dict[str, list[int]] = {}


def token_usage(usage: dict[str, Any]) -> Usage:
    """Return the tokens of Copilot's counters; its input includes the cache."""
    return _usage([usage.get(name) for name in _NAMES])


def _usage(counts: Sequence[Any]) -> Usage:
    return bodies.usage(
        input=counts[0],
        output=counts[1],
        cache_read=counts[2],
        cache_write=counts[3],
        input_includes_cache=True,
    )


def shutdown_usage(state: UsageState, data: dict[str, Any]) -> Iterator[tuple[Usage, str]]:
    """Return the tokens of the run that a shutdown ends, by model."""
    metrics = _metrics(data)
    is_total = _is_total(state, data, metrics)
    state.messages_before = state.messages
    for model, (_, counts) in metrics.items():
        before = state.totals.get(model) if is_total else None
        state.totals[model] = counts
        if before is not None:
            counts = [max(0, new - old) for new, old in zip(counts, before, strict=True)]
        if any(counts) and not state.has_records:
            yield _usage(counts), model


def _metrics(data: dict[str, Any]) -> dict[str, tuple[int, list[int]]]:
    """Return the number of requests and the token counts of each model."""
    values = data.get("modelMetrics")
    if not isinstance(values, dict):
        snapshot = data.get("accountingSnapshot")
        values = snapshot.get("modelMetrics") if isinstance(snapshot, dict) else None
    metrics = {}
    for model, value in (values if isinstance(values, dict) else {}).items():
        usage = value.get("usage") if isinstance(value, dict) else None
        if isinstance(usage, dict):
            requests = value.get("requests")
            count = requests.get("count") if isinstance(requests, dict) else 0
            counts = [bodies.count(usage.get(name)) for name in _NAMES]
            metrics[str(model)] = bodies.count(count), counts
    return metrics


def _is_total(
    state: UsageState, data: dict[str, Any], metrics: dict[str, tuple[int, list[int]]]
) -> bool:
    """Return whether a shutdown counts all runs of the session, and not only its own.

    A total has no counter that is lower than before, and about as many requests as the session has
    messages of the agent.
    """
    if "accountingSnapshot" in data:
        return True
    for model, before in state.totals.items():
        counts = metrics[model][1] if model in metrics else [0] * len(before)
        if any(new < old for new, old in zip(counts, before, strict=True)):
            return False
    requests = sum(count for count, _ in metrics.values())
    run = state.messages - state.messages_before
    return abs(requests - state.messages) < abs(requests - run)
