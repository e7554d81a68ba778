"""What a list shows, as its address says it: each filter a parameter, a Query and a chip."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from html import escape
from typing import Any, NamedTuple
from urllib.parse import urlencode

from segue.model import clock
from segue.model.errors import InvalidInput
from segue.model.lifecycle import STATUSES
from segue.model.query import Query

SINCE = {"1d": ("the last day", 1), "7d": ("the last 7 days", 7), "30d": ("the last 30 days", 30)}
SHELVES = {"include": "with archived", "only": "archived", "trash": "trash"}
# Every parameter that belongs to a list, in the order of its chips.
NAMES = ("q", "cwd", "agent", "status", "tag", "source", "since", "from", "to", "shelf", "group")


class Chip(NamedTuple):
    """A filter that is on, and the address of the list without it."""

    name: str
    label: str
    without: str


class Filters:
    """The filters of one list."""

    def __init__(self, params: Mapping[str, str]) -> None:
        self.values = {name: value for name in NAMES if (value := params.get(name))}

    def __getitem__(self, name: str) -> str:
        return self.values.get(name, "")

    @property
    def words(self) -> str:
        return self["q"].strip()

    @property
    def by_project(self) -> bool:
        """Whether the list is grouped so; what a search found is always grouped by recency."""
        return self["group"] == "project" and not self.words

    @property
    def filtered(self) -> bool:
        """Whether a filter leaves something out of the list."""
        return bool(self.values.keys() - {"group", "q"})

    @property
    def narrowed(self) -> bool:
        """Whether a filter or a search leaves something out of the list."""
        return bool(self.values.keys() - {"group"})

    @cached_property
    def own(self) -> str:
        """The query string of this list."""
        return self.address()

    @cached_property
    def escaped(self) -> str:
        """The same in HTML."""
        return escape(self.own)

    def address(self, **changes: str) -> str:
        """The query string of this list with some parameters changed; empty ones left out."""
        pairs = {name: value for name, value in {**self.values, **changes}.items() if value}
        return f"?{urlencode(pairs)}" if pairs else ""

    def chips(self, names: Mapping[str, str]) -> list[Chip]:
        """The filters that are on. `names` has the names of agents by id."""
        made = []
        for name in NAMES:
            value = self[name]
            if not value or name in ("q", "group"):
                continue
            made.append(Chip(name, self._label(name, value, names), self.address(**{name: ""})))
        return made

    def _label(self, name: str, value: str, names: Mapping[str, str]) -> str:
        match name:
            case "since":
                return f"active in {SINCE[value][0]}" if value in SINCE else value
            case "shelf":
                return SHELVES.get(value, value)
            case "from":
                return f"begun from {value}"
            case "to":
                return f"begun until {value}"
            case "cwd":
                return value
            case "agent":
                return f"agent {names.get(value, value[:8])}"
        return f"{name} {value}"

    def query(self, limit: int) -> Query:
        wanted: dict[str, Any] = {"limit": limit}
        for name, field in (("cwd", "cwd"), ("agent", "agent_id"), ("tag", "tag")):
            if self[name]:
                wanted[field] = self[name]
        if self["source"]:
            wanted["source"] = self["source"]
        if self["status"]:
            if self["status"] not in STATUSES:
                raise InvalidInput(f"status must be one of {', '.join(STATUSES)}")
            wanted["statuses"] = (self["status"],)
        if self["since"]:
            if self["since"] not in SINCE:
                raise InvalidInput(f"since must be one of {', '.join(SINCE)}")
            wanted["active_after"] = clock.now() - SINCE[self["since"]][1] * clock.DAY
        if self["from"]:
            wanted["created_gte"] = _day(self["from"])
        if self["to"]:
            wanted["created_lt"] = _day(self["to"]) + clock.DAY
        shelf = self["shelf"]
        if shelf == "trash":
            wanted["trash"] = True
        elif shelf:
            if shelf not in SHELVES:
                raise InvalidInput(f"shelf must be one of {', '.join(SHELVES)}")
            wanted["archived"] = shelf
        if self.words:
            wanted["text"] = self.words
        return Query(**wanted)


def _day(text: str) -> int:
    try:
        if len(text) != 10:
            raise ValueError
        return clock.from_rfc3339(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is no day: write it as 2026-01-31") from None
