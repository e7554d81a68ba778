"""The filters of the session list: each is a query parameter, a part of a Query and a chip."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from html import escape
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode

from segue.model import clock
from segue.model.errors import InvalidInput
from segue.model.lifecycle import STATUSES, Status
from segue.model.query import Query


class Period(NamedTuple):
    """A period that ends now."""

    label: str
    short: str
    days: int


ACTIVITY_PERIODS = {
    "1d": Period("the last day", "1 day", 1),
    "7d": Period("the last 7 days", "7 days", 7),
    "30d": Period("the last 30 days", "30 days", 30),
    "1y": Period("the last year", "1 year", 365),
}
# Statuses that no session row has: they follow from several fields of it.
DERIVED_STATUSES = ("waiting", "failed")
STATE_FILTERS = {"include": "with archived", "only": "archived", "trash": "trash"}
# The query parameters of a list, in the order of their chips.
NAMES = (
    "q",
    "cwd",
    "agent",
    "status",
    "pinned",
    "tag",
    "source",
    "since",
    "from",
    "to",
    "state",
    "group",
)


class Chip(NamedTuple):
    """An active filter, and the query string of the list without it."""

    name: str
    label: str
    query_without: str


class Filters:
    """The filters of one list."""

    def __init__(self, params: Mapping[str, str]) -> None:
        self.values = {name: value for name in NAMES if (value := params.get(name))}

    def __getitem__(self, name: str) -> str:
        return self.values.get(name, "")

    @property
    def search(self) -> str:
        """Return the text that the list is searched for, or ""."""
        return self["q"].strip()

    @property
    def by_project(self) -> bool:
        """Return whether the list is grouped by project; search results never are."""
        return self["group"] == "project" and not self.search

    @property
    def has_filter(self) -> bool:
        """Return whether a filter excludes sessions from the list."""
        return bool(self.values.keys() - {"group", "q"})

    @property
    def has_filter_or_search(self) -> bool:
        """Return whether a filter or a search excludes sessions from the list."""
        return bool(self.values.keys() - {"group"})

    @cached_property
    def query_string(self) -> str:
        """Return the query string of this list."""
        return self.with_changes()

    @cached_property
    def escaped_query_string(self) -> str:
        """Return the query string of this list, escaped for HTML."""
        return escape(self.query_string)

    @property
    def derived_status(self) -> str:
        """Return the status that is not a field of the session row, or ""."""
        return self["status"] if self["status"] in DERIVED_STATUSES else ""

    def with_changes(self, **changes: str) -> str:
        """Return the query string of this list with changed parameters; empty ones are removed."""
        pairs = {name: value for name, value in {**self.values, **changes}.items() if value}
        return f"?{urlencode(pairs)}" if pairs else ""

    def chips(self, agent_names: Mapping[str, str]) -> list[Chip]:
        """Return the active filters. `agent_names` maps ids of agents to their names."""
        return [
            Chip(name, self._label(name, value, agent_names), self.with_changes(**{name: ""}))
            for name in NAMES
            if (value := self[name]) and name not in ("q", "group")
        ]

    def _label(self, name: str, value: str, agent_names: Mapping[str, str]) -> str:
        match name:
            case "since":
                period = ACTIVITY_PERIODS.get(value)
                return value if period is None else f"active in {period.label}"
            case "state":
                return STATE_FILTERS.get(value, value)
            case "from":
                return f"started on or after {value}"
            case "to":
                return f"started on or before {value}"
            case "cwd":
                return value
            case "pinned":
                return name
            case "agent":
                return f"agent {agent_names.get(value, value[:8])}"
        return f"{name} {value}"

    def query(self, limit: int) -> Query:
        """Return the query of this list. Raises InvalidInput for a filter that is not valid."""
        fields: dict[str, Any] = {"limit": limit}
        for name, field in (
            ("cwd", "cwd"),
            ("agent", "agent_id"),
            ("tag", "tag"),
            ("source", "source"),
        ):
            if self[name]:
                fields[field] = self[name]
        if status := self["status"]:
            _require("status", status, (*STATUSES, *DERIVED_STATUSES))
            if status not in DERIVED_STATUSES:
                fields["statuses"] = (cast(Status, status),)
        if since := self["since"]:
            days = ACTIVITY_PERIODS[_require("since", since, ACTIVITY_PERIODS)].days
            fields["active_after"] = clock.now() - days * clock.DAY
        if self["from"]:
            fields["created_gte"] = _parse_day(self["from"])
        if self["to"]:
            fields["created_lt"] = _parse_day(self["to"]) + clock.DAY
        if state := self["state"]:
            _require("state", state, STATE_FILTERS)
            fields |= {"trash": True} if state == "trash" else {"archived": state}
        if self.search:
            fields["text"] = self.search
        return Query(**fields)


def _require(name: str, value: str, choices: Collection[str]) -> str:
    """Return the value of a filter. Raises InvalidInput unless it is one of the choices."""
    if value not in choices:
        raise InvalidInput(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    return value


def _parse_day(text: str) -> int:
    """Return the time at which a day begins. Raises InvalidInput if the text is not a day."""
    try:
        if len(text) != 10:
            raise ValueError
        return clock.from_rfc3339(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is not a day; write it as 2026-01-31") from None
