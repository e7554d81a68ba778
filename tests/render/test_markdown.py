"""Markdown and code are rendered in the process only if that is cheap, and never block the loop."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from segue.render import threads
from segue.render.text import markdown
from segue.untrusted import ParsersBusy, ParsingFailed
from tests.server import hostile_texts


class RecordedParsers:
    """Stands in for the child processes: records each call, and fails as often as asked."""

    def __init__(self, *failures: Exception) -> None:
        self.names: list[str] = []
        self.threads: set[threading.Thread] = set()
        self._failures = list(failures)

    def call(self, function: Callable[..., str], *arguments: Any) -> str:
        self.names.append(function.__name__)
        self.threads.add(threading.current_thread())
        if self._failures:
            raise self._failures.pop(0)
        return function(*arguments)


@pytest.fixture
def parsers(monkeypatch: pytest.MonkeyPatch) -> RecordedParsers:
    return replace_parsers(monkeypatch)


def replace_parsers(monkeypatch: pytest.MonkeyPatch, *failures: Exception) -> RecordedParsers:
    parsers = RecordedParsers(*failures)
    monkeypatch.setattr(markdown, "PARSERS", parsers)
    cache = markdown._Cache()
    monkeypatch.setattr(markdown, "_cache", lambda: cache)
    return parsers


@pytest.mark.parametrize(
    "text",
    [
        "Thanks, that works.",
        "Please *fix* the bug in `parser.py`: it fails for [empty input](https://example.com).",
        "- one\n- two\n\n1. three\n\n> quoted\n",
        "A sentence of plain prose. " * 100,
    ],
)
def test_short_texts_are_rendered_in_the_process(parsers: RecordedParsers, text: str) -> None:
    assert "<" in str(markdown.markdown(text))
    assert parsers.names == []


@pytest.mark.parametrize(
    "text",
    [
        "```python\nx = 1\n```",
        "~~~\nx\n~~~",
        "![" * 100,
        "a_b_" * 300,
        "- a\n" * 300,
        "|a" * 40 + "\n" + "|-" * 40 + "\n" + "|\n" * 40,
        "word " * 2_000,
    ],
)
def test_texts_that_may_be_costly_are_rendered_by_a_child(
    parsers: RecordedParsers, text: str
) -> None:
    markdown.markdown(text)
    assert len(parsers.names) == 1


def test_code_is_highlighted_by_a_child_except_json(parsers: RecordedParsers) -> None:
    assert "k-" in str(markdown.code('{"a": 1}', "json")) and parsers.names == []
    assert "k-" in str(markdown.code("x = 1", "python")) and parsers.names == ["highlight"]
    assert "k-" not in str(markdown.code("x = 1", "no-language"))


def test_a_text_is_parsed_once(parsers: RecordedParsers) -> None:
    for _ in range(3):
        markdown.markdown("```python\nx = 1\n```")
        markdown.code("x = 1", "python")
    assert parsers.names == ["parse_markdown", "highlight"]


def test_a_costly_message_is_shown_without_highlighted_code_and_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsers = replace_parsers(monkeypatch, ParsingFailed("too costly"))
    for _ in range(2):
        html = str(markdown.markdown("*So*\n```python\nx = 1\n```"))
        assert "<em>So</em>" in html and "x = 1" in html and "k-" not in html
    assert parsers.names == ["parse_markdown", "parse_markdown_without_lexers"]


def test_a_message_is_shown_as_it_is_if_it_cannot_be_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replace_parsers(monkeypatch, *[ParsingFailed("too costly")] * 3)
    html = str(markdown.markdown("*So* <b>\n```python\nx = 1\n```"))
    assert html.startswith('<div class="plain">*So* &lt;b&gt;\n```python')
    assert "<code>x = &#x27;&lt;&#x27;</code>" in str(markdown.code("x = '<'", "python"))


def test_a_text_is_parsed_later_if_all_parsers_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_parsers(monkeypatch, ParsersBusy("busy"))
    assert "plain" in str(markdown.markdown("```python\nx = 1\n```"))
    assert "k-" in str(markdown.markdown("```python\nx = 1\n```"))


def test_the_cache_has_a_limited_size(
    parsers: RecordedParsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markdown, "MAX_CACHED_CHARACTERS", 1_000)
    for number in (1, 2, 3, 1):
        markdown.code(f"x = {number}" + " " * 190 + "y", "python")
    assert len(parsers.names) == 4


async def test_the_event_loop_renders_cheap_texts_and_a_thread_the_others(
    parsers: RecordedParsers,
) -> None:
    loop_thread = threading.current_thread()
    rendered_by: list[threading.Thread] = []

    def render(text: str) -> str:
        html = str(markdown.markdown(text))
        rendered_by.append(threading.current_thread())
        return html

    assert "<em>" in await threads.render(render, "*So*")
    assert "k-" in await threads.render(render, "```python\nx = 1\n```")
    assert rendered_by[0] is loop_thread and rendered_by[1] is not loop_thread
    assert loop_thread not in parsers.threads
    # What is in the cache is cheap, whatever it is.
    await threads.render(render, "```python\nx = 1\n```")
    assert rendered_by[2] is loop_thread


async def test_many_cheap_texts_are_rendered_in_a_thread(parsers: RecordedParsers) -> None:
    rendered_by: set[threading.Thread] = set()

    def render() -> None:
        for number in range(300):
            markdown.markdown(f"Text *{number}*")
        rendered_by.add(threading.current_thread())

    await threads.render(render)
    assert threading.current_thread() not in rendered_by


async def test_a_page_that_takes_too_long_shows_the_rest_as_plain_text(
    parsers: RecordedParsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "RENDER_SECONDS", 0.0)
    html = str(await threads.render(markdown.markdown, hostile_texts.TABLES[:5_000]))
    assert html.startswith('<div class="plain">') and parsers.names == []
