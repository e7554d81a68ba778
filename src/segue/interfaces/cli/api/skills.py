"""Skills: their actions, and what is uploaded of a directory."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import Failure
from .table import LIMIT, PAGE, Action, Flag, in_body, in_path

_SKILL = in_path("skill-id", "skill")
_VERSION = Flag("version", "Its number, its id, or latest; it may stand without.", place="path")
_FILE = in_body(
    "file",
    "The skill's directory, a zip of it, or one of its files; repeat it for more of these.",
    "files",
)
_LEFT_OUT = frozenset({"__pycache__"})  # and what begins with a dot

SKILLS = (
    Action(
        "list",
        "GET",
        "/v1/skills",
        "List skills, the newest first.",
        "segue skills list",
        (LIMIT, PAGE, Flag("source", "Only skills that come from there: custom.")),
        "pages",
    ),
    Action(
        "retrieve",
        "GET",
        "/v1/skills/{skill_id}",
        "Show a skill.",
        "segue skills retrieve skill_01…",
        (_SKILL,),
    ),
    Action(
        "create",
        "POST",
        "/v1/skills",
        "Upload a skill: a directory with a SKILL.md in it.",
        "segue skills create --file ./reviewing --display-name 'How we review'",
        (_FILE, in_body("display-name", "What people are shown.  [default: its name]")),
    ),
    Action(
        "delete",
        "DELETE",
        "/v1/skills/{skill_id}",
        "Delete a skill for good, with all its versions.",
        "segue skills delete skill_01…",
        (_SKILL,),
    ),
)

SKILL_VERSIONS = (
    Action(
        "list",
        "GET",
        "/v1/skills/{skill_id}/versions",
        "List a skill's versions, the newest first.",
        "segue skills versions list skill_01…",
        (_SKILL, LIMIT, PAGE),
        "pages",
    ),
    Action(
        "retrieve",
        "GET",
        "/v1/skills/{skill_id}/versions/{version}",
        "Show a version.",
        "segue skills versions retrieve skill_01… 2",
        (_SKILL, _VERSION),
    ),
    Action(
        "create",
        "POST",
        "/v1/skills/{skill_id}/versions",
        "Upload the next version of a skill.",
        "segue skills versions create skill_01… --file ./reviewing",
        (_SKILL, _FILE),
    ),
    Action(
        "delete",
        "DELETE",
        "/v1/skills/{skill_id}/versions/{version}",
        "Delete a version for good; the last one goes with its skill only.",
        "segue skills versions delete skill_01… 1",
        (_SKILL, _VERSION),
    ),
    Action(
        "download",
        "GET",
        "/v1/skills/{skill_id}/versions/{version}/content",
        "Write a version's files, as a zip.",
        "segue skills versions download skill_01… latest -o reviewing.zip",
        (_SKILL, _VERSION),
        "file",
    ),
)


def uploads(given: str) -> list[tuple[str, bytes]]:
    """Files by the paths that they have in a skill: all below a directory, or the one that it is.

    A single file is taken to be in the directory that it was named by, or is in.
    """
    path = Path(given.removeprefix("@")).expanduser()
    try:
        if path.is_dir():
            top = path.resolve()
            if not (names := _below(top)):
                raise Failure(f"there is no SKILL.md in {given}: it has no files to upload")
            return [(f"{top.name}/{name}", (top / name).read_bytes()) for name in names]
        data = path.read_bytes()
    except OSError as error:
        raise Failure(f"cannot read {error.filename}: {error.strerror}") from None
    if path.suffix.lower() == ".zip":
        return [(path.name, data)]
    named = not path.is_absolute() and ".." not in path.parts and len(path.parts) > 1
    inside = path.as_posix() if named else f"{path.resolve().parent.name}/{path.name}"
    return [(inside, data)]


def _below(top: Path) -> list[str]:
    """The files below a directory, but for hidden ones and what Python compiles."""
    found = []
    for place, directories, files in os.walk(top):
        directories[:] = [name for name in directories if _is_part(name)]
        for name in (*directories, *filter(_is_part, files)):
            _check(Path(place, name), top)
        beside = Path(place).relative_to(top)
        found += [(beside / name).as_posix() for name in files if _is_part(name)]
    return sorted(found)


def _check(path: Path, top: Path) -> None:
    """Failure for what would bring in what is elsewhere, or has no end."""
    if path.is_symlink():
        target = path.resolve()
        if not target.is_relative_to(top):
            raise Failure(f"{path} is a link out of the skill's directory, to {target}")
        if target.is_dir():
            raise Failure(f"{path} is a link to a directory; links to files alone are uploaded")
    if path.exists() and not path.is_file() and not path.is_dir():
        raise Failure(f"{path} is neither a file nor a directory")


def _is_part(name: str) -> bool:
    return not name.startswith(".") and name not in _LEFT_OUT
