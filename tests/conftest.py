"""Fixtures for all tests."""

import asyncio
import gc
import importlib
import inspect
import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.command_server import CommandServer
from tests.default_tier import mark_long_combinations
from tests.postgres import Databases, memory_directory, running_server

# A loaded machine must not fail a property test, so no example has a time limit.
settings.register_profile("segue", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("segue")

# Without compiled modules each of the many child processes would compile segue again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

TEMPORARY_BYTES = 4 << 30  # more than a whole run needs

# Before any test imports them, so that a failed assertion shows the compared values.
pytest.register_assert_rewrite(
    "tests.interfaces.acp.harness",
    "tests.interfaces.acp.testbed",
    "tests.interfaces.web.harness",
    "tests.interfaces.web.site",
)


def pytest_configure() -> None:
    """Keep temporary directories in memory, if the system has enough: no test waits for a disk."""
    if directory := memory_directory(free_bytes=TEMPORARY_BYTES):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", directory)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import a part of the test modules first, another one in each process of a parallel run.

    In a new checkout pytest compiles each test module. The processes would all do so for the same
    module at the same time; now each finds most modules compiled by another.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    root = session.config.rootpath
    directories = [root / argument for argument in session.config.args]
    paths = [path for directory in directories for path in sorted(directory.rglob("test_*.py"))]
    for path in paths[number::count]:
        importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Leave out what was imported and collected of garbage collections: it stays until the end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before pytest deselects what -m leaves out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_long_combinations(items)
    for item in items:
        if item.get_closest_marker("full"):
            item.add_marker(pytest.mark.timeout(0))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in its own event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    parameters = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in parameters}))
    return True


# The variables by which tools find their homes: those of the tests are empty.
HOME_VARIABLES = (
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "COPILOT_HOME",
    "GEMINI_CLI_HOME",
    "GOOSE_PATH_ROOT",
    "KIMI_CODE_HOME",
    "QWEN_HOME",
    "XDG_DATA_HOME",  # opencode and Goose
)


@pytest.fixture(scope="session", autouse=True)
def no_tool_homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide the sessions of the user who runs the tests, also from child processes."""
    with pytest.MonkeyPatch.context() as patch:
        for name in HOME_VARIABLES:
            patch.setenv(name, str(tmp_path_factory.mktemp("no-sessions") / name))
        patch.delenv("QWEN_RUNTIME_DIR", raising=False)
        patch.delenv("SEGUE_SOURCES", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def interruptible_children() -> None:
    """Let child processes be interrupted, even if the tests run in the background of a shell."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def command_server() -> Iterator[CommandServer]:
    """A process that runs `segue` commands without importing segue for each."""
    with CommandServer() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server with default settings, for tests of faults; see `fresh_database`.

    One server serves the whole run, or one worker of it under xdist.
    """
    with running_server() as url:
        yield url


@pytest.fixture(scope="session")
def quick_postgres_url() -> Iterator[str]:
    """A PostgreSQL server that is not durable, where a new database costs a tenth."""
    with running_server(durable=False) as url:
        yield url


@pytest.fixture(scope="session")
def quick_databases(quick_postgres_url: str) -> Iterator[Databases]:
    """Creates databases in the server that is not durable."""
    with Databases(quick_postgres_url) as databases:
        yield databases


@pytest.fixture
def fresh_database_url(quick_databases: Databases) -> Iterator[str]:
    """A new, empty database, dropped after the test: for tests that create the tables."""
    with quick_databases.new() as url:
        yield url


@pytest.fixture
def migrated_database_url(quick_databases: Databases) -> Iterator[str]:
    """A new database with segue's tables, dropped after the test: for most tests."""
    with quick_databases.new(migrated=True) as url:
        yield url
