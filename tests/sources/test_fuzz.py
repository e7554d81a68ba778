"""Damage real sessions of every tool at random: no list fails, and no good session is lost."""

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from segue.model.errors import SegueError
from segue.model.query import Query
from segue.model.session import Session
from segue.sources.codex.reader import CodexReader
from segue.sources.copilot.reader import CopilotReader
from segue.sources.gemini.reader import GeminiReader
from segue.sources.goose.reader import GooseReader
from segue.sources.kimi.reader import KimiReader
from segue.sources.kit.reader import Reader
from segue.sources.kit.source import KitSource
from segue.sources.opencode.reader import OpencodeReader
from segue.sources.qwen.reader import QwenReader
from tests.sources.golden import unpack_homes

HERE = Path(__file__).parent
EXAMPLES = 4
FULL_EXAMPLES = 150
LARGEST_BYTES = 60_000  # of a file that is damaged; most damage does not need the longest ones
MAX_CPU_SECONDS = 20.0  # for one list; it takes a few milliseconds
ODD_VALUES: list[Any] = [None, True, -1, 5, 1e300, 10**30, "", "x", "\0", [], [[]], {}, {"a": 1}]
NOISE = [b"", b"\0" * 300, b"\xff", b"}{", b'"', b"\\", b"\\ud83d", b"\n", b"\r\n", b"\xe2\x80\xa8"]


class Tool(NamedTuple):
    """A home in the archive of a tool, its reader, and the files or columns to damage."""

    home: str
    path: str
    reader: Callable[[str], Reader]
    files: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    database: str = ""


TOOLS = [
    Tool("codex-0.166.0", "home/.codex", CodexReader, ("rollout-*.jsonl", "session_index.jsonl")),
    Tool("codex-0.128.0", "home/.codex", CodexReader, ("rollout-*.jsonl", "session_index.jsonl")),
    Tool("copilot-1.0.102", "home/.copilot", CopilotReader, ("events.jsonl", "workspace.yaml")),
    Tool("gemini-0.61.0", "home/dev/.gemini", GeminiReader, ("*.jsonl", "projects.json")),
    Tool("gemini-0.24.5", "home/dev/.gemini", GeminiReader, ("session-*.json",)),
    Tool("qwen-0.24.4", "home/dev/.qwen", QwenReader, ("*.jsonl", "*.meta.json")),
    Tool("kimi-2.1.0", "home/.kimi-code", KimiReader, ("wire.jsonl", "state.json")),
    Tool("opencode-1.1.65", "home/.local/share/opencode", OpencodeReader, ("ses_*.json",)),
    Tool(
        "opencode-1.18.34",
        "home/.local/share/opencode",
        OpencodeReader,
        database="opencode.db",
        columns=(
            ("message", "data"),
            ("part", "data"),
            ("session", "model"),
            ("session", "revert"),
            ("session", "title"),
            ("session", "time_created"),
            ("message", "time_created"),
            ("part", "time_updated"),
        ),
    ),
    Tool(
        "goose-1.52.0",
        "home/dev/.local/share/goose/sessions",
        GooseReader,
        database="sessions.db",
        columns=(
            ("messages", "content_json"),
            ("messages", "metadata_json"),
            ("messages", "message_id"),
            ("messages", "created_timestamp"),
            ("sessions", "model_config_json"),
            ("sessions", "working_dir"),
            ("sessions", "updated_at"),
            ("sessions", "accumulated_cost"),
        ),
    ),
]


NEWEST = [tool for tool in TOOLS if tool.home not in ("codex-0.128.0", "opencode-1.1.65")]


