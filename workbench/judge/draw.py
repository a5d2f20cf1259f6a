"""Random problems of an operation, drawn by Hypothesis from a seed, and what chance leaves out of them: distributions
of inputs, and extents as large as those of the suite."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, configuration
from hypothesis import strategies as st

from ..model.arrays import WEIGHTS, Distribution
from ..model.operation import Operation
from ..model.origin import declared, where
from ..model.problem import Problem, Size, Tier
from ..model.stage import Stage
from ..toolchain.compiler import cache_folder

REPEAT_EVERY = 5
"""Of so many problems one is solved twice, to see whether the answer is the same."""

MUCH = 10
"""Floating-point operations in one step of `Size.work`, beyond which a problem is no ordinary one of its device."""

STEP = 16
"""An extent changes by multiples of so many elements, so that rows stay as well aligned as they were."""

FLOPS = 10
"""Of a problem in one step of `Size.work`, at most."""

EACH, LONGEST = 50, 5000
"""Products of three extents or more have one large problem in so many, of such an extent at most: the emulator computes
whole tiles, which is much more work than the elements. Others have one for each extent."""


class Enough(BaseException):
    """Leaves Hypothesis, which takes every Exception for a failure of the test."""


class Failed(Exception):
    """Tells Hypothesis that a problem failed; who raises it has the evidence."""


@dataclass(frozen=True)
class Trial:
    """A problem that is to be tried, in these tiers.

    With `twice` a right answer is asked for again. Where it fails, the problems of `smaller`, the largest first, may
    fail in the same way; those that are `random` are made smaller by Hypothesis, which drew them.
    """

    problem: Any
    tiers: tuple[Tier, ...]
    twice: bool
    smaller: tuple[Any, ...] = ()
    random: bool = False


@dataclass
class Turns:
    """Which problems are solved twice: the first, and one in every few after it.

    An edge case or a large extent may be many times the work of what is drawn: it leaves its turn to the next problem,
    which shows as much, but only so often.
    """

    most_flops: float = math.inf
    _since: int = REPEAT_EVERY

    @classmethod
    def of(cls, size: Size) -> Turns:
        """Those of problems that are drawn of this size."""
        return cls(MUCH * size.work)

    def take(self, problem: Problem) -> bool:
        """Whether the next problem is solved twice."""
        due = self._since >= REPEAT_EVERY and (self._since >= 2 * REPEAT_EVERY or self._ordinary(problem))
        self._since = 1 if due else self._since + 1
        return due

    def _ordinary(self, problem: Problem) -> bool:
        try:
            return self.most_flops == math.inf or problem.cost.flops <= self.most_flops
        except Exception:  # who judges the problem says why
            return True


class Problems:
    """So many problems of a stage on a device with this name, drawn from a seed. The stage has to take each of them on
    all of these architectures.

    `unsupported` counts the reasons of the stage against problems.
    """

    def __init__(
        self,
        operation: Operation[Any],
        stage: Stage[Any],
        device: str,
        architectures: Sequence[int],
        examples: int,
        seed: int,
    ) -> None:
        self._operation, self._stage, self._architectures = operation, stage, architectures
        self._size = size_of(operation, device)
        self._examples, self._seed, self._random_ones = examples, seed, examples
        self.unsupported: Counter[str] = Counter()

    def supported(self, problem: Problem) -> bool:
        """Whether the stage takes the problem; why not is counted."""
        reasons = (self._stage.supports(problem, architecture) for architecture in self._architectures)
        reason = next((reason for reason in reasons if reason is not None), None)
        if reason:
            self.unsupported[reason] += 1
        return reason is None

    def trials(self) -> Iterator[Trial]:
        """A trial of each problem: of the edge cases of the stage, then of random ones. Raises BadOperation."""
        turns, found = Turns.of(self._size), dict[Problem, None]()
        for problem in filter(self.supported, self._stage.edge_cases[: self._examples]):
            if problem not in found:
                found[problem] = None
                yield Trial(problem, problem.tiers, turns.take(problem))
        self._random_ones = self._examples - len(found)
        for trial in self._random(found) if self._random_ones > 0 else ():
            yield dataclasses.replace(trial, twice=turns.take(trial.problem))

    def _random(self, found: dict[Problem, None]) -> Iterator[Trial]:
        """Trials of random problems that are not among those that were `found` before, until there are enough."""
        so_far = _SoFar(self._operation, self._size, self._random_ones, self._seed)
        for problem in self._drawn(found, so_far):
            yield Trial(problem, problem.tiers, False, random=True)
        for largest_first, large in so_far.left_out():
            problems = [problem for problem in largest_first if self.supported(problem)]
            if problems and problems[0] not in found:
                first = problems[0]
                found[first] = None
                tiers = first.tiers[-1:] if large and len(first.extents) > 2 else first.tiers  # sizes go wrong in all
                yield Trial(first, tiers, False, tuple(problems[1:]))
            if problems and len(found) >= self._examples:
                return
        for problem in so_far.with_other_seeds(self._examples - len(found)):
            if len(found) >= self._examples:
                return
            if problem not in found:
                found[problem] = None
                yield Trial(problem, problem.tiers, False)

    def _drawn(self, found: dict[Problem, None], so_far: _SoFar) -> list[Problem]:
        """What Hypothesis draws and was not found before, until that or `so_far` has enough."""
        drawn: list[Problem] = []

        def test(problem: Any) -> None:
            if problem not in found:
                so_far.add(problem)
                found[problem] = None
                drawn.append(problem)
            if len(found) >= self._examples or so_far.enough:
                raise Enough

        with self._drawing(test) as draw:
            draw()
        return drawn

    @contextlib.contextmanager
    def drawn_again(self, test: Callable[[Any], None]) -> Iterator[Callable[[], None]]:
        """Draws the same random problems once more when what it gives is called, for a test of who calls it.

        After one that the test raises Failed for, they are smaller and smaller ones. Raises Failed, what `supports` of
        the stage raises, and BadOperation where the operation's strategy fails.
        """
        counted = self.unsupported.copy()
        try:
            with self._drawing(test) as draw:
                yield draw
        finally:
            self.unsupported = counted

    @contextlib.contextmanager
    def _drawing(self, test: Callable[[Any], None]) -> Iterator[Callable[[], None]]:
        what = f"problems of the operation, {where(self._operation.problems)},"
        raised: list[Exception] = []

        def supported(problem: Problem) -> bool:
            try:
                return self.supported(problem)
            except Exception as error:  # Hypothesis would try again, and say more
                raised.append(error)
                raise Enough from None

        with declared(what):
            strategy = _problems(self._operation, self._stage, self._size).filter(supported)
        # not one problem was supported; and Dask's threads use `random` while strategies are drawn from
        quiet = contextlib.suppress(hypothesis.errors.Unsatisfiable, Enough)
        with quiet, _constants_in_the_cache(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Do not use the `random` module")
            try:
                yield hypothesis.seed(self._seed)(_settings(self._random_ones)(hypothesis.given(strategy)(test)))
            except (Failed, hypothesis.errors.Unsatisfiable):
                raise
            except hypothesis.errors.Flaky:  # while it was made smaller: it stands as it is
                raise Failed from None
            except Exception as error:
                with declared(what):
                    raise error
        if raised:
            raise raised[0]


class _SoFar:
    """The problems that were drawn so far, of `wanted`, and what none of them has."""

    def __init__(self, operation: Operation[Any], size: Size, wanted: int, seed: int) -> None:
        self._wanted, self._size = wanted, size
        self._taken: dict[Problem, None] = {}
        self._missing: dict[Distribution, None] = {}
        self._there: set[Distribution] = set()
        longest = {n: max((getattr(p, n) for p in operation.suite), default=0) for n in operation.problem.extents}
        names = [name for name, extent in longest.items() if extent > size.extent]
        self._longest = {name: longest[name] for name in names}
        if len(longest) > 2:
            first = seed % max(1, len(names))
            chosen = (names[first:] + names[:first])[: wanted // EACH]
            self._longest = {name: min(longest[name], LONGEST) for name in chosen}

    def add(self, problem: Problem) -> None:
        """A supported problem was drawn."""
        if problem not in self._taken:
            self._taken[problem] = None
            self._there.add(problem.distribution)
            allowed = dict.fromkeys((*self._missing, *distributions(problem)))
            self._missing = {kind: None for kind in allowed if kind not in self._there}

    @property
    def enough(self) -> bool:
        """Whether the problems that are left have to be those that chance leaves out, half of all at most."""
        left = self._wanted - len(self._taken)
        return left <= min(len(self._missing) + len(self._longest), self._wanted // 2)

    def left_out(self) -> Iterator[tuple[Iterator[Problem], bool]]:
        """For each that is missing, problems that have it, the largest first, and whether it is a large extent."""
        if not self.enough:
            return
        taken = list(self._taken)
        others = [(self._in(kind, taken, number), False) for number, kind in enumerate(self._missing)]
        others += [(self._long(name, taken, number), True) for number, name in enumerate(self._longest)]
        yield from others[: self._wanted - len(taken)]

    def with_other_seeds(self, missing: int) -> Iterator[Problem]:
        """In the place of what there is none of: the last problems once more, and so on, with the seeds after theirs;
        without end, unless none was drawn."""
        last = list(self._taken)[-missing:] if missing else []
        for later in itertools.count(1) if last else ():
            for problem in last:
                yield dataclasses.replace(problem, seed=problem.seed + later)

    def _in(self, kind: Distribution, taken: Sequence[Problem], number: int) -> Iterator[Problem]:
        last = taken[-1 - number % len(taken)]
        smaller = (p for p in sorted(taken, key=_bytes, reverse=True) if _bytes(p) < _bytes(last))
        for problem in (last, *smaller):
            if kind in distributions(problem):
                yield dataclasses.replace(problem, distribution=kind)

    def _long(self, name: str, taken: Sequence[Problem], number: int) -> Iterator[Problem]:
        """A problem with one extent as large as in the suite, as far as the work allows, and then smaller ones"""
        problem = dataclasses.replace(taken[-1 - number % len(taken)], distribution=Distribution.NORMAL)
        for step in (STEP, STEP // 2, 1):  # half of it keeps most rows aligned, and lets the one be longer
            small = {n: _like(getattr(problem, n), step) for n in problem.extents}
            around = math.prod(small.values()) // small[name]
            extent = min(self._longest[name], self._size.work // around)
            if extent == self._longest[name] or (step < STEP and extent > self._size.extent):
                break
        while extent > self._size.extent:
            made = _replaced(problem, {**small, name: _like(getattr(problem, name), extent, STEP)})
            if made and made.cost.flops <= FLOPS * self._size.work:
                yield made
            extent = extent * 3 // 4


def _like(extent: int, most: int, step: int = 0) -> int:
    """The largest extent of at most `most`, and 1 at least, that is `extent` but for a multiple of `step`."""
    return max(1, most - (most - extent) % (step or most))


def _replaced(problem: Problem, extents: dict[str, Any]) -> Problem | None:
    try:
        return dataclasses.replace(problem, **extents)
    except Exception:  # fields do not go together
        return None


def _bytes(problem: Problem) -> int:
    return problem.cost.bytes


def distributions(problem: Problem) -> tuple[Distribution, ...]:
    """Those that a problem may have; where its arrays cannot be told, whoever makes its case says why."""
    try:
        return problem.distributions()
    except Exception:
        return (Distribution.NORMAL,)


@contextlib.contextmanager
def _constants_in_the_cache() -> Iterator[None]:
    """Hypothesis also draws constants of the modules that are loaded. What it finds in them is kept in the cache of the
    workbench and not in `.hypothesis` of the working directory: to find it takes a process a second."""
    before = vars(configuration).get("__hypothesis_home_directory")
    configuration.set_hypothesis_home_dir(cache_folder() / "hypothesis")
    try:
        yield
    finally:
        configuration.set_hypothesis_home_dir(before)


def _settings(wanted: int) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=2 * wanted,  # duplicates do not count
        database=None,
        deadline=None,
        verbosity=hypothesis.Verbosity.quiet,
        report_multiple_bugs=False,
        print_blob=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )


def _problems(operation: Operation[Any], stage: Stage[Any], size: Size) -> st.SearchStrategy[Any]:
    """Problems of a size, many of them near multiples of the stage's tiles, in all distributions of their inputs."""
    shapes = operation.problems(size, _edges(stage))
    return st.tuples(shapes, st.integers(0, sum(WEIGHTS.values()) - 1)).map(_distributed)


def size_of(operation: Operation[Any], device: str) -> Size:
    """How large the problems of the device with this name may be."""
    return operation.emulator_size if device.startswith("emulator") else operation.cuda_size


def _edges(stage: Stage[Any]) -> tuple[int, ...]:
    """Sizes of tiles: the stage's parameters, and products of two."""
    sizes = [size for size in stage.parameters.values() if size > 1]
    return tuple(sorted({*stage.parameters.values(), *(a * b for a, b in itertools.combinations(sizes, 2))}))


def _distributed(drawn: tuple[Problem, int]) -> Problem:
    """The problem in the distribution of this number; ordinary ones come first, where failures are made smaller."""
    problem, number = drawn
    kind = [kind for kind, weight in WEIGHTS.items() for _ in range(weight)][number]
    if problem.distribution is not Distribution.NORMAL or kind not in distributions(problem):
        return problem
    return dataclasses.replace(problem, distribution=kind)
