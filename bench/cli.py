"""The command line from a cold process, and the picker in a real pseudo-terminal.

Processes are timed from outside, one of each after the other. The floor is a Python that imports
what any command of ours needs and does nothing. The peer is a script that lists the same Claude
Code sessions with claude-agent-sdk, whose source is fetched from PyPI.
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

from _common import NOW, Bench, Case, Words, built, interleaved, scratch, searched

from segue.sources.claude.format.paths import project_key

COMMAND = str(Path(sys.executable).with_name("segue"))
FLOOR = [sys.executable, "-c", "import click, msgspec, sqlite3"]
SDK = "claude-agent-sdk==0.2.182"
PEER = """
import json, claude_agent_sdk
rows = [vars(session) for session in claude_agent_sdk.list_sessions(limit=20)]
print(json.dumps(rows, default=str))
"""
DRAWN = b"\x1b[?2026l"  # the end of every screen that the picker draws
QUIET = 0.05  # seconds after which nothing more is drawn
TYPED = 16  # messages of which the first words are typed


def run(command: list[str], environment: dict[str, str]) -> Case:
    async def timed() -> None:
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)

    return timed


class Picker:
    """`segue` in a pseudo-terminal of 120 columns and 40 lines."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self._child = subprocess.Popen(
            [COMMAND], env=environment, stdin=theirs, stdout=theirs, stderr=theirs, cwd="/"
        )
        os.close(theirs)
        self._read = b""

    def drawn(self) -> None:
        """Wait for the next screen to be there."""
        while DRAWN not in self._read:
            self._read += os.read(self._ours, 65536)
        self._read = self._read.partition(DRAWN)[2]

    def press(self, key: str) -> tuple[float, float]:
        """Seconds until the screen after a key is there, and until it is whole.

        What is drawn later is the preview, and what more was found than is found at once.
        """
        start = time.perf_counter()
        os.write(self._ours, key.encode())
        self.drawn()
        first = last = time.perf_counter() - start
        while self._read or select.select([self._ours], [], [], QUIET)[0]:
            self.drawn()
            last = time.perf_counter() - start
        return first, last

    def close(self) -> None:
        os.write(self._ours, b"\x03")
        while True:
            try:
                if not os.read(self._ours, 65536):
                    break
            except OSError:
                break
        os.close(self._ours)
        self._child.wait()


