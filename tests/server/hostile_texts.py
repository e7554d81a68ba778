"""Short texts that make parsers slow, for tests that limit the time they may take."""

# 20 KB took a minute: each word could begin the return type of a method.
CSHARP = "a\n" * 9_990
FENCES = {language: f"Look:\n```{language}\n{CSHARP}```\n" for language in ("csharp", "c#")}
TABLES = ("|a" * 200 + "\n" + "|-" * 200 + "\n" + "|\n" * 600 + "\n\n") * 28
REFERENCES = "[a]: " + "b" * 30_000 + "\n\n" + "[a]" * 9_000
OPENERS = {
    name: (text * 60_000)[:59_000]
    for name, text in {
        "brackets": "[",
        "images": "![",
        "strikethrough": "~~",
        "emphasis": "*a_",
        "quotes": "> ",
        "items": "- ",
        "entities": "&#1;",
        "autolinks": "<http://a",
        "links": "[a](",
        "backticks": "`a``",
        "addresses": "http://a.",
        "escapes": "\x1b]0;",
    }.items()
}
MARKDOWN = {**FENCES, "tables": TABLES, "references": REFERENCES, **OPENERS}
# Normalizing sorts accents by their class, with the square of their number.
ACCENTS = "e" + "\u0301" * 40_000 + "\u0327" * 40_000
EXPANDING = "\ufdfa" * 80_000
LONG_WORDS = "a " * 120_000
PHRASE = '"' + "a " * 900 + 'b"'
# Lines that are equal so often that comparing them takes seconds.
OLD_LINES, NEW_LINES = "a\n" * 2_800, "a\nb\n" * 99
DEEP_JSON = "[" * 20_000
