"""Skills: uploaded with their files, version by version, for agents to name."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UnsetType
from starlette.datastructures import UploadFile
from starlette.responses import Response, StreamingResponse

from segue.hub.resources.record_ids import format_record_id
from segue.hub.resources.skills import KIND, LATEST, MAX_BYTES, MAX_FILES, version_id, versions_kind
from segue.interfaces.rest import records
from segue.interfaces.rest.multipart import read_form
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas import requests
from segue.interfaces.rest.schemas.requests import Deleted, Out, Page
from segue.model import clock, ids
from segue.model.errors import InvalidInput
from segue.model.record import Record

# Clients that send this know another shape: the source as a word, and versions by their numbers.
FORMER = "skills-2025-10-02"
FILTERS = ("limit", "page", "source")
Source = Literal["custom", "anthropic", "anthropic_example", "plugin"]


class SkillSource(Out, frozen=True):
    type: Source


class Skill(Out, frozen=True, tag_field="type", tag="skill"):
    """A skill, in both of the shapes that clients know."""

    id: str
    display_name: str
    display_title: str
    latest_version_id: str
    latest_version: str
    source: SkillSource | Source
    created_at: str
    updated_at: str


class SkillVersion(Out, frozen=True, tag_field="type", tag="skill_version"):
    id: str
    skill_id: str
    version: str
    name: str
    description: str
    directory: str
    created_at: str


class SkillDeleted(Deleted, frozen=True, tag_field="type", tag="skill_deleted"):
    """It is gone, with all its versions. Agents that name it make no more sessions."""


class SkillVersionDeleted(Deleted, frozen=True, tag_field="type", tag="skill_version_deleted"):
    """It is gone."""


def _former(request: RestRequest) -> bool:
    return FORMER in request.http.headers.get("anthropic-beta", "")


def show(record: Record, former: bool) -> Skill:
    body = record.body
    return Skill(
        id=format_record_id(record),
        display_name=body["label"],
        display_title=body["label"],
        latest_version_id=ids.format_id("skver", version_id(record.id, body["latest"])),
        latest_version=str(body["latest"]),
        source="custom" if former else SkillSource(type="custom"),
        created_at=clock.to_rfc3339(record.created_at),
        updated_at=clock.to_rfc3339(record.updated_at),
    )


def show_version(record: Record) -> SkillVersion:
    return SkillVersion(
        id=format_record_id(record),
        skill_id=ids.format_id("skill", record.kind.partition(":")[2]),
        version=str(record.body["number"]),
        name=record.body["name"],
        description=record.body["description"],
        directory=record.body["directory"],
        created_at=clock.to_rfc3339(record.created_at),
    )


async def create(request: RestRequest) -> Skill:
    files, label = await _uploaded(request, ("display_name", "display_title"))
    return show(await request.hub.skills.create(request.workspace, files, label), _former(request))


async def create_version(request: RestRequest) -> SkillVersion:
    skill = await _find(request)
    files, _ = await _uploaded(request, ())
    return show_version(await request.hub.skills.add_version(skill, files))


async def _uploaded(
    request: RestRequest, labels: tuple[str, ...]
) -> tuple[dict[str, bytes], str | None]:
    """The files of a form by their paths, and the label that is given with them."""
    async with read_form(request.http, MAX_BYTES, max_files=MAX_FILES) as form:
        files: dict[str, bytes] = {}
        label: str | None = None
        for name, value in form.multi_items():
            if name in ("files", "files[]") and isinstance(value, UploadFile):
                path = (value.filename or "").removeprefix("./")
                if path in files:
                    raise InvalidInput(f"files: {path!r} comes twice")
                files[path] = await value.read()
            elif name in labels and isinstance(value, str):
                label = _label(name, value)
            else:
                raise InvalidInput(f"{name}: unknown field, or not of the kind that it must be")
    if not files:
        raise InvalidInput("files[]: field is required, as files in multipart/form-data")
    return files, label


def _label(name: str, value: str) -> str:
    if len(value) > 255 or any(ord(char) < 32 for char in value):
        raise InvalidInput(f"{name}: at most 255 characters, in one line")
    return value.strip()


async def retrieve(request: RestRequest) -> Skill:
    return show(await _find(request), _former(request))


async def list_(request: RestRequest) -> Page[Skill]:
    former = _former(request)
    source = request.params.text("source")

    def keep(_: Record) -> bool:
        return source in (None, "custom")  # the others' are nowhere here

    return await records.page(
        request, KIND, lambda record: show(record, former), max_limit=1000, keep=keep
    )


async def delete(request: RestRequest) -> SkillDeleted:
    skill = await _find(request)
    await request.hub.skills.delete(skill)
    return SkillDeleted(id=format_record_id(skill))


async def retrieve_version(request: RestRequest) -> SkillVersion:
    return show_version((await _version(request))[1])


async def list_versions(request: RestRequest) -> Page[SkillVersion]:
    """Newest first."""
    kind = versions_kind((await _find(request)).id)
    return await records.page(request, kind, show_version, max_limit=1000)


async def delete_version(request: RestRequest) -> SkillVersionDeleted:
    skill, version = await _version(request)
    await request.hub.skills.delete_version(skill, version)
    return SkillVersionDeleted(id=format_record_id(version))


async def content(request: RestRequest) -> Response:
    _, version = await _version(request)
    headers = {
        "content-length": str(version.body["size"]),
        "content-disposition": f'attachment; filename="{version.body["name"]}.zip"',
        "x-content-type-options": "nosniff",
    }
    archive = request.hub.skills.read(version)
    return StreamingResponse(archive, headers=headers, media_type="application/zip")


async def _find(request: RestRequest) -> Record:
    return await records.find(request, KIND, request.path_params["skill_id"])


async def _version(request: RestRequest) -> tuple[Record, Record]:
    skill = await _find(request)
    return skill, await request.hub.skills.version_of(skill, request.path_params["version"])


async def pin(
    request: RestRequest, skills: requests.Skills | UnsetType | None
) -> list[dict[str, Any]] | UnsetType:
    """Return the skills of an agent, each pinned to the version that it names or has now."""
    if isinstance(skills, UnsetType):
        return skills
    pinned = []
    for skill in skills or ():
        version = skill.version or LATEST
        if isinstance(skill, requests.CustomSkill):
            record = await request.hub.skills.resolve_version(
                request.workspace, skill.skill_id, version, field="skills"
            )
            version = str(record.body["number"]) if version == LATEST else version
        kind = "custom" if isinstance(skill, requests.CustomSkill) else "anthropic"
        pinned.append({"type": kind, "skill_id": skill.skill_id, "version": version})
    return pinned
