"""Sessions of real opencode homes are read as opencode's own API answers for them."""

from segue.model.content import Diff, Image, plain_text, truncate_prompt
from segue.model.event import AgentMessage, Failed, Interrupted, ToolCall, ToolResult, UserMessage
from segue.sources.opencode.reader import OpencodeReader
from tests.sources.golden import Home, home_fixture, homes_fixture

homes = homes_fixture(__file__, lambda home: OpencodeReader(str(home / ".local/share/opencode")))
home = home_fixture("opencode-1.1.65", "opencode-1.18.34")  # files and a database


def test_every_session_but_the_subagents_is_listed(home: Home) -> None:
    listed = {id for id, answer in home.answers.items() if answer["parent_id"] is None}
    assert home.sessions.keys() == listed
    assert home.sessions.keys().isdisjoint(home.golden["deleted"])
    assert home.problems == []


def test_titles_are_those_of_opencode_or_first_prompts(home: Home) -> None:
    for session, answer in home.pairs():
        title = answer["title"]
        if title.startswith("New session - ") and answer["user_messages"]:
            title = truncate_prompt(answer["first_prompt"].strip())
        assert session.row.title == title


def test_directories_models_and_times_are_those_of_opencode(home: Home) -> None:
    for session, answer in home.pairs():
        row = session.row
        assert row.cwd == answer["cwd"]
        assert session.model == answer["model"] or answer["model"] is None
        assert row.created_at == answer["created_at"] * 1000
        # The last event of a turn that failed or was killed is newer than the session's row.
        assert 0 <= row.updated_at - answer["updated_at"] * 1000 < 3_000_000
        archived_at = answer["archived_at"]
        assert row.archived_at == (archived_at and archived_at * 1000)


def test_messages_and_calls_are_counted_once(home: Home) -> None:
    for session, answer in home.pairs("reverted"):
        case = answer["case"]
        prompts = answer["user_messages"] - answer["compaction_parts"]
        assert session.count("user_message") == prompts, case
        assert session.row.turns == prompts, case
        assert session.count("tool_call") == answer["tool_calls"], case
        assert session.count("agent_thought") == answer["reasoning_parts"], case
        assert session.count("compacted") == answer["compaction_parts"], case
        ended = [status for status in answer["tool_statuses"] if status != "running"]
        assert session.count("tool_result") == len(ended), case


def test_first_and_last_messages_are_the_same(home: Home) -> None:
    for session, answer in home.pairs("reverted"):
        texts: dict[type, list[str | None]] = {UserMessage: [], AgentMessage: []}
        for event in session.conversation:
            if isinstance(event.body, UserMessage | AgentMessage):
                texts[type(event.body)].append(plain_text(event.body.content))
        assert (texts[UserMessage] or [None])[0] == answer["first_prompt"]
        assert (texts[AgentMessage] or [None])[-1] == answer["last_assistant_text"]


def test_tokens_and_costs_are_those_of_the_messages(home: Home) -> None:
    for session, answer in home.pairs("fork", "fork-at-message", "cli-fork"):
        usage, tokens = session.row.usage, answer["tokens"]
        # Before 1.2, the output included the thoughts.
        output = tokens["output"] + tokens["reasoning"] * (home.golden["version"] != "1.1.65")
        expected = (tokens["input"], output, tokens["cache_read"])
        read = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens)
        assert read == (expected if any(expected) else (None, None, None)), answer["case"]
        assert abs((usage.cost or 0) - answer["cost"] * 1_000_000) < 1, answer["case"]


def test_forks_name_their_parent_and_pay_only_for_their_own_turns(home: Home) -> None:
    forks = 0
    for session, answer in home.pairs():
        parent = answer["forked_from"]
        fork = session.row.fork
        if parent is None:
            assert fork is None, answer["case"]
            continue
        forks += 1
        assert fork is not None and fork.session == home.sessions[parent].row.id
        assert (session.row.usage.output_tokens or 0) < answer["tokens"]["output"]
    assert forks >= 2


def test_subagent_is_a_thread_of_its_parent(home: Home) -> None:
    children = {(row["parent_id"], id) for id, row in home.answers.items() if row["parent_id"]}
    threads = {(id, thread.id) for id, read in home.sessions.items() for thread in read.threads}
    assert threads == children and children
    (thread,) = home.case("subagent").threads
    answer = home.answers[thread.id]
    assert thread.title == answer["title"]
    assert thread.usage.output_tokens == answer["tokens"]["output"]
    assert thread.seq is not None, "the call that started it"


def test_hidden_messages_are_not_in_the_conversation(home: Home) -> None:
    session = home.case("reverted")
    texts = [
        plain_text(event.body.content)
        for event in session.conversation
        if isinstance(event.body, UserMessage | AgentMessage)
    ]
    assert texts == ["Keep this.", "Stub answer to: Keep this."]


def test_edits_are_diffs_and_failed_commands_have_failed(home: Home) -> None:
    bodies = [event.body for event in home.case("tools").conversation]
    calls = [body for body in bodies if isinstance(body, ToolCall)]
    diffs = [block for call in calls for block in call.content if isinstance(block, Diff)]
    assert [(diff.old, diff.new) for diff in diffs] == [
        ('"hello " + name', 'f"hello {name}"'),
        (None, "x = 1\n"),
    ]
    results = {body.call_id: body for body in bodies if isinstance(body, ToolResult)}
    statuses = {call.title or call.name: results[call.call_id].status for call in calls}
    assert statuses["cat missing-file.txt"] == "failed"
    read = [results[call.call_id].status for call in calls if call.name == "read"]
    assert read[:2] == ["completed", "failed"]


def test_images_errors_and_interruptions_are_events(home: Home) -> None:
    prompts = [event.body for event in home.case("image").conversation]
    images = [
        block
        for body in prompts
        if isinstance(body, UserMessage)
        for block in body.content
        if isinstance(block, Image)
    ]
    assert images and images[0].data
    (failed,) = [e.body for e in home.case("error").conversation if isinstance(e.body, Failed)]
    assert failed.code == "APIError" and failed.message
    aborted = home.case("aborted").conversation
    assert [e.body.reason for e in aborted if isinstance(e.body, Interrupted)] == ["cancelled"]
