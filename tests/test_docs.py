"""The documentation is a site without broken links, and what it shows works."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.code_blocks import ROOT
from tests.command_server import CommandServer

MAX_README_LINES = 200


def test_site_is_built_without_warnings(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "build_site.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    home = (tmp_path / "site" / "index.html").read_text()
    assert "segue is one place for all your AI-agent sessions" in home
    commands = (tmp_path / "site" / "reference" / "commands.html").read_text()
    assert "segue resume" in commands and "--dry-run" in commands
    loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', home)
    assert loaded == []


def test_readme_is_short_and_its_files_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= MAX_README_LINES
    files = re.findall(r"\]\(((?!https?:)[^)#]+)", readme)
    assert [file for file in files if not (ROOT / file).exists()] == []


@pytest.fixture(scope="module")
def packages_from_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with segue, installed from its wheel."""
    directory = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", directory, ROOT], check=True)
    (wheel,) = directory.glob("*.whl")
    target = directory / "packages"
    subprocess.run([*pip, "install", "--no-deps", "--target", target, wheel], check=True)
    return target


def _tutorial_commands() -> list[list[str]]:
    text = (ROOT / "docs" / "tutorial.md").read_text()
    lines = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).splitlines()
    commands = [shlex.split(line) for line in lines]
    assert len(commands) >= 15 and {command[0] for command in commands} == {"segue"}
    return commands


def _check_exported_page(home: Path) -> None:
    page = (home / "greeting.html").read_text()
    assert "Hello there" in page and "And one more message" in page


def test_tutorial_runs_in_an_empty_home(command_server: CommandServer, tmp_path: Path) -> None:
    for command in _tutorial_commands():
        done = command_server.run(command, env={"HOME": str(tmp_path)}, cwd=tmp_path)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    _check_exported_page(tmp_path)


@pytest.mark.full
def test_tutorial_runs_from_a_wheel(packages_from_wheel: Path, tmp_path: Path) -> None:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    environment = {**kept, "HOME": str(tmp_path), "PYTHONPATH": str(packages_from_wheel)}
    for _, *arguments in _tutorial_commands():
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "segue", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout}{done.stderr}"
    _check_exported_page(tmp_path)
