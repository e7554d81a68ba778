"""Other tools, by the same few commands: start a session with a prompt, and continue it."""

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import pytest

from segue.sources import registry
from segue.sources.kit.definition import ToolDefinition
from segue.sources.kit.reader import Reader
from tests.clients import toolbox

from .programs import Home, on_path, unpacked_package
from .scripted_model import ScriptedModel, script


class Tool(ABC):
    """A version of a tool with a home."""

    name: ClassVar[str]
    versions: ClassVar[tuple[str, ...]]
    older_versions: ClassVar[tuple[str, ...]] = ()  # of which sessions are read and resumed only
    counts_cached = True  # whether the tool records which tokens were cached
    counts_all = True  # whether it records the tokens of each request

    def __init__(self, version: str, home: Home, model: ScriptedModel) -> None:
        self.version = version
        self.home = home
        self.model = model
        self.install()

    @abstractmethod
    def install(self) -> None:
        """Install the program, and let it use the model."""

    @abstractmethod
    def command(self, prompt: str) -> tuple[list[str], str]:
        """Return the command that runs a prompt in a new session, and its input."""

    def prompt(self, text: str, *steps: dict[str, Any]) -> None:
        """Run a prompt in a new session."""
        command, input = self.command(script(text, *steps))
        self.home.run(*command, input=input)

    def resume(self, native_id: str, text: str, *steps: dict[str, Any]) -> None:
        """Run a prompt in a session that exists."""
        command, input = self.resume_command(native_id, script(text, *steps))
        self.home.run(*command, input=input)

    def resume_command(self, native_id: str, prompt: str) -> tuple[list[str], str]:
        """Return the command that runs a prompt in a session that exists, and its input."""
        pytest.skip(f"{self.name} is not continued by these tests")

    def shown(self) -> str:
        """Return the list of sessions as the program shows it."""
        pytest.skip(f"{self.name} has no command that lists its sessions")

    def is_archived(self, native_id: str) -> bool:
        """Return whether the program has a session in its archive."""
        pytest.skip(f"{self.name} has no archive")

    def reader(self) -> Reader:
        """Return segue's reader of the home, whose variables must be set."""
        definition = registry.get(self.name)
        assert isinstance(definition, ToolDefinition)
        return definition.reader()


def node_program(package: str, *paths: str) -> list[str]:
    """Return the command that runs a program of an npm package: the first path that exists."""
    try:
        directory = toolbox.node_package(package) / "node_modules" / package.rpartition("@")[0]
    except toolbox.NotFetched as error:
        pytest.skip(str(error))
    program = next(directory / path for path in paths if (directory / path).exists())
    return [toolbox.node(), str(program)]


def is_older(version: str, other: str) -> bool:
    """Return whether a version is before another one."""
    return tuple(map(int, version.split("."))) < tuple(map(int, other.split(".")))


def drop_proxies(home: Home) -> None:
    """Remove the proxies, which some versions use for loopback addresses too."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        home.environment.pop(name)


def write_json(path: Path, value: Any) -> None:
    """Write a file of settings."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


class Copilot(Tool):
    """GitHub's Copilot CLI."""

    name = "copilot"
    versions = ("1.0.102", "1.0.81")
    older_versions = ("1.0.92", "1.0.69", "1.0.43", "1.0.24")

    def install(self) -> None:
        package = unpacked_package(f"@github/copilot-linux-x64@{self.version}")
        self._program = package / "copilot"
        self.home.environment |= {
            "PATH": on_path(self._program),
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_BASE_URL": f"{self.model.url}/v1",
            "COPILOT_PROVIDER_TYPE": "openai",
            "COPILOT_PROVIDER_API_KEY": "x",
            "COPILOT_MODEL": "gpt-5.4",
        }

    def command(self, prompt: str) -> tuple[list[str], str]:
        return [str(self._program), "-p", prompt, "--allow-all", "--no-color"], ""

    def resume_command(self, native_id: str, prompt: str) -> tuple[list[str], str]:
        command, input = self.command(prompt)
        return [*command, f"--resume={native_id}"], input

    def shown(self) -> str:
        with self.home.conversation(str(self._program), "--acp") as agent:
            agent.call("initialize", protocolVersion=1, clientCapabilities={})
            return json.dumps(agent.call("session/list"), ensure_ascii=False)


