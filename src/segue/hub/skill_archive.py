"""Check the files of a skill, and pack and unpack its archive."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from segue.model.errors import InvalidInput

MAIN = "SKILL.md"
MAX_BYTES = 30 * 1024 * 1024
MAX_FILES = 1000
MAX_HEADER_CHARACTERS = 16_000
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)
_HEADER = re.compile(r"---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(\r?\n|\Z)", re.DOTALL)
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Raised when an archive is damaged or uses an unsupported compression.
_ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    IndexError,  # an entry without a name
    zlib.error,
    NotImplementedError,
    RuntimeError,
    EOFError,
    OSError,
    ValueError,
)
_PATH_PART = re.compile(r"[^/\\\x00-\x1f\x7f]{1,255}")


class SkillInfo(NamedTuple):
    """What the files of a skill say about it."""

    name: str
    description: str
    directory: str


def check_upload(files: Mapping[str, bytes]) -> tuple[str, tuple[str, str, str], bytes]:
    """Return why files are not a valid skill, or else what they say about it and their archive."""
    try:
        info, content = check_files(files)
    except InvalidInput as error:
        return error.message, ("", "", ""), b""
    return "", (info.name, info.description, info.directory), pack_archive(info.name, content)


def check_files(files: Mapping[str, bytes]) -> tuple[SkillInfo, dict[str, bytes]]:
    """Return what the files say about a skill, and the files by their paths in its directory.

    Raises InvalidInput if the files are not a valid skill.
    """
    if len(files) == 1 and next(iter(files)).lower().endswith(".zip"):
        files = unpack_archive(*files.values())
    if not files:
        raise InvalidInput("files: at least one is needed")
    parts = {path: path.split("/") for path in files}
    for path, names in parts.items():
        if not all(_PATH_PART.fullmatch(name) and name not in (".", "..") for name in names):
            raise InvalidInput(f"files: {path!r} is not a valid path in a skill's directory")
    directories = {names[0] for names in parts.values()}
    if len(directories) != 1 or any(len(names) < 2 for names in parts.values()):
        raise InvalidInput("files: all must be in one directory at the top")
    content = {"/".join(parts[path][1:]): data for path, data in files.items()}
    if MAIN not in content:
        raise InvalidInput(f"files: the directory must have a {MAIN}")
    _check_sizes(content)
    (directory,) = directories
    header = _read_header(content[MAIN])
    name = header.get("name") or directory
    if not _NAME.fullmatch(name) or len(name) > 64:
        raise InvalidInput(f"{MAIN}: name: 1 to 64 small letters, digits and single dashes")
    description = header.get("description", "")
    if not 1 <= len(description) <= 1024:
        raise InvalidInput(f"{MAIN}: description: 1 to 1024 characters")
    return SkillInfo(name, description, directory), content


def _check_sizes(files: Mapping[str, bytes]) -> None:
    """Raise InvalidInput if files are too many, too large or below another file."""
    if len(files) > MAX_FILES or sum(map(len, files.values())) > MAX_BYTES:
        raise InvalidInput(f"files: at most {MAX_FILES}, of {MAX_BYTES} bytes together")
    for path in files:
        parents = path.split("/")[:-1]
        if any("/".join(parents[:depth]) in files for depth in range(1, len(parents) + 1)):
            raise InvalidInput(f"files: {path!r} is below a path that is a file")


def _read_header(main: bytes) -> dict[str, str]:
    """Return the name and description in the YAML header of a SKILL.md."""
    import yaml

    try:
        match = _HEADER.match(main.decode("utf-8-sig")[:MAX_HEADER_CHARACTERS])
        header = yaml.load(match[1], _yaml_loader()) if match else None
    except (UnicodeError, ValueError, RecursionError, yaml.YAMLError):
        raise InvalidInput(
            f"{MAIN}: its header cannot be read as YAML in UTF-8 without aliases"
        ) from None
    if not isinstance(header, dict):
        raise InvalidInput(f"{MAIN}: must begin with a header between two lines of ---")
    fields = {key: header[key] for key in ("name", "description") if header.get(key) is not None}
    if not all(isinstance(value, str) for value in fields.values()):
        raise InvalidInput(f"{MAIN}: name and description must be text")
    return {key: value.strip() for key, value in fields.items()}


@cache
def _yaml_loader() -> Any:
    """Return a loader without aliases, by which a short text can describe billions of values."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml has no types
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("aliases are not supported")
            return super().compose_node(parent, index)

    return Loader


def unpack_archive(data: bytes) -> dict[str, bytes]:
    """Return the files of an uploaded archive. Raises InvalidInput if it cannot be read."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
            if any(entry.compress_type not in _COMPRESSIONS for entry in entries):
                raise InvalidInput("files: the archive must be compressed with deflate, or not")
            if len(entries) > MAX_FILES or sum(entry.file_size for entry in entries) > MAX_BYTES:
                raise InvalidInput(f"files: at most {MAX_FILES}, of {MAX_BYTES} bytes together")
            return {entry.filename: _read_entry(archive, entry) for entry in entries}
    except _ARCHIVE_ERRORS:
        raise InvalidInput("files: the archive cannot be read") from None


def _read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """Return the bytes of an entry, at most as many as its header declares."""
    with archive.open(entry) as file:
        return file.read(entry.file_size + 1)[: entry.file_size]


def pack_archive(name: str, files: Mapping[str, bytes]) -> bytes:
    """Return an archive of files in one directory. Equal files give equal archives."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in sorted(files.items()):
            entry = zipfile.ZipInfo(f"{name}/{path}", (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o755 if data.startswith(b"#!") else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return out.getvalue()
