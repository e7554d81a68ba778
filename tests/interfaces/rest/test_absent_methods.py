"""docs/rest.md lists every method of the newest official client that segue does not serve."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interfaces.rest.test_client_coverage import RequestSent, client, client_methods, routes

DOCUMENT = Path(__file__).parents[3] / "docs" / "rest.md"
HEADING = "## Methods that segue does not have"


def listed_methods() -> dict[str, list[str]]:
    """Return the rows of the table: the methods by resource, [*] for all methods below it."""
    section = DOCUMENT.read_text().partition(f"{HEADING}\n")[2].partition("\n## ")[0]
    rows: dict[str, list[str]] = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| `"):
            continue
        methods = ["*"] if cells[1] == "all" else re.findall(r"`(\w+)`", cells[1])
        for resource in re.findall(r"`([\w.]+)`", cells[0]):
            rows[resource] = methods
    return rows


def all_methods() -> dict[str, Any]:
    """Return every method of the client by its name."""
    return dict(_walk(client(), ""))


def _walk(resource: Any, above: str) -> Iterator[tuple[str, Any]]:
    from anthropic._resource import SyncAPIResource

    for name in dir(resource):
        if name.startswith(("_", "with_")):
            continue
        value = getattr(resource, name, None)
        if isinstance(value, SyncAPIResource):
            yield from _walk(value, f"{above}{name}.")
        elif above and inspect.ismethod(value):
            yield f"{above}{name}", value


def test_table_has_every_absent_method_and_no_other() -> None:
    methods = all_methods()
    served = {name for name in methods if name.removeprefix("beta.") in client_methods()}
    listed = set()
    for resource, names in listed_methods().items():
        if names == ["*"]:
            matches = {name for name in methods if name.startswith(f"{resource}.")}
            assert matches, resource
            listed |= matches
        else:
            listed |= {f"{resource}.{name}" for name in names}
    assert methods.keys() - served - listed == set()
    assert listed - (methods.keys() - served) == set()


@pytest.mark.parametrize("name", ["files.list", "models.list", "skills.list"])
def test_methods_that_are_no_longer_beta_are_served(name: str) -> None:
    with pytest.raises(Exception) as raised:
        all_methods()[name]()
    reason: BaseException | None = raised.value
    while reason is not None and not isinstance(reason, RequestSent):
        reason = reason.__cause__ or reason.__context__
    assert reason is not None
    sent = reason.args[0]
    match = routes.match(sent.url.path)
    assert match is not None and sent.method in match[0]
