"""Database passwords in what the command prints."""

from collections.abc import Callable
from pathlib import Path

import pytest

from segue.interfaces.cli.target import Target
from tests.clients.rest_server import serving
from tests.interfaces.cli.child import Run

SECRET_URLS = [
    "postgresql://me:s3cret@127.0.0.1:1/app",
    "postgresql://me:pa@s3cret@127.0.0.1:1/app",
    "postgresql://me:pa/s3cret@127.0.0.1:1/app",
    "postgresql://me@127.0.0.1:1/app?password=s3cret",
    "postgresql://me@127.0.0.1:1/app?password=pa@s3cret",
]


@pytest.mark.parametrize("url", SECRET_URLS)
def test_suggested_options_contain_no_password(url: str) -> None:
    assert "s3cret" not in Target(None, "local", url).command_options()


def test_suggested_options_name_the_variable_if_no_part_of_the_url_is_safe() -> None:
    target = Target(None, "local", "postgresql://me:pa/s3cret@127.0.0.1:1/app")
    assert '--database-url "${SEGUE_DATABASE_URL:?}"' in target.command_options()


def test_commands_for_a_shell_name_the_variable_if_the_url_has_a_password() -> None:
    for url in SECRET_URLS:
        options = Target(None, "local", url).command_options(in_shell=True)
        assert options.endswith('--database-url "${SEGUE_DATABASE_URL:?}"')
    url = "postgresql://me@127.0.0.1/app"
    assert Target(None, "local", url).command_options(in_shell=True).endswith(url)


@pytest.mark.parametrize("url", SECRET_URLS)
@pytest.mark.parametrize("words", [("list",), ("doctor",), ("serve", "--port", "0")])
def test_errors_contain_no_password(run: Run, url: str, words: tuple[str, ...]) -> None:
    done = run(*words, SEGUE_DATABASE_URL=url)
    assert done.returncode != 0
    assert "s3cret" not in done.stdout + done.stderr


def add_to_query(url: str, parameter: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{parameter}"


def add_password(url: str, password: str) -> str:
    return url.replace("//postgres@", f"//postgres:{password}@")


@pytest.mark.parametrize(
    "add_secret",
    [
        pytest.param(lambda url: add_password(url, "s3cret"), id="user"),
        pytest.param(lambda url: add_password(url, "pa%40s3cret"), id="user-with-at"),
        pytest.param(lambda url: add_to_query(url, "password=s3cret"), id="query"),
        pytest.param(lambda url: add_to_query(url, "password=pa%40s3cret"), id="query-with-at"),
    ],
)
def test_serve_prints_no_password(
    fresh_database_url: str, tmp_path: Path, add_secret: Callable[[str], str]
) -> None:
    url = add_secret(fresh_database_url)
    assert "s3cret" in url
    options = ("--database-url", url, "--log-level", "debug")
    with serving(tmp_path / "data", *options) as server:
        assert "--database-url" in server.startup_output
        assert "s3cret" not in server.startup_output
        server.process.terminate()
        assert server.process.stderr is not None
        assert "s3cret" not in server.process.stderr.read()
