"""Readers survive records with values of any kind, and continue where they ended."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from segue.model import codec
from segue.sources.copilot.reader import CopilotReader
from segue.sources.kimi.reader import KimiReader
from segue.sources.kit.reader import (
    End,
    Item,
    Reader,
    Resume,
    Rewritten,
    SessionFacts,
    Unreadable,
    collect,
)
from tests.sources.golden import unpack_homes

ROUNDS = 40
MAX_LINES = 60
MAX_LINE_CHARS = 20_000
ODD_VALUES = [None, 5, -1, "x", "", [], {}, [None], {"a": None}, True, "\ud800", 10**30, [{}]]


def mutate(value: Any, chance: random.Random) -> Any:
    """Return a value with some of its parts replaced or removed."""
    if chance.random() < 0.08:
        return chance.choice(ODD_VALUES)
    if isinstance(value, dict):
        items = value.items()
        return {key: mutate(item, chance) for key, item in items if chance.random() > 0.03}
    if isinstance(value, list):
        return [mutate(item, chance) for item in value]
    return value


def mutate_file(path: Path, chance: random.Random) -> list[bytes]:
    """Return the first lines of a file with mutated records."""
    with path.open() as file:
        lines = [line for line in file if len(line) < MAX_LINE_CHARS][:MAX_LINES]
    return [json.dumps(mutate(json.loads(line), chance)).encode() + b"\n" for line in lines]


@pytest.mark.parametrize(
    ("tool", "pattern", "make_reader"),
    [("copilot", "events.jsonl", CopilotReader), ("kimi", "wire.jsonl", KimiReader)],
)
def test_mutated_session_is_read_or_refused_and_continued(
    tool: str, pattern: str, make_reader: Callable[[str], Reader], tmp_path: Path
) -> None:
    unpack_homes(Path(__file__).parent / tool / "homes.tar.xz", tmp_path)
    reader = make_reader(str(tmp_path))
    paths = sorted(tmp_path.rglob(pattern))
    chance = random.Random(1)
    for _ in range(ROUNDS):
        path = chance.choice(paths)
        original = path.read_bytes()
        lines = mutate_file(path, chance)
        path.write_bytes(b"".join(lines))
        items, end = read(reader, path)
        seqs = [item.seq for item in items]
        assert seqs == sorted(set(seqs))
        half = len(lines) // 2
        path.write_bytes(b"".join(lines[:half]))
        first, middle = read(reader, path)
        if middle is not None and middle.resume is not None and end is not None:
            with path.open("ab") as file:
                file.writelines(lines[half:])
            resume = codec.Decoder(Resume)(codec.encode(middle.resume))
            try:
                rest, last = read(reader, path, resume)
            except Rewritten:  # such as by a fork: it is read from its beginning
                first, (rest, last) = [], read(reader, path)
            assert [*first, *rest] == items
            assert last is not None
            assert without_problems(last) == without_problems(end)
        path.write_bytes(original)


def without_problems(end: End) -> SessionFacts:
    """Return the facts; a read that continues has only the problems of its own part."""
    assert end.facts is not None
    return replace(end.facts, problems=())


def read(reader: Reader, path: Path, resume: Resume | None = None) -> tuple[list[Item], End | None]:
    """Return what a reader reads; nothing if it refuses the session."""
    ref = reader.ref(str(path))
    assert ref is not None
    try:
        return collect(reader.read(ref, resume))
    except Unreadable:
        return [], None
