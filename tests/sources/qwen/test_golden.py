"""Sessions of real Qwen homes are read as Qwen itself and its files answer for them."""

from segue.model import clock
from segue.model.content import Image, plain_text
from segue.model.event import AgentMessage, Compacted, Failed, UserMessage
from segue.sources.qwen.reader import QwenReader
from tests.sources.golden import Home, home_fixture, homes_fixture

homes = homes_fixture(__file__, lambda home: QwenReader(str(home / "dev/.qwen")))
home = home_fixture("qwen-0.7.1", "qwen-0.24.4")
new_home = home_fixture("qwen-0.24.4")


def test_every_session_but_the_subagents_is_listed(home: Home) -> None:
    listed = {id for id, answer in home.answers.items() if answer.get("kind") != "subagent"}
    assert home.sessions.keys() == listed
    assert home.problems == []


def test_titles_are_custom_titles_or_first_prompts(home: Home) -> None:
    for session, answer in home.pairs():
        if answer["title"] is None:
            prompt = answer.get("cli", {}).get("prompt") or answer["first_prompt"]
            first_words = " ".join(prompt.split())[:40].rstrip()
            assert session.row.title and session.row.title.startswith(first_words)
            assert session.row.title_by == "auto"
        else:
            assert session.row.title == answer["title"]
            assert session.row.title_by == "person"


def test_prompt_without_its_files_is_the_title(new_home: Home) -> None:
    assert new_home.case("image").row.title == "What is in this picture? @pic.png"


def test_directories_branches_times_and_models_are_those_of_the_session(home: Home) -> None:
    for session, answer in home.pairs():
        assert session.row.cwd == answer["cwd"]
        assert session.row.git_branch == answer["branch"]
        assert session.row.created_at == clock.from_rfc3339(answer["created_at"])
        assert session.row.updated_at == clock.from_rfc3339(answer["updated_at"])
        assert session.model == answer["model"]


def test_messages_and_calls_are_counted_once(home: Home) -> None:
    home.check_counts()


def test_first_and_last_messages_and_pictures_are_the_same(home: Home) -> None:
    for session, answer in home.pairs():
        bodies = [event.body for event in session.conversation]
        prompts = [body for body in bodies if isinstance(body, UserMessage)]
        answers = [body for body in bodies if isinstance(body, AgentMessage)]
        blocks = [block for body in prompts for block in body.content]
        images = sum(isinstance(block, Image) for block in blocks)
        assert images == answer["images"]
        if not images:
            assert plain_text(prompts[0].content) == answer["first_prompt"]
        last = plain_text(answers[-1].content) if answers else None
        assert last == answer["last_assistant_text"]


def test_tokens_are_those_of_the_replies_without_the_inherited_ones(home: Home) -> None:
    for session, answer in home.pairs():
        expected = {name: answer["tokens"][name] for name in ("input", "cached", "output")}
        if answer["forked_from"]:
            parent = home.answers[answer["forked_from"]]
            expected = {name: expected[name] - parent["tokens"][name] for name in expected}
        assert session.tokens == expected, answer["label"]


def test_fork_names_its_parent(new_home: Home) -> None:
    forks = {
        id: session.row.fork.session
        for id, session in new_home.sessions.items()
        if session.row.fork
    }
    answers = {id: a["forked_from"] for id, a in new_home.answers.items() if a.get("forked_from")}
    assert forks == answers and forks


def test_compressions_and_errors_are_marked(new_home: Home) -> None:
    compressed = [event.body for event in new_home.case("compress").conversation]
    (body,) = (body for body in compressed if isinstance(body, Compacted))
    assert (body.trigger, body.tokens_before, body.tokens_after) == ("manual", 160, 92)
    assert plain_text(body.summary).startswith("<state_snapshot>")
    failed = [event.body for event in new_home.case("api_error").conversation]
    (error,) = (body for body in failed if isinstance(body, Failed))
    assert error.message.startswith("400 ")


def test_subagents_are_threads_of_their_parent(new_home: Home) -> None:
    session = new_home.case("subagent")
    (thread,) = session.threads
    answer = new_home.answers[thread.id]
    assert answer["parent_id"] == session.row.id
    assert (thread.kind, thread.title) == ("general-purpose", "count files")
    assert thread.seq is not None
    assert thread.usage.output_tokens == answer["tokens"]["output"]
