"""What the network transports of a client share: cursors, and waits between attempts."""

from __future__ import annotations

import asyncio
import random
from typing import Any

CURSOR_KEY = "acp/cursor"
MAX_ATTEMPTS = 8
_FIRST_WAIT_SECONDS = 0.1
_MAX_WAIT_SECONDS = 10.0


def with_resumable(message: dict[str, Any]) -> dict[str, Any]:
    """Return an `initialize` request that asks for cursors."""
    params = dict(message.get("params") or {})
    for name in ("capabilities", "clientCapabilities"):
        params[name] = {**(params.get(name) or {}), "transport": {"resumable": {}}}
    return {**message, "params": params}


def offers_resuming(result: Any) -> bool:
    """Return whether the result of `initialize` says that the server can resume."""
    fields = result if isinstance(result, dict) else {}
    for name in ("capabilities", "agentCapabilities"):
        capabilities = fields.get(name)
        transport = capabilities.get("transport") if isinstance(capabilities, dict) else None
        if isinstance(transport, dict) and isinstance(transport.get("resumable"), dict):
            return True
    return False


def cursor_of(message: Any) -> str | None:
    """Return the cursor of a message, or None if it has none."""
    for name in ("params", "result"):
        value = message.get(name) if isinstance(message, dict) else None
        meta = value.get("_meta") if isinstance(value, dict) else None
        cursor = meta.get(CURSOR_KEY) if isinstance(meta, dict) else None
        if isinstance(cursor, str):
            return cursor
    return None


async def wait_before(attempt: int) -> None:
    """Wait before an attempt to connect again, longer each time, and not as long as others."""
    seconds = min(_MAX_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2**attempt)
    await asyncio.sleep(seconds * random.uniform(0.5, 1.0))
