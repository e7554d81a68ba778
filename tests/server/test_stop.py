"""A server that stops does not wait for parsers of untrusted input."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = """
import asyncio, socket, sys, time
from pathlib import Path
from segue import untrusted
from segue.server.serve import serve
from segue.server.settings import ServerSettings

untrusted.DEADLINE_SECONDS = 600.0

async def main():
    sock = socket.create_server(("127.0.0.1", 0))
    settings = ServerSettings(directory=Path(sys.argv[1]), sources="", grace_seconds=0.5)
    loop = asyncio.get_running_loop()

    def report():
        (child,) = untrusted.PARSERS._busy
        print(child._process.pid, flush=True)

    parsing = asyncio.ensure_future(untrusted.PARSERS.run(time.sleep, 3600))
    loop.call_later(2.0, report)
    await serve(settings, sock)

asyncio.run(main())
"""


def test_stopping_server_ends_the_child_of_a_parser_that_is_busy(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        child = int(server.stdout.readline())
        os.kill(child, 0)
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    deadline = time.monotonic() + 10
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
