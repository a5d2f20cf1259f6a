"""Everything that judges or times a stage is watched, in whichever module it is."""

from __future__ import annotations

import importlib.util
import types
from pathlib import Path

import pytest

import workbench
from workbench.sandbox import integrity

ROOT = Path(workbench.__file__).parent


def _judging() -> list[str]:
    """The modules that judge or time, by the files that there are."""
    rooms = [ROOT / room for room in ("judge", "devices", "measure")]
    names = ("budget", "timer", "verifier")
    session = [ROOT / f"run/{name}.py" for name in names]
    paths = [ROOT / "harness.py", *session, *(path for room in rooms for path in room.glob("*.py"))]
    return sorted(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths)


@pytest.mark.parametrize("name", _judging())
def test_what_a_judging_module_loses_is_seen_and_put_back(name: str) -> None:
    module = importlib.import_module(f"workbench.{name}".removesuffix(".__init__"))
    found = {n: v for n, v in vars(module).items() if isinstance(v, types.FunctionType | type) and n[:2] != "__"}
    if not found:
        assert name.endswith(".__init__"), "a module with nothing to watch"
        return
    function, before = next(iter(found.items()))
    watch = integrity.Watch()
    setattr(module, function, None)
    assert f"{module.__name__}.{function}" in watch.restore()
    assert vars(module)[function] is before


def test_every_module_that_is_named_exists() -> None:
    for name in integrity.watched():
        assert importlib.util.find_spec(f"workbench.{name}"), name
