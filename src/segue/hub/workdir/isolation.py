"""The directories to hide from a session's programs, and the directory of their temporary files."""

from __future__ import annotations

import asyncio
from pathlib import Path

from segue.model.errors import InvalidInput

from .mounts import WORK


def private_directories(data_dir: Path) -> tuple[str, ...]:
    """Return the data directory and the directories that contain those of all sessions."""
    from segue.agents.sandbox.scratch import scratch_parent

    return (str(data_dir), str(data_dir / WORK), str(scratch_parent()))


def check_isolation(data_dir: Path) -> None:
    """Raise InvalidInput if sandboxed programs could see the data directory."""
    from segue.agents.sandbox import launch

    try:
        launch.check_private_directories(private_directories(data_dir))
    except (launch.SandboxError, OSError) as error:
        raise InvalidInput(f"the sandbox cannot protect {data_dir}: {error}") from None


def can_limit_network() -> bool:
    """Return whether this machine can restrict the network access of a session's programs."""
    from segue.agents.sandbox import launch

    return launch.supports_proxy()


def can_install(manager: str) -> bool:
    """Return whether the program of a package manager is where sandboxed programs find it."""
    from segue.agents.tools.bash import DEFAULT_PATH, package_program

    return package_program(manager, DEFAULT_PATH) is not None


async def remove_temporary_files(session: str) -> None:
    """Delete the temporary files that programs of a purged session left."""
    from segue.agents.sandbox.scratch import remove_scratch_directory

    await asyncio.to_thread(remove_scratch_directory, session)
