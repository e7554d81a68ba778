"""The `segue serve` and `segue open` commands."""

import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2

from tests.clients.rest_server import Server, serving
from tests.interfaces.rest.api import HEADERS


def test_one_server_serves_web_and_rest(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        headers = {**HEADERS, "x-api-key": server.key}
        assert httpx2.get(f"{server.url}/v1/sessions", headers=headers).json()["data"] == []
        assert httpx2.get(f"{server.url}/healthz").status_code == 200
        assert "segue open" in httpx2.get(server.url).text
        link = server.login_link()
        assert link.startswith(f"{server.url}/login?token=")
        with httpx2.Client(follow_redirects=True) as browser:
            assert "No sessions yet" in browser.get(link).text
        # The end of another server must not remove the address of the first one.
        with serving(tmp_path) as another:
            assert httpx2.get(f"{another.url}/healthz").status_code == 200
        assert server.login_link().startswith(f"{server.url}/login?token=")
    assert not [*tmp_path.glob("server.*")]


def test_a_host_name_is_served_only_if_it_is_allowed(tmp_path: Path) -> None:
    with serving(tmp_path, "--allow-host", "segue.example") as server:
        for host, status in (("segue.example", 401), ("other.example", 403)):
            assert httpx2.get(server.url, headers={"host": host}).status_code == status


def test_secrets_are_not_printed_into_a_pipe(tmp_path: Path) -> None:
    for _ in ("first start", "second start"):
        with serving(tmp_path) as server:
            assert server.key not in server.startup_output
            assert "token=" not in server.startup_output
            assert f"The API key of workspace 'local' is in {tmp_path / 'key'}\n" in (
                server.startup_output
            )
            assert " open --data-dir " in server.startup_output


def test_a_terminal_shows_the_new_key_and_a_login_link(tmp_path: Path) -> None:
    terminal, child_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "segue", "serve", "--port", "0", "--data-dir", str(tmp_path)],
        stdout=child_end,
    )
    os.close(child_end)
    output = ""
    try:
        while "print(session.id" not in output:
            output += os.read(terminal, 4096).decode()
    finally:
        process.terminate()
        process.wait(60)
        os.close(terminal)
    assert f"API key of workspace 'local': {(tmp_path / 'key').read_text().strip()}" in output
    assert "/login?token=local~" in output


@contextmanager
def impostor(forward_to: str | None) -> Iterator[tuple[str, list[str]]]:
    """Another program on a port: it answers everything, or passes requests on to a server."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            answer = httpx2.get(forward_to + self.path).content if forward_to else b"ok\n"
            self.send_response(200)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    program = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=program.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{program.server_port}", paths
    finally:
        program.shutdown()
        thread.join()
        program.server_close()


def check_impostor_gets_no_link(data: Path, server: Server, forward_to: str | None) -> None:
    with impostor(forward_to) as (url, paths):
        # Named so that it comes before the file of the real server.
        stale = data / "server.0.json"
        stale.write_text(json.dumps({"url": url}))
        assert server.login_link().startswith(f"{server.url}/login?token=")
        assert len(paths) == 1 and "token" not in paths[0]
        stale.unlink()


def test_a_program_that_took_over_a_port_gets_no_login_link(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        check_impostor_gets_no_link(tmp_path, server, None)


def test_a_program_that_passes_on_the_proof_gets_no_login_link(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        check_impostor_gets_no_link(tmp_path, server, server.url)


def test_a_server_of_another_store_gets_no_login_link(tmp_path: Path) -> None:
    with serving(tmp_path / "a") as server, serving(tmp_path / "b") as other:
        (tmp_path / "a" / "server.0.json").write_text(json.dumps({"url": other.url}))
        assert server.login_link().startswith(f"{server.url}/login?token=")


def test_the_proof_needs_a_nonce_and_a_served_host(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        url = f"{server.url}/server-proof"
        assert httpx2.get(url).status_code == 400
        assert httpx2.get(f"{url}?nonce={'A' * 32}").status_code == 400
        proof = httpx2.get(f"{url}?nonce={'a' * 32}")
        assert proof.status_code == 200 and len(proof.text) == 64
        headers = {"host": "other.example"}
        assert httpx2.get(f"{url}?nonce={'a' * 32}", headers=headers).status_code == 403
