"""Measure the disk usage of a session's directory."""

import os
from pathlib import Path

import pytest

from segue.agents.sandbox import disk_usage
from segue.agents.sandbox.disk_usage import UNMEASURABLE_BYTES, tree_bytes

MB = 1_000_000


def test_files_below_a_directory_are_counted_without_following_links(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    (tmp_path / "outside").write_bytes(b"x" * 9 * MB)
    (top / "a" / "b" / "file").write_bytes(b"x" * 2 * MB)
    (top / "link").symlink_to(tmp_path / "outside")
    (top / "directory").symlink_to(tmp_path)
    os.mkfifo(top / "pipe")
    assert 2 * MB <= tree_bytes(str(top)) < 3 * MB


def test_hole_in_a_file_is_not_counted(tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(100 * MB)
    assert tree_bytes(str(tmp_path)) < MB


def test_tree_that_cannot_be_measured_counts_as_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "deep"
    deep.mkdir()
    parent = os.open(deep, os.O_RDONLY)
    for _ in range(40):  # deeper than a path can be long
        os.mkdir("d" * 200, dir_fd=parent)
        child = os.open("d" * 200, os.O_RDONLY, dir_fd=parent)
        os.close(parent)
        parent = child
    os.close(parent)
    assert tree_bytes(str(deep)) == UNMEASURABLE_BYTES
    monkeypatch.setattr(disk_usage, "MAX_ENTRIES", 3)
    for name in "abcd":
        (tmp_path / name).touch()
    assert tree_bytes(str(tmp_path)) == UNMEASURABLE_BYTES


def test_directory_that_does_not_exist_has_no_bytes(tmp_path: Path) -> None:
    assert tree_bytes(str(tmp_path / "gone")) == 0
