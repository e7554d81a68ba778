"""The protocols by which programs ask a model: requests and answers in each of them."""

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple, Protocol

INPUT_TOKENS, CACHED_TOKENS, OUTPUT_TOKENS, REASONING_TOKENS = 120, 40, 11, 3  # of each answer
TOTAL_TOKENS = INPUT_TOKENS + OUTPUT_TOKENS


class ModelRequest(NamedTuple):
    """A request: the newest prompt with a script, and the calls that were made since.

    `tools` are the offered tools with their form: "" for a function, "custom" for free text, or
    the name of a namespace.
    """

    prompt: str
    calls_since_prompt: int
    tools: dict[str, str]
    texts: tuple[str, ...] = ()  # of all messages
    wants_json: bool = False
    images: int = 0


class Call(NamedTuple):
    """A tool call of an answer."""

    id: str
    name: str
    arguments: dict[str, Any]
    form: str


class Answer(NamedTuple):
    """An answer of the model."""

    text: str = ""
    thought: str = ""
    calls: tuple[Call, ...] = ()
    hangs: bool = False
    error: int | None = None

    @property
    def half(self) -> str:
        """The text that is sent before the model hangs."""
        return self.text[: len(self.text) // 2]


# A name and a value; None stands for a stream that hangs.
Chunk = tuple[str, Any]


class Dialect(Protocol):
    """One protocol."""

    def read(self, body: dict[str, Any]) -> ModelRequest: ...
    def whole(self, body: dict[str, Any], answer: Answer) -> Any: ...
    def chunks(self, body: dict[str, Any], answer: Answer) -> Iterator[Chunk]: ...


def dialect_of(path: str) -> Dialect | None:
    """Return the protocol of a request's path; None if the model does not speak it."""
    if path.endswith("/chat/completions"):
        return ChatCompletions()
    if path.endswith("/responses"):
        return Responses()
    if path.endswith("/v1/messages"):
        return AnthropicMessages()
    return Gemini() if path.endswith("enerateContent") else None


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def _images(content: Any) -> int:
    parts = content if isinstance(content, list) else []
    return sum("image" in str(part.get("type")) or "inlineData" in part for part in parts)


def _request(
    messages: list[tuple[str, str, int]],
    tools: dict[str, str],
    *,
    wants_json: bool = False,
    images: int = 0,
) -> ModelRequest:
    """Return a request of messages: role, text and number of tool calls."""
    prompts = [number for number, (role, text, _) in enumerate(messages) if role == "user" and text]
    scripts = [number for number in prompts if "[[" in messages[number][1]]
    last = (scripts or prompts or [-1])[-1]
    prompt = messages[last][1] if last >= 0 else ""
    calls = sum(count for _, _, count in messages[last + 1 :])
    texts = tuple(text for _, text, _ in messages)
    return ModelRequest(prompt, calls, tools, texts, wants_json, images)


class ChatCompletions:
    """OpenAI's Chat Completions."""

    def read(self, body: dict[str, Any]) -> ModelRequest:
        """Return what the request asks for."""
        messages = body.get("messages") or []
        functions = (tool.get("function") or tool["custom"] for tool in body.get("tools") or ())
        tools = {function["name"]: "" for function in functions}
        parts = [
            (message["role"], _text(message.get("content")), len(message.get("tool_calls") or ()))
            for message in messages
        ]
        images = sum(_images(message.get("content")) for message in messages)
        return _request(parts, tools, wants_json="response_format" in body, images=images)

    def _calls(self, answer: Answer) -> list[dict[str, Any]]:
        return [
            {
                "index": number,
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for number, call in enumerate(answer.calls)
        ]

    def _base(self, body: dict[str, Any]) -> dict[str, Any]:
        id = f"chatcmpl-{uuid.uuid4().hex[:12]}"
        return {"id": id, "created": int(time.time()), "model": body.get("model")}

    usage: ClassVar = {
        "prompt_tokens": INPUT_TOKENS,
        "completion_tokens": OUTPUT_TOKENS,
        "total_tokens": TOTAL_TOKENS,
        "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS},
        "completion_tokens_details": {"reasoning_tokens": REASONING_TOKENS},
    }

    def whole(self, body: dict[str, Any], answer: Answer) -> Any:
        """Return an answer that is not streamed."""
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
        if answer.calls:
            message["tool_calls"] = self._calls(answer)
        reason = "tool_calls" if answer.calls else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        base = self._base(body)
        return {**base, "object": "chat.completion", "usage": self.usage, "choices": [choice]}

    def chunks(self, body: dict[str, Any], answer: Answer) -> Iterator[Chunk]:
        """Return a streamed answer."""
        base = {**self._base(body), "object": "chat.completion.chunk"}

        def chunk(delta: dict[str, Any], reason: str | None = None) -> Chunk:
            return "", {
                **base,
                "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
            }

        yield chunk({"role": "assistant", "content": ""})
        if answer.thought:
            yield chunk({"reasoning_content": answer.thought})
        if answer.hangs:
            yield chunk({"content": answer.half})
            yield "", None
        if answer.text:
            yield chunk({"content": answer.text})
        if answer.calls:
            yield chunk({"tool_calls": self._calls(answer)})
        yield chunk({}, "tool_calls" if answer.calls else "stop")
        yield "", {**base, "choices": [], "usage": self.usage}
        yield "", "[DONE]"


class Responses:
    """OpenAI's Responses."""

    def read(self, body: dict[str, Any]) -> ModelRequest:
        """Return what the request asks for."""
        messages = []
        images = 0
        for item in body.get("input") or ():
            kind = item.get("type", "message")
            if kind == "message":
                messages.append((item["role"], _text(item.get("content")), 0))
                images += _images(item.get("content"))
            elif kind.endswith("_call"):
                messages.append(("assistant", "", 1))
        tools: dict[str, str] = {}
        for tool in body.get("tools") or ():
            if tool.get("type") == "namespace":
                tools |= {inner["name"]: tool["name"] for inner in tool.get("tools", ())}
            else:
                form = "custom" if tool.get("type") == "custom" else ""
                tools[tool.get("name") or tool["type"]] = form
        return _request(messages, tools, images=images)

    def _items(self, answer: Answer) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        if answer.thought:
            summary = [{"type": "summary_text", "text": answer.thought}]
            items.append({"type": "reasoning", "id": _id("rs"), "summary": summary})
        if answer.text:
            content = [{"type": "output_text", "text": answer.text, "annotations": []}]
            items.append(
                {"type": "message", "id": _id("msg"), "role": "assistant", "content": content}
            )
        for call in answer.calls:
            item = {"id": _id("fc"), "call_id": call.id, "name": call.name, "status": "completed"}
            if call.form == "custom":
                items.append({"type": "custom_tool_call", **item, "input": call.arguments["input"]})
                continue
            if call.form:
                item["namespace"] = call.form
            items.append({"type": "function_call", **item, "arguments": json.dumps(call.arguments)})
        return items

    def _response(self, body: dict[str, Any], items: list[dict[str, Any]]) -> dict[str, Any]:
        usage = {
            "input_tokens": INPUT_TOKENS,
            "input_tokens_details": {"cached_tokens": CACHED_TOKENS},
            "output_tokens": OUTPUT_TOKENS,
            "output_tokens_details": {"reasoning_tokens": REASONING_TOKENS},
            "total_tokens": TOTAL_TOKENS,
        }
        base = {"id": _id("resp"), "object": "response", "model": body.get("model")}
        moment = int(time.time())
        return {
            **base,
            "created_at": moment,
            "status": "completed",
            "output": items,
            "usage": usage,
        }

    def whole(self, body: dict[str, Any], answer: Answer) -> Any:
        """Return an answer that is not streamed."""
        return self._response(body, self._items(answer))

    def chunks(self, body: dict[str, Any], answer: Answer) -> Iterator[Chunk]:
        """Return a streamed answer."""
        items = self._items(answer)
        response = self._response(body, items)
        started = {**response, "status": "in_progress", "output": [], "usage": None}
        yield _named("response.created", response=started)
        for number, item in enumerate(items):
            of_item = {"item_id": item["id"], "output_index": number}
            yield _named("response.output_item.added", output_index=number, item=item)
            if item["type"] == "message":
                text = answer.half if answer.hangs else answer.text
                yield _named("response.output_text.delta", **of_item, content_index=0, delta=text)
                if answer.hangs:
                    yield "", None
            yield _named("response.output_item.done", output_index=number, item=item)
        yield _named("response.completed", response=response)


def _id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex[:12]}"


def _named(name: str, **fields: Any) -> Chunk:
    return name, {"type": name, **fields}


class Gemini:
    """Google's generateContent."""

    def read(self, body: dict[str, Any]) -> ModelRequest:
        """Return what the request asks for."""
        messages = []
        for content in body.get("contents") or ():
            parts = content.get("parts") or []
            calls = sum("functionCall" in part for part in parts)
            role = "assistant" if content.get("role") == "model" else "user"
            messages.append((role, _text(parts), calls))
        declared = (tool.get("functionDeclarations") or () for tool in body.get("tools") or ())
        tools = {function["name"]: "" for functions in declared for function in functions}
        config = body.get("generationConfig") or {}
        return _request(messages, tools, wants_json="json" in str(config.get("responseMimeType")))

    def whole(self, body: dict[str, Any], answer: Answer) -> Any:
        """Return an answer that is not streamed."""
        parts: list[dict[str, Any]] = []
        if answer.thought:
            parts.append({"text": answer.thought, "thought": True})
        if answer.text:
            parts.append({"text": answer.text})
        parts += [{"functionCall": {"name": c.name, "args": c.arguments}} for c in answer.calls]
        content = {"role": "model", "parts": parts}
        return {
            "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
            "modelVersion": "stub-model",
            "responseId": uuid.uuid4().hex[:12],
            "usageMetadata": {
                "promptTokenCount": INPUT_TOKENS,
                "cachedContentTokenCount": CACHED_TOKENS,
                "candidatesTokenCount": OUTPUT_TOKENS - REASONING_TOKENS,
                "thoughtsTokenCount": REASONING_TOKENS,
                "totalTokenCount": TOTAL_TOKENS,
            },
        }

    def chunks(self, body: dict[str, Any], answer: Answer) -> Iterator[Chunk]:
        """Return a streamed answer."""
        yield "", self.whole(body, answer)
        if answer.hangs:
            yield "", None


class AnthropicMessages:
    """Anthropic's Messages."""

    def read(self, body: dict[str, Any]) -> ModelRequest:
        """Return what the request asks for."""
        messages = []
        images = 0
        for message in body.get("messages") or ():
            content = message.get("content")
            parts = content if isinstance(content, list) else []
            calls = sum(part["type"] == "tool_use" for part in parts)
            messages.append((message["role"], _text(content), calls))
            images += _images(content)
        tools = {tool["name"]: "" for tool in body.get("tools") or ()}
        return _request(messages, tools, wants_json="output_config" in body, images=images)

    def _blocks(self, answer: Answer) -> list[dict[str, Any]]:
        text = [{"type": "text", "text": answer.text}] if answer.text else []
        calls = [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
            for call in answer.calls
        ]
        return [*text, *calls]

    usage: ClassVar = {
        "input_tokens": INPUT_TOKENS - CACHED_TOKENS,
        "cache_read_input_tokens": CACHED_TOKENS,
        "cache_creation_input_tokens": 0,
        "output_tokens": OUTPUT_TOKENS,
    }

    def whole(self, body: dict[str, Any], answer: Answer) -> Any:
        """Return an answer that is not streamed."""
        return {
            "id": _id("msg"),
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": self._blocks(answer),
            "stop_reason": "tool_use" if answer.calls else "end_turn",
            "stop_sequence": None,
            "usage": self.usage,
        }

    def chunks(self, body: dict[str, Any], answer: Answer) -> Iterator[Chunk]:
        """Return a streamed answer."""
        message = self.whole(body, answer)
        yield _named("message_start", message={**message, "content": [], "stop_reason": None})
        for number, block in enumerate(message["content"]):
            if block["type"] == "text":
                empty = {**block, "text": ""}
                text = answer.half if answer.hangs else block["text"]
                delta = {"type": "text_delta", "text": text}
            else:
                empty = {**block, "input": {}}
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            yield _named("content_block_start", index=number, content_block=empty)
            yield _named("content_block_delta", index=number, delta=delta)
            if answer.hangs:
                yield "", None
            yield _named("content_block_stop", index=number)
        ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield _named("message_delta", delta=ended, usage=self.usage)
        yield _named("message_stop")
