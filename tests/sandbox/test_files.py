"""Escapes through files: reading, writing, and changing what other files look like."""

import os
import stat

import pytest

from .harness import Sandbox

DENIED = ("EACCES", "EPERM", "ENOENT", "EROFS", "EXDEV")


OPENING = [
    "open(path).read()",
    "open(path, 'a')",
    "os.truncate(path, 0)",
    "os.unlink(path)",
    "os.rename(path, 'stolen')",
    "os.link(path, 'stolen')",
    "os.symlink(path, f'link{n}'); open(f'link{n}').read()",
    "os.listdir(os.path.dirname(path)); os.stat(path)",
    "open('/proc/self/root' + path).read()",
    "open(os.path.join(os.getcwd(), '..', '..', '..', '..', path.lstrip('/'))).read()",
    "d = os.open('..', os.O_PATH); os.open('../../../..' + path, os.O_RDONLY, dir_fd=d)",
    "os.mkdir(path + '.d')",
    "os.mknod(path + '.n')",
    "os.chdir(os.path.dirname(path)); os.listdir('.'); os.stat(os.path.basename(path))",
]
CHANGES = [
    "os.chmod(path, 0o777)",
    "os.chmod('/proc/self/cwd/../../../..' + path, 0o777)",
    "os.chown(path, os.getuid(), os.getgid())",
    "os.lchown(path, os.getuid(), os.getgid())",
    "os.utime(path, (1, 1))",
    "os.utime(path)",
    "d = os.open(path, os.O_PATH); os.chmod(f'/proc/self/fd/{d}', 0o777)",
    "d = os.open(path, os.O_PATH); os.utime(f'/proc/self/fd/{d}', (1, 1))",
    "os.setxattr(path, 'user.x', b'1')",
    "os.removexattr(path, 'user.x')",
]


@pytest.mark.parametrize("name", ["outside", "key", "other_file"])
def test_a_program_cannot_open_or_replace_files_outside(sandbox: Sandbox, name: str) -> None:
    path = getattr(sandbox.files, name)
    assert sandbox.successes(OPENING, DENIED, path=str(path), n=name) == []
    assert path.read_text() == "SECRET"


@pytest.mark.parametrize("name", ["outside", "key", "other_file", "public", "data", "readable"])
def test_a_program_cannot_change_the_attributes_of_files_outside(
    sandbox: Sandbox, name: str
) -> None:
    path = getattr(sandbox.files, name)
    before = path.stat()
    errors = (*DENIED, "ENOTSUP", "ELOOP", "ENODATA")
    assert sandbox.successes(CHANGES, errors, path=str(path)) == []
    after = path.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_uid, after.st_gid, after.st_ctime_ns) == (
        *(before.st_mode, before.st_mtime_ns, before.st_uid, before.st_gid, before.st_ctime_ns),
    )


def test_a_program_cannot_read_attributes_of_files_outside(sandbox: Sandbox) -> None:
    path = sandbox.files.outside
    os.setxattr(path, "user.hidden", b"SECRET")
    answer = sandbox.run("value = os.getxattr(path, 'user.hidden').decode()", path=str(path))
    assert answer.errno in (*DENIED, "ENOTSUP")


@pytest.mark.parametrize("name", ["key", "other_file", "link_to_data"])
def test_the_data_directory_is_hidden_below_a_readable_directory(
    sandbox: Sandbox, name: str
) -> None:
    files = sandbox.files
    assert sandbox.run("value = open(path).read()", path=str(files.public)).value == "public"
    path = getattr(files, name)
    path = path / "secret.key" if name == "link_to_data" else path
    assert sandbox.run("open(path)", path=str(path)).errno in DENIED
    answer = sandbox.run("value = os.listdir(path)", path=str(files.data))
    assert answer.errno in DENIED or answer.value == ["work"]  # the parents of its own directory
    answer = sandbox.run("value = os.listdir(path)", path=str(files.data / "work"))
    assert answer.errno in DENIED or answer.value == ["own"]


