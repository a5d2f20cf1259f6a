"""Finds the parameters with which a stage is fastest: every configuration is verified before it is timed.

Configurations are compiled in parallel on the CPU, verified, and timed interleaved with the declared ones, so that a
drifting clock does not matter; optuna proposes which comes next. A last round has the best of them compete at length.
Without a GPU configurations are compiled and verified, and nothing is timed."""

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
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from .. import harness
from ..catalogue import registry
from ..devices import Device, Fault, machine_for
from ..model.operation import NO_SUITE
from ..model.problem import Problem
from ..model.results import Measurement, Verdict
from ..model.stage import Stage
from ..records.environment import now
from ..records.tuned import Entry, Key, Table, Trial, TuningError, problem_class
from ..report import derived
from ..sandbox import integrity
from ..workers.cluster import Lost
from .configurations import small_problems
from .places import Here, There

SEARCH_SHARE = 0.75
"""Part of the budget after which nothing new is tried: the rest is for the last round."""

FINALISTS, NEAR = 3, 1.05
"""So many configurations, and none that took so many times as long as the best, compete in the last round."""

GAIN = 0.005
"""A configuration has to be faster by this part than the declared one to take its place."""


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


@dataclass
class _Search:
    """One search under way. What was tried and the best so far are in `table` at every moment."""

    stage: Stage[Any]
    problem: Problem
    place: Here | There
    table: Table
    key: Key
    result: Tuning
    proposals: Proposals
    on_trial: Callable[[int], None]
    over: Callable[[], bool]
    """Whether nothing new is to be tried: the time is up, or the user has stopped it."""
    pending: dict[Future[Any], dict[str, int]] = field(default_factory=dict)
    begun: list[dict[str, int]] = field(default_factory=list)

    def try_all(self) -> None:
        """Try the declared configuration, then what is proposed, until nothing new is to be tried."""
        declared = self.proposals.next()
        assert declared is not None
        first = self._begin(declared)
        self._begin_more()
        self._end(declared, first)
        if reason := self.result.trials[0].reason:
            self.result.trouble = f"it cannot be tuned before it is right as it is declared: {reason}"
        while not self.result.trouble and not self.over() and self._begin_more():
            done, _ = wait(self.pending, return_when=FIRST_COMPLETED)
            for future in [f for f in self.pending if f in done]:
                configuration = self.pending.pop(future)
                if not self.over():
                    self._end(configuration, future)
        self.cancel()  # workers are to have their last round at once

    def cancel(self) -> None:
        """Give up what has begun."""
        for future in self.pending:
            future.cancel()

    def _begin(self, configuration: dict[str, int]) -> Future[Any]:
        self.begun.append(configuration)
        return self.place.begin(configuration)

    def _begin_more(self) -> bool:
        """Begin as many as the place takes; whether there are any."""
        while len(self.pending) < self.place.ahead and (configuration := self.proposals.next()) is not None:
            self.pending[self._begin(configuration)] = configuration
        return bool(self.pending)

    def _end(self, configuration: dict[str, int], future: Future[Any]) -> None:
        trial = self.place.end(configuration, future)
        self.proposals.tell(trial)
        self.note(trial)
        self.on_trial(len(self.result.trials))

    def note(self, trial: Trial) -> None:
        """Keep a trial, and the best so far."""
        self.result.trials = [t for t in self.result.trials if t.parameters != trial.parameters] + [trial]
        self.table.add_trial(self.key, self.problem, trial, now())
        timed = [t for t in self.result.trials if t.relative is not None]
        if trial.relative is not None and trial is min(timed, key=score):
            assert trial.us is not None
            self.keep(self._entry(trial, trial.us, trial.us / trial.relative))

    def keep(self, entry: Entry) -> None:
        """This one is the best."""
        self.result.best = entry
        self.table.add(entry)

    def _entry(self, trial: Trial, us: float, default_us: float) -> Entry:
        parameters = {**self.stage.parameters, **trial.parameters}
        flops = self.problem.cost.flops
        return Entry(self.key, str(self.problem), parameters, us, default_us, None, flops, settled=False, date=now())

    def finals(self) -> None:
        """Time the best configurations and the declared one at length, interleaved; have the winner benched like any
        stage, beside the vendor's library and with its answer verified afterwards."""
        declared, *others = self.result.trials
        near = sorted((t for t in others if score(t) <= 1.0), key=score)
        near = [t for t in near if score(t) <= NEAR * score(near[0])][:FINALISTS]
        try:
            medians = self.place.at_length([trial.parameters for trial in near])
        except (Fault, Lost) as error:
            verdict = error.verdict if isinstance(error, Fault) else Verdict.CRASH
            self.result.trouble = f"the last round ended with {verdict}: {error}"
            return
        ranked = sorted(zip(medians[1:], near, strict=True), key=lambda pair: pair[0])
        faster = [(us, trial) for us, trial in ranked if us < (1 - GAIN) * medians[0]]
        for us, trial in [*faster, (medians[0], declared)]:
            outcome = self.place.bench(self.stage.with_parameters(trial.parameters), self.problem)
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
    tunable = [s for s in stages if s.space]
    given = {name: (problem,) for name, problem in problems.items()}
    suites = {s.operation: given.get(s.operation) or registry.operation_of(s).suite for s in tunable}
    if tunable and not any(suites.values()):
        raise TuningError(f"there is nothing to tune: {NO_SUITE}")
    for stage in (s.on(machine_for(s, device)) for s in tunable):
        for problem in suites[stage.operation]:
            if stage.supports(problem) is None:
                variant = tuple(stage.defines(problem).items())
                kind = problem_class(problem) if device.times else variant
                found.setdefault((stage.spec, kind), (stage, problem))
    if not found:
        raise TuningError(
            "there is nothing to tune: no stage that was named has a `space` of parameters and supports the problem"
        )
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

    What was tried and the best so far are in `table` at every moment; Ctrl-C ends the search (`interrupted` is of
    `interrupts`), and what was found stays. On the emulator nothing is timed: every configuration is verified, as far
    as the time goes. `on_start` is told how many configurations there are, `on_trial` how many have been tried. Raises
    TuningError where there is nothing to search, CompilerUnavailable, TableError."""
    device = place.device
    stage = stage.on(machine_for(stage, device))
    started, timed = clock(), device.times
    deadline = started + seconds * (SEARCH_SHARE if timed else 1.0)
    watch = integrity.Watch()
    configurations, excluded = allowed(stage, problem)
    proposals = Proposals(stage.space, configurations, seed, timed)
    key = Key.of(device.info().name, stage, problem)
    result = Tuning(stage.spec, str(problem), key.problem_class, timed, len(configurations), dict(excluded))
    on_start(len(configurations))
    place = place.about(stage, problem, small_problems(stage, device, problem, seed))

    def over() -> bool:
        return clock() >= deadline or interrupted()

    search = _Search(stage, problem, place, table, key, result, proposals, on_trial, over)
    there: list[str] = []
    try:
        search.try_all()
        if timed and not (result.trouble or interrupted()):
            search.finals()
    except KeyboardInterrupt:
        result.interrupted = True
    except integrity.Tampered as error:
        there = list(error.args)
    finally:
        result.interrupted |= interrupted()
        search.cancel()
        place.close()
    result.trials.sort(key=lambda t: search.begun.index(dict(t.parameters)))  # as proposed, whoever was quick
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


# ---------------------------- which configuration of a stage is tried next: optuna proposes, and each is proposed once


BAD = 10.0
"""What the search is told of a configuration that cannot be used: so many times as slow as the declared one."""

PROPOSALS = 5
"""Tries to have optuna propose a configuration that is new and allowed, before one is drawn."""


def allowed(stage: Stage[Any], problem: Problem) -> tuple[list[dict[str, int]], Counter[str]]:
    """The configurations of a stage with which it can solve a problem on its machine, the declared one first, and how
    many others there are by reason."""
    declared = {name: stage.parameters[name] for name in stage.space}
    found, excluded = [], Counter[str]()
    for configuration in stage.configurations():
        if reason := stage.with_parameters(configuration).supports(problem):
            excluded[reason] += 1
        else:
            found.append(configuration)
    return sorted(found, key=lambda c: c != declared), excluded


class Proposals:
    """Which configuration is tried next: the first one, then what optuna's model proposes, each once.

    `timed` is False where nothing is measured: then they come in random order."""

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
        if asked := self._asked.pop(tuple(trial.parameters.values()), None):
            self._study.tell(asked, score(trial))
        else:
            places = {n: list(self._space[n]).index(value) for n, value in trial.parameters.items()}
            self._study.add_trial(self._trial(params=places, distributions=self._places, value=score(trial)))


def _optuna() -> Any:
    """The library that searches: asked and told, over discrete spaces, and kept for years; one that needs no network,
    no server and no GPU. Raises TuningError."""
    try:
        import optuna
    except ImportError:
        raise TuningError("optuna is not installed; install it with: pip install 'kernel-workbench[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def score(trial: Trial) -> float:
    """How many times as slow as the declared parameters; what cannot be used is `BAD`."""
    return BAD if trial.relative is None else trial.relative
