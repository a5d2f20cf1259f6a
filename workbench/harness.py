"""Verifies a stage on a device: draw, solve, judge, shrink, verdict. Timing comes after, never before.

`verify` reads from top to bottom. Problems are drawn, and one after the other solved and judged. The first that fails
ends that, and Hypothesis looks for a smaller one that fails: it draws the same problems once more, knows which have
passed, and changes the one that failed. Then it is said what the failure looks like."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .catalogue import registry
from .devices import Device, Fault, machine_for
from .judge import forensics, soundness
from .judge.case import BadBound, Case, quiet
from .judge.draw import REPEAT_EVERY, Enough, Failed, Problems, Trial, Turns, one_thread
from .judge.launches import broken_invariant, many, repeat, solve
from .judge.reaching import INPUTS, MOST_CODES, OUTCOMES, ROUNDS, Reaching, listed
from .model.arrays import Arrays
from .model.distributions import Distribution
from .model.errors import BadOperation
from .model.problem import Problem, Tier
from .model.results import Agreement, Failure, Verdict, Verification
from .model.stage import Stage
from .report import evidence
from .sandbox import integrity
from .toolchain.compiler import CompileError

if TYPE_CHECKING:
    from .emulator.coverage import Outcomes

__all__ = [
    "REPEAT_EVERY",
    "BadBound",
    "Case",
    "Judgement",
    "agree",
    "drawn",
    "run_case",
    "run_many",
    "run_problem",
    "solve",
    "tampering",
    "trials",
    "verify",
]

SHRINK_SECONDS = 30.0
"""Longest search for a smaller failing problem, after the first failure was found."""

UNSHRINKABLE = (Verdict.COMPILE_ERROR, Verdict.WEAK_CHECK, Verdict.OPERATION_ERROR, Verdict.TIMEOUT)
"""Verdicts for which neither a smaller problem is sought nor the same one tried again: the first three are not about
one problem, and every try of the last would last until the deadline."""

LAUNCHED = {"parameters", "blocks", "grid"}
"""What a condition depends on for which problems are drawn."""

SOLVED_TWICE = (Verdict.NOT_DETERMINISTIC, Verdict.STALE)
"""Verdicts that only a problem has that is solved twice."""

ANY = "any"
"""In the place of the problem of a failure that is not of one."""


class Judgement(NamedTuple):
    """What is wrong with the answer to a problem, the worst error / bound, and how the conditions of the kernels came
    out, where the device notes it."""

    failure: Failure | None
    worst: float = 0.0
    outcomes: Outcomes | None = None


def _here(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    return function(*arguments, **named)


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
    call: Callable[..., Any] = _here,
    before: Callable[[Iterator[Trial]], Iterator[Trial]] = iter,
    strict: bool = False,
) -> Verification:
    """Verify a stage on `examples` random problems that it supports, on these `problems`, or on one given `problem`.

    Every problem is judged in all tiers of the operation (products with a large extent in the last one); one given
    alone in its own. The first one of each tier, if need be enlarged, also serves to show that the operation is sound
    and that the comparison rejects its negative controls. A failure is shrunk to the smallest problem that still
    fails. Those of `again`, which have failed before, come first, each in its own tier; they do not count.
    `on_problem` is called with the number of problems done. `call` calls a function with the arguments behind it, in
    another process where work is done there; the outcome is the same. `before` is given the trials and gives them
    back, and may look ahead. Raises CompilerUnavailable.

    `strict`: a stage that is right, and has a condition that came out one way in all problems, has failed (UNTESTED),
    unless the condition is a bound. Problems that are given show nothing of that kind.

    A stage whose Python code changes what judges it has failed whatever else it does (TAMPERING); what it has changed
    is put back."""
    watch, there, stage = integrity.Watch(), list[str](), stage.on(machine_for(stage, device))
    are_drawn = problem is None and problems is None
    drawing = _drawing(stage, device, examples if problems is None else len(problems), seed)
    search = _Search(stage, device, call, on_problem)
    try:
        with one_thread():
            coming = before(_trials(drawing, stage.misfit(stage.home.architecture), problem, problems))
            more = _reaching(drawing, search, strict) if are_drawn else ()
            search.run(drawing, itertools.chain(coming, more), again, many_times=problems is None)
        result = search.verification(seed, drawing.unsupported)
        if are_drawn and result.verdict is Verdict.PASS:
            result.untested = listed(search.outcomes)
            result.failure = _untested(stage, device, result, examples) if strict else None
            result.verdict = Verdict.UNTESTED if result.failure else result.verdict
        if are_drawn and result.refused == 1 and not stage.misfit(stage.home.architecture):
            result.failure = _refusal(stage, device, result)
        if problem is not None and result.failure and result.failure.problem not in (ANY, str(problem)):
            result.failure.message += f"\n{problem} is right; the other one was solved after it, to see what is kept"
    except integrity.Tampered as error:
        there, result = list(error.args), Verification(Verdict.TAMPERING, seed)
    finally:
        changed = there + watch.restore()
    if changed:
        result.verdict, result.failure = Verdict.TAMPERING, tampering(stage, changed)
    return result


# ----------------------------------------------------------------------------------------------------------------- draw


def trials(stage: Stage[Any], device: Device, *, examples: int, seed: int) -> list[Trial]:
    """What `verify` would try of a stage that is right, in order: its edge cases, then random problems. What code of
    the stage changes meanwhile is put back: `verify` finds it out."""
    watch = integrity.Watch()
    try:
        return list(_drawing(stage, device, examples, seed).trials())
    finally:
        watch.restore()


def drawn(stage: Stage[Any], device: Device, *, examples: int, seed: int) -> list[Problem]:
    """The problems that `verify` would try of a stage that is right, in order: its edge cases, then random ones."""
    return [trial.problem for trial in trials(stage, device, examples=examples, seed=seed)]


def _drawing(stage: Stage[Any], device: Device, examples: int, seed: int) -> Problems:
    stage = stage.on(machine_for(stage, device))
    compiled = partial(device.compile, stage)
    return Problems(registry.operation_of(stage), [stage], device.name, examples, seed, compiled)


def _trials(
    drawing: Problems, misfit: str | None, problem: Problem | None, problems: Sequence[Problem] | None
) -> Iterator[Trial]:
    """Trials of the problem or of the problems that are given and supported, or of those that are drawn; of none where
    a `misfit` is why the device can run the stage for none."""
    if misfit:
        drawing.unsupported[misfit] += 1
    elif problem is None and problems is None:
        yield from drawing.trials()
    elif problem is not None:
        if drawing.supported(problem):
            yield Trial(problem, (problem.tier,), True)
    else:
        turns = Turns()
        for given in dict.fromkeys(filter(drawing.supported, problems or ())):
            yield Trial(given, given.tiers, turns.take(given))


def _reaching(drawing: Problems, search: _Search, strict: bool) -> Iterator[Trial]:
    """Trials of problems for conditions that came out one way in all others; of those on data where `strict`."""
    if drawing.so_far:
        reaching = Reaching(search.stage, lambda p: search.device.compile(search.stage, p).ptx, drawing.so_far)
        codes = reaching.codes(search.seen) if search.one_sided(LAUNCHED | {"data"} if strict else LAUNCHED) else []
        for ptx, solved in ROUNDS * codes[:MOST_CODES] if search.one_sided() else ():
            for problem in filter(drawing.supported, reaching.problems(ptx, solved, search.one_sided())):
                yield Trial(problem, problem.tiers, False, random=True)
        others = itertools.islice(reaching.inputs(codes, search.one_sided({"data"})), INPUTS if strict else 0)
        for problem in filter(drawing.supported, itertools.takewhile(lambda _: search.one_sided({"data"}), others)):
            yield Trial(problem, problem.tiers[-1:], False, random=True)


# ------------------------------------------------------------------------------------------------------ solve and judge


def run_problem(stage: Stage[Any], device: Device, problem: Problem, *, twice: bool = False) -> Judgement:
    """Solve one problem and judge the outcome.

    `twice`: a right answer is asked for again, on fresh memory, and has to be the same (unless the stage says it is not
    deterministic), and then one for other inputs in that memory. Raises CompilerUnavailable; everything that is the
    stage's fault is in the failure."""
    try:
        return run_case(stage, device, Case.of(problem), twice=twice)
    except BadOperation as error:
        return Judgement(unusable(stage, device, str(problem), error))


