"""Measure cold starts of the command line, and the picker in a pseudo-terminal.

Processes are timed from outside, in turns. The baseline is a Python process that only imports
click, msgspec and sqlite3, which every command needs. The peer is a script that lists the same
Claude Code sessions with claude-agent-sdk, whose source is downloaded from PyPI.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import random
import select
import sqlite3
import statistics
import struct
import subprocess
import sys
import tarfile
import termios
import time
from contextlib import closing
from pathlib import Path

from _common import (
    NOW,
    Bench,
    Case,
    Vocabulary,
    build_database,
    search_corpus,
    temporary_directory,
    time_cases,
)

from segue.sources.claude.format.paths import project_key

COMMAND = str(Path(sys.executable).with_name("segue"))
BASELINE = [sys.executable, "-c", "import click, msgspec, sqlite3"]
SDK = "claude-agent-sdk==0.2.182"
PEER = """
import json, claude_agent_sdk
rows = [vars(session) for session in claude_agent_sdk.list_sessions(limit=20)]
print(json.dumps(rows, default=str))
"""
SCREEN_END = b"\x1b[?2026l"  # the picker writes it after every screen
IDLE_SECONDS = 0.05  # without output for so long, a screen is complete
TYPED_MESSAGES = 16
TYPED_CHARACTERS = 12


def run_case(command: list[str], environment: dict[str, str]) -> Case:
    """Return a case that runs a command once."""

    async def run_command() -> None:
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)

    return run_command


class PickerProcess:
    """`segue` in a pseudo-terminal of 120 columns and 40 lines."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._terminal, child_terminal = pty.openpty()
        fcntl.ioctl(child_terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self._child = subprocess.Popen(
            [COMMAND],
            env=environment,
            stdin=child_terminal,
            stdout=child_terminal,
            stderr=child_terminal,
            cwd="/",
        )
        os.close(child_terminal)
        self._output = b""

    def wait_for_screen(self) -> None:
        """Wait until the next screen is drawn."""
        while SCREEN_END not in self._output:
            self._output += os.read(self._terminal, 65536)
        self._output = self._output.partition(SCREEN_END)[2]

    def press(self, key: str) -> tuple[float, float]:
        """Press a key; return the seconds until the first and until the last screen after it.

        Later screens add the preview and further matches.
        """
        start = time.perf_counter()
        os.write(self._terminal, key.encode())
        self.wait_for_screen()
        first = last = time.perf_counter() - start
        while self._output or select.select([self._terminal], [], [], IDLE_SECONDS)[0]:
            self.wait_for_screen()
            last = time.perf_counter() - start
        return first, last

    def close(self) -> None:
        os.write(self._terminal, b"\x03")
        while True:
            try:
                if not os.read(self._terminal, 65536):
                    break
            except OSError:
                break
        os.close(self._terminal)
        self._child.wait()


def write_transcripts(root: Path, count: int) -> None:
    """Write short Claude Code sessions, the best case for a reader of whole files."""
    words, rng = Vocabulary(), random.Random(7)
    for number in range(count):
        cwd = f"/home/me/src/project-{number % 40}"
        directory = root / "projects" / project_key(cwd)
        directory.mkdir(parents=True, exist_ok=True)
        id = f"{number:08x}-0000-4000-8000-000000000000"
        at = NOW // 1_000_000 - number * 60
        when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at))
        lines = []
        for index, kind in enumerate(("user", "assistant")):
            text = words.text(rng, 20, 60)
            lines.append(
                {
                    "type": kind,
                    "uuid": f"{number:08x}-0000-4000-8000-00000000000{index + 1}",
                    "parentUuid": f"{number:08x}-0000-4000-8000-000000000001" if index else None,
                    "sessionId": id,
                    "cwd": cwd,
                    "timestamp": when,
                    "isSidechain": False,
                    "version": "2.1.141",
                    "message": {"role": kind, "content": [{"type": "text", "text": text}]},
                }
            )
        path = directory / f"{id}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        os.utime(path, (at, at))


