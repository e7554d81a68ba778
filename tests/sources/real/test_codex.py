"""Codex itself writes sessions, and segue reads them as Codex's app server shows them."""

from collections.abc import Iterator
from typing import Any

import pytest

from segue.model.content import Diff, Image, plain_text, truncate_prompt
from segue.model.event import AgentMessage, ToolCall, ToolResult, UserMessage
from tests.sources.golden import ReadSession, read_home

from .codex import VERSIONS, Codex, Thread
from .programs import Home
from .scripted_model import running_model, script

pytestmark = pytest.mark.full

PATCH = "*** Begin Patch\n*** Add File: made.txt\n+one\n+two\n*** End Patch\n"


class World:
    """Threads that Codex wrote, by the case that they are of; what Codex and segue say of them."""

    def __init__(self, codex: Codex, cases: dict[str, str], index: Any) -> None:
        self.codex = codex
        self.cases = cases
        self.threads = codex.threads()
        read = read_home(codex.reader(), index)
        self.sessions = read.sessions
        self.problems = read.problems

    def session(self, case: str) -> ReadSession:
        """Return what segue reads of a case."""
        return self.sessions[self.cases[case]]

    def pairs(self) -> list[tuple[ReadSession, Thread]]:
        """Return each session with Codex's answer."""
        return [(self.sessions[id], self.threads[id]) for id in self.cases.values()]


@pytest.fixture(scope="module", params=VERSIONS)
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("codex")
    with running_model() as model:
        codex = Codex(request.param, Home(directory), model)
        yield World(codex, write_cases(codex), directory / "codex.index")


def write_cases(codex: Codex) -> dict[str, str]:
    """Let Codex write a thread for each case, and return their ids."""
    cases = {}
    cases["plain"] = codex.prompt("Case plain", {"say": "Hello."})
    cases["tools"] = codex.prompt(
        "Case tools",
        {"think": "Look first.", "say": "I look.", "calls": [["shell", {"command": "echo ok"}]]},
        {"calls": [["shell", {"command": "echo bad >&2; exit 3"}]]},
        {"calls": [["shell", {"command": "echo a"}], ["shell", {"command": "echo b"}]]},
        {"say": "All of them ran."},
    )
    cases["edit"] = codex.prompt(
        "Case edit", {"calls": [["patch", {"input": PATCH}]]}, {"say": "Written."}, model="gpt-5.5"
    )
    cases["image"] = codex.prompt_with_image("Case image", {"say": "A pixel."})
    cases["turns"] = codex.prompt("Case turns", {"say": "One."})
    codex.resume(cases["turns"], "Case turns again", {"say": "Two."})
    cases["interrupt"] = codex.interrupt("Case interrupt")
    cases["named"] = codex.prompt("Case named", {"say": "Hello."})
    cases["archived"] = codex.prompt("Case archived", {"say": "Hello."})
    with codex.app_server() as server:
        server.call("thread/archive", threadId=cases["archived"])
        if codex.has_database:
            server.call("thread/name/set", threadId=cases["named"], name="A name")
        fork = server.call("thread/fork", threadId=cases["turns"])
    cases["fork"] = fork["thread"]["id"]
    codex.resume(cases["fork"], "Case fork", {"say": "Three."})
    cases["compacted"] = codex.prompt("Case compacted", {"say": "Hello."})
    codex.compact(cases["compacted"])
    codex.resume(cases["compacted"], "Case compacted again", {"say": "Hello again."})
    cases["undone"] = codex.prompt("Case undone", {"say": "One."})
    codex.resume(cases["undone"], "Case undone again", {"say": "Two."})
    codex.undo_last_turn(cases["undone"])
    codex.resume(cases["undone"], "Case undone at last", {"say": "Three."})
    child = script(
        "Child task", {"calls": [["shell", {"command": "echo child"}]]}, {"say": "Child done."}
    )
    cases["subagent"] = codex.prompt(
        "Case subagent",
        {"calls": [["spawn_agent", {"message": child, "agent_type": "explorer"}]]},
        {"calls": [["shell", {"command": "sleep 2"}]]},
        {"say": "Both are done."},
        model="other-model",  # Codex offers subagents to models that it does not know
    )
    return cases


