"""A session that is converted from one tool to another and back loses only what a report names."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.model.content import Text
from segue.model.event import AgentMessage, AnyBody, UserMessage
from segue.sources import registry
from segue.sources.claude.tool_names import NAMES as CLAUDE_NAMES

from .tool_sessions import (
    as_events,
    call,
    items_of,
    rich_session,
    use_homes,
    writable_tools,
    write_and_read,
)

TOOLS = writable_tools()
NAMES = {tool: registry.get(tool).tool_names() for tool in TOOLS}
# The default tier converts from each tool to the next one, the full tier between all of them.
SAMPLE = set(zip(TOOLS, [*TOOLS[1:], *TOOLS[:1]], strict=True))
PAIRS = [
    pytest.param(*pair, marks=() if pair in SAMPLE else pytest.mark.full)
    for pair in product(TOOLS, repeat=2)
]


def check_pair(first: str, second: str, bodies: list[AnyBody], cwd: str) -> None:
    """Convert a session for a tool, then to another one and back, and compare."""
    original, _ = write_and_read(first, as_events(bodies), CLAUDE_NAMES, cwd)
    there, report = write_and_read(second, original, NAMES[first], cwd)
    back, report_back = write_and_read(first, there, NAMES[second], cwd)
    expected, found = items_of(first, original, cwd), items_of(first, back, cwd)
    losses = {loss.what for loss in (*report.losses, *report_back.losses)}
    if "messages before the compaction" in losses:
        texts = [item[1] for item in found]
        assert any("The user asked; it was fixed." in str(text) for text in texts)
        start = next(n for n, item in enumerate(expected) if item[0] == "summary")
        expected, found = expected[start + 1 :], found[-len(expected[start + 1 :]) :]
    if "marks of failed calls" in losses:
        expected, found = _without_status(expected), _without_status(found)
    if "images" in losses:
        expected, found = _without_images(expected), _without_images(found)
    if "interruptions" in losses:
        expected = [item for item in expected if item != ("interrupted",)]
    assert found == expected


def _without_status(items: list[Any]) -> list[Any]:
    return [(*item[:4], *item[5:]) if item[0] == "call" else item for item in items]


def _without_images(items: list[Any]) -> list[Any]:
    return [item[:-1] if item[0] in ("call", "user") else item for item in items]


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
