"""A session that is converted from one tool to another and back loses only what a report names."""

import re
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.model.content import Image, Text, as_content
from segue.model.event import (
    AgentMessage,
    AgentThought,
    AnyBody,
    Compacted,
    Event,
    Interrupted,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.sources.claude.tool_names import NAMES as CLAUDE_NAMES
from segue.sources.writing.tool_names import ToolNames

from .tool_sessions import (
    PIXEL,
    SUMMARY,
    as_events,
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
    expected, actual = (neutral_items(read, [NAMES[first]], cwd) for read in (original, back))
    check_losses(expected, actual, losses + losses_back)


def check_write(
    tool: str, events: list[Event], names: ToolNames, cwd: str, *other_names: ToolNames
) -> tuple[list[Event], Counter[str]]:
    """Write a session of an agent for a tool; check and return what is read, and the losses."""
    read, report = write_and_read(tool, events, names, cwd)
    losses = Counter({loss.what: loss.count for loss in report.losses})
    expected = neutral_items(events, [names, *other_names], cwd)
    check_losses(expected, neutral_items(read, [NAMES[tool]], cwd), losses)
    return read, losses


def check_losses(expected: list[Any], actual: list[Any], losses: Counter[str]) -> None:
    """Compare two conversations, of which the second may lack only what the losses name."""
    if "messages before the compaction" in losses:
        texts = [item[1] for item in actual]
        assert any(SUMMARY in str(text) for text in texts)
        start = next(n for n, item in enumerate(expected) if item[0] == "summary")
        expected, actual = expected[start + 1 :], actual[-len(expected[start + 1 :]) :]
    if "marks of failed calls" in losses:
        expected, actual = _without_status(expected), _without_status(actual)
    if losses["thoughts"] or losses["order of thoughts"]:
        expected, actual = _without_thoughts(expected), _without_thoughts(actual)
    if "adjacent messages of the agent" in losses:
        expected, actual = _joined(expected), _joined(actual)
    if "interruptions" in losses:
        expected = [item for item in expected if item != ("interrupted",)]
    if "images" in losses:
        actual = _with_images(expected, actual)
    if renamed := losses["calls of tools that the target lacks"]:
        actual = _with_names(expected, actual, renamed)
    assert actual == expected


def _with_names(expected: list[Any], actual: list[Any], renamed: int) -> list[Any]:
    """Return found items, of which so many calls have the names and inputs of expected ones."""
    items = []
    for old, new in zip(expected, actual, strict=True):
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


def _with_images(expected: list[Any], actual: list[Any]) -> list[Any]:
    """Return found items with the images that they only describe."""
    items = []
    for old, new in zip(expected, actual, strict=True):
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


# Tools give prompts that begin with these characters a meaning of their own.
MARKS = ("<", "/", "[", "!", "#", "?")
text = st.text(
    st.characters(codec="utf-8", exclude_characters="\r\0"), min_size=1, max_size=30
).filter(lambda value: value.strip() == value and not value.startswith(MARKS))
odd_text = st.sampled_from(
    [
        "one\u2028two\u2029three",
        "\u202eright to left",
        "e\u0301 \U0001f468\u200d\U0001f469\u200d\U0001f467",
        'a "quoted" \\n and {"type": "text"}',
        "```\nfenced\n```",
        "line\n\n\nother line\ttab",
        "\x1b[31mred\x1b[0m \x07",
        "x" * 5000,
    ]
)
any_text = text | odd_text
image = Image(mime="image/png", data=PIXEL)


def images() -> st.SearchStrategy[list[Image]]:
    return st.lists(st.just(image), max_size=1)


contents = st.builds(lambda value, images: (Text(text=value), *images), any_text, images())


@st.composite
def calls(draw: st.DrawFn) -> tuple[ToolCall, ToolResult]:
    """Return a call of one of Claude Code's tools, which may fail, and its result."""
    path = "/work/a.py"
    name, input = draw(
        st.sampled_from(
            [
                ("Bash", {"command": draw(text)}),
                ("Read", {"file_path": path, "offset": 3}),
                ("Write", {"file_path": path, "content": f"{draw(text)}\n"}),
                ("Edit", {"file_path": path, "old_string": "a\n", "new_string": "b\n"}),
                ("Grep", {"pattern": draw(text), "-n": True}),
                ("Glob", {"pattern": "*.py"}),
                ("WebFetch", {"url": "https://example.org/", "prompt": draw(text)}),
                ("TodoWrite", {"todos": [{"content": "x", "status": "pending"}]}),
                ("Task", {"prompt": draw(text), "description": "d", "subagent_type": "x"}),
                ("mcp__tracker__list", {"mine": True}),
                ("Other", {"value": [1, None, draw(text)]}),
            ]
        )
    )
    outcome: dict[str, Any] = {}
    output = draw(any_text)
    if draw(st.booleans()):
        outcome["status"] = "failed"
        if name == "Bash":
            outcome["exit_code"] = 2
            output = f"Exit code 2\n{output}"
    content = (Text(text=output), *draw(images()))
    call_id = f"toolu_{draw(st.uuids()).hex}"
    return (
        ToolCall(call_id=call_id, name=name, input=input),
        ToolResult(call_id=call_id, content=content, **outcome),
    )


@st.composite
def steps(draw: st.DrawFn) -> list[AnyBody]:
    """Return a thought, a message, or calls that run at the same time."""
    kind = draw(st.sampled_from(["thought", "message", "calls", "calls"]))
    if kind == "thought":
        return [AgentThought(content=as_content(draw(text)))]
    if kind == "message":
        return [AgentMessage(content=as_content(draw(any_text)))]
    pairs = draw(st.lists(calls(), min_size=1, max_size=3))
    results = draw(st.permutations([result for _, result in pairs]))
    return [*(call for call, _ in pairs), *results]


@st.composite
def turns(draw: st.DrawFn) -> list[AnyBody]:
    """Return a prompt, what the agent did, and an answer or an interruption."""
    bodies: list[AnyBody] = [UserMessage(content=draw(contents))]
    for step in draw(st.lists(steps(), max_size=4)):
        bodies += step
    match draw(st.sampled_from(["answer", "answer", "interrupted", "unfinished"])):
        case "answer":
            bodies.append(AgentMessage(content=as_content(draw(any_text))))
        case "interrupted":
            bodies.append(Interrupted())
        case "unfinished":
            call_id = f"toolu_{draw(st.uuids()).hex}"
            bodies.append(ToolCall(call_id=call_id, name="Bash", input={"command": draw(text)}))
            bodies.append(Interrupted())
    return bodies


@st.composite
def sessions(draw: st.DrawFn) -> list[AnyBody]:
    """Return a session, which may have been compacted between two turns."""
    bodies = [body for turn in draw(st.lists(turns(), min_size=1, max_size=3)) for body in turn]
    if draw(st.booleans()):
        bodies.append(Compacted(summary=as_content(SUMMARY)))
        bodies += draw(turns())
    return bodies


def check_any_session(
    first: str, second: str, examples: int, directories: pytest.TempPathFactory
) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(sessions())
    def check(bodies: list[AnyBody]) -> None:
        directory = directories.mktemp("homes")
        with pytest.MonkeyPatch.context() as monkeypatch:
            use_homes(monkeypatch, directory)
            check_pair(first, second, bodies, str(directory))

    check()


# The default tier has a few examples between tools that need no program.
@pytest.mark.parametrize(("first", "second"), [("claude", "codex"), ("kimi", "gemini")])
def test_any_session_survives_a_conversion_and_back(
    first: str, second: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    check_any_session(first, second, 5, tmp_path_factory)


@pytest.mark.full
@pytest.mark.parametrize(("first", "second"), list(product(TOOLS, repeat=2)))
def test_any_session_survives_a_conversion_between_all_tools(
    first: str, second: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    runs_program = {first, second} & {"opencode", "goose"}
    check_any_session(first, second, 15 if runs_program else 50, tmp_path_factory)
