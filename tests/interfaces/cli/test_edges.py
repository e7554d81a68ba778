"""Permission requests in a terminal, empty values and empty sessions."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pexpect
import pytest

from segue.factory import open_hub
from segue.hub import SearchPage
from segue.hub.sessions.catalog import SessionCatalog
from segue.interfaces.cli.commands import list
from segue.interfaces.cli.conversation.turns import run_turn
from segue.model.event import PermissionAsked, ToolResult
from segue.model.principal import LOCAL, Principal
from segue.model.query import Query
from tests.interfaces.cli.child import Run
from tests.interfaces.cli.screen import OpenScreen, OpenTerminal


@pytest.mark.parametrize(
    ("typed", "option"),
    [("y", "allow"), ("No", "reject"), ("2", "allow_always"), ("alw", "allow_always")],
)
def test_permission_request_accepts_a_number_a_name_or_yes_and_no(
    run: Run, environment: dict[str, str], typed: str, option: str, open_terminal: OpenTerminal
) -> None:
    id = run("new").stdout.strip()
    child = open_terminal("prompt", id, "/ask May I?", env=environment)
    child.expect("Your choice")
    child.sendline(typed)
    child.expect(pexpect.EOF)
    rows = json.loads(run("show", id, "--format", "json").stdout)
    assert [row["body"]["option"] for row in rows if row["type"] == "permission_answered"] == [
        option
    ]


def test_invalid_answer_lists_the_choices(
    run: Run, environment: dict[str, str], open_terminal: OpenTerminal
) -> None:
    child = open_terminal("prompt", "new", "/ask May I?", env=environment)
    for wrong in ("perhaps", "0", "4"):
        child.expect("Your choice")
        child.sendline(wrong)
        child.expect("enter 1 [(]Allow[)] or 2 [(]Always allow ask here[)] or 3 [(]Reject[)]")
    child.sendline("3")
    child.expect(pexpect.EOF)


def test_request_answered_by_another_client_is_not_asked_again(
    run: Run, environment: dict[str, str], tmp_path: Path, open_screen: OpenScreen
) -> None:
    id = run("new").stdout.strip()
    prompt = "/ask May I?\n/ask And now?\n/say thanks"
    with open_screen("prompt", id, prompt, env=environment, cwd=str(tmp_path)) as screen:
        screen.until("Your choice:")
        asyncio.run(answer_request(environment["SEGUE_DATA_DIR"], id))
        screen.until("answered elsewhere")
        screen.until(lambda shown: shown.count("Your choice:") == 2)
        screen.press("y\r")
        screen.until("thanks")
        assert screen.ended() == 0


@pytest.mark.parametrize(
    ("options", "exit_code", "shown"),
    [
        ((), 0, "(rejected: no terminal to ask in)"),
        (("--on-permission", "deny"), 0, "(rejected: --on-permission deny)"),
        (("--on-permission", "fail"), 1, "(cancelled: --on-permission fail)"),
    ],
)
def test_prompt_without_a_terminal_rejects_requests_or_fails(
    run: Run, options: tuple[str, ...], exit_code: int, shown: str
) -> None:
    done = run("prompt", "new", "/ask May I?\n/say thanks", *options)
    assert (done.returncode, shown in done.stderr) == (exit_code, True)
    assert ("thanks" in done.stdout) == (exit_code == 0)


def test_prompt_waits_for_another_client_if_the_user_says_so(
    run: Run, environment: dict[str, str], tmp_path: Path, open_screen: OpenScreen
) -> None:
    id = run("new").stdout.strip()
    words = ("prompt", id, "/ask May I?\n/say thanks", "--on-permission", "wait")
    with open_screen(*words, env=environment, cwd=str(tmp_path)) as screen:
        screen.until("waiting for an answer in a browser")
        assert "Your choice:" not in screen.text
        asyncio.run(answer_request(environment["SEGUE_DATA_DIR"], id))
        screen.until("thanks")
        assert screen.ended() == 0


async def test_prompt_without_a_terminal_waits_for_the_result_of_a_clients_tool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with await open_hub(tmp_path, sources="none") as hub, asyncio.timeout(30):
        id = (await hub.editor.create(LOCAL)).id
        await hub.turns.submit(LOCAL, id, "/custom lookup {}")
        while not (pending := (await hub.sessions.get(LOCAL, id)).pending):
            await asyncio.sleep(0.01)
        turn = asyncio.create_task(run_turn(hub, LOCAL, id, "/say next", "deny"))
        while not turn.done() and not await hub.turns.queued(LOCAL, id):
            await asyncio.sleep(0.01)
        result = ToolResult(call_id=pending[0], status="completed")
        await hub.turns.submit_tool_result(LOCAL, id, result)
        assert await turn == "end_turn"
    shown = capsys.readouterr()
    assert "next" in shown.out and "Waiting for the result of a tool" in shown.err


async def answer_request(directory: str, id: str) -> None:
    async with await open_hub(directory, sources="none") as hub:
        (request,) = await hub.history.events(LOCAL, id, types=["permission_asked"])
        assert isinstance(request.body, PermissionAsked)
        await hub.turns.answer(LOCAL, id, request.body.ask_id, "allow")


def test_end_of_input_at_a_request_cancels_the_turn(
    run: Run, environment: dict[str, str], open_terminal: OpenTerminal
) -> None:
    child = open_terminal("prompt", "new", "/ask May I?", env=environment)
    child.expect("Your choice")
    child.sendeof()
    child.expect("cancelled")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 1


@pytest.mark.parametrize("command", ["rename", "tag"])
def test_empty_value_suggests_clear(run: Run, command: str) -> None:
    id = run("new", "--title", "T", "--tag", "t").stdout.strip()
    for empty in ("", "  "):
        done = run(command, id, empty)
        assert done.returncode == 2 and done.stderr.endswith("is empty; use --clear to remove it\n")
    assert run(command, id, "--clear").returncode == 0


def test_show_reports_an_empty_session(run: Run) -> None:
    id = run("new").stdout.strip()
    done = run("show", id)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "The session has no messages yet.\n"


def test_show_separates_turns_and_indents_continued_lines(run: Run) -> None:
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


def test_empty_results_suggest_where_to_look(run: Run) -> None:
    run("archive", run("new", "--title", "needle", "--tag", "t").stdout.strip())
    for words in (("list", "--tag", "t"), ("search", "needle")):
        assert "--archived" in run(*words).stderr
        assert run(*words, "--archived").stderr == ""
    assert "no file and no session matches" in run("import", "gone.txt").stderr
    assert "`segue trash list`" in run("restore", "gone").stderr
    assert "argument (gone). Run `segue stats --help`" in run("stats", "gone").stderr


def test_missing_directory_is_accepted_with_a_warning(run: Run) -> None:
    created = run("new", "--cwd", "/not/here")
    assert (created.returncode, "directory /not/here does not exist" in created.stderr) == (0, True)
    forked = run("fork", created.stdout.strip(), "--cwd", "/not/there")
    assert (forked.returncode, "directory /not/there does not exist" in forked.stderr) == (0, True)
    assert run("new").stderr == ""


def test_ctrl_c_at_a_request_cancels_the_turn_but_not_the_chat(
    run: Run, environment: dict[str, str], open_terminal: OpenTerminal
) -> None:
    id = run("new").stdout.strip()
    child = open_terminal("resume", id, env=environment)
    child.expect("> ")
    child.sendline("/ask May I?")
    child.expect("Your choice")
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


async def test_search_reads_several_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[int] = []
    search = SessionCatalog.search

    async def counting_search(
        catalog: SessionCatalog, principal: Principal, query: Query, *more: Any
    ) -> SearchPage:
        limits.append(query.limit)
        return await search(catalog, principal, query, *more)

    monkeypatch.setattr(SessionCatalog, "search", counting_search)
    monkeypatch.setattr(list, "MAX_PAGE_SIZE", 2)
    async with await open_hub(tmp_path, sources="none") as hub:
        for number in range(5):
            await hub.editor.create(LOCAL, title=f"needle {number}")
        for limit, expected_more in ((3, True), (5, False), (6, False)):
            query = Query(text="needle", limit=limit)
            matches, more, _ = await list._search_newest(hub, LOCAL, query)
            assert (len({match.session.id for match in matches}), more) == (
                min(limit, 5),
                expected_more,
            )
    assert limits[:2] == [2, 1]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no HOME")
def test_an_empty_home_is_refused(run: Run) -> None:
    for words in (("list",), ("new",)):
        done = run(*words, HOME="", SEGUE_DATA_DIR="", XDG_DATA_HOME="")
        assert (done.returncode, "HOME is empty; set it" in done.stderr) == (2, True)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no HOME")
def test_an_empty_home_is_not_needed_with_a_data_directory(run: Run, tmp_path: Path) -> None:
    assert run("list", HOME="", SEGUE_DATA_DIR="", XDG_DATA_HOME=str(tmp_path)).returncode == 0
    assert (tmp_path / "segue" / "segue.db").exists()
