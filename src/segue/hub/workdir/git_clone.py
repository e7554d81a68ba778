"""Cloning a repository that a session names, with git as it is installed here.

Nothing of this machine's git configuration counts, no hook runs, nobody is asked for a password.
A token is given to git in its environment: it is not in an argument that others can see, nor in
the clone's own configuration.
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

SECONDS = 300
# What git says, and what that means; the first that fits.
_MEANINGS = (
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


async def clone(
    url: str, place: Path, checkout: dict[str, Any] | None = None, token: str | None = None
) -> Failed | None:
    """A clone at a place that appears whole or not at all; what went wrong, if something did."""
    if place.exists():
        return None
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_name(f".{place.name}.{ids.new_id()}")
    command = ["clone", "--quiet", "--no-recurse-submodules"]
    branch = checkout and checkout.get("name")
    if branch:
        command += [f"--branch={branch}"]
    try:
        wrong = await _git([*command, "--", url, str(draft)], url, token)
        if wrong is None and checkout and "sha" in checkout:
            detached = ["-C", str(draft), "checkout", "--quiet", "--detach", checkout["sha"]]
            wrong = await _git(detached, url, token)
            wrong = wrong and replace(wrong, code="repository_checkout_error")
        if wrong is None:
            os.replace(draft, place)
        return wrong
    except OSError as error:
        if place.exists():
            return None  # another process was quicker
        return Failed(
            message=f"{url} cannot be cloned here: {error.strerror}",
            code="repository_clone_error",
            retry="retrying",
        )
    finally:
        if draft.exists():
            await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)


async def _git(command: list[str], url: str, token: str | None) -> Failed | None:
    process = await asyncio.create_subprocess_exec(
        "git",
        *command,
        env=_environment(url, token),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _, told = await asyncio.wait_for(process.communicate(), SECONDS)
    except TimeoutError:
        told = b"it took too long"
    finally:
        if process.returncode is None:  # with whatever helpers it has started
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode == 0:
        return None
    said = told.decode("utf-8", "replace").strip()
    if token:
        said = said.replace(token, "***")
    lowered = said.lower()
    kind = next((kind for words, kind in _MEANINGS if words in lowered), "clone")
    code = f"repository_{kind}_error"
    return Failed(message=f"{url}: {said[-1000:]}", code=code, retry="retrying")


def _environment(url: str, token: str | None) -> dict[str, str]:
    settings = {"core.hooksPath": os.devnull, "init.templateDir": "", "credential.helper": ""}
    if token:
        pair = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        settings["http.extraHeader"] = f"Authorization: Basic {pair}"
        settings["http.followRedirects"] = "false"  # or the header would go along
    given = {
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
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE"):
        if name in os.environ:
            given[name] = os.environ[name]
    for number, (name, value) in enumerate(settings.items()):
        given[f"GIT_CONFIG_KEY_{number}"] = name
        given[f"GIT_CONFIG_VALUE_{number}"] = value
    return given
