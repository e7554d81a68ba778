"""The `segue serve` command."""

import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from segue.server.key_file import ensure_key
from tests.clients.rest_server import serving
from tests.interfaces.rest.api import HEADERS, open_api


def test_first_start_creates_a_key_and_later_starts_reuse_it(tmp_path: Path) -> None:
    with serving(tmp_path) as first:
        assert f"local' is in {tmp_path / 'key'}\n" in first.startup_output
        assert "Three things to try" in first.startup_output
        assert f"  segue new --data-dir {tmp_path} --title " in first.startup_output
        assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
        headers = {**HEADERS, "x-api-key": first.key}
        assert httpx2.get(f"{first.url}/v1/sessions", headers=headers).status_code == 200
    with serving(tmp_path) as second:
        assert second.key == first.key
        assert f"local' is in {tmp_path / 'key'}\n" in second.startup_output
        assert httpx2.get(f"{second.url}/v1/sessions", headers=headers).status_code == 200


def test_examples_that_the_server_prints_run_as_they_are(tmp_path: Path) -> None:
    programs = str(Path(sys.executable).parent)  # `segue`, and `python` with anthropic
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    with serving(tmp_path / "it's here") as server:
        examples = server.startup_output.split("in another terminal:\n")[1]
        done = subprocess.run(
            ["sh", "-e", "-c", examples],
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
        )
    assert done.returncode == 0, done.stderr
    assert '"title":"My first session"' in done.stdout
    assert done.stdout.endswith(" My first session\n")


def test_sessions_created_by_the_cli_are_served(tmp_path: Path) -> None:
    environment = {**os.environ, "SEGUE_DATA_DIR": str(tmp_path)}
    with serving(tmp_path) as server:
        subprocess.run(
            [sys.executable, "-m", "segue", "new", "--title", "Seen"], env=environment, check=True
        )
        created = subprocess.run(
            [sys.executable, "-m", "segue", "keys", "create", "--workspace", "w2"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        titles = {}
        for key in (server.key, created.stdout.strip()):
            headers = {**HEADERS, "x-api-key": key}
            response = httpx2.get(f"{server.url}/v1/sessions", headers=headers)
            titles[key] = [session["title"] for session in response.json()["data"]]
        assert list(titles.values()) == [["Seen"], []]


def test_host_name_is_served_only_if_it_is_allowed(tmp_path: Path) -> None:
    with serving(tmp_path, "--allow-host", "segue.example") as server:
        headers = {**HEADERS, "x-api-key": server.key}
        for host, status in (("segue.example", 200), ("other.example", 403)):
            response = httpx2.get(f"{server.url}/v1/sessions", headers={**headers, "host": host})
            assert response.status_code == status


def test_port_in_use_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as accepted:
        port = str(accepted.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "segue", "serve", "--port", port, "--data-dir", str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 2
    expected = f"segue: cannot listen on 127.0.0.1 port {port}: Address already in use"
    assert done.stderr == f"{expected}; --port 0 takes a free one\n"


async def test_each_workspace_has_its_own_key(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        created = {}
        for workspace, name in (("local", "key"), ("w2", "key-w2")):
            path, secret = await ensure_key(api.hub, workspace)
            assert (path, path.read_text().strip()) == (tmp_path / name, secret)
            assert (await ensure_key(api.hub, workspace)) == (path, None)
            created[workspace] = (await api.hub.keys.authenticate(secret or "")).workspace
        assert created == {"local": "local", "w2": "w2"}


def test_several_workers_serve_rest_and_web(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2", "--rate-limit", "1000") as server:
        headers = {**HEADERS, "x-api-key": server.key}
        for _ in range(6):
            response = httpx2.get(f"{server.url}/v1/sessions", headers=headers)
            assert response.status_code == 200
            # Each worker enforces its share of the limit.
            assert response.headers["anthropic-ratelimit-requests-limit"] == "500"
            assert httpx2.get(f"{server.url}/login").headers["content-type"].startswith("text/html")
        server.process.terminate()
        assert server.process.wait(30) == 0
        assert server.process.stderr is not None
        assert server.process.stderr.read() == ""


def test_workers_import_nothing_from_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = tmp_path / "cwd" / "multiprocessing.py"
    evil.parent.mkdir()
    evil.write_text("import pathlib; pathlib.Path(__file__).with_name('ran').touch()")
    monkeypatch.chdir(evil.parent)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    begin = "import sys; del sys.path[0]; from segue.__main__ import main; main()"
    program = (sys.executable, "-c", begin)
    with serving(tmp_path / "data", "--workers", "2", program=program) as server:
        headers = {**HEADERS, "x-api-key": server.key}
        assert httpx2.get(f"{server.url}/v1/sessions", headers=headers).status_code == 200
    assert [path.name for path in evil.parent.iterdir()] == [evil.name]


def test_log_level_info_logs_requests(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-level", "info") as server:
        headers = {**HEADERS, "x-api-key": server.key}
        response = httpx2.get(f"{server.url}/v1/sessions?q=hushed", headers=headers)
        server.process.terminate()
        server.process.wait(30)
        assert server.process.stderr is not None
        lines = [json.loads(line) for line in server.process.stderr.read().splitlines()]
    (request_line,) = [
        line for line in lines if line.get("request_id") == response.headers["request-id"]
    ]
    assert (request_line["route"], request_line["status"]) == ("/v1/sessions", 200)
    assert "hushed" not in str(lines) and server.key not in str(lines)
