"""Find out whether this machine has a backend of the sandbox; bubblewrap may be installed."""

import shutil
from functools import cache

import pytest

from segue.agents.sandbox import landlock, launch
from tests.system_packages import install_package, one_installation


def skip_unless_backend_works(backend: str) -> None:
    """Skip the test, with the reason, if this machine lacks the backend."""
    if backend == "landlock" and launch.landlock_abi() < landlock.MIN_ISOLATION_ABI:
        pytest.skip(f"this kernel has no Landlock {landlock.MIN_ISOLATION_ABI}")
    if backend == "bubblewrap" and (reason := _why_bubblewrap_is_missing()):
        pytest.skip(reason)


@cache
def _why_bubblewrap_is_missing() -> str:
    """Return why bubblewrap cannot be used, "" if it can be. It is installed first if possible."""
    failure = ""
    with one_installation():
        if not shutil.which("bwrap"):
            failure = install_package("bubblewrap")
    if failure:
        return f"bwrap is not installed: {failure}"
    launch.bubblewrap_works.cache_clear()
    return "" if launch.bubblewrap_works() else "bwrap cannot create namespaces"
