"""Tests of read, write, edit, glob and grep, and of every attempt to leave the directories."""

import asyncio
import ctypes
import os
import stat
import sys
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.agents.tools import PathGuard, ToolError, find
from segue.model.content import FileChange, Image

from .session_directory import SessionDirectory, text_of


async def test_read_numbers_the_lines_of_a_file(directory: SessionDirectory) -> None:
    (directory.path / "a.txt").write_text("one\ntwo\nthree\n")
    assert (
        text_of(await directory.run("read", file_path="a.txt"))
        == "     1\tone\n     2\ttwo\n     3\tthree"
    )
    lines = await directory.run("read", file_path="a.txt", view_range=[2, -1])
    assert text_of(lines) == "     2\ttwo\n     3\tthree"
    assert (await directory.run("read", file_path="a.txt", view_range=[4, 5])).status == "failed"


async def test_read_truncates_a_long_file_and_names_the_remaining_lines(
    directory: SessionDirectory,
) -> None:
    (directory.path / "a.txt").write_text("".join(f"line {n}\n" for n in range(20_000)))
    text = text_of(await directory.run("read", file_path="a.txt"))
    assert len(text) < 80_000 and "lines" in text.splitlines()[-1]
    (directory.path / "b.txt").write_text("x" * 100_000)
    assert len(text_of(await directory.run("read", file_path="b.txt"))) < 3_000


async def test_read_returns_an_image_and_refuses_other_binary_files(
    directory: SessionDirectory,
) -> None:
    (directory.path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 20)
    (image,) = (await directory.run("read", file_path="a.png")).content
    assert isinstance(image, Image) and image.mime == "image/png"
    (directory.path / "a.bin").write_bytes(b"\0\1\2")
    assert "3 bytes" in text_of(await directory.run("read", file_path="a.bin"))


async def test_write_creates_directories_and_keeps_the_file_mode(
    directory: SessionDirectory,
) -> None:
    result = await directory.run("write", file_path="x/y/run.sh", content="echo\n")
    script = directory.path / "x/y/run.sh"
    assert result.content[1] == FileChange(
        path=str(script), before_sha256=None, after_sha256=sha256(b"echo\n").hexdigest()
    )  # the text of a new file is in the call
    script.chmod(0o755)
    result = await directory.run("write", file_path=str(script), content="echo 2\n")
    assert result.content[1] == FileChange(
        path=str(script),
        before_sha256=sha256(b"echo\n").hexdigest(),
        after_sha256=sha256(b"echo 2\n").hexdigest(),
        patch="@@ -1 +1 @@\n-echo\n+echo 2\n",
    )
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    assert [path.name for path in script.parent.iterdir()] == ["run.sh"]


async def test_edit_replaces_one_occurrence_or_all(directory: SessionDirectory) -> None:
    file = directory.path / "a.txt"
    file.write_bytes(b"a b a\r\n")
    ambiguous = await directory.run("edit", file_path="a.txt", old_string="a", new_string="c")
    assert ambiguous.status == "failed" and "2 times" in text_of(ambiguous)
    assert "does not occur" in text_of(
        await directory.run("edit", file_path="a.txt", old_string="z", new_string="c")
    )
    await directory.run("edit", file_path="a.txt", old_string="b", new_string="B")
    await directory.run("edit", file_path="a.txt", old_string="a", new_string="c", replace_all=True)
    assert file.read_bytes() == b"c B c\r\n"


async def test_glob_matches_wildcards_and_sorts_by_newest_first(
    directory: SessionDirectory,
) -> None:
    for age, name in enumerate(["a.py", "d/b.py", "d/e/c.txt", ".git/config.py", "d/x1.md"]):
        file = directory.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
        os.utime(file, (1000 + age, 1000 + age))

    async def matches(pattern: str, **arguments: Any) -> list[str]:
        lines = text_of(await directory.run("glob", pattern=pattern, **arguments)).splitlines()
        return [line.removeprefix(f"{directory.path}/") for line in lines]

    assert await matches("**/*.py") == ["d/b.py", "a.py"]
    assert await matches("*.py") == ["a.py"]
    assert await matches("**/*.{txt,md}") == ["d/x1.md", "d/e/c.txt"]
    assert await matches("d/[!b]?.md") == ["d/x1.md"]
    assert await matches("**") == ["d/x1.md", "d/e/c.txt", "d/b.py", "a.py"]
    assert await matches("*.md", path="d") == ["d/x1.md"]
    assert await matches("nothing*") == ["No file matches."]


async def test_grep_finds_lines_in_a_directory_or_a_file(directory: SessionDirectory) -> None:
    (directory.path / "a.txt").write_text("one\ntwo\n")
    (directory.path / "d").mkdir()
    (directory.path / "d" / "b.txt").write_text("a two")
    (directory.path / "d" / "c.bin").write_bytes(b"\0two")
    root = str(directory.path)
    assert text_of(await directory.run("grep", pattern=r"^t\w+")) == f"{root}/a.txt:2:two"
    assert len(text_of(await directory.run("grep", pattern="two")).splitlines()) == 2
    assert (
        text_of(await directory.run("grep", pattern="two", path="d/b.txt"))
        == f"{root}/d/b.txt:1:a two"
    )
    assert (await directory.run("grep", pattern="(")).status == "failed"


