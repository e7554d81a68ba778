"""The grader of an outcome: a separate conversation with the model about the rubric and the files.

The grader has read-only tools, and gives its verdict as a tool call.
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

from .conversation import outcome_prompt
from .request import ContextFull, ModelFailed, ModelRequests

MAX_REQUESTS = 12
_READ_ONLY_TOOLS = ("read", "glob", "grep")
_INSTRUCTIONS = """\
You grade whether a piece of work reaches what was asked for. You did not do the work, so \
judge it impartially. Where the work is in files, look at the files themselves with your tools; \
what the worker says about it is a claim. Hold it to the rubric, point by point. Then call \
`verdict`:
- satisfied: everything that the rubric asks for is there; the explanation says why.
- needs_revision: something is missing or wrong that more work could mend; the explanation says \
exactly what, for the worker to read.
- failed: it cannot be reached, however long one works; the explanation says why."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The grader's verdict on an agent's work."""

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
    turn: Turn,
    requests: ModelRequests,
    context: ToolContext,
    outcome: OutcomeDefined,
    last_text: str,
) -> tuple[Verdict, Usage]:
    """Return the verdict on an agent's work and the usage of grading it.

    `last_text` is the last message of the agent.
    """
    tools = _tools(context)
    messages = [_request(UserPromptPart(content=_prompt(context, outcome, last_text)))]
    usage = Usage()
    for number in range(MAX_REQUESTS):
        last = number == MAX_REQUESTS - 1
        try:
            response, called, _ = await requests.send(
                messages,
                [_VERDICT] if last else [*tools, _VERDICT],
                streamed=False,
                must_call="verdict" if last else None,
            )
        except ContextFull:
            message = "the files that the grader has read do not fit into the model's context"
            raise ModelFailed(message, "model_request_failed_error", retried=False) from None
        await turn.emit(called)
        usage += called.usage
        messages.append(response)
        results: list[ModelRequestPart] = []
        for call in response.tool_calls:
            if call.tool_name == _VERDICT.name and (verdict := _parse_verdict(call)):
                return verdict, usage
            results.append(await _run_tool(context, call))
        if not results:
            results = [UserPromptPart(content="Give your verdict by calling `verdict`.")]
        messages.append(_request(*results))
    return Verdict(result="needs_revision", explanation="The grader came to no verdict."), usage


def _tools(context: ToolContext) -> list[ToolDefinition]:
    """Return the tools with which the grader can look at the work."""
    return [
        ToolDefinition(
            name=name, description=tool.description, parameters_json_schema=tool.schema()
        )
        for name, tool in BUILT_IN.items()
        if name in _READ_ONLY_TOOLS and not context.remote
    ]


def _prompt(context: ToolContext, outcome: OutcomeDefined, last_text: str) -> str:
    return (
        f"Asked for:\n\n{outcome_prompt(outcome)}\n\n"
        f"The worker's last words:\n\n{last_text or '(nothing)'}\n\n"
        f"The worker's directory: {'on another machine' if context.remote else context.paths.cwd}"
    )


def _request(*parts: ModelRequestPart) -> ModelMessage:
    return ModelRequest(parts=list(parts), instructions=_INSTRUCTIONS)


def _parse_verdict(call: ToolCallPart) -> Verdict | None:
    try:
        return msgspec.convert(call.args_as_dict(), Verdict)
    except (msgspec.ValidationError, ValueError):
        return None


async def _run_tool(context: ToolContext, call: ToolCallPart) -> ToolReturnPart:
    def returned(text: str, outcome: Literal["success", "failed"]) -> ToolReturnPart:
        return ToolReturnPart(
            tool_name=call.tool_name, content=text, tool_call_id=call.tool_call_id, outcome=outcome
        )

    if call.tool_name not in _READ_ONLY_TOOLS:
        return returned(
            f"the arguments of `verdict` do not match its schema: {json.dumps(call.args)}", "failed"
        )
    tool = BUILT_IN[call.tool_name]
    try:
        result = await tool.run(context, tool.parse(call.args_as_dict()))
    except (ToolError, ValueError) as error:
        return returned(str(error), "failed")
    return returned(plain_text(result.content) or "[an image]", "success")
