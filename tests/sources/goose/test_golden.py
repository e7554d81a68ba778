"""Sessions of real Goose homes are read as Goose's own export has them."""

from segue.model.content import Diff, plain_text
from segue.model.event import AgentMessage, Compacted, ToolCall, ToolResult, UserMessage
from segue.sources.goose.reader import GooseReader
from segue.sources.kit import bodies
from tests.sources.golden import Home, home_fixture, homes_fixture

homes = homes_fixture(
    __file__, lambda home: GooseReader(str(home / "dev/.local/share/goose/sessions"))
)
home = home_fixture("goose-1.37.0", "goose-1.52.0")


def test_every_session_but_the_subagents_is_listed(home: Home) -> None:
    listed = {id for id, row in home.answers.items() if row["session_type"] != "sub_agent"}
    assert home.sessions.keys() == listed
    assert home.golden["deleted_id"] not in home.sessions
    assert home.problems == []


def test_titles_directories_models_and_times_are_those_of_the_export(home: Home) -> None:
    for session, answer in home.pairs():
        row = session.row
        assert row.title == answer["title"]
        assert row.title_by == ("person" if answer["title_custom"] else "agent")
        assert row.cwd == answer["cwd"]
        assert session.model == answer["model"]
        assert row.created_at == bodies.time_of(answer["created_at"])
        assert row.updated_at == bodies.time_of(answer["updated_at"])
        assert row.archived_at is None


def test_messages_calls_and_results_are_counted_once(home: Home) -> None:
    for session, answer in home.pairs():
        case = answer.get("label")
        assert session.count("user_message") == answer["user_messages"], case
        assert session.row.turns == answer["user_messages"], case
        assert session.count("agent_thought") == answer["thoughts"], case
        assert session.count("tool_call") == answer["tool_calls"], case
        results = [event.body for event in session.conversation if event.type == "tool_result"]
        assert len(results) == answer["tool_results"], case
        failed = [body for body in results if getattr(body, "status", "") == "failed"]
        assert len(failed) == answer["failed_tool_calls"], case


def test_first_and_last_messages_are_the_same(home: Home) -> None:
    for session, answer in home.pairs():
        texts: dict[type, list[str | None]] = {UserMessage: [], AgentMessage: []}
        for event in session.conversation:
            if isinstance(event.body, UserMessage | AgentMessage):
                texts[type(event.body)].append(plain_text(event.body.content))
        assert texts[UserMessage][0] == answer["first_prompt"]
        assert (texts[AgentMessage] or [None])[-1] == answer["last_assistant_text"]


def test_tokens_and_costs_are_the_totals_of_the_session(home: Home) -> None:
    for session, answer in home.pairs():
        tokens = answer["tokens"]
        expected = {name: tokens[name] or 0 for name in ("input", "cached", "output")}
        assert session.tokens == expected, answer.get("label")
        cost = round((tokens["cost"] or 0) * 1_000_000)
        assert abs((session.row.usage.cost or 0) - cost) <= 1, answer.get("label")


def test_compaction_keeps_the_messages_before_it(home: Home) -> None:
    session = home.case("compress")
    (compacted,) = (event.body for event in session.conversation if event.type == "compacted")
    assert isinstance(compacted, Compacted) and compacted.trigger == "manual"
    assert plain_text(compacted.summary).startswith("<state_snapshot>")


def test_fork_names_its_parent(home: Home) -> None:
    parent, fork = home.case("basics").row, home.case("fork").row
    assert fork.fork is not None and fork.fork.session == parent.id
    assert fork.messages > parent.messages


def test_subagent_is_a_thread_of_its_parent(home: Home) -> None:
    (thread,) = home.case("subagent").threads
    answer = home.answers[thread.id]
    assert (thread.kind, thread.title) == ("sub_agent", answer["title"])
    assert thread.usage.output_tokens == answer["tokens"]["output"]
    assert thread.seq is not None, "the call that started it"


def test_edit_is_a_diff_and_a_failed_command_has_failed(home: Home) -> None:
    events = [event.body for event in home.case("basics").conversation]
    calls = [body for body in events if isinstance(body, ToolCall)]
    diffs = [block for call in calls for block in call.content if isinstance(block, Diff)]
    assert [(diff.old, diff.new) for diff in diffs] == [
        ("return sum(items)", "return sum(i for i in items)"),
        (None, "# Notes\nall fine\n"),
    ]
    assert [call.kind for call in calls] == ["execute", "execute", "edit", "edit", "execute"]
    results = [body for body in events if isinstance(body, ToolResult)]
    assert "exited with code 3" in plain_text(results[-1].content)
    assert (results[-1].status, results[-1].exit_code) == ("failed", 3)
