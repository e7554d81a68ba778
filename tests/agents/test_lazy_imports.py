"""The client libraries are imported without the modules that no turn uses, and export the same."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from segue.agents.model import lazy_imports

from .provider import Provider, Say, Think, Use

# Modules that no turn needs: they belong to other endpoints, agents or instrumentation.
UNUSED = {
    "pydantic_ai.agent.abstract",
    "pydantic_ai.capabilities.mcp",
    "anthropic.lib.streaming._messages",
    "anthropic.resources.beta.organization.organization",
    "anthropic.types.beta.sessions.beta_managed_agents_session_event",
    "openai.types.beta",
    "openai.lib.streaming.responses._events",
    "openai.resources.fine_tuning.fine_tuning",
}
TURN = """
import asyncio, json, sys
from pathlib import Path
from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.store.memory import MemoryStore

async def main(model, url, directory):
    async with Hub(MemoryStore(), Path(directory)) as hub:
        await hub.config.set("local", "model", model)
        await hub.config.set("local", "model.base_url", url)
        session = await hub.editor.create(LOCAL, cwd=directory)
        await hub.turns.run(LOCAL, session.id, "Hi")
        events = [event async for event in hub.history.read(LOCAL, session.id)]
        kinds = [event.type for event in events]
    print(json.dumps([kinds, sorted(sys.modules)]))

asyncio.run(main(*sys.argv[1:]))
"""
IMPORT = "import json, sys; import pydantic_ai.direct, pydantic_ai.models.{}"
EXPORTS = """
import json, sys
from importlib import import_module
from types import ModuleType

def describe(value):
    return [type(value).__name__, getattr(value, "__module__", ""), getattr(value, "__name__", "")]

exports = {}
for package in sys.argv[1:]:
    module = import_module(package)
    names = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    exports[package] = {
        name: describe(value)
        for name, value in names.items()
        if not isinstance(value, ModuleType)
    }