async def test_grep_is_killed_when_its_pattern_exceeds_the_time_limit(
    directory: SessionDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "TIMEOUT_SECONDS", 0.3)
    (directory.path / "a.txt").write_text("a" * 60 + "!")
    result = await directory.run("grep", pattern="(a+)+$")
    assert result.status == "failed" and "took longer" in text_of(result)


# Paths outside of the session's directories.


def outside_paths(directory: SessionDirectory) -> dict[str, str]:
    """Return paths that lead outside, by the technique that they use."""
    inside = directory.path
    (inside / "link").symlink_to(directory.secret)
    (inside / "far").symlink_to("../secret.txt")
    (inside / "up").symlink_to("..")
    (inside / "twice").symlink_to("up")
    (inside / "proc").symlink_to("/proc/self/root")
    os.mkfifo(inside / "pipe")
    return {
        "dots": "../secret.txt",
        "dots deeper": "x/../../secret.txt",
        "absolute": str(directory.secret),
        "absolute link": "link",
        "relative link": "far",
        "linked directory": "up/secret.txt",
        "link to a link": "twice/secret.txt",
        "magic link": f"proc{directory.secret}",
        "home": "~/secret.txt",
        "home of root": "~root/.profile",
        "nul": "a\0b",
        "nothing": "",
        "fifo": "pipe",
        "device": "/dev/zero",
        "sibling with the same beginning": f"{directory.path}2/a",
    }


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("tool", ["read", "write", "edit", "glob", "grep"])
async def test_tools_refuse_every_path_outside(
    directory: SessionDirectory, tool: str, strict: bool
) -> None:
    (directory.parent / "inside2").mkdir()
    (directory.parent / "inside2" / "a").write_text("SECRET")
    arguments: dict[str, Any] = {
        "read": {},
        "write": {"content": "OVERWRITTEN"},
        "edit": {"old_string": "SECRET", "new_string": "OVERWRITTEN"},
        "glob": {"pattern": "*"},
        "grep": {"pattern": "SECRET"},
    }[tool]
    name = "path" if tool in ("glob", "grep") else "file_path"
    context = directory.context(local=not strict)
    for technique, path in outside_paths(directory).items():
        if name == "path" and technique in ("nothing", "fifo"):
            continue  # an empty path is the directory itself; a FIFO is never opened
        try:
            result = await directory.run(tool, context, **{name: path}, **arguments)
        except Exception as error:  # pragma: no cover  # name the technique
            raise AssertionError(technique) from error
        assert result.status == "failed", technique
        assert "SECRET" not in text_of(result), technique
    assert directory.secret.read_text() == "SECRET"
    assert (directory.parent / "inside2" / "a").read_text() == "SECRET"


async def test_search_tools_do_not_follow_links(directory: SessionDirectory) -> None:
    outside_paths(directory)
    (directory.path / "a.txt").write_text("SECRET too")
    assert (
        text_of(await directory.run("grep", pattern="SECRET"))
        == f"{directory.path}/a.txt:1:SECRET too"
    )
    assert "secret.txt" not in text_of(await directory.run("glob", pattern="**"))


async def test_file_tools_follow_links_within_the_directory(directory: SessionDirectory) -> None:
    (directory.path / "real.txt").write_text("here")
    (directory.path / "near").symlink_to("real.txt")
    (directory.path / "abs").symlink_to(directory.path / "real.txt")
    for name in ("near", "abs"):
        assert text_of(await directory.run("read", file_path=name)).endswith("here")
    await directory.run("write", file_path="near", content="new")
    assert (directory.path / "near").is_symlink()
    assert (directory.path / "real.txt").read_text() == "new"


@pytest.mark.parametrize("links", [100, 3000])
async def test_a_path_with_many_links_is_refused(directory: SessionDirectory, links: int) -> None:
    for number in range(links):
        (directory.path / f"link-{number}").symlink_to(f"link-{number + 1}")
    (directory.path / f"link-{links}").mkdir()
    for tool, arguments in (("read", {}), ("write", {"content": "x"})):
        result = await directory.run(tool, file_path="link-0/a.txt", **arguments)
        assert result.status == "failed" and "too many symbolic links" in text_of(result)


async def test_a_link_to_itself_is_refused(directory: SessionDirectory) -> None:
    (directory.path / "loop").symlink_to("loop")
    for tool, arguments in (("read", {}), ("write", {"content": "x"})):
        result = await directory.run(tool, file_path="loop/a.txt", **arguments)
        assert result.status == "failed" and "too many symbolic links" in text_of(result)


async def test_a_file_with_two_hard_links_is_refused_for_remote_callers(
    directory: SessionDirectory,
) -> None:
    os.link(directory.secret, directory.path / "hard")
    remote = directory.context(local=False)
    for tool, arguments in (("read", {}), ("edit", {"old_string": "SECRET", "new_string": "x"})):
        result = await directory.run(tool, remote, file_path="hard", **arguments)
        assert result.status == "failed" and "second hard link" in text_of(result)
    assert text_of(await directory.run("grep", remote, pattern="SECRET")) == "Nothing matches."
    # write replaces the link by a new file, so the secret stays unchanged.
    await directory.run("write", remote, file_path="hard", content="mine")
    assert (directory.secret.read_text(), (directory.path / "hard").read_text()) == (
        "SECRET",
        "mine",
    )