class FuzzedHome:
    """A home that is damaged and repaired.

    One index follows the changes of files. A change of a row that leaves no trace, as those of the
    tests, is not noticed: a database is indexed each time.
    """

    def __init__(self, tool: Tool, directory: Path) -> None:
        self.tool = tool
        names = unpack_homes(HERE / tool.home.partition("-")[0] / "homes.tar.xz", directory)
        if tool.home not in names:
            pytest.skip(f"the archive has no {tool.home}")
        self.home = directory / tool.home / tool.path
        self._index = directory / "source.index"
        self.whole = self.rows()
        assert len(self.whole) > 3

    def files(self) -> list[Path]:
        """Return the files that can be damaged."""
        paths = {path for pattern in self.tool.files for path in self.home.rglob(pattern)}
        return sorted(path for path in paths if 0 < path.stat().st_size < LARGEST_BYTES)

    def rows(self) -> dict[str, Session]:
        """Return all sessions, after every other call that a list and a page of a session make."""

        if self.tool.database:
            self._index.unlink(missing_ok=True)

        async def read() -> dict[str, Session]:
            source = KitSource(self.tool.reader(str(self.home)), self._index, "x")
            try:
                await source.refresh()
                rows = await source.page(Query(archived="include", limit=1000))
                await source.examine()
                return {row.id: _without_file_times(row) for row in rows}
            finally:
                await source.close()

        return asyncio.run(read())

    def read_events(self, ids: set[str]) -> None:
        """Read sessions; only segue's own errors may be raised, and seqs rise."""

        async def read() -> None:
            source = KitSource(self.tool.reader(str(self.home)), self._index, "x")
            try:
                await source.refresh()
                for id in ids:
                    try:
                        events = await source.events(id, limit=100_000)
                        await source.threads(id)
                    except SegueError:
                        continue
                    seqs = [event.seq for event in events]
                    assert seqs == sorted(set(seqs))
            finally:
                await source.close()

        asyncio.run(read())

    def check(self, may_differ: set[str]) -> None:
        """List the damaged home: all sessions are as before, but those that may differ."""
        began = time.thread_time()
        rows = self.rows()
        assert time.thread_time() - began < MAX_CPU_SECONDS
        for id, row in self.whole.items():
            if id not in may_differ:
                assert rows.get(id) == row
        self.read_events(may_differ & rows.keys())


def _without_file_times(row: Session) -> Session:
    """Return a row without the time of its archive, which Codex has as the time of a file."""
    return replace(row, archived_at=None if row.archived_at is None else 0)


def differing(one: dict[str, Session], other: dict[str, Session]) -> set[str]:
    """Return the sessions that are not the same in two lists."""
    return {id for id in one.keys() | other.keys() if one.get(id) != other.get(id)}


