"""Skills: directories with a SKILL.md that agents use, each version stored as an archive.

A version never changes. It is identified by its id or by its number. Numbers count from one and
are not used again.
"""

from __future__ import annotations

import asyncio
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from segue.model import clock, ids
from segue.model.errors import Conflict, InvalidInput, NotFound
from segue.model.record import Record, RecordBody
from segue.store.base import Store

from .files import ARCHIVE, Files
from .record_ids import format_record_id
from .records import MAX_ATTEMPTS, Records, new

KIND = "skill"
MAIN = "SKILL.md"
MAX_BYTES = 30 * 1024 * 1024
MAX_FILES = 1000
LATEST = "latest"
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)
_HEADER = re.compile(r"---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(\r?\n|\Z)", re.DOTALL)
# Raised when an archive is damaged or uses an unsupported compression.
_ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,
    RuntimeError,
    EOFError,
    OSError,
    ValueError,
)
_PATH_PART = re.compile(r"[^/\\\x00-\x1f\x7f]{1,255}")


class SkillBody(RecordBody, frozen=True):
    """The body of a skill's record.

    `label` is its name for people, `latest` the number of its newest version, and `count` the
    number of versions that it ever had.
    """

    name: str
    label: str
    latest: int
    count: int


class SkillVersionBody(RecordBody, frozen=True):
    """The body of a version's record. `archive` is the id of the file with its files."""

    name: str
    description: str
    directory: str
    number: int
    archive: str
    size: int


class SkillInfo(NamedTuple):
    """What the files of a skill say about it."""

    name: str
    description: str
    directory: str


def versions_kind(skill: str) -> str:
    """Return the kind of the records of a skill's versions."""
    return f"skill_version:{skill}"


