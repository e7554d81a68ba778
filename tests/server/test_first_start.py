"""Several processes that start at once on a new data directory."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest

from segue.factory import open_hub
from segue.server.key_file import ensure_key
from tests.interfaces.rest.api import HEADERS

SECONDS = 300.0  # a loaded machine starts many interpreters slowly
SERVER_COMMANDS = [
    ("serve", "--port", "0"),
    ("serve", "--port", "0", "--workers", "2"),
    ("demo", "--sources", "none"),
    ("demo", "--sources", "none"),
    ("open", "--no-browser"),
    ("open", "--no-browser"),
]


@pytest.fixture(params=["sqlite", "postgres"])
def database_options(request: pytest.FixtureRequest) -> list[str]:
    if request.param == "sqlite":
        return []
    return ["--database-url", request.getfixturevalue("fresh_database_url")]


@contextmanager
def started(data: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    variables = {**os.environ, "PYTHONUNBUFFERED": "1"}
    for name in ("SEGUE_DATABASE_URL", "SEGUE_DATA_DIR"):
        variables.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, "-m", "segue", *words, "--data-dir", str(data)],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_processes_that_start_at_once_make_one_key_and_none_fails(
    tmp_path: Path, database_options: list[str]
) -> None:
    data = tmp_path / "data"
    with ExitStack() as stack:
        servers = [
            stack.enter_context(started(data, *words, *database_options))
            for words in SERVER_COMMANDS
        ]
        lists = [
            stack.enter_context(started(data, "list", "--format", "json", *database_options))
            for _ in range(3)
        ]
        for process in lists:
            output, errors = process.communicate(timeout=SECONDS)
            assert (process.returncode, errors) == (0, "")
            assert isinstance(json.loads(output), list)
        urls = []
        for process in servers:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()
            if "/login?token=" in line:  # `segue open` found a server that was ready before it
                assert process.wait(SECONDS) == 0
                continue
            assert line.startswith("Serving on http://"), line + process.stderr.read()
            urls.append(line.split()[-1])
        (key_path,) = data.glob("key*")
        assert (key_path.name == "key") == (not database_options)
        key = key_path.read_text().strip()
        for url in urls:
            answer = httpx2.get(f"{url}/v1/sessions", headers={**HEADERS, "x-api-key": key})
            assert answer.status_code == 200
            assert len(answer.json()["data"]) == 3  # the sessions of one demo
        for process in servers:
            assert process.poll() in (None, 0)

    async def read_keys() -> int:
        url = database_options[-1] if database_options else None
        async with await open_hub(data, url, sources="none") as hub:
            return len(await hub.keys.list("local"))

    assert asyncio.run(read_keys()) == 1
    assert [path.name for path in data.glob(".key*")] == []


async def test_a_stale_key_is_replaced_once(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-segue-of-another-store\n")
    async with (
        await open_hub(tmp_path, sources="none") as first,
        await open_hub(tmp_path, sources="none") as second,
    ):
        results = await asyncio.gather(
            *(ensure_key(hub, "local") for hub in (first, second, first, second))
        )
        created = [key for _, key in results if key is not None]
        assert created == [(tmp_path / "key").read_text().strip()]
        assert len(await first.keys.list("local")) == 1
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("workspace", ["local", "team-a"])
async def test_stores_of_one_data_directory_have_keys_of_their_own(
    tmp_path: Path, fresh_database_url: str, workspace: str
) -> None:
    keys = {}
    for url in (fresh_database_url, None, fresh_database_url, None):
        async with await open_hub(tmp_path, url, sources="none") as hub:
            path, new_key = await ensure_key(hub, workspace)
            assert (new_key is None) == (url in keys)
            assert keys.setdefault(url, path.read_text()) == path.read_text()
            assert len(await hub.keys.list(workspace)) == 1
            assert path.stat().st_mode & 0o777 == 0o600
    assert len(set(keys.values())) == 2


async def test_key_of_a_database_in_the_old_file_is_kept(
    tmp_path: Path, fresh_database_url: str
) -> None:
    async with await open_hub(tmp_path, fresh_database_url, sources="none") as hub:
        _, key = await hub.keys.create("local", "made at the first start")
        (tmp_path / "key").write_text(key + "\n")
        path, new_key = await ensure_key(hub, "local")
        assert (path.read_text().strip(), new_key) == (key, None)
        assert path != tmp_path / "key"
        assert len(await hub.keys.list("local")) == 1
