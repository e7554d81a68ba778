"""Metrics in Prometheus' text format."""

from segue.http.metrics import Metrics, sum_series, to_text


def test_counters_above_a_million_are_printed_in_full() -> None:
    text = to_text({("segue_store_commits_total", ()): 12_345_678})
    assert text.splitlines()[-1] == "segue_store_commits_total 12345678"


def test_counters_that_another_process_published_as_floats_are_printed_as_integers() -> None:
    total = sum_series([{("segue_store_commits_total", ()): 1_000_000.0}] * 3)
    assert to_text(total).splitlines()[-1] == "segue_store_commits_total 3000000"


def test_seconds_are_printed_with_all_their_digits() -> None:
    key = ("segue_http_request_seconds_sum", (("route", "/v1/sessions"),))
    line = to_text({key: 1234567.125}).splitlines()[-1]
    assert line == 'segue_http_request_seconds_sum{route="/v1/sessions"} 1234567.125'


def test_labels_are_escaped() -> None:
    metrics = Metrics()
    metrics.count_request("GET", 'a"b\\c\nd', 200, 0.1)
    assert 'route="a\\"b\\\\c\\nd"' in to_text(metrics.series(0, {}))


def test_the_lag_of_the_event_loop_is_a_histogram() -> None:
    metrics = Metrics()
    for seconds in (0.0, 0.02, 0.3):
        metrics.count_lag(seconds)
    lines = to_text(metrics.series(0, {})).splitlines()
    assert "# TYPE segue_event_loop_lag_seconds histogram" in lines
    assert 'segue_event_loop_lag_seconds_bucket{le="0.025"} 2' in lines
    assert "segue_event_loop_lag_seconds_count 3" in lines
    assert "segue_event_loop_lag_seconds_sum 0.32" in lines
