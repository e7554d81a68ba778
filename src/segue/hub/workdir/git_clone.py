"""Clone a repository into a session's directory, with the installed git.

This machine's git configuration does not apply, no hook runs and git does not ask for a password.
A token is passed in the environment, so neither the process list nor the clone's configuration
shows it.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import signal
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from segue.model import ids
from segue.model.event import Failed

TIMEOUT_SECONDS = 300
_MAX_MESSAGE_CHARACTERS = 1000
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
_INHERITED_VARIABLES = ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE")


async def clone(
    url: str, path: Path, checkout: dict[str, Any] | None = None, token: str | None = None
) -> Failed | None:
    """Clone a repository to `path`, unless that exists. Return what went wrong, if anything did.

    The clone is made under a temporary name, so `path` is complete or does not exist.
    """
    if path.exists():
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{ids.new_id()}")
    try:
        problem = await _clone_and_checkout(url, draft, checkout or {}, token)
        if problem is None:
            os.replace(draft, path)
        return problem
    except OSError as error:
        if path.exists():
            return None  # another process cloned it first
        return Failed(
            message=f"cannot clone {url} here: {error.strerror}",
            code="repository_clone_error",
            retry="retrying",
        )
    finally:
        if draft.exists():
            await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)


async def _clone_and_checkout(
    url: str, path: Path, checkout: dict[str, Any], token: str | None
) -> Failed | None:
    command = ["clone", "--quiet", "--no-recurse-submodules"]
    if branch := checkout.get("name"):
        command += [f"--branch={branch}"]
    problem = await _run_git([*command, "--", url, str(path)], url, token)
    if problem is not None or "sha" not in checkout:
        return problem
    command = ["-C", str(path), "checkout", "--quiet", "--detach", checkout["sha"]]
    problem = await _run_git(command, url, token)
    return problem and replace(problem, code="repository_checkout_error")


async def _run_git(arguments: list[str], url: str, token: str | None) -> Failed | None:
    """Run git and return its error, without the token."""
    process = await asyncio.create_subprocess_exec(
        "git",
        *arguments,
        env=_environment(url, token),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _, output = await asyncio.wait_for(process.communicate(), TIMEOUT_SECONDS)
    except TimeoutError:
        output = f"git did not finish within {TIMEOUT_SECONDS} seconds".encode()
    finally:
        if process.returncode is None:  # end its helper processes too
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
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


def _error_kind(message: str) -> str:
    lowered = message.lower()
    return next((kind for words, kind in _ERROR_KINDS if words in lowered), "clone")


def _environment(url: str, token: str | None) -> dict[str, str]:
    """Return git's whole environment, with its settings."""
    settings = {"core.hooksPath": os.devnull, "init.templateDir": "", "credential.helper": ""}
    if token:
        credentials = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        settings["http.extraHeader"] = f"Authorization: Basic {credentials}"
        # A redirect would send the header to another server.
        settings["http.followRedirects"] = "false"
    variables = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.devnull,
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
