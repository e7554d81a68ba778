"""Models by name, through pydantic-ai, which is imported with the first of them."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_ai.models import Model

OLLAMA = "http://127.0.0.1:11434/v1"
NEEDED = "pydantic-ai-slim[anthropic,openai]>=2.60"  # the extra `model`


class ModelUnavailable(Exception):
    """Why there can be no answer from this model, and what to do about it."""


def preload(name: str) -> None:
    """Import what a model needs; what cannot be is told by `make`."""
    with suppress(ImportError, ValueError):
        from pydantic_ai.models import infer_model  # noqa: F401
        from pydantic_ai.providers import infer_provider_class

        from . import loop  # noqa: F401

        provider = name.partition(":")[0]
        infer_provider_class(provider)
        # The module of the models themselves, which loads the provider's own client.
        import_module(f"pydantic_ai.models.{provider.partition('-')[0]}")


def check_provider(name: str) -> None:
    """Refuse a provider that there is none of. Without pydantic-ai nobody knows."""
    try:
        from pydantic_ai import providers

        providers.infer_provider_class(name)
    except ImportError:  # or its own client is not installed, which `make` tells
        return
    except ValueError:
        from difflib import get_close_matches
        from pkgutil import iter_modules

        known = [module.name.replace("_", "-") for module in iter_modules(providers.__path__)]
        near = get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ModelUnavailable(f"there is no provider {name!r}{hint}") from None


def make_model(name: str, base_url: str | None = None) -> Model:
    """The model `provider:name`, at its provider's address or another."""
    try:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model
        from pydantic_ai.providers import infer_provider, infer_provider_class
    except ImportError:
        raise ModelUnavailable(f"models need more packages: pip install '{NEEDED}'") from None

    def provider(kind: str) -> Any:
        where = base_url
        if kind == "ollama" and not os.environ.get("OLLAMA_BASE_URL"):
            where = where or OLLAMA
        if where is None:
            return infer_provider(kind)
        made: Any = infer_provider_class(kind)
        try:
            return made(base_url=where)
        except TypeError:
            raise ModelUnavailable(
                f"{kind} models have one address, so unset model.base_url"
            ) from None

    try:
        return infer_model(name, provider_factory=provider)
    except UserError as error:
        raise ModelUnavailable(_for_users(error.message)) from None
    except (ImportError, ValueError) as error:
        raise ModelUnavailable(str(error)) from None


def _for_users(text: str) -> str:
    """What is wrong, without the library's advice to those who program with it."""
    text = text.partition(" To try Pydantic AI")[0]
    return re.sub(r" or pass it via `[^`]*`", "", text)
