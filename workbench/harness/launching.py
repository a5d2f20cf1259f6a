"""The launches of a stage on fresh memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..devices import BoundPlan, Device, Fault
from ..judge.case import Case
from ..model.arrays import BEST_ALIGNMENT, Array, Arrays
from ..model.launch import Plan
from ..model.origin import BadStage, is_control, raised_at
from ..model.results import Verdict
from ..model.stage import Stage
from ..toolchain.compiler import CompileError, CompilerUnavailable, compile_stage, translate_stage

MOST_SCRATCH = 16 << 30
"""Bytes of all scratch arrays of a plan."""


def bind(stage: Stage[Any], device: Device, case: Case, order: int) -> BoundPlan:
    """The stage's launches on fresh memory, aligned as `_alignments` says.

    Raises CompileError, and Fault, also for what the stage's own Python code raises.
    """
    try:
        compile_ = translate_stage if device.name == "emulator" else compile_stage
        compiled = compile_(stage, case.problem, device.architecture)
        plan = stage.plan(case.problem)
        _check_scratch(plan)
        names = [*case.arrays, *plan.scratch]
        plan = dataclasses.replace(plan, alignments=_alignments(stage.alignment, names, case.problem.seed))
    except (CompileError, CompilerUnavailable, OSError, MemoryError, Fault):
        raise
    except BadStage as error:
        verdict = Verdict.OPERATION_ERROR if error.ended else Verdict.LAUNCH_ERROR
        raise Fault(verdict, f"the declaration of the stage does not give a launch: {error}") from None
    except BaseException as error:
        if is_control(error):
            raise
        message = f"the declaration of the stage does not give a launch:\n{raised_at(error)}"
        raise Fault(Verdict.LAUNCH_ERROR, message) from None
    return device.bind(compiled, plan, case.arrays, case.storage(), case.problem.seed ^ order)


def _check_scratch(plan: Plan) -> None:
    """Raises Fault for scratch arrays that are none, or too large for any device."""
    for name, array in plan.scratch.items():
        if not isinstance(array, Array):
            raise Fault(Verdict.LAUNCH_ERROR, f"the scratch {name} is {array!r:.80}; it has to be an Array")
    if (total := sum(array.nbytes for array in plan.scratch.values())) > MOST_SCRATCH:
        message = f"the scratch arrays have {total:,} bytes; {MOST_SCRATCH:,} are allowed"
        raise Fault(Verdict.OUT_OF_MEMORY, message)


def _alignments(least: int, names: Sequence[str], seed: int) -> dict[str, int]:
    """What each array's address is a multiple of: for even seeds `least` bytes, and no more; for odd ones that or a
    better alignment, not the same for all, since a kernel may take another path where it finds one.
    """
    levels = max(1, (BEST_ALIGNMENT // least).bit_length())
    chosen = np.random.default_rng(seed).integers(levels, size=len(names)) if seed % 2 else np.zeros(len(names), int)
    return {name: least << int(level) for name, level in zip(names, chosen, strict=True)}


def solve(stage: Stage[Any], device: Device, case: Case, order: int = 0) -> Arrays:
    """The storage of every array after the stage has run on the case's inputs. Raises CompileError and Fault.

    Another `order` has the warps run in another order, where the device can choose.
    """
    bound = bind(stage, device, case, order)
    try:
        bound.run()
        return {name: bound.read(name) for name in case.arrays}
    finally:
        bound.close()


def in_one_memory(stage: Stage[Any], device: Device, case: Case, inputs: Iterable[Case]) -> Iterator[Arrays]:
    """The storage of every array after each of several launches, in memory that was made for `case`. Raises Fault."""
    bound = bind(stage, device, case, order=1)
    try:
        for each in inputs:
            bound.refill(each.storage())
            bound.run()
            yield {name: bound.read(name) for name in case.arrays}
    finally:
        bound.close()