async def test_the_working_directory_may_be_a_link(directory: SessionDirectory) -> None:
    alias = directory.parent / "alias"
    alias.symlink_to(directory.path)
    (directory.path / "a.txt").write_text("here")
    guard = PathGuard([str(alias)])
    assert guard.read_file("a.txt", 10)[1] == b"here"
    with pytest.raises(ToolError):
        guard.read_file("../secret.txt", 10)


@pytest.mark.skipif(sys.platform != "linux", reason="needs renameat2")
async def test_replacing_a_directory_by_a_link_during_access_reveals_nothing(
    directory: SessionDirectory,
) -> None:
    """A thread exchanges a directory and a link to the outside as fast as it can."""
    real, link = directory.path / "d", directory.path / "l"
    real.mkdir()
    (real / "secret.txt").write_text("mine")
    link.symlink_to(directory.parent)
    stop = threading.Event()
    exchange = ctypes.CDLL(None).renameat2

    def race() -> None:
        paths = os.fsencode(real), os.fsencode(link)
        while not stop.is_set():
            assert exchange(-100, paths[0], -100, paths[1], 2) == 0

    racer = threading.Thread(target=race)
    racer.start()
    statuses: set[str] = set()
    try:
        context = directory.context(local=False)
        for _ in range(300):
            for tool, arguments in (("read", {}), ("write", {"content": "mine"})):
                result = await directory.run(tool, context, file_path="d/secret.txt", **arguments)
                statuses.add(result.status)
                assert "SECRET" not in text_of(result)
            await asyncio.sleep(0)
    finally:
        stop.set()
        racer.join()
    assert directory.secret.read_text() == "SECRET"
    assert "completed" in statuses


@given(st.text(max_size=40))
def test_a_resolved_path_is_always_inside(path: str) -> None:
    guard = PathGuard(["/usr/lib"])
    try:
        resolved = guard.resolve(path)
    except ToolError:
        return
    assert resolved.path == "/usr/lib" or resolved.path.startswith("/usr/lib/")
    assert ".." not in Path(resolved.path).parts


@pytest.mark.parametrize("secret", ["", "e", "text", "1\ttext", "gone"])
async def test_results_contain_no_secrets_and_are_otherwise_unchanged(
    directory: SessionDirectory, secret: str
) -> None:
    (directory.path / "a").write_text("text")
    (directory.path / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 20)
    context = directory.context()._replace(variables={"NAME": secret})
    read = await directory.run("read", context, file_path="a")
    assert read.status == "completed"
    unredacted = await directory.run("read", file_path="a")
    assert text_of(read) == (
        text_of(unredacted).replace(secret, "[NAME]") if secret else text_of(unredacted)
    )
    image = await directory.run("read", context, file_path="image.png")
    assert image == await directory.run("read", file_path="image.png")
    missing = text_of(await directory.run("read", context, file_path="gone"))
    assert not secret or secret not in missing.replace("[NAME]", "")


# A session may have several directories, and one of them may be inside another.


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("replaced", ["packages/inner", "packages"])
def test_inner_directory_that_a_program_replaced_by_a_link_is_not_accessible(
    directory: SessionDirectory, replaced: str, order: int
) -> None:
    inner = directory.path / "packages/inner"
    inner.mkdir(parents=True)
    (inner / "a.txt").write_text("mine")
    directories = [str(directory.path), str(inner)][::order]
    assert PathGuard(directories).read_file(str(inner / "a.txt"), 10)[1] == b"mine"
    assert str(inner) in PathGuard(directories).real_directories
    # A program that runs in the outer directory replaces the inner one, or a directory above it.
    outside = directory.parent / "outside"
    (outside / "packages/inner").mkdir(parents=True)
    (outside / "packages/inner/secret.txt").write_text("SECRET")
    (directory.path / replaced).rename(directory.path / "moved")
    (directory.path / replaced).symlink_to(outside / replaced)
    guard = PathGuard(directories)
    assert guard.real_directories == (str(directory.path),)
    for path in (inner / "secret.txt", outside / "packages/inner/secret.txt"):
        with pytest.raises(ToolError, match="outside"):
            guard.read_file(str(path), 10)


def test_directories_that_are_not_inside_each_other_may_be_links(
    directory: SessionDirectory,
) -> None:
    other = directory.parent / "other"
    other.mkdir()
    (directory.parent / "alias").symlink_to(other)
    (directory.path / "near").symlink_to("packages")
    (directory.path / "packages").mkdir()
    paths = [str(directory.path), str(directory.parent / "alias"), str(directory.path / "near")]
    assert PathGuard(paths).real_directories == (
        str(directory.path),
        str(other),
        str(directory.path / "packages"),
    )
    assert PathGuard(["/", *paths]).real_directories[:2] == ("/", str(directory.path))
