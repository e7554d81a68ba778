"""The session picker in a real pseudo-terminal."""

import asyncio
import base64
import json
import re
import time
from pathlib import Path

import pytest

from segue.factory import open_hub
from segue.model.principal import LOCAL
from segue.sources import registry
from tests.claude.entries import Home, S, assistant, user
from tests.interfaces.cli.child import Run
from tests.interfaces.cli.screen import OpenScreen, Screen

UP, DOWN, ESCAPE = "\x1b[A", "\x1b[B", "\x1b"
RESUME, OTHER_TOOL, FORK, RENAME, TAG, ARCHIVE, DELETE, COPY = (
    "\x12",
    "\x0f",
    "\x06",
    "\x05",
    "\x14",
    "\x18",
    "\x04",
    "\x19",
)


@pytest.fixture
def sessions(run: Run, tmp_path: Path) -> dict[str, str]:
    """Three sessions, one of them in another directory: ids by title."""
    (tmp_path / "elsewhere").mkdir()
    created = {"Far away": run("new", "--title", "Far away", "--cwd", str(tmp_path / "elsewhere"))}
    created["Fix the parser"] = run("new", "--title", "Fix the parser")
    created["Write a poem"] = run("new", "--title", "Write a poem")
    ids = {title: done.stdout.strip() for title, done in created.items()}
    run("prompt", ids["Fix the parser"], "/say a needle in the hay")
    return ids


@pytest.fixture
def screen(
    environment: dict[str, str], tmp_path: Path, sessions: dict[str, str], open_screen: OpenScreen
) -> Screen:
    return open_screen(env=environment, cwd=str(tmp_path / "here"))


def selected(screen: Screen) -> str:
    """Return the title of the selected row, which is shown in reverse."""
    for line, row in enumerate(screen.lines):
        cell = screen._screen.buffer[line][2]
        if cell.reverse:
            title = re.sub(r"^\S?\s*\d+\w\s+", "", row.split("│")[0]).strip()
            return re.split(r"  +(?:here|elsewhere|project)$", title)[0]  # without the project
    return ""


def titles(run: Run, *words: str) -> list[str]:
    return [row["title"] for row in json.loads(run("list", "--format", "json", *words).stdout)]


def test_first_screen_lists_sessions_by_directory(screen: Screen, sessions: dict[str, str]) -> None:
    with screen:
        shown = screen.until(lambda shown: "needle in the hay" in shown and " 3\n" in shown)
        assert selected(screen) == "Fix the parser"
        plain = re.sub(r"\b\d+[smh]\b", "AGE", shown).replace(sessions["Fix the parser"], "ID")
        left = [line.split("│")[0].split() for line in plain.splitlines()]
        assert left[:6] == [
            ["segue", ">", "▏", "3"],
            ["In", "here"],
            ["AGE", "Fix", "the", "parser"],
            ["AGE", "Write", "a", "poem"],
            ["Everywhere"],
            ["AGE", "Far", "away", "elsewhere"],
        ]
        right = [line.partition("│ ")[2] for line in plain.splitlines()]
        assert right[1] == "ID"
        assert right[2].endswith("/here")
        assert right[3].startswith("2 messages, created ")
        assert "> /say a needle in the hay" in right and "a needle in the hay" in right
        assert screen.lines[-1].startswith("enter resume  tab read  ^O other tool")
        screen.press(ESCAPE)
        assert screen.ended() == 0


def test_moving_skips_headings(screen: Screen) -> None:
    with screen:
        screen.until("needle in the hay")
        screen.press(DOWN + DOWN)
        screen.until(lambda _: selected(screen) == "Far away")
        screen.press(DOWN)
        screen.press(UP)
        screen.until(lambda _: selected(screen) == "Write a poem")
        screen.press("\x1b[F")
        screen.until(lambda _: selected(screen) == "Far away")
        screen.press("\x1b[H")
        screen.until(lambda _: selected(screen) == "Fix the parser")
        screen.press("\x03")
        assert screen.ended() == 0


def test_typing_searches_titles_messages_and_ids(screen: Screen, sessions: dict[str, str]) -> None:
    with screen:
        screen.until("Everywhere")
        screen.press("n")
        screen.until(lambda shown: "> n▏" in shown and "Everywhere" in shown)
        screen.press("eedl")
        screen.until(lambda shown: "> needl▏" in shown and "poem" not in shown)
        assert selected(screen).startswith("Fix the parser")
        screen.press("\x7f" * 5)
        screen.until("Everywhere")
        screen.press("poem")
        screen.until(lambda _: selected(screen) == "Write a poem")
        screen.press(ESCAPE)
        screen.until("Everywhere")
        screen.press(sessions["Far away"])
        screen.until(lambda _: selected(screen) == "Far away")
        screen.press("\x15zzzz")
        screen.until("No sessions match.")


