"""The session browser's templates and static files."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from segue.render import templates

if TYPE_CHECKING:
    from jinja2 import Environment

PACKAGE = Path(__file__).parent


@cache
def environment() -> Environment:
    """Return the template environment of the pages."""
    environment = templates.environment(PACKAGE / "templates")
    environment.globals["static"] = f"/static/{static_version()}"
    return environment


def render(name: str, **values: Any) -> str:
    """Render a template as text."""
    html: str = environment().get_template(name).render(**values)
    return html


@cache
def macros(name: str) -> Any:
    """Return a template as a module, whose macros can be called one by one."""
    return environment().get_template(name).module


@cache
def static_files() -> dict[str, Path]:
    """Return the paths of the scripts, styles and icon, by file name."""
    own_files = (PACKAGE / "static").iterdir()
    return {path.name: path for path in sorted([templates.STYLES, *own_files])}


@cache
def static_version() -> str:
    """Return a digest of the static files; browsers may cache files of one version forever."""
    digest = hashlib.sha256()
    for path in static_files().values():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
