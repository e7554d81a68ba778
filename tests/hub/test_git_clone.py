"""Clone repositories while a program of the session attacks, and from hostile servers."""

import asyncio
import base64
import os
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from segue.agents.sandbox import launch
from segue.agents.tools import BUILT_IN, PathGuard, ShellPool, ToolContext
from segue.hub import Hub
from segue.hub.workdir import git_clone
from segue.model import ids
from segue.model.errors import NotFound
from segue.model.event import Failed
from segue.model.principal import Principal
from segue.model.session import Session
from segue.store.memory import MemoryStore
from tests.sandbox.backends import skip_unless_backend_works

LOCAL = Principal(workspace="local")
TOKEN = "ghp_the_token_itself"


def git(*arguments: str) -> None:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *arguments]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository whose files name the filter `x`, which nothing configures."""
    path = tmp_path / "origin/project.git"
    git("init", "-q", "-b", "main", str(path))
    (path / ".gitattributes").write_text("* filter=x\n")
    for number in range(300):
        (path / f"file-{number}").write_text(f"{number}\n" * 200)
    git("-C", str(path), "add", ".")
    git("-C", str(path), "commit", "-q", "-m", "files")
    return path


@pytest.fixture(params=["landlock", "bubblewrap"])
def sandboxed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test with each sandbox backend of this machine."""
    backend: str = request.param
    skip_unless_backend_works(backend)
    monkeypatch.setattr(launch, "backend", lambda *, isolated: backend)
    return backend


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """Return a directory that is not among the temporary files in memory."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        yield Path(directory)


def install_git(directory: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program called git first in PATH. `$last` is the path of the clone."""
    program = directory / "bin/git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nfor last; do :; done\nmkdir "$last"\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def repository_resource(url: str) -> dict[str, Any]:
    return {
        "type": "github_repository",
        "id": ids.format_id("sesrsc", ids.new_id()),
        "url": url,
        "mount_path": "/workspace/project",
    }


@asynccontextmanager
async def running_bash(session: Session, command: str) -> AsyncIterator[None]:
    """Run a command of a remote principal in the session's directory during the block."""
    shells = ShellPool()
    paths = PathGuard([session.cwd], strict=True)
    context = ToolContext(session.id, paths, local=False, config={}, shells=shells)
    bash = BUILT_IN["bash"]
    running = asyncio.create_task(bash.run(context, bash.parse({"command": command})))
    try:
        async with asyncio.timeout(60):
            while not Path(session.cwd, "started").exists():
                await asyncio.sleep(0.01)
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await shells.close()


@pytest.mark.skipif(launch.backend(isolated=True) is None, reason="needs a sandbox")
async def test_program_of_the_session_cannot_configure_a_clone_that_is_being_made(
    tmp_path: Path, repository: Path
) -> None:
    escaped = tmp_path / "escaped"
    attack = f"""
        shopt -s nullglob dotglob
        echo 'touch {escaped}; cat' > program
        printf '[filter "x"]\\nsmudge = sh %s\\n[core]\\nfsmonitor = sh %s' \\
            $PWD/program $PWD/program > settings
        touch started
        while [ $SECONDS -lt 120 ]; do
            for config in */*/.git/config; do
                grep -q smudge $config || cat settings >> $config
            done
        done
    """
    async with Hub(MemoryStore(), tmp_path / "data", clone=["file://"]) as hub:
        session = await hub.editor.create(LOCAL)
        async with running_bash(session, attack):
            resource = repository_resource(f"file://{repository}")
            assert await hub.mounts.mount(session, resource) is None
            clone = Path(session.cwd, "workspace/project")
            assert (clone / "file-299").read_text() == "299\n" * 200
            # The attacker may change the finished clone. segue never runs git in it.
            async with asyncio.timeout(60):
                while "smudge" not in (clone / ".git/config").read_text():
                    await asyncio.sleep(0.01)
            assert await hub.mounts.mount(session, resource) is None
        assert not escaped.exists()


async def test_git_reads_and_writes_nothing_outside_of_its_staging_directory(
    tmp_path: Path, elsewhere: Path, sandboxed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / "secret").write_text("SECRET")
    script = f"""
        cat {elsewhere}/secret > "$last/stolen"
        echo x > {elsewhere}/written
        env > "$last/environment"
        echo fine > "$last/file"
    """
    install_git(elsewhere, script, monkeypatch)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-hidden")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(elsewhere / "secret"))
    staging = tmp_path / "staging"
    staging.mkdir()
    clone = await git_clone.clone("https://example.com/a", staging)
    assert isinstance(clone, Path), clone
    assert (clone / "file").read_text() == "fine\n"
    assert (clone / "stolen").read_text() == ""
    assert sorted(path.name for path in elsewhere.iterdir()) == ["bin", "secret"]
    environment = (clone / "environment").read_text().splitlines()
    assert "sk-hidden" not in str(environment)
    assert {"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1"} <= set(environment)
    assert "GIT_ALLOW_PROTOCOL=https" in environment


async def test_real_git_clones_in_each_sandbox(
    tmp_path: Path, repository: Path, sandboxed: str
) -> None:
    staging = tmp_path / "staging"
    staging.mkdir()
    clone = await git_clone.clone(f"file://{repository}", staging, {"name": "main"}, TOKEN)
    assert isinstance(clone, Path), clone
    assert (clone / "file-0").exists()
    assert TOKEN not in (clone / ".git/config").read_text()
    assert [path.name for path in staging.iterdir()] == ["clone"]


