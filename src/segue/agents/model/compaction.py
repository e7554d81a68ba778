"""Compaction: a conversation that outgrows the context is replaced, for the model, by a summary."""

from __future__ import annotations

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart

from segue.agents.base import Turn
from segue.model.content import Text
from segue.model.event import Compacted, Event

from .conversation import Conversation
from .request import ContextFull, ModelFailed, Requests

# Compact before a request would take more than this much of the window.
FULL = 0.8
# Of the last message of the user's, what is kept word for word.
MAX_PROMPT = 8_000

_ASK = """\
The conversation is about to leave your memory; only what you write now stays. Write a summary \
for yourself: what the user wants, in their words where the words matter; what was done and \
found, with the names of files, functions and commands; decisions and why; what is open, and the \
very next step. Be complete and plain. Do not call tools and do not go on with the task."""


async def compact(
    turn: Turn, requests: Requests, conversation: Conversation, instructions: str
) -> list[Event]:
    """Have the model sum up the conversation; the Compacted event, stored."""
    before = conversation.tokens
    messages = conversation.messages(instructions)
    while True:
        try:
            asked = _with(messages, instructions)
            response, called, _ = await requests.ask(asked, shown=False)
            break
        except ContextFull:
            messages = _half(messages)
            if not messages:
                raise ModelFailed(
                    "the conversation does not fit into the model's context, not even in part",
                    "compaction_limit_reached_error",
                    tried=True,
                ) from None
    text = response.text
    if not text:
        await turn.emit(called)
        raise ModelFailed(
            "the model did not sum up the conversation",
            "compaction_limit_reached_error",
            tried=True,
        )
    latest = conversation.latest[:MAX_PROMPT]
    summary = f"{text}\n\nThe user's latest message, word for word:\n\n{latest}" if latest else text
    return await turn.emit(
        called,
        Compacted(
            summary=(Text(text=summary),),
            tokens_before=before,
            tokens_after=len(summary) // 4,
        ),
    )


def _with(messages: list[ModelMessage], instructions: str) -> list[ModelMessage]:
    ask = UserPromptPart(content=_ASK)
    last = messages[-1]
    if isinstance(last, ModelRequest):
        whole = ModelRequest(parts=[*last.parts, ask], instructions=instructions)
        return [*messages[:-1], whole]
    return [*messages, ModelRequest(parts=[ask], instructions=instructions)]


def _half(messages: list[ModelMessage]) -> list[ModelMessage]:
    """The newer half, from a response on whose calls are answered in it."""
    rest = messages[(len(messages) + 1) // 2 :]
    while rest and not isinstance(rest[0], ModelResponse):
        rest = rest[1:]
    if len(rest) < 2:
        return []
    return [ModelRequest(parts=[UserPromptPart(content="[Earlier messages left out.]")]), *rest]
