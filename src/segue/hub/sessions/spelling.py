"""Correct a misspelt word of a search by the words that occur in sessions."""

from __future__ import annotations

from collections.abc import Iterator

MIN_CORRECTED_CHARS = 4  # of a word; too many other words are similar to a shorter one
MAX_CORRECTED_CHARS = 32
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def similar_words(word: str) -> list[str]:
    """Return the words that one typing error turns into `word`, the likeliest errors first.

    An error swaps two letters, or adds, drops or replaces one. Short and very long words have none.
    """
    if not MIN_CORRECTED_CHARS <= len(word) <= MAX_CORRECTED_CHARS:
        return []
    return [similar for similar in dict.fromkeys(_edits(word)) if similar != word]


def _edits(word: str) -> Iterator[str]:
    letters = dict.fromkeys(_LETTERS + word)
    places = range(len(word))
    for i in places[:-1]:
        yield word[:i] + word[i + 1] + word[i] + word[i + 2 :]
    for i in places:
        yield word[:i] + word[i + 1 :]
    for i in range(len(word) + 1):
        for letter in letters:
            yield word[:i] + letter + word[i:]
    for i in places:
        for letter in letters:
            yield word[:i] + letter + word[i + 1 :]
