"""Compute the titles of tool calls and permission requests."""

from typing import Any

import pytest

from segue.model.event import PermissionAsked, ToolCall, decode_body
from segue.model.tools.titles import call_title, request_title, without_computed_title


def call(name: str, input: Any = None, **fields: Any) -> ToolCall:
    return ToolCall(call_id="c", name=name, input=input, **fields)


@pytest.mark.parametrize(
    ("tool_call", "title"),
    [
        (call("bash", {"command": "ls -l"}), "ls -l"),
        (call("bash", {"restart": True}), "Restart the shell"),
        (call("read", {"file_path": "/a"}), "Read /a"),
        (call("write", {"path": "/a", "content": "x"}), "Write /a"),
        (call("web_search", {"query": "q"}), "Search the web for q"),
        (call("bash", {"command": 5}), "bash"),
        (call("bash", "ls"), "bash"),
        (call("read", {"file_path": "/a"}, server="files"), "read"),
        (call("read", {"file_path": "/a"}, custom=True), "read"),
        (call("read", {"file_path": "/a"}, title="Look"), "Look"),
    ],
)
def test_title_of_a_call_follows_from_its_name_and_input(tool_call: ToolCall, title: str) -> None:
    assert call_title(tool_call) == title


def test_title_is_stored_only_if_it_cannot_be_computed() -> None:
    stored = without_computed_title(call("bash", {"command": "ls"}, title="ls"))
    assert (stored.title, call_title(stored)) == (None, "ls")
    named = without_computed_title(call("ls -l", title="ls -l"))
    assert (named.title, call_title(named)) == (None, "ls -l")
    other = call("bash", {"command": "ls"}, title="List the files")
    assert without_computed_title(other) == other


def test_request_without_a_title_has_that_of_its_call() -> None:
    request = PermissionAsked(ask_id="a", options=(), call_id="c")
    assert request_title(request, call("bash", {"command": "ls"})) == "ls"
    assert request_title(request, call("get", {"n": 1}, server="files")) == 'get {"n": 1}'
    assert request_title(request, None) == "Use a tool"
    named = PermissionAsked(ask_id="a", options=(), call_id="c", title="May I?")
    assert request_title(named, call("bash", {"command": "ls"})) == "May I?"


def test_permission_of_a_call_of_version_1_is_converted() -> None:
    stored = (
        b'{"type":"tool_call","call_id":"c","name":"bash","title":"ls","kind":"execute",'
        b'"extra":{"permission":{"policy":"auto","verdict":"ask"},"elsewhere":true}}'
    )
    read = decode_body(stored, 1)
    assert isinstance(read, ToolCall)
    assert (read.policy, read.effective_verdict, read.extra) == ("auto", "ask", {"elsewhere": True})
