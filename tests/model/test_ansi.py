"""Remove terminal control codes from text."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.model import ansi
from segue.model.ansi import strip_codes
from segue.model.content import Text
from segue.model.event import ToolResult
from segue.model.search_text import MAX_TOOL_RESULT_CHARS, searchable_text


@pytest.mark.parametrize(
    ("text", "stripped"),
    [
        ("plain [31m", "plain [31m"),
        ("\x1b[31mfailed\x1b[0m", "failed"),
        ("\x1b[1;38:5:196munder\x1b[K\x1b[mline", "underline"),
        ("\x1b[?25l\x1b[>4;2mx\x1b[!p\x1b[4 qy", "xy"),
        ("one\x1b[5Ctwo\x1b[2;1Hthree\x1b[1Afour", "one two three four"),
        ("\x1b]0;a title\x07x\x1b]8;;https://e.org\x1b\\link\x1b]8;;\x1b\\", "xlink"),
        ("\x1bPq#0\x1b\\a\x1b_x\x1b\\b\x1b^y\x1b\\c", "abc"),
        ("\x1b(Ba\x1b#8b\x1b7c\x1b=d\x1bMe\x1bcf", "abcdef"),
        ("\x1b]0;no end\nthe rest", "0;no end\nthe rest"),
        ("cut \x1b[38;5", "cut "),
        ("cut \x1b", "cut "),
        ("\x1b\x1b[31mtwice\x1b\x1b", "twice"),
        ("\x1b[31é \x1b two", "31é  two"),
    ],
)
def test_strip_codes_removes_codes_and_keeps_words(text: str, stripped: str) -> None:
    assert strip_codes(text) == stripped


@given(st.text(st.sampled_from("\x1b[]0;m\x07\\PH (Bé\n")))
def test_strip_codes_leaves_no_code(text: str) -> None:
    stripped = strip_codes(text)
    assert "\x1b" not in stripped
    assert strip_codes(stripped) == stripped


def test_codes_do_not_count_against_the_search_limit() -> None:
    output = ToolResult(
        call_id="c", content=(Text(text="\x1b[31mab\x1b[0m" * MAX_TOOL_RESULT_CHARS),)
    )
    assert searchable_text(output) == "ab" * (MAX_TOOL_RESULT_CHARS // 2)


@given(st.text(st.sampled_from("\x1b[]0;m\x07\\PH (Bé\n")), st.integers(0, 20))
def test_limit_returns_a_prefix_of_the_stripped_text(text: str, max_chars: int) -> None:
    assert strip_codes(text, max_chars) == strip_codes(text)[:max_chars]


def test_long_output_is_parsed_only_up_to_the_search_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes = ansi._code()
    parsed_codes = []

    class CountingPattern:
        def finditer(self, text: str) -> Iterator[re.Match[str]]:
            for code in codes.finditer(text):
                parsed_codes.append(code)
                yield code

    monkeypatch.setattr(ansi, "_code", CountingPattern)
    output = "\x1b[31mab\x1b[0m" * MAX_TOOL_RESULT_CHARS
    assert searchable_text(ToolResult(call_id="c", content=(Text(text=output),)))
    assert len(parsed_codes) <= MAX_TOOL_RESULT_CHARS + 2
