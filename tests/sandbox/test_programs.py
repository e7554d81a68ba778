"""Ordinary programs work in the sandbox."""

import shutil
import subprocess

import pytest

from .harness import ANSWER_SECONDS, Sandbox

SCRIPT = """
set -e
export GIT_CONFIG_NOSYSTEM=1
git init -q repository
cd repository
git config user.name n && git config user.email e@example.com
echo text > file && chmod +x file
git add -A && git commit -qm message && git gc -q && git clone -q . ../clone
cd ..
tar cf archive.tar clone && mkdir unpacked && tar xf archive.tar -C unpacked
cp -a clone copy && touch -r clone/file copy/file && rm -rf copy
install -m 700 clone/file installed && ln -s installed link && cp -P link link2
flock lock true && nice -n 1 true && timeout 5 true && cat <(echo substituted) && mkfifo fifo
echo changed >> unpacked/clone/file && diff -q clone/file unpacked/clone/file && exit 1
/usr/bin/python3 - <<END
import asyncio, shutil, sqlite3, subprocess, tempfile, threading
with sqlite3.connect("database") as database:
    database.execute("create table t (a)")
asyncio.run(asyncio.sleep(0))
thread = threading.Thread(target=subprocess.run, args=(["true"],))
thread.start()
thread.join()
shutil.copy2("database", "copy")
tempfile.mkdtemp(dir=".")
END
"""
COMPILE = """
set -e
printf 'all: a\\na: a.c\\n\\tcc -o a a.c\\n' > Makefile
echo 'int main(void) { return 0; }' > a.c
make -s && ./a
"""


@pytest.mark.parametrize(
    ("script", "programs"),
    [
        (SCRIPT, ["git", "tar", "flock"]),
        pytest.param(COMPILE, ["make", "cc"], marks=pytest.mark.full),
    ],
)
def test_ordinary_programs_run_in_the_sandbox(
    sandbox: Sandbox, script: str, programs: list[str]
) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    command, env = sandbox.command(["bash", "-c", f"mkdir -p $$ && cd $$ && {script}"])
    result = subprocess.run(
        command,
        env=env,
        cwd=sandbox.files.session,
        capture_output=True,
        text=True,
        timeout=5 * ANSWER_SECONDS,
        check=False,
        **sandbox.as_user,
    )
    assert (result.returncode, result.stderr) == (0, ""), result.stdout


def test_shared_memory_works_where_a_program_has_a_mount_namespace(sandbox: Sandbox) -> None:
    code = "import multiprocessing; multiprocessing.get_context('fork').Lock(); value = True"
    if sandbox.backend == "bubblewrap":
        assert sandbox.run(code).value
    else:
        assert sandbox.run(code).errno == "EACCES"
