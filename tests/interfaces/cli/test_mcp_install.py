"""`segue mcp install` adds the server to the configuration of a tool, and changes nothing else."""

import errno
import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from segue.interfaces.cli.main import segue
from segue.model.errors import InvalidInput
from segue.sources.mcp_servers import mcp_config, supported_tools

COMMAND = ["segue", "mcp"]
TOML = '# mine\nmodel = "o3"\n\n[mcp_servers.other]\ncommand = "x"\n'
YAML = "# mine\nGOOSE_MODEL: x\nextensions:\n  other:\n    enabled: true\nlast: 1\n"
JSON = '{\n    "theme": "Ä",\n    "mcpServers": {"other": {"command": "x"}}\n}\n'
Load = Callable[[str], dict[str, object]]
CASES: dict[str, tuple[str, Load, str]] = {
    "claude": (JSON, json.loads, "mcpServers"),
    "codex": (TOML, tomllib.loads, "mcp_servers"),
    "gemini": (JSON, json.loads, "mcpServers"),
    "qwen": (JSON, json.loads, "mcpServers"),
    "opencode": ('{"mcp": {"other": {}}}', json.loads, "mcp"),
    "goose": (YAML, yaml.safe_load, "extensions"),
    "copilot": ("", json.loads, "mcpServers"),
    "cursor": (JSON, json.loads, "mcpServers"),
    "vscode": ('{"servers": {"other": {}}}', json.loads, "servers"),
    "zed": ('{"context_servers": {}, "a": 1}', json.loads, "context_servers"),
}


@pytest.mark.parametrize("tool", supported_tools())
def test_only_one_entry_is_added(tool: str) -> None:
    before, load, section = CASES[tool]
    config = mcp_config(tool)
    assert config is not None
    for text in (before, ""):
        after = config.add(text, "segue", COMMAND)
        old = load(text) or {} if text else {}
        new = load(after)
        servers = new[section]
        assert isinstance(servers, dict)
        assert "segue" in str(servers.pop("segue"))
        assert new == {section: {}, **old}
        assert config.add(after, "segue", COMMAND) == after
    if "#" in before:
        assert "# mine" in config.add(before, "segue", COMMAND)


@pytest.mark.parametrize(
    ("tool", "text", "kept"),
    [
        (
            "codex",
            '[mcp_servers.segue]\nargs = [\n "a",\n]\nenv = { A = "b" }\n\n# of z\n[z]\na = 1\n',
            ['env = { "A" = "b" }', "# of z\n[z]"],
        ),
        (
            "goose",
            "extensions:\n    segue:\n        envs: {A: b}\n    # next\n    b: {}\n",
            ["    envs:\n        A: b\n", "    # next\n    b: {}\n"],
        ),
        ("claude", '{"mcpServers": {"segue": {"command": "x", "env": {"A": "b"}}}}', ['"A": "b"']),
    ],
)
def test_an_entry_keeps_its_other_settings(tool: str, text: str, kept: list[str]) -> None:
    config = mcp_config(tool)
    assert config is not None
    after = config.add(text, "segue", COMMAND)
    assert all(line in after for line in kept), after
    assert config.add(after, "segue", COMMAND) == after


