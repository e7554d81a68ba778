"""What the server counts, in the text form that Prometheus reads.

Routes and numbers only: nothing here names a workspace, a key or a session.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

Labels = tuple[tuple[str, str], ...]
Series = dict[tuple[str, Labels], float]

# Upper bounds in seconds; a list of 50 takes less than the first.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_HELP = {
    "segue_http_requests_total": ("counter", "Requests answered, by route and status."),
    "segue_http_request_seconds": ("histogram", "Time from a request to its answer."),
    "segue_streams_open": ("gauge", "Event streams that are open."),
    "segue_turns_running": ("gauge", "Turns that run in this server."),
    "segue_store_commits_total": ("counter", "Transactions that the store has committed."),
    "segue_store_queue": ("gauge", "Writes that wait for the store."),
}


class Metrics:
    """One process's counts."""

    def __init__(self) -> None:
        self.streams = 0
        self._answered: dict[tuple[str, str, int], int] = {}
        self._times: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        name = (method, route, status)
        self._answered[name] = self._answered.get(name, 0) + 1
        times = self._times.get(route)
        if times is None:
            times = self._times[route] = [0] * (len(BUCKETS) + 1)
        times[bisect_left(BUCKETS, seconds)] += 1
        self._seconds[route] = self._seconds.get(route, 0.0) + seconds

    def series(self, turns: int, vitals: Mapping[str, int]) -> Series:
        """Everything by name and labels. `vitals` are the store's own numbers."""
        found: Series = {}
        for (method, route, status), count in self._answered.items():
            labels = (("method", method), ("route", route), ("status", str(status)))
            found["segue_http_requests_total", labels] = count
        for route, times in self._times.items():
            name, total = "segue_http_request_seconds", 0
            for bound, count in zip((*BUCKETS, "+Inf"), times, strict=True):
                total += count
                found[f"{name}_bucket", (("route", route), ("le", str(bound)))] = total
            found[f"{name}_sum", (("route", route),)] = self._seconds[route]
            found[f"{name}_count", (("route", route),)] = total
        found["segue_streams_open", ()] = self.streams
        found["segue_turns_running", ()] = turns
        for vital, name in (
            ("commits", "segue_store_commits_total"),
            ("queue", "segue_store_queue"),
        ):
            if vital in vitals:
                found[name, ()] = vitals[vital]
        return found


def is_gauge(name: str) -> bool:
    """Whether a number is of now, and not of all the time that there was."""
    return _HELP.get(name, ("",))[0] == "gauge"


def added(all: Iterable[Series]) -> Series:
    """Several processes' series as one."""
    total: Series = {}
    for series in all:
        for name, value in series.items():
            total[name] = total.get(name, 0) + value
    return total


def text(series: Series) -> str:
    """The exposition."""
    lines: list[str] = []
    for family, (kind, told) in _HELP.items():
        of = [(key, value) for key, value in series.items() if _family(key[0]) == family]
        if of:
            lines += [f"# HELP {family} {told}", f"# TYPE {family} {kind}"]
        for (name, labels), value in of:
            inner = ",".join(f'{label}="{_escaped(given)}"' for label, given in labels)
            lines.append(f"{name}{{{inner}}} {value:g}" if inner else f"{name} {value:g}")
    return "\n".join(lines) + "\n"


def _family(name: str) -> str:
    for suffix in ("_bucket", "_sum", "_count"):
        if name.removesuffix(suffix) in _HELP:
            return name.removesuffix(suffix)
    return name


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
