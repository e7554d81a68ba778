"""Let a model summarise a conversation that another program continues."""

from __future__ import annotations

from pydantic_ai import exceptions as errors
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import ModelRequest, UserPromptPart
from pydantic_ai.models import Model

from segue.model.errors import AgentFailed

from .request import DEFAULT_CONTEXT_TOKENS
from .settings import Settings

_CONTEXT_SHARE = 0.5  # of the model's context, for the part of the conversation in one request
_CHARACTERS_PER_TOKEN = 3
_PROMPT = """\
Another assistant continues the conversation below, and sees only your summary of it. Write what \
the user wants, in their words where the words matter; what was done and found, with the names of \
files, functions and commands; decisions and why; what is open. Be complete and plain. Write the \
summary only, and do not continue the task."""


async def summarize(model: Model, settings: Settings, text: str) -> str:
    """Return a summary of a conversation; raises AgentFailed if the model gives none.

    If the text does not fit into the model's context, a summary of its beginning comes with the
    next part.
    """
    context_tokens = settings.context_tokens or model.context_window or DEFAULT_CONTEXT_TOKENS
    size = int(context_tokens * _CONTEXT_SHARE) * _CHARACTERS_PER_TOKEN
    summary = ""
    for start in range(0, len(text), size):
        earlier = f"<summary-so-far>\n{summary}\n</summary-so-far>\n\n" if summary else ""
        part = f"<conversation>\n{text[start : start + size]}\n</conversation>"
        summary = await _ask(model, f"{_PROMPT}\n\n{earlier}{part}")
    return summary


async def _ask(model: Model, prompt: str) -> str:
    messages = [ModelRequest(parts=[UserPromptPart(content=prompt)])]
    try:
        async with model_request_stream(model, messages, instrument=False) as stream:
            async for _ in stream:
                pass
            answer = stream.get().text
    except (errors.AgentRunError, errors.UserError, ValueError) as error:
        raise AgentFailed(f"the model could not write a summary: {error}") from error
    if not answer:
        raise AgentFailed("the model returned no summary of the conversation")
    return answer
