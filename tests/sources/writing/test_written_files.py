"""What the writers of tools write where the tools read it in ways of their own."""

import json
import os
from hashlib import sha256
from pathlib import Path

import pytest

from segue.model.content import Text, plain_text
from segue.model.errors import Conflict, InvalidInput
from segue.model.event import AgentMessage, Compacted, SystemMessage, UserMessage
from segue.sources import registry
from segue.sources.claude.tool_names import NAMES as CLAUDE_NAMES
from segue.sources.gemini.reader import GeminiReader
from segue.sources.writing.port import NewFile
from segue.sources.writing.staging import write_directory
from tests.sources.golden import read_home

from .tool_sessions import (
    SUMMARY,
    as_events,
    convert_for,
    rich_session,
    use_homes,
    writable_tools,
    write_and_read,
    writer_of,
)

TOOLS = ("copilot", "gemini", "qwen", "kimi")


@pytest.fixture(autouse=True)
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every tool an empty home."""
    use_homes(monkeypatch, tmp_path)


def prompt(text: str) -> UserMessage:
    return UserMessage(content=(Text(text=text),))


@pytest.mark.parametrize("tool", TOOLS)
def test_no_line_has_a_separator_at_which_node_ends_it(tool: str, tmp_path: Path) -> None:
    events = as_events([prompt("one\u2028two\u2029three")])
    writer = writer_of(tool)
    files = writer.prepare(convert_for(tool, events, None, str(tmp_path))[0]).files
    lines = next(file.data for file in files if file.path.endswith(".jsonl")).decode()
    assert all(json.loads(line) for line in lines.splitlines())
    read, _ = write_and_read(tool, events, None, str(tmp_path))
    said = [plain_text(e.body.content) for e in read if isinstance(e.body, UserMessage)]
    assert said == ["one\u2028two\u2029three"]


@pytest.mark.parametrize("tool", ["codex", "goose", "opencode"])
def test_half_of_a_character_is_replaced_for_programs_that_refuse_it(
    tool: str, tmp_path: Path
) -> None:
    events = as_events(
        [prompt("cut \ud83d here \U0001f600"), AgentMessage(content=(Text(text="ok"),))]
    )
    files = writer_of(tool).prepare(convert_for(tool, events, None, str(tmp_path))[0]).files
    assert rb"\ud83d" not in b"".join(file.data for file in files)
    read, _ = write_and_read(tool, events, None, str(tmp_path))
    said = [plain_text(e.body.content) for e in read if isinstance(e.body, UserMessage)]
    assert said == ["cut \ufffd here \U0001f600"]


@pytest.mark.parametrize("tool", TOOLS)
def test_system_messages_are_written_as_text_and_named(tool: str, tmp_path: Path) -> None:
    system = SystemMessage(content=(Text(text="be brief"),))
    events = as_events([prompt("hello"), system, AgentMessage(content=(Text(text="hi"),))])
    conversation, report = convert_for(tool, events, None, str(tmp_path))
    assert [(loss.what, loss.becomes) for loss in report.losses] == [("system messages", "text")]
    data = b"".join(file.data for file in writer_of(tool).prepare(conversation).files)
    assert b"be brief" in data


@pytest.mark.parametrize("text", ["/etc/hosts is wrong", "? what", "<state_snapshot> is a word"])
def test_prompts_that_gemini_would_not_send_are_quoted(text: str, tmp_path: Path) -> None:
    events = as_events([prompt("first"), prompt(text)])
    read, _ = write_and_read("gemini", events, None, str(tmp_path))
    said = [plain_text(e.body.content) for e in read if isinstance(e.body, UserMessage)]
    assert said == ["first", text]
    (path,) = Path(registry.get("gemini").home()).rglob("session-*.jsonl")
    records = [json.loads(line) for line in path.read_text().split("\n") if line]
    (sent,) = [record["content"] for record in records if "displayContent" in record]
    assert sent == [{"text": f"The user wrote: {text}"}]


def test_projects_with_the_same_name_have_directories_of_their_own(tmp_path: Path) -> None:
    events = as_events([prompt("hello")])
    for directory in ("one/app", "two/app", "one/app"):
        write_and_read("gemini", events, None, str(tmp_path / directory))
    projects = Path(registry.get("gemini").home(), "tmp")
    roots = {path.parent.name: path.read_text() for path in projects.glob("*/.project_root")}
    assert roots == {"app": str(tmp_path / "one/app"), "app-1": str(tmp_path / "two/app")}
    assert len(list((projects / "app" / "chats").iterdir())) == 2


def test_directory_that_gemini_has_given_to_another_project_is_left_alone(tmp_path: Path) -> None:
    home = Path(registry.get("gemini").home())
    cwd = str(tmp_path / "app")
    (home / "tmp/app").mkdir(parents=True)
    (home / "tmp/app/.project_root").write_text("/elsewhere")
    (home / "projects.json").write_text(json.dumps({"projects": {cwd: "app"}}))
    write_and_read("gemini", as_events([prompt("hello")]), None, cwd)
    roots = {path.parent.name: path.read_text() for path in home.glob("tmp/*/.project_root")}
    assert roots == {"app": "/elsewhere", "app-1": cwd}


def test_file_in_the_place_of_a_gemini_project_is_left_alone(tmp_path: Path) -> None:
    home = Path(registry.get("gemini").home())
    cwd = str(tmp_path / "app")
    (home / "tmp").mkdir(parents=True)
    (home / "tmp/app").write_text("a file")
    (home / "projects.json").write_text(json.dumps({"projects": {cwd: "app"}}))
    write_and_read("gemini", as_events([prompt("hello")]), None, cwd)
    assert (home / "tmp/app").read_text() == "a file"
    assert (home / "tmp/app-1/.project_root").read_text() == cwd


def test_name_of_a_directory_may_end_with_a_space(tmp_path: Path) -> None:
    cwd = str(tmp_path / "app ")
    writer = writer_of("gemini")
    writer.write(writer.prepare(convert_for("gemini", as_events([prompt("hello")]), None, cwd)[0]))
    (path,) = Path(registry.get("gemini").home()).glob("tmp/*/.project_root")
    assert path.read_text() == cwd


def test_name_of_a_directory_may_have_other_bytes_than_text(tmp_path: Path) -> None:
    cwd = str(tmp_path / os.fsdecode(b"caf\xe9"))
    events = as_events([prompt("hello")])
    for tool in writable_tools():
        read, _ = write_and_read(tool, events, None, cwd)
        assert [plain_text(e.body.content) for e in read if isinstance(e.body, UserMessage)]


def test_kimi_gets_the_model_and_the_prompt_of_the_newest_session(tmp_path: Path) -> None:
    home = Path(registry.get("kimi").home())
    home.mkdir(parents=True)
    (home / "config.toml").write_text('default_model = "chosen"\n')
    events = as_events([prompt("hello")])

    def first_records() -> list[dict[str, object]]:
        writer = writer_of("kimi")
        prepared = writer.prepare(convert_for("kimi", events, None, str(tmp_path))[0])
        lines = prepared.files[-1].data.decode().split("\n")
        return [json.loads(line) for line in lines[:2]]

    assert first_records()[1]["modelAlias"] == "chosen"
    wire = home / "sessions/wd_other/session_1/agents/main/wire.jsonl"
    wire.parent.mkdir(parents=True)
    profile = {
        "type": "profile.bind",
        "modelAlias": "other",
        "systemPrompt": "The directory is `/old`.",
        "environmentDisclosure": {"cwd": "/old"},
        "agentsMdPaths": [],
    }
    for paths, expected in (([], "other"), (["/old/AGENTS.md"], "chosen")):
        records = [{"type": "metadata"}, {**profile, "agentsMdPaths": paths}]
        wire.write_text("".join(json.dumps(record) + "\n" for record in records))
        record = first_records()[1]
        assert record["modelAlias"] == expected
        assert f"`{tmp_path}`" in str(record["systemPrompt"])


def test_directory_of_a_session_is_never_replaced(tmp_path: Path) -> None:
    target = tmp_path / "sessions" / "id"
    files = [NewFile(str(target / "nested" / "file"), b"new")]
    write_directory(str(target), files, staged_in=str(tmp_path))
    with pytest.raises(Conflict, match="exists"):
        write_directory(str(target), [NewFile(str(target / "x"), b"x")], staged_in=str(tmp_path))
    assert [path.name for path in target.iterdir()] == ["nested"]
    assert list(tmp_path.glob(".segue-*")) == []


def install_gemini(directory: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program on the path that only says its version."""
    program = directory / "gemini-program" / "gemini"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)


