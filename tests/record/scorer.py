"""Score a session record by the 31 metrics of Session-Bench v1, with the standard library alone.

The decoder knows docs/format.md and nothing else of segue. It reads the SQLite store or the export
file, and is also a program: `python scorer.py RECORD` prints the digest of the decoded session.

An observer watches the task from outside: it knows the prompts, the answers of the model, what the
helper program printed, and the hashes of the changed file.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

POINTS = {
    "work.submitted_turns": 4,
    "work.visible_responses": 4,
    "work.actions": 5,
    "work.results": 5,
    "work.changed_files": 4,
    "revision.r1": 2,
    "revision.r2": 2,
    "revision.r1_r2_order": 2,
    "revision.final_after_r2": 2,
    "causal.action_result": 7,
    "causal.turn_response": 6,
    "broad.readable_rationale": 4,
    "broad.thread_structure": 3,
    "attribution.model_config": 3,
    "attribution.usage": 5,
    "attribution.token_semantics": 4,
    "attribution.reconciliation": 3,
    "portable.complete_root": 3,
    "portable.companions": 2,
    "portable.isolated_decode": 4,
    "portable.canonical_equality": 3,
    "broad.standard_tools_readable": 2,
    "broad.documented_format": 2,
    "broad.self_contained_identity": 2,
    "broad.declared_format_version": 2,
    "broad.honest_version_signal": 2,
    "broad.observed_schema_stability": 3,
    "broad.stable_root_location": 2,
    "broad.event_timestamps": 2,
    "broad.naive_reader_duplicate_safety": 3,
    "broad.classified_content_density": 3,
}
USEFUL = {
    "user_message",
    "agent_message",
    "agent_thought",
    "tool_call",
    "tool_result",
    "failed",
    "plan_changed",
}
RESPONSES = ("agent_message", "agent_thought", "tool_call")
STATED = ("user_message", "agent_message", "tool_call", "tool_result")
TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)


@dataclass
class Entry:
    """One event of the record."""

    seq: int
    id: str
    at: Any
    type: str
    version: int
    body: dict[str, Any]
    record: dict[str, Any]  # the whole row or line

    @property
    def text(self) -> str:
        """Return the text of the content, and of a result's output."""
        parts = [block["text"] for block in self.body.get("content", ()) if "text" in block]
        output = self.body.get("output")
        return "\n".join([*parts, *([output] if isinstance(output, str) else [])])


@dataclass
class Record:
    """A decoded record: its events, its session row, and its other rows for the density."""

    entries: list[Entry]
    session: dict[str, Any]
    identity: dict[str, Any]
    versions: list[int]
    others: list[Any] = field(default_factory=list)

    @property
    def conversation(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.body.get("thread") is None]

    def of_type(self, *types: str) -> list[Entry]:
        return [entry for entry in self.conversation if entry.type in types]

    @property
    def prompts(self) -> list[Entry]:
        return self.of_type("user_message")

    def turn_of(self, entry: Entry) -> Entry | None:
        """Return the prompt of an event's turn: the one it names, else the last one before it."""
        before = [prompt for prompt in self.prompts if prompt.seq < entry.seq]
        named = [prompt for prompt in before if prompt.id == entry.body.get("turn")]
        return (named or before[-1:] or [None])[0]

    @property
    def responses(self) -> list[Entry]:
        """Return the last message of each turn that ended normally."""
        found = []
        for end in self.of_type("status_changed"):
            if (end.body["status"], end.body.get("stop_reason")) == ("idle", "end_turn"):
                messages = [m for m in self.of_type("agent_message") if m.seq < end.seq]
                found += messages[-1:]
        return found

    def result_of(self, call: Entry) -> Entry | None:
        results = [
            result
            for result in self.of_type("tool_result")
            if result.body["call_id"] == call.body["call_id"] and result.seq > call.seq
        ]
        return results[0] if len(results) == 1 else None

    def request_of(self, response: Entry) -> Entry | None:
        """Return the event that ends the request of a response, if the response does not."""
        called = self.of_type("model_called")
        if name := response.body.get("request"):
            return next((end for end in called if name in (end.body.get("asked"), end.id)), None)
        return None

    def usage_of(self, response: Entry) -> dict[str, Any]:
        request = self.request_of(response)
        return response.body.get("usage") or (request.body["usage"] if request else {})

    def model_of(self, response: Entry) -> str | None:
        request = self.request_of(response)
        return response.body.get("model") or (request.body.get("model") if request else None)

    @property
    def usages(self) -> list[dict[str, Any]]:
        """Return the usage of each request: on the last event of its response, else on its own."""
        return [
            entry.body["usage"]
            for entry in self.of_type(*RESPONSES, "model_called")
            if entry.body.get("usage") is not None
        ]

    def digest(self) -> str:
        """Return a hash of what happened, which is the same for a store and its export."""
        facts = [[entry.seq, entry.id, entry.type, entry.body] for entry in self.entries]
        return hashlib.sha256(canonical(facts)).hexdigest()


