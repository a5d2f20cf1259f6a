"""Do two devices agree? The same problems, solved on both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..devices import Device, Fault
from ..judge.case import Case
from ..model.arrays import Arrays
from ..model.problem import Problem, Tier
from ..model.results import Agreement
from ..model.stage import Stage
from ..toolchain.compiler import CompileError
from .drawing import draw
from .launching import solve


def agree(
    stage: Stage[Any],
    first: Device,
    second: Device,
    *,
    examples: int = 200,
    seed: int = 0,
    on_problem: Callable[[int], None] | None = None,
) -> Agreement:
    """Solve `examples` random problems on two devices: bit-equal in the exact tier, both within the bound in the other.

    Problems have the emulator's sizes. Raises CompilerUnavailable.
    """
    result = Agreement(stage.operation, stage.name, [first.name, second.name], seed)
    seen: set[Problem] = set()

    def supported(problem: Problem) -> bool:
        return not any(stage.supports(problem, device.architecture) for device in (first, second))

    def property_(problem: Problem) -> bool:
        if problem in seen:
            return True
        for tier in problem.tiers:
            result.disagreement = _disagreement(stage, first, second, problem.with_tier(tier))
            if result.disagreement:
                return False
            result.tiers[tier] = result.tiers.get(tier, 0) + 1
        seen.add(problem)
        result.problems = len(seen)
        if on_problem:
            on_problem(len(seen))
        return len(seen) < examples

    draw(stage, "emulator", supported, property_, examples, seed)
    return result


def _disagreement(stage: Stage[Any], first: Device, second: Device, problem: Problem) -> str:
    """How two devices differ on a problem, or nothing."""
    case = Case.of(problem)
    outputs: list[Arrays] = []
    for device in (first, second):
        try:
            after = solve(stage, device, case)
        except (CompileError, Fault) as error:
            return f"{problem}: {device.name}: {error}"
        failure, _ = case.judge(lambda name, after=after: after[name])  # type: ignore[misc]
        if failure:
            return f"{problem}: {device.name}: {failure.message}"
        outputs.append(after)
    if problem.tier is Tier.EXACT:
        for name, array in case.arrays.items():
            one, other = (_bits(array.view(after[name])) for after in outputs)
            if array.output and one != other:
                return f"{problem}: {name} differs in its bits"
    return ""


def _bits(values: np.ndarray[Any, Any]) -> bytes:
    """The bits of an output. Those of NaN are one NaN's: PTX says of no instruction which one it gives."""
    nan = np.isnan(values)
    found: bytes = np.where(nan, values.dtype.type(0), values).tobytes() + nan.tobytes()
    return found