def download_sdk(directory: Path) -> Path | None:
    """Download the source of claude-agent-sdk; return None if that fails."""
    command = [sys.executable, "-m", "pip", "download", "-q", SDK, "--no-deps"]
    command += ["--no-binary", ":all:", "--dest", str(directory)]
    if subprocess.run(command, capture_output=True).returncode != 0:
        return None
    (archive,) = directory.glob("claude_agent_sdk-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    return archive.with_name(archive.name.removesuffix(".tar.gz")) / "src"


def make_environment(data: Path, claude: Path) -> dict[str, str]:
    """Return the environment of a command with its own data and Claude directory."""
    inherited = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {
        **inherited,
        "HOME": str(data),
        "SEGUE_DATA_DIR": str(data),
        "CLAUDE_CONFIG_DIR": str(claude),
    }


async def main() -> int:
    bench = Bench("The command line, in ms", ("median", "95%", "ratio"))
    count = 2_000 if bench.quick else 100_000
    files = 500 if bench.quick else 10_000
    rounds = 5 if bench.quick else 15
    with temporary_directory() as directory:
        sessions = search_corpus(count, Vocabulary())
        path = await build_database(bench, f"searched-{count}", directory, sessions, count)
        data = directory / "data"
        data.mkdir()
        (data / "segue.db").symlink_to(path)
        environment = make_environment(data, directory / "nothing")
        list_seconds = await measure_starts(bench, environment, count, rounds)
        measure_keystrokes(bench, environment, path, count)
        await compare_peer(bench, directory, files, rounds, list_seconds)
    return bench.finish()


async def measure_starts(
    bench: Bench, environment: dict[str, str], count: int, rounds: int
) -> float:
    """Measure cold starts; return the seconds of `segue list`."""
    cases = {
        "baseline": run_case(BASELINE, environment),
        "list": run_case([COMMAND, "list", "--format", "json"], environment),
        "version": run_case([COMMAND, "--version"], environment),
    }
    times = await time_cases(cases, rounds, warm=2)
    baseline = times["baseline"].median
    bench.row("the baseline: import click, msgspec, sqlite3", median=baseline * 1e3, ratio=1.0)
    version = times["version"].median
    bench.row("segue --version", median=version * 1e3, ratio=version / baseline)
    list_seconds = times["list"].median
    ok = list_seconds <= 2 * baseline
    label = f"segue list --format json, {count:,} sessions"
    bench.row(
        label,
        target="2x the baseline",
        ok=ok,
        median=list_seconds * 1e3,
        ratio=list_seconds / baseline,
    )

    first_screens, baselines = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        subprocess.run(BASELINE, env=environment, check=True)
        baselines.append(time.perf_counter() - start)
        start = time.perf_counter()
        picker = PickerProcess(environment)
        picker.wait_for_screen()
        first_screens.append(time.perf_counter() - start)
        picker.close()
    overhead = statistics.median(first_screens) - statistics.median(baselines)
    median = statistics.median(first_screens) * 1e3
    label = f"the picker's first screen, {count:,} sessions"
    bench.row(label, target="200 ms over the baseline", ok=overhead <= 0.2, median=median)
    bench.note(f"the first screen appears {overhead * 1e3:.0f} ms later than the baseline ends")
    return list_seconds


def typed_texts(path: Path) -> list[str]:
    """Return the first letters of some messages, so that each search has a match."""
    with closing(sqlite3.connect(path)) as store:
        sql = "SELECT body FROM events WHERE type = 'user_message' AND key % 997 = 0 LIMIT ?"
        bodies = [json.loads(body) for (body,) in store.execute(sql, (TYPED_MESSAGES,))]
    return [body["content"][0]["text"][:TYPED_CHARACTERS] for body in bodies]


def measure_keystrokes(bench: Bench, environment: dict[str, str], path: Path, count: int) -> None:
    picker = PickerProcess(environment)
    picker.wait_for_screen()
    presses: list[tuple[float, float]] = []
    for words in typed_texts(path):
        presses += [picker.press(key) for key in words]
        picker.press("\x15")
    moves = [picker.press("\x1b[B") for _ in range(60)]
    picker.close()
    first_times = spread([first for first, _ in presses])
    label = f"first matches after a keystroke, {count:,} sessions"
    bench.row(label, target="30 ms", ok=first_times["95%"] <= 30, **first_times)
    bench.row(
        "the complete screen after a keystroke, with the preview",
        **spread([last for _, last in presses]),
    )
    bench.row("moving down one row, with the preview", **spread([last for _, last in moves]))


def spread(seconds: list[float]) -> dict[str, float]:
    """Return the median and the 95th percentile in ms."""
    seconds.sort()
    return {
        "median": statistics.median(seconds) * 1e3,
        "95%": seconds[int(len(seconds) * 0.95)] * 1e3,
    }


async def compare_peer(
    bench: Bench, directory: Path, files: int, rounds: int, list_seconds: float
) -> None:
    """Compare `segue list` with a script that uses claude-agent-sdk."""
    source = download_sdk(directory)
    if source is None:
        bench.note(f"{SDK} could not be downloaded: not compared")
        return
    home = directory / "claude"
    write_transcripts(home, files)
    data = directory / "indexed"
    data.mkdir()
    environment = make_environment(data, home)
    own_command = [COMMAND, "list", "--format", "json"]
    # The first list creates the index.
    subprocess.run(own_command, env=environment, check=True, stdout=subprocess.DEVNULL)
    peer = {**environment, "PYTHONPATH": str(source)}
    cases = {
        "peer": run_case([sys.executable, "-c", PEER], peer),
        "segue": run_case(own_command, environment),
    }
    times = await time_cases(cases, max(3, rounds // 3), warm=1)
    peer_seconds, own_seconds = times["peer"].median, times["segue"].median
    ratio = peer_seconds / list_seconds
    bench.note(f"the script takes {ratio:.1f}x as long as `segue list` on the store above")
    bench.row(
        f"claude_agent_sdk.list_sessions(limit=20), {files:,} sessions", median=peer_seconds * 1e3
    )
    bench.row(
        "segue list --format json, the same files",
        target="a tenth of that",
        ok=peer_seconds >= 10 * own_seconds,
        median=own_seconds * 1e3,
        ratio=own_seconds / peer_seconds,
    )


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