def test_a_descriptor_of_a_readable_file_does_not_allow_changes(sandbox: Sandbox) -> None:
    path = sandbox.files.public
    for code in ("os.fchmod(d, 0o777)", "os.utime(d, (1, 1))", "os.fchown(d, -1, os.getgid())"):
        assert (
            sandbox.run(f"d = os.open(path, os.O_RDONLY); {code}", path=str(path)).errno in DENIED
        )
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_program_cannot_create_set_user_id_files(sandbox: Sandbox) -> None:
    codes = [
        "open('f', 'w').close(); os.chmod('f', 0o4755)",
        "open('f', 'w').close(); os.chmod('f', 0o2755)",
        "os.close(os.open('s', os.O_CREAT | os.O_WRONLY, 0o4755))",
        "os.close(os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755))",
        "os.mknod('m', 0o104755)",
        "d = os.open('f', os.O_CREAT | os.O_RDWR, 0o755); os.fchmod(d, 0o4755)",
    ]
    assert sandbox.successes(codes, ["EPERM"]) == []
    for path in sandbox.files.session.iterdir():
        assert not path.lstat().st_mode & 0o6000


def test_a_program_cannot_create_devices(sandbox: Sandbox) -> None:
    code = "os.mknod('device', 0o20666, os.makedev(1, 3))"
    assert sandbox.run(code).errno in DENIED


def test_a_program_changes_permissions_and_times_of_its_own_files(sandbox: Sandbox) -> None:
    code = """
import shutil
open('own', 'w').close(); os.mkdir('own.d'); os.symlink('own', 'own.l')
os.chmod('own', 0o640); os.chmod('own.d', 0o700)
d = os.open('own', os.O_RDONLY); os.fchmod(d, 0o600); os.utime(d, (5, 6))
os.utime('own.d', (7, 8)); os.utime('own.l', (9, 10), follow_symlinks=False)
os.chown('own', os.getuid(), -1); os.lchown('own.l', -1, os.getgid())
shutil.copystat('own', 'own.d'); os.chmod('own.d', 0o700); os.chmod('own.l', 0o644)
os.chmod('own', 0); os.chmod('own', 0o644)
p = os.open('own.d', os.O_RDONLY); os.chmod('../own.d', 0o755, dir_fd=p)
value = [oct(os.stat('own').st_mode), os.stat('own').st_mtime, os.lstat('own.l').st_mtime,
    oct(os.stat('own.d').st_mode)]
"""
    assert sandbox.run(code).value == ["0o100644", 6.0, 10.0, "0o40755"]


def test_odd_arguments_of_a_call_do_not_end_the_supervisor(sandbox: Sandbox) -> None:
    code = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
calls = [lambda: libc.chmod(ctypes.c_void_p(-1), 0o600)]
calls.append(lambda: libc.chmod("/proc/self/fd/\u00b2".encode(), 0o600))
if os.uname().machine == "x86_64":  # utimes
    times = (ctypes.c_int64 * 4)(0, 1 << 62, 0, 1 << 62)
    calls.append(lambda: libc.syscall(235, b".", times))
value = [errno.errorcode[ctypes.get_errno()] for call in calls if call() < 0]
open("odd", "w").close()
os.chmod("odd", 0o640)
value.append(os.stat("odd").st_mode & 0o777)
os.unlink("odd")
"""
    *errors, mode = sandbox.run(code).value
    assert errors[:2] == ["EFAULT", "ENOENT"]
    assert errors[2:] in ([], ["EINVAL"])
    assert mode == 0o640


def test_read_only_directory_cannot_be_changed(sandbox: Sandbox) -> None:
    assert (
        sandbox.run("value = open(path).read()", path=str(sandbox.files.memory)).value == "memory"
    )
    codes = [
        "open(path, 'a')",
        "open(path, 'w')",
        "open(os.path.dirname(path) + '/new', 'w')",
        "open(top + '/new', 'w')",
        "os.mkdir(top + '/new')",
        "os.unlink(path)",
        "os.rename(path, 'moved')",
        "os.rename(os.path.dirname(path), 'moved')",
        "os.truncate(path, 0)",
        "os.chmod(path, 0o644)",
        "os.chmod(top, 0o755)",
        "os.fchmod(os.open(top, os.O_RDONLY), 0o755)",
        "os.utime(path)",
    ]
    values = {"path": str(sandbox.files.memory), "top": str(sandbox.files.read_only)}
    assert sandbox.successes(codes, ["EACCES", "EPERM", "EROFS", "EXDEV", "EBUSY"], **values) == []
    assert sandbox.files.memory.read_text() == "memory"
