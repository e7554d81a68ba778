"""Match request paths to endpoints."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Generic, NamedTuple, Protocol, TypeVar


class Routable(Protocol):
    """One method on one path, which may have parameters: `/s/{id}/export.{format}`."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...


E = TypeVar("E", bound=Routable)


class RouteMatch(NamedTuple, Generic[E]):
    """The endpoints of a path by method, and the values of the path's parameters in order."""

    methods: dict[str, E]
    values: list[str]


class _Node(Generic[E]):
    def __init__(self) -> None:
        self.literals: dict[str, _Node[E]] = {}
        self.prefixes: dict[str, _Node[E]] = {}  # before a parameter in the same segment
        self.parameter: _Node[E] | None = None
        self.methods: dict[str, E] = {}


class RouteTree(Generic[E]):
    """Match paths with one dictionary lookup per segment, independent of the number of routes."""

    def __init__(self, endpoints: Iterable[E]) -> None:
        self._root: _Node[E] = _Node()
        for endpoint in endpoints:
            node = self._root
            for segment in endpoint.path.split("/")[1:]:
                node = _add_segment(node, segment)
            node.methods[endpoint.method] = endpoint

    def match(self, path: str) -> RouteMatch[E] | None:
        """Return the endpoints of a path, or None if the path is unknown."""
        node = self._root
        values: list[str] = []
        for segment in path.split("/")[1:]:
            child = node.literals.get(segment)
            if child is None:
                child = _match_parameter(node, segment, values)
            if child is None:
                return None
            node = child
        return RouteMatch(node.methods, values) if node.methods else None


@cache
def path_names(path: str) -> tuple[str, ...]:
    """Return the names of a route's parameters, in order."""
    return tuple(segment.partition("{")[2][:-1] for segment in path.split("/") if "{" in segment)


def _add_segment(node: _Node[E], segment: str) -> _Node[E]:
    prefix, brace, _ = segment.partition("{")
    if not brace:
        return node.literals.setdefault(segment, _Node())
    if prefix:
        return node.prefixes.setdefault(prefix, _Node())
    node.parameter = node.parameter or _Node()
    return node.parameter


def _match_parameter(node: _Node[E], segment: str, values: list[str]) -> _Node[E] | None:
    """Return the node for a segment with a parameter, and append the parameter to `values`."""
    for prefix, child in node.prefixes.items():
        if segment.startswith(prefix) and segment != prefix:
            values.append(segment[len(prefix) :])
            return child
    if segment and node.parameter is not None:
        values.append(segment)
        return node.parameter
    return None
