"""Query parameters: an allow-list for each address, read in every spelling that clients use."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from segue.model import clock
from segue.model.errors import InvalidInput

_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_INDEXED = re.compile(r"\[[0-9]*\]$", re.ASCII)
# A plus sign that was sent unescaped in `…T00:00:00+02:00` arrives as a space.
_LOST_PLUS = re.compile(r" (?=[0-9]{2}:?[0-9]{2}$)", re.ASCII)
# What the reference calls by the name that its command line has for it.
_SINGULAR = {"status[]": "statuses[]"}
_BOUNDS = ("gt", "gte", "lt", "lte")

CREATED_AT = tuple(f"created_at[{bound}]" for bound in _BOUNDS)


class Window:
    """A span of time, both ends inclusive, from created_at[gt|gte|lt|lte]."""

    def __init__(self, gt: int | None, gte: int | None, lt: int | None, lte: int | None) -> None:
        self.gt, self.gte, self.lt, self.lte = gt, gte, lt, lte

    @property
    def low(self) -> int | None:
        found = [*([self.gte] if self.gte is not None else [])]
        found += [self.gt + 1] if self.gt is not None else []
        return max(found, default=None)

    @property
    def high(self) -> int | None:
        found = [*([self.lte] if self.lte is not None else [])]
        found += [self.lt - 1] if self.lt is not None else []
        return min(found, default=None)


class Params:
    """The parameters of one request. Names that are not in `valid` are refused."""

    def __init__(self, items: Iterable[tuple[str, str]], valid: Collection[str]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in items:
            if name not in valid:
                name = _INDEXED.sub("[]", name)
                name = name if name in valid else name.removesuffix("[]") + "[]"
                name = _SINGULAR.get(name, name) if name not in valid else name
            if name in valid:
                self._values.setdefault(name, []).append(value)
            elif name.removesuffix("[]") != "beta":  # older clients say it everywhere
                told = ", ".join(sorted(valid)) or "none"
                wrong = name.removesuffix("[]")
                raise InvalidInput(f"unknown query parameter {wrong!r}; valid parameters: {told}")

    def text(self, name: str) -> str | None:
        """A value; an empty one is none."""
        return self._values.get(name, [""])[-1] or None

    def values(self, name: str) -> tuple[str, ...]:
        """The values of `name[]`, however they were spelt: repeated, indexed, with commas."""
        values = self._values.get(f"{name}[]", [])
        return tuple(part for value in values for part in value.split(",") if part)

    def number(self, name: str, low: int, high: int) -> int | None:
        given = self.text(name)
        if given is None:
            return None
        if not _NUMBER.fullmatch(given) or not low <= int(given) <= high:
            raise InvalidInput(f"{name}: must be a whole number from {low} to {high}")
        return int(given)

    def limit(self, default: int, most: int) -> int:
        found = self.number("limit", 1, most)
        return default if found is None else found

    def flag(self, name: str) -> bool:
        given = self.text(name)
        if given not in (None, "true", "false"):
            raise InvalidInput(f"{name}: must be true or false")
        return given == "true"

    def choice(self, name: str, *allowed: str) -> str:
        """One of some words, the first of which is the default; it may be none."""
        given = self.text(name)
        if given is not None and given not in allowed:
            raise InvalidInput(f"{name}: must be one of {', '.join(filter(None, allowed))}")
        return given or allowed[0]

    def window(self) -> Window:
        return Window(*(self._time(f"created_at[{bound}]") for bound in _BOUNDS))

    def _time(self, name: str) -> int | None:
        given = self.text(name)
        if given is None:
            return None
        try:
            return clock.from_rfc3339(_LOST_PLUS.sub("+", given))
        except (ValueError, OverflowError):
            raise InvalidInput(f"{name}: must be an RFC 3339 time") from None
