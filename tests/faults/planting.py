"""What a planted fault is made of: a real kernel on one small problem, and changes to its source or its launch."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from workbench.catalogue import registry
from workbench.checks.hazards import BY_LUCK, named
from workbench.devices import Device, Fault, IsolatedDevice
from workbench.devices.emulated import EmulatedDevice
from workbench.harness import Case
from workbench.model.arrays import Array, Arrays
from workbench.model.dtypes import DType
from workbench.model.launch import Argument, Launch, Plan
from workbench.model.problem import Tier
from workbench.model.results import HAZARDS, Verdict
from workbench.toolchain.compiler import Compiled, CompileError, cache_folder, names, translate_source

KERNELS = Path(__file__).parent / "kernels"

MOST_WARP_INSTRUCTIONS = 200_000
"""Of a block of a planted kernel: ten times what the longest of them needs."""

EMULATOR_SECONDS = 20.0
"""Deadline of a launch of one of them in the emulator, which ends those without end itself."""

Read = Callable[[str], np.ndarray[Any, Any]]
Place = tuple[str, int]
"""Name of a file, and a line counted from 1."""


@dataclass(frozen=True)
class Scenario:
    """A kernel, the problem it is given, and how its answer is judged.

    `storage` holds the inputs by name, one-dimensional; `wrong` is given a function that reads an array back, and says
    what is wrong with the answer, '' where it is right.
    """

    name: str
    source: Path
    defines: Mapping[str, str | int]
    plan: Plan
    arrays: Mapping[str, Array]
    storage: Arrays
    wrong: Callable[[Read], str]


def of_stage(spec: str, problem: str, **parameters: int) -> Scenario:
    """A stage of the catalogue on the problem that the text describes; `parameters` replace some of the stage's."""
    (stage,) = registry.select([spec])
    stage = replace(stage, parameters={**stage.parameters, **parameters})
    parsed = registry.operations()[stage.operation].problem.parse(problem).with_tier(Tier.EXACT)
    case = Case.of(parsed)
    storage = {name: values for name, values in case.storage().items() if not case.arrays[name].output}
    return Scenario(
        spec,
        stage.path,
        stage.defines(parsed),
        stage.plan(parsed),
        case.arrays,
        storage,
        lambda read: failure.message if (failure := case.judge(read)[0]) else "",
    )


def of_kernel(
    name: str,
    *,
    grid: tuple[int, int, int] = (1, 1, 1),
    block: int,
    inputs: Mapping[str, tuple[DType, tuple[int, ...]]],
    outputs: Mapping[str, tuple[DType, tuple[int, ...]]],
    scalars: tuple[int, ...] = (),
    reference: Callable[[Arrays], Arrays],
    defines: Mapping[str, str | int] | None = None,
    cluster: int = 1,
) -> Scenario:
    """`kernels/NAME.cu`: its parameters are the inputs, the outputs and ints.

    Inputs are small whole numbers, so that the answer has to be that of the reference to the bit.
    """
    rng = np.random.default_rng(0)
    arrays = {n: Array(shape, dtype) for n, (dtype, shape) in inputs.items()}
    values = {n: rng.integers(-2, 3, a.shape).astype(a.dtype.numpy) for n, a in arrays.items()}
    expected = reference({n: v.astype(np.float64) for n, v in values.items()})
    arrays |= {n: Array(shape, dtype, output=True) for n, (dtype, shape) in outputs.items()}
    arguments: tuple[Argument, ...] = (*inputs, *outputs, *map(np.int32, scalars))
    launch = Launch(name, grid, (block, 1, 1), arguments, cluster=(cluster, 1, 1))
    return Scenario(
        name,
        KERNELS / f"{name}.cu",
        defines or {},
        Plan((launch,)),
        arrays,
        {n: arrays[n].pack(v) for n, v in values.items()},
        lambda read: ", ".join(
            f"{count} of {right.size} elements of {name} are wrong"
            for name, right in expected.items()
            if (count := np.count_nonzero(arrays[name].view(read(name)) != right))
        ),
    )


@dataclass(frozen=True)
class Change:
    """Text that occurs once in the source, or in a header of it, and what stands there instead."""

    old: str
    new: str


