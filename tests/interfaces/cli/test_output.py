"""Printing a conversation."""

from click import unstyle

from segue.interfaces.cli.output.text import event_text, printable
from segue.model.content import Diff, Image, Resource, ResourceLink, Text
from segue.model.event import Event, ToolResult


def test_content_other_than_text_is_described() -> None:
    shown = printable(
        (
            Text(text="See"),
            ResourceLink(uri="file:///a/notes.md", name="notes"),
            Resource(uri="file:///a/b.bin", data="AAAA"),
            Image(mime="image/gif", data="AAAA"),
            Diff(path="/a", new="x"),
        )
    )
    assert shown.splitlines() == [
        *("See", "notes: file:///a/notes.md", "[file:///a/b.bin]", "[image/gif]", "new file: /a")
    ]


def test_result_lines_are_indented_below_their_call() -> None:
    body = ToolResult(call_id="c", content=(Text(text="one\ntwo\n\nthree"),))
    shown = event_text(Event(seq=1, id="e", at=0, body=body))
    assert shown is not None
    assert unstyle(shown) == "  completed: one\n  two\n\n  three"
