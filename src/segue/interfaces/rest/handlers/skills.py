"""Skills: upload them and their versions, list, download and delete them."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UnsetType, to_builtins
from starlette.datastructures import UploadFile
from starlette.responses import Response, StreamingResponse

from segue.hub.resources.record_ids import format_record_id, parent_id
from segue.hub.resources.skills import (
    KIND,
    LATEST,
    SkillBody,
    SkillVersionBody,
    version_id,
    versions_kind,
)
from segue.hub.skill_archive import MAX_BYTES, MAX_FILES
from segue.interfaces.rest import records
from segue.interfaces.rest.multipart import read_form
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas import requests
from segue.interfaces.rest.schemas.requests import Deleted, Out, Page
from segue.model import clock, ids
from segue.model.errors import InvalidInput
from segue.model.record import Record

# Clients with this beta header expect an older format, in which the source is a string.
OLDER_BETA = "skills-2025-10-02"
FILTERS = ("limit", "page", "source")
Source = Literal["custom", "anthropic", "anthropic_example", "plugin"]


class SkillSource(Out, frozen=True):
    type: Source


class Skill(Out, frozen=True, tag_field="type", tag="skill"):
    """A skill, with the fields of both formats that clients know."""

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
    """The skill and its versions were deleted. Agents with it cannot start sessions any more."""


class SkillVersionDeleted(Deleted, frozen=True, tag_field="type", tag="skill_version_deleted"):
    """The version was deleted."""


def _is_older_client(request: RestRequest) -> bool:
    return OLDER_BETA in request.http.headers.get("anthropic-beta", "")


def show(record: Record, *, older_client: bool) -> Skill:
    """Return a skill as the API shows it."""
    body = SkillBody.of(record)
    return Skill(
        id=format_record_id(record),
        display_name=body.label,
        display_title=body.label,
        latest_version_id=ids.format_id("skver", version_id(record.id, body.latest)),
        latest_version=str(body.latest),
        source="custom" if older_client else SkillSource(type="custom"),
        created_at=clock.to_rfc3339(record.created_at),
        updated_at=clock.to_rfc3339(record.updated_at),
    )


def show_version(record: Record) -> SkillVersion:
    """Return a version as the API shows it."""
    body = SkillVersionBody.of(record)
    return SkillVersion(
        id=format_record_id(record),
        skill_id=ids.format_id("skill", parent_id(record)),
        version=str(body.number),
        name=body.name,
        description=body.description,
        directory=body.directory,
        created_at=clock.to_rfc3339(record.created_at),
    )


async def create(request: RestRequest) -> Skill:
    files, label = await _read_upload(request, ("display_name", "display_title"))
    skill = await request.hub.skills.create(request.principal, files, label)
    return show(skill, older_client=_is_older_client(request))


async def create_version(request: RestRequest) -> SkillVersion:
    skill = await _find(request)
    files, _ = await _read_upload(request, ())
    return show_version(await request.hub.skills.add_version(request.principal, skill, files))


async def _read_upload(
    request: RestRequest, label_fields: tuple[str, ...]
) -> tuple[dict[str, bytes], str | None]:
    """Return the files of a form by path, and the value of a label field."""
    async with read_form(request.http, MAX_BYTES, max_files=MAX_FILES) as form:
        files: dict[str, bytes] = {}
        label: str | None = None
        for name, value in form.multi_items():
            if name in ("files", "files[]") and isinstance(value, UploadFile):
                path = (value.filename or "").removeprefix("./")
                if path in files:
                    raise InvalidInput(f"files: {path!r} is in the form twice")
                files[path] = await value.read()
            elif name in label_fields and isinstance(value, str):
                label = _label(name, value)
            else:
                raise InvalidInput(
                    f"{name}: unknown field, or a file in place of text or text in place of a file"
                )
    if not files:
        raise InvalidInput("files[]: field is required, as files in multipart/form-data")
    return files, label


def _label(name: str, value: str) -> str:
    if len(value) > 255 or any(ord(char) < 32 for char in value):
        raise InvalidInput(f"{name}: at most 255 characters, in one line")
    return value.strip()


async def retrieve(request: RestRequest) -> Skill:
    return show(await _find(request), older_client=_is_older_client(request))


async def list_(request: RestRequest) -> Page[Skill]:
    older_client = _is_older_client(request)
    source = request.params.text("source")

    def matches(_: Record) -> bool:
        return source in (None, "custom")  # segue has no skills of other sources

    def render(record: Record) -> Skill:
        return show(record, older_client=older_client)

    return await records.page(request, KIND, render, max_limit=1000, keep=matches)


async def delete(request: RestRequest) -> SkillDeleted:
    skill = await _find(request)
    await request.hub.skills.delete(skill)
    return SkillDeleted(id=format_record_id(skill))


async def retrieve_version(request: RestRequest) -> SkillVersion:
    return show_version((await _version(request))[1])


async def list_versions(request: RestRequest) -> Page[SkillVersion]:
    """List the versions of a skill, newest first."""
    kind = versions_kind((await _find(request)).id)
    return await records.page(request, kind, show_version, max_limit=1000)


async def delete_version(request: RestRequest) -> SkillVersionDeleted:
    skill, version = await _version(request)
    await request.hub.skills.delete_version(skill, version)
    return SkillVersionDeleted(id=format_record_id(version))


async def content(request: RestRequest) -> Response:
    _, version = await _version(request)
    body = SkillVersionBody.of(version)
    headers = {
        "content-length": str(body.size),
        "content-disposition": f'attachment; filename="{body.name}.zip"',
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
    """Return the skills of an agent, each with its version, by default the latest one.

    Only Anthropic has the files of its skills. Sessions report that they do without them.
    """
    if isinstance(skills, UnsetType):
        return skills
    pinned = []
    for skill in skills or ():
        if isinstance(skill, requests.AnthropicSkill):
            version = skill.version or LATEST
        else:
            version = await request.hub.skills.pin(request.workspace, skill.skill_id, skill.version)
        pinned.append({**to_builtins(skill), "version": version})
    return pinned