class Skills:
    """Create, read and delete skills and their versions."""

    def __init__(self, store: Store, records: Records) -> None:
        self._records = records
        self._archives = Files(store, records, ARCHIVE)

    async def create(self, workspace: str, files: Mapping[str, bytes], label: str | None) -> Record:
        """Create a skill with its first version. `label` is its name for people."""
        id = ids.new_id()
        version = await self._version(workspace, id, 1, files)
        name = SkillVersionBody.of(version).name
        body = SkillBody(name=name, label=label or name, latest=1, count=1)
        skill = new(workspace, KIND, body.encode(), id)
        await self._put(version, skill, version)
        return skill

    async def add_version(self, skill: Record, files: Mapping[str, bytes]) -> Record:
        """Add a version to a skill. Raises InvalidInput if it has another name."""
        for _ in range(MAX_ATTEMPTS):
            body = SkillBody.of(skill)
            number = body.count + 1
            version = await self._version(skill.workspace, skill.id, number, files)
            if SkillVersionBody.of(version).name != body.name:
                await self._drop(version)
                raise InvalidInput(
                    f"files: the skill's name is {body.name!r} and cannot be changed"
                )
            body = replace(body, latest=number, count=number)
            try:
                await self._put(version, _next_version(skill, body), version)
                return version
            except Conflict:  # another version was added concurrently
                skill = await self._records.get(skill.workspace, KIND, skill.id)
        raise Conflict("the skill is being changed by others")

    async def _put(self, version: Record, *records: Record) -> None:
        try:
            await self._records.put(*records)
        except BaseException:
            await self._drop(version)
            raise

    async def _version(
        self, workspace: str, skill: str, number: int, files: Mapping[str, bytes]
    ) -> Record:
        """Store the archive of a version and return the version, which is not stored yet."""
        info, packed = await asyncio.to_thread(_check_and_pack, files)
        archive = await self._archives.store(workspace, _one_part(packed), {})
        body = SkillVersionBody(
            name=info.name,
            description=info.description,
            directory=info.directory,
            number=number,
            archive=archive.id,
            size=len(packed),
        )
        return new(workspace, versions_kind(skill), body.encode(), version_id(skill, number))

    async def _drop(self, version: Record) -> None:
        """Delete the archive of a version."""
        await self._archives.delete(await self._archive(version))

    async def _archive(self, version: Record) -> Record:
        id = SkillVersionBody.of(version).archive
        return await self._records.get(version.workspace, ARCHIVE, id)

    async def version(self, skill: Record, name: str | None = None) -> Record:
        """Return a version by its number or id, by default the newest. Raises NotFound."""
        id: str | None
        if name is None or name == LATEST:
            id = version_id(skill.id, SkillBody.of(skill).latest)
        elif name.isascii() and name.isdigit() and len(name) < 10:
            id = version_id(skill.id, int(name))
        else:
            id = ids.parse(name, "skver")
        try:
            return await self._records.get(skill.workspace, versions_kind(skill.id), id or "")
        except NotFound:
            raise NotFound(f"version {name} of the skill not found") from None

    async def resolve_version(
        self, workspace: str, skill_id: str, version: str | None, *, field: str
    ) -> Record:
        """Return the version of a skill that a request names in `field`. Raises NotFound."""
        skill = await self._records.resolve(workspace, KIND, skill_id, field=field)
        return await self.version_of(skill, version)

    async def version_of(self, skill: Record, version: str | None) -> Record:
        """Return a version of a skill by number or id. Raises NotFound that names the skill."""
        try:
            return await self.version(skill, version)
        except NotFound:
            name = format_record_id(skill)
            raise NotFound(f"version {version} of {name} not found", missing="skill") from None

    async def pin(self, workspace: str, skill: str, version: str | None) -> str:
        """Return the number of a skill's version, or of its latest version for None.

        Raises NotFound or InvalidInput for `skills` if the version does not exist.
        """
        name = version or LATEST
        record = await self.resolve_version(workspace, skill, name, field="skills")
        return str(SkillVersionBody.of(record).number) if name == LATEST else name

    async def check_existing(self, workspace: str, skills: Iterable[Mapping[str, Any]]) -> None:
        """Raise NotFound if a skill of an agent was deleted."""
        for skill in skills:
            if skill["type"] == "custom":
                await self.resolve_version(
                    workspace, skill["skill_id"], skill["version"], field="agent.skills"
                )

    async def read(self, version: Record) -> AsyncIterator[bytes]:
        """Yield the parts of a version's archive."""
        async for part in self._archives.read(await self._archive(version)):
            yield part

    async def files(self, version: Record) -> dict[str, bytes]:
        """Return the files of a version by their paths in the skill's directory."""
        data = b"".join([part async for part in self.read(version)])
        files = await asyncio.to_thread(unpack_archive, data)
        directory = SkillVersionBody.of(version).name + "/"
        return {path.removeprefix(directory): content for path, content in files.items()}

    async def delete_version(self, skill: Record, version: Record) -> None:
        """Delete a version. Raises InvalidInput if it is the only one."""
        number = SkillVersionBody.of(version).number
        for _ in range(MAX_ATTEMPTS):
            numbers = {SkillVersionBody.of(row).number async for row in self.versions(skill)}
            if not numbers - {number}:
                raise InvalidInput("it is the skill's only version; delete the skill instead")
            body = replace(SkillBody.of(skill), latest=max(numbers - {number}))
            try:
                await self._records.put(_next_version(skill, body), drop=[version])
                await self._drop(version)
                return
            except Conflict:
                skill = await self._records.get(skill.workspace, KIND, skill.id)
                version = await self.version(skill, str(number))
        raise Conflict("the skill is being changed by others")

    def versions(self, skill: Record) -> AsyncIterator[Record]:
        """Yield the versions of a skill."""
        return self._records.all(skill.workspace, versions_kind(skill.id))

    async def delete(self, skill: Record) -> None:
        """Delete a skill and its versions."""
        await self._records.delete(skill)
        async for version in self.versions(skill):
            await self._records.delete(version)
            await self._drop(version)


def _check_and_pack(files: Mapping[str, bytes]) -> tuple[SkillInfo, bytes]:
    info, content = check_files(files)
    return info, pack_archive(info.name, content)


def _next_version(skill: Record, body: SkillBody) -> Record:
    return replace(skill, body=body.encode(), version=skill.version + 1, updated_at=clock.now())


def version_id(skill: str, number: int) -> str:
    """Return the id that a version of a skill has, even if it does not exist."""
    return ids.derived_id("skill_version", skill, str(number))


async def _one_part(data: bytes) -> AsyncIterator[bytes]:
    yield data


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
        match = _HEADER.match(main.decode("utf-8-sig"))
        header = yaml.safe_load(match[1]) if match else None
    except (UnicodeError, ValueError, RecursionError, yaml.YAMLError):
        raise InvalidInput(f"{MAIN}: its header cannot be read as YAML in UTF-8") from None
    if not isinstance(header, dict):
        raise InvalidInput(f"{MAIN}: must begin with a header between two lines of ---")
    fields = {key: header[key] for key in ("name", "description") if header.get(key) is not None}
    if not all(isinstance(value, str) for value in fields.values()):
        raise InvalidInput(f"{MAIN}: name and description must be text")
    return {key: value.strip() for key, value in fields.items()}


def unpack_archive(data: bytes) -> dict[str, bytes]:
    """Return the files of an uploaded archive. Raises InvalidInput if it cannot be read."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
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
