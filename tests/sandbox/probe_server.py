"""Runs inside a sandbox: executes the Python code of each line of standard input.

Each line is a JSON object with `code`. The answer is a line with the variable `value` that the code
sets, or with the name of the error number of an OSError, or with another error.
"""

import ctypes
import errno
import json
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)


def syscall(number: int, *arguments: object) -> int:
    """Make a system call. Raises OSError if it fails."""
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)


def run(code: str) -> dict[str, object]:
    """Execute code and return the answer."""
    names: dict[str, object] = {"os": os, "ctypes": ctypes, "libc": libc, "syscall": syscall}
    try:
        exec(code, names)
    except OSError as error:
        return {"errno": errno.errorcode.get(error.errno or 0, str(error))}
    except BaseException as error:
        return {"error": repr(error)}
    return {"value": names.get("value")}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line)["code"])), flush=True)
