"""The requirements of the protocol's conformance kit, and helpers of the tests that cover them.

`LISTED` has all requirements that concern sessions, by version. Each test names the numbers of its
requirements, and each version's last test checks that none is missing.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from tests.interfaces.acp.harness import Client

F = TypeVar("F", bound=Callable[..., Any])


def numbered(area: str, numbers: str) -> set[str]:
    """Return the requirements of an area, such as INIT, with a number or a range of numbers."""
    first, _, last = numbers.partition("-")
    return {f"{area}-{number:03}" for number in range(int(first), int(last or first) + 1)}


LISTED = {
    1: numbered("INIT", "1-4")
    | numbered("SESSION", "1-2")
    | numbered("PROMPT", "1-2")
    | numbered("CANCEL", "1-2")
    | numbered("LOAD", "1-3")
    | numbered("RESUME", "1-2")
    | numbered("LIST", "1-2")
    | numbered("DELETE", "1-2")
    | numbered("CLOSE", "1-2")
    | numbered("ADDDIRS", "1")
    | numbered("MODES", "1-2")
    | numbered("CONFIG", "1-3")
    | numbered("PROMPTCAP", "1-3")
    | numbered("AUTH", "2")
    | numbered("CLIENTCAP", "1-3")
    | numbered("EXT", "1")
    | numbered("JSONRPC", "1-5")
    | numbered("TRANSPORT", "1-2")
    | numbered("SHUTDOWN", "1"),
    2: numbered("INIT", "201-204")
    | numbered("SESSION", "203")
    | numbered("PROMPT", "201")
    | numbered("PROMPT", "203")
    | numbered("STATE", "201-203")
    | numbered("RESUME", "201-205")
    | numbered("LIST", "201-204")
    | numbered("CLOSE", "201-202")
    | numbered("DELETE", "201-203")
    | numbered("ADDDIRS", "201-202")
    | numbered("CONFIG", "201-206")
    | numbered("CANCEL", "201-208")
    | numbered("AUTH", "201-207")
    | numbered("PATCH", "201-209")
    | numbered("ENUM", "201-203")
    | numbered("META", "201")
    # The kit still has the batches of earlier drafts; the current protocol has none.
    | numbered("BATCH", "201-208"),
}
COVERED: dict[int, set[str]] = {1: set(), 2: set()}
SCRIPT = (
    "/think hm\n/say hi there\n/tool ls a\n/plan one; > two; x three\n/ask May I?\n/usage 10 20"
)
INFO = {"info": {"name": "conformance", "version": "1"}}


def covers(version: int, *requirements: str) -> Callable[[F], F]:
    """Return a decorator that records which requirements a test covers."""

    def mark(test: F) -> F:
        for requirement in requirements:
            assert requirement in LISTED[version], requirement
            COVERED[version].add(requirement)
        return test

    return mark


async def wait_quiet(client: Client) -> int:
    """Wait until no more messages are on their way, and return the length of the log."""
    await client.request("session/list")
    await asyncio.sleep(0.1)
    await client.request("session/list")
    return len(client.log)


def read_options(result: Any, id_field: str) -> dict[str, Any]:
    """Return the options by id, and check that each value is one of its choices."""
    options = {option[id_field]: option for option in result["configOptions"]}
    assert options
    for option in options.values():
        assert option["type"] == "select"  # only clients that support booleans get them
        assert option["currentValue"] in [choice["value"] for choice in option["options"]]
    return options
