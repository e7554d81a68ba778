"""What is printed of a conversation."""

from segue.doors.cli.output import printable
from segue.model.content import Diff, Image, Resource, ResourceLink, Text


def test_what_is_no_text_is_named() -> None:
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
