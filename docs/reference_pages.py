"""Write the reference pages of the documentation from the code.

Commands come from click, REST routes from the OpenAPI document, Python names from docstrings, and
settings from their definitions. `build_site.py` adds the pages to the site.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import click

import segue
from segue.hub.access.config import SETTINGS
from segue.interfaces.cli.command_list import sections
from segue.interfaces.cli.main import segue as root_command
from segue.interfaces.rest import openapi
from segue.interfaces.rest.routes import ROUTES

HELP_WIDTH = 96
MAX_DEFAULT_LENGTH = 40
_GENERATED = "This page is generated from the code of segue {version}.\n"


def pages() -> dict[str, str]:
    """Return the text of each reference page, by its path in the site."""
    return {
        "reference/commands.md": _commands(),
        "reference/rest.md": _rest(),
        "reference/python.md": _python(),
        "reference/settings.md": _settings(),
    }


def _introduction(title: str, text: str) -> list[str]:
    return [f"# {title}\n", text, _GENERATED.format(version=segue.__version__)]


# Commands


def _commands() -> str:
    parts = _introduction(
        "Commands",
        "The help of every command, as `segue COMMAND --help` prints it. The [guide to the command"
        " line](../cli.md) explains names of sessions, formats and exit codes.\n",
    )
    root = click.Context(root_command, info_name="segue")
    for section, names in sections().items():
        parts.append(f"## {section}\n")
        for name in names:
            command = root_command.get_command(root, name)
            assert command is not None, name
            for path, help_text in _helps(command, root, name):
                parts.append(f"### {path}\n")
                parts.append(f"```text\n{help_text.rstrip()}\n```\n")
    return "\n".join(parts)


def _helps(command: click.Command, parent: click.Context, name: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the help of a command and of the commands below it."""
    context = click.Context(command, info_name=name, parent=parent, max_content_width=HELP_WIDTH)
    context.terminal_width = HELP_WIDTH
    yield context.command_path, click.unstyle(command.get_help(context))
    if isinstance(command, click.Group):
        for child_name in command.list_commands(context):
            child = command.get_command(context, child_name)
            assert child is not None, child_name
            yield from _helps(child, context, child_name)


# REST


def _rest() -> str:
    document = json.loads(openapi.encoded_document(ROUTES))
    parts = _introduction(
        "REST routes",
        "Every route of `segue serve`. The [guide to the REST API](../rest.md) explains keys,"
        " streams and differences. The server has the same as an OpenAPI document at"
        " `/openapi.json`.\n",
    )
    by_resource: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            by_resource.setdefault(operation["tags"][0], []).append((method, path, operation))
    for resource, routes in by_resource.items():
        parts.append(f"## {resource.replace('_', ' ').capitalize()}\n")
        parts.append("| route | query | body | response |\n|---|---|---|---|")
        parts += [_route_row(*route) for route in routes]
        parts.append("")
    parts.append("## Types\n")
    for name, schema in sorted(document["components"]["schemas"].items()):
        if rows := list(_field_rows(schema)):
            parts += [f"### {name}\n", "| field | type | required |\n|---|---|---|", *rows, ""]
    return "\n".join(parts)


def _route_row(method: str, path: str, operation: dict[str, Any]) -> str:
    query = ", ".join(
        f"`{parameter['name']}`"
        for parameter in operation["parameters"]
        if parameter["in"] == "query"
    )
    body = _content_type(operation.get("requestBody", {}).get("content", {}))
    response = _content_type(operation["responses"]["200"]["content"])
    return f"| `{method.upper()} {path}` | {query} | {body} | {response} |"


def _content_type(content: dict[str, Any]) -> str:
    for media_type, item in content.items():
        if media_type == "text/event-stream":
            return "a stream of events"
        return _type_name(item.get("schema", {})) if "json" in media_type else f"`{media_type}`"
    return ""


def _field_rows(schema: dict[str, Any]) -> Iterator[str]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        yield f"| `{name}` | {_type_name(field)} | {'yes' if name in required else ''} |"


def _type_name(schema: dict[str, Any]) -> str:
    """Return a short description of a JSON schema, with links to named types."""
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_type_name(item) for item in schema[key]))
    if schema.get("type") == "array":
        return f"list of {_type_name(schema.get('items', {}))}"
    return str(schema.get("type", "any value"))


