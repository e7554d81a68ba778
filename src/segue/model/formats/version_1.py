"""Convert event bodies of version 1 to version 2.

A value that does not fit is returned unchanged, so that the decoder names the mistake.
"""

from __future__ import annotations

from typing import Any


def convert(body: dict[str, Any]) -> dict[str, Any]:
    """Return a body of version 1 as version 2; most types did not change."""
    converter = _CONVERTERS.get(str(body.get("type")))
    return body if converter is None else converter(body)


def convert_usage(usage: Any) -> Any:
    """Return the usage of version 1, which left out zeros, as that of version 2.

    Without any number of tokens, none was reported. A cost of 0 was an unknown one.
    """
    if not isinstance(usage, dict) or not all(isinstance(n, int) for n in usage.values()):
        return usage
    names = ("input_tokens", "output_tokens", "cache_read_tokens")
    hour = usage.get("cache_1h_tokens")
    writes = usage.get("cache_5m_tokens", 0) + (hour or 0)
    reported = writes or any(name in usage for name in names)
    converted = {name: usage.get(name, 0 if reported else None) for name in names}
    converted |= {"cache_write_tokens": writes if reported else None, "cost": usage.get("cost")}
    return converted | ({"cache_1h_tokens": hour} if hour else {})


def _convert_usage_of(body: dict[str, Any]) -> dict[str, Any]:
    usage = body.get("usage")
    return body if usage is None else {**body, "usage": convert_usage(usage)}


def _convert_tool_call(body: dict[str, Any]) -> dict[str, Any]:
    """Return a tool call of version 1, whose permission was in its `extra`, as version 2."""
    match body:
        case {"extra": {"permission": {"policy": policy, "verdict": verdict}, **extra}}:
            return {**body, "policy": policy, "verdict": verdict, "extra": extra}
    return body


_CONVERTERS = {
    "model_called": _convert_usage_of,
    "outcome_evaluated": _convert_usage_of,
    "tool_call": _convert_tool_call,
}
