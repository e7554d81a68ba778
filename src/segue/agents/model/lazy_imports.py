"""Import pydantic-ai and the providers' clients without the thousands of modules that no turn uses.

Their packages import a module for each name that they export. Here, a package that only exports
names imports the module of a name when the name is first used, with a module-level `__getattr__`.
Other packages run their code when one of their names is first used. A few modules get stand-ins for
names that they seldom use; a stand-in imports its module when it is used.

A module whose code is not as expected here is imported normally.
"""

from __future__ import annotations

import builtins
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import resolve_name
from types import FunctionType, ModuleType
from typing import Any

# Packages that only export names. A dot at the end: all packages below it.
_PACKAGES = (
    "pydantic_ai",
    *("anthropic.types", "anthropic.types.", "anthropic.resources", "anthropic.resources."),
    *("openai.types", "openai.types.", "openai.resources", "openai.resources."),
)
# Packages of which only some modules are used. They also do more than to export names.
_RUN_ON_USE = ("pydantic_ai.agent", "pydantic_ai.capabilities")
# By module: modules that it imports and seldom uses. A dot at the end: all modules below it.
_SELDOM_USED = {
    "pydantic_ai._function_schema": ("pydantic_ai._griffe",),  # for tools that are functions
    "anthropic.resources.beta.beta": ("anthropic.resources.beta.",),  # all other resources
    "anthropic.lib.streaming": ("anthropic.lib.streaming.",),  # for its own kind of streams
    "openai.resources.responses.responses": (
        *("openai.lib._response_resources", "openai.lib.streaming.responses."),  # the same
        *("openai.resources.responses.input_items", "openai.resources.responses.input_tokens"),
    ),
}


def install() -> None:
    """Import the modules above lazily from now on, in the whole process."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _is_in(name: str, scopes: Sequence[str]) -> bool:
    """Return True if a module is one of `scopes`, or below one that ends with a dot."""
    return name in scopes or any(scope.endswith(".") and name.startswith(scope) for scope in scopes)


class _Finder(MetaPathFinder):
    """Finds the modules that are imported lazily."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in (*_SELDOM_USED, *_RUN_ON_USE) and not _is_in(name, _PACKAGES):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or not isinstance(spec.loader, SourceFileLoader):
            return None
        if name in _SELDOM_USED or spec.submodule_search_locations is not None:
            spec.loader = _LazyLoader(spec.loader)
        return spec


class _LazyLoader(Loader):
    """Executes a module, some of whose imports wait until their names are used."""

    def __init__(self, loader: SourceFileLoader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None and spec.parent is not None
        module.__loader__ = spec.loader = self._loader
        if spec.name in _RUN_ON_USE:
            _run_on_use(module, self._loader)
            return
        attributes = dict(vars(module))
        try:
            if (scopes := _SELDOM_USED.get(spec.name)) is not None:
                self._execute(module, _Importer(spec.parent, scopes))
            else:
                self._execute(module, _Importer(spec.parent, (f"{spec.name}.",)))
                _look_up_names_on_use(module)
        except Exception:
            vars(module).clear()
            vars(module).update(attributes)
            self._loader.exec_module(module)

    def _execute(self, module: ModuleType, importer: _Importer) -> None:
        code = self._loader.get_code(module.__name__)
        assert code is not None
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": importer}
        try:
            exec(code, vars(module))
        finally:
            importer.is_active = False  # the module's functions keep it
            vars(module)["__builtins__"] = vars(builtins)


class _Importer:
    """Replaces `__import__` for one module: names of the modules of `scopes` become stand-ins."""

    def __init__(self, package: str, scopes: Sequence[str]) -> None:
        self._package = package
        self._scopes = scopes
        self.is_active = True

    def __call__(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = None,
        level: int = 0,
    ) -> Any:
        names = fromlist or ()
        if self.is_active and level and names and "*" not in names:
            source = resolve_name("." * level + name, self._package)
            if _is_in(source, self._scopes):
                return _Names({item: _StandIn(source, item) for item in names})
            submodules = {item for item in names if _is_in(f"{source}.{item}", self._scopes)}
            if submodules:
                values = {item: _StandIn(f"{source}.{item}") for item in submodules}
                if others := [item for item in names if item not in submodules]:
                    module = __import__(name, globals, locals, others, level)
                    values |= {item: getattr(module, item) for item in others}
                return _Names(values)
        return __import__(name, globals, locals, names, level)


class _Names:
    """What an import statement takes its names from."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        vars(self).update(names)


class _StandIn:
    """Stands for a module or for a name of it, and imports it when it is used."""

    __slots__ = ("_parameters", "_source")

    def __init__(self, *source: str, parameters: tuple[Any, ...] = ()) -> None:
        self._source = source  # the module, and the name if there is one
        self._parameters = parameters  # of a generic class

    def resolve(self) -> Any:
        """Return the module or the value of the name."""
        module, *names = self._source
        value: Any = import_module(module)
        for name in names:
            value = getattr(value, name)
        for parameter in self._parameters:
            value = value[parameter]
        return value

    def __getattr__(self, name: str) -> Any:
        return getattr(self.resolve(), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.resolve()(*args, **kwargs)

    def __getitem__(self, parameter: Any) -> _StandIn:
        return _StandIn(*self._source, parameters=(*self._parameters, parameter))

    def __or__(self, other: Any) -> Any:
        return self.resolve() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.resolve()

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self.resolve())

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self.resolve(),)


def _run_on_use(module: ModuleType, loader: Loader) -> None:
    """Give a package a `__getattr__` that runs the package's code, and returns the name."""
    namespace = vars(module)
    lock = threading.RLock()
    is_running = False

    def look_up(name: str) -> Any:
        nonlocal is_running
        with lock:
            if is_running:  # a circular import
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r} yet")
            if namespace.get("__getattr__") is look_up:
                is_running = True
                try:
                    loader.exec_module(module)
                finally:
                    is_running = False
                if namespace["__getattr__"] is look_up:
                    del namespace["__getattr__"]
        return getattr(module, name)

    namespace["__getattr__"] = look_up


def _look_up_names_on_use(module: ModuleType) -> None:
    """Remove the stand-ins from a package, and give it a `__getattr__` that returns their values.

    Raises ValueError if the package also has functions or classes, which would miss the names.
    """
    namespace, package = vars(module), module.__name__
    if any(
        isinstance(value, FunctionType | type) and value.__module__ == package
        for value in namespace.values()
    ):
        raise ValueError(f"{package} does not only export names")
    stand_ins = {name: value for name, value in namespace.items() if isinstance(value, _StandIn)}
    for name in stand_ins:
        del namespace[name]
    # `from package import *` takes the names of the namespace, unless there is an __all__.
    namespace.setdefault("__all__", [n for n in (*namespace, *stand_ins) if n[0] != "_"])
    submodules = {file.partition(".")[0] for path in module.__path__ for file in os.listdir(path)}

    def look_up(name: str) -> Any:
        if name in stand_ins:
            value = namespace[name] = stand_ins[name].resolve()
        elif name in submodules and not name.startswith("__"):
            try:
                value = import_module(f"{package}.{name}")
            except ModuleNotFoundError:
                raise AttributeError(f"module {package!r} has no attribute {name!r}") from None
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return value

    # Importing the submodule of the same name would otherwise hide the value.
    for name in stand_ins.keys() & submodules:
        look_up(name)
    namespace["__getattr__"] = look_up
    namespace["__dir__"] = lambda: sorted({*namespace, *stand_ins})
