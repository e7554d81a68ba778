"""One value of a file of JSON with comments is changed; every other character stays."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue import jsonc

ENTRY = {"command": "segue", "args": ["mcp"]}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "s": {\n    "x": 1\n  }\n}\n'),
        ("\ufeff", '\ufeff{\n  "s": {\n    "x": 1\n  }\n}\n'),
        ("// only a note", '// only a note\n{\n  "s": {\n    "x": 1\n  }\n}\n'),
        ("{}", '{\n  "s": {\n    "x": 1\n  }\n}'),
        ('{"a": 1.0e2, "a": 2,}', '{"a": 1.0e2, "a": 2, "s": {"x": 1},}'),
        ('{"s": {"x": 0, /* y */ "y": "\\u00e9"}}', '{"s": {"x": 1, /* y */ "y": "\\u00e9"}}'),
        ('{"s": {}, "s": {} // last\n}', '{"s": {}, "s": {\n  "x": 1\n} // last\n}'),
        (
            '{\r\n\t"a": 1 // one\r\n\t// end\r\n}',
            '{\r\n\t"a": 1, // one\r\n\t"s": {\r\n\t\t"x": 1\r\n\t}\r\n\t// end\r\n}',
        ),
        (
            '{\n    "s": {\n        "b": [1], // of b\n    },\n}\n',
            '{\n    "s": {\n        "b": [1], // of b\n        "x": 1,\n    },\n}\n',
        ),
    ],
)
def test_only_the_value_is_written(before: str, after: str) -> None:
    assert jsonc.set_value(before, ["s", "x"], 1) == after
    assert jsonc.set_value(after, ["s", "x"], 1) == after


@pytest.mark.parametrize(
    "text",
    ["[]", "1", '{"s": 1}', '{"s": null}', "{'s': {}}", "{s: {}}", '{"s": {}', '{"a" /* b'],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        jsonc.set_value(text, ["s", "x"], 1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
NOISE = st.sampled_from(["", " ", "\n", "\n\t", "/* { */", '// "\n', "\n  // }\n  "])


def written(value: Any, draw: Any) -> str:
    """Return JSON with comments and space at random places."""

    def space() -> str:
        return str(draw(NOISE))

    if isinstance(value, dict):
        members = [
            f"{space()}{json.dumps(k)}{space()}:{space()}{written(v, draw)}{space()}"
            for k, v in value.items()
        ]
        last = "," if members and draw(st.booleans()) else ""
        return "{" + ",".join(members) + last + space() + "}"
    if isinstance(value, list):
        return "[" + ",".join(space() + written(item, draw) for item in value) + space() + "]"
    return json.dumps(value)


@given(
    value=st.dictionaries(st.text(max_size=4), JSON),
    servers=st.none() | st.dictionaries(st.sampled_from(["segue", "b", "c"]), JSON),
    data=st.data(),
)
def test_random_files_keep_every_other_value_and_character(
    value: dict[str, Any], servers: dict[str, Any] | None, data: st.DataObject
) -> None:
    if servers is not None:
        value["s"] = servers
    else:
        value.pop("s", None)
    before = written(value, data.draw) + data.draw(NOISE)
    after = jsonc.set_value(before, ["s", "segue"], ENTRY)
    assert jsonc.parse(after) == {**value, "s": {**value.get("s", {}), "segue": ENTRY}}
    assert jsonc.set_value(after, ["s", "segue"], ENTRY).count("/*") == after.count("/*")
    if "segue" not in (servers or {}):
        rest = iter(after)
        assert all(character in rest for character in before)
