"""`--format`: stable fields in five formats."""

import asyncio
import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from segue.factory import open_hub
from segue.interfaces.cli.main import segue
from segue.interfaces.cli.output import formats, output_fields
from segue.model.content import as_content
from segue.model.event import Event, UserMessage
from segue.model.principal import LOCAL
from tests.interfaces.cli.child import Programs, Run
from tests.interfaces.cli.screen import OpenTerminal

FIELDS = [
    "id",
    "title",
    "status",
    "cwd",
    "created_at",
    "active_at",
    "updated_at",
    "archived_at",
    "deleted_at",
    "messages",
    "turns",
    "tool_calls",
    "tag",
    "source",
    "origin",
    "native_id",
    "model",
    "agent_id",
    "agent_version",
    "environment_id",
    "git_branch",
    "forked_from",
    "stop_reason",
    "pending",
    "metadata",
    "usage",
]


def test_list_prints_the_same_fields_in_every_format(run: Run) -> None:
    run("new", "--title", 'Odd, "quoted": ünïcode', "--tag", "yes")
    run("prompt", "new", "/usage 100 50")
    listed = json.loads(run("list", "--format", "json").stdout)
    assert [list(row) for row in listed] == [FIELDS, FIELDS]
    odd = listed[1]
    assert (odd["title"], odd["tag"], odd["status"]) == ('Odd, "quoted": ünïcode', "yes", "idle")
    assert listed[0]["usage"] == {
        "input_tokens": 100,
        "output_tokens": 50,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
        "cost": None,  # the demo agent reports no cost
        "cost_estimated": False,
        "cost_partial": False,
    }
    lines = run("list", "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == listed
    assert yaml.safe_load(run("list", "--format", "yaml").stdout) == listed
    rows = list(csv.DictReader(io.StringIO(run("list", "--format", "csv").stdout)))
    assert [row["title"] for row in rows] == [row["title"] for row in listed]
    assert (rows[0]["usage.input_tokens"], rows[1]["archived_at"]) == ("100", "")
    raw = [json.loads(line) for line in run("list", "--format", "raw").stdout.splitlines()]
    assert [row["id"] for row in raw] == [row["id"] for row in listed]
    assert isinstance(raw[0]["created_at"], int)


@pytest.mark.parametrize(
    ("format", "empty"),
    [("json", "[]\n"), ("jsonl", ""), ("yaml", "[]\n"), ("csv", ""), ("raw", "")],
)
def test_empty_list_is_valid_in_every_format(run: Run, format: str, empty: str) -> None:
    done = run("list", "--format", format)
    assert (done.returncode, done.stdout, done.stderr) == (0, empty, "")


def test_other_commands_support_formats(run: Run, programs: Programs) -> None:
    id = json.loads(run("new", "--title", "One", "--format", "json").stdout)["id"]
    run("prompt", id, "a needle")
    (match,) = json.loads(run("search", "needle", "--format", "json").stdout)
    start, stop = match["marks"][0]
    assert (match["id"], match["snippet"][start:stop]) == (id, "needle")
    events = [json.loads(line) for line in run("show", id, "--format", "jsonl").stdout.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert {"created", "user_message", "status_changed"} <= {event["type"] for event in events}
    assert yaml.safe_load(run("show", id, "--info").stdout)["title"] == "One"
    assert json.loads(run("show", id, "--info", "--format", "raw").stdout)["id"] == id
    assert json.loads(run("sources", "--format", "json").stdout)[0]["name"] == "segue"
    (day,) = json.loads(run("stats", "--format", "json").stdout)
    assert (day["sessions"], next(iter(day))) == (1, "day")
    doctor = run("doctor", "--format", "json", PATH=programs("claude"))
    assert all(row["state"] == "ok" for row in json.loads(doctor.stdout))


def test_long_history_is_written_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def create_session() -> str:
        async with await open_hub(tmp_path, sources="none") as hub:
            id = (await hub.editor.create(LOCAL)).id
            messages = (
                UserMessage(content=as_content(f"é {number}: {{}}\n")) for number in range(600)
            )
            await hub.editor.append(LOCAL, id, *messages)
            return id

    id = asyncio.run(create_session())
    read: list[dict[str, Any]] = []
    written: list[tuple[int, bytes]] = []  # with the number of events read before each
    fields = output_fields.event_fields

    def counting_fields(event: Event) -> dict[str, Any]:
        read.append(fields(event))
        return read[-1]

    monkeypatch.setattr(output_fields, "event_fields", counting_fields)
    monkeypatch.setattr(formats, "write", lambda data: written.append((len(read), data)))
    output = {}
    for format in formats.FORMATS:
        read, written = [], []
        words = ["show", id, "--format", format, "--data-dir", str(tmp_path), "--sources", "none"]
        segue.main(words, standalone_mode=False)
        assert len(read) == 601 and written[0][0] <= 300
        output[format] = b"".join(data for _, data in written).decode()
    rows = [json.loads(line) for line in output["jsonl"].splitlines()]
    assert output["json"] == json.dumps(rows, indent=2, ensure_ascii=False) + "\n"
    assert output["yaml"] == formats.to_yaml(rows).decode()
    table = list(csv.DictReader(io.StringIO(output["csv"])))
    assert [json.loads(row["body"]) for row in table] == [row["body"] for row in rows]


HOSTILE = "a\x1b]0;title\x07\x9b31m\u202eb\u2066\x7f\rc"
HOSTILE_CONTROLS = ("\x1b", "\x07", "\x9b", "\u202e", "\u2066", "\x7f")


def written(
    capfdbinary: pytest.CaptureFixture[bytes],
    format: str,
    value: dict[str, Any],
    *,
    terminal: bool = False,
) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.stdout, "isatty", lambda: terminal)
        formats.write_rows(format, [(value, value)])
    return capfdbinary.readouterr().out.decode()


@pytest.mark.parametrize("format", ["json", "jsonl", "yaml", "raw"])
def test_a_pipe_gets_the_text_unchanged(
    capfdbinary: pytest.CaptureFixture[bytes], format: str
) -> None:
    text = written(capfdbinary, format, {"title": HOSTILE})
    assert "\u202e" in text
    load = yaml.safe_load if format == "yaml" else json.loads
    assert load(text) in ({"title": HOSTILE}, [{"title": HOSTILE}])


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("format", ["json", "jsonl", "raw"])
def test_half_of_an_emoji_is_written_as_an_escape(
    capfdbinary: pytest.CaptureFixture[bytes], format: str, terminal: bool
) -> None:
    value = {"title": "half \ud83d, ünï", "list": [{}, [], {"a": 1}]}
    text = written(capfdbinary, format, value, terminal=terminal)
    assert "\\ud83d" in text and json.loads(text) in (value, [value])
    formats.write_value(format, value)
    assert json.loads(capfdbinary.readouterr().out) == value


@pytest.mark.parametrize("format", ["json", "jsonl", "yaml", "raw"])
def test_a_terminal_gets_escapes_instead_of_controls(
    capfdbinary: pytest.CaptureFixture[bytes], format: str
) -> None:
    value = {"title": HOSTILE, "plain": "ünï 日本", "\u202ekey": ["x\u200f", 1]}
    text = written(capfdbinary, format, value, terminal=True)
    assert not [control for control in HOSTILE_CONTROLS if control in text]
    assert "ünï 日本" in text
    load = yaml.safe_load if format == "yaml" else json.loads
    assert load(text) in (value, [value])


def test_a_real_terminal_gets_escapes(
    run: Run, open_terminal: OpenTerminal, environment: dict[str, str]
) -> None:
    run("new", "--title", "evil \u202e\x9b31m title")
    for format in ("json", "yaml", "csv"):
        terminal = open_terminal("list", "--format", format, env=environment)
        text = terminal.read().decode()
        terminal.close()
        assert "evil" in text
        assert "\u202e" not in text and "\x9b" not in text


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("\n=1", "'\n=1"),
        ("＝1", "'＝1"),
        ("-5", "-5"),
        ("+1.5e-3", "+1.5e-3"),
        (-7, "-7"),
        (0.25, "0.25"),
        (None, ""),
        (True, "true"),
        ("a = b", "a = b"),
        ("日本 \n line", "日本 \n line"),
        (HOSTILE, "a\ufffd]0;title\ufffd\ufffd31m\ufffdb\ufffd\ufffd\ufffdc"),
        ("one\r\ntwo", "one\ntwo"),
        (["=1"], '["=1"]'),
    ],
)
def test_csv_cells_carry_neither_formulas_nor_controls(
    capfdbinary: pytest.CaptureFixture[bytes], value: Any, cell: str
) -> None:
    text = written(capfdbinary, "csv", {"id": "x", "title": value})
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    assert row == {"id": "x", "title": cell}
