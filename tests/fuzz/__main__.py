"""Fuzz one target: `python -m tests.fuzz TARGET [SECONDS]`.

With the package atheris, its fuzzer runs with the corpus. Without it, inputs are changed at random,
and those that reach new lines of segue are kept and changed further. An input that finds a bug is
written to the corpus, so that the tests run it from then on.
"""

import hashlib
import random
import sys
import tempfile
import time
from types import FrameType
from typing import Any

import segue
from tests.fuzz.mutate import mutate
from tests.fuzz.targets import CORPUS, TARGETS, is_handled, seeds

SOURCE = str(next(iter(segue.__path__)))


def reached_lines(name: str, data: bytes) -> set[tuple[str, int]]:
    """Run a target and return the lines of segue that it reached."""
    lines: set[tuple[str, int]] = set()

    def trace(frame: FrameType, kind: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(SOURCE):
            return None
        if kind == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        is_handled(TARGETS[name], data)
    finally:
        sys.settrace(None)
    return lines


def fuzz(name: str, seconds: float) -> int:
    """Fuzz a target for some time; return the number of inputs."""
    chance, pool, known, count = random.Random(), seeds(name), set[tuple[str, int]](), 0
    for data in pool:
        known |= reached_lines(name, data)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        data = mutate(chance.choice(pool), chance, pool)[:100_000]
        count += 1
        try:
            lines = reached_lines(name, data)
        except Exception:
            path = CORPUS / name / f"bug-{hashlib.sha256(data).hexdigest()[:12]}"
            path.write_bytes(data)
            print(f"{path} finds a bug")
            raise
        if not lines <= known:
            known |= lines
            pool.append(data)
    print(f"{name}: {count} inputs, {len(pool)} of them reach {len(known)} lines, no bug")
    return count


def fuzz_with_atheris(name: str, seconds: float) -> None:
    import atheris

    with atheris.instrument_imports(include=["segue"]):
        for data in seeds(name):
            is_handled(TARGETS[name], data)  # imports what the target uses
    kept = tempfile.mkdtemp(prefix=f"segue-fuzz-{name}-")  # the fuzzer ends this process
    print(f"inputs that reach new code are kept in {kept}")
    limits = [f"-max_total_time={seconds:.0f}", "-max_len=100000", "-timeout=20"]
    bugs = f"-artifact_prefix={CORPUS / name}/bug-"
    arguments = [sys.argv[0], *limits, bugs, kept, str(CORPUS / name)]
    atheris.Setup(arguments, lambda data: is_handled(TARGETS[name], data))
    atheris.Fuzz()


if __name__ == "__main__":
    target, duration = sys.argv[1], float((*sys.argv, "60")[2])
    try:
        fuzz_with_atheris(target, duration)
    except ModuleNotFoundError:
        fuzz(target, duration)
