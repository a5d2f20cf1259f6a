"""A declared baseline solved on the CPU, and judged like a stage: no GPU is needed to see that it is right."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...judge.case import Case
from ...model.baseline import Baseline
from ...model.origin import BadOperation
from ...model.problem import Problem
from . import host, pytorch
from .base import prepared


def baseline_error(baseline: Baseline[Any], problem: Problem) -> str:
    """What is wrong with the answer of a baseline to a problem, or nothing where it is right.

    Raises BadOperation for one that takes arrays of a GPU only, ImportError where PyTorch is not installed, and what
    the baseline raises.
    """
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