def test_search_lists_a_fork_below_the_session_whose_text_it_copied(
    screen: Screen, sessions: dict[str, str], run: Run
) -> None:
    run("fork", sessions["Fix the parser"], "--title", "Second approach")
    with screen:
        screen.until("Everywhere")
        screen.press("needle")
        screen.until(lambda shown: "Second approach" in shown and "poem" not in shown)
        assert selected(screen).startswith("Fix the parser")
        screen.press(DOWN)
        screen.until(lambda _: selected(screen) == "Second approach")


def test_help_explains_symbols_and_keys(screen: Screen) -> None:
    with screen:
        screen.until("? help  esc quit")
        screen.press("?")
        screen.until("Help: symbols and keys")
        for tool in registry.definitions():
            assert f"{tool.symbol}  {tool.label}" in screen.text
        assert "◇  another tool" in screen.text
        screen.press(DOWN * 30)
        screen.until("^O other tool")
        screen.press(ESCAPE)
        screen.until("Everywhere")
        screen.press("why?")
        screen.until("> why?▏")


def test_documentation_names_the_symbol_of_each_tool() -> None:
    page = Path("docs/cli.md").read_text(encoding="utf-8").replace("\n", " ")
    for tool in registry.definitions():
        assert f"{tool.symbol} {tool.label}" in page


def test_keys_rename_tag_fork_archive_and_delete(screen: Screen, run: Run) -> None:
    with screen:
        screen.until("Everywhere")
        screen.press(RENAME)
        screen.until("Title: Fix the parser▏")
        screen.press("\x15Mended\r")
        screen.until("Renamed.")
        assert selected(screen) == "Mended"
        screen.press(TAG + "done\r")
        screen.until("Mended #done")
        screen.until("│ #done")
        parent = screen.lines[1].partition("│ ")[2]
        screen.press(FORK)
        screen.until("Mended (fork)")
        screen.until(f"fork of {parent[:13]}")
        screen.until(lambda _: selected(screen).startswith("Mended (fork)"))
        screen.press(DELETE)
        screen.until("to the trash? y/n")
        screen.press("n")
        screen.until("Not deleted.")
        screen.press(DELETE + "y")
        screen.until("In the trash")
        screen.press(ARCHIVE)
        screen.until("Archived")
        screen.press("\x11")
        assert screen.ended() == 0
    assert len(titles(run)) == 2 and len(titles(run, "--archived")) == 3
    assert "Mended (fork)" in run("trash", "list").stdout


def test_copy_key_sends_the_id_to_the_clipboard(screen: Screen, sessions: dict[str, str]) -> None:
    with screen:
        screen.until("Everywhere")
        screen.press(COPY)
        screen.until("Copied")
        id = sessions["Fix the parser"].encode()
        assert b"\x1b]52;c;" + base64.b64encode(id) + b"\x07" in screen.raw


def test_tab_shows_the_conversation_and_returns(screen: Screen) -> None:
    with screen:
        screen.until("Everywhere")
        screen.press("\t")
        screen.until("(press any key)")
        screen.press(" ")
        screen.until("Everywhere")
        screen.press(ESCAPE)
        assert screen.ended() == 0


def test_search_counts_matches_and_shows_their_project(screen: Screen) -> None:
    with screen:
        screen.until("Everywhere")
        screen.press("far")
        shown = screen.until("1 of 3")
        assert re.search(r"Far away +elsewhere", shown)


def test_enter_continues_a_segue_session_here(screen: Screen) -> None:
    with screen:
        screen.until("Everywhere")
        screen.press("\r")
        screen.until(lambda shown: "Everywhere" not in shown and "needle" in shown)
        screen.press("/say once more with feeling\r")
        screen.until(
            lambda shown: (
                shown.count("once more with feeling") >= 2 and shown.rstrip()[-2:] == "\n>"
            )
        )
        time.sleep(0.2)  # Ctrl-D ends the input only after the prompt is shown
        screen.press("\x04")
        screen.until("Everywhere")


