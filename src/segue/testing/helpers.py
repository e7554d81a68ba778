"""Helpers that the contract suites share."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable

from segue.model.content import Text
from segue.model.event import AgentMessage, Event, UserMessage
from segue.model.session import Session

CoroutineTest = Callable[..., Awaitable[None]]


def wrap_coroutine_tests(cls: type, wrap: Callable[[CoroutineTest], Callable[..., None]]) -> None:
    """Replace the coroutine tests of a class with functions, which pytest runs without a plugin."""
    for name, test in list(vars(cls).items()):
        if name.startswith("test_") and inspect.iscoroutinefunction(test):
            setattr(cls, name, wrap(test))


def ids_of(items: Iterable[Session | Event]) -> list[str]:
    """Return the ids of sessions or events."""
    return [item.id for item in items]


def message_texts(events: Iterable[Event]) -> list[str]:
    """Return the texts of the messages among some events."""
    return [
        block.text
        for event in events
        if isinstance(event.body, UserMessage | AgentMessage)
        for block in event.body.content
        if isinstance(block, Text)
    ]
