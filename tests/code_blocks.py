"""Extract the Python programs of the README and the documentation.

A block that begins with ```python runs as it stands. The blocks of a page that begin with ```py
need a server, a model or another package, and may use names of the earlier ones: together they are
one program, which is only type-checked. If the first line of such a block is a comment with a file
name, the block is that file. "It prints:" and a block of text after a program are its whole output.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(python|py)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_OUTPUT = re.compile(
    r"^```python\n((?:(?!```).*\n)*)```\n+It prints:\n+```text\n((?:(?!```).*\n)*)```$",
    re.MULTILINE,
)
_FILE_NAME = re.compile(r"# (\w[\w/]*\.py)\n")


def runnable_programs() -> dict[str, str]:
    """Return the programs that run as they stand, by page and number."""
    return {
        f"{_module_name(page)}_{number}": text
        for page in PAGES
        for number, (kind, text) in enumerate(_BLOCK.findall(page.read_text()), 1)
        if kind == "python"
    }


def outputs() -> dict[str, str]:
    """Return what programs print, by their text."""
    return {
        program: output for page in PAGES for program, output in _OUTPUT.findall(page.read_text())
    }


def write_programs(directory: Path) -> list[Path]:
    """Write all programs to files of a directory, and return the files."""
    texts = {f"{name}.py": text for name, text in runnable_programs().items()}
    for page in PAGES:
        for kind, text in _BLOCK.findall(page.read_text()):
            if kind == "py":
                named = _FILE_NAME.match(text)
                name = named[1] if named else f"{_module_name(page)}.py"
                texts[name] = "\n\n".join([texts[name], text] if name in texts else [text])
    for name, text in texts.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return [directory / name for name in texts]


def _module_name(page: Path) -> str:
    return re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")).lower())
