"""The help of every command."""

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from segue.interfaces.cli.main import segue
from tests.interfaces.cli.child import Run


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*words, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))


@pytest.mark.parametrize("words", list(commands(segue)), ids=" ".join)
def test_help_has_an_example(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(segue, [*words, "--help"])
    assert done.exit_code == 0
    shown = " ".join(done.output.split())
    assert re.search(rf"Examples?: segue {' '.join(words)}\b", shown), shown


def test_demo_help_names_the_defaults_of_the_demo(run: Run) -> None:
    help = "".join(run("demo", "--help").stdout.split())  # lines break after a hyphen too
    assert "[default:segue-demo,nexttotheusualone]" in help
    assert "ornone.[default:none]" in help


def test_options_of_every_command_are_described_once(run: Run) -> None:
    assert "Where segue keeps its data." in run("--help").stdout
    help = run("list", "--help").stdout
    assert "Where segue keeps its data." not in help
    assert "--data-dir, --workspace, --database-url, --sources" in help


def test_top_level_help_names_every_command_on_one_screen(run: Run) -> None:
    shown = run("--help").stdout
    assert len(shown.splitlines()) <= 24 and max(map(len, shown.splitlines())) <= 80
    names = set(re.findall(r"[\w-]+", shown.partition("Commands:")[2].partition("Options:")[0]))
    assert names >= {words[0] for words in commands(segue)}
    assert "segue demo" in shown


def test_segue_without_a_command_or_terminal_prints_help(run: Run) -> None:
    done = run()
    assert done.returncode == 0 and done.stdout.startswith("Usage: segue")
