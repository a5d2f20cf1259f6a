"""Writes an operation as a package that runs without the workbench: compiled kernels, their sources, and what launches
them on arrays of CuPy or PyTorch."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import __version__, devices
from ..devices import tensor_maps
from ..model.arrays import Array
from ..model.errors import WrongUsage
from ..model.launch import Argument, Launch
from ..model.operation import NO_SUITE, Operation
from ..model.problem import Problem
from ..model.stage import Stage
from ..model.tensor_map import TensorMap
from ..toolchain import compiler
from ..toolchain.compiler import compile_stage
from .arrays import bits
from .choice import choose
from .inferred import function_of
from .loading import usable

TEMPLATE = Path(__file__).parents[1] / "templates/export"
READY = Path(devices.__file__).with_name("ready.py")

ARCHITECTURE = 90
"""Compute capability, times ten, that kernels are compiled for."""

INIT = '''"""{summary}. Written by `workbench export`, of version {version}; {classes} classes of calls."""

from pathlib import Path

from .runtime import Exported, LaunchError

{name} = Exported(Path(__file__).parent)

__all__ = ["LaunchError", "{name}"]
'''


class ExportError(WrongUsage, ValueError):
    """An operation or a problem cannot be exported; the message says why."""


def export(
    name: str,
    folder: Path,
    problems: Sequence[str] = (),
    *,
    stage: str | None = None,
    unverified: bool = False,
    device: str = "",
) -> list[str]:
    """Write the operation as the package `folder`, for these problems or those of its suite, and return the stage and
    the problem of each class of calls.

    Stages are chosen as `load` does, for the device of this full name. The package has a callable of the operation's
    name, which takes the inputs and the options that `load` describes, `out=`, and registers itself with PyTorch by
    `torch_operator(namespace)`. Raises ExportError, and what `load` raises; then nothing of the package is there."""
    existed = folder.exists()
    if existed and any(folder.iterdir()):
        raise ExportError(f"{folder} is there already and not empty: name another folder, or remove it")
    operation, stages = usable(name, stage, unverified)
    if not name.isidentifier():
        raise ExportError(f"{name} is not a valid name of a Python module")
    limited = dataclasses.replace(operation, stages=list(stages), called=None)
    wanted = [operation.problem.parse(text) for text in problems] or list(operation.suite)
    if not wanted:
        raise ExportError(f"{name}: {NO_SUITE}")
    try:
        return _write(limited, wanted, folder, device)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        if existed:
            folder.mkdir(exist_ok=True)
        raise


def _write(operation: Operation[Any], wanted: Sequence[Problem], folder: Path, device: str) -> list[str]:
    """The files of the package; the stage and the problem of each class of calls."""
    for part in ("kernels", "cuda"):
        (folder / part).mkdir(parents=True)
    classes = []
    for problem in wanted:
        try:
            chosen = choose(operation, problem, ARCHITECTURE, device=device)
        except ValueError as error:
            raise ExportError(str(error)) from None
        classes.append(_class(operation, chosen, problem, folder))
    function = function_of(operation)
    about = {
        "operation": operation.name,
        "summary": operation.summary,
        "arrays": list(function.arrays),
        "options": _options(operation, operation.problem()),
        "classes": classes,
    }
    (folder / "launches.json").write_text(json.dumps(about, indent=1) + "\n")
    text = INIT.format(name=operation.name, summary=operation.summary, version=__version__, classes=len(classes))
    (folder / "__init__.py").write_text(text)
    shutil.copy(TEMPLATE / "runtime.py", folder)
    shutil.copy(READY, folder)
    return [f"{c['stage']} for {c['problem']}" for c in classes]


def _options(operation: Operation[Any], problem: Problem) -> dict[str, Any]:
    """The values of the options of an inferred function, as JSON has them."""
    found = function_of(operation)
    values = {name: getattr(problem, field) for name, field in found.build.fields.items()}  # type: ignore[attr-defined]
    return {name: str(value) if isinstance(value, str) else value for name, value in values.items()}


def _class(operation: Operation[Any], stage: Stage[Any], problem: Problem, folder: Path) -> dict[str, Any]:
    """One class of calls. Raises ExportError."""
    arrays = problem.arrays()
    if prepared := [name for name, array in arrays.items() if array.prepared]:
        raise ExportError(f"{operation.name} prepares {', '.join(prepared)} on the host, with code of the operation")
    compiled, plan = compile_stage(stage, problem), stage.plan(problem)
    inputs = [name for name, array in arrays.items() if array.given]
    results = [name for name, array in arrays.items() if array.output]
    index = {name: place for place, name in enumerate((*inputs, *results, *plan.scratch))}
    index |= {name: len(inputs) + place for place, name in enumerate(results)}  # what is both is where the result is
    every = {**arrays, **plan.scratch}
    module = f"{compiled.key[:16]}.cubin"
    shutil.copy(compiled.cubin_path, folder / "kernels" / module)
    _copy_sources(stage, folder / "cuda")
    return {
        "problem": str(problem),
        "stage": stage.spec,
        "architecture": ARCHITECTURE,
        "defines": dict(compiled.defines),
        "alignment": stage.alignment,
        "options": _options(operation, problem),
        "inputs": [_lies(arrays[name]) for name in inputs],
        "results": [
            {**_lies(arrays[name]), "name": name, "starts_as": inputs.index(name) if arrays[name].inout else None}
            for name in results
        ],
        "scratch": [{"nbytes": array.nbytes, "zero": array.zero} for array in plan.scratch.values()],
        "launches": [_launch(launch, module, index, every) for launch in plan.launches],
    }


def _lies(array: Array) -> dict[str, Any]:
    """How an array lies in memory, strides in elements."""
    dtype = bits(array.dtype.numpy)
    return {"shape": list(array.shape), "strides": list(array.element_strides), "dtype": str(dtype)}


def _launch(launch: Launch, module: str, index: dict[str, int], arrays: dict[str, Array]) -> dict[str, Any]:
    return {
        "module": module,
        "kernel": launch.kernel,
        "grid": list(launch.grid),
        "block": list(launch.block),
        "shared_bytes": launch.shared_bytes,
        "cluster": list(launch.cluster),
        "persistent": launch.persistent,
        "programmatic": launch.programmatic,
        "args": [_argument(argument, index, arrays) for argument in launch.args],
    }


def _argument(argument: Argument, index: dict[str, int], arrays: dict[str, Array]) -> dict[str, Any]:
    if isinstance(argument, str):
        return {"index": index[argument]}
    if not isinstance(argument, TensorMap):
        return {"scalar": argument.tobytes().hex()}
    layout = tensor_maps.numbers(argument, arrays[argument.array])
    return {"index": index[argument.array], "layout": layout}


def _copy_sources(stage: Stage[Any], folder: Path) -> None:
    """The source of a stage and the headers that it includes, so that they can be compiled from there."""
    for path, name in compiler.names(compiler.source_of(stage)).items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