# The decoder.


def canonical(value: Any) -> bytes:
    """Return a value as compact JSON with sorted keys: the bytes that the density counts."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def decode(path: Path) -> Record:
    """Return the only session of a store or of an export file."""
    with path.open("rb") as file:
        is_store = file.read(16) == b"SQLite format 3\0"
    return _decode_store(path) if is_store else _decode_export(path)


def _decode_export(path: Path) -> Record:
    header, *lines = (json.loads(line) for line in path.read_bytes().splitlines())
    entries = [Entry(type=line["body"]["type"], record=line, **line) for line in lines]
    identity = {
        "session": header["session"]["id"],
        "harness": header["harness"],
        "surface": header["interface"],
        "family": header["format"],
    }
    versions = [header["version"], *(entry.version for entry in entries)]
    return Record(entries, header["session"], identity, versions, [header])


def _decode_store(path: Path) -> Record:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row
        schema = _rows(database, "sqlite_master")
        names = [row["name"] for row in schema if row["type"] == "table"]
        tables = {name: _rows(database, name) for name in names}
        views = [_rows(database, row["name"]) for row in schema if row["type"] == "view"]
        (user_version,) = database.execute("PRAGMA user_version").fetchone()
    (session,) = tables["sessions"]
    # A view may show the times of events as text.
    shown = {row["id"]: row["at"] for rows in views for row in rows if {"id", "at"} <= set(row)}
    entries = [
        Entry(
            seq=row["key"] & 0xFFFFFF,
            id=row["id"],
            at=shown.get(row["id"], row["at"]),
            type=row["body"]["type"],
            version=row["version"],
            body=row["body"],
            record=row,
        )
        for row in sorted(tables["events"], key=lambda row: row["key"])
    ]
    created = entries[0].body
    identity = {
        "session": session["id"],
        "harness": session["source"],
        "surface": created.get("origin"),
        "family": "events" if "events" in tables else None,
    }
    others = [row for name, rows in tables.items() if name != "events" for row in rows]
    versions = [user_version, *(entry.version for entry in entries)]
    return Record(entries, session["row"], identity, versions, [*others, *schema])


def _rows(database: sqlite3.Connection, table: str) -> list[dict[str, Any]]:
    try:
        rows = database.execute(f'SELECT * FROM "{table}"').fetchall()
    except sqlite3.OperationalError:
        return []  # a virtual table without content
    return [{name: _value(name, row[name]) for name in row.keys()} for row in rows]  # noqa: SIM118


def _value(name: str, value: Any) -> Any:
    """Return JSON columns as values, and other bytes as hexadecimal text."""
    if name in ("body", "row") and value is not None:
        return json.loads(value)
    return value.hex() if isinstance(value, bytes) else value


# The metrics. Each returns the fraction of its points.


def score(record: Record, observer: Mapping[str, Any]) -> dict[str, float]:
    """Return the points of every metric."""
    fractions = {
        **_work(record, observer),
        **_causality(record, observer),
        **_attribution(record, observer),
        **_format(record, observer),
        **{name: float(observer["receipts"][name]) for name in observer["receipts"]},
    }
    assert fractions.keys() == POINTS.keys(), fractions.keys() ^ POINTS.keys()
    return {name: points * fractions[name] for name, points in POINTS.items()}


def _share(correct: Iterable[bool], observed: int) -> float:
    results = list(correct)
    return sum(results) / max(1, observed, len(results))


def _work(record: Record, observer: Mapping[str, Any]) -> dict[str, float]:
    prompts = [prompt.text for prompt in record.prompts]
    first, second = observer["prompts"]
    actions = record.of_type("tool_call")
    return {
        "work.submitted_turns": _share(map(str.__eq__, prompts, observer["prompts"]), 2),
        "work.visible_responses": _share(
            (
                response.text == text and not response.body.get("partial")
                for response, text in zip(record.responses, observer["responses"], strict=False)
            ),
            2,
        ),
        "work.actions": _share(
            (
                (call.body["name"], call.body["input"]) == (action["name"], action["input"])
                and _text_of(record.turn_of(call)) == observer["prompts"][action["turn"]]
                for call, action in zip(actions, observer["actions"], strict=False)
            ),
            len(observer["actions"]),
        ),
        "work.results": _share(
            (
                _result_equals(record.result_of(call), action)
                for call, action in zip(actions, observer["actions"], strict=False)
            ),
            len(observer["actions"]),
        ),
        "work.changed_files": float(_changed_file(record, observer) == observer["change"]),
        "revision.r1": float(first in prompts),
        "revision.r2": float(second in prompts),
        "revision.r1_r2_order": float(prompts == [first, second]),
        "revision.final_after_r2": float(_final_follows_correction(record)),
    }


def _text_of(entry: Entry | None) -> str | None:
    return None if entry is None else entry.text


def _result_equals(result: Entry | None, action: Mapping[str, Any]) -> bool:
    """Compare the status, the exit code and the output of a result.

    A record without an exit code states it by its status, or in the text after the output.
    """
    if result is None or action["output"] not in result.text:
        return False
    status = result.body.get("status", "completed")
    code = result.body.get("exit_code")
    if code is None:
        match = re.search(r"exit code:? (\d+)", result.text.removeprefix(action["output"]))
        code = int(match[1]) if match else 0 if status == "completed" else None
    return (status == "completed", code) == (action["exit_code"] == 0, action["exit_code"])


def _changed_file(record: Record, observer: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the path and both hashes: from the result, else from what was read and changed."""
    for call in record.of_type("tool_call"):
        result = record.result_of(call)
        if call.body["name"] not in ("edit", "write") or result is None:
            continue
        path = Path(call.body["input"]["file_path"]).name
        for block in [result.body, *result.body.get("content", ())]:
            if "before_sha256" in block:
                hashes = {name: block[name] for name in ("before_sha256", "after_sha256")}
                return {"path": path, **hashes}
        before = _inspected_file(record, observer["marker"])
        arguments = call.body["input"]
        after = arguments.get("content")
        if after is None:
            after = before.replace(arguments["old_string"], arguments["new_string"], 1)
        return {"path": path, "before_sha256": sha256(before), "after_sha256": sha256(after)}
    return None


