"""read, write, edit, glob, grep: what they do, and every way out of the directories refused."""

import asyncio
import ctypes
import os
import stat
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.agents.tools import PathGuard, ToolError, find
from segue.model.content import Diff, Image

from .place import Place, told


async def test_a_file_is_read_with_its_lines_numbered(place: Place) -> None:
    (place.inside / "a.txt").write_text("one\ntwo\nthree\n")
    assert (
        told(await place.use("read", file_path="a.txt"))
        == "     1\tone\n     2\ttwo\n     3\tthree"
    )
    some = await place.use("read", file_path="a.txt", view_range=[2, -1])
    assert told(some) == "     2\ttwo\n     3\tthree"
    assert (await place.use("read", file_path="a.txt", view_range=[4, 5])).status == "failed"


async def test_a_long_file_is_cut_and_says_where(place: Place) -> None:
    (place.inside / "a.txt").write_text("".join(f"line {n}\n" for n in range(20_000)))
    text = told(await place.use("read", file_path="a.txt"))
    assert len(text) < 80_000 and "lines" in text.splitlines()[-1]
    (place.inside / "b.txt").write_text("x" * 100_000)
    assert len(told(await place.use("read", file_path="b.txt"))) < 3_000


async def test_a_picture_is_shown_and_other_bytes_are_named(place: Place) -> None:
    (place.inside / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 20)
    (shown,) = (await place.use("read", file_path="a.png")).content
    assert isinstance(shown, Image) and shown.mime == "image/png"
    (place.inside / "a.bin").write_bytes(b"\0\1\2")
    assert "3 bytes" in told(await place.use("read", file_path="a.bin"))


async def test_write_makes_directories_and_keeps_a_file_s_mode(place: Place) -> None:
    result = await place.use("write", file_path="x/y/run.sh", content="echo\n")
    made = place.inside / "x/y/run.sh"
    assert result.content[1] == Diff(path=str(made), new="echo\n")
    made.chmod(0o755)
    result = await place.use("write", file_path=str(made), content="echo 2\n")
    assert result.content[1] == Diff(path=str(made), old="echo\n", new="echo 2\n")
    assert stat.S_IMODE(made.stat().st_mode) == 0o755
    assert [each.name for each in made.parent.iterdir()] == ["run.sh"]


async def test_edit_replaces_exactly_one_place_or_all(place: Place) -> None:
    file = place.inside / "a.txt"
    file.write_bytes(b"a b a\r\n")
    twice = await place.use("edit", file_path="a.txt", old_string="a", new_string="c")
    assert twice.status == "failed" and "2 times" in told(twice)
    assert "does not occur" in told(
        await place.use("edit", file_path="a.txt", old_string="z", new_string="c")
    )
    await place.use("edit", file_path="a.txt", old_string="b", new_string="B")
    await place.use("edit", file_path="a.txt", old_string="a", new_string="c", replace_all=True)
    assert file.read_bytes() == b"c B c\r\n"


async def test_glob_knows_stars_braces_and_classes_newest_first(place: Place) -> None:
    for age, name in enumerate(["a.py", "d/b.py", "d/e/c.txt", ".git/config.py", "d/x1.md"]):
        file = place.inside / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
        os.utime(file, (1000 + age, 1000 + age))

    async def found(pattern: str, **more: Any) -> list[str]:
        lines = told(await place.use("glob", pattern=pattern, **more)).splitlines()
        return [line.removeprefix(f"{place.inside}/") for line in lines]

    assert await found("**/*.py") == ["d/b.py", "a.py"]
    assert await found("*.py") == ["a.py"]
    assert await found("**/*.{txt,md}") == ["d/x1.md", "d/e/c.txt"]
    assert await found("d/[!b]?.md") == ["d/x1.md"]
    assert await found("**") == ["d/x1.md", "d/e/c.txt", "d/b.py", "a.py"]
    assert await found("*.md", path="d") == ["d/x1.md"]
    assert await found("nothing*") == ["No file matches."]


async def test_grep_finds_lines_in_a_tree_or_a_file(place: Place) -> None:
    (place.inside / "a.txt").write_text("one\ntwo\n")
    (place.inside / "d").mkdir()
    (place.inside / "d" / "b.txt").write_text("a two")
    (place.inside / "d" / "c.bin").write_bytes(b"\0two")
    top = str(place.inside)
    assert told(await place.use("grep", pattern=r"^t\w+")) == f"{top}/a.txt:2:two"
    assert len(told(await place.use("grep", pattern="two")).splitlines()) == 2
    assert told(await place.use("grep", pattern="two", path="d/b.txt")) == f"{top}/d/b.txt:1:a two"
    assert (await place.use("grep", pattern="(")).status == "failed"


async def test_a_pattern_that_never_ends_is_killed_with_its_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "SECONDS", 0.3)
    (place.inside / "a.txt").write_text("a" * 60 + "!")
    result = await place.use("grep", pattern="(a+)+$")
    assert result.status == "failed" and "not done" in told(result)


# Every way out.


