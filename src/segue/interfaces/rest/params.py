"""Query parameters: an allow-list for each endpoint, and the notations that clients use."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple, cast

from segue.model import clock
from segue.model.errors import InvalidInput
from segue.model.lifecycle import STATUSES, Status

_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_INDEX = re.compile(r"\[[0-9]*\]$", re.ASCII)
# A plus sign that was sent unescaped in `…T00:00:00+02:00` arrives as a space.
_UNESCAPED_PLUS = re.compile(r" (?=[0-9]{2}:?[0-9]{2}$)", re.ASCII)
# The API reference documents `statuses[]` under the name of its command line option.
_ALIASES = {"status[]": "statuses[]"}
_BOUNDS = ("gt", "gte", "lt", "lte")

CREATED_AT = tuple(f"created_at[{bound}]" for bound in _BOUNDS)


class TimeWindow(NamedTuple):
    """A span of time from created_at[gt|gte|lt|lte]."""

    gt: int | None
    gte: int | None
    lt: int | None
    lte: int | None

    @property
    def low(self) -> int | None:
        """Return the first time in the window, or None if it has no lower bound."""
        bounds = [self.gte, None if self.gt is None else self.gt + 1]
        return max((time for time in bounds if time is not None), default=None)

    @property
    def high(self) -> int | None:
        """Return the last time in the window, or None if it has no upper bound."""
        bounds = [self.lte, None if self.lt is None else self.lt - 1]
        return min((time for time in bounds if time is not None), default=None)


class Params:
    """The query parameters of one request. Raises InvalidInput for names not in `valid`."""

    def __init__(self, items: Iterable[tuple[str, str]], valid: Collection[str]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in items:
            if name not in valid:
                name = _normalize_name(name, valid)
            if name in valid:
                self._values.setdefault(name, []).append(value)
            elif name.removesuffix("[]") != "beta":  # older clients send `beta` to every path
                unknown = name.removesuffix("[]")
                names = ", ".join(sorted(valid)) or "none"
                raise InvalidInput(
                    f"unknown query parameter {unknown!r}; valid parameters: {names}"
                )

    def text(self, name: str) -> str | None:
        """Return a value, or None if it is missing or empty."""
        return self._values.get(name, [""])[-1] or None

    def id(self, name: str) -> str | None:
        """Return an id to filter by, or None if it is missing. Raises InvalidInput if it is empty.

        An empty id is a mistake of the client: without the filter, the list would hold everything.
        """
        if name in self._values and not self._values[name][-1]:
            raise InvalidInput(f"{name}: must not be empty")
        return self.text(name)

    def values(self, name: str) -> tuple[str, ...]:
        """Return the values of `name[]`, which may be repeated, indexed or separated by commas."""
        values = self._values.get(f"{name}[]", [])
        return tuple(part for value in values for part in value.split(",") if part)

    def statuses(self) -> tuple[Status, ...]:
        """Return the values of `statuses[]`. Raises InvalidInput for an unknown status."""
        names = self.values("statuses")
        for name in names:
            if name not in STATUSES:
                raise InvalidInput(f"statuses: {name!r} is not one of {', '.join(STATUSES)}")
        return cast(tuple[Status, ...], names)

    def number(self, name: str, low: int, high: int) -> int | None:
        """Return a whole number, or None. Raises InvalidInput unless it is from low to high."""
        text = self.text(name)
        if text is None:
            return None
        if not _INTEGER.fullmatch(text) or not low <= int(text) <= high:
            raise InvalidInput(f"{name}: must be a whole number from {low} to {high}")
        return int(text)

    def limit(self, default: int, maximum: int) -> int:
        """Return the page size."""
        limit = self.number("limit", 1, maximum)
        return default if limit is None else limit

    def flag(self, name: str) -> bool:
        """Return True for "true", False for "false" or a missing value."""
        text = self.text(name)
        if text not in (None, "true", "false"):
            raise InvalidInput(f"{name}: must be true or false")
        return text == "true"

    def choice(self, name: str, *allowed: str) -> str:
        """Return one of the allowed values; the first, which may be "", is the default."""
        text = self.text(name)
        if text is not None and text not in allowed:
            raise InvalidInput(f"{name}: must be one of {', '.join(filter(None, allowed))}")
        return text or allowed[0]

    def window(self) -> TimeWindow:
        """Return the span of time that created_at[…] asks for."""
        return TimeWindow(*(self._time(f"created_at[{bound}]") for bound in _BOUNDS))

    def _time(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            return clock.from_rfc3339(_UNESCAPED_PLUS.sub("+", text))
        except (ValueError, OverflowError):
            raise InvalidInput(f"{name}: must be an RFC 3339 time") from None


def _normalize_name(name: str, valid: Collection[str]) -> str:
    """Return the documented name of a list parameter, such as `types[]` for `types[0]`."""
    name = _INDEX.sub("[]", name)
    if name not in valid:
        name = name.removesuffix("[]") + "[]"
    return name if name in valid else _ALIASES.get(name, name)
