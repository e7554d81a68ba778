"""What a program sent to the model, in order, whatever the API."""

import json
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple


class Sent(NamedTuple):
    """A text, an image, a call or its result; the text of a call is its name and arguments."""

    kind: Literal["text", "image", "call", "result"]
    text: str
    id: str = ""  # of a call


def sent_messages(body: dict[str, Any]) -> list[Sent]:
    """Return the messages of a request to Google's, Anthropic's or one of OpenAI's APIs."""
    if "contents" in body:
        parts = (part for content in body["contents"] for part in content["parts"])
        return [sent for part in parts for sent in _google(part)]
    if "input" in body:
        return [sent for item in body["input"] for sent in _responses(item)]
    read = _anthropic if "max_tokens" in body and "system" in body else _chat
    return [sent for message in body.get("messages", ()) for sent in read(message)]


def _google(part: dict[str, Any]) -> Iterator[Sent]:
    if call := part.get("functionCall"):
        yield Sent("call", f"{call['name']} {json.dumps(call['args'])}", call["id"])
    elif response := part.get("functionResponse"):
        value = response["response"]
        yield Sent("result", value.get("output", value.get("error")), response["id"])
    elif data := part.get("inlineData"):
        yield Sent("image", data["data"])
    elif not part.get("thought"):
        yield Sent("text", part["text"])


def _responses(item: dict[str, Any]) -> Iterator[Sent]:
    kind = item.get("type", "message")
    if kind == "message":
        yield from _response_parts("text", item["content"], "")
    elif kind.endswith("_call"):
        text = f"{item['name']} {item.get('arguments', item.get('input'))}"
        yield Sent("call", text, item["call_id"])
    elif kind.endswith("_call_output"):
        yield from _response_parts("result", item["output"], item["call_id"])


def _response_parts(kind: Literal["text", "result"], content: Any, id: str) -> Iterator[Sent]:
    parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
    texts = [part["text"] for part in parts if "text" in part]
    if kind == "result":  # one for each call
        texts = ["".join(texts)]
    yield from (Sent(kind, text, id) for text in texts)
    yield from (Sent("image", part["image_url"]) for part in parts if "image_url" in part)


def _chat(message: dict[str, Any]) -> Iterator[Sent]:
    content = message.get("content") or []
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if message["role"] == "tool":
        text = "".join(part.get("text", "") for part in parts)
        yield Sent("result", text, message["tool_call_id"])
        parts = [part for part in parts if part["type"] != "text"]
    for part in parts:
        if part["type"] == "image_url":
            yield Sent("image", part["image_url"]["url"])
        else:
            yield Sent("text", part["text"])
    for call in message.get("tool_calls") or ():
        if custom := call.get("custom"):
            yield Sent("call", f"{custom['name']} {custom['input']}", call["id"])
        else:
            function = call["function"]
            yield Sent("call", f"{function['name']} {function['arguments']}", call["id"])


def _anthropic(message: dict[str, Any]) -> Iterator[Sent]:
    content = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for part in parts:
        match part["type"]:
            case "text":
                yield Sent("text", part["text"])
            case "image":
                yield Sent("image", part["source"]["data"])
            case "tool_use":
                name = {"Agent": "Task"}.get(part["name"], part["name"])  # as it was named before
                yield Sent("call", f"{name} {json.dumps(part['input'])}", part["id"])
            case "tool_result":
                inner = part["content"]
                inner = [{"type": "text", "text": inner}] if isinstance(inner, str) else inner
                text = "".join(block.get("text", "") for block in inner)
                yield Sent("result", text, part["tool_use_id"])
                yield from (
                    Sent("image", block["source"]["data"])
                    for block in inner
                    if block["type"] == "image"
                )
