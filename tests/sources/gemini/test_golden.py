"""Sessions of real Gemini homes are read as Gemini itself and its files answer for them."""

from segue.model import clock
from segue.model.content import Image, plain_text
from segue.model.event import AgentMessage, Compacted, Interrupted, UserMessage
from segue.sources.gemini.reader import GeminiReader
from tests.sources.golden import Home, Homes, home_fixture, homes_fixture

homes = homes_fixture(__file__, lambda home: GeminiReader(str(home / "dev/.gemini")))
home = home_fixture("gemini-0.24.5", "gemini-0.61.0")
new_home = home_fixture("gemini-0.61.0")


def test_every_session_but_the_subagents_is_listed(home: Home) -> None:
    listed = {id for id, answer in home.answers.items() if answer["kind"] == "main"}
    assert home.sessions.keys() == listed
    assert home.golden["deleted_id"] not in home.sessions
    assert home.problems == []


def test_titles_are_summaries_or_first_prompts(home: Home) -> None:
    for session, answer in home.pairs():
        if answer["title"] is None:
            first_words = " ".join(answer["first_prompt"].split())[:40]
            assert session.row.title and session.row.title.startswith(first_words[:40].rstrip())
            assert session.row.title_by == "auto"
        else:
            assert session.row.title == answer["title"]
            assert session.row.title_by == "agent"


def test_directories_are_those_of_the_project(new_home: Home) -> None:
    for session, answer in new_home.pairs():
        assert session.row.cwd == answer["cwd"]


def test_directory_of_an_old_session_is_found_by_its_hash(homes: Homes) -> None:
    home = homes.read("gemini-0.24.5")
    cwds = {answer["cwd"]: session.row.cwd for session, answer in home.pairs()}
    # No file of the last project has a path in it.
    assert cwds == {
        "/home/dev/work/shop-api": "/home/dev/work/shop-api",
        "/home/dev/work/web app": "/home/dev/work/web app",
        "/home/dev/work/notes": "/",
    }


def test_times_and_models_are_those_of_the_session(home: Home) -> None:
    for session, answer in home.pairs():
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
        assert plain_text(prompts[0].content) == answer["first_prompt"]
        last = plain_text(answers[-1].content) if answers else None
        assert last == answer["last_assistant_text"]
        assert sum(isinstance(block, Image) for block in blocks) == answer["images"]


def test_tokens_are_counted_once_and_include_thoughts(home: Home) -> None:
    for session, answer in home.pairs():
        tokens = answer["tokens"]
        assert session.tokens == {
            "input": tokens["input"],
            "cached": tokens["cached"],
            "output": tokens["output"] + tokens["thoughts"],
        }, answer["label"]


def test_compressed_and_cancelled_turns_are_marked(new_home: Home) -> None:
    compressed = [event.body for event in new_home.case("compress").conversation]
    (body,) = (body for body in compressed if isinstance(body, Compacted))
    assert plain_text(body.summary).startswith("<state_snapshot>")
    cancelled = new_home.case("acp_image_and_cancel").conversation
    assert isinstance(cancelled[-1].body, Interrupted)


def test_subagents_are_threads_of_their_parent(new_home: Home) -> None:
    session = new_home.case("subagent")
    (thread,) = session.threads
    answer = new_home.answers[thread.id]
    assert answer["parent_id"] == session.row.id
    assert thread.kind == "generalist"
    assert thread.seq is not None
    assert thread.usage.output_tokens == answer["tokens"]["output"]
