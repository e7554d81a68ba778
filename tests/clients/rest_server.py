"""`segue serve` as a child process, for clients that need a real server."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.command_server import PipedCommand, server_of_turns


class Server(NamedTuple):
    url: str
    key: str
    process: subprocess.Popen[str] | PipedCommand
    startup_output: str
    environment: dict[str, str]
    database_options: tuple[str, ...]

    def login_link(self) -> str:
        """Return a link that signs one browser in, once."""
        words = ["python -m segue", "open", "--no-browser", *self.database_options]
        done = server_of_turns().run(words, env=self.environment, cwd=Path.cwd())
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def _start_program(words: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@contextmanager
def serving(data: Path, *options: str, program: tuple[str, ...] | None = None) -> Iterator[Server]:
    """A server on a free port of this machine, and the key of its local workspace.

    It is a fork, except with a program of its own.
    """
    environment = {**os.environ, "SEGUE_DATA_DIR": str(data), "PYTHONUNBUFFERED": "1"}
    environment.pop("SEGUE_DATABASE_URL", None)
    words = ["serve", "--port", "0", *options]
    process = (
        server_of_turns().pipe(["python -m segue", *words], env=environment)
        if program is None
        else _start_program([*program, *words], environment)
    )
    try:
        lines = []
        # The examples are printed last.
        for line in process.stdout:
            lines.append(line)
            if "print(session.id" in line:
                break
        else:
            raise AssertionError(process.stderr.read())
        url = lines[0].split()[-1]
        (key_line,) = (line for line in lines if line.startswith("The API key of workspace"))
        key = Path(key_line.rstrip("\n").partition(" is in ")[2]).read_text().strip()
        database_options: tuple[str, ...] = ()
        if "--database-url" in options:
            database_options = options[options.index("--database-url") :][:2]
        yield Server(url, key, process, "".join(lines), environment, database_options)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if isinstance(process, PipedCommand):
            process.close()
        else:
            process.stdout.close()
            process.stderr.close()
