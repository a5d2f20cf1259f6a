"""Which stages a change of files is about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..catalogue import registry
from ..model.stage import Stage
from .watch import files_of


def affected(stages: Sequence[Stage[Any]], files: Iterable[Path]) -> list[Stage[Any]]:
    """Those of the stages that are made of one of the files: their source, a header of it, or Python of the project.

    Files that were deleted count where the folder of the operation had them.
    """
    changed = {path.resolve() for path in files}
    return [stage for stage in stages if changed & files_of(stage).files or _in_package(stage, changed)]


def _in_package(stage: Stage[Any], changed: Iterable[Path]) -> bool:
    """Whether one is a module beside the operation's, where that is a package: stages may be declared there."""
    module = registry.loaded().modules.get(stage.operation)
    if module is None or not module.__file__ or Path(module.__file__).name != "__init__.py":
        return False
    folder = Path(module.__file__).resolve().parent
    sources = (".cu", ".cuh", ".h", ".hpp")  # one that exists belongs to the stages that read it
    return any(
        path.is_relative_to(folder) and (path.suffix == ".py" or (path.suffix in sources and not path.exists()))
        for path in changed
    )