# Python


def _python() -> str:
    parts = _introduction(
        "Python names",
        "Every name of the package `segue`. The [guide](../python.md) shows how to use them, and"
        " [the functions for Claude Code](../claude.md) those of `segue.claude`.\n",
    )
    functions, classes, others = [], [], []
    for name in segue.__all__:
        value = getattr(segue, name)
        kind = functions if inspect.isroutine(value) else classes
        (kind if inspect.isroutine(value) or inspect.isclass(value) else others).append(name)
    parts.append("## Functions\n")
    for name in functions:
        parts += [f"### segue.{name}\n", *_callable_text(name, getattr(segue, name))]
    parts.append("## Classes\n")
    for name in classes:
        parts += [f"### segue.{name}\n", *_class_text(getattr(segue, name))]
    parts.append("## Other names\n")
    for name in others:
        value = getattr(segue, name)
        if inspect.ismodule(value):
            parts.append(f"- `segue.{name}`: a module. {_first_line(value)}")
        else:
            parts.append(f"- `segue.{name}` = `{_shorten(str(value), 200)}`")
    return "\n".join(parts) + "\n"


def _callable_text(name: str, value: Any) -> list[str]:
    return [f"```text\n{name}{_signature(value)}\n```\n", _docstring(value), ""]


def _class_text(cls: type[Any]) -> list[str]:
    parts = [_docstring(cls), ""]
    fields = getattr(cls, "__struct_fields__", None) or getattr(cls, "_fields", ())
    if fields:
        parts.append("Fields: " + ", ".join(f"`{field}`" for field in fields) + "\n")
    methods = [
        (name, member)
        for name, member in inspect.getmembers(cls)
        if not name.startswith("_")
        and (inspect.isroutine(member) or isinstance(member, property))
        and getattr(member, "__module__", "segue").startswith("segue")
        and inspect.getdoc(member)
    ]
    for name, member in methods:
        signature = "" if isinstance(member, property) else _signature(member)
        parts.append(f"- `{name}{signature}`: {_first_line(member)}")
    return [*parts, ""]


class _Default(NamedTuple):
    """A default value as it is shown in a signature."""

    text: str

    def __repr__(self) -> str:
        return self.text


def _signature(value: Any) -> str:
    """Return the parameters of a function. A default that is long or an object is shown as …."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(…)"
    parameters = []
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.default is not parameter.empty:
            text = repr(parameter.default)
            is_short = len(text) <= MAX_DEFAULT_LENGTH and not text.startswith("<")
            parameter = parameter.replace(default=_Default(text if is_short else "…"))
        parameters.append(parameter)
    return str(signature.replace(parameters=parameters)).replace("'", "")


def _docstring(value: Any) -> str:
    """Return a docstring whose examples are code blocks."""
    lines, is_code = [], False
    for line in (inspect.getdoc(value) or "").splitlines():
        indented = line.startswith("    ")
        if indented and not is_code and (not lines or not lines[-1]):
            lines.append("```text")
            is_code = True
        elif is_code and line and not indented:
            lines += ["```", ""]
            is_code = False
        lines.append(line.removeprefix("    ") if is_code else line.replace("<", "&lt;"))
    return "\n".join([*lines, "```"] if is_code else lines)


def _first_line(value: Any) -> str:
    paragraph = (inspect.getdoc(value) or "").partition("\n\n")[0]
    return " ".join(paragraph.split()).replace("<", "&lt;")


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


# Settings


def _settings() -> str:
    parts = _introduction(
        "Settings",
        "`segue config set NAME VALUE` changes a setting of the workspace, and `segue config list`"
        " shows all of them.\n",
    )
    parts.append("| setting | meaning | values | example |\n|---|---|---|---|")
    for name, setting in SETTINGS.items():
        values = ", ".join(f"`{choice}`" for choice in setting.choices) or {
            str: "text",
            int: "a whole number",
            bool: "`true` or `false`",
        }.get(setting.kind, "")
        example = f"`{setting.example}`"
        parts.append(f"| `{name}` | {setting.description} | {values} | {example} |")
    return "\n".join(parts) + "\n"
