"""Verifies a stage on a device: random problems, two tiers, the smallest failure. Timing comes after, never before."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import hypothesis
import numpy as np
from hypothesis import HealthCheck, Phase

from .catalogue import registry
from .checks import replay
from .devices import BoundPlan, Device, Fault
from .judge import forensics, integrity
from .judge.comparison import Comparison, accepts, compare
from .model.arrays import BEST_ALIGNMENT, Array, Arrays
from .model.declared import BadOperation, arrays_like, declared, where
from .model.operation import Operation
from .model.problem import Problem, Tier
from .model.results import Agreement, Failure, Verdict, Verification
from .model.stage import Stage
from .records import environment
from .toolchain.compiler import CompileError, CompilerUnavailable, compile_stage

if TYPE_CHECKING:
    from .workers.cluster import Cluster

SHRINK_SECONDS = 30.0
"""Longest search for a smaller failing problem, after the first failure was found."""

REPEAT_EVERY = 5
"""Of so many problems one is solved twice, to see whether the answer is the same."""

TOGETHER = 2 * REPEAT_EVERY
"""So many problems make a task for a cluster: one of few milliseconds would not be worth sending."""

Judgement = tuple[Failure | None, float]
"""What is wrong with the answer to a problem, and the worst error / bound."""

CONTROL_EXTENT, CONTROL_FLOPS = 16, 2**25
"""The check of negative controls enlarges extents below the first (a negative control of a tiny problem may be right by
chance) and takes no problem with more work than the second."""


ANY = "any"
"""In the place of the problem of a failure that is not of one."""


class BadBound(BadOperation):
    """The error bound of an operation is none; the message says what it has to be."""


def _checked(bound: Any, expected: Arrays) -> Arrays:
    """The bound, for every element of every output a number that is not negative. Raises BadBound."""
    if not isinstance(bound, dict) or set(bound) != set(expected):
        raise BadBound(f"bound of the operation gives {bound!r}; it has to give a dict with {', '.join(expected)}")
    for name, right in expected.items():
        values = bound[name]
        if not isinstance(values, np.ndarray) or values.dtype.kind != "f" or values.shape != right.shape:
            what = f"{values.dtype} of shape {values.shape}" if isinstance(values, np.ndarray) else repr(values)
            raise BadBound(f"bound of {name} is {what}; it has to be an array of floats of shape {right.shape}")
        if not (values >= 0).all():
            raise BadBound(f"bound of {name} has elements that are negative or NaN")
    return bound


@dataclass(frozen=True)
class Case:
    """A problem with its inputs, float64 reference and error bound."""

    problem: Problem
    arrays: dict[str, Array]
    inputs: Arrays
    expected: Arrays
    bound: Arrays

    @classmethod
    def of(cls, problem: Problem) -> Case:
        """Make the inputs of a problem and solve it by the reference. Raises BadOperation."""
        with declared("the operation"):
            arrays, _, _ = problem.arrays(), problem.label, problem.cost
            shapes = {name: array.shape for name, array in arrays.items()}
            outputs = {name: shape for name, shape in shapes.items() if arrays[name].output}
            inputs = problem.inputs()
            arrays_like("inputs of the operation", inputs, {n: s for n, s in shapes.items() if n not in outputs})
            expected = arrays_like("reference of the operation", problem.reference(inputs), outputs)
            return cls(problem, arrays, inputs, expected, _checked(problem.bound(inputs, expected), expected))

    def storage(self) -> Arrays:
        """Fresh storage for every array: inputs with their padding unwritten, outputs unwritten."""
        return {
            name: array.poisoned() if array.output else array.pack(self.inputs[name])
            for name, array in self.arrays.items()
        }

    def judge(self, read: Callable[[str], np.ndarray[Any, Any]]) -> tuple[Failure | None, float]:
        """Compare every output that `read` returns; a failure without replay command, and the worst error / bound."""
        worst = 0.0
        for name, array in self.arrays.items():
            if not array.output:
                continue
            storage = read(name)
            result = compare(name, array, array.view(storage), self.expected[name], self.bound[name], self.problem.tier)
            worst = max(worst, result.worst)
            if result.wrong_count:
                return self._mismatch(name, result), worst
            if stray := _written_padding(array, storage):
                message = f"{stray} elements between the rows of {name} were written; they are not the kernel's"
                return Failure(Verdict.OUT_OF_BOUNDS, str(self.problem), message, ""), worst
        return None, worst

    def negative_controls(self) -> tuple[int, list[str]]:
        """How many of the problem's negative controls the comparison rejects, and the names of those that it accepts.

        Controls that round to the right answer are neither. Raises BadOperation.
        """
        shapes = {name: array.shape for name, array in self.arrays.items() if array.output}
        with declared("negative_controls of the operation"):
            answers = {
                name: arrays_like(f"negative_controls, for `{name}`,", answer, shapes)
                for name, answer in self.problem.negative_controls(self.inputs, self.expected).items()
            }
        verdicts = {
            name: accepts(self.arrays, answer, self.expected, self.bound, self.problem.tier)
            for name, answer in answers.items()
        }
        return sum(v is False for v in verdicts.values()), [name for name, v in verdicts.items() if v]

    def changed_inputs(self, after: Arrays) -> list[str]:
        """The inputs whose storage differs from what the stage was given, each with its first changed element."""
        before, found = self.storage(), []
        for name, array in self.arrays.items():
            if array.output or after[name].tobytes() == before[name].tobytes():
                continue
            bits = [s.view(np.uint8).reshape(-1, array.dtype.itemsize) for s in (before[name], after[name])]
            first = int(np.flatnonzero((bits[0] != bits[1]).any(axis=1))[0])
            found.append(f"{name} ({name}[{first}] of its storage was {before[name][first]}, now {after[name][first]})")
        return found

    def _mismatch(self, name: str, result: Comparison) -> Failure:
        message = f"{result.wrong_count} of {result.element_count} elements of {name} are wrong"
        failure = Failure(Verdict.MISMATCH, str(self.problem), message, "", result.wrong)
        failure.wrong_count, failure.element_count = result.wrong_count, result.element_count
        return failure


def _written_padding(array: Array, storage: np.ndarray[Any, Any]) -> int:
    """How many elements between the rows no longer hold what was put there."""
    if array.row_stride == array.shape[-1]:
        return 0
    untouched = array.dtype.unwritten(storage)
    array.view(untouched)[...] = True
    return int((~untouched).sum())


def _bind(stage: Stage[Any], device: Device, case: Case, order: int) -> BoundPlan:
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
    bound = _bind(stage, device, case, order)
    try:
        bound.run()
        return {name: bound.read(name) for name in case.arrays}
    finally:
        bound.close()


def run_problem(stage: Stage[Any], device: Device, problem: Problem, *, twice: bool = False) -> Judgement:
    """Solve one problem and judge the outcome: the failure or None, and the worst error / bound.

    `twice`: a right answer is asked for again, on fresh memory, and has to be the same (unless the stage says it is not
    deterministic), and then one for other inputs in that memory. Raises CompilerUnavailable; everything that is the
    stage's fault is in the failure.
    """
    try:
        return run_case(stage, device, Case.of(problem), twice=twice)
    except BadOperation as error:
        return _unusable(stage, device, str(problem), error), 0.0


def _unusable(stage: Stage[Any], device: Device, problem: str, error: BadOperation) -> Failure:
    """The failure of an operation whose Python code cannot be used."""
    verdict = Verdict.WEAK_CHECK if isinstance(error, BadBound) else Verdict.OPERATION_ERROR
    return Failure(verdict, problem, str(error), _again(stage, device, problem))


def _again(stage: Stage[Any], device: Device, problem: str) -> str:
    """The command that solves a problem once more, or, where it is `any`, all of them."""
    chosen = "" if problem == ANY else f" --problem '{problem}'"
    return f"workbench verify {stage.spec} --device {device.name}{chosen}"


def run_case(stage: Stage[Any], device: Device, case: Case, *, twice: bool = False) -> Judgement:
    """`run_problem` for a problem whose inputs and reference are there already."""
    problem, worst = case.problem, 0.0
    try:
        after = solve(stage, device, case)
    except CompileError as error:
        failure: Failure | None = Failure(Verdict.COMPILE_ERROR, str(problem), str(error), "")
    except Fault as fault:
        failure = Failure(fault.verdict, str(problem), str(fault), "")
    else:
        failure, worst = case.judge(lambda name: after[name])
        if failure is None and (changed := case.changed_inputs(after)):
            message = f"the kernel wrote to its input {', '.join(changed)}"
            failure = Failure(Verdict.INPUT_CHANGED, str(problem), message, "")
        if failure is None and twice:
            failure = _repeat(stage, device, case, after)
    if failure:
        failure.replay = _again(stage, device, failure.problem)
    return failure, worst


def _repeat(stage: Stage[Any], device: Device, case: Case, first: Arrays) -> Failure | None:
    """Solve a case once more on fresh memory, and then another one with its inputs in the same memory."""
    other = Case.of(dataclasses.replace(case.problem, seed=case.problem.seed + 1))
    try:
        second, third = _in_one_memory(stage, device, case, (case, other))
        if stage.deterministic and (failure := _difference(case, first, second)):
            return failure
        stale, _ = other.judge(third.__getitem__)
        if stale is None:
            return None
        if not _kept(case, third):
            (alone,) = _in_one_memory(stage, device, case, (other,))
            wrong, _ = other.judge(alone.__getitem__)
            if wrong:  # without a launch before it, too
                return dataclasses.replace(wrong, problem=str(case.problem))
    except Fault as fault:
        return Failure(fault.verdict, str(case.problem), f"when launched again, on these inputs or others: {fault}", "")
    message = (
        f"{stale.message} when launched on other inputs in the same memory, though the launch before was right: the "
        "kernel keeps something from one launch to the next (by address or by shape, or it does its work once); let a "
        "launch depend on its arguments only"
    )
    return dataclasses.replace(stale, verdict=Verdict.STALE, problem=str(case.problem), message=message)


def _in_one_memory(stage: Stage[Any], device: Device, case: Case, inputs: Sequence[Case]) -> list[Arrays]:
    """The storage of every array after each of several launches, in memory that was made for `case`. Raises Fault."""
    bound = _bind(stage, device, case, order=1)
    after = []
    try:
        for each in inputs:
            bound.refill(each.storage())
            bound.run()
            after.append({name: bound.read(name) for name in case.arrays})
    finally:
        bound.close()
    return after


def _kept(case: Case, after: Arrays) -> bool:
    """Whether a launch on other inputs left the answer to those of the case, or wrote none."""
    unwritten = any(a.dtype.unwritten(a.view(after[name])).any() for name, a in case.arrays.items() if a.output)
    return unwritten or case.judge(after.__getitem__)[0] is None


def _difference(case: Case, first: Arrays, second: Arrays) -> Failure | None:
    """Compare the bits of the outputs of two launches on the same inputs."""
    for name, array in case.arrays.items():
        if not array.output:
            continue
        one, other = (np.ascontiguousarray(array.view(after[name])) for after in (first, second))
        bits = [v.view(np.uint8).reshape(*v.shape, v.itemsize) for v in (one, other)]
        if (differ := np.argwhere((bits[0] != bits[1]).any(axis=-1))).size:
            at = tuple(int(i) for i in differ[0])
            message = (
                f"{len(differ)} of {one.size} elements of {name} differ when it is launched a second time on the same "
                f"inputs: {name}{list(at)} was {one[at]}, then {other[at]}; let every element be summed in a fixed "
                "order, or declare the stage deterministic=False"
            )
            return Failure(Verdict.NOT_DETERMINISTIC, str(case.problem), message, "")
    return None


def check_negative_controls(stage: Stage[Any], device: Device, problem: Problem) -> tuple[Failure | None, int]:
    """Would the comparison notice a broken kernel? A failure where it would not, and how many answers it rejected."""
    try:
        asked = _telling(problem)
        rejected, accepted = Case.of(asked).negative_controls()
    except BadOperation as error:
        return _unusable(stage, device, str(problem), error), 0
    if accepted:
        message = (
            f"the comparison accepts the negative control `{'`, `'.join(accepted)}` of {asked}; "
            "the bound of the operation has to be so tight that it is rejected"
        )
    elif not rejected:
        message = (
            "negative_controls of the operation has none that differs from the right one; "
            "it has to give some, so that the comparison can be tried on them"
        )
    else:
        return None, rejected
    return Failure(Verdict.WEAK_CHECK, str(problem), message, _again(stage, device, str(problem))), rejected


def _telling(problem: Problem) -> Problem:
    """The problem, its extents enlarged until its negative controls are certain to be wrong."""
    enlarged: dict[str, Any] = {name: max(getattr(problem, name), CONTROL_EXTENT) for name in problem.extents}
    with declared(f"{problem} with extents of {CONTROL_EXTENT} at least, on which negative controls are tried,"):
        return dataclasses.replace(problem, **enlarged)


class _Failed(Exception):
    """Tells Hypothesis that a problem failed; the evidence is in the session."""


UNSHRINKABLE = (Verdict.COMPILE_ERROR, Verdict.WEAK_CHECK, Verdict.OPERATION_ERROR, Verdict.TIMEOUT)
"""Verdicts for which neither a smaller problem is sought nor the same one tried again: the first three are not about
one problem, and every try of the last would last until the deadline."""


@dataclass
class _Session:
    """What one verification has seen so far."""

    stage: Stage[Any]
    device: Device
    wanted: int
    on_problem: Callable[[int], None] | None
    seen: set[Problem] = field(default_factory=set)
    tiers: Counter[str] = field(default_factory=Counter)
    covered: dict[str, Counter[str]] = field(default_factory=dict)
    unsupported: Counter[str] = field(default_factory=Counter)
    worst: float = 0.0
    controlled: set[Tier] = field(default_factory=set)
    wrong_rejected: int = 0
    ahead: Ahead | None = None
    failures: dict[Problem, Failure] = field(default_factory=dict)
    last: Failure | None = None
    give_up: float = float("inf")

    def wants_more(self) -> bool:
        """Whether there were too few problems so far, or a failure is being made smaller."""
        return len(self.seen) < self.wanted or bool(self.failures)

    def supported(self, problem: Problem) -> bool:
        """Whether the stage takes the problem; why not is counted."""
        reason = self.stage.supports(problem, self.device.architecture)
        if reason:
            self.unsupported[reason] += 1
        return reason is None

    def try_problem(self, problem: Problem, tiers: tuple[Tier, ...] = tuple(Tier)) -> bool:
        """Judge a supported problem in the given tiers; whether there should be more. Raises _Failed."""
        if problem in self.seen:
            return self.wants_more()
        for tier in tiers:
            self._try_tier(problem.with_tier(tier))
        self.seen.add(problem)
        for name in problem.choices:
            self.covered.setdefault(name, Counter())[getattr(problem, name)] += 1
        if self.on_problem:
            self.on_problem(len(self.seen))
        return self.wants_more()

    def judge(self, problem: Problem, twice: bool) -> Judgement:
        """`run_problem`, here or where work is done ahead."""
        if self.ahead:
            return self.ahead.judge(problem, twice)
        return run_problem(self.stage, self.device, problem, twice=twice)

    def try_again(self, problem: Problem) -> None:
        """Judge a problem in its own tier that has failed before, where it can be taken. Raises _Failed.

        It leaves no trace where it passes: a record does not depend on what was remembered where it was made.
        """
        if self.stage.supports(problem, self.device.architecture) is None:
            failure, _ = self.judge(problem, twice=True)
            if failure:
                self.failures[problem] = self.last = failure
                raise _Failed

    def repeats(self) -> bool:
        """Whether the next problem is solved twice: the first is, every few after it, and all while such a failure is
        made smaller."""
        sought = self.last is not None and self.last.verdict in (Verdict.NOT_DETERMINISTIC, Verdict.STALE)
        return sought or len(self.seen) % REPEAT_EVERY == 0

    def _check_controls(self, problem: Problem) -> Failure | None:
        """`check_negative_controls`, once a tier, on a problem that is no large one."""
        try:
            if _telling(problem).cost.flops > CONTROL_FLOPS:
                return None
        except BadOperation as error:
            return _unusable(self.stage, self.device, str(problem), error)
        self.controlled.add(problem.tier)
        failure, rejected = check_negative_controls(self.stage, self.device, problem)
        self.wrong_rejected += rejected
        return failure

    def _try_tier(self, problem: Problem) -> None:
        failure = self.failures.get(problem)
        if failure is None:
            if time.monotonic() > self.give_up:
                return  # enough shrinking: Hypothesis keeps the smallest failure known so far
            failure, worst = self.judge(problem, twice=self.repeats())
            self.tiers[problem.tier] += 1
            self.worst = max(self.worst, 0.0 if failure else worst)
            if failure is None and problem.tier not in self.controlled:
                failure = self._check_controls(problem)
        if failure:
            self.failures[problem] = self.last = failure
            self.give_up = min(self.give_up, time.monotonic() + SHRINK_SECONDS)
            if failure.verdict in UNSHRINKABLE:
                self.give_up = 0.0
            raise _Failed


@dataclass
class Ahead:
    """Has a cluster solve the problems of a stage before its verification asks for them."""

    cluster: Cluster
    stage: Stage[Any]
    pending: dict[tuple[Problem, bool], tuple[Future[list[Judgement]], int]]

    @classmethod
    def of(cls, cluster: Cluster, stage: Stage[Any], *, examples: int, seed: int, problem: Problem | None) -> Ahead:
        """What `verify` with the same arguments asks of a stage that is right. Raises OSError, ClusterUnavailable."""
        made = cls(cluster, stage, {})
        wanted: list[tuple[Problem, bool]] = []
        with contextlib.suppress(BadOperation):  # the verification comes to it, too, and says so
            if problem is not None:
                supported = stage.supports(problem, cluster.device.architecture) is None
                wanted = [(problem, True)] if supported else []
            else:
                found = drawn(stage, cluster.device, examples=examples, seed=seed)
                wanted = [(p.with_tier(tier), i % REPEAT_EVERY == 0) for i, p in enumerate(found) for tier in Tier]
        for first in range(0, len(wanted), TOGETHER):
            part = wanted[first : first + TOGETHER]
            future = cluster.submit(_run_problems, stage, cluster.device, part)
            made.pending |= {which: (future, place) for place, which in enumerate(part)}
        return made

    def judge(self, problem: Problem, twice: bool) -> Judgement:
        """`run_problem` on a worker, at once where it was not foreseen: while a failure is made smaller."""
        future, place = self.pending.get((problem, twice), (None, 0))
        if future and len(judged := future.result()) > place:
            return judged[place]
        judgement: Judgement = self.call(run_problem, self.stage, self.cluster.device, problem, twice=twice)
        return judgement

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What is to be done on a worker now; nothing else of this stage is needed any more."""
        self.cancel()
        return self.cluster.call(function, *arguments, **named)

    def cancel(self) -> None:
        """Give up what has not been asked for."""
        while self.pending:
            self.pending.popitem()[1][0].cancel()


