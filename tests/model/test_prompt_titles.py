"""Make titles from first prompts."""

import pytest

from segue.model.content import Image, as_content
from segue.model.tools.prompt_titles import MAX_TITLE_LENGTH, title_from_prompt


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("Fix the parser", "Fix the parser"),
        ("\n\n  \n## Fix   the\tparser\nand more", "Fix the parser"),
        ("```\nx = 1\n```", "x = 1"),
        ("---\n***\n> quoted", "quoted"),
        ("<context>\nReal words", "Real words"),
        ("1. first thing", "first thing"),
        ("/slow 1\nHello", "Hello"),
        ("/help", "/help"),
        ("bell \x07 and \x1b[31mred", "bell and [31mred"),
        ("½ of it", "½ of it"),
        ("\ud800", None),
        ("   \n ?!", None),
        ("", None),
    ],
)
def test_first_meaningful_line_is_the_title(prompt: str, title: str | None) -> None:
    assert title_from_prompt(as_content(prompt)) == title


def test_long_line_is_cut_at_a_word() -> None:
    title = title_from_prompt(as_content("word " * 40))
    assert title is not None and len(title) <= MAX_TITLE_LENGTH
    assert title.endswith("word…")


def test_long_word_is_cut_at_the_maximum_length() -> None:
    title = title_from_prompt(as_content("x" * 500))
    assert title == "x" * (MAX_TITLE_LENGTH - 1) + "…"


def test_prompt_without_text_has_no_title() -> None:
    assert title_from_prompt((Image(data="aaaa"),)) is None
