"""The `segue serve` and `segue open` commands."""

import os
import subprocess
import sys
from pathlib import Path

import httpx2

from tests.clients.rest_server import serving
from tests.interfaces.rest.api import HEADERS


def run_segue_open(data: Path) -> str:
    """Return what `segue open --no-browser` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "segue", "open", "--no-browser"],
        env={**os.environ, "SEGUE_DATA_DIR": str(data)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_one_server_serves_web_and_rest(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        headers = {**HEADERS, "x-api-key": server.key}
        assert httpx2.get(f"{server.url}/v1/sessions", headers=headers).json()["data"] == []
        assert httpx2.get(f"{server.url}/healthz").status_code == 200
        assert "segue open" in httpx2.get(server.url).text
        link = next(word for word in server.startup_output.split() if "/login?token=" in word)
        for url in (link, run_segue_open(tmp_path)):
            assert url.startswith(f"{server.url}/login?token=")
            with httpx2.Client(follow_redirects=True) as browser:
                assert "No sessions yet" in browser.get(url).text
        with serving(
            tmp_path
        ) as another:  # its end must not remove the address of the first server
            assert httpx2.get(f"{another.url}/healthz").status_code == 200
        assert run_segue_open(tmp_path).startswith(f"{server.url}/login?token=")
    assert not [*tmp_path.glob("server.*")]


def test_a_host_name_is_served_only_if_it_is_allowed(tmp_path: Path) -> None:
    with serving(tmp_path, "--allow-host", "segue.example") as server:
        for host, status in (("segue.example", 401), ("other.example", 403)):
            assert httpx2.get(server.url, headers={"host": host}).status_code == status