def _run_problems(stage: Stage[Any], device: Device, problems: Sequence[tuple[Problem, bool]]) -> list[Judgement]:
    """`run_problem` of each, up to the first that fails."""
    judged: list[Judgement] = []
    for problem, twice in problems:
        judged.append(run_problem(stage, device, problem, twice=twice))
        if judged[-1][0]:
            break
    return judged


def verify(
    stage: Stage[Any],
    device: Device,
    *,
    examples: int = 50,
    seed: int = 0,
    problem: Problem | None = None,
    problems: Sequence[Problem] | None = None,
    again: Sequence[Problem] = (),
    on_problem: Callable[[int], None] | None = None,
    ahead: Ahead | None = None,
) -> Verification:
    """Verify a stage on `examples` random problems that it supports, on these `problems`, or on one given `problem`.

    Every problem is judged in both tiers; one given alone in its own. The first one of each tier, if need
    be enlarged, also serves to show that the comparison rejects negative controls. A failure is shrunk to the smallest
    problem that still fails. Those of `again`, which have failed before, come first, each in its own tier; they do not
    count. `on_problem` is called with the number of problems done. Where work is done `ahead`, the device is that of a
    cluster's workers, and the outcome the same. Raises CompilerUnavailable.

    On a GPU a failure is looked at in the emulator as well, and meanwhile the stage solves a few small problems there:
    a hazard that is found fails it. A stage whose Python code changes what judges it has failed whatever else it does
    (TAMPERING); what it has changed is put back.
    """
    watch = integrity.Watch()
    session = _Session(stage, device, examples if problems is None else len(problems), on_problem, ahead=ahead)
    there: list[str] = []
    search: replay.HazardSearch | None = None
    hazard: Failure | None = None
    try:
        with environment.few_threads():
            if device.name == "cuda" and problems is None:
                search = replay.HazardSearch(stage, seed)
            result = _verify(session, seed, problem, problems, again)
            if search and result.verdict is Verdict.PASS:
                hazard = search.found()
    except integrity.Tampered as error:
        there, result = list(error.args), Verification(Verdict.TAMPERING, seed)
    finally:
        if ahead:
            ahead.cancel()
        if search:
            search.close()
    if changed := there + watch.restore():
        result.verdict = Verdict.TAMPERING
        result.failure = tampering(stage, changed)
    elif hazard:
        result.verdict, result.failure = hazard.verdict, hazard
    elif device.name == "cuda" and result.failure:
        replay.look_closer(stage, result.failure)
    return result