def _inspected_file(record: Record, marker: str) -> str:
    """Return the file that the helper printed between two markers."""
    texts = [result.text for result in record.of_type("tool_result") if marker in result.text]
    return texts[0].split(marker)[1].removeprefix("\n") if texts else ""


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _final_follows_correction(record: Record) -> bool:
    calls = record.of_type("tool_call")[-2:]
    results = [record.result_of(call) for call in calls]
    if len(record.prompts) != 2 or None in results or not record.responses:
        return False
    if len(calls) != 2:
        return False
    (edit, final), (edited, checked) = calls, results
    assert edited is not None and checked is not None
    order = [record.prompts[1], edit, edited, final, checked, record.responses[-1]]
    return all(first.seq < second.seq for first, second in pairwise(order))


def _causality(record: Record, observer: Mapping[str, Any]) -> dict[str, float]:
    calls = record.of_type("tool_call")
    ids = [call.body["call_id"] for call in calls]
    turns = [record.turn_of(response) for response in record.responses]
    seqs = [entry.seq for entry in record.entries]
    begins = record.prompts[0].seq if record.prompts else 0
    rooted = all(entry.seq > begins for entry in record.of_type(*STATED) if entry.seq != begins)
    return {
        "causal.action_result": _share(
            (
                ids.count(id) == 1 and record.result_of(call) is not None
                for id, call in zip(ids, calls, strict=True)
            ),
            len(observer["actions"]),
        ),
        "causal.turn_response": _share(
            (
                _text_of(turn) == prompt
                for turn, prompt in zip(turns, observer["prompts"], strict=False)
            ),
            2,
        ),
        "broad.readable_rationale": _share(
            (bool(response.text.strip()) for response in record.responses), 2
        ),
        "broad.thread_structure": float(seqs == list(range(1, len(seqs) + 1)) and rooted),
    }


