"""The whole history: all branches, and the messages before compactions."""

from __future__ import annotations

from segue import claude
from segue.claude import SessionTree
from tests.claude.entries import Home, S, assistant, boundary, system, user


def tree(home: Home, *lines: object) -> SessionTree:
    home.write(lines)  # type: ignore[arg-type] # entries of any kind
    session_tree = claude.get_session_tree(S)
    assert session_tree is not None
    return session_tree


START = (user("u1", None), assistant("a1", "u1"))


def test_tree_contains_every_branch(home: Home) -> None:
    session_tree = tree(home, *START, user("old", "a1"), user("new", "a1"))
    assert (session_tree.roots, session_tree.leaves, session_tree.leaf) == (
        ["u1"],
        ["old", "new"],
        "new",
    )
    assert session_tree.entries["a1"].children == ["old", "new"]
    assert [entry.uuid for entry in session_tree.path("old")] == ["u1", "a1", "old"]
    assert {uuid for uuid, entry in session_tree.entries.items() if entry.active} == {
        "u1",
        "a1",
        "new",
    }


def test_tree_path_crosses_compactions(home: Home) -> None:
    first = boundary("B", logicalParentUuid="a1")
    second = boundary("E", logicalParentUuid="u2")
    session_tree = tree(
        home,
        *START,
        first,
        user("C", "B", isCompactSummary=True),
        user("u2", "C"),
        second,
        user("D", "E", isCompactSummary=True),
        user("u3", "D"),
    )
    assert [entry.uuid for entry in session_tree.path()] == [
        "u1",
        "a1",
        "B",
        "C",
        "u2",
        "E",
        "D",
        "u3",
    ]
    assert [entry.uuid for entry in session_tree.path() if entry.active] == ["E", "D", "u3"]


def test_boundary_without_a_parent_follows_the_entry_before_it(home: Home) -> None:
    session_tree = tree(home, *START, boundary("B"), user("C", "B", isCompactSummary=True))
    assert [entry.uuid for entry in session_tree.path()] == ["u1", "a1", "B", "C"]


def test_preserved_messages_stay_at_their_original_position(home: Home) -> None:
    compact_boundary = boundary("B", "C", ["a1"], logicalParentUuid="a1")
    session_tree = tree(
        home, *START, compact_boundary, user("C", "B", isCompactSummary=True), user("u2", "C")
    )
    assert [entry.uuid for entry in session_tree.path()] == ["u1", "a1", "B", "C", "u2"]
    assert session_tree.entries["a1"].active and not session_tree.entries["u1"].active


def test_tree_entry_has_the_fields_of_its_entry(home: Home) -> None:
    lines = [*START, system("s", "a1", "turn_duration"), user("m", "s", isMeta=True)]
    session_tree = tree(home, *lines, user("side", "a1", isSidechain=True))
    assert (session_tree.entries["s"].type, session_tree.entries["s"].subtype) == (
        "system",
        "turn_duration",
    )
    assert session_tree.entries["m"].is_meta and session_tree.entries["side"].is_sidechain
    assert session_tree.entries["u1"].message == {"role": "user", "content": "u1"}
    assert session_tree.entries["u1"].timestamp == "2026-01-01T00:00:00.000Z"


def test_circles_and_repeated_ids_are_handled(home: Home) -> None:
    session_tree = tree(home, user("x", "y"), assistant("y", "x"), *START, *START)
    assert set(session_tree.entries) == {"x", "y", "u1", "a1"}
    for uuid in session_tree.entries:
        session_tree.path(uuid)


def test_unknown_session_has_no_tree(home: Home) -> None:
    assert claude.get_session_tree(S) is None
    assert claude.get_session_tree("x") is None
