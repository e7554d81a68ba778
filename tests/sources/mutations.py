"""Damage JSON values as a bug of a tool or a crash could."""

import json
import random
from typing import Any

VALUES: tuple[Any, ...] = (None, True, -1, 3, 1e300, "", "text", [], [1], {}, {"a": 1}, [[]])


def mutate(data: str, chance: random.Random) -> str:
    """Return JSON with one value replaced or removed, or the first part of it."""
    if chance.random() < 0.1:
        return data[: chance.randrange(len(data))]
    value = json.loads(data)
    places = list(_places(value))
    container, key = chance.choice(places)
    if chance.random() < 0.2:
        del container[key]
    else:
        container[key] = chance.choice(VALUES)
    return json.dumps(value)


def _places(value: Any) -> Any:
    """Yield every container in a value with each of its keys."""
    items = enumerate(value) if isinstance(value, list) else None
    if isinstance(value, dict):
        items = list(value.items())  # type: ignore[assignment]
    for key, child in items or ():
        yield value, key
        yield from _places(child)