def tampering(stage: Stage[Any], changed: list[str]) -> Failure:
    """The failure of a stage that has changed these names."""
    message = (
        f"the Python code of the stage has changed {', '.join(changed)}, which judges or times it; no answer and no "
        "time of this stage can be believed"
    )
    return Failure(Verdict.TAMPERING, "any", message, f"workbench verify {stage.spec}")


def _verify(
    session: _Session,
    seed: int,
    problem: Problem | None,
    problems: Sequence[Problem] | None,
    again: Sequence[Problem],
) -> Verification:
    stage, device = session.stage, session.device
    operation: Operation[Any] = registry.operation_of(stage)
    started = time.monotonic()
    try:
        for failed_before in again:
            session.try_again(failed_before)
        if problem is not None:
            if session.supported(problem):
                session.try_problem(problem, (problem.tier,))
        elif problems is not None:
            for given in filter(session.supported, problems):
                session.try_problem(given)
        else:
            for edge_case in filter(session.supported, stage.edge_cases[: session.wanted]):
                session.try_problem(edge_case)
            if session.wants_more():
                _draw(stage, device.name, session.supported, session.try_problem, session.wanted, seed)
    except _Failed:
        pass  # the session knows
    except BadOperation as error:
        session.last = _unusable(stage, device, ANY, error)
    if session.last and session.last.verdict not in UNSHRINKABLE:
        repeated, _ = session.judge(operation.problem.parse(session.last.problem), twice=True)
        if repeated is None:
            session.last.message += " (not every time: the same problem then passed)"
        elif session.last.verdict is Verdict.MISMATCH:
            _look(session)
    return Verification(
        verdict=session.last.verdict if session.last else Verdict.PASS if session.seen else Verdict.UNSUPPORTED,
        seed=seed,
        problems=len(session.seen),
        tiers=dict(session.tiers),
        covered={name: dict(counts) for name, counts in session.covered.items()},
        unsupported=dict(session.unsupported),
        worst_error=session.worst,
        wrong_rejected=session.wrong_rejected,
        seconds=round(time.monotonic() - started, 3),
        failure=session.last,
    )


