"""Compare what a client receives from an agent directly, and with segue in between."""

import json
from typing import Any

from tests.interfaces.acp.harness import Client, Update

# What segue adds: it sends states and prompts in version 2 itself, and the time after a turn.
OWN_UPDATES = ("state_update", "user_message")


def trace(client: Client, prompt: str, after: int = 0) -> list[Any]:
    """Return the messages that a client received, with ids replaced by numbers.

    Left out are the updates that segue adds, the title that it computes from the prompt, and the
    response to a prompt of version 2, which segue sends when it has stored the prompt.
    """
    requests = iter(client.permission_requests)
    messages: list[Any] = []
    for item in client.log[after:]:
        if isinstance(item, Update):
            if item.kind in OWN_UPDATES or _is_own_info(item.body, prompt):
                continue
            messages.append(item.body)
        elif item == "session/request_permission":
            messages.append({name: v for name, v in next(requests).items() if name != "sessionId"})
        elif client.version == 1:
            messages.append(item)
    return numbered(messages)


def _is_own_info(body: dict[str, Any], prompt: str) -> bool:
    if body["sessionUpdate"] != "session_info_update":
        return False
    if "messageCount" in (body.get("_meta") or {}):
        return True
    title = body.get("title")
    return isinstance(title, str) and prompt.startswith(title.removesuffix("…"))


def numbered(value: Any) -> Any:
    """Return JSON with each id of a message, tool call or terminal replaced by a number.

    A message and a thought may have the same id.
    """
    ids: dict[tuple[str, str], int] = {}

    def replace(value: Any) -> Any:
        if isinstance(value, list):
            return [replace(item) for item in value]
        if not isinstance(value, dict):
            return value
        kind = str(value.get("sessionUpdate", "")).removesuffix("_chunk")
        result = {}
        for name, item in value.items():
            if name in ("toolCallId", "terminalId", "messageId") and isinstance(item, str):
                key = (kind if name == "messageId" else name, item)
                result[name] = ids.setdefault(key, len(ids))
            else:
                result[name] = replace(item)
        return result

    return replace(json.loads(json.dumps(value)))