class GitServer:
    """An HTTP server on a loopback address for the files of a repository.

    It records the credentials of each request. With `location` it redirects all requests.
    """

    def __init__(self, repository: Path, location: str | None = None) -> None:
        git("-C", str(repository), "repack", "-a", "-d", "-q")  # one file in place of hundreds
        git("-C", str(repository), "update-server-info")
        self.credentials: list[str | None] = []
        server = self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                server.credentials.append(self.headers["authorization"])
                if location is None:
                    super().do_GET()
                    return
                self.send_response(302)
                self.send_header("location", location + self.path)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        handler = partial(Handler, directory=str(repository / ".git"))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "GitServer":
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


async def test_clone_over_http_sends_the_token_to_its_server_only(
    tmp_path: Path, repository: Path, sandboxed: str
) -> None:
    expected = "Basic " + base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
    with GitServer(repository) as server, GitServer(repository, server.url) as redirecting:
        for number, token in enumerate((TOKEN, None)):
            staging = tmp_path / f"staging-{number}"
            staging.mkdir()
            clone = await git_clone.clone(server.url, staging, token=token)
            assert isinstance(clone, Path), clone
            assert (clone / "file-299").exists()
            assert set(server.credentials) == {expected if token else None}
            for path in (clone / ".git").rglob("*"):
                assert not path.is_file() or TOKEN.encode() not in path.read_bytes()
            server.credentials.clear()
        refused = tmp_path / "refused"
        refused.mkdir()
        problem = await git_clone.clone(redirecting.url, refused, token=TOKEN)
        assert isinstance(problem, Failed)
        assert set(redirecting.credentials) == {expected} and server.credentials == []


@pytest.mark.skipif(launch.backend(isolated=True) is None, reason="needs a sandbox")
async def test_program_of_the_session_cannot_see_the_token_of_a_clone(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In its sandbox, git sees no other directory than its own.
    script = 'while [ -d "$last" ] && [ ! -e "$last/go" ]; do sleep 0.02; done'
    install_git(elsewhere, script, monkeypatch)
    attack = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline > seen 2>/dev/null; touch started"
    async with Hub(MemoryStore(), tmp_path / "data", clone=["https://"]) as hub:
        session = await hub.editor.create(LOCAL)
        resource = repository_resource("https://example.com/a")
        await hub.mounts.store_token(session, resource, TOKEN)
        mounting = asyncio.create_task(hub.mounts.mount(session, resource))
        staging = Path(f"{session.cwd}.staging")
        async with asyncio.timeout(60):
            while not (clones := list(staging.glob("*/clone"))):
                await asyncio.sleep(0.01)
        async with running_bash(session, attack):
            pass
        (clones[0] / "go").touch()
        assert await mounting is None
        seen = Path(session.cwd, "seen").read_text()
        assert "http.extraHeader" not in seen and TOKEN not in seen
        assert not staging.exists()


async def test_endless_error_output_of_git_does_not_fill_the_memory(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "head -c 20000000 /dev/zero | tr '\\0' x >&2; echo not found >&2; exit 1"
    install_git(elsewhere, script, monkeypatch)
    outputs: list[int] = []
    read_end = git_clone._read_end

    async def read_and_record(process: asyncio.subprocess.Process) -> bytes:
        output = await read_end(process)
        outputs.append(len(output))
        return output

    monkeypatch.setattr(git_clone, "_read_end", read_and_record)
    problem = await git_clone.clone("https://example.com/a", tmp_path)
    assert isinstance(problem, Failed) and problem.code == "repository_not_found_error"
    assert max(outputs) <= 65536


@pytest.mark.parametrize(
    "path", ["allowed/../hidden", "allowed/%2e%2e/hidden", "allowed/x/%2E./../hidden"]
)
async def test_file_url_cannot_leave_its_allowed_prefix(
    tmp_path: Path, repository: Path, path: str
) -> None:
    (tmp_path / "allowed/x").mkdir(parents=True)
    repository.rename(tmp_path / "hidden")
    async with Hub(MemoryStore(), tmp_path / "data", clone=[f"file://{tmp_path}/allowed/"]) as hub:
        session = await hub.editor.create(LOCAL)
        resource = repository_resource(f"file://{tmp_path}/{path}")
        problem = await hub.mounts.mount(session, resource)
        assert problem is not None and "does not clone repositories from there" in problem.message
        assert os.listdir(session.cwd) == []


async def test_purge_during_a_clone_leaves_nothing(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In its sandbox, git sees no other directory than its own.
    script = 'while [ -d "$last" ] && [ ! -e "$last/go" ]; do sleep 0.02; done'
    install_git(elsewhere, script, monkeypatch)
    async with Hub(MemoryStore(), tmp_path / "data", clone=["https://"]) as hub:
        resources = (repository_resource("https://example.com/a"),)
        session = await hub.editor.create(LOCAL, resources=resources)
        hub.workdirs.begin_mounting(session)
        async with asyncio.timeout(60):
            while not (clones := list(Path(f"{session.cwd}.staging").glob("*/clone"))):
                await asyncio.sleep(0.01)
        await hub.editor.purge(LOCAL, session.id)
        with suppress(FileNotFoundError):  # the purge may have deleted it
            (clones[0] / "go").touch()
        await hub.workdirs.wait_mounted()
        with pytest.raises(NotFound):
            await hub.sessions.get(LOCAL, session.id)
        assert os.listdir(tmp_path / "data/work") == []
