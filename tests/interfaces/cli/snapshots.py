"""What the command prints: all help pages, and the errors of common mistakes.

`python -m tests.interfaces.cli.snapshots` writes the files again. Read them then: every line is
what a person sees.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

from segue.interfaces.cli.main import segue

DIRECTORY = Path(__file__).with_name("snapshots")
HELP, ERRORS = DIRECTORY / "help.txt", DIRECTORY / "errors.txt"
_ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_AGE = re.compile(r"(?<=^  <id>  )[ \d]{3}s", re.MULTILINE)  # of a session in a list of matches
_SHORT_ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}(?:-[0-9a-f]{4})?\b")

# Mistakes in an empty store, and in one with sessions: `{one}` and `{gone}` are ids, two sessions
# are called "Twice".
EMPTY = (
    "list",
    "list --cwd /no/such/place",
    "list --since noon",
    "list --since 1d --until 2d",
    "list --source cluade",
    "list --format xml",
    "list --limit 0",
    "list --worktrees",
    "search",
    "search nothing",
    "show",
    "show 012",
    "show missing",
    "resume",
    "prompt",
    "prompt new",
    "prompt new one two",
    "prompt new ''",
    "prompt new one --model foo",
    "fork",
    "stats",
    "trash",
    "trash empty",
    "trash restore 0198c2a4",
    "prune",
    "import",
    "import /no/such/file.jsonl",
    "import --follow x",
    "import --all x",
    "validate /no/such/file.jsonl",
    "config get nothing",
    "config set nothing x",
    "config set model foo",
    "config set web.search altavista",
    "keys create --expires soon",
    "keys revoke nothing",
    "quotas set nothing 1",
    "serve --port 99999",
    "lst",
    "nonsense",
    "--bogus",
)
FULL = (
    "search nothing",
    "show @9",
    "show Twice",
    "show {gone_prefix}",
    "show {gone}",
    "rename {one}",
    "rename {one} ''",
    "tag {one}",
    "delete {one}",
    "restore {one}",
    "unarchive nothing",
    "fork {one} --at 999",
    "fork {one} --at foo",
    "prompt {one_prefix}",
    "prompt {one} x --title y",
    "resume {one} --here --in codex",
    "resume {one} --keep 2",
    "resume {one} --in nothing",
    "export {one} --format pdf",
    "export {one} -o a.pdf",
    "show {one} --agent nothing",
    "tail {one} -n -1",
    "search x --format raw --limit 0",
)


def normalized(text: str, **names: str) -> str:
    """Return output without what differs between two runs: paths and ids."""
    for name, value in names.items():
        text = text.replace(value, f"<{name}>")
    return _SHORT_ID.sub("<short id>", _AGE.sub("<age>", _ID.sub("<id>", text)))


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command."""
    yield words
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name)


def help_pages() -> str:
    """Return all help pages, as a terminal of 80 columns shows them."""
    os.environ["COLUMNS"] = "80"
    pages = []
    for words in commands(segue):
        shown = CliRunner().invoke(segue, [*words, "--help"], prog_name="segue").output
        pages.append(f"$ {' '.join(['segue', *words, '--help'])}\n{shown}")
    return "\n".join(pages)


if __name__ == "__main__":
    HELP.write_text(help_pages())
    print(f"Wrote {HELP}. The errors are written by: SEGUE_WRITE_SNAPSHOTS=1 pytest {__package__}")
