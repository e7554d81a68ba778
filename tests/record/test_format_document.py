"""docs/format.md and docs/format.schema.json describe the structs, and the schema the decoder."""

import copy
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from segue.hub.sync import export_file
from segue.model.errors import InvalidInput
from segue.model.event import BODIES

DOCS = Path(__file__).parent.parent.parent / "docs"
Line = dict[str, Any]


def load_builder() -> Any:
    spec = importlib.util.spec_from_file_location("build_format", DOCS / "build_format.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_format_document_and_schema_are_up_to_date() -> None:
    """Run `python docs/build_format.py` if this fails."""
    builder = load_builder()
    assert builder.schema_text() == builder.SCHEMA_PATH.read_text()
    text = builder.DOCUMENT_PATH.read_text()
    assert builder.document(text) == text


def test_document_names_every_type_of_event() -> None:
    text = (DOCS / "format.md").read_text()
    assert [tag for tag in BODIES if f"\n### `{tag}`\n" not in text] == []


FEW_VALUES = ("2026-01-31T12:00:00Z", 7, None, {})
MANY_VALUES = (
    "text",
    "",
    "2026-13-01T00:00:00Z",
    *FEW_VALUES,
    None,
    {},
    -1,
    0.5,
    True,
    [],
    ["text"],
    {"type": "text"},
)


def mutations(value: Any, others: tuple[Any, ...]) -> Iterator[Any]:
    """Yield copies of a JSON value: each without one field, or with one value of another type."""
    if isinstance(value, dict):
        for name in value:
            yield {key: item for key, item in value.items() if key != name}
            for changed in mutations(value[name], others):
                yield {**value, name: changed}
        yield {**value, "unknown field": 1}
    elif isinstance(value, list):
        for index, item in enumerate(value):
            for changed in mutations(item, others):
                yield [*value[:index], changed, *value[index + 1 :]]
    for other in others:
        if type(other) is not type(value) or isinstance(value, str):
            yield copy.deepcopy(other)


def decoder_accepts(line: Line, *, is_header: bool) -> bool:
    data = json.dumps(line).encode()
    try:
        if is_header:
            export_file.read([data])
        else:
            _, events = export_file.read([HEADER_OF_ONE, data])
            next(events)
    except InvalidInput:
        return False
    return True


HEADER_OF_ONE = json.dumps(
    {
        "format": "segue.session",
        "version": 3,
        "harness": "another program",
        "harness_version": "1",
        "interface": "cli",
        "session": {
            "id": "01980000-0000-7000-8000-000000000001",
            "last_seq": 1,
        },
    }
).encode()


@pytest.mark.parametrize(
    "values", [FEW_VALUES, pytest.param(MANY_VALUES, marks=pytest.mark.full)], ids=["few", "many"]
)
def test_schema_accepts_the_lines_that_the_decoder_accepts(
    exported: list[bytes], values: tuple[Any, ...]
) -> None:
    """Every field of every line is removed, or replaced by a value of another type."""
    schema = json.loads((DOCS / "format.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validators = [
        jsonschema.Draft202012Validator({**schema, "anyOf": [{"$ref": f"#/$defs/{name}"}]})
        for name in ("Header", "EventLine")
    ]
    accepted = rejected = 0
    lines = {line.get("body", {}).get("type"): line for line in map(json.loads, exported)}
    for number, line in enumerate(lines.values()):
        if number:
            line["seq"] = 1
        validator = validators[min(number, 1)]
        assert validator.is_valid(line)
        for changed in mutations(line, values):
            if not isinstance(changed, dict) or changed.get("seq", 1) != 1:
                continue
            is_valid = decoder_accepts(changed, is_header=number == 0)
            assert is_valid == validator.is_valid(changed), changed
            accepted, rejected = accepted + is_valid, rejected + (not is_valid)
    assert accepted > 300 and rejected > 600


@pytest.mark.parametrize("version", [1, 4])
def test_schema_rejects_other_versions_of_the_header(version: int) -> None:
    schema = json.loads((DOCS / "format.schema.json").read_text())
    header = {**json.loads(HEADER_OF_ONE), "version": version}
    assert not jsonschema.Draft202012Validator(schema).is_valid(header)
    assert not decoder_accepts(header, is_header=True)
