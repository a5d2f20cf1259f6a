"""The launches of a stage on fresh memory."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..devices import BoundPlan, Device, Fault
from ..judge.case import Case
from ..model.arrays import BEST_ALIGNMENT, Arrays
from ..model.declared import BadStage
from ..model.results import Verdict
from ..model.stage import Stage
from ..toolchain.compiler import CompileError, CompilerUnavailable, compile_stage


def bind(stage: Stage[Any], device: Device, case: Case, order: int) -> BoundPlan:
    """The stage's launches on fresh memory, aligned as `_alignments` says.

    Raises CompileError, and Fault, also for what the stage's own Python code raises.
    """
    try:
        compiled = compile_stage(stage, case.problem)
        plan = stage.plan(case.problem)
        names = [*case.arrays, *plan.scratch]
        plan = dataclasses.replace(plan, alignments=_alignments(stage.alignment, names, case.problem.seed))
    except (CompileError, CompilerUnavailable, OSError, MemoryError):
        raise
    except BadStage as error:
        verdict = Verdict.OPERATION_ERROR if error.ended else Verdict.LAUNCH_ERROR
        raise Fault(verdict, f"the declaration of the stage does not give a launch: {error}") from None
    except Exception:
        trace = traceback.format_exc(limit=-1).strip()
        raise Fault(Verdict.LAUNCH_ERROR, f"the declaration of the stage does not give a launch:\n{trace}") from None
    return device.bind(compiled, plan, case.arrays, case.storage(), case.problem.seed ^ order)


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


def in_one_memory(stage: Stage[Any], device: Device, case: Case, inputs: Sequence[Case]) -> list[Arrays]:
    """The storage of every array after each of several launches, in memory that was made for `case`. Raises Fault."""
    bound = bind(stage, device, case, order=1)
    after = []
    try:
        for each in inputs:
            bound.refill(each.storage())
            bound.run()
            after.append({name: bound.read(name) for name in case.arrays})
    finally:
        bound.close()
    return after
