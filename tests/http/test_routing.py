"""Matching paths to endpoints."""

from typing import NamedTuple

import pytest

from segue.http.routing import RouteTree, path_names


class Endpoint(NamedTuple):
    method: str
    path: str


TREE = RouteTree(
    [
        Endpoint("GET", "/"),
        Endpoint("GET", "/s/{id}"),
        Endpoint("POST", "/s/{id}"),
        Endpoint("GET", "/s/{id}/export.{format}"),
        Endpoint("GET", "/s/new"),
    ]
)


@pytest.mark.parametrize(
    ("path", "matched", "values"),
    [
        ("/", "/", []),
        ("/s/1", "/s/{id}", ["1"]),
        ("/s/new", "/s/new", []),
        ("/s/1/export.md", "/s/{id}/export.{format}", ["1", "md"]),
        ("/s/1/export.a.b", "/s/{id}/export.{format}", ["1", "a.b"]),
    ],
)
def test_a_path_matches_its_endpoint_and_gives_the_parameters(
    path: str, matched: str, values: list[str]
) -> None:
    match = TREE.match(path)
    assert match is not None
    assert (match.methods["GET"].path, match.values) == (matched, values)


@pytest.mark.parametrize("path", ["", "/s", "/s/", "//", "/s/1/", "/s/1/export.", "/x", "/s/1/2/3"])
def test_an_unknown_path_matches_nothing(path: str) -> None:
    assert TREE.match(path) is None


def test_a_path_has_the_names_of_its_parameters_in_order() -> None:
    assert path_names("/s/{id}/export.{format}") == ("id", "format")
