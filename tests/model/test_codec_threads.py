"""Several threads decode values of a type that none of them has used before."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.processes import environment

PROGRAM = Path(__file__).with_name("codec_race.py")


@pytest.mark.parametrize(
    "part", ["codec", pytest.param("directory states", marks=pytest.mark.full)]
)
def test_threads_decode_a_new_type_at_once(part: str) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), part],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
