"""Several processes that serve one socket, and the one that watches over them.

Workers share nothing but the store, and a directory in which each leaves its counts, so that
whichever is asked for metrics can tell those of all. One that dies is replaced.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec

from segue.http import logs, metrics
from segue.http.metrics import Series
from segue.model.errors import StoreError

from .serve import Mount, Serving, alone, run, serve

log = logging.getLogger("segue.rest")

# A worker that ends sooner than this has hardly begun; so many in a row are a reason to give up.
HARDLY_SECONDS = 3.0
TRIES = 5
_SAFE, _OURS = "PYTHONSAFEPATH", "segue"

_decode = msgspec.json.Decoder(list[tuple[str, list[tuple[str, str]], float]]).decode


class Counts:
    """The counts of all workers, each in a file under its number.

    A worker that replaces another goes on from the counts that it left.
    """

    def __init__(self, directory: Path, number: int) -> None:
        self._directory = directory
        self._path = directory / str(number)
        self._before = _lasting(_read(self._path))

    def share(self, own: Series) -> None:
        """Let the others see one's own."""
        found = metrics.added([self._before, own])
        data = msgspec.json.encode(
            [(name, labels, value) for (name, labels), value in found.items()]
        )
        unfinished = self._path.with_suffix(".new")
        unfinished.write_bytes(data)
        os.replace(unfinished, self._path)

    def total(self, own: Series) -> Series:
        """Everybody's; the others' as of their last sharing."""
        others = [path for path in self._directory.iterdir() if path.suffix != ".new"]
        found = [_read(path) for path in others if path != self._path]
        return metrics.added([self._before, own, *found])


def _read(path: Path) -> Series:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    return {(name, tuple(labels)): value for name, labels, value in _decode(data)}


def _lasting(series: Series) -> Series:
    """Without what a dead process takes with it."""
    return {key: value for key, value in series.items() if not metrics.is_gauge(key[0])}


def _work(
    serving: Serving, sock: socket.socket, mount: Mount, directory: Path, number: int
) -> None:
    if os.environ.get(_SAFE) == _OURS:
        del os.environ[_SAFE]  # what agents start is to begin as ever
    logs.start(serving.log_level)
    run(serve(serving, sock, mount=mount, shared_metrics=Counts(directory, number)))


def supervise(
    serving: Serving,
    sock: socket.socket,
    count: int,
    *,
    mount: Mount = alone,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Keep so many workers serving, until a signal says to stop.

    Each is a new Python: `mount` must be something that it can import.
    """
    context = multiprocessing.get_context("spawn")
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    for wanted in (signal.SIGINT, signal.SIGTERM):
        signal.signal(wanted, stop)
    sock.listen(2048)
    with tempfile.TemporaryDirectory(prefix="segue-workers-") as name:

        def start(number: int) -> BaseProcess:
            process = context.Process(
                target=_work,
                args=(serving, sock, mount, Path(name), number),
                name=f"segue worker {number}",
            )
            with _apart():
                process.start()
            return process

        workers = {number: start(number) for number in range(count)}
        born = dict.fromkeys(workers, time.monotonic())
        failed = 0
        ready()
        try:
            while not stopping:
                wait([process.sentinel for process in workers.values()], timeout=0.5)
                for number, process in workers.items():
                    if process.is_alive() or stopping:
                        continue
                    hardly = time.monotonic() - born[number] < HARDLY_SECONDS
                    failed = failed + 1 if hardly else 0
                    if failed >= TRIES:
                        raise StoreError("the workers end as soon as they start; see above for why")
                    log.warning("worker %d ended (%s); starting another", number, process.exitcode)
                    workers[number], born[number] = start(number), time.monotonic()
        finally:
            _end(list(workers.values()), serving.grace)


@contextmanager
def _apart() -> Iterator[None]:
    """Have a new Python import nothing of the current directory before it serves."""
    if _SAFE in os.environ:
        yield
        return
    os.environ[_SAFE] = _OURS
    try:
        yield
    finally:
        del os.environ[_SAFE]


def _end(workers: list[BaseProcess], grace: float) -> None:
    for process in workers:
        if process.is_alive():
            process.terminate()
    deadline = time.monotonic() + 2 * grace + 5
    for process in workers:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
