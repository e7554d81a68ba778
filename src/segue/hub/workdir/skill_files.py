"""Install the skills of an agent in a session's directory."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from segue.agents.tools.path_guard import ToolError
from segue.hub.resources.records import Records
from segue.hub.resources.skills import KIND as SKILL
from segue.hub.resources.skills import Skills, SkillVersionBody
from segue.hub.skill_archive import MAIN
from segue.model import ids
from segue.model.errors import NotFound
from segue.model.record import Record

from .mounted_directory import MountedDirectory
from .state import DirectoryState, StateFile

SKILLS_DIRECTORY = "skills"
_EXECUTABLE_MODE = 0o755


class SkillInstaller:
    """Write skills as files, or return their text where no files may be written."""

    def __init__(self, records: Records, skills: Skills) -> None:
        self._records = records
        self._skills = skills

    async def install(
        self, workspace: str, refs: Sequence[dict[str, Any]], root: Path, state_file: StateFile
    ) -> list[dict[str, Any]]:
        """Write the skills below `root` and return them with name, description and path.

        If something else is at a skill's path, the skill has its text instead. Skills that were
        deleted are left out.
        """
        installed = []
        used_names: set[str] = set()
        for ref in refs:
            if version := await self._version(workspace, ref):
                name = _unused_name(SkillVersionBody.of(version).name, used_names)
                used_names.add(name)
                try:
                    path = await self._install_version(version, name, root, state_file)
                    installed.append(await self._describe(ref, version, path))
                except NotFound:  # deleted in the meantime
                    continue
        return installed

    async def read(self, workspace: str, refs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the skills with name, description and text, without writing files."""
        skills = []
        for ref in refs:
            if version := await self._version(workspace, ref):
                with suppress(NotFound):  # deleted in the meantime
                    skills.append(await self._describe(ref, version, None))
        return skills

    async def _version(self, workspace: str, ref: dict[str, Any]) -> Record | None:
        """Return the version that an agent refers to; None if it was deleted or is not custom."""
        if ref["type"] != "custom":
            return None
        try:
            id = ids.parse(ref["skill_id"], "skill") or ""
            skill = await self._records.get(workspace, SKILL, id)
            return await self._skills.version(skill, ref["version"])
        except NotFound:
            return None

    async def _describe(
        self, ref: dict[str, Any], version: Record, path: str | None
    ) -> dict[str, Any]:
        text = None
        if path is None:
            text = (await self._skills.files(version))[MAIN].decode("utf-8", "replace")
        body = SkillVersionBody.of(version)
        fields = {"name": body.name, "description": body.description}
        return {**ref, **fields, "path": path, "text": text}

    async def _install_version(
        self, version: Record, name: str, root: Path, state_file: StateFile
    ) -> str | None:
        """Write a skill's files unless they are there. Return the path of its main file.

        Returns None if something else is at the path.
        """
        main = root / SKILLS_DIRECTORY / name / MAIN
        current = await state_file.read()
        directory = MountedDirectory(root, f"{SKILLS_DIRECTORY}/{name}")
        if current.skill_versions.get(name) == version.id and await asyncio.to_thread(
            directory.has_file, f"/{MAIN}"
        ):
            return str(main)
        files = await self._skills.files(version)
        old_paths = set(current.skill_files.get(name, ()))

        def begin(state: DirectoryState) -> None:
            state.skill_files[name] = sorted(old_paths | files.keys())
            state.skill_versions.pop(name, None)

        def complete(state: DirectoryState) -> None:
            state.skill_files[name] = sorted(files)
            state.skill_versions[name] = version.id

        await state_file.update(begin)
        try:
            await asyncio.to_thread(_replace_files, directory, files, old_paths - files.keys())
        except ToolError:
            return None
        await state_file.update(complete)
        return str(main)


def _replace_files(
    directory: MountedDirectory, files: dict[str, bytes], removed_paths: Iterable[str]
) -> None:
    for path in removed_paths:
        with suppress(ToolError):  # the agent replaced its directory
            directory.remove(f"/{path}")
    for path, data in files.items():
        mode = _EXECUTABLE_MODE if data.startswith(b"#!") else None
        directory.write(f"/{path}", data, mode=mode)


def _unused_name(name: str, used_names: Collection[str]) -> str:
    """Return the name, with a number if it is used. Two skills may have the same name."""
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([name], numbered) if name not in used_names)
