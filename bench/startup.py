"""Measure how long a new process takes to list 50 of 100,000 sessions, and to ask a model.

Each case is a separate Python process, timed from outside. The baseline imports msgspec and
sqlite3 and does nothing else. The file is in the system's cache. A list must not import asyncio.

A prompt is measured by the processor time until the first token of a model on a loopback address.
Its floor is a process that imports pydantic-ai and the provider's client normally.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _common import Bench, Case, build_database, list_corpus, temporary_directory, time_cases

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the tests have a model provider

from tests.agents.provider import Provider, Say, Wait  # noqa: E402

MAX_CPU_MS = 700.0  # of a prompt, until the first token
MODELS = {"anthropic": "anthropic:claude-sonnet-4-6", "openai": "openai:gpt-5"}
NORMAL_IMPORT = "import pydantic_ai.direct, pydantic_ai.models.{}"
SEGUE = "from segue.interfaces.cli import main; main({!r})"
BASELINE = "import msgspec, sqlite3"
# Without an event loop: reads of the embedded store never wait.
LIST_PROGRAM = """
import sys
from pathlib import Path
from typing import Any
from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore
path = Path(sys.argv[1])
try:
    Hub(SQLiteStore.open(path), path.parent).sessions.list(LOCAL).send(None)
except StopIteration as done:
    assert len(done.value.sessions) == 50
"""
PRINT_MODULES = """
heavy = "asyncio ssl subprocess inspect tempfile logging email click rich asyncpg".split()
print(len(sys.modules), *(name for name in heavy if name in sys.modules))
"""


def run_process(program: str, path: Path) -> str:
    """Run a Python program with a path as its argument; return its output."""
    command = [sys.executable, "-c", program, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def process_case(program: str, path: Path) -> Case:
    """Return a case that runs a program once."""

    async def run_once() -> None:
        run_process(program, path)

    return run_once


def cpu_milliseconds(
    program: str, environment: Mapping[str, str], *, until_output: bool = False
) -> float:
    """Run a Python program to its end, or to its first output; return its processor time."""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    with process.stdout as output:
        if until_output:
            assert os.read(output.fileno(), 1), f"no output: {program}"
            process.send_signal(signal.SIGKILL)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return (usage.ru_utime + usage.ru_stime) * 1e3


async def measure_first_token(
    provider: Provider, library: str, directory: Path, rounds: int
) -> tuple[float, float]:
    """Return the median processor time of a prompt until its first token, and of the floor."""
    environment = {
        **os.environ,
        **{"HOME": str(directory), "SEGUE_DATA_DIR": str(directory / library)},
        **{"ANTHROPIC_API_KEY": "none", "OPENAI_API_KEY": "none"},
    }

    async def run(words: Sequence[str], **options: bool) -> float:
        program = SEGUE.format(list(words))
        return await asyncio.to_thread(cpu_milliseconds, program, environment, **options)

    await run(["config", "set", "model", MODELS[library]])
    await run(["config", "set", "model.base_url", provider.url])
    prompts, imports = [], []
    for number in range(-1, rounds):
        prompt = await run(["prompt", "new", "Hi"], until_output=True)
        normal = NORMAL_IMPORT.format(library)
        floor = await asyncio.to_thread(cpu_milliseconds, normal, environment)
        if number >= 0:  # the first round fills the system's cache
            prompts.append(prompt)
            imports.append(floor)
    return statistics.median(prompts), statistics.median(imports)


async def main() -> int:
    bench = Bench("Cold start, in ms", ("median", "over the baseline", "ratio"))
    count = 1_000 if bench.quick else 100_000
    programs = {
        "an empty program": "pass",
        "baseline: import msgspec, sqlite3": BASELINE,
        "import segue": "import segue",
        "import segue.hub and the SQLite store": (
            "import segue.hub; from segue.store.sqlite import SQLiteStore"
        ),
        f"the same, then list 50 of {count:,} sessions": LIST_PROGRAM,
        "segue --version": "from segue.interfaces.cli import main; main(['--version'])",
    }
    with temporary_directory() as directory:
        path = await build_database(bench, f"listed-{count}", directory, list_corpus(count), count)
        cases = {name: process_case(program, path) for name, program in programs.items()}
        times = await time_cases(cases, 5 if bench.quick else 25, warm=2)
        modules, *heavy = run_process(LIST_PROGRAM + PRINT_MODULES, path).split()
    baseline = times["baseline: import msgspec, sqlite3"].median
    for name, times_of_case in times.items():
        overhead: dict[str, Any] = {"over the baseline": (times_of_case.median - baseline) * 1e3}
        bench.row(
            name,
            median=times_of_case.median * 1e3,
            ratio=times_of_case.median / baseline,
            **overhead,
        )
    bench.row(
        "a list imports asyncio",
        target="no",
        ok="asyncio" not in heavy,
        median=str("asyncio" in heavy),
    )
    async with Provider() as provider:
        provider.otherwise = [Say("Hello"), Wait()]
        with temporary_directory() as directory:
            for library, model in MODELS.items():
                cpu, floor = await measure_first_token(
                    provider, library, directory, 2 if bench.quick else 7
                )
                bench.row(f"CPU of a normal import of {library} and pydantic-ai", median=floor)
                bench.row(
                    f"CPU of segue prompt until the first token, {model}",
                    target=f"≤ {MAX_CPU_MS:g} ms",
                    ok=cpu <= MAX_CPU_MS,
                    median=cpu,
                    ratio=cpu / floor,
                )
    bench.note("the ratio of a prompt is to the normal import above it")
    bench.note(f"a list loads {modules} modules; heavy ones: {', '.join(heavy) or 'none'}")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