def run_case(stage: Stage[Any], device: Device, case: Case, *, twice: bool = False) -> Judgement:
    """`run_problem` for a problem whose inputs and reference are there already."""
    problem, worst = case.problem, 0.0
    _outcomes(device)  # of what others have launched there
    try:
        after = solve(stage, device, case)
    except CompileError as error:
        failure: Failure | None = Failure(Verdict.COMPILE_ERROR, str(problem), str(error), "")
    except Fault as fault:
        failure = Failure(fault.verdict, str(problem), str(fault), "", hazards=[*fault.hazards])
    except MemoryError as error:
        message = f"there is not enough memory for what the stage asks for: {error}"
        failure = Failure(Verdict.OUT_OF_MEMORY, str(problem), message, "")
    else:
        failure, worst = case.judge(after.__getitem__)
        if failure is None and (changed := case.changed_inputs(after)):
            message = f"the kernel wrote to its input {', '.join(changed)}"
            failure = Failure(Verdict.INPUT_CHANGED, str(problem), message, "")
        if failure and failure.verdict is Verdict.MISMATCH:
            try:
                with quiet(problem):
                    soundness.check(case)
                    soundness.check_bound(case, case.answers(after))
            except BadOperation as error:
                failure = unusable(stage, device, str(problem), error)
        if failure is None and twice:
            failure = repeat(stage, device, case, after) or broken_invariant(stage, device, case, after)
    if failure:
        failure.replay = replay_command(stage, device, failure.problem)
    return Judgement(failure, worst, _outcomes(device))


