"""Carry out system calls for programs in a Landlock sandbox, which the filter passes here.

Landlock restricts which files a program can open, but not chmod, chown and utime: they would work
on every file of segue's user. So the filter of system calls passes these calls here. The broker
opens the file, checks that the program may write to its directory, and changes the file through the
descriptor. The program's call itself never runs.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct

from .private_paths import is_below
from .proxy_connect import ProxyConnector, address_size
from .seccomp import METADATA_CALLS
from .system_calls import call, libc, number

# linux/seccomp.h
_NOTIF_RECV = 0xC0502100
_NOTIF_SEND = 0xC0182101
_NOTIF_ID_VALID = 0x40082102
_NOTIF = struct.Struct("=QIIiIQ6Q")  # struct seccomp_notif
_RESPONSE = struct.Struct("=QqiI")  # struct seccomp_notif_resp

# linux/fcntl.h
_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_AT_EMPTY_PATH = 0x1000
_O_PATH = 0o10000000
_RESOLVE_NO_MAGICLINKS = 0x02
_SYS_OPENAT2 = 437  # the same on every architecture
_SYS_PIDFD_OPEN = 434
_PATH_BYTES = 4096
_S_ISUID_OR_ISGID = 0o6000
_DESCRIPTOR_LINKS = ("/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/")


class MetadataBroker:
    """Carries out or refuses the calls that the filter passes to a listener."""

    def __init__(
        self,
        listener: int,
        directories: list[str],
        read_only: list[str],
        connector: ProxyConnector | None = None,
    ) -> None:
        """Create a broker.

        `directories` are the real paths below which programs may write, apart from those below
        `read_only`. `connector` connects sockets.
        """
        self._listener = listener
        self._read_only = read_only
        self._connector = connector
        self._id = 0  # of the current call
        self._directories = directories
        self._names = {
            nr: name
            for name in (*METADATA_CALLS.split(), "connect")
            if (nr := number(name)) is not None
        }

    def answer_call(self) -> None:
        """Receive one call, carry it out if it is allowed, and return its result."""
        buffer = bytearray(_NOTIF.size)
        try:
            fcntl.ioctl(self._listener, _NOTIF_RECV, buffer)
        except OSError:
            return  # the program was killed in the meantime
        self._id, pid, _, nr, _, _, *arguments = _NOTIF.unpack(buffer)
        try:
            with _Caller(pid) as caller:
                self._perform(caller, self._names.get(nr, ""), arguments)
            code = 0
        except OSError as error:
            code = error.errno or errno.EPERM
        except (ValueError, OverflowError, struct.error):  # no argument may end the supervisor
            code = errno.EINVAL
        try:
            fcntl.ioctl(self._listener, _NOTIF_SEND, _RESPONSE.pack(self._id, 0, -code, 0))
        except OSError:
            return  # the program was killed in the meantime

    def _perform(self, caller: _Caller, name: str, arguments: list[int]) -> None:
        a, b, c, d, e, _ = arguments
        match name:
            case "chmod":
                self._chmod(caller.open(_AT_FDCWD, a, 0), b)
            case "fchmod":
                self._chmod(caller.copy_descriptor(a), b)
            case "fchmodat":
                self._chmod(caller.open(_signed(a), b, 0), c)
            case "fchmodat2":
                self._chmod(caller.open(_signed(a), b, d), c)
            case "chown":
                self._chown(caller.open(_AT_FDCWD, a, 0), b, c)
            case "lchown":
                self._chown(caller.open(_AT_FDCWD, a, _AT_SYMLINK_NOFOLLOW), b, c)
            case "fchown":
                self._chown(caller.copy_descriptor(a), b, c)
            case "fchownat":
                self._chown(caller.open(_signed(a), b, e), c, d)
            case "utime":
                self._set_times(caller.open(_AT_FDCWD, a, 0), caller.read_times(b, "qq", 0))
            case "utimes":
                self._set_times(caller.open(_AT_FDCWD, a, 0), caller.read_times(b, "qqqq", 1000))
            case "futimesat":
                self._set_times(caller.open(_signed(a), b, 0), caller.read_times(c, "qqqq", 1000))
            case "utimensat":
                self._set_times(caller.open(_signed(a), b, d), caller.read_times(c, "qqqq", 1))
            case "connect" if self._connector is not None:
                address = caller.read(b, address_size(c))
                descriptor = caller.copy_descriptor(a)
                # The process id, and so the socket, must still be the caller's.
                fcntl.ioctl(self._listener, _NOTIF_ID_VALID, struct.pack("=Q", self._id))
                self._connector.connect(descriptor, address)
            case _:
                raise PermissionError(errno.EPERM, "not a call that the supervisor carries out")

    def _chmod(self, descriptor: int, mode: int) -> None:
        self._check(descriptor)
        mode &= 0o7777
        if mode & _S_ISUID_OR_ISGID:
            raise PermissionError(errno.EPERM, "set-user-ID programs are not allowed")
        os.chmod(f"/proc/self/fd/{descriptor}", mode)

    def _chown(self, descriptor: int, uid: int, gid: int) -> None:
        """Accept a change that changes nothing; without capabilities no other is possible."""
        self._check(descriptor)
        status = os.fstat(descriptor)
        unchanged = 0xFFFFFFFF
        for requested, current in ((uid, status.st_uid), (gid, status.st_gid)):
            if requested & unchanged not in (unchanged, current):
                raise PermissionError(errno.EPERM, "the owner cannot be changed")

    def _set_times(self, descriptor: int, times: bytes | None) -> None:
        self._check(descriptor)
        call("utimensat", descriptor, b"", times, _AT_EMPTY_PATH)

    def _check(self, descriptor: int) -> None:
        """Raise PermissionError unless the file is in one of the directories.

        The path is where the open file is now. A program cannot move a file into one of the
        directories from outside, so the result stays true. Raises OSError if the program has
        ended: then its process id, and so the file, may be those of another process.
        """
        fcntl.ioctl(self._listener, _NOTIF_ID_VALID, struct.pack("=Q", self._id))
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if not any(is_below(path, directory) for directory in self._directories):
            raise PermissionError(errno.EPERM, "the file is outside of the sandbox")
        if any(is_below(path, directory) for directory in self._read_only):
            raise PermissionError(errno.EPERM, "the file is in a read-only directory")


class _Caller:
    """The process that made a call. The end of a `with` block closes its descriptors here."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._opened: list[int] = []

    def __enter__(self) -> _Caller:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._opened:
            os.close(descriptor)

    def copy_descriptor(self, fd: int) -> int:
        """Return a copy of a descriptor of the process."""
        pidfd = self._close_at_exit(self._open_process())
        return self._close_at_exit(call("pidfd_getfd", pidfd, _signed(fd), 0))

    def open(self, directory: int, path_address: int, flags: int) -> int:
        """Open the file that the process names, without access to its content.

        `path_address` is where the path is in the memory of the process.
        """
        if path_address == 0:
            return self.copy_descriptor(directory)
        path = self._read_path(path_address)
        if not path and flags & _AT_EMPTY_PATH:
            return self._open_directory(directory)
        for prefix in _DESCRIPTOR_LINKS:
            number_text = path.removeprefix(prefix)
            if number_text != path and number_text.isascii() and number_text.isdigit():
                return self.copy_descriptor(int(number_text))
        base = self._open_directory(directory) if not path.startswith("/") else _AT_FDCWD
        open_flags = _O_PATH | os.O_CLOEXEC
        if flags & _AT_SYMLINK_NOFOLLOW:
            open_flags |= os.O_NOFOLLOW
        how = (ctypes.c_uint64 * 3)(open_flags, 0, _RESOLVE_NO_MAGICLINKS)
        name = os.fsencode(path)
        opened = libc.syscall(_SYS_OPENAT2, base, name, ctypes.byref(how), ctypes.sizeof(how))
        if opened < 0:
            raise OSError(ctypes.get_errno(), "cannot open the file")
        return self._close_at_exit(opened)

    def read_times(self, address: int, layout: str, unit: int) -> bytes | None:
        """Return two times as an array of struct timespec; None means now.

        `unit` is the number of nanoseconds in the second part of each time; 0 if there is none.
        """
        if address == 0:
            return None
        values = struct.unpack(f"={layout}", self.read(address, 8 * len(layout)))
        if unit == 0:
            values = (values[0], 0, values[1], 0)
        elif unit > 1:
            values = (values[0], values[1] * unit, values[2], values[3] * unit)
        return struct.pack("=qqqq", *values)

    def _open_directory(self, directory: int) -> int:
        if directory != _AT_FDCWD:
            return self.copy_descriptor(directory)
        return self._close_at_exit(os.open(f"/proc/{self._pid}/cwd", _O_PATH | os.O_CLOEXEC))

    def _open_process(self) -> int:
        # The call may come from a thread; descriptors belong to its whole process.
        with open(f"/proc/{self._pid}/status", "rb") as file:
            group = next(line for line in file if line.startswith(b"Tgid:"))
        pidfd = libc.syscall(_SYS_PIDFD_OPEN, int(group.split()[1]), 0)
        if pidfd < 0:
            raise OSError(ctypes.get_errno(), "cannot open the process")
        return int(pidfd)

    def _read_path(self, address: int) -> str:
        # A path may end just before memory that does not exist, so read page by page.
        data = b""
        while b"\0" not in data and len(data) < _PATH_BYTES:
            position = address + len(data)
            data += self.read(position, _PATH_BYTES - position % _PATH_BYTES)
        path, end, _ = data.partition(b"\0")
        if not end:
            raise OSError(errno.ENAMETOOLONG, "the path is too long")
        return os.fsdecode(path)

    def read(self, address: int, size: int) -> bytes:
        """Return bytes of the process's memory."""
        memory = os.open(f"/proc/{self._pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(memory, size, address)
        except (OSError, OverflowError):  # the address is too large for an offset
            raise OSError(errno.EFAULT, "invalid address") from None
        finally:
            os.close(memory)
        if len(data) < size:
            raise OSError(errno.EFAULT, "invalid address")
        return data

    def _close_at_exit(self, descriptor: int) -> int:
        self._opened.append(descriptor)
        return descriptor


def _signed(value: int) -> int:
    """Return an argument as a signed 32-bit number, as the kernel reads it."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value