def test_byte_order_mark_and_line_breaks_of_the_file_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    path = tmp_path / "config.toml"
    path.write_bytes(b'\xef\xbb\xbfmodel = "o3"\r\n')
    done = CliRunner().invoke(segue, ["mcp", "install", "codex", "--yes"])
    assert done.exit_code == 0, done.output
    assert path.read_bytes().startswith(b'\xef\xbb\xbfmodel = "o3"\r\n\r\n[mcp_servers.segue]\r\n')


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("gemini", '{"a": 1, nonsense}'),
        ("gemini", '{"mcpServers": []}'),
        ("gemini", "[]"),
        ("codex", "a = "),
        ("codex", 'mcp_servers = { other = { command = "x" } }\n'),
        ("codex", '[mcp_servers]\nsegue = { command = "x" }\n'),
        ("codex", '[mcp_servers.segue]\n# mine\ncommand = "x"\n'),
        ("codex", "mcp_servers = 1\n"),
        ("goose", "a: [\n"),
        ("goose", "- 1\n"),
        ("goose", "extensions: {a: {b: 1}}\n"),
        ("goose", '"extensions": {}\n'),
        ("goose", "a: &x\n  b: {}\nextensions: *x\n"),
        ("goose", "extensions:\n  segue:\n    # mine\n    cmd: x\n"),
        ("goose", "extensions: {}\n---\nextensions: {}\n"),
    ],
)
def test_a_file_that_cannot_be_changed_is_refused_with_the_lines_to_add(
    tool: str, text: str
) -> None:
    config = mcp_config(tool)
    assert config is not None
    with pytest.raises(InvalidInput, match="yourself") as refused:
        config.add(text, "segue", COMMAND)
    assert "mcp" in str(refused.value)


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("gemini", '{\n  // theme\n  "theme": "x", // dark\n}\n'),
        ("gemini", '{"n": 1.50, "n": 2, "u": "\\u00e9\\ud800"}'),
        ("opencode", '/* a */ {"mcp": {"a": {} /* b */,},}'),
        ("codex", 'a = { b = 1 } # c\r\n[mcp_servers]\r\nother.command = "x"\r\n'),
        ("codex", "a = 1\n# no line break at the end"),
        ("goose", "# c\nextensions: {} # none\nlast: 1\n"),
        ("goose", "extensions:\r\n  # of a\r\n  a: &a {x: 1}\r\n  b: *a\r\n"),
        ("goose", "---\na: 1\nextensions: # mine\n# more\n"),
        ("goose", "extensions:\n"),
    ],
)
def test_every_character_of_the_file_stays(tool: str, text: str) -> None:
    config = mcp_config(tool)
    assert config is not None
    for mark in ("", "\ufeff"):
        after = config.add(mark + text, "segue", COMMAND)
        assert after.count("\n") == after.count("\r\n") or "\r" not in text
        if "extensions: {}" in text:  # an empty mapping makes way for the first extension
            text = text.replace(" {}", "")
        rest = iter(after)
        assert all(character in rest for character in mark + text), after
        assert config.add(after, "segue", COMMAND) == after


def install(path: Path) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CODEX_HOME", str(path.parent))
        return CliRunner().invoke(segue, ["mcp", "install", "codex", "--yes"])


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    target = tmp_path / "dotfiles" / "codex.toml"
    target.write_text(TOML)
    link = tmp_path / "config.toml"
    link.symlink_to(target)
    assert install(link).exit_code == 0
    assert link.is_symlink() and target.read_text().startswith(TOML)
    assert [file.name for file in target.parent.iterdir()] == ["codex.toml"]


@pytest.mark.parametrize("data", [TOML.encode(), b"a = '\xff'\n"])
def test_a_file_that_is_read_only_or_not_text_is_not_replaced(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(data)
    path.chmod(0o444)
    refused = install(path)
    assert isinstance(refused.exception, InvalidInput)
    assert path.read_bytes() == data and len(list(tmp_path.iterdir())) == 1


def test_a_write_that_fails_leaves_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(TOML)

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    refused = install(path)
    assert isinstance(refused.exception, InvalidInput) and "No space" in str(refused.exception)
    assert path.read_text() == TOML and len(list(tmp_path.iterdir())) == 1


def test_the_change_is_shown_and_written_after_confirmation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    path = tmp_path / "config.toml"
    path.write_text(TOML)
    path.chmod(0o600)
    refused = CliRunner().invoke(segue, ["mcp", "install", "codex"])
    assert isinstance(refused.exception, InvalidInput) and path.read_text() == TOML
    assert "+[mcp_servers.segue]" in refused.output
    done = CliRunner().invoke(segue, ["mcp", "--scope", "all", "install", "codex", "--yes"])
    assert done.exit_code == 0, done.output
    entry = tomllib.loads(path.read_text())["mcp_servers"]["segue"]
    assert entry["args"][-3:] == ["mcp", "--scope", "all"]
    assert path.stat().st_mode & 0o777 == 0o600
    again = CliRunner().invoke(segue, ["mcp", "--scope", "all", "install", "codex", "--yes"])
    assert "already" in again.output


@pytest.mark.parametrize(
    "words",
    [
        ["--data-dir", "{data}", "mcp", "install", "codex"],
        ["mcp", "--data-dir", "{data}", "install", "codex"],
        ["mcp", "install", "codex", "--data-dir", "{data}"],
        ["mcp", "--data-dir", "other", "install", "--data-dir", "{data}", "codex"],
    ],
)
def test_the_server_uses_the_data_directory_before_or_after_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    monkeypatch.setenv("SEGUE_DATA_DIR", str(tmp_path / "environment"))
    data = str(tmp_path / "data")
    done = CliRunner().invoke(segue, [*(word.format(data=data) for word in words), "--yes"])
    assert done.exit_code == 0, done.output
    entry = tomllib.loads((tmp_path / "config.toml").read_text())["mcp_servers"]["segue"]
    assert entry["args"][-3:] == ["mcp", "--data-dir", data]