def test_resume_starts_the_tool_that_owns_the_session(
    environment: dict[str, str], tmp_path: Path, open_screen: OpenScreen
) -> None:
    home = Home(tmp_path / "claude")
    project = tmp_path / "project"
    project.mkdir()
    home.write([user("u1", None, "Why is it slow?", cwd=str(project))])
    tools = tmp_path / "bin"
    tools.mkdir()
    tool = tools / "claude"
    tool.write_text('#!/bin/sh\necho "claude $* in $(pwd)"\n')
    tool.chmod(0o755)
    env = {**environment, "CLAUDE_CONFIG_DIR": str(home.root), "HOME": str(tmp_path)}
    env["PATH"] = f"{tools}:{env['PATH']}"
    (tmp_path / "here").mkdir()
    with open_screen(env=env, cwd=str(tmp_path / "here"), columns=250) as screen:
        screen.until("Why is it slow?")
        screen.press(RESUME)
        screen.until(f"claude --resume {S} in {project}")
        assert screen.ended() == 0


def test_session_continues_in_another_tool_after_its_report(
    environment: dict[str, str], tmp_path: Path, home: Home, open_screen: OpenScreen
) -> None:
    codex = tmp_path / "codex"
    thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
    prompt = user("u1", None, "Why is it slow?", cwd=str(tmp_path))
    home.write([prompt, assistant("a1", "u1", [thought])])
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "codex").write_text('#!/bin/sh\necho "codex $1 in $(pwd)"\n')
    (tools / "codex").chmod(0o755)
    env = {**environment, "CODEX_HOME": str(codex), "PATH": str(tools)}
    with open_screen(env=env, cwd=str(tmp_path), columns=120) as screen:
        screen.until("1 message, created")
        screen.press(OTHER_TOOL)
        screen.until("Gemini CLI  (`gemini` is not on your PATH)")
        screen.press(ESCAPE)
        screen.until("1 message, created")
        screen.press(OTHER_TOOL)
        screen.until("Continue 'Why is it slow?' in\n")
        screen.press(DOWN * (screen.lines.index("Codex") - 1) + "\r")
        shown = screen.until("enter continue there")
        assert screen.lines[0] == "Continue 'Why is it slow?' in Codex"
        assert "1 prompt, 0 answers" in shown and "thoughts  left out" in shown
        screen.press(ESCAPE)
        screen.until("Gemini CLI")
        assert not list(codex.rglob("*.jsonl"))
        screen.press("\r")
        screen.until("enter continue there")
        screen.press("\r")
        screen.until(f"codex resume in {tmp_path}")
        assert screen.ended() == 0
    assert len(list(codex.rglob("*.jsonl"))) == 1


def test_reason_why_a_session_cannot_continue_is_shown_in_the_picker(screen: Screen) -> None:
    with screen:
        screen.until("Everywhere")
        screen.press(OTHER_TOOL)
        screen.until("enter show what the tool cannot hold")
        assert "segue  (no model is configured)" in screen.text
        screen.press(UP + DOWN * 20 + "\r")  # segue is the last
        screen.until("For segue: 1 prompt, 1 answer")
        screen.press("\r")
        shown = screen.until("Everywhere")
        assert "! " in shown and "no model" in shown
        screen.press(ESCAPE)
        assert screen.ended() == 0


def test_preview_depends_on_width_and_its_key(
    environment: dict[str, str], tmp_path: Path, sessions: dict[str, str], open_screen: OpenScreen
) -> None:
    with open_screen(env=environment, cwd=str(tmp_path / "here"), columns=40, lines=6) as screen:
        screen.until("Fix the parser")
        assert "│" not in screen.text
        screen.resize(120, 12)
        screen.until("│")
        screen.press("\x16")
        screen.until(lambda shown: "│" not in shown)


def test_empty_store_suggests_a_command(
    environment: dict[str, str], tmp_path: Path, open_screen: OpenScreen
) -> None:
    with open_screen(env=environment, cwd=str(tmp_path)) as screen:
        screen.until("No sessions yet")
        screen.press(ESCAPE)
        assert screen.ended() == 0


def test_list_in_a_terminal_is_a_table(
    environment: dict[str, str], tmp_path: Path, sessions: dict[str, str], open_screen: OpenScreen
) -> None:
    with open_screen("list", env=environment, cwd=str(tmp_path)) as screen:
        shown = screen.until("Far away")
        assert sessions["Far away"][:13] in shown and sessions["Far away"] not in shown
        assert screen.ended() == 0