def _look(session: _Session) -> None:
    """Say what the mismatch looks like, on the largest failing problem: on the smallest, many look the same."""
    smallest = session.last
    mismatches = {p: f for p, f in session.failures.items() if f.verdict is Verdict.MISMATCH}
    if smallest is None or not mismatches:
        return
    problem, failure = max(mismatches.items(), key=lambda item: item[1].element_count)
    call = session.ahead.call if session.ahead else _here
    seen = call(_diagnose, session.stage, session.device, problem, failure.wrong[0].output)
    if seen is None:
        return  # the mismatch stands without an explanation
    where = "" if failure.problem == smallest.problem else f" (seen in {failure.problem})"
    smallest.looks_like, smallest.map, smallest.cells = seen.looks_like + where, seen.map, seen.cells


def _here(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _diagnose(stage: Stage[Any], device: Device, problem: Problem, output: str) -> forensics.Diagnosis | None:
    try:
        case = Case.of(problem)
        after = solve(stage, device, case)
        return forensics.diagnose(case, output, after, lambda other: solve(stage, device, other))
    except (CompileError, Fault, BadOperation):
        return None


def drawn(stage: Stage[Any], device: Device, *, examples: int, seed: int) -> list[Problem]:
    """The problems that `verify` would try of a stage that is right, in order: its edge cases, then random ones."""

    def supported(problem: Problem) -> bool:
        return stage.supports(problem, device.architecture) is None

    def take(problem: Problem) -> bool:
        found[problem] = None
        return len(found) < examples

    found: dict[Problem, None] = dict.fromkeys(filter(supported, stage.edge_cases[:examples]))
    if len(found) < examples:
        _draw(stage, device.name, supported, take, examples, seed)
    return list(found)


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
        for tier in Tier:
            result.disagreement = _disagreement(stage, first, second, problem.with_tier(tier))
            if result.disagreement:
                return False
            result.tiers[tier] = result.tiers.get(tier, 0) + 1
        seen.add(problem)
        result.problems = len(seen)
        if on_problem:
            on_problem(len(seen))
        return len(seen) < examples

    _draw(stage, "emulator", supported, property_, examples, seed)
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
            one, other = (np.ascontiguousarray(array.view(after[name])) for after in outputs)
            if array.output and one.tobytes() != other.tobytes():
                return f"{problem}: {name} differs in its bits"
    return ""


def _problems(stage: Stage[Any], device: str) -> hypothesis.strategies.SearchStrategy[Any]:
    """Problems of a size that suits the device, many of them near multiples of the stage's tiles."""
    operation: Operation[Any] = registry.operation_of(stage)
    size = operation.emulator_size if device == "emulator" else operation.cuda_size
    return operation.problems(size, tuple(sorted(set(stage.parameters.values()))))


class _Enough(BaseException):
    """Leaves Hypothesis, which takes every Exception for a failure of the test."""


def _draw(
    stage: Stage[Any],
    device: str,
    supported: Callable[[Any], bool],
    property_: Callable[[Any], bool],
    wanted: int,
    seed: int,
) -> None:
    """Run a property on supported problems for a device that Hypothesis draws from the seed until it wants no more,
    which is after `wanted` of them if no two are the same. Raises BadOperation where the operation's strategy fails."""
    what = f"problems of the operation, {where(registry.operation_of(stage).problems)},"
    with declared(what):
        strategy = _problems(stage, device)
    raised: list[Exception] = []

    def ended(function: Callable[[Any], bool]) -> Callable[[Any], bool]:
        """The function, which ends the drawing by whatever it raises: Hypothesis would try again, and say more."""

        def called(problem: Any) -> bool:
            try:
                return function(problem)
            except _Failed:
                raise
            except Exception as error:
                raised.append(error)
                raise _Enough from None

        return called

    wants_more = ended(property_)

    def test_one(problem: Any) -> None:
        if not wants_more(problem):
            raise _Enough

    test = hypothesis.given(strategy.filter(ended(supported)))(test_one)
    test = hypothesis.settings(
        max_examples=2 * wanted,  # duplicates do not count
        database=None,
        deadline=None,
        verbosity=hypothesis.Verbosity.quiet,
        report_multiple_bugs=False,
        print_blob=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )(test)
    with contextlib.suppress(hypothesis.errors.Unsatisfiable, _Enough), warnings.catch_warnings():
        # not one problem was supported; and Dask's threads use `random` while strategies are drawn from
        warnings.filterwarnings("ignore", "Do not use the `random` module")
        try:
            hypothesis.seed(seed)(test)()
        except (_Failed, hypothesis.errors.Unsatisfiable):
            raise
        except Exception as error:
            with declared(what):
                raise error
    if raised:
        raise raised[0]
