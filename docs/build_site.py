"""Build the documentation as a web site in build/site.

Run it in the test environment: `.venv/test/bin/python docs/build_site.py`. An argument names a
directory other than build/. It collects the pages of docs/, the documents of the repository's root
and the generated reference, and runs Zensical on them. Any warning, such as a link that leads
nowhere, is an error.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import reference_pages

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
# Documents outside docs/ that are pages of the site, by their path in it.
DOCUMENTS = {
    "project/architecture.md": "ARCHITECTURE.md",
    "project/contributing.md": "CONTRIBUTING.md",
    "project/changelog.md": "CHANGELOG.md",
    "project/security-policy.md": "SECURITY.md",
    "project/benchmarks.md": "bench/README.md",
}
_LINK = re.compile(r"(?<=\]\()([^)#\s]+)(#[^)\s]*)?(?=\))")


def collect_pages(target: Path) -> None:
    """Write the sources of all pages to a directory, with links that lead to pages of the site."""
    shutil.rmtree(target, ignore_errors=True)
    pages = {path.relative_to(DOCS).as_posix(): path for path in DOCS.rglob("*.md")}
    pages |= {page: ROOT / document for page, document in DOCUMENTS.items()}
    for page, path in pages.items():
        _write(target / page, _relink(path.read_text(), path, page))
    for page, text in reference_pages.pages().items():
        _write(target / page, text)
    for pattern in ("images/*", "*.json", "*.css"):
        for path in DOCS.glob(pattern):
            copy = target / path.relative_to(DOCS)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


def _relink(text: str, path: Path, page: str) -> str:
    """Return the text with its links to files outside docs/ changed.

    A link to a document that is a page leads to that page. A link to another file of the
    repository becomes the file's path as code, because the site does not contain the file.
    """
    page_of = {ROOT / document: name for name, document in DOCUMENTS.items()}
    depth = page.count("/")

    def replace(match: re.Match[str]) -> str:
        address, anchor = match[1], match[2] or ""
        if "://" in address or address.startswith("mailto:"):
            return match[0]
        file = (path.parent / address).resolve()
        if file == ROOT / "README.md":
            return "../" * depth + "index.md"
        if name := page_of.get(file):
            return "../" * depth + name + anchor
        if file.is_relative_to(DOCS) and not path.is_relative_to(DOCS):
            return "../" * depth + file.relative_to(DOCS).as_posix() + anchor
        return match[0]

    text = _LINK.sub(replace, text)
    return re.sub(
        r"\[`?([^\]`]+)`?\]\((?:\.\./)+(?:src|examples|tests|bench)/[^)]*\)", r"`\1`", text
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def build(target: Path) -> int:
    """Build the site in a directory and return Zensical's exit code."""
    collect_pages(target / "docs")
    # Zensical reads paths relative to its configuration.
    (target / "mkdocs.yml").write_text((DOCS / "mkdocs.yml").read_text())
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    return subprocess.run(command, cwd=target, check=False).returncode


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "build"))
