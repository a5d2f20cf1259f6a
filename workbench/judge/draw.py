"""Random problems of an operation, drawn by Hypothesis from a seed, with those that chance leaves out between them.

While problems are drawn and judged, the process draws the same ones from a seed whatever else is loaded, and NumPy has
one thread."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import hypothesis
import threadpoolctl
from hypothesis import HealthCheck, Phase, configuration
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from ..model.distributions import WEIGHTS, Distribution
from ..model.errors import declared, where
from ..model.operation import Operation
from ..model.problem import Problem, Size, Tier
from ..model.stage import Stage
from ..toolchain.compiler import Compiled, cache_folder
from .boundaries import awkward, boundaries, covering, literals, unlike
from .left_out import AT_BOUNDARIES, MUCH, TOGETHER, LeftOut, distributions, flags

REPEAT_EVERY = 5
"""Of so many problems one is solved twice, to see whether the answer is the same."""

COMPILERS = 8
"""So many variants are compiled at once."""

CANDIDATES, CODES = 360, 4
"""Problems of which those with such outcomes are chosen, and kernels whose conditions are looked at."""


class Enough(BaseException):
    """Leaves Hypothesis, which takes every Exception for a failure of the test."""


class Failed(Exception):
    """Tells Hypothesis that a problem failed; who raises it has the evidence."""


@dataclass(frozen=True)
class Trial:
    """A problem that is to be tried, in these tiers.

    With `twice` a right answer is asked for again. Where one fails that is `random`, a smaller one is looked for among
    those that Hypothesis draws; then the problems of `smaller`, the largest first, may fail in the same way."""

    problem: Any
    tiers: tuple[Tier, ...]
    twice: bool
    smaller: tuple[Any, ...] = ()
    random: bool = False


@dataclass
class Turns:
    """Which problems are solved twice: the first, and one in every few after it.

    An edge case or a large extent may be many times the work of what is drawn: it leaves its turn to the next problem,
    which shows as much, but only so often."""

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
    """So many problems of a stage on a device with this name, drawn from a seed. `stages` are the stage on each machine
    that has to take them all. `compiled` gives the code for a problem; its constants say which extents are tried, too.

    `unsupported` counts the reasons of the stage against problems. `so_far` is what trials were made of."""

    def __init__(
        self,
        operation: Operation[Any],
        stages: Sequence[Stage[Any]],
        device: str,
        examples: int,
        seed: int,
        compiled: Callable[[Problem], Compiled] | None = None,
    ) -> None:
        self._operation, self._stages, self._stage = operation, stages, stages[0]
        self._size = size_of(operation, device)
        self._compilers = 1 if device.startswith("emulator") else COMPILERS  # of PTX the first is to be assembled alone
        self._examples, self._seed, self._compiled = examples, seed, compiled
        self.unsupported: Counter[str] = Counter()
        self.so_far: LeftOut | None = None

    def supported(self, problem: Problem) -> bool:
        """Whether the stage takes the problem; why not is counted."""
        reasons = (stage.supports(problem) for stage in self._stages)
        reason = next((reason for reason in reasons if reason is not None), None)
        if reason:
            self.unsupported[reason] += 1
        return reason is None

    def trials(self) -> Iterator[Trial]:
        """A trial of each problem: of the edge cases of the stage, and of as many random ones as are wanted. Random
        problems take turns with those that chance leaves out. Raises BadOperation."""
        turns, found = Turns.of(self._size), dict[Problem, None]()
        for problem in filter(self.supported, self._stage.edge_cases[: self._examples]):
            if problem not in found:
                found[problem] = None
                yield Trial(problem, problem.tiers, turns.take(problem))
        for trial in self._random(found, len(found) + self._examples):
            yield dataclasses.replace(trial, twice=turns.take(trial.problem))

    def _random(self, found: dict[Problem, None], wanted: int) -> Iterator[Trial]:
        """Trials of random problems that are not among those that were `found` before, until there are enough."""
        so_far = self.so_far = LeftOut(self._operation, self._size, self._examples, self._seed)
        drawn = self._drawn(found, so_far, wanted)
        others = self._left_out(found, so_far, wanted)
        for problem in drawn:
            yield Trial(problem, problem.tiers, False, random=True)
            yield from itertools.islice(others, 1)
        yield from others
        for problem in so_far.with_other_seeds(wanted - len(found)):
            if len(found) >= wanted:
                return
            if problem not in found:
                found[problem] = None
                yield Trial(problem, problem.tiers, False)

    def _left_out(self, found: dict[Problem, None], so_far: LeftOut, wanted: int) -> Iterator[Trial]:
        """Trials of problems that chance leaves out, until enough were found."""
        if not so_far.taken or not so_far.enough:
            return
        missing, room = so_far.missing(), so_far.room
        missing += so_far.of_tiles(awkward(self._stage, so_far.taken[-1], so_far.random))
        if len(missing) < room:
            missing += so_far.at_boundaries(*self._boundaries(so_far))
        for largest_first, size in so_far.in_any_order(missing, room):
            if len(found) >= wanted:
                return
            problems = [problem for problem in largest_first if self.supported(problem)]
            if problems and problems[0] not in found:
                first = problems[0]
                found[first] = None
                plain = first.distribution is Distribution.NORMAL
                tiers = first.tiers[-1:] if size else first.tiers  # sizes go wrong in all
                if not size and not plain and not first.exact_has(first.distribution):
                    tiers = tuple(tier for tier in tiers if tier is not Tier.EXACT) or tiers
                yield Trial(first, tiers, False, tuple(problems[1:]), random=True)

    def _boundaries(self, so_far: LeftOut) -> tuple[list[tuple[str, int]], list[Problem]]:
        """Fields with values beside the constants of the code, and problems that meet several of its conditions as none
        of those did that are taken."""
        if self._compiled is None:
            return [], []
        taken = so_far.taken
        of_types: dict[tuple[tuple[str, ...], ...], Problem] = {}
        for problem in reversed(taken):
            of_types.setdefault(tuple((name, problem.text(name)) for name in problem.words()), problem)
        with ThreadPoolExecutor(self._compilers) as pool:
            compiled = {problem: pool.submit(self._compiled, problem) for problem in of_types.values()}
        codes: dict[Problem, str] = {}
        for problem, found in compiled.items():
            with contextlib.suppress(Exception):  # who judges the problem says why there is none
                codes[problem] = found.result().ptx
        beside: list[tuple[str, int]] = []
        several: list[list[Problem]] = []
        written = [(n, v + d) for v in literals(self._stage) for n in taken[-1].extents for d in (0, 1)]
        chosen = unlike(codes)[:CODES]
        for base in chosen:
            alike = [p for p in taken if all(p.text(name) == base.text(name) for name in base.words())]
            near = boundaries(self._stage, codes[base], [*alike, base], so_far.most(), so_far.random)
            made = so_far.candidates(base, [*near, *written], flags(self._stage, base), CANDIDATES // len(chosen))
            beside += near[: AT_BOUNDARIES if base is chosen[0] else 1]
            several.append(covering(self._stage, codes[base], alike, list(filter(self.supported, made)), TOGETHER))
        together = [p for turn in itertools.zip_longest(*several) for p in turn if p is not None]
        return beside, together

    def _drawn(self, found: dict[Problem, None], so_far: LeftOut, wanted: int) -> list[Problem]:
        """What Hypothesis draws and was not found before, until that or `so_far` has enough."""
        drawn: list[Problem] = []

        def test(problem: Any) -> None:
            if problem not in found:
                so_far.add(problem)
                found[problem] = None
                drawn.append(problem)
            if len(found) >= wanted or so_far.enough:
                raise Enough

        with self._drawing(test) as draw:
            draw()
        return drawn

    @contextlib.contextmanager
    def drawn_again(self, test: Callable[[Any], None]) -> Iterator[Callable[[], None]]:
        """Draws the same random problems once more when what it gives is called, for a test of who calls it.

        After one that the test raises Failed for, they are smaller and smaller ones. Raises Failed, what `supports` of
        the stage raises, and BadOperation where the operation's strategy fails."""
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
        with quiet, same_everywhere(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Do not use the `random` module")
            try:
                yield hypothesis.seed(self._seed)(settings(self._examples)(hypothesis.given(strategy)(test)))
            except (Failed, hypothesis.errors.Unsatisfiable):
                raise
            except hypothesis.errors.Flaky:  # while it was made smaller: it stands as it is
                raise Failed from None
            except Exception as error:
                with declared(what):
                    raise error
        if raised:
            raise raised[0]


def _problems(operation: Operation[Any], stage: Stage[Any], size: Size) -> st.SearchStrategy[Any]:
    """Problems of a size, many of them near multiples of the stage's tiles, in all distributions of their inputs."""
    shapes = operation.problems(size, _edges(stage))
    return st.tuples(shapes, st.integers(0, sum(WEIGHTS.values()) - 1)).map(_distributed)


def size_of(operation: Operation[Any], device: str) -> Size:
    """How large the problems of the device with this name may be."""
    return operation.emulator_size if device.startswith("emulator") else operation.cuda_size


def _edges(stage: Stage[Any]) -> tuple[int, ...]:
    """Sizes of tiles: the stage's parameters, and products of two or three."""
    sizes = [size for size in stage.parameters.values() if size > 1]
    several = (math.prod(some) for count in (2, 3) for some in itertools.combinations(sizes, count))
    return tuple(sorted({*stage.parameters.values(), *several}))


def _distributed(drawn: tuple[Problem, int]) -> Problem:
    """The problem in the distribution of this number; ordinary ones come first, where failures are made smaller."""
    problem, number = drawn
    kind = [kind for kind, weight in WEIGHTS.items() for _ in range(weight)][number]
    if problem.distribution is not Distribution.NORMAL or kind not in distributions(problem):
        return problem
    return dataclasses.replace(problem, distribution=kind)


# ------------------------------------------------------------------------------------- the process meanwhile


def _once(change: Callable[[], AbstractContextManager[Any]]) -> Callable[[], AbstractContextManager[None]]:
    """A change of the process that several threads want at once: the first makes it, the last puts it back."""
    made, lock, threads = contextlib.ExitStack(), threading.Lock(), 0

    @functools.wraps(change)
    @contextlib.contextmanager
    def changed() -> Iterator[None]:
        nonlocal threads
        with lock:
            if not threads:
                made.enter_context(change())
            threads += 1
        try:
            yield
        finally:
            with lock:
                threads -= 1
                if not threads:
                    made.close()

    return changed


@_once
@contextlib.contextmanager
def same_everywhere() -> Iterator[None]:
    """What Hypothesis keeps is in the cache of the workbench and not in `.hypothesis` of the working directory. It does
    not draw numbers of the modules that happen to be loaded, as it does by default: to look for them takes 0.15 s, and
    with others loaded one seed would draw other problems. `literals` has those of the stage."""
    inside: dict[str, Any] = vars(providers)
    before: dict[str, Any] = {n: inside[n] for n in ("_get_local_constants", "CONSTANTS_CACHE") if n in inside}
    if before:
        inside |= {"_get_local_constants": type(inside["_local_constants"]), "CONSTANTS_CACHE": {}}
    home = vars(configuration).get("__hypothesis_home_directory")
    configuration.set_hypothesis_home_dir(cache_folder() / "hypothesis")
    try:
        yield
    finally:
        configuration.set_hypothesis_home_dir(home)
        inside |= before


@_once
def one_thread() -> AbstractContextManager[Any]:
    """Let NumPy's BLAS use one thread. Products of random problems are small, and several problems are solved at once:
    more threads wait for each other, which takes two to six times the processor time."""
    limits: AbstractContextManager[Any] = threadpoolctl.threadpool_limits(1, user_api="blas")
    return limits


def settings(wanted: int) -> hypothesis.settings:
    """Those of a search for so many problems that differ."""
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
