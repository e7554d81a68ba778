"""No request keeps the server's event loop busy, whatever texts it shows or sends.

The tests measure the CPU time of the loop's thread, because elapsed time grows on a busy machine.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("loop_time.py")
MAX_MILLISECONDS = 50
SAMPLE = ["Markdown: csharp", "diffs", "many blocks"]


def measure(directory: Path, examples: int, *names: str) -> list[dict[str, Any]]:
    """Return the requests of the corpus with their CPU time on the loop."""
    program = subprocess.run(
        [sys.executable, PROGRAM, directory, str(examples), *names],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
    )
    assert program.returncode == 0, program.stderr[-2000:]
    *lines, last = [json.loads(line) for line in program.stdout.splitlines()]
    assert last["requests"] == len(lines) > 20
    return lines


def slow(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["ms"] > MAX_MILLISECONDS]


def test_a_sample_of_hostile_requests_leaves_the_event_loop_free(tmp_path: Path) -> None:
    assert slow(measure(tmp_path, 1, *SAMPLE)) == []


@pytest.mark.full
def test_no_hostile_or_random_request_keeps_the_event_loop_busy(tmp_path: Path) -> None:
    lines = measure(tmp_path, 40)
    assert slow(lines) == []
    assert {line["name"] for line in lines} > {"random", "bodies", "search", "deployments", *SAMPLE}
