"""Measure, cut and wrap text by the columns it takes in a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Characters that take one column each: ASCII, Latin, Greek, Cyrillic and the symbols that segue
# draws. wcwidth, which knows all others, takes longer to import than a list takes to read.
_ONE_COLUMN_EACH = re.compile("[\x20-\x7e\xa1-\xac\xae-\u02ff\u0370-\u0482…–—‘’“”•·◆◇▏│↳█░]*")


def width(text: str) -> int:
    """Return the number of columns that `text` takes in a terminal."""
    if _is_one_column_each(text):
        return len(text)
    return sum(columns for _, columns in _measure_clusters(text))


def fit(text: str, columns: int) -> str:
    """Return `text` in exactly `columns` columns: cut with an ellipsis or padded with spaces."""
    text = cut(text, columns)
    return text + " " * (columns - width(text))


def cut(text: str, columns: int) -> str:
    """Return `text`, or its start and an ellipsis if it is wider than `columns`."""
    if width(text) <= columns:
        return text
    end = used = 0
    for cluster, cluster_columns in _measure_clusters(text):
        if used + cluster_columns > columns - 1:
            break
        used += cluster_columns
        end += len(cluster)
    return text[:end] + "…"


def fit_end(text: str, columns: int) -> str:
    """Return `text`, or an ellipsis and its end if it is wider than `columns`.

    The end of a long path is the part that differs from other paths.
    """
    if width(text) <= columns:
        return text
    start, used = len(text), 0
    for cluster, cluster_columns in reversed(list(_measure_clusters(text))):
        if used + cluster_columns > columns - 1:
            break
        used += cluster_columns
        start -= len(cluster)
    return "…" + text[start:]


def wrap(text: str, columns: int) -> Iterator[str]:
    """Yield the lines of `text`, none wider than `columns`, broken at spaces where possible.

    Indentation is kept, up to a quarter of the columns.
    """
    for line in text.expandtabs(4).split("\n"):
        content = line.lstrip(" ")
        margin = " " * min(len(line) - len(content), columns // 4)
        for part in _wrap_line(content, columns - len(margin)):
            yield margin + part


def _wrap_line(line: str, columns: int) -> Iterator[str]:
    current = ""
    for word in line.split(" "):
        longer = f"{current} {word}" if current else word
        if width(longer) <= columns:
            current = longer
            continue
        if current:
            yield current
        *full_lines, current = _break_word(word, columns)
        yield from full_lines
    yield current


def _break_word(word: str, columns: int) -> list[str]:
    """Return the pieces of a word, each as wide as fits and at least one character long."""
    if width(word) <= columns:
        return [word]
    pieces, start, end, used = [], 0, 0, 0
    for cluster, cluster_columns in _measure_parts(word, columns):
        if used + cluster_columns > columns and end > start:
            pieces.append(word[start:end])
            start, used = end, 0
        used += cluster_columns
        end += len(cluster)
    return [*pieces, word[start:]]


def _measure_parts(word: str, columns: int) -> Iterator[tuple[str, int]]:
    """Yield clusters and their widths; a cluster wider than a line is split into characters."""
    for cluster, cluster_columns in _measure_clusters(word):
        if cluster_columns > columns:
            yield from ((char, width(char)) for char in cluster)
        else:
            yield cluster, cluster_columns


def _measure_clusters(text: str) -> Iterator[tuple[str, int]]:
    """Yield the grapheme clusters of `text` (what a reader sees as one character) with widths."""
    if _is_one_column_each(text):
        yield from ((char, 1) for char in text)
        return
    from wcwidth import iter_graphemes, wcswidth

    for cluster in iter_graphemes(text):
        columns = len(cluster) if cluster.isascii() else wcswidth(cluster)
        # wcswidth returns -1 for control characters, which terminals show as one symbol each.
        yield cluster, columns if columns >= 0 else len(cluster)


def _is_one_column_each(text: str) -> bool:
    return text.isascii() or _ONE_COLUMN_EACH.fullmatch(text) is not None