class Opencode(Tool):
    """opencode."""

    name = "opencode"
    versions = ("1.18.34", "1.17.9")
    older_versions = ("1.15.13", "1.14.41", "1.3.2", "1.2.27", "1.1.65", "1.0.185")

    @property
    def program(self) -> list[str]:
        """The program without arguments."""
        return [str(self._program)]

    def install(self) -> None:
        package = unpacked_package(f"opencode-linux-x64@{self.version}")
        self._program = package / "bin" / "opencode"
        model = {
            "name": "Stub",
            "reasoning": True,
            "attachment": True,
            "tool_call": True,
            "modalities": {"input": ["text", "image"], "output": ["text"]},
            "limit": {"context": 100_000, "output": 8_000},
        }
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "stub",
            "options": {"baseURL": f"{self.model.url}/v1", "apiKey": "x"},
            "models": {"stub-model": model},
        }
        settings = {
            "model": "stub/stub-model",
            "small_model": "stub/stub-model",
            "autoupdate": False,
            "share": "disabled",
            "permission": {"bash": "allow", "edit": "allow"},
            "provider": {"stub": provider},
        }
        write_json(self.home.path / ".config/opencode/opencode.json", settings)
        self.home.environment |= {
            "PATH": on_path(self._program),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        }

    def command(self, prompt: str) -> tuple[list[str], str]:
        return [str(self._program), "run", "--format", "json"], prompt

    def resume_command(self, native_id: str, prompt: str) -> tuple[list[str], str]:
        command, input = self.command(prompt)
        return [*command, "--session", native_id], input

    def shown(self) -> str:
        return self.home.run(str(self._program), "session", "list", "--format", "json")

    def is_archived(self, native_id: str) -> bool:
        exported = json.loads(self.home.run(str(self._program), "export", native_id))
        return bool(exported["info"]["time"].get("archived"))


class Goose(Tool):
    """Goose."""

    name = "goose"
    versions = ("1.52.0", "1.50.0")
    older_versions = ("0.20.2", "0.20.1")  # the package of Goose 1.37.0, and the one before
    mode = "auto"

    @property
    def program(self) -> list[str]:
        """The program without arguments."""
        return [str(self._program)]

    def install(self) -> None:
        package = unpacked_package(f"@aaif/goose-binary-linux-x64@{self.version}")
        self._program = package / "bin" / "goose"
        self.counts_cached = not is_older(self.version, "1.0.0")
        self.home.environment |= {
            "PATH": on_path(self._program),
            "GOOSE_PROVIDER": "openai",
            "GOOSE_MODEL": "gpt-4o",
            "OPENAI_API_KEY": "x",
            "OPENAI_HOST": self.model.url,
            "GOOSE_DISABLE_KEYRING": "1",
            "GOOSE_MODE": self.mode,
            "GOOSE_TELEMETRY_ENABLED": "false",
        }

    def command(self, prompt: str) -> tuple[list[str], str]:
        return [str(self._program), "run", "-t", prompt], ""

    def resume_command(self, native_id: str, prompt: str) -> tuple[list[str], str]:
        command = [str(self._program), "run", "--resume", "--session-id", native_id]
        return [*command, "-t", prompt], ""

    def shown(self) -> str:
        return self.home.run(str(self._program), "session", "list", "--format", "json")

    def is_archived(self, native_id: str) -> bool:
        exported = self.home.run(
            str(self._program), "session", "export", "--session-id", native_id, "--format", "json"
        )
        return bool(json.loads(exported)["archived_at"])


class Gemini(Tool):
    """Google's Gemini CLI."""

    name = "gemini"
    versions = ("0.61.0", "0.51.0")
    older_versions = ("0.57.0", "0.45.2", "0.39.1", "0.33.2", "0.30.1", "0.24.5")

    @property
    def program(self) -> list[str]:
        """The program without arguments."""
        return self._command

    def install(self) -> None:
        package = f"@google/gemini-cli@{self.version}"
        self._command = node_program(package, "bundle/gemini.js", "dist/index.js")
        program = self.home.path / "bin" / "gemini"  # segue looks up its version
        program.parent.mkdir()
        program.symlink_to(self._command[1])
        Path(self._command[1]).chmod(0o755)
        settings = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "general": {"enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
        }
        write_json(self.home.path / ".gemini/settings.json", settings)
        self.counts_all = not is_older(self.version, "0.33.0")  # they join the replies of a turn
        if is_older(self.version, "0.40.0"):
            drop_proxies(self.home)
        self.home.environment |= {
            "PATH": f"{program.parent}:{self.home.environment['PATH']}",
            "GOOGLE_GEMINI_BASE_URL": self.model.url,
            "GEMINI_API_KEY": "x",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        }

    def command(self, prompt: str) -> tuple[list[str], str]:
        return [*self._command, "-m", "gemini-2.5-flash", "--yolo", "-p", prompt], ""

    def resume_command(self, native_id: str, prompt: str) -> tuple[list[str], str]:
        command, input = self.command(prompt)
        return [*command, "--resume", native_id], input

    def shown(self) -> str:
        return self.home.run(*self._command, "--list-sessions")