def run_many(stage: Stage[Any], device: Device, problem: Problem) -> Judgement:
    """What is wrong where a problem that has been solved is solved many times."""
    _outcomes(device)
    try:
        failure = many(stage, device, Case.of(problem))
    except BadOperation as error:
        return Judgement(unusable(stage, device, str(problem), error))
    if failure:
        failure.replay = replay_command(stage, device, failure.problem)
    return Judgement(failure, 0.0, _outcomes(device))


def _outcomes(device: Device) -> Outcomes | None:
    """How the conditions of the kernels that a device has launched came out since this was last asked."""
    take: Callable[[], Outcomes] | None = getattr(device, "take_outcomes", None)
    return take() if take else None


# --------------------------------------------------------------------------------------------------------------- shrink


@dataclass
class _Search:
    """What one verification has seen so far: problems that passed, and the smallest failure."""

    stage: Stage[Any]
    device: Device
    call: Callable[..., Any]
    on_problem: Callable[[int], None] | None = None
    started: float = field(default_factory=time.monotonic)
    seen: dict[Problem, None] = field(default_factory=dict)
    tiers: Counter[str] = field(default_factory=Counter)
    covered: dict[str, Counter[str]] = field(default_factory=dict)
    worst: float = 0.0
    passed: set[Problem] = field(default_factory=set)
    """Problems, each in a tier, that need not be judged again."""
    controlled: set[Tier] = field(default_factory=set)
    wrong_rejected: int = 0
    failures: dict[Problem, Failure] = field(default_factory=dict)
    """By the problem, in a tier, that was judged."""
    last: Failure | None = None
    failing: Problem | None = None
    """The problem of the last failure."""
    give_up: float = float("inf")
    outcomes: Outcomes = field(default_factory=dict)
    """Of the conditions of all kernels."""

    def run(self, drawing: Problems, trials: Iterator[Trial], again: Sequence[Problem], *, many_times: bool) -> None:
        """Try the problems until one fails, and make that one smaller. Raises CompilerUnavailable."""
        try:
            if not any(self.fails_again(problem) for problem in again):
                failing = next(filter(self.fails, trials), None)
                if failing and self.last and self.last.verdict not in UNSHRINKABLE:
                    self.shrink(failing, drawing)
        except BadOperation as error:
            self.last = unusable(self.stage, self.device, ANY, error)
        if self.last:
            self.confirm(self.last)
        elif self.seen and many_times:
            self.last = self.solved_many_times()

    def fails_again(self, problem: Problem) -> bool:
        """Whether a problem that has failed before, and can be taken, fails in its own tier.

        It leaves no trace where it passes: a record does not depend on what was remembered where it was made."""
        if self.stage.supports(problem) is not None:
            return False
        failure = self.judge(problem, twice=True).failure
        if failure:
            self._failed(problem, failure)
        return failure is not None

    def fails(self, trial: Trial) -> bool:
        """Whether a problem fails in one of the tiers of its trial."""
        problem = trial.problem
        if problem in self.seen:
            return False
        if not all(self._passes(problem.with_tier(tier), trial.twice) for tier in trial.tiers):
            return True
        self.seen[problem] = None
        for name in (*problem.words(), "distribution"):
            self.covered.setdefault(name, Counter())[problem.text(name)] += 1
        if self.on_problem:
            self.on_problem(len(self.seen))
        return False

    def judge(self, problem: Problem, twice: bool) -> Judgement:
        """`run_problem`, here or where work is done."""
        return self._noted(self.call(run_problem, self.stage, self.device, problem, twice=twice))

    def _noted(self, judgement: Judgement) -> Judgement:
        from .emulator import coverage

        coverage.merge(self.outcomes, judgement.outcomes or {})
        return judgement

    def one_sided(self, about: Collection[str] = LAUNCHED) -> set[tuple[str, int]]:
        """Files and lines of conditions that came out one way, by default of those on numbers of a launch."""
        one_way = [c for c, bits in self.outcomes.items() if bits in OUTCOMES and not c.is_bound]
        return {(c.file, c.line) for c in one_way if not c.depends_on.isdisjoint(about)}

    def _passes(self, problem: Problem, twice: bool) -> bool:
        if problem in self.failures:
            self._failed(problem, self.failures[problem])
            return False
        if problem in self.passed or time.monotonic() > self.give_up:
            return True  # enough shrinking: Hypothesis keeps the smallest failure known so far
        failure, worst, _ = self.judge(problem, twice)
        self.tiers[problem.tier] += 1
        self.worst = max(self.worst, 0.0 if failure else worst)
        if failure is None and problem.tier not in self.controlled:
            failure = self._check_controls(problem)
        if failure:
            self._failed(problem, failure)
        else:
            self.passed.add(problem)
        return failure is None

    def _failed(self, problem: Problem, failure: Failure) -> None:
        self.failures[problem] = self.last = failure
        self.failing = _at_fault(problem, failure)
        self.give_up = min(self.give_up, time.monotonic() + SHRINK_SECONDS)

    def _check_controls(self, problem: Problem) -> Failure | None:
        """What is wrong with the comparison, asked once a tier, on a problem that is no large one."""
        try:
            if not soundness.small(problem):
                return None
            self.controlled.add(problem.tier)
            message, rejected = soundness.weakness(problem)
        except BadOperation as error:
            return unusable(self.stage, self.device, str(problem), error)
        self.wrong_rejected += rejected
        if not message:
            return None
        return Failure(Verdict.WEAK_CHECK, str(problem), message, replay_command(self.stage, self.device, str(problem)))

    def shrink(self, trial: Trial, drawing: Problems) -> None:
        """Leave the smallest failure in `last`: of the problems that Hypothesis makes of one that it draws, or, where
        none of these fails, of those that the trial names. It draws the same problems once more, and those that have
        passed are known.

        Raises BadOperation where the strategy of the operation fails, and CompilerUnavailable."""
        trial, before = replace(trial, twice=trial.twice and self._only_twice()), self.last
        raised: list[Exception] = []

        def test(problem: Any) -> None:
            try:
                failed = self.fails(replace(trial, problem=problem, tiers=problem.tiers))
            except Exception as error:  # Hypothesis would take it for a failure, too
                raised.append(error)
                raise Enough from None
            if failed:
                raise Failed

        if trial.random:
            with contextlib.suppress(Failed), drawing.drawn_again(test) as draw:
                draw()
        if raised:
            raise raised[0]
        if self.last is before:
            next((s for s in reversed(trial.smaller) if self.fails(replace(trial, problem=s))), None)
        if (trial.random or trial.smaller) and self.last and time.monotonic() <= self.give_up:
            self.last.smallest = True  # smaller ones have been tried, and there was time for all of them

    def _only_twice(self) -> bool:
        """Whether the problem of the last failure passes where it is solved once."""
        assert self.last is not None and self.failing is not None
        judged = next(problem for problem, failure in self.failures.items() if failure is self.last)
        return self.last.verdict in SOLVED_TWICE or self.judge(judged, twice=False).failure is None

    # ---------------------------------------------------------------------------------------------------------- verdict

    def confirm(self, failure: Failure) -> None:
        """Solve the problem of a failure once more: it may pass, and a mismatch is looked at."""
        if failure.verdict in UNSHRINKABLE or self.failing is None:
            return
        if self.judge(self.failing, twice=True).failure is None:
            failure.message += " (not every time: the same problem then passed)"
        elif failure.verdict is Verdict.MISMATCH:
            self._look(failure)
            failure.message += _tiny_inputs(self.failing)

    def _look(self, smallest: Failure) -> None:
        """Say what the mismatch looks like, on the largest failing problem: on the smallest, many look the same."""
        mismatches = {p: f for p, f in self.failures.items() if f.verdict is Verdict.MISMATCH and f.wrong}
        if not mismatches:
            return
        problem, failure = max(mismatches.items(), key=lambda item: item[1].element_count)
        seen = self.call(_diagnose, self.stage, self.device, _at_fault(problem, failure), failure.wrong[0].output)
        if seen is None:
            return  # the mismatch stands without an explanation
        where = "" if failure.problem == smallest.problem else f" (seen in {failure.problem})"
        smallest.looks_like, smallest.map, smallest.cells = seen.looks_like + where, seen.map, seen.cells

    def solved_many_times(self) -> Failure | None:
        """The failure of one of the smaller problems, solved many times in the last of its tiers: with ordinary inputs,
        where no answer hides another."""
        ordinary = [problem for problem in self.seen if problem.distribution is Distribution.NORMAL]
        by_work = sorted(ordinary or self.seen, key=lambda problem: (problem.cost.flops, str(problem)))
        large = [problem for problem in by_work if _elements(problem) >= TINY] or by_work  # others may be alike
        chosen = large[len(large) // 4]
        if chosen.cost.flops > soundness.MOST_FLOPS:
            return None
        return self._noted(self.call(run_many, self.stage, self.device, chosen.with_tier(chosen.tiers[-1]))).failure

    def verification(self, seed: int, unsupported: Counter[str]) -> Verification:
        """What came of it."""
        return Verification(
            verdict=self.last.verdict if self.last else Verdict.PASS if self.seen else Verdict.UNSUPPORTED,
            seed=seed,
            problems=len(self.seen),
            tiers=dict(self.tiers),
            covered={name: dict(counts) for name, counts in self.covered.items()},
            unsupported=dict(unsupported),
            worst_error=self.worst,
            wrong_rejected=self.wrong_rejected,
            seconds=round(time.monotonic() - self.started, 3),
            failure=self.last,
        )


TINY = 16
"""Elements of all inputs of a problem that are shown with its failure."""


def _tiny_inputs(problem: Problem) -> str:
    """The values of the inputs of a problem that has few, for a message."""
    if _elements(problem) > TINY:
        return ""
    shown, inputs = [name for name, array in problem.arrays().items() if array.given], Case.of(problem).inputs
    return "".join(f"\n{name} = {_written(inputs[name])}" for name in shown)


def _elements(problem: Problem) -> int:
    """Those of all inputs."""
    return sum(array.size for array in problem.arrays().values() if array.given)


def _written(values: np.ndarray[Any, Any]) -> str:
    narrow = values.dtype.kind not in "iubf" or values.dtype.itemsize < 4
    plain = values.astype(np.float32) if narrow and values.dtype.kind not in "iub" else values
    return " ".join(np.array2string(plain, separator=", ", threshold=TINY + 1).split())


def _at_fault(problem: Problem, failure: Failure) -> Problem:
    """The problem of a failure that was found when this one was judged, which may be the one of the next seed."""
    following = replace(problem, seed=problem.seed + 1)
    return following if failure.problem == str(following) else problem


def _diagnose(stage: Stage[Any], device: Device, problem: Problem, output: str) -> forensics.Diagnosis | None:
    try:
        case = Case.of(problem)
        after = solve(stage, device, case)
        with quiet(problem):
            return forensics.diagnose(case.by_rounding(), output, after, lambda other: solve(stage, device, other))
    except (CompileError, Fault, BadOperation):
        return None


# ----------------------------------------------------------------------------------- failures that are not of an answer


def unusable(stage: Stage[Any], device: Device, problem: str, error: BadOperation) -> Failure:
    """The failure of an operation whose Python code cannot be used."""
    verdict = Verdict.WEAK_CHECK if isinstance(error, BadBound) else Verdict.OPERATION_ERROR
    return Failure(verdict, problem, str(error), replay_command(stage, device, problem))


def _refusal(stage: Stage[Any], device: Device, result: Verification) -> Failure:
    """The failure of a stage that the device can run, and that takes no problem."""
    count, why = sum(result.unsupported.values()), evidence.unsupported_reasons(result)
    message = f"the stage takes none of the problems that were drawn, {count} in number: {why}"
    return Failure(Verdict.UNSUPPORTED, ANY, message, replay_command(stage, device, ANY))


def _untested(stage: Stage[Any], device: Device, result: Verification, examples: int) -> Failure | None:
    """The failure of a right stage that has conditions which no problem has tried both ways."""
    said = [evidence.sentence(one, result.problems) for one in result.untested if not one.is_bound]
    replay = f"{replay_command(stage, device, ANY)} --examples {examples} --seed {result.seed} --strict"
    return Failure(Verdict.UNTESTED, ANY, "\n".join(said), replay) if said else None


def replay_command(stage: Stage[Any], device: Device, problem: str) -> str:
    """The command that solves a problem once more, or, where it is `any`, all of them."""
    chosen = "" if problem == ANY else f" --problem '{problem}'"
    return f"workbench verify {stage.spec} --device {device.name}{chosen}"


def tampering(stage: Stage[Any], changed: list[str]) -> Failure:
    """The failure of a stage that has changed these names."""
    message = (
        f"the Python code of the stage has changed {', '.join(changed)}, which judges or times it; no answer and no "
        "time of this stage can be believed"
    )
    return Failure(Verdict.TAMPERING, "any", message, f"workbench verify {stage.spec}")


# ---------------------------------------------------------------------------------------------------------- two devices


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

    Problems have the emulator's sizes. Raises CompilerUnavailable."""
    result = Agreement(stage.operation, stage.name, [first.name, second.name], seed)
    stages = [stage.on(device.machine) for device in (first, second)]
    drawing = Problems(registry.operation_of(stage), stages, "emulator", examples, seed)
    for trial in drawing.trials():
        for tier in trial.problem.tiers:
            result.disagreement = _disagreement(stage, first, second, trial.problem.with_tier(tier))
            if result.disagreement:
                return result
            result.tiers[tier] = result.tiers.get(tier, 0) + 1
        result.problems += 1
        if on_problem:
            on_problem(result.problems)
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
        failure, _ = case.judge(after.__getitem__)
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
