"""What a child is told of a conversation that it does not know, along with the first prompt."""

from __future__ import annotations

from collections.abc import Sequence

from segue.model.content import plain_text
from segue.model.event import AgentMessage, Event, UserMessage

LEAD = "This conversation was begun elsewhere."
MOST = 32_000  # characters


def primer(history: Sequence[Event]) -> str:
    """The conversation in words, its end rather than its beginning; "" if there is none.

    It goes behind the user's own words, which children take commands and titles from.
    """
    lines: list[str] = []
    for event in history:
        if isinstance(event.body, UserMessage | AgentMessage):
            who = "User" if isinstance(event.body, UserMessage) else "You"
            if said := plain_text(event.body.content):
                lines.append(f"{who}: {said}")
    if not lines:
        return ""
    told = "\n\n".join(lines)[-MOST:]
    return f"{LEAD} This was said before the message above, which is to be answered now:\n\n{told}"
