"""Baselines on tensors of PyTorch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import metadata
from typing import Any

import numpy as np

from ...judge.case import Case
from ...model.arrays import Array
from ...model.errors import BadOperation
from ...model.operation import Baseline
from ...model.problem import Problem
from . import base, host, pytorch
from .base import Prepared, installed, prepared

DEVICE = "cuda"


@cache
def load() -> Any | None:
    """The module, where it is installed and sees a GPU."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch


def tensors(arrays: Mapping[str, Array], buffers: Mapping[str, Any], device: str = DEVICE) -> dict[str, Any]:
    """PyTorch tensors over the memory of the arrays, as they lie there."""
    import torch

    made = {}
    for name, array in arrays.items():
        kind = getattr(torch, array.dtype.torch)
        flat = torch.as_tensor(buffers[name], device=device).view(kind)
        made[name] = flat.as_strided(array.shape, array.element_strides)
    return made


class Torch(base.Baseline):
    """Runs a declared baseline on tensors."""

    def version(self) -> str | None:
        torch = load()
        if torch is None or not installed(self.declared.requires):
            return None
        own = self.declared.version() if self.declared.version else ""
        others = [f"{name} {version_of(name)}" for name in self.declared.requires[1:]]
        return None if own is None else ", ".join(filter(None, (own, *others, _version(torch))))

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], buffers: Mapping[str, Any]) -> Prepared:
        held = tensors(arrays, buffers, DEVICE)
        call = _compiled(self.declared, problem) if self.declared.compiled else None
        return prepared(self.declared, problem, arrays, held, _copy, call)


def _copy(to: Any, value: Any) -> None:
    to.copy_(value.reshape(to.shape))


def _compiled(declared: Baseline[Any], problem: Problem) -> Callable[..., Any]:
    """The callable as `torch.compile` makes it by default: what it takes from no library becomes a Triton kernel. Its
    search for the best matrix product would take minutes; so that is cuBLAS's."""
    torch: Any = load()
    torch.compiler.reset()  # it compiles a function for a few shapes, and then no more
    # in this process: for one kernel others need not be started
    how = {"fullgraph": True, "dynamic": False, "options": {"compile_threads": 1}}
    compiled = torch.compile(lambda **given: declared.call(problem, **given), **how)
    return lambda problem, **given: compiled(**given)


def _version(torch: Any) -> str:
    return f"torch {torch.__version__}, CUDA {torch.version.cuda}"


def version_of(module: str) -> str:
    own = getattr(importlib.import_module(module), "__version__", None)
    if own is not None:
        return str(own)
    try:
        return metadata.version(module)  # of the distribution of that name
    except metadata.PackageNotFoundError:
        return ""


# ----------------------------------------------------------------------------------------------------------- on the CPU


def baseline_error(baseline: Baseline[Any], problem: Problem) -> str:
    """What is wrong with the answer of a baseline to a problem, or nothing where it is right.

    Raises BadOperation for one that takes arrays of a GPU only, ImportError where PyTorch is not installed, and what
    the baseline raises."""
    if reason := baseline.refuses(problem):
        raise BadOperation(f"the baseline {baseline.name!r} does not take {problem}: {reason}")
    case = Case.of(problem)
    storage = case.storage()
    if baseline.kind == host.KIND:
        for name, values in host.solved(baseline, problem, {**case.prepared, **case.inputs})().items():
            storage[name] = case.arrays[name].pack(values)
    elif baseline.kind == "torch":
        buffers = {name: values.view(np.uint8) for name, values in storage.items()}
        held = pytorch.tensors(case.arrays, buffers, "cpu")  # over that memory
        work = prepared(baseline, problem, case.arrays, held, lambda to, value: to.copy_(value.reshape(to.shape)))
        work.enqueue()
        work.deliver()
    else:
        raise BadOperation(f"the baseline {baseline.name!r} takes arrays of {baseline.kind}, which are on a GPU")
    failure, _ = case.judge(storage.__getitem__)
    if failure:
        return failure.message
    changed = case.changed_inputs(storage)
    return f"it wrote to its input {', '.join(changed)}" if changed else ""
