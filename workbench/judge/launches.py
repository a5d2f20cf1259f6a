"""The launches of a stage on fresh memory; again in the same memory, and on related inputs.

A stage launched again has to give the same answer, and another one where its inputs are others. Beside the error of an
answer, invariants of the operation have to hold of it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import numpy as np

from ..devices import BoundPlan, Device, Fault, machine_for
from ..model.arrays import OF_PAGES, Array, Arrays
from ..model.distributions import WITHOUT_NUMBERS, Distribution
from ..model.errors import BadOperation, BadStage, declared, is_control, raised_at
from ..model.launch import Plan
from ..model.problem import Problem, Tier
from ..model.results import Failure, Verdict
from ..model.stage import Stage
from ..toolchain.compiler import CompileError, CompilerUnavailable
from .case import Case, quiet, solved

MOST_SCRATCH = 16 << 30
"""Bytes of all scratch arrays of a plan."""

LAUNCHES, IN_EMULATOR = 100, 30
"""How often one small problem is solved in the same memory: on a GPU, and in the emulator, which takes longer."""

OTHERS, GRIDS = frozenset({2, 5, 9, 14, 20, 27, 35, 44, 54, 65, 77, 90}), (3, 4, 15, 21, 28, 55, 78)
"""Which of these launches solve the problem of the next seed, and which one with another grid: one, two, three and
more launches on the same inputs come before these."""

TIMES, LITTLE, OTHER_GRIDS = (2, 4, 1 / 2, 1 / 4, 16, 64, 256, 1024, 4096, 16384), 2**16, 3
"""By what an extent is multiplied until the grid differs, the most floating-point operations of such a problem, and how
many there are."""

ALTERED = (1 / 8, 1 / 64, 0.0)
"""Of the elements of an input that are others in a launch on nearly the same inputs: one at least."""


def bind(stage: Stage[Any], device: Device, case: Case, order: int) -> BoundPlan:
    """The stage's launches on fresh memory, aligned as `_alignments` says.

    Raises CompileError, and Fault, also for what the stage's own Python code raises."""
    try:
        stage = stage.on(machine_for(stage, device))
        compiled = device.compile(stage, case.problem)
        plan = stage.plan(case.problem)
        _check_plan(plan)
        names = [*case.arrays, *plan.scratch]
        alignments = _alignments(stage.alignment, names, case.problem.seed)
        plan = dataclasses.replace(plan, alignments=alignments, aliases=aliases(case))
    except (CompileError, CompilerUnavailable, OSError, MemoryError, Fault):
        raise
    except BadStage as error:
        verdict = Verdict.OPERATION_ERROR if error.ended else Verdict.LAUNCH_ERROR
        # a stage cannot begin a line of the output
        message = f"the declaration of the stage does not give a launch: {error}".replace("\n", "\n  ")
        raise Fault(verdict, message) from None
    except BaseException as error:
        if is_control(error):
            raise
        message = f"the declaration of the stage does not give a launch:\n{raised_at(error)}".replace("\n", "\n  ")
        raise Fault(Verdict.LAUNCH_ERROR, message) from None
    return device.bind(compiled, plan, case.arrays, case.storage(), case.problem.seed ^ order)


def _check_plan(plan: Plan) -> None:
    """Raises Fault for scratch arrays that are none, or too large for any device, and for a first launch that would
    overlap with what is no launch of the plan."""
    if plan.launches and plan.launches[0].programmatic:
        message = f"{plan.launches[0].kernel} is the first launch of the plan: only a later one can be programmatic"
        raise Fault(Verdict.LAUNCH_ERROR, message)
    for name, array in plan.scratch.items():
        if not isinstance(array, Array):
            raise Fault(Verdict.LAUNCH_ERROR, f"the scratch {name} is {array!r:.80}; it has to be an Array")
    if (total := sum(array.nbytes for array in plan.scratch.values())) > MOST_SCRATCH:
        message = f"the scratch arrays have {total:,} bytes; {MOST_SCRATCH:,} are allowed"
        raise Fault(Verdict.OUT_OF_MEMORY, message)


