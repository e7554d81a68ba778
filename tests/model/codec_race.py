"""Use new struct types in two threads at once, again and again.

msgspec resolves the fields of a struct type at its first use, and crashes the process if another
thread uses the type meanwhile.
"""

import importlib
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from segue.hub.workdir import memory_sync, state
from segue.model import codec

ROUNDS, TYPES = 300, 30
FIELDS = "".join(f"    field{number}: str | None = None\n" for number in range(20))


def new_types() -> list[Any]:
    """Return struct types, each with a field of the type before it."""
    source = "import msgspec\n"
    for number in range(TYPES):
        source += f"class S{number}(msgspec.Struct):\n{FIELDS}"
        source += f"    before: S{number - 1} | None = None\n" if number else ""
    names: dict[str, Any] = {}
    exec(source, names)
    return [names[f"S{number}"] for number in range(TYPES)]


def nested(depth: int) -> dict[str, Any]:
    return {"field1": "x", **({"before": nested(depth - 1)} if depth else {})}


def at_once(*actions: Callable[[], object]) -> None:
    barrier = threading.Barrier(len(actions))

    def run(action: Callable[[], object]) -> None:
        barrier.wait()
        action()

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def race_in_codec() -> None:
    middle = TYPES // 2
    shallow, deep = nested(middle), codec.encode(nested(TYPES - 1))
    for _ in range(ROUNDS):
        types = new_types()
        at_once(
            lambda types=types: codec.convert(shallow, types[middle]),  # type: ignore[misc]
            lambda types=types: codec.Decoder(types[-1])(deep),  # type: ignore[misc]
        )


def race_in_directory_states(directory: Path) -> None:
    path = directory / "state"
    path.write_bytes(b'{"attempted": ["a"], "memories": {"m": {}}, "bytes": 1}')
    for _ in range(ROUNDS):
        importlib.reload(memory_sync)
        importlib.reload(state)
        file = state.StateFile(path, str(directory))
        at_once(*[file._read] * 4)


if __name__ == "__main__":
    sys.setswitchinterval(1e-6)
    if sys.argv[1] == "codec":
        race_in_codec()
    else:
        with tempfile.TemporaryDirectory() as directory:
            race_in_directory_states(Path(directory))