@contextmanager
def restored(path: Path) -> Iterator[bytes]:
    """Return the content of a file, and write it again after a `with` block, with its times."""
    status, data = path.stat(), path.read_bytes()
    try:
        yield data
    finally:
        replace_file(path, data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file, as a tool does that rewrites one."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)


def damaged_file(draw: st.DrawFn, data: bytes) -> bytes:
    """Return the content of a file after something happened to it."""
    lines = data.split(b"\n")
    for _ in range(draw(st.integers(1, 3))):
        number = draw(st.integers(0, len(lines) - 1))
        line = lines[number]
        match draw(
            st.sampled_from(["value", "value", "cut", "noise", "repeat", "remove", "swap", "end"])
        ):
            case "value":
                lines[number] = swapped(draw, line)
            case "cut":
                lines[number] = line[: draw(st.integers(0, len(line)))]
            case "noise":
                at = draw(st.integers(0, len(line)))
                lines[number] = line[:at] + draw(st.sampled_from(NOISE)) + line[at:]
            case "repeat":
                lines.insert(number, line)
            case "remove":
                lines[number : number + 1] = []
            case "swap":
                other = draw(st.integers(0, len(lines) - 1))
                lines[number], lines[other] = lines[other], line
            case "end":
                whole = b"\n".join(lines)
                lines = whole[: draw(st.integers(0, len(whole)))].split(b"\n")
        lines = lines or [b""]
    return b"\n".join(lines)


def swapped(draw: st.DrawFn, data: bytes) -> bytes:
    """Return JSON with one of its values replaced or removed."""
    try:
        value = json.loads(data)
    except ValueError:
        return data
    places = list(_places(value))
    if not places:
        return json.dumps(draw(st.sampled_from(ODD_VALUES))).encode()
    container, key = places[draw(st.integers(0, len(places) - 1))]
    if draw(st.integers(0, 4)) == 0:
        del container[key]
    else:
        container[key] = draw(st.sampled_from(ODD_VALUES))
    return json.dumps(value).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Return every container in a value with each of its keys."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, child in items:
        yield value, key
        yield from _places(child)


def run_examples(home: FuzzedHome, examples: int) -> None:
    """Damage a home again and again."""

    @cache
    def related(path: Path) -> set[str]:
        """Return the sessions that are not the same without a file."""
        with restored(path):
            path.unlink()
            return differing(home.whole, home.rows())

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def damage_file(data: st.DataObject) -> None:
        paths = home.files()
        path = paths[data.draw(st.integers(0, len(paths) - 1))]
        may_differ = related(path)
        with restored(path) as original:
            replace_file(path, damaged_file(data.draw, original))
            home.check(may_differ)

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def damage_rows(data: st.DataObject) -> None:
        path = home.home / home.tool.database
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            table, column = data.draw(st.sampled_from(home.tool.columns))
            numbers = [n for (n,) in connection.execute(f"SELECT rowid FROM {table}")]
            number = numbers[data.draw(st.integers(0, len(numbers) - 1))]
            owner_column = "id" if table in ("session", "sessions") else "session_id"
            select = f"SELECT {column}, {owner_column} FROM {table} WHERE rowid = ?"
            value, owner = connection.execute(select, (number,)).fetchone()
            update = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"
            odd: list[Any] = [-1, 5, 1e300, "", "x", b"\xff\0", "{", "[]", "null"]
            text = value if isinstance(value, str) else "{}"
            changed = data.draw(st.sampled_from(odd))
            if data.draw(st.booleans()):
                changed = swapped(data.draw, text.encode()).decode()
            connection.execute(update, (changed, number))
            try:
                home.check(_family(home.whole, owner))
            finally:
                connection.execute(update, (value, number))

    (damage_rows if home.tool.database else damage_file)()
    assert differing(home.rows(), home.whole) == set()


def _family(rows: dict[str, Session], native_id: str) -> set[str]:
    """Return a session, its forks and the session it is a fork of; all if it is a subagent."""
    own = {row.id for row in rows.values() if row.native_id == native_id}
    if not own:
        return set(rows)
    parents = {rows[id].fork.session for id in own if rows[id].fork is not None}  # type: ignore[union-attr]
    roots = own | parents
    return roots | {row.id for row in rows.values() if row.fork and row.fork.session in roots}


@pytest.mark.parametrize("tool", NEWEST, ids=lambda tool: tool.home)
def test_damage_hides_no_other_session(tool: Tool, tmp_path: Path) -> None:
    run_examples(FuzzedHome(tool, tmp_path), EXAMPLES)


@pytest.mark.full
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.home)
def test_much_damage_hides_no_other_session(tool: Tool, tmp_path: Path) -> None:
    run_examples(FuzzedHome(tool, tmp_path), FULL_EXAMPLES)


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool.database], ids=lambda t: t.home)
def test_overwritten_bytes_of_a_database_do_not_fail_the_list(tool: Tool, tmp_path: Path) -> None:
    home = FuzzedHome(tool, tmp_path)
    path = home.home / tool.database
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    original = path.read_bytes()
    for number in range(EXAMPLES):
        data = bytearray(original)
        at = number * len(data) // EXAMPLES  # the first time in the header
        data[at : at + 512] = bytes((number * 37 + byte * 11) % 256 for byte in range(512))
        path.write_bytes(data)
        home.check(set(home.whole))
    path.write_bytes(original)
    assert differing(home.rows(), home.whole) == set()