def transcripts(root: Path, count: int) -> None:
    """Short Claude Code sessions, which is what suits a reader of whole files best."""
    words, dice = Words(), random.Random(7)
    for number in range(count):
        cwd = f"/home/me/src/project-{number % 40}"
        directory = root / "projects" / project_key(cwd)
        directory.mkdir(parents=True, exist_ok=True)
        id = f"{number:08x}-0000-4000-8000-000000000000"
        at = NOW // 1_000_000 - number * 60
        when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at))
        lines = []
        for place, kind in enumerate(("user", "assistant")):
            text = words.text(dice, 20, 60)
            lines.append(
                {
                    "type": kind,
                    "uuid": f"{number:08x}-0000-4000-8000-00000000000{place + 1}",
                    "parentUuid": f"{number:08x}-0000-4000-8000-000000000001" if place else None,
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


def fetched(directory: Path) -> Path | None:
    """The source of claude-agent-sdk; None where it cannot be had."""
    command = [sys.executable, "-m", "pip", "download", "-q", SDK, "--no-deps"]
    command += ["--no-binary", ":all:", "--dest", str(directory)]
    if subprocess.run(command, capture_output=True).returncode != 0:
        return None
    (archive,) = directory.glob("claude_agent_sdk-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    return archive.with_name(archive.name.removesuffix(".tar.gz")) / "src"


def environment(data: Path, claude: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {
        **kept,
        "HOME": str(data),
        "SEGUE_DATA_DIR": str(data),
        "CLAUDE_CONFIG_DIR": str(claude),
    }


async def main() -> int:
    bench = Bench("The command line, in ms", ("median", "95%", "ratio"))
    count = 2_000 if bench.quick else 100_000
    files = 500 if bench.quick else 10_000
    rounds = 5 if bench.quick else 15
    with scratch() as directory:
        made = searched(count, Words())
        path = await built(bench, f"searched-{count}", directory, made, count)
        data = directory / "data"
        data.mkdir()
        (data / "segue.db").symlink_to(path)
        alone = environment(data, directory / "nothing")
        listed = await starts(bench, alone, count, rounds)
        keystrokes(bench, alone, path, count)
        await peers(bench, directory, files, rounds, listed)
    return bench.finish()


async def starts(bench: Bench, env: dict[str, str], count: int, rounds: int) -> float:
    """The seconds that a list takes."""
    cases = {
        "floor": run(FLOOR, env),
        "list": run([COMMAND, "list", "--format", "json"], env),
        "version": run([COMMAND, "--version"], env),
    }
    times = await interleaved(cases, rounds, warm=2)
    floor = times["floor"].median
    bench.row("the floor: import click, msgspec, sqlite3", median=floor * 1e3, ratio=1.0)
    version = times["version"].median
    bench.row("segue --version", median=version * 1e3, ratio=version / floor)
    listed = times["list"].median
    ok = listed <= 2 * floor
    what = f"segue list --format json, {count:,} sessions"
    bench.row(what, "2x the floor", ok, median=listed * 1e3, ratio=listed / floor)

    first, floors = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        subprocess.run(FLOOR, env=env, check=True)
        floors.append(time.perf_counter() - start)
        start = time.perf_counter()
        picker = Picker(env)
        picker.drawn()
        first.append(time.perf_counter() - start)
        picker.close()
    over = statistics.median(first) - statistics.median(floors)
    median = statistics.median(first) * 1e3
    what = f"the picker's first screen, {count:,} sessions"
    bench.row(what, "200 ms over the floor", over <= 0.2, median=median)
    bench.note(f"the first screen is there {over * 1e3:.0f} ms after the floor has ended")
    return listed


def said(path: Path) -> list[str]:
    """The first letters of some messages, from all over the store: they are all to be found."""
    with closing(sqlite3.connect(path)) as store:
        sql = "SELECT body FROM events WHERE type = 'user_message' AND key % 997 = 0 LIMIT ?"
        bodies = [json.loads(body) for (body,) in store.execute(sql, (TYPED,))]
    return [body["content"][0]["text"][:12] for body in bodies]


def keystrokes(bench: Bench, env: dict[str, str], path: Path, count: int) -> None:
    picker = Picker(env)
    picker.drawn()
    typed: list[tuple[float, float]] = []
    for words in said(path):
        typed += [picker.press(key) for key in words]
        picker.press("\x15")
    moves = [picker.press("\x1b[B") for _ in range(60)]
    picker.close()
    found = spread([first for first, _ in typed])
    what = f"a keystroke's search on the screen, {count:,} sessions"
    bench.row(what, "30 ms", found["95%"] <= 30, **found)
    bench.row("the same, with the preview, the screen full", **spread([last for _, last in typed]))
    bench.row("a step down the list, with its preview", **spread([last for _, last in moves]))


def spread(took: list[float]) -> dict[str, float]:
    """What is usual and what is slow, in ms."""
    took.sort()
    return {"median": statistics.median(took) * 1e3, "95%": took[int(len(took) * 0.95)] * 1e3}


async def peers(bench: Bench, directory: Path, files: int, rounds: int, listed: float) -> None:
    source = fetched(directory)
    if source is None:
        bench.note(f"{SDK} could not be fetched: not compared")
        return
    home = directory / "claude"
    transcripts(home, files)
    data = directory / "indexed"
    data.mkdir()
    env = environment(data, home)
    ours = [COMMAND, "list", "--format", "json"]
    subprocess.run(ours, env=env, check=True, stdout=subprocess.DEVNULL)  # makes the index
    peer = {**env, "PYTHONPATH": str(source)}
    cases = {
        "peer": run([sys.executable, "-c", PEER], peer),
        "ours": run(ours, env),
    }
    times = await interleaved(cases, max(3, rounds // 3), warm=1)
    theirs, own = times["peer"].median, times["ours"].median
    bench.note(
        f"the script takes {theirs / listed:.1f}x as long as `segue list` on the store above"
    )
    bench.row(f"claude_agent_sdk.list_sessions(limit=20), {files:,} sessions", median=theirs * 1e3)
    bench.row(
        "segue list --format json, the same files",
        "a tenth of that",
        theirs >= 10 * own,
        median=own * 1e3,
        ratio=own / theirs,
    )


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
