"""Read, move and delete trees that a hostile program made."""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from segue.agents.tools import file_tree


@contextmanager
def opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))


def make_chain(top: Path, depth: int) -> None:
    """Create directories inside each other, deeper than any path can be long."""
    descriptor = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 100, dir_fd=descriptor)
        child = os.open("d" * 100, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = child
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)


def read_all(top: Path) -> tuple[list[str], dict[str, str]]:
    """Walk a tree and return the paths of its files, and what was skipped."""
    skipped: dict[str, str] = {}
    with opened(top) as descriptor:
        return sorted(file.path for file in file_tree.walk_files(descriptor, skipped)), skipped


def test_walk_yields_files_and_links_but_does_not_follow_links(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a/b").mkdir(parents=True)
    (top / "a/b/c").touch()
    (top / "link").symlink_to("/etc")
    os.mkfifo(top / "pipe")
    assert read_all(top) == (["/a/b/c", "/link", "/pipe"], {})


def test_walk_of_a_deep_tree_skips_what_is_too_deep_and_closes_its_descriptors(
    tmp_path: Path,
) -> None:
    make_chain(tmp_path, 500)
    (tmp_path / "file").touch()
    before = open_descriptors()
    paths, skipped = read_all(tmp_path)
    assert paths == ["/file"]
    assert [reason for reason in skipped.values()] == ["it is more than 32 directories deep"]
    assert open_descriptors() == before
    with opened(tmp_path.parent) as parent:  # pytest could not delete so deep a tree
        file_tree.remove_tree(parent, tmp_path.name)


def test_walk_of_a_huge_tree_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_tree, "MAX_WALK_ENTRIES", 50)
    for number in range(60):
        (tmp_path / f"{number}").touch()
    before = open_descriptors()
    paths, skipped = read_all(tmp_path)
    assert len(paths) == 50 and skipped == {"/": "only 50 files and directories are read"}
    assert open_descriptors() == before


def test_walk_reports_a_name_that_is_not_utf8_in_escapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_tree, "MAX_WALK_DEPTH", 1)
    (tmp_path / os.fsdecode(b"caf\xe9")).mkdir()
    _, skipped = read_all(tmp_path)
    assert list(skipped) == ["/caf\\xe9"]


@pytest.mark.parametrize("kind", ["directory", "link", "fifo", "socket", "device", "hard link"])
def test_only_a_regular_file_with_one_name_is_opened(tmp_path: Path, kind: str) -> None:
    other = tmp_path / "other"
    other.write_text("SECRET")
    match kind:
        case "directory":
            (tmp_path / "x").mkdir()
        case "link":
            (tmp_path / "x").symlink_to(other)
        case "fifo":
            os.mkfifo(tmp_path / "x")
        case "socket":
            os.mknod(tmp_path / "x", stat.S_IFSOCK | 0o600)
        case "device":
            if os.geteuid() != 0:
                pytest.skip("only root can create a device")
            os.mknod(tmp_path / "x", stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero
        case "hard link":
            os.link(other, tmp_path / "x")
    before = open_descriptors()
    with opened(tmp_path) as top, pytest.raises((file_tree.UnusableFile, OSError)):
        file_tree.open_file(top, "x", allow_hard_links=False)
    assert open_descriptors() == before


def test_removal_needs_few_descriptors_for_a_tree_of_any_depth(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    make_chain(top, 3_000)
    opened_descriptors: list[int] = []
    open_file = os.open

    def open_and_record(*arguments: object, **options: object) -> int:
        descriptor: int = open_file(*arguments, **options)  # type: ignore[arg-type]  # as called
        opened_descriptors.append(descriptor)
        return descriptor

    with opened(tmp_path) as parent, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", open_and_record)
        file_tree.remove_tree(parent, "top")
        assert len(set(opened_descriptors)) <= 5
    assert not top.exists()


def test_removal_deletes_a_link_and_not_its_target(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    top = tmp_path / "top"
    (top / "deep").mkdir(parents=True)
    (top / "link").symlink_to(outside)
    (top / "deep/link").symlink_to(outside)
    with opened(tmp_path) as parent:
        file_tree.remove_tree(parent, "top")
    assert not top.exists() and (outside / "file").exists()


@contextmanager
def without_root_rights() -> Iterator[None]:
    """Let permissions apply to this process: they do not apply to root."""
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_removal_deletes_directories_that_their_owner_made_unreadable() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        os.chmod(directory, 0o777)
        top = Path(directory, "top")
        with without_root_rights():
            (top / "a/b/c").mkdir(parents=True)
            for path in (top / "a/b/c", top / "a/b", top / "a", top):
                (path / "file").touch()
                path.chmod(0)
            with opened(top.parent) as parent:
                file_tree.remove_tree(parent, "top")
        assert os.listdir(directory) == []


@pytest.fixture
def other_file_system(tmp_path: Path) -> Iterator[Path]:
    """Return a directory on another file system than `tmp_path`."""
    for parent in ("/dev/shm", "/var/tmp"):
        if os.path.isdir(parent) and os.stat(parent).st_dev != tmp_path.stat().st_dev:
            with tempfile.TemporaryDirectory(dir=parent) as directory:
                yield Path(directory)
            return
    pytest.skip("there is only one file system for temporary files")


def test_tree_is_moved_to_another_file_system(tmp_path: Path, other_file_system: Path) -> None:
    staged = tmp_path / "staged"
    (staged / "deep/er").mkdir(parents=True)
    (staged / "deep/er/run").write_text("#!/bin/sh")
    (staged / "deep/er/run").chmod(0o755)
    (staged / "deep/link").symlink_to("/etc/passwd")
    with opened(other_file_system) as parent:
        file_tree.move_in(staged, parent, "moved")
    moved = other_file_system / "moved"
    assert os.listdir(other_file_system) == ["moved"]
    assert (moved / "deep/er/run").read_text() == "#!/bin/sh"
    assert os.access(moved / "deep/er/run", os.X_OK)
    assert os.readlink(moved / "deep/link") == "/etc/passwd"


def test_file_is_moved_to_another_file_system_and_replaces_a_link(
    tmp_path: Path, other_file_system: Path
) -> None:
    staged, target = tmp_path / "staged", tmp_path / "target"
    staged.write_text("new")
    target.write_text("SECRET")
    (other_file_system / "file").symlink_to(target)
    with opened(other_file_system) as parent:
        file_tree.move_in(staged, parent, "file")
    assert not (other_file_system / "file").is_symlink()
    assert (other_file_system / "file").read_text() == "new"
    assert target.read_text() == "SECRET"


@pytest.mark.parametrize("across", [True, False])
def test_move_onto_a_directory_with_files_fails_and_leaves_nothing(
    tmp_path: Path, other_file_system: Path, across: bool
) -> None:
    target = (other_file_system if across else tmp_path) / "parent"
    (target / "there").mkdir(parents=True)
    (target / "there/file").touch()
    staged = tmp_path / "staged"
    (staged / "deep").mkdir(parents=True)
    with opened(target) as parent, pytest.raises(OSError, match="not empty"):
        file_tree.move_in(staged, parent, "there")
    assert os.listdir(target) == ["there"] and os.listdir(target / "there") == ["file"]
