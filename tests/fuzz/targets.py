"""The readers of untrusted input that are fuzzed.

A target gets bytes, and returns or raises one of `REFUSALS`. Any other exception is a bug.
"""

import os
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

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

    # No mutation has a valid signature, so the bytes are also signed.
    signed = data + cursors._sign(data, KEY, "local")
    tokens = data.decode("utf-8", "replace"), urlsafe_b64encode(signed).rstrip(b"=").decode()
    for token in tokens:
        for decode in (cursors.decode, cursors.decode_list_position):
            with suppress(*REFUSALS):
                decode(token, KEY, "local")


def export(data: bytes) -> None:
    from segue.hub.sync import export_file

    _, events = export_file.read(data.splitlines(keepends=True))
    for _ in events:
        pass


def archive(data: bytes) -> None:
    from segue.hub.skill_archive import check_files

    with suppress(*REFUSALS):
        check_files({"SKILL.md": data})
    check_files({"skill.zip": data})


def markdown(data: bytes) -> None:
    from segue.render.text.markdown_parser import MAX_HTML_CHARACTERS, parse_markdown_without_lexers

    try:
        page = parse_markdown_without_lexers(data.decode("utf-8", "replace"))
    except ValueError as error:
        assert str(MAX_HTML_CHARACTERS) in str(error)  # the only reason
        return
    assert "<script" not in page.lower() and "<img" not in page.lower(), page


def html(data: bytes) -> None:
    from segue.agents.tools.page_text import read_page

    for charset in ("utf-8", "utf-16", "idna"):
        text, _ = read_page(data, "", charset, "html", 100_000, 20_000)
        assert len(text) <= 20_000


def transcript(data: bytes) -> None:
    from segue.claude import get_session_messages, list_sessions

    path = _claude_home() / "projects" / "-work" / f"{SESSION}.jsonl"
    path.write_bytes(data)
    list_sessions()
    get_session_messages(SESSION)


# The reader of each tool, and a session's path in its home.
TOOLS = {
    "codex": (
        "codex.reader:CodexReader",
        f"sessions/2026/11/16/rollout-2026-11-16T11-49-49-{SESSION}.jsonl",
    ),
    "copilot": ("copilot.reader:CopilotReader", f"session-state/{SESSION}/events.jsonl"),
    "gemini": ("gemini.reader:GeminiReader", "tmp/work/chats/session-2026-11-16T11-55-bf.jsonl"),
    "gemini_json": ("gemini.reader:GeminiReader", "tmp/work/chats/session-2026-11-16T11-55.json"),
    "qwen": ("qwen.reader:QwenReader", f"projects/-work/chats/{SESSION}.jsonl"),
    "kimi": (
        "kimi.reader:KimiReader",
        f"sessions/wd_work_5a424e6f04fa/session_{SESSION}/agents/main/wire.jsonl",
    ),
}


def _reader_target(tool: str) -> Callable[[bytes], None]:
    """Return a target that reads a session of a tool: first a part, then all, then the rest."""

    def read_session(data: bytes) -> None:
        reader, path = _tool_session(tool)
        path.write_bytes(data[: len(data) // 2])
        resume = _read(reader, path)
        path.write_bytes(data)
        _read(reader, path)
        if resume is not None:
            _read(reader, path, resume)

    return read_session


@cache
def _tool_session(tool: str) -> tuple[Any, Path]:
    """Return a reader of an empty home, and the path of a session there."""
    home = Path(tempfile.mkdtemp(prefix="segue-fuzz-"))
    where, name = TOOLS[tool]
    module, reader = where.split(":")
    path = home / name
    path.parent.mkdir(parents=True)
    return getattr(import_module(f"segue.sources.{module}"), reader)(str(home)), path


def _read(reader: Any, path: Path, resume: Any = None) -> Any:
    """Read a session, and return where a later read can continue."""
    from segue.model import codec
    from segue.sources.kit.reader import Resume, Rewritten, Unreadable, collect

    os.utime(path, (0, 0))  # as if no tool were writing it now
    ref = reader.ref(str(path))
    if ref is None:
        return None
    try:
        items, end = collect(reader.read(ref, resume))
    except (Unreadable, Rewritten, OSError):  # a reader raises nothing else
        return None
    seqs = [item.seq for item in items]
    assert seqs == sorted(set(seqs)), "the numbers of events do not rise"
    for item in items:
        codec.encode(item.body)
    return end.resume and codec.Decoder(Resume)(codec.encode(end.resume))


@cache
def _claude_home() -> Path:
    home = Path(tempfile.mkdtemp(prefix="segue-fuzz-"))
    (home / "projects" / "-work").mkdir(parents=True)
    os.environ["CLAUDE_CONFIG_DIR"] = str(home)
    return home


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (event, cursor, export, archive, markdown, html, transcript)
} | {tool: _reader_target(tool) for tool in TOOLS}


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
