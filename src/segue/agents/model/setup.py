"""Say what a user without a model does next."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

# A model for each API key, by its environment variable.
KEY_MODELS = {
    "ANTHROPIC_API_KEY": "anthropic:claude-sonnet-4-6",
    "OPENAI_API_KEY": "openai:gpt-5",
}


def unused_key_hint(environment: Mapping[str, str]) -> str | None:
    """Return how to use an API key that is set; None without one."""
    for variable, model in KEY_MODELS.items():
        if environment.get(variable):
            return f"{variable} is set; `segue config set model {model}` uses it"
    return None


def has_packages() -> bool:
    """Return whether the packages that models need are installed."""
    return find_spec("pydantic_ai") is not None


def next_step(environment: Mapping[str, str]) -> str:
    """Return the next step to a model that answers: packages, a key, or the setting."""
    if not has_packages():
        from segue.extras import install_command

        return f"install more packages: {install_command('model')}"
    for key, model in KEY_MODELS.items():
        if environment.get(key):
            return f"run `segue config set model {model}` ({key} is set)"
    (key, model), *others = KEY_MODELS.items()
    first = f"set {key} to a key and run `segue config set model {model}`"
    return ", or ".join([first, *(f"{key} and {model}" for key, model in others)])
