"""A command that ends does not wait for parsers of untrusted input."""

import subprocess
import sys

PROGRAM = """
import threading, time
from segue import untrusted
from segue.interfaces.cli.main import main

untrusted.DEADLINE_SECONDS = 600.0
threading.Thread(target=untrusted.PARSERS.call, args=(time.sleep, 3600)).start()
while not untrusted.PARSERS._busy:
    time.sleep(0.01)
main(["--version"])
"""


def test_command_that_ends_ends_the_child_of_a_parser_that_is_busy() -> None:
    # The parser would need an hour, and its deadline is after ten minutes.
    subprocess.run([sys.executable, "-c", PROGRAM], check=False, capture_output=True, timeout=300)
