"""Sessions of real Kimi Code homes are read as Kimi Code's own list and files answer for them."""

import pytest

from segue.model.content import Image, plain_text
from segue.model.event import AgentMessage, Failed, Interrupted, ToolResult, UserMessage
from segue.sources.kimi.reader import KimiReader
from segue.sources.kit.bodies import prompt_title, time_of
from tests.sources.golden import Home, home_fixture, homes_fixture

homes = homes_fixture(__file__, lambda home: KimiReader(str(home / ".kimi-code")))
home = home_fixture("kimi-0.20.0", "kimi-2.1.0")


def test_every_session_is_listed(home: Home) -> None:
    listed = {id for id, answer in home.answers.items() if "kind" not in answer}
    assert home.sessions.keys() == listed
    assert home.problems == []


def test_titles_are_those_of_the_state_or_first_prompts(home: Home) -> None:
    for session, answer in home.pairs():
        assert session.row.title == (answer["title"] or prompt_title(answer["first_prompt"]))
        assert session.row.title_by == ("person" if answer["title_custom"] else "auto")


def test_directories_and_models_are_those_of_the_session(home: Home) -> None:
    for session, answer in home.pairs():
        assert session.row.cwd == answer["cwd"]
        # A session without an answer has the model that it was started with.
        assert session.model == (answer["model"] or "stub")


def test_times_are_those_of_the_state(home: Home) -> None:
    for session, answer in home.pairs():
        assert session.row.created_at == time_of(answer["created_at"])
        updated_at = time_of(answer["updated_at"])
        assert updated_at is not None
        # Version 0.20.0 writes the time when a turn begins, and a killed process none.
        assert 0 <= session.row.updated_at - updated_at < 600_000


def test_messages_and_calls_are_counted_once(home: Home) -> None:
    for session, answer in home.pairs():
        label = answer["label"]
        assert session.row.turns == answer["user_messages"], label
        assert session.count("user_message") == answer["user_messages"], label
        assert session.count("agent_thought") == answer["thoughts"], label
        assert session.count("tool_call") == answer["tool_calls"], label
        assert session.count("tool_result") == answer["tool_results"], label
        assert session.count("compacted") == answer["compactions"], label
        bodies = [event.body for event in session.conversation]
        failed = [
            body for body in bodies if isinstance(body, ToolResult) and body.status != "completed"
        ]
        assert len(failed) == answer["failed_tool_calls"], label


def test_first_and_last_messages_are_the_same(home: Home) -> None:
    for session, answer in home.pairs():
        bodies = [event.body for event in session.conversation]
        prompts = [body for body in bodies if isinstance(body, UserMessage)]
        answers = [body for body in bodies if isinstance(body, AgentMessage)]
        assert plain_text(prompts[0].content) == answer["first_prompt"]
        last = plain_text(answers[-1].content) if answers else None
        assert last == answer["last_assistant_text"]
        images = [block for prompt in prompts for block in prompt.content]
        assert sum(isinstance(block, Image) for block in images) == answer["images"]


def test_tokens_are_those_of_the_usage_records_without_the_inherited_ones(home: Home) -> None:
    for session, answer in home.pairs():
        expected = {name: answer["tokens"][name] for name in ("input", "cached", "output")}
        if answer["forked_from"] is not None:
            parent = home.answers[answer["forked_from"]]["tokens"]
            expected = {name: count - parent[name] for name, count in expected.items()}
        assert session.tokens == expected, answer["label"]


def test_archived_sessions_are_archived(home: Home) -> None:
    for session, answer in home.pairs():
        assert (session.row.archived_at is not None) == answer["archived"]


def test_forks_name_their_parent(home: Home) -> None:
    for session, answer in home.pairs():
        parent = None if session.row.fork is None else f"session_{session.row.fork.session}"
        assert parent == answer["forked_from"]


def test_subagents_are_threads_of_their_parent(home: Home) -> None:
    threads = {
        (id, thread.id): thread
        for id, session in home.sessions.items()
        for thread in session.threads
    }
    answers = home.golden["sessions"]
    subagents = [answer for answer in answers if answer.get("kind") == "subagent"]
    children = {(answer["parent_id"], answer["id"]): answer for answer in subagents}
    assert threads.keys() == children.keys() and children
    for key, thread in threads.items():
        assert (thread.kind, thread.title) == ("coder", "count files")
        assert thread.seq is not None, "the call that started it"
        assert thread.usage.output_tokens == children[key]["tokens"]["output"]


def test_failed_and_cancelled_turns_say_so(home: Home) -> None:
    if home.golden["version"] == "0.20.0":
        pytest.skip("this version does not record the end of a turn")
    bodies = [event.body for event in home.case("api_error").conversation]
    (failed,) = (body for body in bodies if isinstance(body, Failed))
    assert failed.code == "provider.api_error" and failed.message.startswith("400 ")
    bodies = [event.body for event in home.case("acp_image_and_cancel").conversation]
    assert sum(isinstance(body, Interrupted) for body in bodies) == 1