class Qwen(Tool):
    """Qwen Code."""

    name = "qwen"
    versions = ("0.24.4", "0.21.10")
    older_versions = ("0.23.4", "0.15.6", "0.12.0", "0.10.1", "0.7.1")

    def install(self) -> None:
        self._command = node_program(f"@qwen-code/qwen-code@{self.version}", "cli.js")
        if is_older(self.version, "0.20.0"):
            drop_proxies(self.home)
        self.home.environment |= {
            "OPENAI_API_KEY": "x",
            "OPENAI_BASE_URL": f"{self.model.url}/v1",
            "OPENAI_MODEL": "stub-model",
        }

    def command(self, prompt: str) -> tuple[list[str], str]:
        return [*self._command, "--auth-type", "openai", "--yolo", "-p", prompt], ""

    def resume_command(self, native_id: str, prompt: str) -> tuple[list[str], str]:
        command, input = self.command(prompt)
        return [*command, "--resume", native_id], input

    def shown(self) -> str:
        return self.home.run(*self._command, "sessions", "list", "--json")


class Kimi(Tool):
    """Kimi Code."""

    name = "kimi"
    versions = ("2.1.0", "0.34.0")
    older_versions = ("2.0.2", "0.43.1", "0.20.0")

    def install(self) -> None:
        self._command = node_program(f"@moonshot-ai/kimi-code@{self.version}", "dist/main.mjs")
        path = self.home.path / ".kimi-code" / "config.toml"
        path.parent.mkdir(parents=True)
        path.write_text(
            'default_model = "stub"\n[providers.stub]\ntype = "openai"\n'
            f'base_url = "{self.model.url}/v1"\napi_key = "x"\n'
            '[models.stub]\nprovider = "stub"\nmodel = "stub-model"\nmax_context_size = 100000\n'
        )

    def command(self, prompt: str) -> tuple[list[str], str]:
        return [*self._command, "-p", prompt], ""

    def resume_command(self, native_id: str, prompt: str) -> tuple[list[str], str]:
        command, input = self.command(prompt)
        return [*command, "-S", native_id], input

    def shown(self) -> str:
        if is_older(self.version, "0.43.0"):
            return super().shown()
        return self.home.run(*self._command, "session", "list", "--json")


class ClaudeCode(Tool):
    """Anthropic's Claude Code; before 2.1.113 it was a program for Node."""

    name = "claude"
    versions = ("2.1.328", "2.1.200", "2.0.76", "1.0.128")

    def install(self) -> None:
        if is_older(self.version, "2.1.113"):
            self._command = node_program(f"@anthropic-ai/claude-code@{self.version}", "cli.js")
        else:
            package = unpacked_package(f"@anthropic-ai/claude-code-linux-x64@{self.version}")
            program = package / "claude"
            program.chmod(0o755)
            self._command = [str(program)]
        self.set_environment()

    def set_environment(self) -> None:
        """Let the program use the model."""
        self.home.environment |= {
            "ANTHROPIC_BASE_URL": self.model.url,
            "ANTHROPIC_API_KEY": "sk-ant-fake-0000",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
        }

    def command(self, prompt: str) -> tuple[list[str], str]:
        return [*self._command, "--dangerously-skip-permissions", "-p", prompt], ""

    def resume_command(self, native_id: str, prompt: str) -> tuple[list[str], str]:
        command, input = self.command(prompt)
        return [*command, "--resume", native_id], input


# Those that segue reads with the kit of sources; Claude Code has tests of its own.
TOOLS: tuple[type[Tool], ...] = (Copilot, Opencode, Goose, Gemini, Qwen, Kimi)
