"""Packages of an environment are installed in the sandbox, before the first turn of a session."""

import base64
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from segue.agents.sandbox import launch
from segue.hub.workdir.isolation import can_install
from tests.agents.provider import Say, Use
from tests.agents.test_rest import served
from tests.interfaces.rest.api import Api, open_api

pytestmark = pytest.mark.skipif(
    not launch.supports_proxy(), reason="this machine cannot restrict the network of programs"
)


@pytest.fixture(autouse=True)
def api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")


def wheel() -> bytes:
    """Return a wheel with the module and the command `greet`."""
    files = {
        "greet.py": "def main():\n    print('hello from pip')\n",
        "greet-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n",
        "greet-1.0.dist-info/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
        "greet-1.0.dist-info/entry_points.txt": "[console_scripts]\ngreet = greet:main\n",
    }
    rows = [f"{name},sha256={_hash(text.encode())},{len(text)}" for name, text in files.items()]
    files["greet-1.0.dist-info/RECORD"] = "\n".join([*rows, "greet-1.0.dist-info/RECORD,,", ""])
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return data.getvalue()


def _hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def npm_package() -> bytes:
    """Return the archive of the npm package `wave`."""
    files = {
        "package/package.json": json.dumps({"name": "wave", "version": "1.0.0", "main": "a.js"}),
        "package/a.js": "module.exports = 'hello from npm'\n",
    }
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return data.getvalue()


@contextmanager
def registry() -> Iterator[tuple[str, list[str]]]:
    """Yield the URL of a registry for pip and npm, and the paths of the requests."""
    requests: list[str] = []
    archive = npm_package()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            url = f"http://127.0.0.1:{self.server.server_port}"  # type: ignore[attr-defined]
            version = {
                "name": "wave",
                "version": "1.0.0",
                "dist": {
                    "tarball": f"{url}/npm/wave.tgz",
                    "shasum": hashlib.sha1(archive).hexdigest(),
                },
            }
            metadata = {
                "name": "wave",
                "dist-tags": {"latest": "1.0.0"},
                "versions": {"1.0.0": version},
            }
            pages: dict[str, tuple[str, bytes]] = {
                "/simple/greet/": (
                    "text/html",
                    b'<a href="/greet-1.0-py3-none-any.whl">greet-1.0-py3-none-any.whl</a>',
                ),
                "/greet-1.0-py3-none-any.whl": ("application/octet-stream", wheel()),
                "/npm/wave": ("application/json", json.dumps(metadata).encode()),
                "/npm/wave.tgz": ("application/octet-stream", archive),
            }
            kind, body = pages.get(self.path, ("text/plain", b""))
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "max-age=600")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", requests
        finally:
            server.shutdown()
            thread.join()


async def start(api: Api, networking: dict[str, Any] | None = None, **packages: Any) -> str:
    """Return a session of an agent with bash, in an environment with packages."""
    await api.hub.config.set("local", "web.private", "true")
    toolset = {
        "type": "agent_toolset_20260401",
        "default_config": {"permission_policy": {"type": "always_allow"}},
    }
    agent = await api.agent(tools=[toolset])
    config = {
        "type": "cloud",
        "networking": networking or {"type": "unrestricted"},
        "packages": packages,
    }
    environment = await api.ok("POST", "/v1/environments", {"name": "e", "config": config})
    shown = environment["config"]["packages"]
    assert {name: shown[name] for name in packages} == packages
    return (await api.session(agent=agent["id"], environment_id=environment["id"]))["id"]


def set_registry(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"{url}/simple/")
    monkeypatch.setenv("PIP_TRUSTED_HOST", "127.0.0.1")  # pip has no cache for other plain HTTP
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"{url}/npm/")


def results_of(events: list[dict[str, Any]]) -> list[tuple[bool, str]]:
    return [
        (event["is_error"], " ".join(block["text"] for block in event["content"]))
        for event in events
        if event["type"] == "agent.tool_result"
    ]


