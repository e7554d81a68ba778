"""Write tokens as tsvectors and terms as tsqueries, for PostgreSQL's text search.

Both are written in text form from tokens that Python made, so that the server's dictionaries have
no influence. Tokens are letters and digits only, so nothing needs escaping.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from segue.model.search_text import Term

# A tsvector is limited: positions up to 16383, 255 of each word, and one megabyte in total. Longer
# texts are split into parts that overlap, for phrases across a split.
MAX_POSITIONS = 16_000
MAX_REPEATS = 255
MAX_VECTOR_BYTES = 500_000
OVERLAP_TOKENS = 32


def vectors(tokens: Sequence[str]) -> Iterator[str]:
    """Yield the tokens with their positions as tsvectors, one or as many as needed."""
    start = 0
    while start < len(tokens):
        positions: dict[str, list[int]] = {}
        size = 0
        end = start
        for end in range(start, min(start + MAX_POSITIONS, len(tokens))):
            token = tokens[end]
            known = positions.get(token)
            if known is None:
                size += len(token) * 4
                if size > MAX_VECTOR_BYTES:
                    break
                positions[token] = [end - start + 1]
            elif len(known) < MAX_REPEATS:
                known.append(end - start + 1)
            else:
                break
        else:
            end += 1
        yield " ".join(f"'{token}':{','.join(map(str, at))}" for token, at in positions.items())
        start = end - OVERLAP_TOKENS if end < len(tokens) else end


def query(term: Term) -> str:
    """Return a term as a tsquery."""
    words = " <-> ".join(f"'{token}'" for token in term.tokens)
    return f"({words}{':*' if term.prefix else ''})"


def any_of(terms: Sequence[Term]) -> str:
    """Return a tsquery that matches any of the terms."""
    return " | ".join(map(query, terms))