@dataclass(frozen=True)
class PlantedFault:
    """A fault in a real kernel, and what has to be found.

    `number` is that of the class of fault, `name` tells its variants apart, `title` says what is wrong. The verdict has
    to be one of `verdicts`, and its message has to name every line of `at`, each given by text that occurs once in the
    changed sources; of texts in a tuple one is enough. An answer that is merely wrong has no line. `pending`
    says why a fault is not found yet.
    """

    number: int
    name: str
    title: str
    scenario: Callable[[], Scenario]
    changes: tuple[Change, ...]
    verdicts: tuple[Verdict, ...]
    at: tuple[str | tuple[str, ...], ...] = ()
    relaunch: Callable[[Launch], Launch] | None = None
    pending: str = ""

    @property
    def key(self) -> str:
        """`11-no-full-wait`: unique in the catalogue."""
        return f"{self.number}-{self.name}"

    @property
    def where(self) -> str:
        """What the fault is planted in."""
        return f"`{self.planted.name}`" if self.changes else f"launch of `{self.planted.name}`"

    @cached_property
    def planted(self) -> Scenario:
        """The scenario with the fault in it. Raises ValueError where a change does not fit its source once."""
        correct = self.scenario()
        plan = correct.plan
        if self.relaunch is not None:
            plan = Plan(tuple(map(self.relaunch, plan.launches)), plan.scratch)
        source = plant(correct.source, self.changes) if self.changes else correct.source
        return replace(correct, source=source, plan=plan)

    @cached_property
    def lines(self) -> list[list[Place]]:
        """The places that the finding has to name, one of each list. Raises ValueError for text that is not there."""
        texts = {name: path.read_text() for path, name in names(self.planted.source).items()}
        return [[_only_place(texts, t) for t in ((text,) if isinstance(text, str) else text)] for text in self.at]

    def at_its_line(self, outcome: Outcome) -> bool:
        """Whether the outcome names the lines that it has to."""
        return all(any(outcome.names(place) for place in places) for places in self.lines)

    def judge(self, device: Device) -> Outcome:
        """What comes of it on a device; on a GPU the emulator is asked as well, as `harness.verify` does it."""
        outcome = judge(self.planted, device, seed=0)
        if device.name != "cuda" or outcome.verdict == Verdict.COMPILE_ERROR:
            return outcome
        emulator = emulated()
        try:
            closer = judge(self.planted, emulator, seed=0)
        finally:
            emulator.close()
        if outcome.verdict == Verdict.PASS:
            return Outcome(closer.verdict, BY_LUCK + closer.message) if closer.verdict in HAZARDS else outcome
        if closer.verdict == Verdict.PASS:
            return outcome
        return Outcome(*named(outcome.verdict, outcome.message, closer.verdict, closer.message))

    def found_by(self, outcome: Outcome, on_gpu: bool = False) -> bool:
        """Whether the outcome is the right verdict, at the right line; a GPU names no hazard, it only has to fail."""
        right = outcome.verdict != Verdict.PASS if on_gpu else outcome.verdict in self.verdicts
        return right and self.at_its_line(outcome)


def plant(source: Path, changes: tuple[Change, ...]) -> Path:
    """A copy of the source and its headers with the changes made, in a folder named after their contents."""
    texts = {name: path.read_text() for path, name in names(source).items()}
    for change in changes:
        name, _ = _only_place(texts, change.old)
        texts[name] = texts[name].replace(change.old, change.new)
    digest = hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()[:24]
    folder = cache_folder() / "planted" / digest
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        temporary = folder / f"{name}.{os.getpid()}"  # another process may be planting the same
        temporary.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text)
        temporary.replace(folder / name)
    return folder / source.name


def _only_place(texts: Mapping[str, str], text: str) -> Place:
    """Where the text begins."""
    found = [(name, whole.count(text)) for name, whole in texts.items() if text in whole]
    if len(found) != 1 or found[0][1] != 1:
        raise ValueError(f"{text!r} has to occur once in the sources; it occurs in {found or 'none of them'}")
    name = found[0][0]
    return name, texts[name][: texts[name].index(text)].count("\n") + 1


def emulated() -> IsolatedDevice:
    """The emulator for planted kernels, in a process of its own."""
    return IsolatedDevice(partial(EmulatedDevice, MOST_WARP_INSTRUCTIONS), EMULATOR_SECONDS)


@dataclass(frozen=True)
class Outcome:
    """What a device said of one launch, or the harness of one stage."""

    verdict: str
    message: str = ""

    def names(self, place: Place) -> bool:
        """Whether the message names this file and line, as `path:line` or `path(line)`."""
        name, line = place
        return re.search(rf"\b{re.escape(name)}(?::{line}\b|\({line}\))", self.message) is not None


@cache
def _compile(source: Path, defines: tuple[tuple[str, str | int], ...]) -> Compiled | CompileError:
    """Once for all seeds, also where the compiler refuses."""
    try:
        return translate_source(source, dict(defines))
    except CompileError as error:
        return error


def judge(scenario: Scenario, device: Device, seed: int) -> Outcome:
    """Runs the scenario once and judges its answer."""
    compiled = _compile(scenario.source, tuple(scenario.defines.items()))
    if isinstance(compiled, CompileError):
        return Outcome(Verdict.COMPILE_ERROR, str(compiled))
    try:
        bound = device.bind(compiled, scenario.plan, scenario.arrays, scenario.storage, seed)
        try:
            bound.run()
            wrong = scenario.wrong(bound.read)
        finally:
            bound.close()
    except Fault as fault:
        return Outcome(fault.verdict, str(fault))
    return Outcome(Verdict.MISMATCH if wrong else Verdict.PASS, wrong)
