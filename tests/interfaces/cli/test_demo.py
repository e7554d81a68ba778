"""`segue demo`, as a new user starts it."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx2

from tests.claude.entries import Home, user
from tests.interfaces.cli.child import COMMAND, Run
from tests.interfaces.rest.api import HEADERS


class Demo(NamedTuple):
    output: str
    url: str
    key: str

    def titles(self) -> list[str]:
        headers = {**HEADERS, "x-api-key": self.key}
        response = httpx2.get(f"{self.url}/v1/sessions", headers=headers)
        assert response.status_code == 200
        return [session["title"] for session in response.json()["data"]]


@contextmanager
def demo(environment: dict[str, str], *words: str) -> Iterator[Demo]:
    child = subprocess.Popen(
        [COMMAND, "demo", "--port", "0", *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None and child.stderr is not None
    try:
        output = ""
        for line in child.stdout:
            output += line
            if line.startswith("Ctrl-C"):
                break
        url = re.search(r"on (http:\S+)", output)
        key_path = re.search(r"is in (\S+)", output)
        assert url is not None and key_path is not None, child.stderr.read()
        yield Demo(output, url[1], Path(key_path[1]).read_text().strip())
    finally:
        child.terminate()
        _, errors = child.communicate(timeout=120)
    assert (child.returncode, errors) == (0, "")


def test_demo_creates_its_sessions_once(environment: dict[str, str], tmp_path: Path) -> None:
    for _ in range(2):
        with demo(environment, "--data-dir", str(tmp_path / "demo")) as shown:
            assert len(shown.titles()) == 3
            assert "Retry the upload when the connection drops" in shown.titles()


def test_demo_does_not_use_the_real_store(environment: dict[str, str], run: Run) -> None:
    run("new", "--title", "Real")
    with demo(environment) as shown:
        assert "Real" not in shown.titles()
    assert len(run("list").stdout.splitlines()) == 1


def test_demo_started_by_a_relative_path_prints_an_absolute_command(
    environment: dict[str, str],
) -> None:
    path = Path(COMMAND)
    child = subprocess.Popen(
        [f"./{path.name}", "demo", "--port", "0"],
        env=environment,
        cwd=path.parent,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    output = "".join(iter(child.stdout.readline, "Ctrl-C stops the demo.\n"))
    child.terminate()
    child.communicate(timeout=120)
    assert f"  {path} search connection" in output


def test_commands_that_the_demo_prints_work(
    environment: dict[str, str], run: Run, home: Home
) -> None:
    home.write([user("u1", None, "a connection of my own")])
    with demo(environment) as shown:
        suggestions = (
            shown.output.split("Three things to try")[1].replace("\\\n", " ").splitlines()[2:-2]
        )
        lines = [line.strip() for line in suggestions if line]
        assert len(lines) == 3
        for line in lines[:2]:
            done = run(*shlex.split(line)[1:])
            assert done.returncode == 0 and done.stdout, done.stderr
        matches = run(*shlex.split(lines[0])[1:]).stdout
        assert "Retry the upload" in matches and "of my own" not in matches
        request = ["sh", "-c", lines[2]]
        done = subprocess.run(request, capture_output=True, text=True, env=environment, timeout=120)
        assert '"type":"session"' in done.stdout, done.stderr