def test_every_thread_is_listed_once(world: World) -> None:
    assert world.sessions.keys() == set(world.cases.values())
    assert world.threads.keys() == set(world.cases.values())
    assert world.problems == []


def test_titles_directories_and_the_archive_are_those_that_codex_shows(world: World) -> None:
    for session, thread in world.pairs():
        assert session.row.title == truncate_prompt(thread.name or thread.preview)
        assert session.row.cwd == thread.cwd
        assert (session.row.archived_at is not None) == thread.archived


def test_messages_are_those_that_codex_shows(world: World) -> None:
    for case, id in world.cases.items():
        session = world.sessions[id]
        items = world.codex.items(id)
        assert session.count("user_message") == items["userMessage"], case
        assert session.count("agent_message") == items["agentMessage"], case
        assert session.row.turns == items["userMessage"], case


def test_tokens_are_those_that_the_model_reported(world: World) -> None:
    cases = ("plain", "tools", "edit", "image", "turns", "named", "archived", "fork")
    for case in cases:
        usage = world.codex.model.usage(f"Case {case}")
        assert world.session(case).tokens == usage._asdict(), case


def test_tokens_of_an_undone_turn_count_as_codex_counts_them(world: World) -> None:
    tokens = world.session("undone").tokens
    tokens_used = world.codex.tokens_used(world.cases["undone"])
    assert tokens["input"] + tokens["output"] == tokens_used


def test_tool_calls_have_their_results_and_exit_codes(world: World) -> None:
    bodies = [event.body for event in world.session("tools").conversation]
    calls = [body.call_id for body in bodies if isinstance(body, ToolCall)]
    results = {body.call_id: body for body in bodies if isinstance(body, ToolResult)}
    assert len(calls) == 4 and set(calls) == results.keys()
    assert [results[call].exit_code for call in calls] == [0, 3, 0, 0]
    assert [results[call].status for call in calls] == ["completed", "failed"] + ["completed"] * 2


def test_patch_is_a_change_of_a_file(world: World) -> None:
    if not (world.codex.home.project / "made.txt").exists():
        pytest.skip("this version offers no patches to the model")
    bodies = [event.body for event in world.session("edit").conversation]
    (call,) = [body for body in bodies if isinstance(body, ToolCall)]
    (diff,) = [block for block in call.content if isinstance(block, Diff)]
    assert (diff.path, diff.old, diff.new) == ("made.txt", None, "one\ntwo\n")


def test_image_is_part_of_its_prompt(world: World) -> None:
    bodies = [event.body for event in world.session("image").conversation]
    (prompt,) = [body for body in bodies if isinstance(body, UserMessage)]
    assert [type(block) for block in prompt.content].count(Image) == 1


def test_interrupted_turn_is_over(world: World) -> None:
    session = world.session("interrupt")
    assert session.row.status == "idle"
    assert session.count("interrupted") == 1


def test_fork_has_the_history_of_its_parent(world: World) -> None:
    fork = world.session("fork")
    assert fork.row.fork is not None and fork.row.fork.session == world.cases["turns"]
    assert fork.row.messages == 6


def test_undone_turn_is_not_part_of_the_conversation(world: World) -> None:
    bodies = [event.body for event in world.session("undone").conversation]
    texts = [plain_text(body.content) for body in bodies if isinstance(body, AgentMessage)]
    assert texts == ["One.", "Three."]


def test_subagent_is_a_thread_of_its_session(world: World) -> None:
    session = world.session("subagent")
    if not session.count("tool_call"):
        pytest.skip("this version has no subagents")
    (thread,) = session.threads
    assert thread.kind == "explorer" and thread.title is not None and thread.seq is not None
    assert thread.usage.output_tokens == world.codex.model.usage("Child task").output
    usage = world.codex.model.usage("Case subagent")
    assert session.tokens == usage._asdict()