def test_commands_confirm_in_a_terminal(
    environment: dict[str, str],
    tmp_path: Path,
    sessions: dict[str, str],
    run: Run,
    open_screen: OpenScreen,
) -> None:
    with open_screen("delete", "poem", env=environment, cwd=str(tmp_path)) as screen:
        screen.until("Move 1 session to the trash?")
        screen.press("n\r")
        assert screen.ended() == 130
    with open_screen("delete", "poem", env=environment, cwd=str(tmp_path)) as screen:
        screen.until("Move 1 session to the trash?")
        screen.press("y\r")
        screen.until(f"In the trash; undo with: segue restore {sessions['Write a poem']}")
        assert screen.ended() == 0
    assert "Write a poem" not in titles(run)
    for words, message in (
        (("restore", "poem"), "Restored."),
        (("tag", "poem", "verse"), "Tagged: verse"),
        (("tag", "poem", "--clear"), "Tag removed."),
        (("archive", "poem"), "Archived; "),
        (("unarchive", "poem"), "Unarchived."),
        (("rename", "poem", "An ode"), "Renamed to: An ode"),
    ):
        with open_screen(*words, env=environment, cwd=str(tmp_path)) as screen:
            screen.until(message)
            assert screen.ended() == 0
    assert run("rename", "ode", "A poem").stderr == ""  # not a terminal


def test_archived_sessions_have_their_own_list(screen: Screen, run: Run) -> None:
    with screen:
        screen.until("needle in the hay")
        screen.press(ARCHIVE)
        screen.until("Archived; ^A")
        screen.press("\x01")
        shown = screen.until("archived >")
        assert "Fix the parser" in shown and "Write a poem" not in shown
        assert "^X unarchive" in shown and "^A back" in shown
        screen.press("poem")
        screen.until("No sessions match.")
        screen.press("\x15needle")
        screen.until(lambda _: selected(screen).startswith("Fix the parser"))
        screen.press(ESCAPE)
        screen.until("archived > ▏")
        screen.press(ARCHIVE)
        screen.until(lambda shown: "Unarchived." in shown and "No archived sessions." in shown)
        screen.press("\x01")
        screen.until("Everywhere")
        screen.press("\x03")
    assert len(titles(run)) == 3


def test_more_matches_are_loaded_to_fill_the_screen(
    environment: dict[str, str], tmp_path: Path, open_screen: OpenScreen
) -> None:
    async def create_sessions() -> None:
        async with await open_hub(environment["SEGUE_DATA_DIR"], sources="none") as hub:
            for number in range(24):
                await hub.editor.create(LOCAL, title=f"needle {number}")

    asyncio.run(create_sessions())
    with open_screen(env=environment, cwd=str(tmp_path), lines=30) as screen:
        screen.until("needle 23")
        screen.press("needle")
        shown = screen.until(lambda shown: "> needle▏" in shown and "needle 0" in shown)
        assert sum("needle" in line.split("│")[0] for line in shown.splitlines()[1:]) == 24


def test_match_in_a_title_previews_the_conversation(
    screen: Screen, run: Run, sessions: dict[str, str]
) -> None:
    for number in range(6):
        run("rename", sessions["Fix the parser"], f"Mended {number}")
    with screen:
        screen.until("Everywhere")
        screen.press("mended")
        screen.until(lambda shown: "> mended▏" in shown and "needle in the hay" in shown)


def test_selection_keeps_its_position_when_its_session_leaves_the_list(
    environment: dict[str, str], tmp_path: Path, run: Run, open_screen: OpenScreen
) -> None:
    for number in range(5):
        run("new", "--title", f"Title {number}")
    with open_screen(env=environment, cwd=str(tmp_path / "here")) as screen:
        screen.until("Title 0")
        screen.press(DOWN + DOWN)
        screen.until(lambda _: selected(screen) == "Title 2")
        screen.press(ARCHIVE)
        screen.until("Archived;")
        assert selected(screen) == "Title 1"
        screen.press(DELETE + "y")
        screen.until("In the trash")
        assert selected(screen) == "Title 0"
        screen.press(ARCHIVE)
        screen.until(lambda shown: "Title 0" not in shown)
        assert selected(screen) == "Title 3"


def test_missing_tool_is_reported_in_the_picker(
    environment: dict[str, str], tmp_path: Path, home: Home, open_screen: OpenScreen
) -> None:
    with open_screen(env={**environment, "PATH": "/nowhere"}, cwd=str(tmp_path)) as screen:
        screen.until("2 messages, created")
        screen.press(RESUME)
        screen.until("`claude` is not on your PATH")
        screen.until(lambda shown: "anthropic:claude-sonnet-4-6" in shown and "gpt-5" in shown)
        screen.press(ESCAPE)
        assert screen.ended() == 0
