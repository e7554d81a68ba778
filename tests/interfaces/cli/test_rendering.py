"""Conversations in a terminal: Markdown, headers, tool names and diffs."""

import json
from pathlib import Path

import pytest

from segue.interfaces.cli.output.markdown import MarkdownBlocks, render_markdown
from tests.claude.entries import Home, S, user
from tests.interfaces.cli.child import Programs, Run
from tests.interfaces.cli.screen import OpenScreen

TEXT = """\
## Heading

Some **bold** text that is long enough to be wrapped at a word.

```python
print(1)
```
"""


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_markdown_is_split_into_whole_blocks(size: int) -> None:
    text = "One.\n\n- a\n\n- b\n\n```\nx\n\ny\n```\n\nTwo.\n\nThree."
    blocks, shown = MarkdownBlocks(), []
    for start in range(0, len(text), size):
        if block := blocks.add(text[start : start + size]):
            shown.append(block)
    assert "".join(shown) + blocks.rest == text
    assert blocks.rest == "Three."
    assert all(block.count("```") in (0, 2) for block in shown)
    assert any("- a\n\n- b" in block for block in shown)


def test_long_and_hostile_markdown_is_shown_as_text() -> None:
    for text in ("*" * 100_000, "> " * 5_000 + "x", "|" * 9_000, "[" * 9_000, "- " * 9_000):
        assert render_markdown(text, 40)
    assert "<b>x</b>" in render_markdown("<b>x</b>", 40)
    assert "<div>inside</div>" in render_markdown("<div>inside</div>\n\nafter", 40)


def test_show_renders_markdown_below_a_header(
    run: Run, environment: dict[str, str], tmp_path: Path, open_screen: OpenScreen
) -> None:
    run("prompt", "new", "--title", "My title", TEXT)
    here = str(tmp_path / "here")
    with open_screen(
        "show", "@", "--no-pager", env=environment, cwd=here, columns=50, lines=40
    ) as screen:
        shown = screen.until("\n\n print(1)")
        assert screen.ended() == 0
    assert "My title" in shown
    answer = run("show", "@").stdout
    assert "**bold**" in answer and "My title" not in answer  # not a terminal
    assert "Some bold text that is long enough to be wrapped\nat a word." in shown


def test_thoughts_are_rendered_as_markdown_too(
    run: Run, environment: dict[str, str], tmp_path: Path, open_screen: OpenScreen
) -> None:
    words = ("prompt", "new", "/think **Looking** around\n/say done")
    here = str(tmp_path / "here")
    for command in (words, ("show", "@", "--no-pager")):
        with open_screen(*command, env=environment, cwd=here, columns=50, lines=30) as screen:
            shown = screen.until("\ndone")
            assert screen.ended() == 0
        assert "\nLooking around" in shown
    assert "**Looking** around" in run("show", "@").stdout  # not a terminal


def test_prompt_streams_markdown_in_a_terminal(
    environment: dict[str, str], tmp_path: Path, open_screen: OpenScreen
) -> None:
    words = ("prompt", "new", TEXT)
    with open_screen(*words, env=environment, cwd=str(tmp_path), columns=50, lines=30) as screen:
        screen.until("print(1)")
        assert screen.ended() == 0
        shown = screen.text
    assert "\nHeading\n" in shown and "##" not in shown and "**" not in shown
    assert "Some bold text that is long enough to be wrapped\nat a word." in shown


def test_diff_is_shown_before_a_write_is_allowed(
    run: Run, environment: dict[str, str], tmp_path: Path, open_screen: OpenScreen
) -> None:
    here = tmp_path / "here"
    (here / "notes.txt").write_text("kept\nold line\n")
    words = ("prompt", "new", "/write notes.txt kept")
    with open_screen(*words, env=environment, cwd=str(here), lines=20) as screen:
        shown = screen.until("Your choice:")
        assert "notes.txt  +0 -1" in shown and "- old line" in shown
        assert shown.index("- old line") < shown.index("? Write notes.txt")
        screen.press("n\r")
        screen.until("Reject")
    assert (here / "notes.txt").read_text() == "kept\nold line\n"


def test_resume_writes_a_session_back_that_its_tool_has_deleted(
    run: Run, home: Home, programs: Programs, tmp_path: Path
) -> None:
    path = home.write([user("u1", None, "Why is it slow?", cwd=str(tmp_path))])
    before = path.read_bytes()
    run("import", S)
    path.unlink()
    done = run("resume", S, PATH=programs("claude"))
    assert done.returncode == 0, done.stderr
    assert "Claude Code has deleted this session. Wrote it to " in done.stderr
    assert [file.read_bytes() for file in home.root.rglob("*.jsonl")] == [before]


def test_deleted_session_that_is_resumed_in_another_directory_becomes_a_new_one(
    run: Run, home: Home, programs: Programs, tmp_path: Path
) -> None:
    path = home.write([user("u1", None, "Why is it slow?", cwd=str(tmp_path / "gone"))])
    run("import", S)
    path.unlink()
    moved = tmp_path / "moved"
    moved.mkdir()
    done = run("resume", S, "--cwd", str(moved), PATH=programs("claude"))
    assert done.returncode == 0, done.stderr
    (written,) = home.root.rglob("*.jsonl")
    lines = [json.loads(line) for line in written.read_text().splitlines()]
    assert {line["cwd"] for line in lines if "cwd" in line} == {str(moved)}
    assert written.stem != S


def test_resume_of_an_exported_session_does_not_say_that_its_tool_has_deleted_it(
    run: Run, home: Home, programs: Programs, tmp_path: Path
) -> None:
    path = home.write([user("u1", None, "Why is it slow?", cwd=str(tmp_path))])
    exported = tmp_path / "session.jsonl"
    exported.write_text(run("export", S).stdout)
    path.unlink()
    run("import", str(exported))
    problem = "Claude Code does not have this session here: it was imported from a file"
    done = run("resume", S, PATH=programs())
    assert f"{problem}, and `claude` is not on your PATH." in done.stderr
    assert f"`segue resume {S[:13]} --in claude" in done.stderr
    done = run("resume", S, PATH=programs("claude"))
    assert f"{problem}. Wrote it to " in done.stderr
    assert "deleted" not in done.stderr


def test_session_of_a_vanished_directory_names_relocate(
    run: Run, home: Home, programs: Programs
) -> None:
    home.write([user("u1", None, "Why is it slow?", cwd="/no/such/project")])
    done = run("resume", S, PATH=programs("claude"))
    assert done.returncode == 2
    assert f"`segue claude relocate {S[:13]} NEW_DIRECTORY`" in done.stderr
