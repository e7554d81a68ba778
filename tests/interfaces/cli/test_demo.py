"""`segue demo` as a newcomer starts it."""

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
    told: str
    url: str
    key: str

    def titles(self) -> list[str]:
        headers = {**HEADERS, "x-api-key": self.key}
        answer = httpx2.get(f"{self.url}/v1/sessions", headers=headers)
        assert answer.status_code == 200
        return [session["title"] for session in answer.json()["data"]]


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
        told = ""
        for line in child.stdout:
            told += line
            if line.startswith("Ctrl-C"):
                break
        found = [re.search(each, told) for each in (r"on (http:\S+)", r"(sk-segue-\S+)")]
        assert all(found), child.stderr.read()
        yield Demo(told, *(match[1] for match in found if match))
    finally:
        child.terminate()
        _, errors = child.communicate(timeout=30)
    assert (child.returncode, errors) == (0, "")


def test_the_demo_serves_a_few_sessions_and_makes_them_once(
    environment: dict[str, str], tmp_path: Path
) -> None:
    for _ in range(2):
        with demo(environment, "--data-dir", str(tmp_path / "demo")) as shown:
            assert len(shown.titles()) == 3
            assert "Retry the upload when the connection drops" in shown.titles()


def test_the_demo_keeps_out_of_the_real_store(environment: dict[str, str], run: Run) -> None:
    run("new", "--title", "Real")
    with demo(environment) as shown:
        assert "Real" not in shown.titles()
    assert len(run("list").stdout.splitlines()) == 1


def test_started_by_a_relative_path_it_names_itself_by_one_that_works_anywhere(
    environment: dict[str, str],
) -> None:
    place = Path(COMMAND)
    child = subprocess.Popen(
        [f"./{place.name}", "demo", "--port", "0"],
        env=environment,
        cwd=place.parent,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    told = "".join(iter(child.stdout.readline, "Ctrl-C ends it.\n"))
    child.terminate()
    child.communicate(timeout=30)
    assert f"  {place} search connection" in told


def test_what_the_demo_says_to_try_works(environment: dict[str, str], run: Run, home: Home) -> None:
    home.write([user("u1", None, "a connection of my own")])
    with demo(environment) as shown:
        tries = shown.told.split("Three things to try")[1].replace("\\\n", " ").splitlines()[2:-2]
        lines = [line.strip() for line in tries if line]
        assert len(lines) == 3
        for line in lines[:2]:
            done = run(*shlex.split(line)[1:])
            assert done.returncode == 0 and done.stdout, done.stderr
        found = run(*shlex.split(lines[0])[1:]).stdout
        assert "Retry the upload" in found and "of my own" not in found
        asked = ["sh", "-c", lines[2]]
        done = subprocess.run(asked, capture_output=True, text=True, env=environment, timeout=30)
        assert '"type":"session"' in done.stdout, done.stderr
