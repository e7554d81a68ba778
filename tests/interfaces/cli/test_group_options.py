"""Options of every command, written before the name of a group's command."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from segue.interfaces.cli.main import segue
from tests.claude.entries import Home, S
from tests.interfaces.cli.child import Run

# A command of each group that opens the store. No command of `mcp` does: test_mcp_install.py tests
# its data directory, and interfaces/mcp/test_server.py that of the server.
COMMANDS = {
    "agents": ("list",),
    "claude": ("export", S),
    "config": ("list",),
    "environments": ("list",),
    "keys": ("list",),
    "quotas": ("list",),
    "secrets": ("scan",),
    "sessions": ("list",),
    "skills": ("list",),
    "trash": ("list",),
    "webhooks": ("list",),
}
OPTIONS = {"--data-dir": "other", "--workspace": "w", "--sources": "none", "--database-url": ""}


def groups() -> dict[str, click.Group]:
    context = click.Context(segue)
    assert isinstance(segue, click.Group)
    commands = {name: segue.get_command(context, name) for name in segue.list_commands(context)}
    return {name: group for name, group in commands.items() if isinstance(group, click.Group)}


def test_every_group_but_mcp_has_a_command_that_opens_the_store() -> None:
    assert groups().keys() ^ COMMANDS.keys() == {"mcp"}


@pytest.mark.parametrize("group", COMMANDS)
def test_group_uses_the_data_directory_before_its_command(
    run: Run, tmp_path: Path, home: Home, group: str
) -> None:
    other = tmp_path / "other"
    for options in (["--data-dir", str(other)], [f"--data-dir={other}", "--no-pager"]):
        words = [word for word in options if word != "--no-pager" or group == "config"]
        done = run(group, *words, *COMMANDS[group])
        assert done.returncode == 0, done.stderr
        assert (other / "segue.db").exists()
        assert not (tmp_path / "data").exists()


def commands(group: click.Group, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command of a group and its inner groups."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name)


@pytest.mark.parametrize("group", groups())
def test_every_command_of_a_group_takes_every_option_before_its_name(group: str) -> None:
    options = [word for option in OPTIONS.items() for word in option]
    for words in commands(groups()[group], (group,)):
        for position in range(len(words)):
            args = [*words[:position], *options, *words[position:], "--help"]
            done = CliRunner().invoke(segue, args, prog_name="segue")
            assert done.exit_code == 0, done.output
            assert done.output.startswith(f"Usage: segue {' '.join(words)} ")


@pytest.mark.parametrize("group", groups())
def test_group_shows_its_help_after_an_option(run: Run, tmp_path: Path, group: str) -> None:
    done = run(group, "--data-dir", str(tmp_path / "other"), "--help")
    assert (done.returncode, done.stdout) == (0, run(group, "--help").stdout)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("group", groups())
def test_option_without_its_value_is_refused(run: Run, group: str) -> None:
    done = run(group, "--data-dir")
    assert (done.returncode, done.stdout) == (2, "")
    assert "option '--data-dir' requires an argument" in done.stderr
