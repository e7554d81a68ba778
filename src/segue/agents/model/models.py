"""Create models by name with pydantic-ai, which is imported for the first model."""

from __future__ import annotations

import gc
import os
import re
import sys
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from segue.gc_pause import gc_paused

from . import lazy_imports

if TYPE_CHECKING:
    from pydantic_ai.models import Model

OLLAMA_URL = "http://127.0.0.1:11434/v1"


class ModelUnavailable(Exception):
    """The model cannot be used; the message names the reason and the remedy."""


def preload(name: str) -> None:
    """Import the modules that a model needs; `make_model` reports those that are missing.

    Thousands of modules stay in memory, so collecting garbage meanwhile would only take time, and
    later collections need not look at them.
    """
    module_count = len(sys.modules)
    lazy_imports.install()
    with gc_paused():
        with suppress(ImportError, ValueError):
            _import_modules(name)
        if len(sys.modules) > module_count:  # else it would only keep the garbage of other turns
            gc.freeze()  # before collecting is enabled again


def _import_modules(name: str) -> None:
    from pydantic_ai.models import infer_model  # noqa: F401
    from pydantic_ai.providers import infer_provider_class

    from . import loop  # noqa: F401

    provider = name.partition(":")[0]
    infer_provider_class(provider)
    # This module imports the provider's client library.
    import_module(f"pydantic_ai.models.{provider.partition('-')[0]}")


def check_provider(name: str) -> None:
    """Raise ModelUnavailable if no such provider exists; needs pydantic-ai to know."""
    try:
        from pydantic_ai import providers

        providers.infer_provider_class(name)
    except ImportError:  # of pydantic-ai, or of the client library, which make_model reports
        return
    except ValueError:
        from difflib import get_close_matches

        known = _known_providers()
        similar = get_close_matches(name, known, 1)
        hint = f" (did you mean {similar[0]!r}?)" if similar else ""
        message = f"there is no provider {name!r}{hint}; the providers are {', '.join(known)}"
        raise ModelUnavailable(message) from None


def _known_providers() -> list[str]:
    """Return the names of pydantic-ai's providers; each has a module, but not each module one."""
    from pkgutil import iter_modules

    from pydantic_ai import providers

    known = []
    for module in iter_modules(providers.__path__):
        name = module.name.replace("_", "-")
        try:
            providers.infer_provider_class(name)
        except ImportError:  # the provider's client library is not installed
            pass
        except ValueError:
            continue
        known.append(name)
    return known


def make_model(name: str, base_url: str | None = None) -> Model:
    """Return the model `provider:name`, at `base_url` or at its provider's address.

    Raises ModelUnavailable if a package or an API key is missing, or the name is unknown.
    """
    try:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model
        from pydantic_ai.providers import infer_provider, infer_provider_class
    except ImportError:
        from segue.extras import install_command

        command = install_command("model")
        raise ModelUnavailable(f"models need more packages; run: {command}") from None

    def make_provider(name: str) -> Any:
        url = base_url
        if name == "ollama" and not os.environ.get("OLLAMA_BASE_URL"):
            url = url or OLLAMA_URL
        if url is None:
            return infer_provider(name)
        provider: Any = infer_provider_class(name)
        try:
            return provider(base_url=url)
        except TypeError:
            raise ModelUnavailable(
                f"{name} models have a fixed address; run: segue config unset model.base_url"
            ) from None

    try:
        return infer_model(name, provider_factory=make_provider)
    except UserError as error:
        raise ModelUnavailable(_user_message(error.message)) from None
    except (ImportError, ValueError) as error:
        raise ModelUnavailable(str(error)) from None


def _user_message(text: str) -> str:
    """Return the library's message without its advice for programmers."""
    text = text.partition(" To try Pydantic AI")[0]
    return re.sub(r" or pass it via `[^`]*`", "", text)
