"""Keep the project's old private vocabulary out of its names, prose and messages."""

import re
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DIRECTORIES = ("src", "tests", "docs", "bench", "examples")
SUFFIXES = {".css", ".html", ".js", ".md", ".mjs", ".py", ".sql"}

WORDS = (
    "told",
    "tells",
    "shelf",
    "shelves",
    "keeper",
    "keepers",
    "sleeper",
    "sleepers",
    "door",
    "doors",
    "room",
    "rooms",
    "wall",
    "walls",
    "brought",
    "spelt",
    "anew",
    "beside",
    "whoever",
    "somebody",
    "nobody",
)
PHRASES = ("go on", "goes on", "caught up", "take in", "comes along")

# Words that must stay, such as those of an operating system: (path, word) and the reason.
EXCEPTIONS = {
    **{
        ("CHANGELOG.md", name): "an old name in a table of renames"
        for name in ("keeper", "rooms", "shelf", "shelves", "take in", "told")
    },
    ("tests/test_plain_words.py", "*"): "the list of the words",
    ("tests/store/old_stores/postgres_5.sql", "*"): "the names in a store of an earlier format",
    ("tests/store/old_stores/sqlite_4.sql", "*"): "the names in a store of an earlier format",
    ("tests/postgres.py", "nobody"): "the system account that runs PostgreSQL for root",
    ("tests/sandbox/conftest.py", "nobody"): "the system account that runs sandboxes for root",
    ("tests/sandbox/harness.py", "nobody"): "the system account that runs sandboxes for root",
}

# Directories that still have such words. This list only shrinks: when the last word is gone from
# a path, remove its line here. A line covers the files of one directory, not its subdirectories.
NOT_YET_CLEAN: tuple[str, ...] = ()


def _pattern(phrase: str) -> re.Pattern[bytes]:
    """Return a pattern for a phrase whose words may be wrapped, quoted or joined by underscores."""
    return re.compile(rb"[\s_\"'#*/`-]*".join(word.encode() for word in phrase.split()))


# Text is searched as bytes: lowering them keeps every offset. A pattern per phrase, each with a
# literal beginning, is twenty times as fast as one pattern with alternatives.
PATTERNS = {phrase: _pattern(phrase) for phrase in WORDS + PHRASES}
ESCAPED_WHITESPACE = re.compile(rb"\\[nrt]")


@cache
def matches_by_path() -> dict[str, list[str]]:
    """Return the words that each file of the project has, as `line: word`. Clean files have []."""
    files = [path for name in DIRECTORIES for path in (ROOT / name).rglob("*") if path.is_file()]
    files += ROOT.glob("*.md")
    files.append(ROOT / "bootstrap.py")
    return {
        path.relative_to(ROOT).as_posix(): _matches(path)
        for path in sorted(files)
        if path.suffix in SUFFIXES and "node_modules" not in path.parts
    }


def _matches(path: Path) -> list[str]:
    """Return where the file, or its path, has a word.

    Python files are searched whole. Identifiers, strings and comments are all that could hold a
    word, and tokenizing every file takes too long.
    """
    name = path.relative_to(ROOT).as_posix()
    # "\n" in a string literal must not hide the word after it.
    text = ESCAPED_WHITESPACE.sub(b"  ", path.read_bytes())
    matches = [f"in its path: {phrase}" for phrase, _ in _find(name.encode())]
    for phrase, start in _find(text):
        if not {(name, phrase), (name, "*")} & EXCEPTIONS.keys():
            line = text.count(b"\n", 0, start) + 1
            matches.append(f"line {line}: {phrase}")
    return matches


def _find(text: bytes) -> list[tuple[str, int]]:
    """Return each phrase that occurs as whole words, with its offset."""
    lowered = text.lower()
    return [
        (phrase, match.start())
        for phrase, pattern in PATTERNS.items()
        for match in pattern.finditer(lowered)
        if _are_whole_words(text, *match.span())
    ]


def _are_whole_words(text: bytes, start: int, end: int) -> bool:
    """Return whether the span begins and ends where a word or a part of a CamelCase name does."""
    before, first, second = (
        text[max(start - 1, 0) : start],
        text[start:end][:1],
        text[start:end][1:2],
    )
    begins = not before.isalpha() or (first.isupper() and (before.islower() or second.islower()))
    return begins and not text[end : end + 1].islower()


def _covers(pattern: str, path: str) -> bool:
    return pattern.count("/") == path.count("/") and fnmatch(path, pattern)


def test_cleaned_files_have_only_plain_words() -> None:
    problems = {
        path: matches
        for path, matches in matches_by_path().items()
        if matches and not any(_covers(pattern, path) for pattern in NOT_YET_CLEAN)
    }
    assert problems == {}, "use the words of the field instead"


def test_paths_that_became_clean_are_no_longer_listed() -> None:
    finished = [
        pattern
        for pattern in NOT_YET_CLEAN
        if not any(
            matches and _covers(pattern, path) for path, matches in matches_by_path().items()
        )
    ]
    assert finished == [], "remove these lines from NOT_YET_CLEAN"


@pytest.mark.parametrize(
    "text", ["told", "was_told", "ToldYou", "HTTPTold", "TOLD", r"a\ntold", "go\n    # on", "GoOn"]
)
def test_words_are_found_in_prose_and_in_names(text: str) -> None:
    assert len(_find(ESCAPED_WHITESPACE.sub(b"  ", text.encode()))) == 1


@pytest.mark.parametrize("text", ["untold", "toldo", "firewall", "mushroom", "besides", "go. On"])
def test_other_words_are_allowed(text: str) -> None:
    assert _find(text.encode()) == []
