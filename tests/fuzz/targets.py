"""The readers of untrusted input that are fuzzed.

A target gets bytes, and returns or raises one of `REFUSALS`. Any other exception is a bug.
"""

import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec

from segue.model.errors import SegueError

REFUSALS = (SegueError, msgspec.DecodeError, msgspec.ValidationError)
KEY = b"k" * 32
SESSION = "6f1c9d3e-1c9c-4a37-9c7e-9a6d3a1b2c4d"
CORPUS = Path(__file__).parent / "corpus"


def event(data: bytes) -> None:
    from segue.model.event import BODY_VERSION, decode_body

    for version in range(1, BODY_VERSION + 2):
        try:
            decode_body(data, version)
        except (*REFUSALS, ValueError, TypeError, LookupError, AttributeError, RecursionError):
            continue  # bodies come from the store, or through `export`, which refuses these


def cursor(data: bytes) -> None:
    from segue.model import cursor as cursors

    token = data.decode("utf-8", "replace")
    for decode in (cursors.decode, cursors.decode_list_position):
        try:
            decode(token, KEY, "local")
        except REFUSALS:
            continue


def export(data: bytes) -> None:
    from segue.hub.sync import export_file

    _, events = export_file.read(data.splitlines(keepends=True))
    for _ in events:
        pass


def archive(data: bytes) -> None:
    from segue.hub.skill_archive import check_files

    check_files({"skill.zip": data})


def markdown(data: bytes) -> None:
    from segue.render.markdown_parser import MAX_HTML_CHARACTERS, parse_markdown_without_lexers

    try:
        page = parse_markdown_without_lexers(data.decode("utf-8", "replace"))
    except ValueError as error:
        assert str(MAX_HTML_CHARACTERS) in str(error)  # the only reason
        return
    assert "<script" not in page.lower() and "<img" not in page.lower(), page


def html(data: bytes) -> None:
    from segue.agents.tools.page_text import read_page

    for charset in ("utf-8", "utf-16", "idna"):
        text, _ = read_page(data, "", charset, "text/html", 100_000, 20_000)
        assert len(text) <= 20_000


def transcript(data: bytes) -> None:
    from segue.claude import get_session_messages, list_sessions

    path = _claude_home() / "projects" / "-work" / f"{SESSION}.jsonl"
    path.write_bytes(data)
    list_sessions()
    get_session_messages(SESSION)


@cache
def _claude_home() -> Path:
    home = Path(tempfile.mkdtemp(prefix="segue-fuzz-"))
    (home / "projects" / "-work").mkdir(parents=True)
    os.environ["CLAUDE_CONFIG_DIR"] = str(home)
    return home


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (event, cursor, export, archive, markdown, html, transcript)
}


def is_handled(target: Callable[[bytes], None], data: bytes) -> bool:
    """Run a target; return whether it accepted the input. Raises for any bug."""
    try:
        target(data)
    except REFUSALS:
        return False
    return True


def seeds(name: str) -> list[bytes]:
    """Return the inputs of a target's corpus."""
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
