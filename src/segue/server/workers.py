"""Serve one socket with several processes, and restart those that die.

Workers share the store and two directories. In one, each worker publishes its metrics, so that any
worker can report the metrics of all. In the other, each publishes its port.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec

from segue.http import logs, metrics
from segue.http.metrics import Series
from segue.model.errors import StoreError

from .peers import WorkerPeers
from .serve import run, serve
from .settings import ServerSettings

log = logging.getLogger("segue.rest")

# After this many workers in a row that ended this soon, or before they served, the server gives up.
MIN_LIFETIME_SECONDS = 3.0
MAX_FAILED_STARTS = 5
POLL_SECONDS = 0.5
_SAFE_PATH_VARIABLE, _SET_BY_US = "PYTHONSAFEPATH", "segue"

_decode_series = msgspec.json.Decoder(list[tuple[str, list[tuple[str, str]], float]]).decode


class WorkerMetrics:
    """The metrics of all workers. Each worker has a file, named by its number.

    A worker that replaces a dead one continues its counters.
    """

    def __init__(self, directory: Path, number: int) -> None:
        self._directory = directory
        self._path = directory / str(number)
        self._inherited = _counters(_read_series(self._path))

    def publish(self, own: Series) -> None:
        """Write this worker's metrics for the others."""
        series = metrics.sum_series([self._inherited, own])
        data = msgspec.json.encode(
            [(name, labels, value) for (name, labels), value in series.items()]
        )
        temporary = self._path.with_suffix(".new")
        temporary.write_bytes(data)
        os.replace(temporary, self._path)

    def total(self, own: Series) -> Series:
        """Return the sum of this worker's metrics and the last published ones of the others."""
        others = [
            _read_series(path)
            for path in self._directory.iterdir()
            if path != self._path and path.suffix != ".new"
        ]
        return metrics.sum_series([self._inherited, own, *others])


def _read_series(path: Path) -> Series:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    return {(name, tuple(labels)): value for name, labels, value in _decode_series(data)}


def _counters(series: Series) -> Series:
    """Return the series without gauges, which are void once their process has ended."""
    return {key: value for key, value in series.items() if not metrics.is_gauge(key[0])}


def _run_worker(
    settings: ServerSettings,
    sock: socket.socket,
    metrics_directory: Path,
    ports_directory: Path,
    number: int,
    started: Connection,
) -> None:
    if os.environ.get(_SAFE_PATH_VARIABLE) == _SET_BY_US:
        del os.environ[_SAFE_PATH_VARIABLE]  # agents' child processes must not inherit it
    logs.configure(settings.log_level)
    shared_metrics = WorkerMetrics(metrics_directory, number)
    report_start = partial(started.send_bytes, b"%d" % number)
    try:
        peers = WorkerPeers(ports_directory, number)
        run(serve(settings, sock, shared_metrics=shared_metrics, peers=peers, ready=report_start))
    finally:
        # The process ends. A last garbage collection would take longer than the rest of a stop.
        gc.freeze()


class _Worker:
    """One worker process, which can be replaced."""

    def __init__(self, number: int, start: Callable[[int], BaseProcess]) -> None:
        self.number = number
        self._start = start
        self.restart()

    def restart(self) -> None:
        self.process = self._start(self.number)
        self._started_at = time.monotonic()
        self.has_served = False

    @property
    def ended_early(self) -> bool:
        lifetime = time.monotonic() - self._started_at
        return not self.has_served or lifetime < MIN_LIFETIME_SECONDS


def supervise(
    settings: ServerSettings,
    sock: socket.socket,
    count: int,
    *,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Keep `count` workers serving until a signal. `ready` is called once one accepts requests.

    Raises StoreError if workers end again and again just after their start.
    """
    context = multiprocessing.get_context("spawn")
    stopping = False
    receiver, sender = context.Pipe(duplex=False)

    def stop(*_: object) -> None:
        nonlocal stopping
        if not stopping:
            stopping = True
            sender.send_bytes(b"")  # ends the wait for messages of workers

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    with (
        receiver,
        sender,
        tempfile.TemporaryDirectory(prefix="segue-workers-") as metrics_directory,
        tempfile.TemporaryDirectory(prefix="segue-ports-") as ports_directory,
    ):

        def start(number: int) -> BaseProcess:
            directories = (Path(metrics_directory), Path(ports_directory))
            arguments = (settings, sock, *directories, number, sender)
            name = f"segue worker {number}"
            process = context.Process(target=_run_worker, args=arguments, name=name)
            with _safe_path():
                process.start()
            return process

        workers = [_Worker(number, start) for number in range(count)]
        try:
            _restart_dead_workers(workers, receiver, ready, lambda: stopping)
        finally:
            _stop([worker.process for worker in workers], settings.grace_seconds)


def _restart_dead_workers(
    workers: list[_Worker],
    started: Connection,
    ready: Callable[[], None],
    is_stopping: Callable[[], bool],
) -> None:
    """Restart workers until a signal. Call `ready` once the first has sent its number."""
    failed_starts = 0
    is_ready = False
    while not is_stopping():
        sentinels = [worker.process.sentinel for worker in workers]
        wait([started, *sentinels], timeout=POLL_SECONDS)
        while started.poll():
            if not (number := started.recv_bytes()):
                continue  # a signal
            workers[int(number)].has_served = True
            if not is_ready:
                is_ready = True
                ready()
        for worker in workers:
            if worker.process.is_alive() or is_stopping():
                continue
            failed_starts = failed_starts + 1 if worker.ended_early else 0
            if failed_starts >= MAX_FAILED_STARTS:
                raise StoreError(
                    "the workers end just after they start; the log above has the reason"
                )
            log.warning(
                "worker %d ended with exit code %s; starting a new one",
                worker.number,
                worker.process.exitcode,
            )
            worker.restart()


@contextmanager
def _safe_path() -> Iterator[None]:
    """Keep a new Python process from importing modules from the current directory."""
    if _SAFE_PATH_VARIABLE in os.environ:
        yield
        return
    os.environ[_SAFE_PATH_VARIABLE] = _SET_BY_US
    try:
        yield
    finally:
        del os.environ[_SAFE_PATH_VARIABLE]


def _stop(processes: list[BaseProcess], grace_seconds: float) -> None:
    for process in processes:
        if process.is_alive():
            process.terminate()
    deadline = time.monotonic() + 2 * grace_seconds + 5
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
