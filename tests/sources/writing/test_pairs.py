"""A session that is converted from one tool to another and back loses only what a report names."""

import re
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.model.content import Text
from segue.model.event import AgentMessage, AnyBody, Event, UserMessage
from segue.sources.claude.tool_names import NAMES as CLAUDE_NAMES
from segue.sources.writing.tool_names import ToolNames

from .tool_sessions import (
    as_events,
    call,
    neutral_items,
    rich_session,
    use_homes,
    writable_tools,
    write_and_read,
    writer_of,
)

TOOLS = writable_tools()
NAMES = {tool: writer_of(tool).names for tool in TOOLS}
THOUGHT = re.compile(r"<thinking>\n.*?\n</thinking>\s*", re.DOTALL)
# The default tier converts from each tool to the next one, the full tier between all of them.
SAMPLE = set(zip(TOOLS, [*TOOLS[1:], *TOOLS[:1]], strict=True))
PAIRS = [
    pytest.param(*pair, marks=() if pair in SAMPLE else pytest.mark.full)
    for pair in product(TOOLS, repeat=2)
]


def check_pair(first: str, second: str, bodies: list[AnyBody], cwd: str) -> None:
    """Convert a session for a tool, then to another one and back, and compare each time."""
    original, _ = check_write(first, as_events(bodies), CLAUDE_NAMES, cwd)
    there, losses = check_write(second, original, NAMES[first], cwd)
    # Calls of tools that the second tool lacks have names of the first one.
    back, losses_back = check_write(first, there, NAMES[second], cwd, NAMES[first])
    expected, found = (neutral_items(read, [NAMES[first]], cwd) for read in (original, back))
    check_losses(expected, found, losses + losses_back)


def check_write(
    tool: str, events: list[Event], names: ToolNames, cwd: str, *other_names: ToolNames
) -> tuple[list[Event], Counter[str]]:
    """Write a session of an agent for a tool; check and return what is read, and the losses."""
    read, report = write_and_read(tool, events, names, cwd)
    losses = Counter({loss.what: loss.count for loss in report.losses})
    expected = neutral_items(events, [names, *other_names], cwd)
    check_losses(expected, neutral_items(read, [NAMES[tool]], cwd), losses)
    return read, losses


def check_losses(expected: list[Any], found: list[Any], losses: Counter[str]) -> None:
    """Compare two conversations, of which the second may lack only what the losses name."""
    if "messages before the compaction" in losses:
        texts = [item[1] for item in found]
        assert any("The user asked; it was fixed." in str(text) for text in texts)
        start = next(n for n, item in enumerate(expected) if item[0] == "summary")
        expected, found = expected[start + 1 :], found[-len(expected[start + 1 :]) :]
    if "marks of failed calls" in losses:
        expected, found = _without_status(expected), _without_status(found)
    if losses["thoughts"] or losses["order of thoughts"]:
        expected, found = _without_thoughts(expected), _without_thoughts(found)
    if "adjacent messages of the agent" in losses:
        expected, found = _joined(expected), _joined(found)
    if "interruptions" in losses:
        expected = [item for item in expected if item != ("interrupted",)]
    if "images" in losses:
        found = _with_images(expected, found)
    if renamed := losses["calls of tools that the target lacks"]:
        found = _with_names(expected, found, renamed)
    assert found == expected


def _with_names(expected: list[Any], found: list[Any], renamed: int) -> list[Any]:
    """Return found items, of which so many calls have the names and inputs of expected ones."""
    items = []
    for old, new in zip(expected, found, strict=True):
        if renamed and old[0] == new[0] == "call" and old[2:4] != new[2:4]:
            renamed -= 1
            new = (*new[:2], *old[2:4], *new[4:])
        items.append(new)
    return items


def _without_status(items: list[Any]) -> list[Any]:
    return [(*item[:4], *item[5:]) if item[0] == "call" else item for item in items]


def _without_thoughts(items: list[Any]) -> list[Any]:
    """Return items without thoughts, also those that are texts."""
    others = []
    for item in items:
        if item[0] == "agent":
            item = ("agent", THOUGHT.sub("", item[1]), item[2])
        if item[0] != "thought" and item[:2] != ("agent", ""):
            others.append(item)
    return others


def _joined(items: list[Any]) -> list[Any]:
    joined: list[Any] = []
    for item in items:
        if joined and joined[-1][0] == item[0] == "agent":
            item = ("agent", f"{joined.pop()[1]}\n\n{item[1]}", [])
        joined.append(item)
    return joined


def _with_images(expected: list[Any], found: list[Any]) -> list[Any]:
    """Return found items with the images that they only describe."""
    items = []
    for old, new in zip(expected, found, strict=True):
        has_lost_images = old[0] in ("call", "user") and old[-1] and not new[-1]
        if has_lost_images and new[-2].startswith(old[-2]):
            new = (*new[:-2], old[-2], old[-1])
        items.append(new)
    return items


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_conversion_and_back_loses_only_what_the_report_names(
    first: str, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_homes(monkeypatch, tmp_path)
    check_pair(first, second, rich_session(str(tmp_path)), str(tmp_path))


text = st.text(
    st.characters(codec="utf-8", exclude_characters="\r\0"), min_size=1, max_size=30
).filter(lambda value: value.strip() == value and not value.startswith(("<", "/", "[", "!", "#")))


@st.composite
def sessions(draw: st.DrawFn) -> list[AnyBody]:
    """Return a session: turns of a prompt, calls with results, and an answer."""
    bodies: list[AnyBody] = []
    for turn in range(draw(st.integers(1, 3))):
        bodies.append(UserMessage(content=(Text(text=draw(text)),)))
        for number in range(draw(st.integers(0, 3))):
            name, input = draw(
                st.sampled_from(
                    [
                        ("Bash", {"command": draw(text)}),
                        ("Read", {"file_path": "/x", "offset": 3}),
                        ("Write", {"file_path": "/x", "content": draw(text) + "\n"}),
                        ("Grep", {"pattern": draw(text), "-n": True}),
                        ("Other", {"value": [1, None, draw(text)]}),
                    ]
                )
            )
            bodies += call(f"call_{turn}_{number}", name, input, draw(text))
        bodies.append(AgentMessage(content=(Text(text=draw(text)),)))
    return bodies


@pytest.mark.parametrize(
    ("first", "second", "examples"),
    [
        pytest.param(*TOOLS[:2], 5),
        *(pytest.param(*pair, 50, marks=pytest.mark.full) for pair in product(TOOLS, repeat=2)),
    ],
)
def test_any_session_survives_a_conversion_and_back(
    first: str, second: str, examples: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @settings(max_examples=examples)
    @given(sessions())
    def check(bodies: list[AnyBody]) -> None:
        directory = tmp_path_factory.mktemp("homes")
        with pytest.MonkeyPatch.context() as monkeypatch:
            use_homes(monkeypatch, directory)
            check_pair(first, second, bodies, str(directory))

    check()
