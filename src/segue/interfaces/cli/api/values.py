"""What flags and standard input hold: text, numbers, and structured values in JSON or YAML."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from .errors import Failure
from .table import Kind


def read(text: str, kind: Kind) -> Any:
    """A flag's value. `@name` reads a file, `@data://name` one as base64; `\\@` is a plain @."""
    if text.startswith("\\@"):
        text = text[1:]
    elif text.startswith("@data://"):
        return base64.b64encode(_file(text.removeprefix("@data://"))).decode()
    elif text.startswith("@"):
        data = _file(text[1:].removeprefix("file://"))
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise Failure(f"{text[1:]} is not text; @data:// sends it as base64") from None
    return structured(text) if kind in ("value", "values") else text


def structured(text: str) -> Any:
    """JSON, or YAML, of which the first is nearly a part; anything else is a string anyway."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    import yaml

    try:
        value = yaml.load(text, _loader())
    except yaml.YAMLError as error:
        raise Failure(f"this is neither JSON nor YAML: {' '.join(str(error).split())}") from None
    return value


def _loader() -> Any:
    """YAML without dates: a request has none, and a text that looks like one is a text."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # it brings no types
        pass

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in found if not tag.endswith(":timestamp")]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader


def _file(name: str) -> bytes:
    try:
        return Path(name).expanduser().read_bytes()
    except OSError as error:
        raise Failure(f"cannot read {name}: {error.strerror}") from None
