"""Which agents this process can build, from the specification that a session's agent has.

A specification is a small dict: `{"kind": "demo"}`, `{"kind": "model", "model": …}`. Kinds are
registered with a factory; heavy ones import what they need when they are first built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..agents.base import Agent
from ..model.errors import NoAgent

Spec = Mapping[str, Any]
Factory = Callable[[Spec], Agent]


def _demo(spec: Spec) -> Agent:
    from ..agents.demo import DemoAgent

    return DemoAgent()


class Runners:
    """A registry of agent kinds."""

    def __init__(self, factories: Mapping[str, Factory] | None = None) -> None:
        self._factories: dict[str, Factory] = {"demo": _demo, "default": _demo, **(factories or {})}

    def register(self, kind: str, factory: Factory) -> None:
        self._factories[kind] = factory

    def kinds(self) -> list[str]:
        """The kinds that can be asked for by name."""
        return sorted(set(self._factories) - {"default"})

    def can_build(self, spec: Spec) -> bool:
        return spec.get("kind") in self._factories

    def build(self, spec: Spec) -> Agent:
        """The agent; NoAgent where its kind is not known here."""
        factory = self._factories.get(spec.get("kind", ""))
        if factory is None:
            raise NoAgent(
                f"this process has no agent of kind {spec.get('kind')!r};"
                " prompt the session from the program that has it open"
            )
        return factory(spec)
