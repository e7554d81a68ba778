"""Compaction: replace a conversation that fills the model's context by a summary."""

from __future__ import annotations

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart

from segue.agents.base import Turn
from segue.model.content import Text
from segue.model.event import Compacted, Event

from .conversation import Conversation
from .request import ContextFull, ModelFailed, ModelRequests

# The share of the context window at which the conversation is compacted.
COMPACTION_THRESHOLD = 0.8
# The summary quotes up to this much of the user's latest message.
MAX_QUOTED_CHARACTERS = 8_000
_CHARACTERS_PER_TOKEN = 4

_SUMMARY_PROMPT = """\
The conversation is about to leave your memory; only what you write now stays. Write a summary \
for yourself: what the user wants, in their words where the words matter; what was done and \
found, with the names of files, functions and commands; decisions and why; what is open, and the \
very next step. Be complete and plain. Do not call tools and do not continue the task."""


async def compact(
    turn: Turn, requests: ModelRequests, conversation: Conversation, instructions: str
) -> list[Event]:
    """Let the model summarise the conversation, and return the stored events.

    Raises ModelFailed if the model returns no summary, or not even a part of the conversation fits
    into its context.
    """
    tokens_before = conversation.tokens
    messages = conversation.messages(instructions)
    while True:
        try:
            prompt = _with_summary_prompt(messages, instructions)
            response, called, _ = await requests.send(prompt, streamed=False)
            break
        except ContextFull:
            messages = _newer_half(messages)
            if not messages:
                raise ModelFailed(
                    "the conversation does not fit into the model's context, not even in part",
                    "compaction_limit_reached_error",
                    retried=True,
                ) from None
    text = response.text
    if not text:
        await turn.emit(called)
        raise ModelFailed(
            "the model returned no summary of the conversation",
            "compaction_limit_reached_error",
            retried=True,
        )
    quoted = conversation.latest_prompt[:MAX_QUOTED_CHARACTERS]
    summary = f"{text}\n\nThe user's latest message, word for word:\n\n{quoted}" if quoted else text
    return await turn.emit(
        called,
        Compacted(
            summary=(Text(text=summary),),
            tokens_before=tokens_before,
            tokens_after=len(summary) // _CHARACTERS_PER_TOKEN,
        ),
    )


def _with_summary_prompt(messages: list[ModelMessage], instructions: str) -> list[ModelMessage]:
    prompt = UserPromptPart(content=_SUMMARY_PROMPT)
    last = messages[-1]
    if isinstance(last, ModelRequest):
        extended = ModelRequest(parts=[*last.parts, prompt], instructions=instructions)
        return [*messages[:-1], extended]
    return [*messages, ModelRequest(parts=[prompt], instructions=instructions)]


def _newer_half(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Return the newer half of the messages, or none if too few are left.

    It begins with a response, so that no tool result is without its call.
    """
    newer = messages[(len(messages) + 1) // 2 :]
    while newer and not isinstance(newer[0], ModelResponse):
        newer = newer[1:]
    if len(newer) < 2:
        return []
    return [ModelRequest(parts=[UserPromptPart(content="[Earlier messages left out.]")]), *newer]