print(json.dumps(exports))
"""
PRELOAD = (
    "from segue.agents.model.models import preload; preload('anthropic:x'); preload('openai:x')"
)


def run_python(program: str, *arguments: str) -> str:
    """Run a program in a new process; return its output."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("model", "share"),
    [("anthropic:claude-sonnet-4-6", 0.5), ("openai-chat:x", 0.6), ("openai:gpt-5", 0.8)],
)
async def test_a_turn_imports_few_modules_of_the_client_libraries(
    model: str, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    monkeypatch.setenv("OPENAI_API_KEY", "test-key")
    (tmp_path / "a.txt").write_text("one")
    library = "anthropic" if model.startswith("anthropic") else "openai"
    url_path = "" if library == "anthropic" else "/v1"
    async with Provider() as provider:
        provider.scripts += [[Think("hm"), Use("read", {"file_path": "a.txt"})], [Say("done")]]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", TURN, model, provider.url + url_path, str(tmp_path)),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
    kinds, after_turn = json.loads(output)
    assert [kind for kind in kinds if kind in ("tool_result", "agent_message", "failed")] == [
        "tool_result",
        "agent_message",
    ]
    assert not UNUSED.intersection(after_turn)
    normal = json.loads(run_python(IMPORT.format(library) + "; print(json.dumps([*sys.modules]))"))
    assert count_of(library, after_turn) < share * count_of(library, normal)
    assert count_of("pydantic_ai", after_turn) < 0.7 * count_of("pydantic_ai", normal)


def count_of(library: str, modules: list[str]) -> int:
    return sum(module.startswith(f"{library}.") for module in modules)


def test_lazily_imported_packages_export_the_same() -> None:
    packages = ["pydantic_ai", *lazy_imports._RUN_ON_USE]
    packages += [scope for scope in lazy_imports._PACKAGES if not scope.endswith(".")]
    packages += ["anthropic.types.beta", "anthropic.resources.beta", "openai.types.responses"]
    normal = json.loads(run_python(EXPORTS, *packages))
    lazy = json.loads(run_python(PRELOAD + EXPORTS, *packages))
    assert len(normal["anthropic.types.beta"]) > 500
    assert lazy == normal


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of a package that is imported lazily."""
    directory = tmp_path / "lazy_shop"
    directory.mkdir()
    (directory / "fruit.py").write_text("class Apple: pass\nclass Pear: pass\n")
    (directory / "tools.py").write_text("def knife(): return 'cut'\n")
    monkeypatch.setattr(lazy_imports, "_PACKAGES", ("lazy_shop",))
    monkeypatch.setattr(lazy_imports, "_SELDOM_USED", {"lazy_shop.cook": ("lazy_shop.fruit",)})
    monkeypatch.setattr(lazy_imports, "_RUN_ON_USE", ())
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [lazy_imports._Finder(), *sys.meta_path])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return directory


def test_a_package_imports_a_module_when_one_of_its_names_is_used(shop: Path) -> None:
    (shop / "__init__.py").write_text("from .fruit import Apple\nfrom .tools import knife\n")
    import lazy_shop  # type: ignore[import-not-found]  # the fixture writes it

    assert {"lazy_shop.fruit", "lazy_shop.tools"}.isdisjoint(sys.modules)
    assert lazy_shop.Apple.__name__ == "Apple"
    assert "lazy_shop.tools" not in sys.modules
    assert {"Apple", "knife"} <= set(dir(lazy_shop))
    assert lazy_shop.tools.knife() == "cut"
    names: dict[str, object] = {}
    exec("from lazy_shop import *", names)
    assert {"Apple", "knife"} <= set(names)
    with pytest.raises(AttributeError, match="'lazy_shop' has no attribute 'Plum'"):
        lazy_shop.Plum  # noqa: B018


@pytest.mark.parametrize(
    "code",
    [
        "from .fruit import Apple\ndef make(): return Apple()\n",
        "from .fruit import Apple\nclass Red(Apple): pass\ndef make(): return Red()\n",
        "from .fruit import Apple\nmake = issubclass(Apple, object) and Apple\n",
    ],
)
def test_a_package_that_does_more_is_imported_normally(shop: Path, code: str) -> None:
    (shop / "__init__.py").write_text(code)
    import lazy_shop

    assert "lazy_shop.fruit" in sys.modules
    assert isinstance(lazy_shop.make(), lazy_shop.Apple)


def test_a_package_whose_code_fails_raises_its_own_error(shop: Path) -> None:
    (shop / "__init__.py").write_text("from .fruit import Apple\nraise ImportError('no shop')\n")
    with pytest.raises(ImportError, match="no shop"):
        import lazy_shop  # noqa: F401


def test_a_stand_in_behaves_like_what_it_stands_for(shop: Path) -> None:
    (shop / "__init__.py").write_text("")
    (shop / "cook.py").write_text(
        "from .fruit import Apple, Pear\n"
        "def is_apple(fruit): return isinstance(fruit, Apple)\n"
        "def make(): return Apple()\n"
        "def red():\n    class Red(Apple): pass\n    return Red()\n"
    )
    from lazy_shop import cook  # type: ignore[import-not-found]  # the fixture writes it

    assert "lazy_shop.fruit" not in sys.modules
    assert cook.is_apple(cook.make()) and cook.is_apple(cook.red())
    assert not cook.is_apple(cook.Pear())
    assert cook.Pear.__name__ == "Pear"
    assert isinstance(cook.make(), int | cook.Apple | None)


def test_a_package_can_run_when_one_of_its_names_is_used(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy_imports, "_RUN_ON_USE", ("lazy_shop",))
    (shop / "__init__.py").write_text("from .tools import knife\nFRUIT = [knife()]\n")
    import lazy_shop.fruit

    assert "lazy_shop.tools" not in sys.modules
    assert lazy_shop.FRUIT == ["cut"]
    with pytest.raises(AttributeError, match="no attribute 'Plum'"):
        lazy_shop.Plum  # noqa: B018
