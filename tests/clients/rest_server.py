"""`segue serve` as a child process, for clients that need a real server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Server(NamedTuple):
    url: str
    key: str
    process: subprocess.Popen[str]
    startup_output: str
    environment: dict[str, str]
    database_options: tuple[str, ...]

    def login_link(self) -> str:
        """Return a link that signs one browser in, once."""
        done = subprocess.run(
            [sys.executable, "-m", "segue", "open", "--no-browser", *self.database_options],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@contextmanager
def serving(
    data: Path, *options: str, program: tuple[str, ...] = (sys.executable, "-m", "segue")
) -> Iterator[Server]:
    """A server on a free port of this machine, and the key of its local workspace."""
    environment = {**os.environ, "SEGUE_DATA_DIR": str(data), "PYTHONUNBUFFERED": "1"}
    environment.pop("SEGUE_DATABASE_URL", None)
    process = subprocess.Popen(
        [*program, "serve", "--port", "0", *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
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
        key = (data / "key").read_text().strip()
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
        process.stdout.close()
        process.stderr.close()