def _attribution(record: Record, observer: Mapping[str, Any]) -> dict[str, float]:
    usages = [record.usage_of(response) for response in record.responses]
    total = record.session.get("usage", {})
    sums = {name: sum(usage.get(name) or 0 for usage in record.usages) for name in TOKENS}
    return {
        "attribution.model_config": _share(
            (record.model_of(response) == observer["model"] for response in record.responses), 2
        ),
        "attribution.usage": _share((_has_counts(usage, TOKENS[:2]) for usage in usages), 2),
        "attribution.token_semantics": _share((_has_counts(usage, TOKENS) for usage in usages), 2),
        "attribution.reconciliation": float(
            bool(total) and sums == {name: total.get(name) or 0 for name in TOKENS}
        ),
    }


def _has_counts(usage: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Return whether each count is there as an integer. A missing key is not a zero."""
    return all(type(usage.get(name)) is int and usage[name] >= 0 for name in names)


def _format(record: Record, observer: Mapping[str, Any]) -> dict[str, float]:
    required = record.of_type(*STATED)
    types = {entry.type for entry in record.entries}
    return {
        "broad.standard_tools_readable": float(all(entry.body for entry in record.entries)),
        "broad.documented_format": float(
            all(f"### `{type}`" in observer["document"] for type in types)
            and all(f"`{name}`" in observer["document"] for name in ("turn", "call_id", "version"))
        ),
        "broad.self_contained_identity": float(all(record.identity.values())),
        "broad.declared_format_version": float(all(version >= 1 for version in record.versions)),
        "broad.observed_schema_stability": float(types <= set(observer["documented_types"])),
        "broad.event_timestamps": _share((_is_time(e.at) for e in required), len(required)),
        "broad.naive_reader_duplicate_safety": _once(record),
        "broad.classified_content_density": density(record),
    }


def _is_time(at: Any) -> bool:
    """Return whether a time is RFC 3339 with a zone, or Unix seconds or milliseconds."""
    if isinstance(at, str):
        return _RFC3339.fullmatch(at) is not None
    return isinstance(at, int | float) and (1e9 < at < 4e9 or 1e12 < at < 4e12)


def _once(record: Record) -> float:
    """Return the share of events that one forward read finds exactly once."""
    stated = [entry for entry in record.entries if entry.type in STATED]
    copies = [_copies(entry, record) for entry in stated]
    return sum(count == 0 for count in copies) / max(1, len(stated) + sum(copies))


def _copies(entry: Entry, record: Record) -> int:
    """Return how many other records state an event again."""
    rows = [other.record for other in record.entries if other is not entry]
    return sum(_restates(row, entry) for row in [*rows, record.session])


def _restates(row: Mapping[str, Any], entry: Entry) -> bool:
    leaves = list(_texts(row))
    if entry.type != "tool_call":
        return bool(entry.text) and any(entry.text in leaf for leaf in leaves)
    call_id = row.get("body", {}).get("call_id")
    if call_id is not None and call_id != entry.body["call_id"]:
        return False
    arguments = [text for text in _texts(entry.body["input"]) if text]
    held = all(any(argument in leaf for leaf in leaves) for argument in arguments)
    only_target = set(entry.body["input"]) <= {"file_path", "path"}
    return held and bool(arguments) and (not only_target or entry.body["name"] in leaves)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def density(record: Record, *, session_only: bool = False) -> float:
    """Return the share of bytes that are content: of all rows, or of the session's own rows."""
    useful = sum(len(canonical(e.record)) for e in record.entries if e.type in USEFUL)
    total = sum(len(canonical(entry.record)) for entry in record.entries)
    others = [{"row": record.session}] if session_only else record.others
    return useful / (total + sum(len(canonical(row)) for row in others))


def table(name: str, scores: Sequence[Mapping[str, float]]) -> str:
    """Return the points of several runs as text."""
    lines = [f"{name:<40} max  " + "  ".join(f"run {n}" for n in range(1, len(scores) + 1))]
    for metric, points in POINTS.items():
        values = "  ".join(f"{run[metric]:5.2f}" for run in scores)
        lines.append(f"{metric:<40} {points:>3}  {values}")
    totals = "  ".join(f"{sum(run.values()):5.1f}" for run in scores)
    return "\n".join([*lines, f"{'total':<40} 100  {totals}"])


if __name__ == "__main__":
    print(decode(Path(sys.argv[1])).digest())
