"""The table of methods decides which methods a protocol version has."""

from segue.acp import v1, v2
from segue.acp.methods import REQUEST_TYPES


def test_a_version_has_only_the_methods_in_the_table() -> None:
    names = {version: {name for name, v in REQUEST_TYPES if v == version} for version in (1, 2)}
    assert names[1] - names[2] == {"authenticate", "logout", "session/set_mode"}
    cancels = {"tool_call/cancel", "terminal/cancel"}
    assert names[2] - names[1] == {"auth/login", "auth/logout"} | cancels
    assert ("session/prompt", 3) not in REQUEST_TYPES


def test_a_method_may_have_another_type_in_each_version() -> None:
    assert REQUEST_TYPES["initialize", v1.VERSION] is v1.InitializeRequest
    assert REQUEST_TYPES["initialize", v2.VERSION] is v2.InitializeRequest
