"""What the messages of a session are: prompts, replies, context that Gemini adds, summaries."""

from __future__ import annotations

from typing import Any

from segue.sources.kit import bodies, model_parts

Message = dict[str, Any]

COMMANDS = ("/", "?")
_CONTEXT = ("<session_context>", "<hook_context>")
_SNAPSHOT = "<state_snapshot>"
REPLY_TO_SUMMARY = "Got it. Thanks for the additional context!"


def is_message(value: Any) -> bool:
    """Return whether a record is a message."""
    return isinstance(value, dict) and isinstance(value.get("id"), str)


def is_ignored(text: str) -> bool:
    """Return whether Gemini takes a prompt with this text for a command or for its own message."""
    return text.lstrip().startswith((*COMMANDS, *_CONTEXT, _SNAPSHOT))


def text_of(message: Message) -> str:
    """Return the text of a message, without thoughts."""
    return model_parts.text_of(model_parts.parts_of(message.get("content")))


def is_context(message: Message) -> bool:
    """Return whether Gemini added a user message as context for the model."""
    return message.get("type") == "user" and text_of(message).lstrip().startswith(_CONTEXT)


def is_summary(message: Message, next_message: Message | None = None) -> bool:
    """Return whether a user message is the summary of a compressed conversation."""
    if message.get("type") != "user":
        return False
    if text_of(message).lstrip().startswith(_SNAPSHOT):
        return True
    return next_message is not None and is_reply_to_summary(next_message)


def is_reply_to_summary(message: Message) -> bool:
    """Return whether Gemini added a reply after a summary; the model did not write it."""
    is_reply = message.get("type") == "gemini" and not message.get("tokens")
    return is_reply and text_of(message).strip() == REPLY_TO_SUMMARY


def messages_of(record: dict[str, Any]) -> list[Message] | None:
    """Return the messages by which a record replaces all earlier ones; None if it has none."""
    changes = record.get("$set", record)
    messages = changes.get("messages") if isinstance(changes, dict) else None
    if not isinstance(messages, list):
        return None
    return [message for message in messages if is_message(message)]


def has_conversation(record: dict[str, Any]) -> bool:
    """Return whether a record has a message that is more than context."""
    messages = [record] if is_message(record) else messages_of(record) or []
    return any(not is_context(message) for message in messages)


def thoughts_of(message: Message) -> list[str]:
    """Return the thoughts of a reply."""
    texts: list[str] = []
    thoughts = message.get("thoughts")
    for thought in thoughts if isinstance(thoughts, list) else ():
        if isinstance(thought, dict):
            subject = bodies.text(thought.get("subject")).strip()
            lines = (f"**{subject}**" if subject else "", bodies.text(thought.get("description")))
            texts.append("\n\n".join(filter(None, lines)))
    in_content = model_parts.thoughts_of(model_parts.parts_of(message.get("content")))
    return [text for text in texts if text] or in_content


def tool_calls_of(message: Message) -> list[dict[str, Any]]:
    """Return the tool calls of a reply that Gemini recorded with their results."""
    calls = message.get("toolCalls")
    calls = calls if isinstance(calls, list) else ()
    return [call for call in calls if isinstance(call, dict)]
