"""The grader of an outcome: another conversation with the model, over the rubric and the files.

It looks with the tools that only look, and ends by giving its verdict as a call.
"""

from __future__ import annotations

import json
from typing import Literal

import msgspec
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import ToolDefinition

from segue.agents.base import Turn
from segue.agents.tools import BUILT_IN, ToolContext, ToolError
from segue.model.content import plain_text
from segue.model.event import OutcomeDefined, Usage

from .conversation import wanted
from .request import ContextFull, ModelFailed, Requests

MAX_REQUESTS = 12
_LOOKS = ("read", "glob", "grep")
_ROLE = """\
You grade whether a piece of work reaches what was asked for. You did not do the work and owe \
nobody a good mark. Look at the files themselves with your tools where the work is in files; what \
the worker says of it is a claim. Hold it to the rubric, point by point. Then call `verdict`:
- satisfied: everything that the rubric asks for is there; the explanation says why.
- needs_revision: something is missing or wrong that more work could mend; the explanation says \
exactly what, for the worker to read.
- failed: it cannot be reached, however long one works; the explanation says why."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    result: Literal["satisfied", "needs_revision", "failed"]
    explanation: str


_VERDICT = ToolDefinition(
    name="verdict",
    description="Give the verdict and end the grading.",
    parameters_json_schema={
        "type": "object",
        "properties": {
            "result": {"type": "string", "enum": ["satisfied", "needs_revision", "failed"]},
            "explanation": {"type": "string"},
        },
        "required": ["result", "explanation"],
    },
)


async def grade(
    turn: Turn, requests: Requests, context: ToolContext, outcome: OutcomeDefined, said: str
) -> tuple[Verdict, Usage]:
    """The verdict on what a worker did and `said`, and what it cost."""
    tools = [
        ToolDefinition(name=name, description=tool.about, parameters_json_schema=tool.schema())
        for name, tool in BUILT_IN.items()
        if name in _LOOKS and not context.elsewhere
    ]
    asked = (
        f"Asked for:\n\n{wanted(outcome)}\n\nThe worker's last words:\n\n{said or '(nothing)'}\n\n"
        f"The worker's directory: {'elsewhere' if context.elsewhere else context.roots.cwd}"
    )
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(content=asked)], instructions=_ROLE)
    ]
    spent = Usage()
    for number in range(MAX_REQUESTS):
        last = number == MAX_REQUESTS - 1
        try:
            response, called, _ = await requests.ask(
                messages,
                [_VERDICT] if last else [*tools, _VERDICT],
                shown=False,
                must_call="verdict" if last else None,
            )
        except ContextFull:
            why = "what the grader has looked at does not fit into the model's context"
            raise ModelFailed(why, "model_request_failed_error", tried=False) from None
        await turn.emit(called)
        spent += called.usage
        messages.append(response)
        answers: list[ModelRequestPart] = []
        for call in response.tool_calls:
            if call.tool_name == _VERDICT.name and (verdict := _read(call)):
                return verdict, spent
            answers.append(await _looked(context, call))
        if not answers:
            answers = [UserPromptPart(content="Give your verdict by calling `verdict`.")]
        messages.append(ModelRequest(parts=answers, instructions=_ROLE))
    return Verdict(result="needs_revision", explanation="The grader came to no verdict."), spent


def _read(call: ToolCallPart) -> Verdict | None:
    try:
        return msgspec.convert(call.args_as_dict(), Verdict)
    except (msgspec.ValidationError, ValueError):
        return None


async def _looked(context: ToolContext, call: ToolCallPart) -> ToolReturnPart:
    def told(text: str, outcome: Literal["success", "failed"]) -> ToolReturnPart:
        return ToolReturnPart(
            tool_name=call.tool_name, content=text, tool_call_id=call.tool_call_id, outcome=outcome
        )

    if call.tool_name not in _LOOKS:
        return told(f"give `verdict` what its schema says, not {json.dumps(call.args)}", "failed")
    tool = BUILT_IN[call.tool_name]
    try:
        result = await tool.use(context, tool.read(call.args_as_dict()))
    except (ToolError, ValueError) as error:
        return told(str(error), "failed")
    return told(plain_text(result.content) or "[a picture]", "success")
