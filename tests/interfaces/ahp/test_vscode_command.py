"""`segue vscode`: the setting that connects VS Code, and its installation."""

import json
from pathlib import Path

import pytest

from segue import jsonc
from segue.interfaces.cli.editors.vscode import (
    HOSTS,
    host_setting,
    merged_settings,
)
from tests.clients.rest_server import serving
from tests.command_server import CommandServer

SETTING = host_setting("http://127.0.0.1:8787", "token")


SERVER = ("--server", "http://127.0.0.1:8787")


def test_setting_names_the_address_without_a_path_and_the_token() -> None:
    assert SETTING[HOSTS] == [
        {"name": "segue", "address": "ws://127.0.0.1:8787", "connectionToken": "token"}
    ]
    assert host_setting("https://segue.example", "t")[HOSTS][0]["address"] == "wss://segue.example"


def test_other_settings_and_servers_are_kept() -> None:
    other = {"name": "mine", "address": "ws://127.0.0.1:1"}
    old = {"name": "segue", "address": "ws://127.0.0.1:2"}
    text = json.dumps({"editor.fontSize": 14, HOSTS: [old, other]})
    merged = json.loads(merged_settings(text, SETTING))
    assert merged["editor.fontSize"] == 14
    assert merged[HOSTS] == [*SETTING[HOSTS], other]


HOSTS_WITH_COMMENTS = """{
  "chat.remoteAgentHosts": [
    // of the lab
    {"name": "lab", "address": "ws:\\/\\/127.0.0.1:1"}, /* keep */
    {"name": "segue", "address": "ws://127.0.0.1:2", "pinned": true} // mine
  ],
}
"""


def test_comments_and_fields_in_the_list_of_servers_are_kept() -> None:
    merged = merged_settings(HOSTS_WITH_COMMENTS, SETTING)
    (own,) = SETTING[HOSTS]
    segue = f'"address": "{own["address"]}", "pinned": true, "connectionToken": "token"'
    assert merged == HOSTS_WITH_COMMENTS.replace(
        '"address": "ws://127.0.0.1:2", "pinned": true', segue
    ).replace("  ],\n", '  ],\n  "chat.remoteAgentHostsEnabled": true,\n')


def test_server_is_added_after_the_others() -> None:
    text = HOSTS_WITH_COMMENTS.replace('"segue"', '"other"')
    merged = merged_settings(text, SETTING)
    assert all(
        line.rstrip() in merged.replace(",", "") for line in text.replace(",", "").split("\n")
    )
    hosts = jsonc.parse(merged)[HOSTS]
    assert [host["name"] for host in hosts] == ["lab", "other", "segue"]
    assert jsonc.parse(merged_settings('{"chat.remoteAgentHosts": []}', SETTING)) == SETTING


def test_deeply_nested_file_is_refused(command_server: CommandServer, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    text = '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"
    settings.write_text(text)
    words = ["segue", "vscode", "--install", "--yes", "--settings", str(settings), *SERVER]
    environment = {"HOME": str(tmp_path), "SEGUE_DATA_DIR": str(tmp_path / "data")}
    done = command_server.run(words, env=environment, cwd=tmp_path)
    assert done.returncode == 2 and "segue does not change it" in done.stderr
    assert settings.read_text() == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "\ufeff{ }\n",
        '{"a": 1}',
        '{\n\t// mine, "b"\n\t"a": 1 // one\n\t/* } */\n}\n',
        '{\r\n  "a": [1, {"//": "/*",},],\r\n}\r\n',
        '{\n  "chat.remoteAgentHosts": [], // none\n  "a": "\\"}",\n}',
    ],
)
def test_comments_and_commas_of_settings_are_kept(text: str) -> None:
    merged = merged_settings(text, SETTING)
    kept = [line for line in text.splitlines() if "//" in line or "/*" in line]
    for line in kept:
        assert line.partition("//")[2] in merged
    values = jsonc.parse(merged)
    assert not text.count("\r") or merged.count("\n") == merged.count("\r")
    assert values == {**(jsonc.parse(text) or {}), **SETTING}
    again = host_setting("http://127.0.0.1:8787", "another")
    assert merged_settings(merged, again) == merged.replace('token"', 'another"', 1)


@pytest.mark.parametrize("text", ["[]", "{", '{"a": }', "nonsense", f'{{"{HOSTS}": 1}}'])
def test_what_is_no_settings_file_is_not_changed(text: str) -> None:
    with pytest.raises(ValueError):
        merged_settings(text, SETTING)


def test_install_shows_the_change_and_writes_it(
    command_server: CommandServer, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text('{"editor.fontSize": 14}\n')
    environment = {"HOME": str(tmp_path), "SEGUE_DATA_DIR": str(tmp_path / "data")}
    words = ["segue", "vscode", "--install", "--settings", str(settings), *SERVER]
    refused = command_server.run(words, env=environment, cwd=tmp_path)
    assert refused.returncode == 2 and "--yes" in refused.stderr
    assert json.loads(settings.read_text()) == {"editor.fontSize": 14}
    done = command_server.run([*words, "--yes"], env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"chat.remoteAgentHostsEnabled": true' in done.stdout
    written = json.loads(settings.read_text())
    assert written[HOSTS][0]["connectionToken"].startswith("local~")


def test_without_a_server_or_with_several_none_is_chosen(
    command_server: CommandServer, tmp_path: Path
) -> None:
    environment = {"HOME": str(tmp_path), "SEGUE_DATA_DIR": str(tmp_path)}
    done = command_server.run(["segue", "vscode"], env=environment, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no server is running" in done.stderr and "segue serve" in done.stderr
    with serving(tmp_path) as first:
        done = command_server.run(["segue", "vscode"], env=environment, cwd=tmp_path)
        assert first.url.replace("http", "ws") in done.stdout
        with serving(tmp_path) as second:
            done = command_server.run(["segue", "vscode"], env=environment, cwd=tmp_path)
            assert (done.returncode, done.stdout) == (2, "")
            assert first.url in done.stderr and second.url in done.stderr
            words = ["segue", "vscode", "--server", second.url]
            done = command_server.run(words, env=environment, cwd=tmp_path)
            assert second.url.replace("http", "ws") in done.stdout
