"""Text without the codes that drive terminals."""

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
    ("text", "shown"),
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
def test_codes_are_left_out_and_the_words_stay(text: str, shown: str) -> None:
    assert strip_codes(text) == shown


@given(st.text(st.sampled_from("\x1b[]0;m\x07\\PH (Bé\n")))
def test_no_code_is_left(text: str) -> None:
    shown = strip_codes(text)
    assert "\x1b" not in shown
    assert strip_codes(shown) == shown


def test_codes_count_nothing_towards_what_is_searched_of_an_output() -> None:
    output = ToolResult(
        call_id="c", content=(Text(text="\x1b[31mab\x1b[0m" * MAX_TOOL_RESULT_CHARS),)
    )
    assert searchable_text(output) == "ab" * (MAX_TOOL_RESULT_CHARS // 2)


@given(st.text(st.sampled_from("\x1b[]0;m\x07\\PH (Bé\n")), st.integers(0, 20))
def test_the_beginning_is_that_of_the_whole(text: str, most: int) -> None:
    assert strip_codes(text, most) == strip_codes(text)[:most]


def test_of_a_long_output_no_more_is_looked_at_than_is_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes = ansi._code()
    seen = []

    class Counted:
        def finditer(self, text: str) -> Iterator[re.Match[str]]:
            for code in codes.finditer(text):
                seen.append(code)
                yield code

    monkeypatch.setattr(ansi, "_code", Counted)
    long = "\x1b[31mab\x1b[0m" * MAX_TOOL_RESULT_CHARS
    assert searchable_text(ToolResult(call_id="c", content=(Text(text=long),)))
    assert len(seen) <= MAX_TOOL_RESULT_CHARS + 2
