"""The text that introduces an agent to a conversation that it does not know."""

from __future__ import annotations

from collections.abc import Sequence

from segue.model.content import plain_text
from segue.model.event import AgentMessage, Event, UserMessage

INTRODUCTION = "This conversation began in another agent."
MAX_HISTORY_CHARACTERS = 32_000


def history_prompt(history: Sequence[Event]) -> str:
    """Return the conversation as text, without its beginning if it is long; "" if it is empty.

    The text must follow the user's prompt, because agents read commands and titles from the start.
    """
    lines: list[str] = []
    for event in history:
        if isinstance(event.body, UserMessage | AgentMessage):
            speaker = "User" if isinstance(event.body, UserMessage) else "You"
            if text := plain_text(event.body.content):
                lines.append(f"{speaker}: {text}")
    if not lines:
        return ""
    conversation = "\n\n".join(lines)[-MAX_HISTORY_CHARACTERS:]
    return (
        f"{INTRODUCTION} These messages came before the message above, which you should answer"
        f" now:\n\n{conversation}"
    )
