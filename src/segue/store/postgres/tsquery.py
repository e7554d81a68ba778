"""Words as PostgreSQL's text search takes them: tsvectors to find, tsqueries to ask.

Both are written out in their text form from tokens that Python made, so that no dictionary of the
server has a say in what is found. Tokens are letters and digits only: nothing needs escaping.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from segue.model.search_text import Term

# What one tsvector can hold is limited: places up to 16383, of each word 255, and a megabyte in
# all. Longer texts are cut into parts that overlap, for phrases that lie across a cut.
PLACES = 16_000
REPEATS = 255
BYTES = 500_000
OVERLAP = 32


def vectors(tokens: Sequence[str]) -> Iterator[str]:
    """The tokens with their places, as one tsvector or as many as it takes."""
    start = 0
    while start < len(tokens):
        places: dict[str, list[int]] = {}
        size = 0
        end = start
        for end in range(start, min(start + PLACES, len(tokens))):
            token = tokens[end]
            found = places.get(token)
            if found is None:
                size += len(token) * 4
                if size > BYTES:
                    break
                places[token] = [end - start + 1]
            elif len(found) < REPEATS:
                found.append(end - start + 1)
            else:
                break
        else:
            end += 1
        yield " ".join(f"'{token}':{','.join(map(str, at))}" for token, at in places.items())
        start = end - OVERLAP if end < len(tokens) else end


def query(term: Term) -> str:
    """A term as a tsquery."""
    words = " <-> ".join(f"'{token}'" for token in term.tokens)
    return f"({words}{':*' if term.prefix else ''})"


def any_of(terms: Sequence[Term]) -> str:
    """Some terms as a tsquery that any one of them satisfies."""
    return " | ".join(map(query, terms))
