"""Text widths in a terminal."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.interfaces.cli.output.width import cut, fit, fit_end, width, wrap


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
def test_wrap_breaks_at_spaces_and_keeps_indentation(text: str, lines: list[str]) -> None:
    assert list(wrap(text, 12)) == lines


def test_wrap_breaks_a_very_long_word() -> None:
    assert list(wrap("x" * 300_000, 50)) == ["x" * 50] * 6_000


@given(st.text(), st.integers(2, 40))
def test_wrapped_lines_fit_and_lose_no_character(text: str, columns: int) -> None:
    lines = list(wrap(text, columns))
    assert all(width(line) <= columns for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        (FAMILY, 2),
        ("\U0001f1e9\U0001f1ea", 2),  # a flag is two characters
        ("e\u0301", 1),
        ("日本", 4),
        ("ﾊﾝ", 2),
        ("◆  5m  plain … text", 19),
        ("\u2764\ufe0f", 2),
        ("привет", 6),
    ],
)
def test_width_counts_what_a_reader_sees(text: str, columns: int) -> None:
    assert width(text) == columns


def test_cutting_never_splits_an_emoji() -> None:
    text = f"a{FAMILY}b{FAMILY}c"
    assert cut(text, 4) == f"a{FAMILY}…"
    assert cut(text, 3) == "a…"
    assert fit(text, 3) == "a… "
    assert fit_end(text, 4) == f"…{FAMILY}c"
    assert fit_end(text, 3) == "…c"
    assert list(wrap(FAMILY * 3, 5)) == [FAMILY * 2, FAMILY]


@given(st.text(), st.integers(1, 40))
def test_fitted_text_has_exactly_that_width(text: str, columns: int) -> None:
    assert width(fit(text, columns)) == columns
    assert width(fit_end(text, columns)) <= columns


def test_common_text_does_not_import_wcwidth() -> None:
    code = """
import sys
from segue.interfaces.cli.output.width import fit, width
width("plain"), width("Grüße …"), fit("◆  5m  Привет", 5)
assert "wcwidth" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
