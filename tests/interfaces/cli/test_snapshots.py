"""Every help page and error message is as a reader has approved it."""

import os
import shlex
from pathlib import Path

import pytest

from tests.interfaces.cli.child import Run
from tests.interfaces.cli.snapshots import EMPTY, ERRORS, FULL, HELP, help_pages, normalized

WRITE = "SEGUE_WRITE_SNAPSHOTS"


def compare(path: Path, shown: str) -> None:
    if os.environ.get(WRITE):
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown)
    assert path.read_text() == shown, f"if this is right, run again with {WRITE}=1"


def test_help_pages_are_as_approved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    compare(HELP, help_pages())


def test_error_messages_are_as_approved(run: Run, tmp_path: Path) -> None:
    shown: list[str] = []

    def show(commands: tuple[str, ...], **ids: str) -> None:
        for command in commands:
            done = run(*shlex.split(command.format(**ids)))
            output = normalized(done.stdout + done.stderr, directory=str(tmp_path))
            shown.append(f"$ segue {command}\n{output}exit {done.returncode}\n")

    show(EMPTY)
    one = run("new", "--title", "One").stdout.strip()
    gone = run("new", "--title", "Gone").stdout.strip()
    for _ in range(2):
        run("new", "--title", "Twice")
    run("delete", "--yes", gone)
    show(FULL, one=one, gone=gone, one_prefix=one[:18], gone_prefix=gone[:18])
    compare(ERRORS, "\n".join(shown))
