"""Finds the parameters with which a stage is fastest: every configuration is verified before it is timed.

Configurations are compiled in parallel on the CPU, verified, and timed in turns with the declared parameters, so that a
drifting clock does not matter; optuna proposes which comes next. A last round has the best of them compete at length.
Without a GPU configurations are compiled and verified, and nothing is timed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import re
import signal
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from .. import harness
from ..catalogue import registry
from ..devices import Device, Fault
from ..harness import Case
from ..judge import controls, integrity
from ..model.arrays import Arrays
from ..model.problem import Problem, Tier
from ..model.results import Conditions, Failure, Measurement, Timing, Verdict
from ..model.stage import Stage
from ..records.tuned import Entry, Key, Table, Trial, TuningError, problem_class
from ..report import derived
from ..toolchain import occupancy
from ..toolchain.compiler import CompileError, compile_stage
from ..workers.cluster import Cluster, Lost
from . import timing
from .timing import Effort

SEARCH_SHARE = 0.75
"""Part of the budget after which nothing new is tried: the rest is for the last round."""

SHORT = Effort(
    0.01,
    seconds=0.05,
    least=4,
    enough=8,
    most=16,
    warm_up_seconds=0.02,
    most_warm_up_seconds=0.02,  # in turns, so that a clock that is not steady does no harm
)
"""How long a configuration is timed at first."""

FINALISTS, NEAR = 3, 1.05
"""So many configurations, and none that took so many times as long as the best, compete in the last round."""

GAIN = 0.005
"""A configuration has to be faster by this part than the declared one to take its place."""

SMALL_PROBLEMS = 6
"""Verified with every configuration, beside the problem that is tuned for."""

KNOWN_ANSWERS = 4
"""Most right answers that are kept for comparison."""

BAD = 10.0
"""What the search is told of a configuration that cannot be used: so many times as slow as the declared one."""

PROPOSALS = 5
"""Tries to have optuna propose a configuration that is new and allowed, before one is drawn."""


@dataclass
class Tuning:
    """What came out of one search. `allowed` counts the configurations that the stage's constraint lets through,
    `excluded` the others by reason. `timed` is False on the emulator. `trouble` says what went wrong with the declared
    parameters or in the last round; `interrupted`, that the user stopped the search, who keeps what was found."""

    spec: str
    problem: str
    problem_class: str
    timed: bool
    allowed: int
    excluded: dict[str, int] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    best: Entry | None = None
    trouble: str = ""
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def rejected(self) -> list[Trial]:
        """Those that cannot be used."""
        return [t for t in self.trials if t.reason]

    @property
    def left(self) -> int:
        """How many configurations were not tried."""
        return self.allowed - len(self.trials)

    @property
    def ok(self) -> bool:
        """Whether a best configuration was found; where nothing is timed, whether all were tried and none rejected."""
        return not self.trouble and (self.best is not None if self.timed else not self.left and not self.rejected)

    @property
    def summary(self) -> str:
        """How far it came, in one line."""
        tried = f"{len(self.trials)} of {self.allowed} configurations, {len(self.rejected)} rejected"
        if self.best is None:
            outcome = self.trouble or "verified; nothing was timed"
        else:
            gain = self.best.default_us / self.best.us
            outcome = f"{derived.duration(self.best.us)}, {gain:.2f}x the declared parameters"
        return f"{self.problem_class}: {outcome} ({tried}, {self.seconds:.0f} s)"


def parse_budget(text: str) -> float:
    """Seconds of `60s`, `5m`, `1h`, `90`. Raises ValueError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if not found or not float(found[1]):
        raise ValueError(f"{text!r} is no time; write 60s, 5m or 1h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def allowed(stage: Stage[Any], problem: Problem, architecture: int = 90) -> tuple[list[dict[str, int]], Counter[str]]:
    """The configurations of a stage with which it can solve a problem, the declared one first, and how many others
    there are by reason."""
    declared = {name: stage.parameters[name] for name in stage.space}
    found, excluded = [], Counter[str]()
    for configuration in stage.configurations():
        if reason := stage.with_parameters(configuration).supports(problem, architecture):
            excluded[reason] += 1
        else:
            found.append(configuration)
    return sorted(found, key=lambda c: c != declared), excluded


class Proposals:
    """Which configuration is tried next: the first one, then what optuna's model proposes, each once.

    `timed` is False where nothing is measured: then they come in random order.
    """

    def __init__(
        self, space: Mapping[str, Sequence[int]], configurations: list[dict[str, int]], seed: int, timed: bool
    ):
        self._space, self._left = space, {tuple(c.values()): c for c in configurations[1:]}
        self._next = configurations[:1]
        self._random = random.Random(seed)
        self._asked: dict[tuple[int, ...], Any] = {}
        self._study: Any = None
        if timed and self._left:
            optuna = _optuna()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # for years
                sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
            self._study = optuna.create_study(sampler=sampler)
            # places in the ordered values, not the values: neighbours are alike
            self._places = {n: optuna.distributions.IntDistribution(0, len(v) - 1) for n, v in space.items()}
            self._failed, self._trial = optuna.trial.TrialState.FAIL, optuna.trial.create_trial

    def next(self) -> dict[str, int] | None:
        """A configuration that has not been tried, None where all have been."""
        if self._next:
            return self._next.pop()
        if not self._left:
            return None
        for _ in range(PROPOSALS if self._study else 0):
            trial = self._study.ask(self._places)
            values = tuple(self._space[name][place] for name, place in trial.params.items())
            if values in self._left:
                self._asked[values] = trial
                return self._left.pop(values)
            self._study.tell(trial, state=self._failed)
        return self._left.pop(self._random.choice(list(self._left)))

    def tell(self, trial: Trial) -> None:
        """What came out of a configuration."""
        if not self._study:
            return
        score = BAD if trial.relative is None else trial.relative
        if asked := self._asked.pop(tuple(trial.parameters.values()), None):
            self._study.tell(asked, score)
        else:
            places = {n: list(self._space[n]).index(value) for n, value in trial.parameters.items()}
            self._study.add_trial(self._trial(params=places, distributions=self._places, value=score))


def _optuna() -> Any:
    """The library that searches: asked and told, over discrete spaces, and kept for years; one that needs no network,
    no server and no GPU. Raises TuningError."""
    try:
        import optuna
    except ImportError:
        raise TuningError("optuna is not installed; install it with: pip install 'kernel-workbench[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


@contextlib.contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Whether the user has pressed Ctrl-C, also where its exception is lost: in callbacks of the garbage collector
    Python only prints it. The exception comes once, so that a second Ctrl-C does not disturb the tidying up."""
    seen = False

    def note(number: int, frame: Any) -> None:
        nonlocal seen
        first, seen = not seen, True
        if first:
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    main = threading.current_thread() is threading.main_thread()  # no other may set handlers
    if main:
        signal.signal(signal.SIGINT, note)
    try:
        yield lambda: seen
    finally:
        if main:
            signal.signal(signal.SIGINT, before)


def compile_ahead(stage: Stage[Any], configuration: Mapping[str, int], problem: Problem) -> str:
    """Put a compiled source into the cache, in a process of the pool; what the compiler says against it."""
    try:
        compile_stage(stage.with_parameters(configuration), problem)
    except CompileError as error:
        return str(error)
    return ""


def race(plans: Sequence[Any], effort: Effort, l2_bytes: int) -> list[list[float]]:
    """Cold samples in microseconds of bound plans that are timed in turns, in the process that has the device."""
    effort = dataclasses.replace(effort, sustained_seconds=0.0)  # nobody would read those
    contestants = {str(number): plan.enqueue for number, plan in enumerate(plans)}
    timings: dict[str, Timing] = timing.measure(contestants, l2_bytes, effort, Conditions())
    for plan in plans:
        plan.wait()  # and look at the red zones
    return [timings[name].cold_us for name in contestants]


def small_problems(stage: Stage[Any], device: Device, problem: Problem, seed: int) -> list[Problem]:
    """Problems for every configuration: solved by the very binary that is tuned, so of the types and layouts of
    `problem`, and exact."""
    words = {name: getattr(problem, name) for name in problem.choices}
    drawn = harness.drawn(stage, device, examples=4 * SMALL_PROBLEMS, seed=seed)
    alike = (dataclasses.replace(p, **words, tier=Tier.EXACT) for p in drawn)
    supported = (p for p in alike if stage.supports(p, device.architecture) is None)
    return list(dict.fromkeys(supported))[:SMALL_PROBLEMS]


@dataclass
class Judge:
    """Verifies configurations of a stage on the `problems`, and times them on one, on a device.

    Raises TuningError where there is nothing to verify them with.
    """

    stage: Stage[Any]
    device: Device
    problem: Problem
    problems: Sequence[Problem]
    answers: list[Arrays] = field(default_factory=list)
    """Right ones to the problem that is tuned for."""
    rival: Any = None
    """The declared parameters on the device: everything is timed in turns with them."""

    def __post_init__(self) -> None:
        info = self.device.info()
        self.timed = self.device.name != "emulator"
        self.l2_bytes, self.floor_us = info.l2_bytes, timing.floor(self.problem, info)[0]
        small = self.problem.cost.flops <= controls.MOST_FLOPS
        self.case = timing.solved(self.problem) if self.timed or small else None
        self.storage = self.case.storage() if self.case else {}
        self.cases = [Case.of(p) for p in self.problems]
        if self.case and not self.timed:
            self.cases.append(self.case)
        if not self.cases:
            raise TuningError(
                f"{self.stage.spec} takes no small problem like {self.problem}: nothing could be verified"
            )

    def try_(self, configuration: dict[str, int]) -> Trial:
        """Compile a configuration unless that is done, and judge it."""
        return self.judge(configuration, compile_ahead(self.stage, configuration, self.problem))

    def judge(self, configuration: dict[str, int], complaint: str) -> Trial:
        """Verify a configuration that has been compiled, then time it. `complaint` is the compiler's."""
        declared = {name: self.stage.parameters[name] for name in configuration}
        unready = self.timed and self.rival is None and configuration != declared
        if unready and (reason := self.try_(declared).reason):
            return Trial(configuration, reason=f"with the declared parameters: {reason}")
        stage = self.stage.with_parameters(configuration)
        if reason := complaint or self._unfit(stage) or self._wrong(stage):
            return Trial(configuration, reason=reason)
        if not self.timed:
            return Trial(configuration)
        try:
            plan = self._bind(stage)
        except Fault as fault:
            return Trial(configuration, reason=f"{fault.verdict}: {fault}")
        keep = False
        try:
            plan.run()
            if failure := self._mismatch(plan):
                return Trial(configuration, reason=f"{failure.verdict} on {self.problem}: {failure.message}")
            if self.rival is None:
                self.rival, keep = plan, True
            samples = self._race([self.rival] if keep else [self.rival, plan], SHORT)
        except Fault as fault:
            return Trial(configuration, reason=f"{fault.verdict} on {self.problem}: {fault}")
        finally:
            if not keep:
                plan.close()
        first, last = derived.median(samples[0]), derived.median(samples[-1])
        if last < self.floor_us:
            return Trial(configuration, reason=f"{last:.2f} us: less than the physical floor, {self.floor_us:.2f} us")
        return Trial(configuration, last, last / first)

    def _unfit(self, stage: Stage[Any]) -> str:
        """Why the compiled kernels cannot be launched, or would be slow whatever is timed."""
        for used in occupancy.resources(stage, self.problem, self.device.architecture):
            if not used.blocks_per_sm:
                return f"does not fit: {used.limiter}"
            if used.spill_bytes:
                return f"spills {used.spill_bytes} bytes of registers"
        return ""

    def _wrong(self, stage: Stage[Any]) -> str:
        for number, case in enumerate(self.cases):
            if stage.supports(case.problem, self.device.architecture) is None:
                failure, _ = harness.run_case(stage, self.device, case, twice=number == 0)
                if failure:
                    return f"{failure.verdict} on {case.problem}: {failure.message}"
        return ""

    def _mismatch(self, plan: Any) -> Failure | None:
        """What is wrong with the answer to the problem that is tuned for, after a run. Most configurations add up in
        the same order: an answer with the bits of one that was right needs no comparison, which takes long."""
        assert self.case is not None
        after = {name: plan.read(name) for name, array in self.case.arrays.items() if array.output}
        if any(all(_same_bits(after[name], known[name]) for name in after) for known in self.answers):
            return None
        failure, _ = self.case.judge(after.__getitem__)
        if failure is None:
            self.answers = [*self.answers[1 - KNOWN_ANSWERS :], after]
        return failure

    def _bind(self, stage: Stage[Any]) -> Any:
        assert self.case is not None
        compiled = compile_stage(stage, self.problem)
        return self.device.bind(compiled, stage.plan(self.problem), self.case.arrays, self.storage, self.problem.seed)

    def _race(self, plans: Sequence[Any], effort: Effort) -> list[list[float]]:
        seconds = len(plans) * (effort.seconds + effort.most_warm_up_seconds)
        seconds += 4 * effort.least * len(plans) * self.problem.cost.slow_seconds
        device: Any = self.device
        samples: list[list[float]] = device.together(plans, race, effort, self.l2_bytes, seconds=seconds)
        return samples

    def at_length(self, configurations: Sequence[Mapping[str, int]]) -> list[float]:
        """Cold medians in microseconds of the declared parameters and of these, timed in turns. Raises Fault."""
        plans = [self.rival]
        try:
            for configuration in configurations:
                plans.append(self._bind(self.stage.with_parameters(configuration)))
            return [derived.median(samples) for samples in self._race(plans, Effort())]
        finally:
            for plan in plans[1:]:
                plan.close()

    def close(self) -> None:
        """Free what is on the device."""
        if self.rival is not None:
            self.rival.close()


About = tuple[Stage[Any], Device, Problem, Sequence[Problem]]
"""What a Judge is made of."""


@dataclass(frozen=True)
class Here:
    """Configurations are compiled by a pool, so many `ahead`, and judged on a device of this machine."""

    device: Device
    pool: Executor
    ahead: int
    judge: Any = None
    at_once = 1
    """How many searches go on at the same time."""

    def about(self, stage: Stage[Any], problem: Problem, problems: Sequence[Problem]) -> Here:
        """The same for one search, with what belongs to it. Raises TuningError."""
        return dataclasses.replace(self, judge=Judge(stage, self.device, problem, problems))

    def begin(self, configuration: dict[str, int]) -> Future[str]:
        """Let the pool compile it."""
        return self.pool.submit(compile_ahead, self.judge.stage, configuration, self.judge.problem)

    def end(self, configuration: dict[str, int], future: Future[str]) -> Trial:
        """Judge what has been compiled."""
        trial: Trial = self.judge.judge(configuration, future.result())
        return trial

    def at_length(self, configurations: Sequence[Mapping[str, int]]) -> list[float]:
        """See Judge."""
        medians: list[float] = self.judge.at_length(configurations)
        return medians

    def bench(self, stage: Stage[Any], problem: Problem) -> Measurement | str:
        """See timing."""
        return timing.bench(stage, self.device, problem)

    def close(self) -> None:
        """Free what is on the device."""
        self.judge.close()


class Shares:
    """The places of so many searches that go on at once. Each has the workers of its place and keeps them: another
    worker would first have to prepare for it, and be late for its own search."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self._free = set(range(count))
        self._lock = threading.Lock()

    def take(self) -> int:
        """A place for a search that begins."""
        with self._lock:
            place = min(self._free)
            self._free.remove(place)
            return place

    def free(self, place: int) -> None:
        """The search that has this place is over."""
        with self._lock:
            self._free.add(place)


@dataclass(frozen=True)
class There:
    """Configurations are compiled and judged by the workers of a cluster, of which each search has its share."""

    cluster: Cluster
    what: About | None = None
    shares: Shares = field(default_factory=Shares)
    place: int = 0

    @property
    def device(self) -> Any:
        return self.cluster.device

    @property
    def ahead(self) -> int:
        workers = len(range(self.place, self.cluster.count, self.shares.count))
        slots: int = self.cluster.slots * workers // self.cluster.count
        return max(slots - workers, 2 * workers)  # the last round is to find a slot free, where there are some

    @property
    def at_once(self) -> int:
        return min(self.cluster.count, MOST_JUDGES)

    def shared_by(self, searches: int) -> There:
        """The same for so many searches at once."""
        return dataclasses.replace(self, shares=Shares(searches))

    def about(self, stage: Stage[Any], problem: Problem, problems: Sequence[Problem]) -> There:
        return dataclasses.replace(self, what=(stage, self.device, problem, problems), place=self.shares.take())

    def begin(self, configuration: dict[str, int]) -> Future[Trial]:
        assert self.what is not None
        stage, _, problem, _ = self.what
        compiling = partial(compile_ahead, stage, configuration, problem)
        return self._share().submit_prepared(compiling, _judged, self.what, configuration)

    def end(self, configuration: dict[str, int], future: Future[Trial]) -> Trial:
        try:
            return future.result()
        except Lost as error:
            return Trial(configuration, reason=f"{Verdict.CRASH}: {error}")

    def at_length(self, configurations: Sequence[Mapping[str, int]]) -> list[float]:
        medians: list[float] = self._share().call(_at_length, self.what, configurations)
        return medians

    def bench(self, stage: Stage[Any], problem: Problem) -> Measurement | str:
        outcome: Measurement | str = self._share().call(timing.bench, stage, self.device, problem)
        return outcome

    def close(self) -> None:
        """Workers keep what they have for the next search."""
        self.shares.free(self.place)

    def _share(self) -> Cluster:
        count = self.shares.count
        return self.cluster.among(self.place, count) if count > 1 else self.cluster


MOST_JUDGES = 4
"""So many searches at most go on at once on a cluster; a worker keeps what belongs to each on its device."""

_judges: list[Judge] = []
"""On a worker: of the searches that it has lately worked for."""


def _judge_of(about: About) -> Judge:
    stage, _, *problems = about
    for judge in _judges:
        if judge.stage is stage and [judge.problem, judge.problems] == problems:
            return judge
    while len(_judges) >= MOST_JUDGES:
        _judges.pop(0).close()
    _judges.append(Judge(*about))
    return _judges[-1]


def _judged(about: About, configuration: dict[str, int]) -> Trial:
    return _judge_of(about).try_(configuration)


def _at_length(about: About, configurations: Sequence[Mapping[str, int]]) -> list[float]:
    judge = _judge_of(about)
    if judge.rival is None:  # this worker has not taken part in the search, or was started again
        declared = judge.try_({name: judge.stage.parameters[name] for name in judge.stage.space})
        if declared.reason:
            raise Fault(Verdict.MISMATCH, f"with the declared parameters: {declared.reason}")
    return judge.at_length(configurations)


@dataclass
class _Search:
    """What one search has found."""

    stage: Stage[Any]
    problem: Problem
    table: Table
    key: Key
    result: Tuning

    def note(self, trial: Trial) -> None:
        """Keep a trial, and the best so far."""
        self.result.trials = [t for t in self.result.trials if t.parameters != trial.parameters] + [trial]
        self.table.add_trial(self.key, self.problem, trial, _now())
        timed = [t for t in self.result.trials if t.relative is not None]
        if trial.relative is not None and trial is min(timed, key=_score):
            assert trial.us is not None
            self.keep(self._entry(trial, trial.us, trial.us / trial.relative))

    def keep(self, entry: Entry) -> None:
        """This one is the best."""
        self.result.best = entry
        self.table.add(entry)

    def _entry(self, trial: Trial, us: float, default_us: float) -> Entry:
        parameters = {**self.stage.parameters, **trial.parameters}
        flops = self.problem.cost.flops
        return Entry(self.key, str(self.problem), parameters, us, default_us, None, flops, settled=False, date=_now())

    def finals(self, place: Here | There) -> None:
        """Time the best configurations and the declared one at length, in turns; have the winner benched like any
        stage, beside the vendor's library and with its answer verified afterwards."""
        declared, *others = self.result.trials
        near = sorted((t for t in others if _score(t) <= 1.0), key=_score)
        near = [t for t in near if _score(t) <= NEAR * _score(near[0])][:FINALISTS]
        try:
            medians = place.at_length([trial.parameters for trial in near])
        except (Fault, Lost) as error:
            verdict = error.verdict if isinstance(error, Fault) else Verdict.CRASH
            self.result.trouble = f"the last round ended with {verdict}: {error}"
            return
        ranked = sorted(zip(medians[1:], near, strict=True), key=lambda pair: pair[0])
        faster = [(us, trial) for us, trial in ranked if us < (1 - GAIN) * medians[0]]
        for us, trial in [*faster, (medians[0], declared)]:
            outcome = place.bench(self.stage.with_parameters(trial.parameters), self.problem)
            if isinstance(outcome, Measurement):
                self.keep(self._settled(trial, medians[0] / us, outcome))
                return
            self.note(Trial(trial.parameters, reason=f"in the last round: {outcome}"))
        self.result.best, self.result.trouble = None, f"nothing of it can be believed: {outcome}"
        self.table.forget(self.key)

    def _settled(self, trial: Trial, gain: float, outcome: Measurement) -> Entry:
        """The winner, `gain` times as fast as the declared parameters, with its time beside the library's."""
        us, library = derived.median(outcome.timing.cold_us), derived.vendor(outcome)
        vendor_us = derived.median(library.cold_us) if library else None
        return dataclasses.replace(self._entry(trial, us, us * gain), vendor_us=vendor_us, settled=True)


def searches(
    stages: Sequence[Stage[Any]], problems: Mapping[str, Problem], device: Device
) -> list[tuple[Stage[Any], Problem]]:
    """What is to be tuned for what: the one problem given for an operation, else its suite, one of each class. On the
    emulator one problem for each variant of the source is enough. Raises TuningError where there is nothing."""
    found: dict[tuple[Any, ...], tuple[Stage[Any], Problem]] = {}
    for stage in (s for s in stages if s.space):
        chosen = problems.get(stage.operation)
        for problem in (chosen,) if chosen else registry.operation_of(stage).suite:
            if stage.supports(problem, device.architecture) is None:
                variant = tuple(stage.defines(problem).items())
                kind = variant if device.name == "emulator" else problem_class(problem)
                found.setdefault((stage.spec, kind), (stage, problem))
    if not found:
        raise TuningError("there is nothing to tune: no stage that was named has a space of parameters and takes this")
    return list(found.values())


def tune(
    stage: Stage[Any],
    place: Here | There,
    problem: Problem,
    table: Table,
    *,
    seconds: float,
    seed: int = 0,
    on_start: Callable[[int], None] = lambda configurations: None,
    on_trial: Callable[[int], None] = lambda trials: None,
    interrupted: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> Tuning:
    """Search the space of a stage for the fastest configuration for a problem, for about so many seconds.

    What was tried and the best so far are in `table` at every
    moment; Ctrl-C ends the search (`interrupted` is of `interrupts`), and what was found stays. On the emulator nothing
    is timed: every configuration is verified, as far as the time goes. `on_start` is told how many configurations there
    are, `on_trial` how many have been tried. Raises TuningError where there is nothing to search, CompilerUnavailable,
    TableError.
    """
    device = place.device
    started, timed = clock(), device.name != "emulator"
    deadline = started + seconds * (SEARCH_SHARE if timed else 1.0)
    watch = integrity.Watch()
    configurations, excluded = allowed(stage, problem, device.architecture)
    proposals = Proposals(stage.space, configurations, seed, timed)
    key = Key.of(device.info().name, stage, problem)
    result = Tuning(stage.spec, str(problem), key.problem_class, timed, len(configurations), dict(excluded))
    on_start(len(configurations))
    place = place.about(stage, problem, small_problems(stage, device, problem, seed))
    search = _Search(stage, problem, table, key, result)
    pending: dict[Future[Any], dict[str, int]] = {}
    begun: list[dict[str, int]] = []

    def begin(configuration: dict[str, int]) -> Future[Any]:
        begun.append(configuration)
        return place.begin(configuration)

    def beginning() -> bool:
        while len(pending) < place.ahead and (configuration := proposals.next()) is not None:
            pending[begin(configuration)] = configuration
        return bool(pending)

    def end(configuration: dict[str, int], future: Future[Any]) -> None:
        trial = place.end(configuration, future)
        proposals.tell(trial)
        search.note(trial)
        on_trial(len(result.trials))

    declared = proposals.next()
    assert declared is not None
    there: list[str] = []
    try:
        first = begin(declared)
        beginning()
        end(declared, first)
        if reason := result.trials[0].reason:
            result.trouble = f"it cannot be tuned before it is right as it is declared: {reason}"
        while not (result.trouble or interrupted()) and clock() < deadline and beginning():
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in [f for f in pending if f in done]:
                configuration = pending.pop(future)
                if clock() < deadline and not interrupted():
                    end(configuration, future)
        for future in pending:  # workers are to have their last round at once
            future.cancel()
        if timed and not (result.trouble or interrupted()):
            search.finals(place)
    except KeyboardInterrupt:
        result.interrupted = True
    except integrity.Tampered as error:
        there = list(error.args)
    finally:
        result.interrupted |= interrupted()
        for future in pending:
            future.cancel()
        place.close()
    result.trials.sort(
        key=lambda trial: begun.index(dict(trial.parameters))
    )  # as they were proposed, whoever was quick
    if changed := there + watch.restore():
        table.forget(key)
        result.best, result.trouble = None, harness.tampering(stage, changed).message
    result.seconds = round(clock() - started, 3)
    return result


def tune_each(
    searches: Sequence[tuple[Stage[Any], Problem]], place: Here | There, table: Table, **options: Any
) -> Iterator[Tuning]:
    """What `tune` with these options finds in each search, in their order. A cluster makes as many searches at once as
    it has workers, so that all are busy while one has its last round."""

    def one(search: tuple[Stage[Any], Problem]) -> Tuning:
        stage, problem = search
        return tune(stage, place, problem, table, **options)

    at_once = min(place.at_once, len(searches))
    if isinstance(place, There):
        place = place.shared_by(at_once)
    if at_once == 1:
        yield from map(one, searches)
        return
    threads = ThreadPoolExecutor(at_once)
    try:
        for future in [threads.submit(one, search) for search in searches]:
            try:
                yield future.result()
            except KeyboardInterrupt:  # of which the search is told as well, and ends
                yield future.result()
    finally:
        threads.shutdown(cancel_futures=True)


def _same_bits(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    return np.array_equal(one.view(np.uint8), other.view(np.uint8))


def _score(trial: Trial) -> float:
    return BAD if trial.relative is None else trial.relative


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
