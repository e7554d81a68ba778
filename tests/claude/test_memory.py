"""Import, export and show a long session with bounded memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.claude.entries import Home, S, as_line, assistant, user
from tests.claude.test_hostile import needs_proc

MEASURE = """
import asyncio, os, sys, tempfile
from segue import LOCAL, open_hub
id, small = sys.argv[1:]
def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
async def main():
    async with await open_hub(tempfile.mkdtemp(), sources="claude") as hub:
        await hub.sync.import_session(LOCAL, small, "claude")
        await hub.sessions.get(LOCAL, id)  # other tests limit the memory of its index
        counts, before = [], peak()
        counts.append(len([1 async for _ in hub.history.conversation(LOCAL, id)]))
        fork = await hub.editor.fork(LOCAL, id, in_store=True)
        counts.append(fork.messages)
        with open(os.path.join(tempfile.mkdtemp(), "export"), "wb+") as file:
            async for line in hub.exchange.export(LOCAL, fork.id):
                file.write(line)
            file.seek(0)
            counts.append((await hub.exchange.import_session(LOCAL, file, new_id=True)).messages)
        _, new = await hub.sync.import_session(LOCAL, id, "claude")
        counts.append(new)
        _, new = await hub.sync.import_session(LOCAL, id, "claude")
        counts.append(new)
        n = 0
        async for _ in hub.history.read(LOCAL, id):
            n += 1
        counts.append(n)
        os.environ["CLAUDE_CONFIG_DIR"] = tempfile.mkdtemp()
        path = (await hub.sync.write(LOCAL, id, "claude")).path
        counts.append(os.path.getsize(path))
        print(*counts, (peak() - before) // 1024)
asyncio.run(main())
"""


@needs_proc
@pytest.mark.parametrize("megabytes", [20, pytest.param(100, marks=pytest.mark.full)])
def test_long_session_is_imported_forked_and_written_within_64_megabytes(
    home: Home, megabytes: int
) -> None:
    small = home.write_conversation(S.replace("1", "3"))
    count = 100 * megabytes
    path = small.with_name(f"{S}.jsonl")
    with path.open("wb") as file:
        for n in range(count):
            parent = f"x{n - 1}" if n else None
            content = [{"type": "text", "text": f"{n} the words " * 700}]
            file.write(as_line((assistant if n % 2 else user)(f"x{n}", parent, content)))
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, S, small.stem], capture_output=True, text=True, check=True
    )
    read, forked, copied, new, again, history, written, used = map(int, done.stdout.split())
    assert (read, forked, copied, new, again) == (count + 1, count, count, count, 0)
    assert history == count + 2  # the creation and the title
    assert written == path.stat().st_size
    assert used < 64


MAX_MEMORY = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.mark.full
@needs_proc
def test_show_streams_a_long_session(home: Home, tmp_path: Path) -> None:
    """A reader that closes the pipe ends the command."""
    path = home.write_conversation()
    small = home.write_conversation(S.replace("1", "3"))
    with path.open("wb") as file:
        for n in range(2000):
            content = [{"type": "text", "text": f"{n} the words " * 700}]
            file.write(
                as_line(
                    (assistant if n % 2 else user)(f"x{n}", f"x{n - 1}" if n else None, content)
                )
            )
    show = [sys.executable, "-W", "error", "-m", "segue", "show"]
    show += ["--data-dir", str(tmp_path / "data")]
    for id in (small.stem, path.stem):  # builds the index
        subprocess.run([*show, id], check=True, stdout=subprocess.DEVNULL)
    for options in ([], ["--format", "jsonl"]):
        used = []
        for id in (small.stem, path.stem):
            measured = [sys.executable, "-c", MAX_MEMORY, *show, id, *options]
            done = subprocess.run(measured, capture_output=True, text=True, check=True)
            used.append(int(done.stdout))
        assert (used[1] - used[0]) // 1024 < 18, options
        command = [*show, path.stem, *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as left:
            assert left.stdout is not None and left.stderr is not None
            assert left.stdout.readline()
            left.stdout.close()
            assert left.stderr.read() == b""
