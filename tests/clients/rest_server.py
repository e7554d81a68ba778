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
        yield Server(url, (data / "key").read_text().strip(), process, "".join(lines), environment)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        process.stderr.close()
