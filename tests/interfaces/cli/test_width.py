"""Text in the columns of a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.interfaces.cli.picker.width import width, wrap


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "  one two three four\nplain words here",
            ["  one two", "  three four", "plain words", "here"],
        ),
        ("a\n\nb", ["a", "", "b"]),
        ("        deep inside", ["   deep", "   inside"]),
        ("日本語日本語日本語", ["日本語日本語", "日本語"]),
    ],
)
def test_lines_are_broken_at_spaces_and_stay_indented(text: str, lines: list[str]) -> None:
    assert list(wrap(text, 12)) == lines


def test_a_word_of_any_length_is_broken() -> None:
    assert list(wrap("x" * 300_000, 50)) == ["x" * 50] * 6_000


@given(st.text(), st.integers(2, 40))
def test_no_line_is_wider_than_that_and_no_character_is_lost(text: str, columns: int) -> None:
    lines = list(wrap(text, columns))
    assert all(width(line) <= columns for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())
