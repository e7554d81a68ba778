"""The pages' templates, and the files beside them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from segue.render import templates

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent


@cache
def environment() -> Environment:
    made = templates.environment(HERE / "templates")
    made.globals["static"] = f"/static/{version()}"
    return made


def render(name: str, **values: Any) -> str:
    rendered: str = environment().get_template(name).render(**values)
    return rendered


@cache
def macros(name: str) -> Any:
    """A template's macros, to call one by one."""
    return environment().get_template(name).module


@cache
def static() -> dict[str, Path]:
    """The files that a page asks for, by name."""
    return {path.name: path for path in sorted([templates.STYLES, *(HERE / "static").iterdir()])}


@cache
def version() -> str:
    """Another one whenever one of those files is another, so that browsers keep them for good."""
    digest = hashlib.sha256()
    for path in static().values():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
