"""Answers at a terminal, empty values and empty sessions."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pexpect
import pytest

from segue.factory import open_hub
from segue.hub import Hub, SearchPage
from segue.interfaces.cli.commands import list
from segue.model.event import PermissionAsked
from segue.model.principal import LOCAL, Principal
from segue.model.query import Query
from tests.interfaces.cli.child import COMMAND, Run
from tests.interfaces.cli.screen import Screen


@pytest.mark.parametrize(
    ("typed", "option"),
    [("y", "allow"), ("No", "reject"), ("2", "allow_always"), ("alw", "allow_always")],
)
def test_a_question_takes_a_number_a_name_or_yes_and_no(
    run: Run, environment: dict[str, str], typed: str, option: str
) -> None:
    id = run("new").stdout.strip()
    child = pexpect.spawn(COMMAND, ["prompt", id, "/ask May I?"], env=environment, timeout=30)
    child.expect("Which")
    child.sendline(typed)
    child.expect(pexpect.EOF)
    rows = json.loads(run("show", id, "--format", "json").stdout)
    assert [row["body"]["option"] for row in rows if row["type"] == "permission_answered"] == [
        option
    ]


def test_an_answer_that_is_none_is_told_the_choices(run: Run, environment: dict[str, str]) -> None:
    child = pexpect.spawn(COMMAND, ["prompt", "new", "/ask May I?"], env=environment, timeout=30)
    for wrong in ("perhaps", "0", "4"):
        child.expect("Which")
        child.sendline(wrong)
        child.expect("answer 1 [(]Allow[)] or 2 [(]Always allow ask here[)] or 3 [(]Reject[)]")
    child.sendline("3")
    child.expect(pexpect.EOF)


def test_a_question_that_is_answered_elsewhere_is_over_here_too(
    run: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    id = run("new").stdout.strip()
    prompt = "/ask May I?\n/ask And now?\n/say thanks"
    with Screen("prompt", id, prompt, env=environment, cwd=str(tmp_path)) as screen:
        screen.until("Which:")
        asyncio.run(answered(environment["SEGUE_DATA_DIR"], id))
        screen.until("answered elsewhere")
        screen.until(lambda shown: shown.count("Which:") == 2)
        screen.press("y\r")
        screen.until("thanks")
        assert screen.ended() == 0


async def answered(directory: str, id: str) -> None:
    async with await open_hub(directory, sources="none") as hub:
        (asked,) = await hub.history.events(LOCAL, id, types=["permission_asked"])
        assert isinstance(asked.body, PermissionAsked)
        await hub.turns.answer(LOCAL, id, asked.body.ask_id, "allow")


def test_the_end_of_input_at_a_question_ends_the_turn(
    run: Run, environment: dict[str, str]
) -> None:
    child = pexpect.spawn(COMMAND, ["prompt", "new", "/ask May I?"], env=environment, timeout=30)
    child.expect("Which")
    child.sendeof()
    child.expect("cancelled")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 1


@pytest.mark.parametrize("command", ["rename", "tag"])
def test_an_empty_value_names_the_way_to_clear(run: Run, command: str) -> None:
    id = run("new", "--title", "T", "--tag", "t").stdout.strip()
    for empty in ("", "  "):
        done = run(command, id, empty)
        assert done.returncode == 2 and done.stderr.endswith("is empty; --clear takes it away\n")
    assert run(command, id, "--clear").returncode == 0


def test_an_empty_session_is_said_to_be_one(run: Run) -> None:
    id = run("new").stdout.strip()
    done = run("show", id)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "Nothing has been said in it yet.\n"


def test_turns_are_apart_and_what_has_several_lines_is_indented(run: Run) -> None:
    id = run("new").stdout.strip()
    run("prompt", id, "/tool grep one\\ntwo\n/say found")
    run("prompt", id, "/say well")
    assert run("show", id).stdout.splitlines() == [
        "> /tool grep one\\ntwo",
        "  /say found",
        "* grep (demo)",
        "  completed: one\\ntwo",
        "found",
        "",
        "> /say well",
        "well",
    ]


def test_what_is_not_found_names_where_else_to_look(run: Run) -> None:
    run("archive", run("new", "--title", "needle", "--tag", "t").stdout.strip())
    for words in (("list", "--tag", "t"), ("search", "needle")):
        assert "--archived" in run(*words).stderr
        assert run(*words, "--archived").stderr == ""
    assert "neither a file nor a session" in run("import", "gone.txt").stderr
    assert "`segue trash list`" in run("restore", "gone").stderr
    assert "argument (gone). `segue stats --help`" in run("stats", "gone").stderr


def test_a_directory_that_is_not_here_is_said_so_and_taken(run: Run) -> None:
    made = run("new", "--cwd", "/not/here")
    assert (made.returncode, "no directory /not/here here" in made.stderr) == (0, True)
    forked = run("fork", made.stdout.strip(), "--cwd", "/not/there")
    assert (forked.returncode, "no directory /not/there here" in forked.stderr) == (0, True)
    assert run("new").stderr == ""


def test_ctrl_c_at_a_question_ends_the_turn_and_not_the_conversation(
    run: Run, environment: dict[str, str]
) -> None:
    id = run("new").stdout.strip()
    child = pexpect.spawn(COMMAND, ["resume", id], env=environment, timeout=30)
    child.expect("> ")
    child.sendline("/ask May I?")
    child.expect("Which")
    child.sendintr()
    child.expect("cancelled")
    child.expect("> ")
    child.sendline("/say still here")
    child.expect("still here\r\n")
    child.expect("still here\r\n")
    child.expect("> ")
    child.sendeof()
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


async def test_a_search_gives_more_than_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    search = Hub.search

    async def counted(hub: Hub, principal: Principal, query: Query, *more: Any) -> SearchPage:
        asked.append(query.limit)
        return await search(hub, principal, query, *more)

    monkeypatch.setattr(Hub, "search", counted)
    monkeypatch.setattr(list, "MOST", 2)
    async with await open_hub(tmp_path, sources="none") as hub:
        for number in range(5):
            await hub.editor.create(LOCAL, title=f"needle {number}")
        for wanted, rest in ((3, True), (5, False), (6, False)):
            query = Query(text="needle", limit=wanted)
            found, more = await list._newest(hub, LOCAL, query)
            assert (len({each.session.id for each in found}), more) == (min(wanted, 5), rest)
    assert asked[:2] == [2, 1]
