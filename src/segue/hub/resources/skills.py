"""Skills: directories with a SKILL.md that agents use, each version stored as an archive.

A version never changes. It is identified by its id or by its number. Numbers count from one and
are not used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from segue.hub.access.quotas import Quotas
from segue.hub.skill_archive import SkillInfo, check_upload, unpack_archive
from segue.model import clock, ids
from segue.model.errors import Conflict, InvalidInput, NotFound, Overloaded
from segue.model.principal import Principal
from segue.model.record import Record, RecordBody
from segue.store.base import Store
from segue.untrusted import PARSERS, ParsersBusy, ParsingFailed

from .files import ARCHIVE, Files
from .record_ids import format_record_id
from .records import MAX_ATTEMPTS, Records, new

KIND = "skill"
CHECK_CPU_SECONDS = 5.0  # to read an upload and pack it
LATEST = "latest"


class SkillBody(RecordBody, frozen=True):
    """The body of a skill's record.

    `label` is the name that people see, `latest` the number of the newest version, and `count` the
    number of versions so far, deleted ones included.
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


def versions_kind(skill: str) -> str:
    """Return the kind of the records of a skill's versions."""
    return f"skill_version:{skill}"


class Skills:
    """Create, read and delete skills and their versions."""

    def __init__(self, store: Store, records: Records, quotas: Quotas) -> None:
        self._records = records
        self._archives = Files(store, records, quotas, ARCHIVE)

    async def create(
        self, principal: Principal, files: Mapping[str, bytes], label: str | None
    ) -> Record:
        """Create a skill with its first version. `label` is its name for people."""
        workspace = principal.workspace
        id = ids.new_id()
        version = await self._version(principal, id, 1, files)
        name = SkillVersionBody.of(version).name
        body = SkillBody(name=name, label=label or name, latest=1, count=1)
        skill = new(workspace, KIND, body.encode(), id)
        await self._put(version, skill, version)
        return skill

    async def add_version(
        self, principal: Principal, skill: Record, files: Mapping[str, bytes]
    ) -> Record:
        """Add a version to a skill. Raises InvalidInput if it has another name."""
        for _ in range(MAX_ATTEMPTS):
            body = SkillBody.of(skill)
            number = body.count + 1
            version = await self._version(principal, skill.id, number, files)
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
        raise Conflict("other requests are changing the skill; try again")

    async def _put(self, version: Record, *records: Record) -> None:
        try:
            await self._records.put(*records)
        except BaseException:
            await self._drop(version)
            raise

    async def _version(
        self, principal: Principal, skill: str, number: int, files: Mapping[str, bytes]
    ) -> Record:
        """Store the archive of a version and return the version, which is not stored yet."""
        info, packed = await _check_and_pack(files)
        archive = await self._archives.store(principal, _one_part(packed), {})
        body = SkillVersionBody(
            name=info.name,
            description=info.description,
            directory=info.directory,
            number=number,
            archive=archive.id,
            size=len(packed),
        )
        kind = versions_kind(skill)
        return new(principal.workspace, kind, body.encode(), version_id(skill, number))

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
        raise Conflict("other requests are changing the skill; try again")

    def versions(self, skill: Record) -> AsyncIterator[Record]:
        """Yield the versions of a skill."""
        return self._records.all(skill.workspace, versions_kind(skill.id))

    async def delete(self, skill: Record) -> None:
        """Delete a skill and its versions."""
        await self._records.delete(skill)
        async for version in self.versions(skill):
            await self._records.delete(version)
            await self._drop(version)


async def _check_and_pack(files: Mapping[str, bytes]) -> tuple[SkillInfo, bytes]:
    """Return what an upload says about a skill, and its archive.

    A child process reads the upload: a small archive can unpack to gigabytes. Raises InvalidInput
    if the upload cannot be read, and Overloaded if too many others wait.
    """
    try:
        problem, info, packed = await PARSERS.run(
            check_upload, dict(files), cpu_seconds=CHECK_CPU_SECONDS
        )
    except ParsersBusy as error:
        raise Overloaded(f"files: {error}") from None
    except ParsingFailed as error:
        raise InvalidInput(f"files: they cannot be read: {error}") from None
    if problem:
        raise InvalidInput(problem)
    return SkillInfo(*info), packed


def _next_version(skill: Record, body: SkillBody) -> Record:
    return replace(skill, body=body.encode(), version=skill.version + 1, updated_at=clock.now())


def version_id(skill: str, number: int) -> str:
    """Return the id that a version of a skill has, even if it does not exist."""
    return ids.derived_id("skill_version", skill, str(number))


async def _one_part(data: bytes) -> AsyncIterator[bytes]:
    yield data
