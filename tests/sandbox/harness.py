"""Start sandboxes for the tests of escapes, with each backend and as different users."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from segue.agents.sandbox import launch

from .backends import skip_unless_backend_works

NOBODY = 65534
PROBE_SERVER = (Path(__file__).parent / "probe_server.py").read_text()
SYSTEM_PYTHON = "/usr/bin/python3"  # readable in every sandbox
ANSWER_SECONDS = 60


class Answer(NamedTuple):
    """The result of code that ran in a sandbox: a value, or the name of an error number."""

    value: Any = None
    errno: str | None = None


class Files:
    """A data directory below a readable directory, with two sessions and files around them."""

    def __init__(self, top: Path, uid: int) -> None:
        self.top = top
        self.readable = top / "system"
        self.public = self.readable / "public.txt"
        self.link_to_data = self.readable / "link"
        self.data = self.readable / "data"
        self.key = self.data / "secret.key"
        self.other_session = self.data / "work" / "other"
        self.other_file = self.other_session / "other.txt"
        self.session = self.data / "work" / "own"
        self.read_only = self.session / "memory"
        self.memory = self.read_only / "deep" / "memory.txt"
        self.outside = top / "outside.txt"
        for directory in (self.other_session, self.memory.parent, top / "scratch" / "shm"):
            directory.mkdir(parents=True)
        for file in (self.public, self.key, self.other_file, self.outside):
            file.write_text("SECRET" if file != self.public else "public")
            file.chmod(0o644)
        self.memory.write_text("memory")
        for path, mode in ((self.memory, 0o444), (self.memory.parent, 0o555)):
            path.chmod(mode)
        self.read_only.chmod(0o555)
        self.link_to_data.symlink_to("data")
        for path in (top, *top.rglob("*")):
            os.chown(path, uid, uid if uid == NOBODY else -1, follow_symlinks=False)

    @property
    def private(self) -> tuple[str, ...]:
        """Return the directories that a sandbox must hide."""
        return (str(self.data), str(self.data / "work"))


class Sandbox:
    """A process in a sandbox that executes code, and a process of the same user outside."""

    def __init__(
        self,
        backend: str,
        uid: int,
        files: Files,
        limits: launch.Limits | None = None,
        proxy_port: int | None = None,
    ) -> None:
        self.backend = backend
        self.proxy_port = proxy_port
        self.uid = uid
        self.files = files
        self._killed_for_memory = _killed_for_memory()
        self.as_user: dict[str, Any] = {}
        if uid != os.getuid():
            self.as_user = {"user": uid, "group": uid, "extra_groups": []}
        self.victim = subprocess.Popen(["sleep", "600"], env={"HIDDEN": "SECRET"}, **self.as_user)
        command, env = self.command([SYSTEM_PYTHON, "-I", "-u", "-c", PROBE_SERVER], limits)
        self.process = subprocess.Popen(
            command,
            env=env,
            cwd=files.session,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **self.as_user,
        )

    def command(
        self, program: Sequence[str], limits: launch.Limits | None = None
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command and environment that run a program in this sandbox."""
        files = self.files
        policy = launch.Policy(
            write=[str(files.session)],
            isolated=True,
            read=[str(files.readable)],
            private=files.private,
            shm=str(files.top / "scratch" / "shm"),
            read_only=[str(files.read_only)],
            proxy_port=self.proxy_port,
            limits=limits or launch.Limits(),
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(launch, "backend", lambda *, isolated: self.backend)
            if self.uid != os.getuid():  # this Python may be in a directory of root's
                patch.setattr(sys, "executable", SYSTEM_PYTHON)
            home = str(files.session)
            env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": home, "TMPDIR": home}
            return launch.sandboxed_command(program, env, policy)

    def run(self, code: str, **values: Any) -> Answer:
        """Execute code in the sandbox; `values` become its variables."""
        lines = [f"{name} = {value!r}" for name, value in values.items()]
        request = json.dumps({"code": "\n".join([*lines, code])})
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline() or "null")
        except BrokenPipeError:
            answer = None
        if answer is None:
            code = self.process.wait(ANSWER_SECONDS)
            assert self.process.stderr is not None
            killed = _killed_for_memory() - self._killed_for_memory
            raise SandboxEnded(
                f"exit code {code}; since its start, the kernel killed {killed} processes for"
                f" memory; standard error: {self.process.stderr.read()}"
            )
        assert "error" not in answer, answer["error"]
        return Answer(answer.get("value"), answer.get("errno"))

    def successes(self, codes: Sequence[str], errors: Sequence[str], **values: Any) -> list[str]:
        """Execute each code, and return those that do not fail with one of the error numbers."""
        code = """
import errno
value = []
home = os.getcwd()
for code in codes:
    try:
        exec(code, globals())
        value.append(code)
    except OSError as error:
        if errno.errorcode.get(error.errno) not in errors:
            value.append(f"{code}  # {error}")
    os.chdir(home)
"""
        result: list[str] = self.run(code, codes=[*codes], errors=[*errors], **values).value
        return result

    def stop(self) -> None:
        """End the sandbox and the process outside of it."""
        self.process.terminate()
        self.process.communicate(timeout=ANSWER_SECONDS)
        self.victim.kill()
        self.victim.wait()


class SandboxEnded(Exception):
    """The sandboxed process ended; the message has what may tell why."""


def _killed_for_memory() -> int:
    """Return how many processes the kernel has killed for want of memory: sandboxes come first."""
    lines = Path("/proc/vmstat").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


@contextmanager
def open_sandbox(
    backend: str,
    user: str,
    limits: launch.Limits | None = None,
    *,
    proxy_port: int | None = None,
) -> Iterator[Sandbox]:
    """Yield a new sandbox; skip the test if this machine cannot have one of this kind."""
    skip_unless_available(backend, user)
    # Not pytest's directory, which other users cannot enter.
    top = Path(tempfile.mkdtemp(prefix="segue-escape-"))
    uid = NOBODY if user == "nobody" else os.getuid()
    sandbox = Sandbox(backend, uid, Files(top, uid), limits, proxy_port)
    try:
        yield sandbox
    finally:
        sandbox.stop()
        shutil.rmtree(top)


def skip_unless_available(backend: str, user: str) -> None:
    """Skip the test, with the reason, if this machine lacks the backend or the user."""
    if not os.path.exists(SYSTEM_PYTHON):
        pytest.skip(f"{SYSTEM_PYTHON} does not exist")
    skip_unless_backend_works(backend)
    if user == "nobody" and os.getuid() != 0:
        pytest.skip("only root can start programs as another user")