def _alignments(least: int, names: Sequence[str], seed: int) -> dict[str, int]:
    """What each array's address is a multiple of: for even seeds `least` bytes, and no more; for odd ones that or a
    better alignment, not the same for all, since a kernel may take another path where it finds one. A third of those
    are at the beginning of a page, which meets every condition on an alignment."""
    levels = max(1, (OF_PAGES // least).bit_length())
    drawn = np.random.default_rng(seed).integers(levels + levels // 2, size=len(names))
    chosen = np.minimum(drawn, levels - 1) if seed % 2 else np.zeros(len(names), int)
    return {name: least << int(level) for name, level in zip(names, chosen, strict=True)}


def aliases(case: Case) -> dict[str, str]:
    """Inputs that lie in the memory of another one: in some problems where they hold the same numbers.

    Only where their storage begins alike: other layouts have gaps elsewhere."""
    problem = case.problem
    if problem.distribution is not Distribution.SAME or (problem.seed + tuple(Tier).index(problem.tier)) % 2:
        return {}
    storage, found = case.storage(), dict[str, str]()
    names = [n for n in problem.distributed_inputs() if n in case.inputs and not case.arrays[n].output]
    bits = {name: storage[name].tobytes() for name in names}
    for name in sorted(names, key=lambda n: len(bits[n])):
        for other in sorted(names, key=lambda n: len(bits[n]), reverse=True):
            free = other not in found and other != name and name not in found.values()
            if free and storage[other].dtype == storage[name].dtype and bits[other].startswith(bits[name]):
                found[name] = other
                break
    return found


def solve(stage: Stage[Any], device: Device, case: Case, order: int = 0) -> Arrays:
    """The storage of every array after the stage has run on the case's inputs. Raises CompileError and Fault.

    Another `order` has the warps run in another order, where the device can choose."""
    bound = bind(stage, device, case, order)
    try:
        bound.run()
        return {name: bound.read(name) for name in case.arrays}
    finally:
        bound.close()


def in_one_memory(
    stage: Stage[Any], device: Device, case: Case, inputs: Iterable[Case]
) -> Generator[Arrays, None, None]:
    """The storage of every array after each of several launches, in memory that was made for `case`. Raises Fault."""
    bound = bind(stage, device, case, order=1)
    try:
        for each in inputs:
            yield _solved_in(bound, each)
    finally:
        bound.close()


def _solved_in(bound: BoundPlan, case: Case) -> Arrays:
    """The storage of every array after a launch on the case's inputs, in memory that is there. Raises Fault."""
    bound.refill(case.storage())
    bound.run()
    return {name: bound.read(name) for name in case.arrays}


# ---------------------------------------------------------------------------------------------------------------- again


def repeat(stage: Stage[Any], device: Device, case: Case, first: Arrays) -> Failure | None:
    """Solve a case once more on fresh memory, and then in the same memory the one of the next seed, or this one with a
    few other numbers: what is kept by some of its inputs is told by that. A failure is one of the problem that fails:
    of the next seed where that fails in memory of its own as well."""
    other = Case.of(dataclasses.replace(case.problem, seed=case.problem.seed + 1))
    other = _altered(case, other) or other
    with contextlib.closing(in_one_memory(stage, device, case, (case, other))) as launches:
        try:
            second = next(launches)
        except Fault as fault:
            return _faulted(case, fault, "when launched again on the same inputs")
        if stage.deterministic and (failure := _difference(case, first, second)):
            return failure
        try:
            third = next(launches)
        except Fault as fault:
            return _alone(stage, device, other) or _faulted(case, fault, IN_SAME_MEMORY)
    stale, _ = other.judge(third.__getitem__)
    if stale is None:
        return None
    try:
        # a GPU keeps what a kernel has stored in variables of its module: there such an answer may be wrong for it
        fresh = not device.times or not _kept(stage, device, case, other, third)
    except Fault as fault:
        return _faulted(case, fault, IN_SAME_MEMORY)
    if fresh and (wrong := _alone(stage, device, other)):
        return wrong
    message = (
        f"{stale.message} {IN_SAME_MEMORY}, though the launch before was right: the kernel keeps something from one "
        "launch to the next (by address or by shape, or it does its work once); let a launch depend on its arguments "
        "only"
    )
    return dataclasses.replace(stale, verdict=Verdict.STALE, problem=str(case.problem), message=message)


def _altered(case: Case, other: Case) -> Case | None:
    """The case with a few elements of another one among its inputs, or with two of its elements swapped, which sums do
    not tell, for every second seed; None where inputs hang together, or it takes long to know how large errors may
    be."""
    problem = case.problem
    names = [n for n in problem.distributed_inputs() if n in case.inputs]
    plain = problem.drawn_plainly if problem.tier is Tier.EXACT else problem.tier is Tier.BOUNDED
    if problem.seed % 2 or not plain or not names or aliases(case):
        return None
    rng = np.random.default_rng(problem.seed)
    inputs, share = dict(case.inputs), rng.choice(ALTERED)
    if rng.integers(2):
        name = str(rng.choice(names))
        inputs[name] = _swapped(inputs[name])
    else:
        for name in names if share else [str(rng.choice(names))]:
            there = rng.random(inputs[name].shape) < share
            there.reshape(-1)[int(rng.integers(there.size))] = True
            inputs[name] = np.where(there, other.inputs[name], inputs[name])
    with declared("the operation"), quiet(problem):
        expected = {name: np.asarray(values) for name, values in solved(problem, inputs).items()}
    return dataclasses.replace(case, inputs=inputs, expected=expected, bound=case.bound_for(inputs))


def _swapped(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The values with the least and the largest finite one swapped."""
    made = values.copy()
    flat, sizes = made.reshape(-1), np.nan_to_num(values.astype(np.float64), posinf=0, neginf=0).reshape(-1)
    at = [int(sizes.argmin()), int(sizes.argmax())]
    flat[at] = flat[at[::-1]]
    return made


IN_SAME_MEMORY = "when launched on other inputs in the same memory"


def _faulted(case: Case, fault: Fault, when: str) -> Failure:
    return Failure(fault.verdict, str(case.problem), f"{when}: {fault}", "", hazards=[*fault.hazards])


def _alone(stage: Stage[Any], device: Device, case: Case) -> Failure | None:
    """What is wrong with the answer to a case in memory that no launch before has used."""
    try:
        return case.judge(solve(stage, device, case, order=1).__getitem__)[0]
    except Fault as fault:
        return Failure(fault.verdict, str(case.problem), str(fault), "", hazards=[*fault.hazards])


def many(stage: Stage[Any], device: Device, case: Case) -> Failure | None:
    """Solve a case over and over in one memory: what depends on the number of launches or on chance is told by that.

    Every answer has to be right, and the same one unless the stage says that it is not deterministic. Now and then the
    problem of the next seed is solved in between, and in other memory one that is launched with another grid: what a
    module keeps of a launch is wrong for the next."""
    first: Arrays = {}
    other = Case.of(dataclasses.replace(case.problem, seed=case.problem.seed + 1))
    larger = _with_other_grids(stage, case.problem) or [case]
    count = LAUNCHES if device.times else IN_EMULATOR
    with contextlib.closing(_in_turns(stage, device, case, other, larger, count)) as launches:
        for number, failed, launched in launches:
            try:
                after = launched()
            except Fault as fault:
                if failed is case:
                    return _faulted(case, fault, f"in launch {number} on the same inputs")
                said = f"in launch {number}, which solves {failed.problem}"
                return _alone(stage, device, failed) or _faulted(case, fault, said)
            differs = _difference(case, first, after) if first and failed is case else None
            wrong = failed.judge(after.__getitem__)[0] if differs or failed is not case or not first else None
            if wrong:
                break
            if differs and stage.deterministic:
                return differs
            first = first or after
        else:
            return None
    kept = failed is case and number > 1  # of a first launch nothing is known: it may have inputs of another tier
    return (None if kept else _alone(stage, device, failed)) or _stale_in(number, wrong, case)


def _in_turns(
    stage: Stage[Any], device: Device, case: Case, other: Case, larger: Sequence[Case], count: int
) -> Generator[tuple[int, Case, Callable[[], Arrays]], None, None]:
    """The number of each launch, what it solves, and the launch, which gives the answer: the case, and others in
    their turn. Those with the same arrays have the same memory, and all the same module."""
    one_module: Callable[[], Any] = getattr(device, "one_module", contextlib.nullcontext)
    with one_module(), contextlib.ExitStack() as opened:
        bound: list[tuple[dict[str, Array], BoundPlan]] = []
        for number in range(1, count + 1):
            each = other if number in OTHERS else case
            if number in GRIDS:
                each = larger[GRIDS.index(number) % len(larger)]

            def launched(each: Case = each) -> Arrays:
                plan = next((plan for arrays, plan in bound if arrays == each.arrays), None)
                if plan is None:
                    plan = bind(stage, device, each, order=1)
                    opened.callback(plan.close)
                    bound.append((each.arrays, plan))
                return _solved_in(plan, each)

            yield number, each, launched


def _with_other_grids(stage: Stage[Any], problem: Problem) -> list[Case]:
    """The problem with another extent and another grid, for several grids; none that is much work. Raises
    BadOperation."""
    most, made = max(LITTLE, TIMES[0] * problem.cost.flops), list[Problem]()
    grids: list[Any] = []
    for times, name in itertools.product(TIMES, problem.extents):
        with contextlib.suppress(Exception):  # fields do not go together; of a wrong stage others say so
            grids = grids or [_grids(stage, problem)]
            extent: dict[str, Any] = {name: int(times * getattr(problem, name))}
            one = dataclasses.replace(problem, seed=problem.seed + 2, **extent)
            if one.cost.flops <= most and not stage.supports(one) and (grid := _grids(stage, one)) not in grids:
                made, grids = [*made, one], [*grids, grid]
        if len(made) == OTHER_GRIDS:
            break
    return [Case.of(one) for one in made]


def _grids(stage: Stage[Any], problem: Problem) -> list[tuple[int, int, int]]:
    return [launch.grid for launch in stage.plan(problem).launches]


def _stale_in(number: int, wrong: Failure, case: Case) -> Failure:
    verdict = Verdict.STALE if wrong.verdict is Verdict.MISMATCH else wrong.verdict
    message = _of_launch(number, wrong.message)
    return dataclasses.replace(wrong, verdict=verdict, problem=str(case.problem), message=message)


def _of_launch(number: int, message: str) -> str:
    return (
        f"{message} in launch {number} on the same inputs in the same memory, though launches before it were right: "
        "the answer depends on how often the kernel was launched, on a launch with another grid before, or on chance "
        "(a clock, the number of an SM, which block is first); let a launch depend on its arguments only"
    )


def _kept(stage: Stage[Any], device: Device, case: Case, other: Case, after: Arrays) -> bool:
    """Whether a launch on other inputs left the answer to those of the case, or wrote none. Raises Fault."""

    def again(refilled: Case) -> Arrays:
        first = dataclasses.replace(case, arrays=refilled.arrays)
        _, after = in_one_memory(stage, device, first, (first, refilled))
        return after

    outputs = (name for name, array in case.arrays.items() if array.output)
    return case.judge(after.__getitem__)[0] is None or any(other.unwritten(n, after, again).any() for n in outputs)


def _difference(case: Case, first: Arrays, second: Arrays) -> Failure | None:
    """Compare the bits of the outputs of two launches on the same inputs."""
    for name, array in case.arrays.items():
        if not array.output:
            continue
        one, other = (array.view(after[name]) for after in (first, second))
        bits = [v.view(f"u{v.itemsize}") for v in (one, other)]
        if (differ := np.argwhere(bits[0] != bits[1])).size:
            at = tuple(int(i) for i in differ[0])
            message = (
                f"{len(differ)} of {one.size} elements of {name} differ when it is launched a second time on the same "
                f"inputs: {name}{list(at)} was {one[at]}, then {other[at]}; let every element be summed in a fixed "
                "order, or declare the stage deterministic=False"
            )
            return Failure(Verdict.NOT_DETERMINISTIC, str(case.problem), message, "")
    return None


# ----------------------------------------------------------------------------------------------------------- invariants


def _with_related(case: Case, inputs: Arrays, moved: Callable[[Arrays], Arrays] | None) -> Arrays:
    """The bound of a case, as much larger as that of related inputs is, if those are harder and have one: element by
    element where it is known which belongs to which, else by their largest."""
    found = dict(case.bound)
    with contextlib.suppress(BadOperation):  # there may be NaN where answers do not depend on it
        of_related = case.bound_for(inputs)
        if moved:
            return {name: np.maximum(case.bound[name], related) for name, related in moved(of_related).items()}
        for name, related in of_related.items():
            most, others = float(case.bound[name].max(initial=0.0)), float(related.max(initial=0.0))
            if others > most > 0:
                found[name] = case.bound[name] * (others / most)
    return found


def broken_invariant(stage: Stage[Any], device: Device, case: Case, after: Arrays) -> Failure | None:
    """The failure of an answer of which something does not hold that holds of every right one. Raises BadOperation."""
    if case.problem.tier is Tier.EXACT or case.problem.distribution in WITHOUT_NUMBERS:
        return None  # the answer is the right one to the last bit; or has NaN, of which nothing holds
    first = case.answers(after)
    with declared("invariants of the operation"):
        invariants = case.problem.invariants()
    for invariant in invariants:
        second, about = first, "the answer"
        with declared(f"the invariant `{invariant.name}` of the operation"):
            inputs = invariant.related(case.inputs) if invariant.related else None
        if inputs is not None:
            about = "the answers to the problem's inputs and to related ones"
            try:
                second = case.answers(solve(stage, device, dataclasses.replace(case, inputs=inputs)))
            except Fault as fault:
                message = f"on the related inputs of the invariant `{invariant.name}`: {fault}"
                return Failure(fault.verdict, str(case.problem), message, "", hazards=[*fault.hazards])
        with declared(f"the invariant `{invariant.name}` of the operation"):
            holds = invariant.holds(first, second, case.bound)
            if not holds and inputs is not None:
                holds = invariant.holds(first, second, _with_related(case, inputs, invariant.moved))
        if not holds:
            message = f"the invariant `{invariant.name}` does not hold of {about}, though every element is near enough"
            return Failure(Verdict.MISMATCH, str(case.problem), message, "")
    return None
