"""`--transform`: GJSON paths."""

from typing import Any

import pytest

from segue.interfaces.cli.api import gjson

VALUE: dict[str, Any] = {
    "name": {"first": "Ada", "last": "L"},
    "age": 37,
    "a.b": 1,
    "children": ["Sara", "Alex", "Jack"],
    "friends": [
        {"first": "Dale", "age": 44, "nets": ["ig", "fb"]},
        {"first": "Roger", "age": 68, "nets": ["fb"]},
        {"first": "Jane", "age": 47, "nets": []},
    ],
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("name.last", "L"),
        ("age", 37),
        ("a\\.b", 1),
        ("children.1", "Alex"),
        ("children.#", 3),
        ("child*.2", "Jack"),
        ("c?ildren.0", "Sara"),
        ("friends.#.first", ["Dale", "Roger", "Jane"]),
        ("friends.#.nope", []),
        ("friends.1|first", "Roger"),
        ('friends.#(first=="Roger").age', 68),
        ("friends.#(age>45)#.first", ["Roger", "Jane"]),
        ("friends.#(age<=44)#.age", [44]),
        ('friends.#(first%"D*").first', "Dale"),
        ('friends.#(first!="Dale")#|#', 2),
        ('friends.#(nets.#(=="ig"))#.first', ["Dale"]),
        ("{age,name.first}", {"age": 37, "first": "Ada"}),
        ('{"years":age}', {"years": 37}),
        ("[age,children.0]", [37, "Sara"]),
        ("children.@reverse", ["Jack", "Alex", "Sara"]),
        ("name.@keys", ["first", "last"]),
        ("name.@values", ["Ada", "L"]),
        ("friends.#.nets|@flatten", ["ig", "fb", "fb"]),
        ("@this.age", 37),
        ('[friends.#.nets,children]|@flatten:{"deep":true}|#', 6),
        ('friends.#.{"f":first}|@join', {"f": "Jane"}),
        ("{first:friends.#.first,age:friends.#.age}|@group|1", {"first": "Roger", "age": 68}),
        ("@dig:first", ["Ada", "Dale", "Roger", "Jane"]),
        ("children.@tostr", '["Sara","Alex","Jack"]'),
        ("children.@tostr|@fromstr|0", "Sara"),
        ("name.@reverse", {"last": "L", "first": "Ada"}),
        ('{age,"kind":!"person"}', {"age": 37, "kind": "person"}),
        ("age|@pretty", 37),
    ],
)
def test_path_returns_the_value(path: str, expected: Any) -> None:
    assert gjson.get(VALUE, path) == expected


@pytest.mark.parametrize(
    "path", ["nope", "name.first.x", "children.9", "age.#", "friends.#(age>99)", "@nope", "", "x*"]
)
def test_missing_path_raises(path: str) -> None:
    with pytest.raises(gjson.PathNotFound):
        gjson.get(VALUE, path)
