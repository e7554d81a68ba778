"""The protocol's own published types: a JSON schema of its messages, and its reducers.

The types are those of the npm package of the protocol's authors, or of a directory that an
environment variable names: the `types` directory of the protocol's repository. Without either,
tests that need them are skipped.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import jsonschema

from tests.clients import toolbox

DIRECTORY_VARIABLE = "SEGUE_AHP_TYPES"
PACKAGE = "@microsoft/agent-host-protocol@1.0.0"
SCHEMA_GENERATOR, BUNDLER = "ts-json-schema-generator@2.4.0", "esbuild@0.28.2"
MESSAGES = "common/messages.ts"  # that has the maps from a method to its types
BUNDLE = ("--bundle", "--platform=node", "--format=esm")
SECONDS = 300
MAPS = ("CommandMap", "ClientNotificationMap", "ServerNotificationMap")
_WIRE = f"""import type {{ {", ".join(MAPS)} }} from 'TYPES/common/messages';
export interface Wire {{ commands: CommandMap; client: ClientNotificationMap; \
server: ServerNotificationMap; }}
"""
_REDUCE = """import { chatReducer, sessionReducer } from 'TYPES/reducers';
import { readFileSync } from 'node:fs';
const { reducer, state, actions } = JSON.parse(readFileSync(0, 'utf8'));
const reduce = reducer === 'chat' ? chatReducer : sessionReducer;
const log = message => { throw new Error(message); };
console.log(JSON.stringify(actions.reduce((before, action) => reduce(before, action, log), state)));
"""


class NotPublished(Exception):
    """The types could not be had; the message says why."""


def types_directory() -> Path:
    """Return the directory of the published types. Raises NotPublished if there is none."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    if named:
        if not (Path(named) / MESSAGES).is_file():
            raise NotPublished(f"{DIRECTORY_VARIABLE}={named} has no {MESSAGES}")
        return Path(named).resolve()
    try:
        package = toolbox.unpacked_package(PACKAGE)
    except toolbox.NotFetched:
        raise NotPublished(
            f"npm could not download {PACKAGE}; name the protocol's types with {DIRECTORY_VARIABLE}"
        ) from None
    for path in sorted(package.rglob(MESSAGES)):
        return path.parent.parent
    raise NotPublished(f"{PACKAGE} has no {MESSAGES}")


class PublishedTypes:
    """Check messages, and change states, as the published types say."""

    def __init__(self, types: Path) -> None:
        self._types = types
        self._directory = tempfile.TemporaryDirectory(prefix="segue-ahp-")
        self._schema = _schema(types)
        self._validators: dict[str, Any] = {}

    def check_command(self, method: str, side: str, value: Any) -> None:
        """Raise ValueError if the params or the result of a request do not fit their type."""
        self._check("CommandMap", method, side, value)

    def check_notification(self, method: str, params: Any, *, of_server: bool) -> None:
        """Raise ValueError if a notification does not fit its type."""
        types = "ServerNotificationMap" if of_server else "ClientNotificationMap"
        self._check(types, method, "params", params)

    @property
    def has_error_parts(self) -> bool:
        """Whether turns have their error as a part. Before version 0.9 it is a field."""
        return "ErrorResponsePart" in self._schema["definitions"]

    def cases(self) -> list[dict[str, Any]]:
        """Return the published cases of the reducers; the npm package has none."""
        directory = self._types / "test-cases" / "reducers"
        return [json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))]

    def reduce(
        self, reducer: str, state: dict[str, Any], actions: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the state of a chat or session after actions, as clients compute it."""
        done = subprocess.run(
            [toolbox.node(), str(self._reducers())],
            input=json.dumps({"reducer": reducer, "state": state, "actions": actions}),
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        if done.returncode:
            raise ValueError(done.stderr)
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    def _reducers(self) -> Path:
        """Return a program that reads a state and actions, and prints the state after them."""
        source, program = (Path(self._directory.name, f"reduce.{type}") for type in ("ts", "mjs"))
        if not program.exists():
            bundler = (
                toolbox.node_packages(BUNDLER) / "node_modules" / "esbuild" / "bin" / "esbuild"
            )
            source.write_text(_REDUCE.replace("TYPES", str(self._types)))
            _run(str(bundler), str(source), *BUNDLE, f"--outfile={program}")
        return program

    def _check(self, types: str, method: str, side: str, value: Any) -> None:
        pointer = f"#/definitions/{types}/properties/{_escaped(method)}/properties/{side}"
        if pointer not in self._validators:
            schema = {"$ref": pointer, "definitions": self._schema["definitions"]}
            self._validators[pointer] = jsonschema.Draft7Validator(schema)
        if not self.has_error_parts:
            value = copy.deepcopy(value)
            without_error_parts(value)  # which clients of these types ignore
        error = jsonschema.exceptions.best_match(self._validators[pointer].iter_errors(value))
        if error is not None:
            place = "/".join(map(str, error.absolute_path))
            raise ValueError(f"{method} {side}: {error.message[:1000]} (at {place})")


def published_types() -> PublishedTypes:
    """Return the published types. Raises NotPublished if they cannot be had."""
    types = _types_or_reason()
    if isinstance(types, str):
        raise NotPublished(types)
    return types


@functools.cache  # so that a package that is not there is looked for once
def _types_or_reason() -> PublishedTypes | str:
    try:
        return PublishedTypes(types_directory())
    except (NotPublished, toolbox.NotFetched) as error:
        return str(error)


def without_error_parts(value: Any) -> None:
    """Remove the parts of a message or state that older versions do not have."""
    if isinstance(value, dict):
        if isinstance(parts := value.get("responseParts"), list):
            value["responseParts"] = [part for part in parts if part.get("kind") != "error"]
        for member in value.values():
            without_error_parts(member)
    elif isinstance(value, list):
        for member in value:
            without_error_parts(member)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _schema(types: Path) -> dict[str, Any]:
    generator = (
        toolbox.node_packages(SCHEMA_GENERATOR) / "node_modules" / "ts-json-schema-generator"
    )
    with tempfile.TemporaryDirectory() as directory:
        wire, config = Path(directory, "wire.ts"), Path(directory, "tsconfig.json")
        wire.write_text(_WIRE.replace("TYPES", str(types)))
        options = {"module": "ESNext", "moduleResolution": "bundler", "strict": True}
        config.write_text(json.dumps({"compilerOptions": options, "files": [str(wire)]}))
        program = str(generator / "bin" / "ts-json-schema-generator.js")
        words = ["--path", str(wire), "--tsconfig", str(config), "--type", "Wire"]
        text = _run(program, *words, "--no-type-check", "--additional-properties")
    schema: dict[str, Any] = json.loads(text[text.index("{") :])
    # Bits that are added, of which the type has only the single ones.
    schema["definitions"]["SessionStatus"] = {"type": "integer"}
    return schema


def _run(*words: str) -> str:
    done = subprocess.run(
        [toolbox.node(), *words], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode:
        raise NotPublished(f"{Path(words[0]).name} failed: {done.stderr[-2000:]}")
    return done.stdout
