"""Parse flag values and standard input: text, files, and structured values in JSON or YAML."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from .errors import ApiFailure
from .operations import FlagType

_BASE64_PREFIX = "@data://"


def parse_flag_value(text: str, flag_type: FlagType) -> Any:
    """Return a flag's value.

    `@path` reads a file, `@data://path` reads one as base64, and `\\@` is a literal @. Raises
    ApiFailure if the file cannot be read or the value cannot be parsed.
    """
    if text.startswith("\\@"):
        text = text[1:]
    elif text.startswith(_BASE64_PREFIX):
        return base64.b64encode(_read_file(text.removeprefix(_BASE64_PREFIX))).decode()
    elif text.startswith("@"):
        data = _read_file(text[1:].removeprefix("file://"))
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise ApiFailure(f"{text[1:]} is not text; use @data:// to send base64") from None
    return parse_structured(text) if flag_type == "structured" else text


def parse_structured(text: str) -> Any:
    """Return a value in JSON or YAML; plain words are a string in YAML."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    import yaml

    try:
        return yaml.load(text, _yaml_loader())
    except yaml.YAMLError as error:
        message = " ".join(str(error).split())
        raise ApiFailure(f"the value is neither JSON nor YAML: {message}") from None


def _yaml_loader() -> Any:
    """Return a safe YAML loader that reads dates as text, since requests contain no dates."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml has no types
        pass

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader


def _read_file(name: str) -> bytes:
    try:
        return Path(name).expanduser().read_bytes()
    except OSError as error:
        raise ApiFailure(f"cannot read {name}: {error.strerror}") from None
