"""Sessions of real Codex homes are read as Codex's own app server answers for them."""

from typing import Any

from segue.model.content import plain_text, truncate_prompt
from segue.model.event import AgentMessage, UserMessage
from segue.sources.codex.reader import CodexReader
from tests.sources.golden import Home, home_fixture, homes_fixture

homes = homes_fixture(__file__, lambda home: CodexReader(str(home / ".codex")))
home = home_fixture("codex-0.128.0", "codex-0.166.0")


def test_every_thread_but_the_subagents_is_listed(home: Home) -> None:
    listed = {id for id, answer in home.answers.items() if answer["parent_thread"] is None}
    assert home.sessions.keys() == listed
    assert home.sessions.keys().isdisjoint(home.golden["deleted"])
    assert home.problems == []


def test_titles_are_names_or_first_prompts(home: Home) -> None:
    for session, answer in home.pairs():
        assert session.row.title == truncate_prompt(answer["title"])
        assert session.row.title_by == ("auto" if answer["name"] is None else "person")


def test_directories_branches_and_models_are_those_of_the_thread(home: Home) -> None:
    for session, answer in home.pairs():
        assert session.row.cwd == answer["cwd"]
        assert session.row.git_branch == answer["branch"]
        assert session.model == answer["model"]


def test_times_are_those_of_the_thread(home: Home) -> None:
    for session, answer in home.pairs():
        # Codex's database has the moment of its own writes, some milliseconds later or earlier.
        assert abs(session.row.created_at / 1000 - answer["created_at_ms"]) < 300
        assert abs(session.row.updated_at / 1000 - answer["updated_at_ms"]) < 400


def test_messages_and_calls_are_counted_once(home: Home) -> None:
    for session, answer in home.pairs():
        assert session.count("user_message") == answer["user_messages"], answer["case"]
        assert session.count("agent_message") == answer["assistant_messages"], answer["case"]
        assert session.count("agent_thought") == answer["reasoning_items"], answer["case"]
        assert session.count("tool_call") == answer["tool_calls"], answer["case"]
        assert session.count("tool_result") == answer["tool_results"], answer["case"]
        messages = answer["user_messages"] + answer["assistant_messages"]
        assert session.row.messages == messages, answer["case"]
        assert session.row.turns == answer["user_messages"], answer["case"]


def test_first_and_last_messages_are_the_same(home: Home) -> None:
    for session, answer in home.pairs():
        bodies = [event.body for event in session.conversation]
        prompts = [body for body in bodies if isinstance(body, UserMessage)]
        answers = [body for body in bodies if isinstance(body, AgentMessage)]
        assert plain_text(prompts[0].content) == answer["first_prompt"]
        last = plain_text(answers[-1].content) if answers else None
        assert last == answer["last_assistant_text"]


def test_tokens_are_those_of_the_thread_without_the_inherited_ones(home: Home) -> None:
    for session, answer in home.pairs():
        expected = _tokens(answer)
        if answer["forked_from"] is not None:
            parent = home.answers[answer["forked_from"]]
            assert session.tokens["input"] < expected["input"]
            assert session.tokens["input"] < _tokens(parent)["input"]
        else:
            assert session.tokens == expected, answer["case"]


def _tokens(answer: dict[str, Any]) -> dict[str, int]:
    tokens = answer["tokens"] or {}
    names = {
        "input": "input_tokens",
        "cached": "cached_input_tokens",
        "output": "output_tokens",
    }
    return {name: tokens.get(field, 0) for name, field in names.items()}


def test_archived_threads_are_archived(home: Home) -> None:
    for session, answer in home.pairs():
        assert (session.row.archived_at is not None) == answer["archived"]


def test_forks_name_their_parent(home: Home) -> None:
    for session, answer in home.pairs():
        parent = None if session.row.fork is None else session.row.fork.session
        assert parent == answer["forked_from"]


def test_fork_pays_only_for_its_own_turn(home: Home) -> None:
    fork = home.case("fork")
    assert fork.tokens["output"] == 11  # one answer of the model stub
    assert fork.row.messages == 6


def test_subagents_are_threads_of_their_parent(home: Home) -> None:
    children = {
        (answer["parent_thread"], id)
        for id, answer in home.answers.items()
        if answer["parent_thread"]
    }
    threads = {
        (id, thread.id) for id, session in home.sessions.items() for thread in session.threads
    }
    assert threads == children and children
    for id, session in home.sessions.items():
        for thread in session.threads:
            answer = home.answers[thread.id]
            assert thread.kind == "explorer" and thread.title
            assert thread.seq is not None, f"the call that started {thread.id} in {id}"
            assert thread.usage.output_tokens == answer["tokens"]["output_tokens"]
