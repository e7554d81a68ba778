"""The report of a conversion: what the target cannot hold, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

# What becomes of a part that the target cannot hold as it is: it is written as text that the
# model reads, in another form, a summary replaces it, or it is not written.
Fate = Literal["text", "adapted", "summary", "left_out"]

# The fates as people read them.
FATES: Mapping[Fate, str] = {
    "text": "as text",
    "adapted": "adapted",
    "summary": "replaced by a summary",
    "left_out": "left out",
}


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a session that the target cannot hold as they are."""

    what: str
    count: int
    becomes: Fate
    why: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversion writes, and what it loses. The original session stays as it is."""

    session: str
    source: str
    target: str
    prompts: int = 0
    answers: int = 0
    tool_calls: int = 0
    images: int = 0
    losses: tuple[Loss, ...] = ()


class Losses:
    """Counts losses of each kind while a session is converted."""

    def __init__(self) -> None:
        self._losses: dict[tuple[str, Fate, str], int] = {}

    def add(self, what: str, becomes: Fate, why: str, count: int = 1) -> None:
        """Count a loss; nothing if the count is 0."""
        if count:
            name = (what, becomes, why)
            self._losses[name] = self._losses.get(name, 0) + count

    def __iter__(self) -> Iterator[Loss]:
        for (what, becomes, why), count in self._losses.items():
            yield Loss(what=what, count=count, becomes=becomes, why=why)
