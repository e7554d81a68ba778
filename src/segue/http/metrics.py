"""Count requests, and write metrics in Prometheus' text format.

Metrics have routes and numbers only: no workspace, key or session.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Protocol

Labels = tuple[tuple[str, str], ...]
Series = dict[tuple[str, Labels], float]

# The upper bounds in seconds. A list of 50 sessions takes less than the first.
LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_REQUESTS = "segue_http_requests_total"
_SECONDS = "segue_http_request_seconds"
_STREAMS = "segue_streams_open"
_TURNS = "segue_turns_running"
_LAG = "segue_event_loop_lag_seconds"
_STORE_NAMES = {"commits": "segue_store_commits_total", "queue": "segue_store_queue"}
_FAMILIES = {
    _REQUESTS: ("counter", "Requests answered, by route and status."),
    _SECONDS: ("histogram", "Time from a request to its response."),
    _STREAMS: ("gauge", "Open event streams."),
    _TURNS: ("gauge", "Turns that run in this server."),
    _LAG: ("histogram", "How late the event loop ran a timer, measured twice a second."),
    "segue_store_commits_total": ("counter", "Transactions that the store has committed."),
    "segue_store_queue": ("gauge", "Writes that wait for the store."),
}


class SharedMetrics(Protocol):
    """Exchanges metrics between the processes of one server."""

    def publish(self, own: Series) -> None:
        """Make this process's metrics available to the other processes."""
        ...

    def total(self, own: Series) -> Series:
        """Return the sum of this process's metrics and those that the others published."""
        ...


class _Histogram:
    """Counts durations. Each belongs to the first of LATENCY_BUCKETS that is not shorter."""

    def __init__(self) -> None:
        self._counts = [0] * (len(LATENCY_BUCKETS) + 1)
        self._seconds = 0.0

    def count(self, seconds: float) -> None:
        self._counts[bisect_left(LATENCY_BUCKETS, seconds)] += 1
        self._seconds += seconds

    def series(self, name: str, labels: Labels) -> Series:
        series: Series = {}
        total = 0
        for bound, count in zip((*LATENCY_BUCKETS, "+Inf"), self._counts, strict=True):
            total += count
            series[f"{name}_bucket", (*labels, ("le", str(bound)))] = total
        series[f"{name}_sum", labels] = self._seconds
        series[f"{name}_count", labels] = total
        return series


class Metrics:
    """The counters of one process."""

    def __init__(self) -> None:
        self.open_streams = 0
        self._requests: dict[tuple[str, str, int], int] = {}
        self._latencies: dict[str, _Histogram] = {}
        self._lag = _Histogram()

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        key = (method, route, status)
        self._requests[key] = self._requests.get(key, 0) + 1
        latencies = self._latencies.get(route)
        if latencies is None:
            latencies = self._latencies[route] = _Histogram()
        latencies.count(seconds)

    def count_lag(self, seconds: float) -> None:
        """Count how late the event loop ran a timer."""
        self._lag.count(seconds)

    def series(self, running_turns: int, store_metrics: Mapping[str, int]) -> Series:
        """Return all values by metric name and labels."""
        series: Series = {}
        for (method, route, status), count in self._requests.items():
            labels = (("method", method), ("route", route), ("status", str(status)))
            series[_REQUESTS, labels] = count
        for route, latencies in self._latencies.items():
            series |= latencies.series(_SECONDS, (("route", route),))
        series |= self._lag.series(_LAG, ())
        series[_STREAMS, ()] = self.open_streams
        series[_TURNS, ()] = running_turns
        for key, name in _STORE_NAMES.items():
            if key in store_metrics:
                series[name, ()] = store_metrics[key]
        return series


def is_gauge(name: str) -> bool:
    """Return True if a metric is a current value, not a count since the process started."""
    return _FAMILIES.get(name, ("",))[0] == "gauge"


def sum_series(all_series: Iterable[Series]) -> Series:
    """Add up the series of several processes."""
    total: Series = {}
    for series in all_series:
        for key, value in series.items():
            total[key] = total.get(key, 0) + value
    return total


def to_text(series: Series) -> str:
    """Return the series in Prometheus' text format."""
    lines: list[str] = []
    for family, (kind, description) in _FAMILIES.items():
        samples = [(key, value) for key, value in series.items() if _family(key[0]) == family]
        if samples:
            lines += [f"# HELP {family} {description}", f"# TYPE {family} {kind}"]
        for (name, labels), value in samples:
            text = ",".join(f'{label}="{_escape(content)}"' for label, content in labels)
            lines.append(f"{name}{f'{{{text}}}' if text else ''} {_format_value(value)}")
    return "\n".join(lines) + "\n"


def _format_value(value: float) -> str:
    """Return a number with all its digits: a rounded counter would appear to stand still."""
    return str(int(value)) if value == int(value) else repr(value)


def _family(name: str) -> str:
    for suffix in ("_bucket", "_sum", "_count"):
        if name.removesuffix(suffix) in _FAMILIES:
            return name.removesuffix(suffix)
    return name


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