def outside(place: Place) -> dict[str, str]:
    """Paths that lead out, each in its own way."""
    inside = place.inside
    (inside / "link").symlink_to(place.secret)
    (inside / "far").symlink_to("../secret.txt")
    (inside / "up").symlink_to("..")
    (inside / "twice").symlink_to("up")
    (inside / "proc").symlink_to("/proc/self/root")
    os.mkfifo(inside / "pipe")
    return {
        "dots": "../secret.txt",
        "dots deeper": "x/../../secret.txt",
        "absolute": str(place.secret),
        "absolute link": "link",
        "relative link": "far",
        "linked directory": "up/secret.txt",
        "link to a link": "twice/secret.txt",
        "magic link": f"proc{place.secret}",
        "home": "~/secret.txt",
        "home of root": "~root/.profile",
        "nul": "a\0b",
        "nothing": "",
        "fifo": "pipe",
        "device": "/dev/zero",
        "sibling with the same beginning": f"{place.inside}2/a",
    }


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("tool", ["read", "write", "edit", "glob", "grep"])
async def test_no_way_leads_out(place: Place, tool: str, strict: bool) -> None:
    (place.top / "inside2").mkdir()
    (place.top / "inside2" / "a").write_text("SECRET")
    more: dict[str, Any] = {
        "read": {},
        "write": {"content": "OVERWRITTEN"},
        "edit": {"old_string": "SECRET", "new_string": "OVERWRITTEN"},
        "glob": {"pattern": "*"},
        "grep": {"pattern": "SECRET"},
    }[tool]
    name = "path" if tool in ("glob", "grep") else "file_path"
    context = place.context(local=not strict)
    for way, path in outside(place).items():
        if name == "path" and way in ("nothing", "fifo"):
            continue  # no path is the directory itself; a pipe is never opened
        try:
            result = await place.use(tool, context, **{name: path}, **more)
        except Exception as error:  # pragma: no cover  # names the way that broke
            raise AssertionError(way) from error
        assert result.status == "failed", way
        assert "SECRET" not in told(result), way
    assert place.secret.read_text() == "SECRET"
    assert (place.top / "inside2" / "a").read_text() == "SECRET"


async def test_searching_follows_no_links(place: Place) -> None:
    outside(place)
    (place.inside / "a.txt").write_text("SECRET too")
    assert told(await place.use("grep", pattern="SECRET")) == f"{place.inside}/a.txt:1:SECRET too"
    found = told(await place.use("glob", pattern="**"))
    assert "secret.txt" not in found


async def test_links_that_stay_inside_are_followed(place: Place) -> None:
    (place.inside / "real.txt").write_text("here")
    (place.inside / "near").symlink_to("real.txt")
    (place.inside / "abs").symlink_to(place.inside / "real.txt")
    for name in ("near", "abs"):
        assert told(await place.use("read", file_path=name)).endswith("here")
    await place.use("write", file_path="near", content="new")
    assert (place.inside / "near").is_symlink()
    assert (place.inside / "real.txt").read_text() == "new"


async def test_a_file_with_a_second_name_is_not_for_strangers(place: Place) -> None:
    os.link(place.secret, place.inside / "hard")
    stranger = place.context(local=False)
    for tool, more in (("read", {}), ("edit", {"old_string": "SECRET", "new_string": "x"})):
        result = await place.use(tool, stranger, file_path="hard", **more)
        assert result.status == "failed" and "second name" in told(result)
    assert told(await place.use("grep", stranger, pattern="SECRET")) == "Nothing matches."
    # Writing never writes through: the name gets a file of its own.
    await place.use("write", stranger, file_path="hard", content="mine")
    assert (place.secret.read_text(), (place.inside / "hard").read_text()) == ("SECRET", "mine")


async def test_the_working_directory_may_itself_be_a_link(place: Place) -> None:
    alias = place.top / "alias"
    alias.symlink_to(place.inside)
    (place.inside / "a.txt").write_text("here")
    roots = PathGuard([str(alias)])
    assert roots.read_file("a.txt", 10)[1] == b"here"
    with pytest.raises(ToolError):
        roots.read_file("../secret.txt", 10)


@pytest.mark.skipif(sys.platform != "linux", reason="exchanges two names at once")
async def test_whoever_swaps_directories_for_links_meanwhile_gets_nothing(place: Place) -> None:
    """A racer exchanges a directory and a link to the outside as fast as it can."""
    real, link = place.inside / "d", place.inside / "l"
    real.mkdir()
    (real / "secret.txt").write_text("mine")
    link.symlink_to(place.top)
    stop = threading.Event()
    exchange = ctypes.CDLL(None).renameat2

    def race() -> None:
        here, there = os.fsencode(real), os.fsencode(link)
        while not stop.is_set():
            assert exchange(-100, here, -100, there, 2) == 0

    racer = threading.Thread(target=race)
    racer.start()
    seen: set[str] = set()
    try:
        context = place.context(local=False)
        for _ in range(300):
            for tool, more in (("read", {}), ("write", {"content": "mine"})):
                result = await place.use(tool, context, file_path="d/secret.txt", **more)
                seen.add(result.status)
                assert "SECRET" not in told(result)
            await asyncio.sleep(0)
    finally:
        stop.set()
        racer.join()
    assert place.secret.read_text() == "SECRET"
    assert "completed" in seen


@given(st.text(max_size=40))
def test_whatever_is_asked_for_stays_inside(path: str) -> None:
    roots = PathGuard(["/usr/lib"])
    try:
        place = roots.resolve(path)
    except ToolError:
        return
    assert place.path == "/usr/lib" or place.path.startswith("/usr/lib/")
    assert ".." not in Path(place.path).parts


@pytest.mark.parametrize("secret", ["", "e", "text", "1\ttext", "gone"])
async def test_no_secret_is_in_a_result_and_the_rest_stays_whole(place: Place, secret: str) -> None:
    (place.inside / "a").write_text("text")
    (place.inside / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 20)
    context = place.context()._replace(variables={"NAME": secret})
    read = await place.use("read", context, file_path="a")
    assert read.status == "completed"
    plain = await place.use("read", file_path="a")
    assert told(read) == (told(plain).replace(secret, "[NAME]") if secret else told(plain))
    picture = await place.use("read", context, file_path="picture.png")
    assert picture == await place.use("read", file_path="picture.png")
    missing = told(await place.use("read", context, file_path="gone"))
    assert not secret or secret not in missing.replace("[NAME]", "")