async def test_packages_are_installed_once_before_the_first_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry() as (url, requests):
        set_registry(monkeypatch, url)
        async with served(tmp_path) as (api, provider):
            session = await start(api, pip=["greet==1.0"])
            provider.scripts = [
                [Use("bash", {"command": "greet; python3 -c 'import greet; greet.main()'"})],
                [Say("done")],
                [Say("again")],
            ]
            events = await api.say(session, "Go")
            calls = [event for event in events if event["type"] == "agent.tool_use"]
            assert calls[0]["name"] == "install_packages"
            assert calls[0]["input"] == {"manager": "pip", "packages": ["greet==1.0"]}
            (failed, _), (bash_failed, output) = results_of(events)
            assert not failed and not bash_failed, events
            assert output.split("\n")[:2] == ["hello from pip"] * 2
            assert (api.directory({"id": session}) / ".packages/pip/greet.py").exists()
            assert "install_packages" not in json.dumps(provider.requests, default=str)
            first = len(requests)
            await api.say(session, "More")
            assert len(requests) == first
            # Another session of the workspace finds the wheel in the cache.
            other = await start(api, pip=["greet==1.0"])
            provider.scripts = [[Say("done")]]
            events = await api.say(other, "Go")
            assert not results_of(events)[0][0]
            assert requests.count("/greet-1.0-py3-none-any.whl") == 1
            assert not any(event["type"] == "session.error" for event in events)


@pytest.mark.full
@pytest.mark.skipif(not can_install("npm"), reason="npm is not installed")
async def test_npm_packages_are_installed_and_failures_are_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry() as (url, _):
        set_registry(monkeypatch, url)
        async with served(tmp_path) as (api, provider):
            session = await start(api, npm=["wave@1.0.0"], pip=["absent"])
            command = """node -e "console.log(require('wave'))" """
            provider.scripts = [[Use("bash", {"command": command})], [Say("done")]]
            events = await api.say(session, "Go")
            (pip_failed, _), (npm_failed, _), (bash_failed, output) = results_of(events)
            assert pip_failed and not npm_failed and not bash_failed, events
            assert output.strip() == "hello from npm"
            (error,) = [event for event in events if event["type"] == "session.error"]
            assert "pip could not install absent: " in error["error"]["message"]


@pytest.mark.full
async def test_installation_obeys_the_networking_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry() as (url, requests):
        set_registry(monkeypatch, url)
        monkeypatch.setenv("PIP_RETRIES", "0")
        async with served(tmp_path) as (api, provider):
            networking: dict[str, Any] = {"type": "limited", "allow_package_managers": False}
            session = await start(api, networking, pip=["greet"])
            provider.scripts = [[Say("done")]]
            events = await api.say(session, "Go")
            assert results_of(events)[0][0] and not requests
            errors = [e["error"]["message"] for e in events if e["type"] == "session.error"]
            assert any("refused connection: 127.0.0.1" in message for message in errors)
            session = await start(
                api, {**networking, "allow_package_managers": True}, pip=["greet"]
            )
            provider.scripts = [[Say("done")]]
            assert not results_of(await api.say(session, "Go"))[0][0]


async def test_packages_that_cannot_be_installed_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_api(tmp_path) as api:

        async def refusal(**packages: Any) -> str:
            config = {"type": "cloud", "packages": packages}
            return await api.fails(400, "POST", "/v1/environments", {"name": "e", "config": config})

        for name in ("-r /etc/passwd", "./a", "git+https://a.example/b", "https://a.example", ""):
            assert "config.packages.pip[0]" in await refusal(pip=[name])
            assert "config.packages.npm[0]" in await refusal(npm=[name])
        assert "config.packages.pip" in await refusal(pip=["a"] * 101)
        monkeypatch.setattr("shutil.which", lambda *_, **__: None)
        assert "config.packages.npm: npm is not installed" in await refusal(npm=["a"])
        monkeypatch.setattr(launch, "supports_proxy", lambda: False)
        assert "config.packages.pip: " in await refusal(pip=["a"])
