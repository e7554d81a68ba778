"""The sandbox hides private directories wherever they are mounted, or segue does not start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from segue.agents.sandbox import launch, private_paths
from segue.hub.workdir.isolation import check_isolation
from segue.model.errors import InvalidInput

# Mounts a data directory a second time below a readable directory, and prints what bash sees.
BIND_MOUNT = """
import os, subprocess, sys
from segue.agents.sandbox import launch
backend, top = sys.argv[1:]
launch.backend = lambda *, isolated: backend
for name in ("alias", "part"):
    os.mkdir(f"{top}/readable/{name}")
subprocess.run(["mount", "--bind", f"{top}/data", f"{top}/readable/alias"], check=True)
subprocess.run(["mount", "--bind", f"{top}/data/work", f"{top}/readable/part"], check=True)
policy = launch.Policy(
    write=[f"{top}/data/work/own"],
    isolated=True,
    read=[f"{top}/readable"],
    private=[f"{top}/data"],
)
script = "cat public.txt; cat alias/secret.key part/other/secret.txt; ls alias part"
command, env = launch.sandboxed_command(
    ["bash", "-c", f"cd {top}/readable && {script}"], {"PATH": os.defpath}, policy
)
subprocess.run(command, env=env, cwd="/")
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount")
def test_a_second_mount_of_the_data_directory_is_hidden(backend: str, tmp_path: Path) -> None:
    from .harness import skip_unless_available

    skip_unless_available(backend, "own")
    for name in ("readable", "data/work/own", "data/work/other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "readable" / "public.txt").write_text("public\n")
    (tmp_path / "data" / "secret.key").write_text("SECRET")
    (tmp_path / "data" / "work" / "other" / "secret.txt").write_text("SECRET")
    command = ["unshare", "--mount", sys.executable, "-c", BIND_MOUNT, backend, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if "unshare" in result.stderr:
        pytest.skip(result.stderr)
    assert result.stdout.startswith("public\n") and "SECRET" not in result.stdout
    assert "other" not in result.stdout


def test_every_mount_of_a_private_directory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = [
        ("8:1", "/", "/"),
        ("8:2", "/", "/srv"),
        ("8:2", "/segue", "/usr/share/a"),  # the directory itself
        ("8:2", "/segue/work/s1", "/opt/b"),  # a part of it
        ("8:2", "/", "/usr/c"),  # a parent of it
        ("8:2", "/other", "/opt/d"),
        ("8:3", "/segue", "/opt/e"),
    ]
    monkeypatch.setattr(private_paths, "_read_mounts", lambda: mounts)
    assert set(private_paths.visible_paths(["/srv/segue"])) == {
        "/srv/segue",
        "/usr/share/a",
        "/opt/b",
        "/usr/c/segue",
    }


def test_a_readable_directory_is_replaced_by_its_other_entries(tmp_path: Path) -> None:
    for name in ("a/data", "a/b", "c"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a" / "link").symlink_to("data")
    private = [str(tmp_path / "a" / "data")]
    paths = private_paths.without_private(str(tmp_path), private)
    assert paths == [str(tmp_path / "a" / "b"), str(tmp_path / "c")]
    assert private_paths.without_private(private[0], private) == []
    assert private_paths.without_private(str(tmp_path / "c"), private) == [str(tmp_path / "c")]


@pytest.mark.parametrize("data_dir", ["/", "/usr", "/usr/lib"])
def test_the_server_refuses_a_data_directory_that_it_cannot_hide(data_dir: str) -> None:
    if launch.backend(isolated=True) is None:
        pytest.skip("this machine has no strict sandbox")
    with pytest.raises(InvalidInput, match="use another data directory"):
        check_isolation(Path(data_dir))


def test_the_server_accepts_a_data_directory_below_a_readable_one(tmp_path: Path) -> None:
    check_isolation(Path("/opt/segue/data"))
    check_isolation(tmp_path)


def test_programs_do_not_run_in_a_directory_that_contains_a_private_one(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "backend", lambda *, isolated: backend)
    (tmp_path / "data").mkdir()
    policy = launch.Policy(write=[str(tmp_path)], isolated=True, private=[str(tmp_path / "data")])
    with pytest.raises(launch.SandboxError, match="use the session in another directory"):
        launch.sandboxed_command(["true"], {}, policy)


def test_variables_of_a_program_do_not_reach_the_supervisor(tmp_path: Path) -> None:
    policy = launch.Policy(write=[str(tmp_path)], isolated=False)
    _, env = launch.sandboxed_command(["true"], {"LD_PRELOAD": "/evil.so", "PATH": "/evil"}, policy)
    assert set(env) == {"PATH", "SEGUE_SANDBOX_RULES"} and "evil" not in env["PATH"]