@pytest.mark.parametrize("has_package", [True, False])
def test_gemini_that_is_too_old_is_refused_by_its_version(
    has_package: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_gemini(tmp_path, "none" if has_package else "0.9.0", monkeypatch)
    if has_package:
        (tmp_path / "gemini-program" / "package.json").write_text('{"version": "0.9.0"}')
    events = as_events([prompt("hello")])
    with pytest.raises(InvalidInput, match=r"Gemini CLI 0\.9\.0 is too old .* install 0\.24\.0"):
        write_and_read("gemini", events, None, str(tmp_path))
    assert not list(tmp_path.rglob("session-*"))


@pytest.mark.parametrize("version", ["0.24.5", "0.28.2", "0.33.2", "0.38.2"])
def test_gemini_before_journals_gets_one_object(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_gemini(tmp_path, version, monkeypatch)
    cwd = str(tmp_path / "app")
    read, report = write_and_read("gemini", as_events(rich_session(cwd)), CLAUDE_NAMES, cwd)
    home = Path(registry.get("gemini").home())
    (path,) = home.glob("tmp/*/chats/session-*.json")
    session = json.loads(path.read_text())
    project = path.parent.parent
    digest = sha256(cwd.encode()).hexdigest()
    assert session["projectHash"] == digest
    if version < "0.29":
        assert project.name == digest and not (project / ".project_root").exists()
    else:
        assert (project / ".project_root").read_text() == cwd
    assert session["summary"] == "A session"
    assert session["messages"][0]["content"][0]["text"].endswith(SUMMARY)
    (loss,) = [loss for loss in report.losses if loss.what == "messages before the compaction"]
    assert loss.becomes == "summary" and loss.count > 2
    said = [plain_text(e.body.content) for e in read if isinstance(e.body, UserMessage)]
    assert said[1:] == ["Thanks. And now?", "Stop."]
    (listed,) = read_home(GeminiReader(str(home)), tmp_path / "index").sessions.values()
    assert listed.row.cwd == cwd


@pytest.mark.parametrize(("version", "kept"), [("0.39.1", False), ("0.44.0", True)])
def test_gemini_that_ignores_compactions_gets_the_summary_and_what_follows(
    version: str, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_gemini(tmp_path, version, monkeypatch)
    write_and_read("gemini", as_events(rich_session("/work")), CLAUDE_NAMES, "/work")
    (path,) = Path(registry.get("gemini").home()).rglob("session-*.jsonl")
    text = path.read_text()
    assert SUMMARY in text and ("What is wrong?" in text) == kept


def test_images_of_prompts_are_text_for_gemini_before_0_28(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [body for body in rich_session("/work") if not isinstance(body, Compacted)]
    for version, images in (("0.27.4", 1), ("0.28.2", 2)):
        install_gemini(tmp_path, version, monkeypatch)
        _, report = convert_for("gemini", as_events(bodies), CLAUDE_NAMES, "/work")
        assert report.images == images
        assert [loss.what for loss in report.losses].count("images") == 2 - images


def test_without_the_program_gemini_gets_the_form_of_its_newest_session(tmp_path: Path) -> None:
    chats = Path(registry.get("gemini").home(), "tmp/app/chats")
    chats.mkdir(parents=True)
    (chats / "session-2026-01-01T00-00-01234567.json").write_text('{"sessionId": "01234567"}')
    write_and_read("gemini", as_events([prompt("hello")]), None, str(tmp_path / "app"))
    assert len(list(chats.parent.parent.glob("*/chats/*.json"))) == 2
