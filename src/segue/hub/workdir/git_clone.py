"""Clone a repository into a staging directory, with the installed git.

git runs in a sandbox, if the machine has one, and can write to the staging directory only. No
program of a session can reach that directory, so none can change the clone's configuration while
git works. This machine's git configuration does not apply, no hook runs and git does not ask for a
password. A token is passed in the environment, so neither the process list nor the clone's
configuration shows it.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from msgspec.structs import replace

from segue.agents.sandbox import launch
from segue.model.event import Failed

TIMEOUT_SECONDS = 300
_MAX_MESSAGE_CHARACTERS = 1000
_CHUNK_BYTES = 65536
# Part of git's error message, and the kind of error that it means. The first match counts.
_ERROR_KINDS = (
    ("remote branch", "checkout"),
    ("reference is not a tree", "checkout"),
    ("unable to read tree", "checkout"),
    ("authentication failed", "authentication"),
    ("could not read username", "authentication"),
    ("could not read password", "authentication"),
    ("error: 401", "authentication"),
    ("error: 403", "forbidden"),
    ("not found", "not_found"),
    ("does not exist", "not_found"),
    ("does not appear to be a git repository", "not_found"),
)
_CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_INHERITED_VARIABLES = (
    *("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"),
    *_CERTIFICATE_VARIABLES,
)


async def clone(
    url: str, staging: Path, checkout: dict[str, Any] | None = None, token: str | None = None
) -> Path | Failed:
    """Clone a repository into a new directory in `staging`.

    Returns the path of the clone, or what went wrong.
    """
    path = staging / "clone"
    arguments = ["clone", "--quiet", "--no-recurse-submodules"]
    if branch := (checkout or {}).get("name"):
        arguments += [f"--branch={branch}"]
    problem = await _run_git([*arguments, "--", url, str(path)], url, staging, token)
    if problem is None and (commit := (checkout or {}).get("sha")):
        arguments = ["-C", str(path), "checkout", "--quiet", "--detach", commit]
        problem = await _run_git(arguments, url, staging, token)
        problem = problem and replace(problem, code="repository_checkout_error")
    return problem or path


async def _run_git(
    arguments: list[str], url: str, staging: Path, token: str | None
) -> Failed | None:
    """Run git and return its error, without the token."""
    try:
        process = await _start_git(arguments, url, staging, token)
    except OSError as error:
        return Failed(
            message=f"cannot run git to clone {url}: {error.strerror}",
            code="repository_clone_error",
            retry="retrying",
        )
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            output = await _read_end(process)
            await process.wait()
    except TimeoutError:
        output = f"git did not finish within {TIMEOUT_SECONDS} seconds".encode()
    finally:
        if process.returncode is None:  # end its helper processes too
            await launch.end(process)
    if process.returncode == 0:
        return None
    message = output.decode("utf-8", "replace").strip()
    if token:
        message = message.replace(token, "***")
    return Failed(
        message=f"{url}: {message[-_MAX_MESSAGE_CHARACTERS:]}",
        code=f"repository_{_error_kind(message)}_error",
        retry="retrying",
    )


async def _start_git(
    arguments: list[str], url: str, staging: Path, token: str | None
) -> asyncio.subprocess.Process:
    await launch.detect_backends()
    env = _environment(url, staging, token)
    command, env = _sandboxed([_git_program(), *arguments], env, url, staging)
    return await asyncio.create_subprocess_exec(
        *command,
        env=env,
        cwd=staging,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


async def _read_end(process: asyncio.subprocess.Process) -> bytes:
    """Return the end of what a process writes to its standard error, which may be endless."""
    assert process.stderr is not None
    output = b""
    while data := await process.stderr.read(_CHUNK_BYTES):
        output = (output + data)[-_CHUNK_BYTES:]
    return output


def _git_program() -> str:
    program = shutil.which("git")
    if program is None:
        raise FileNotFoundError(errno.ENOENT, "git is not installed")
    return program


def _sandboxed(
    command: list[str], env: dict[str, str], url: str, staging: Path
) -> tuple[list[str], dict[str, str]]:
    """Return the command and its environment in the strictest sandbox that this machine has.

    On a machine without a sandbox, git runs without one. There, only the local user's programs run,
    and the staging directory is outside of the session's directory.
    """
    isolated = launch.backend(isolated=True) is not None
    if not isolated and launch.backend(isolated=False) is None:
        return launch.supervised_command(command, env)
    read = [os.path.realpath(command[0])]
    read += [os.environ[name] for name in _CERTIFICATE_VARIABLES if name in os.environ]
    if path := file_url_path(url):
        read.append(path)
    policy = launch.Policy(
        write=[os.path.realpath(staging)],
        isolated=isolated,
        read=read,
        network=True,
        limits=launch.Limits() if isolated else None,
    )
    return launch.sandboxed_command(command, env, policy)


def file_url_path(url: str) -> str | None:
    """Return the path of a file:// URL as git decodes it; None if it is another URL."""
    scheme, _, path = url.partition("://")
    return unquote(path) if scheme == "file" else None


def _error_kind(message: str) -> str:
    lowered = message.lower()
    return next((kind for words, kind in _ERROR_KINDS if words in lowered), "clone")


def _environment(url: str, staging: Path, token: str | None) -> dict[str, str]:
    """Return git's whole environment, with its settings."""
    settings = {
        "core.hooksPath": os.devnull,
        "core.fsmonitor": "false",
        "init.templateDir": "",
        "credential.helper": "",
        "gc.auto": "0",  # it would continue in the background
    }
    if token:
        credentials = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        settings["http.extraHeader"] = f"Authorization: Basic {credentials}"
        # A redirect would send the header to another server.
        settings["http.followRedirects"] = "false"
    variables = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.devnull,
        "TMPDIR": str(staging),
        "LC_ALL": "C",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "GIT_ALLOW_PROTOCOL": url.partition(":")[0],
        "GIT_CONFIG_COUNT": str(len(settings)),
    }
    for name in _INHERITED_VARIABLES:
        if name in os.environ:
            variables[name] = os.environ[name]
    for number, (name, value) in enumerate(settings.items()):
        variables[f"GIT_CONFIG_KEY_{number}"] = name
        variables[f"GIT_CONFIG_VALUE_{number}"] = value
    return variables
