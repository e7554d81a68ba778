"""Sessions of real Copilot homes are read as Copilot's own server and files answer for them."""

from typing import Any

from segue.model.content import Image, plain_text
from segue.model.event import AgentMessage, UserMessage
from segue.sources.copilot.reader import CopilotReader
from segue.sources.kit.bodies import time_of
from tests.sources.golden import Home, home_fixture, homes_fixture

homes = homes_fixture(__file__, lambda home: CopilotReader(str(home / ".copilot")))
home = home_fixture("copilot-1.0.43", "copilot-1.0.102")


def test_every_session_is_listed_and_no_deleted_one(home: Home) -> None:
    assert home.sessions.keys() == home.answers.keys()
    assert home.sessions.keys().isdisjoint(home.golden["deleted"])
    assert home.problems == []


def test_titles_are_those_of_the_workspace(home: Home) -> None:
    for session, answer in home.pairs():
        assert session.row.title == answer["title"]
        expected = "person" if answer["user_named"] == "true" else "auto"
        assert session.row.title_by == expected, answer["case"]


def test_directories_branches_and_models_are_those_of_the_session(home: Home) -> None:
    for session, answer in home.pairs():
        assert session.row.cwd == answer["cwd"]
        assert session.row.git_branch == answer["branch"]
        # Where the messages of 1.0.43 name no model, other records of the session do.
        assert session.model == (answer["model"] or "gpt-5.4")


def test_times_are_those_of_the_workspace_and_the_last_event(home: Home) -> None:
    for session, answer in home.pairs():
        assert session.row.created_at == time_of(answer["created_at"])
        assert session.row.updated_at == time_of(answer["last_event_at"])


def test_messages_and_calls_are_counted_once(home: Home) -> None:
    for session, answer in home.pairs():
        assert session.row.turns == answer["user_messages"], answer["case"]
        assert session.count("user_message") == answer["user_messages"], answer["case"]
        texts = answer["assistant_messages_with_text"]
        assert session.count("agent_message") == texts, answer["case"]
        assert session.count("agent_thought") == answer["reasoning_messages"], answer["case"]
        assert session.count("tool_call") == answer["tool_calls"], answer["case"]
        assert session.count("tool_result") == answer["tool_results"], answer["case"]
        assert session.count("compacted") == answer["compactions"], answer["case"]


def test_first_and_last_messages_are_the_same(home: Home) -> None:
    for session, answer in home.pairs():
        bodies = [event.body for event in session.conversation]
        prompts = [body for body in bodies if isinstance(body, UserMessage)]
        answers = [body for body in bodies if isinstance(body, AgentMessage)]
        assert plain_text(prompts[0].content) == answer["first_prompt"]
        last = plain_text(answers[-1].content) if answers else None
        assert last == answer["last_assistant_text"]


def test_tokens_are_those_that_copilot_counted(home: Home) -> None:
    for session, answer in home.pairs():
        if answer["case"] != "fork" or answer["tokens_usage_records"] is None:
            assert session.tokens == _tokens(answer), answer["case"]


def test_fork_pays_only_for_its_own_turn(home: Home) -> None:
    fork = home.case("fork")
    assert fork.tokens["output"] == 11  # one answer of the model stub
    assert fork.row.turns == 3
    if home.golden["version"] != "1.0.43":  # whose files do not name the parent
        assert fork.row.fork is not None
        assert fork.row.fork.session == home.answers[fork.row.id]["forked_from"]


def _tokens(answer: dict[str, Any]) -> dict[str, int]:
    """Return the tokens of the records of model calls, else of the shutdowns of each run."""
    counts = [answer["tokens_usage_records"] or {}]
    if answer["tokens_usage_records"] is None:
        counts = [tokens for run in answer["tokens_at_shutdown"] for tokens in run.values()]
    names = {"input": "inputTokens", "cached": "cacheReadTokens", "output": "outputTokens"}
    return {name: sum(tokens.get(field, 0) for tokens in counts) for name, field in names.items()}


def test_subagents_are_threads_of_their_session(home: Home) -> None:
    for session, answer in home.pairs():
        assert len(session.threads) == answer["subagents"], answer["case"]
    (thread,) = home.case("subagent").threads
    assert thread.kind == "explore" and thread.title
    assert thread.seq is not None, "the call that started it"
    if home.golden["version"] != "1.0.43":  # which counts the tokens of the whole session
        assert thread.usage.output_tokens == 26


def test_attached_image_is_in_the_prompt(home: Home) -> None:
    (prompt,) = (
        event.body
        for event in home.case("image").conversation
        if isinstance(event.body, UserMessage)
    )
    if home.golden["version"] == "1.0.43":  # which keeps only the path
        assert "file:///home/dev/notes/chart.png" in repr(prompt.content)
    else:
        (image,) = (block for block in prompt.content if isinstance(block, Image))
        assert image.mime == "image/png" and image.data


def test_no_session_runs(home: Home) -> None:
    assert {session.row.status for session in home.sessions.values()} == {"idle"}
