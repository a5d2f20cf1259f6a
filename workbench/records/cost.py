"""Constants of the cost model, fitted to what was measured on a card: those that ship, and those of this user."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..model import errors
from ..model.cost_model import Constants, Prediction, Work, fit, least_us, predict
from ..model.launch import Machine, machine
from ..model.operation import Operation
from ..model.problem import Problem, ProblemError
from ..model.stage import Stage
from . import tuned

SHIPPED = Path(__file__).parent / "cost.json"
"""Device -> operation -> stage and kind of work -> constants in the order of `Constants`; made by
`benchmarks/cost_model.py` of committed times."""

USUAL = "NVIDIA H200"
"""The card whose constants stand for those of a card of which nothing is known."""

Sample = tuple[str, str, Mapping[str, int], float]
"""The name of a stage, a problem, parameters, and the cold median in microseconds."""


@dataclass(frozen=True)
class Predicted:
    """A stage, and how long it should take."""

    stage: Stage[Any]
    prediction: Prediction


def fitted(operation: Operation[Any], samples: Iterable[Sample]) -> dict[str, Constants]:
    """The constants of the stages, for each kind of their work, of which there are enough samples."""
    stages = {stage.name: stage for stage in operation.stages}
    works = list(_works(operation, stages, samples))
    try:
        return fitted_to(works) if works else {}
    except ImportError:
        errors.warn(
            f"the times that were tuned on this device do not change what is chosen for {operation.name}: SciPy is "
            "needed to fit them; install it with: pip install 'kernel-workbench[stats]'"
        )
        return {}


def _works(
    operation: Operation[Any], stages: Mapping[str, Stage[Any]], samples: Iterable[Sample]
) -> Iterator[tuple[str, Work, float]]:
    for name, text, parameters, us in samples:
        if name not in stages or not set(parameters) <= set(stages[name].parameters):
            continue
        try:
            problem = operation.problem.parse(text)
        except ProblemError:  # problems of the operation are not what they were
            continue
        if work := work_of(operation, stages[name].with_parameters(parameters), problem):
            yield name, work, us


def fitted_to(works: Iterable[tuple[str, Work, float]]) -> dict[str, Constants]:
    """The same of stages, what they did, and the cold median in microseconds."""
    known: dict[str, list[tuple[Work, float]]] = {}
    for name, work, us in works:
        known.setdefault(key_of(name, work), []).append((work, us))
    found = {key: fit(of_stage, machine().multiprocessors) for key, of_stage in known.items()}
    return {key: constants for key, constants in found.items() if constants}


def key_of(stage: str, work: Work) -> str:
    """What constants are found by: the name of the stage, and the kind of the work where it has one."""
    return f"{stage}, {work.kind}" if work.kind else stage


def work_of(operation: Operation[Any], stage: Stage[Any], problem: Problem) -> Work | None:
    """What a stage does for a problem, None where that is not known."""
    return operation.work(problem, stage.sizes(problem))


@cache
def shipped() -> dict[str, dict[str, dict[str, Constants]]]:
    """The constants that ship, as `SHIPPED` describes them."""
    return {
        device: {name: {key: Constants(*each) for key, each in of.items()} for name, of in operations.items()}
        for device, operations in json.loads(SHIPPED.read_text()).items()
    }


def _tuned(device: str, operation: str) -> tuple[Sample, ...]:
    """What `workbench tune` has measured on this device, of sources as they are now."""
    try:
        entries = tuned.Table().entries()
    except tuned.TableError as error:
        errors.warn(str(error))
        return ()
    return tuple(
        (entry.key.stage, entry.problem, entry.parameters, entry.us)
        for entry in entries
        if (entry.key.device, entry.key.operation) == (device, operation) and tuned.is_current(entry)
    )


def measured_on(device: str) -> str:
    """The device whose constants ship for this one: itself, or the usual one."""
    return device if device in shipped() else USUAL


class Predictor:
    """How long the stages of an operation take on a device, by `constants` of kinds of their work, as `key_of` has
    them."""

    def __init__(self, constants: Mapping[str, Constants]) -> None:
        self.constants = constants
        self._of_stage: dict[str, list[Constants]] = {}
        for key, found in constants.items():
            self._of_stage.setdefault(key.partition(", ")[0], []).append(found)

    def of(self, operation: Operation[Any], stage: Stage[Any], problem: Problem) -> Predicted | None:
        """How long a stage takes for a problem that it supports; None where that cannot be told, or where nothing like
        the time was measured."""
        if stage.name not in self._of_stage:
            return None
        work = work_of(operation, stage, problem)
        constants = self.constants.get(key_of(stage.name, work)) if work else None
        if work is None or constants is None:
            return None
        made = predict(work, constants, machine().multiprocessors)
        return Predicted(stage, made) if constants.covers(made.us) else None

    def fastest_first(self, operation: Operation[Any], problem: Problem, on: Machine) -> Iterator[Predicted]:
        """The stages that take a problem on a machine, and whose time can be told.

        A stage is predicted once no other one is sure to be faster. To look for its tiles takes longer than all else.
        """
        queue: list[tuple[float, int, Predicted | None]] = [
            (self._least(stage, problem), place, None)
            for place, stage in enumerate(operation.stages)
            if stage.name in self._of_stage and stage.on(on).supports(problem) is None
        ]
        heapq.heapify(queue)
        while queue:
            _, place, found = heapq.heappop(queue)
            if found is not None:
                yield found
            elif (found := self.of(operation, operation.stages[place], problem)) is not None:
                heapq.heappush(queue, (found.prediction.us, place, found))

    def _least(self, stage: Stage[Any], problem: Problem) -> float:
        """Microseconds that a stage takes at least, of whatever kind its work is."""
        flops, moved = problem.cost.flops, problem.cost.bytes
        return min(least_us(flops, moved, c, machine().multiprocessors) for c in self._of_stage[stage.name])


_predictors: dict[tuple[str, str], Predictor] = {}
"""By device and operation: a process reads and fits once."""


def predictor(device: str, operation: Operation[Any]) -> Predictor:
    """What predicts the stages of an operation on a device: by the constants that ship and, instead of those of stages
    that have been tuned on enough problems, by what fits the times found."""
    key = device, operation.name
    if key not in _predictors:
        found = shipped().get(measured_on(device), {}).get(operation.name, {})
        _predictors[key] = Predictor(found | fitted(operation, _tuned(*key)))
    return _predictors[key]


def as_json(found: Mapping[str, Mapping[str, Mapping[str, Constants]]]) -> str:
    """Constants as `SHIPPED` has them, a stage a line."""
    lines = []
    for device, operations in sorted(found.items()):
        for operation, stages in sorted(operations.items()):
            rows = [f"   {json.dumps(name)}: {json.dumps(_rounded(c))}" for name, c in sorted(stages.items())]
            lines.append(f" {json.dumps(device)}: {{\n  {json.dumps(operation)}: {{\n" + ",\n".join(rows) + "\n  }\n }")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _rounded(found: Constants) -> list[float]:
    """Constants to four digits."""
    return [float(f"{value:.4g}") if name != "samples" else value for name, value in asdict(found).items()]
