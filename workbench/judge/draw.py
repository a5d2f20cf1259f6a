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
from random import Random
from typing import Any

import hypothesis
from hypothesis import strategies as st

from ..model.distributions import WEIGHTS, Distribution
from ..model.operation import Operation
from ..model.origin import declared, where
from ..model.problem import Problem, Size, Tier, parsed
from ..model.stage import Stage
from ..toolchain.compiler import Compiled
from .altered import STEP, far, flags, like, replaced, special, stored, strides
from .boundaries import Most, boundaries, covering, literals, unlike
from .by_hypothesis import same_everywhere, settings
from .comparative import bytes_seen

REPEAT_EVERY = 5
"""Of so many problems one is solved twice, to see whether the answer is the same."""

MUCH = 10
"""Floating-point operations in one step of `Size.work`, beyond which a problem is no ordinary one of its device."""

FLOPS = 10
"""Of a problem in one step of `Size.work`, at most."""

EACH = 50
"""Of so many problems each extent of one is larger than in the suite."""

BEYOND = 2
"""Times the largest extent of the suite that one extent has at most."""

MOST, MANY_FLOPS = 2**18, 2**21
"""The largest extent that is drawn where the operation says how long they are at least, and the floating-point
operations that such a problem has at most."""

AT_BOUNDARIES, TOGETHER, POWERS, STRIDES = 4, 8, 3, 2
"""Problems of 50 with an extent beside a constant of the kernel; with outcomes of its conditions that no other one had
together; with powers of two as extents; with large strides."""

FAR = 8
"""Problems of 50 with a value of a field that is drawn anywhere in its range."""

MEETING = (Distribution.NON_FINITE, Distribution.ZEROS, Distribution.MANY_NON_FINITE)
"""Inputs that meet 0 and the ends of such ranges."""

CANDIDATES, CODES = 360, 4
"""Problems of which those with such outcomes are chosen, and kernels whose conditions are looked at."""

TELLING = 24
"""Extents below this are made larger where inputs are those that chance leaves out: a row has to show them."""

TOLD = 4
"""Problems with small extents that show as much of their kind of inputs as one without."""

SMALLER = 4
"""Problems that are tried in the place of one that failed with inputs that chance leaves out."""

MOST_MOVED = 2**25
"""Bytes of a problem with a large extent: those of a vector of billions would take longer than all others together."""

SHOWING = (Distribution.POSITIVE, Distribution.NEGATIVE, Distribution.SORTED)
"""Kinds of inputs besides normal numbers that show a wrong element: elements differ, and none hides another."""

STANDS_OUT = (Distribution.OUTLIER,)
ADDING = ((Distribution.CONSTANT,), (Distribution.OUTLIER, Distribution.POSITIVE))
"""Kinds of inputs of a long extent of real numbers, and of two of integers: they make the sum of so many large. Sums of
large integers of any sign stay small."""

LARGEST_OF = 3
"""Problems of which the largest gets a value of a field: a wrong number has to be seen."""

LARGE_STRIDE, MOST_STORED = (32, 4096), 2**22
"""Elements more than it had that a row of a large stride has; and elements of all arrays of such a problem."""


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
        self._examples, self._seed, self._compiled = examples, seed, compiled
        self.unsupported: Counter[str] = Counter()
        self.so_far: _SoFar | None = None

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
        so_far = self.so_far = _SoFar(self._operation, self._size, self._examples, self._seed)
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

    def _left_out(self, found: dict[Problem, None], so_far: _SoFar, wanted: int) -> Iterator[Trial]:
        """Trials of problems that chance leaves out, until enough were found."""
        for largest_first, size in so_far.left_out(self._boundaries):
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

    def _boundaries(self, so_far: _SoFar, taken: Sequence[Problem]) -> tuple[list[tuple[str, int]], list[Problem]]:
        """Fields with values beside the constants of the code, and problems that meet several of its conditions as none
        of those did that are taken."""
        if self._compiled is None:
            return [], []
        of_types: dict[tuple[tuple[str, ...], ...], Problem] = {}
        for problem in reversed(taken):
            of_types.setdefault(tuple((name, problem.text(name)) for name in problem.words()), problem)
        codes: dict[Problem, str] = {}
        for problem in of_types.values():
            with contextlib.suppress(Exception):  # who judges the problem says why there is none
                codes[problem] = self._compiled(problem).ptx
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

    def _drawn(self, found: dict[Problem, None], so_far: _SoFar, wanted: int) -> list[Problem]:
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


class _SoFar:
    """The problems that were drawn so far, of `wanted`, and what too few of them have."""

    def __init__(self, operation: Operation[Any], size: Size, wanted: int, seed: int) -> None:
        self._wanted, self._size, self.random = wanted, size, Random(seed)
        self._taken: dict[Problem, tuple[Distribution, ...]] = {}
        """Each problem, with the distributions that it may have."""
        self._kinds: Counter[Distribution] = Counter()
        self._with_words: Counter[tuple[str, ...]] = Counter()
        """Problems with these inputs and this value of a field."""
        self._longest = {n: max((getattr(p, n) for p in operation.suite), default=0) for n in operation.problem.extents}
        many, self._anywhere = operation.longest, operation.drawn_anywhere
        self.longest, self.most_flops = MOST if many else 0, max(FLOPS * size.work, MANY_FLOPS if many else 0)
        names = [name for name, extent in self._longest.items() if max(many, extent) > size.extent]
        chosen = names if wanted >= EACH else self.random.sample(names, min(1, len(names)))
        self._far = [(name, self._beyond(self._longest[name], many)) for name in chosen]

    def _beyond(self, longest: int, many: int) -> int:
        more = self.random.random()
        return int(max(longest * math.pow(BEYOND, more), many * math.pow(MOST / (many or 1), more))) + 1

    def add(self, problem: Problem) -> None:
        """A supported problem was drawn."""
        if problem not in self._taken:
            self._taken[problem] = distributions(problem)
            for kind in self._taken[problem]:
                self._kinds[kind] += 0
            self._note(problem)

    def _note(self, problem: Problem) -> None:
        """A problem has these inputs and these words."""
        small = min((getattr(problem, n) for n in problem.extents), default=TELLING) < TELLING // 2
        self._kinds[problem.distribution] += 1 if small else TOLD
        self._with_words.update(_words(problem))

    @property
    def enough(self) -> bool:
        """Whether the problems that are left have to be those that chance leaves out, half of all at most."""
        left = self._wanted - len(self._taken)
        several = self._wanted // 2 if len(self._kinds) > 1 else len(self._far) + POWERS
        return left <= min(several, self._wanted // 2)

    def left_out(
        self, boundaries: Callable[[_SoFar, Sequence[Problem]], tuple[list[tuple[str, int]], list[Problem]]]
    ) -> Iterator[tuple[Iterator[Problem], bool]]:
        """For each that there is too little of, problems that have it, the largest first, and whether it is about
        their size: kinds of inputs that no problem has, extents, and in the end kinds that few problems have."""
        taken = list(self._taken)
        if not taken or not self.enough:
            return
        room, random = self._wanted - len(taken), self.random
        kinds = [kind for kind in self._kinds if kind is not Distribution.NORMAL]
        random.shuffle(kinds)
        kinds.sort(key=self._kinds.__getitem__)
        share = -(-room * 2 // EACH)  # of what 50 problems have, half of which are left out
        values = far(self._anywhere, self.random)
        met = MEETING if values else ()
        missing = [kind for kind in kinds if self._kinds[kind] < TOLD and kind not in met]
        first = [(self._in(kind, number), False) for number, kind in enumerate(missing)]
        first += [(self._long(*longest, number), True) for number, longest in enumerate(self._far)]
        whole = any(a.dtype.numpy.kind in "iub" for a in taken[0].arrays().values() if a.given)
        for name, longest in self._far[0 if whole else -1 :] if self._wanted >= EACH else []:
            most = max(longest, min(2 * longest, MOST))
            for number, adding in enumerate(ADDING if whole else ADDING[:1]):
                first.append((self._long(name, most, -1 - number, adding if whole else STANDS_OUT), True))
        first += self._meetings(taken[0], share) if values else []
        first += [(self._with(name, value), True) for name, value in values[: FAR * share]]
        first += [(self._powers(), True) for _ in range(min(POWERS, POWERS * share))]
        first += [
            (self._strided(), True) for _ in range(min(STRIDES, STRIDES * share) if any(map(strides, taken)) else 0)
        ]
        if len(first) < room:
            beside, together = boundaries(self, taken)
            first += [(iter((problem,)), True) for problem in together[:TOGETHER]]
            first += [(self._with(name, value), True) for name, value in beside[:AT_BOUNDARIES]]
        first = first[:room]
        random.shuffle(first)
        yield from first
        for number in range(len(kinds), 4 * self._wanted) if kinds else ():
            yield self._in(self._rarest(), number), False

    def with_other_seeds(self, missing: int) -> Iterator[Problem]:
        """In the place of what there is none of: the last problems once more, and so on, with the seeds after theirs;
        without end, unless none was drawn."""
        last = list(self._taken)[-missing:] if missing > 0 else []
        for later in itertools.count(1) if last else ():
            for problem in last:
                yield dataclasses.replace(problem, seed=problem.seed + later)

    def _rarest(self) -> Distribution:
        """The kind of inputs that the fewest problems have, by how often it is to be drawn."""
        kinds: list[Distribution] = [kind for kind in self._kinds if kind is not Distribution.NORMAL]
        return min(
            kinds or [Distribution.NORMAL], key=lambda kind: (self._kinds[kind] / WEIGHTS[kind], self.random.random())
        )

    def _in(self, kind: Distribution, number: int) -> Iterator[Problem]:
        """Problems with these inputs: one with no small extent, of types and the like that few with them have, and then
        smaller ones."""
        by_least = sorted(self._taken, key=lambda p: min((getattr(p, n) for n in p.extents), default=0), reverse=True)
        telling = [p for p in by_least if kind in self._taken[p]]
        if not telling:
            return
        half = -(-len(telling) // 2)
        some = [dataclasses.replace(p, distribution=kind) for p in self.random.sample(telling[:half], half)]
        last = min(some, key=lambda p: sum(self._with_words[pair] for pair in _words(p)))
        for name, texts in last.words().items():
            rarest = min(texts, key=lambda text: (self._with_words[kind, name, text], self.random.random()))
            last = replaced(last, {name: parsed(name, getattr(last, name), rarest)}) or last
        for name in self.random.sample(last.extents, len(last.extents)):
            if (extent := getattr(last, name)) < TELLING:
                enough = -(-TELLING // extent) * extent
                longest = max(last.extents, key=lambda n: getattr(last, n))  # gives way where both are too much work
                shorter = like(getattr(last, longest), max(TELLING, getattr(last, longest) * extent // enough), STEP)
                larger = (replaced(last, {**less, name: enough}) for less in ({}, {longest: shorter}))
                last = next((p for p in larger if p and p.cost.flops <= self._size.work), last)
        self._note(last)
        if kind not in distributions(last):
            last = some[0]
        smaller = [p for p in self._taken if p.cost.bytes < last.cost.bytes]
        smaller.sort(key=lambda p: p.cost.bytes, reverse=True)
        for problem in (last, some[0], *smaller[:: 1 + len(smaller) // SMALLER]):
            if kind in (self._taken.get(problem) or distributions(problem)):
                yield dataclasses.replace(problem, distribution=kind, seed=problem.seed + number)

    def _any(self, number: int | None = None, of: int = 1) -> Problem:
        """A problem like one that was drawn, the largest `of` so many, with inputs that show wrong numbers."""
        taken = list(self._taken)
        some = self.random.choices(taken, k=of) if number is None else [taken[-1 - number % len(taken)]]
        last = max(some, key=lambda p: p.cost.bytes)
        kind = self._rarest() if self.random.randrange(3) else Distribution.NORMAL
        if last.of_integers:
            kind = Distribution.LARGE
        elif kind not in SHOWING:
            kind = Distribution.NORMAL
        last = dataclasses.replace(last, distribution=kind if kind in self._taken[last] else Distribution.NORMAL)
        self._note(last)
        return last

    def _long(self, name: str, longest: int, number: int, adding: Sequence[Distribution] = ()) -> Iterator[Problem]:
        """A problem with one extent that is large, as far as the work allows, and then smaller ones: with one of these
        inputs."""
        problem = self._any(number)
        if adding and (kind := self.random.choice(adding)) in self._taken.get(problem, distributions(problem)):
            problem = dataclasses.replace(problem, distribution=kind)
        extent = longest
        while extent > self._size.extent:
            for step in (STEP, STEP // 2, 1):  # half of it keeps most rows aligned, and lets the one be longer
                small = {n: like(getattr(problem, n), step) for n in problem.extents}
                made = replaced(problem, {**small, name: like(getattr(problem, name), extent, STEP)})
                if made and made.cost.flops <= self.most_flops and bytes_seen(made) <= MOST_MOVED:
                    yield made
                    break
            extent = extent * 3 // 4

    def most(self, longest: int = 0) -> Most:
        """The largest value of each field that is tried at boundaries: of an extent, at least `longest`, a stride."""
        problem = next(iter(self._taken))
        most = dict.fromkeys((field.name for field in dataclasses.fields(problem)), 0)
        most |= dict.fromkeys(strides(problem), LARGE_STRIDE[1])
        for name, extent in self._longest.items():
            most[name] = max(min(BEYOND * max(extent, self._size.extent), self._size.work * MUCH), longest)
        return most

    def candidates(
        self, base: Problem, near: Sequence[tuple[str, int]], free: Sequence[str], count: int, longest: int = 0
    ) -> list[Problem]:
        """Problems like this one, of other extents and strides, and with other values of `free` fields: of extents that
        are `near` conditions of the kernel, of equal ones, of multiples of another one, of powers of two, and of any
        others."""
        found: dict[Problem, None] = {}
        names = [*base.extents, *strides(base)]
        most, flops = self.most(longest), self.most_flops if longest else FLOPS * self._size.work
        values = {name: [v for n, v in near if n == name and v <= most.get(name, 0)] for name in names}
        for _ in range(count * 2):
            made: dict[str, int] = {}
            for name in self.random.sample(names, len(names)):
                made[name] = self._value(base, name, most.get(name, 0), values[name], list(made.values()))
            flags = {name: self.random.random() < 1 / 2 for name in free}
            # normal numbers hide no wrong one
            problem = replaced(base, made | flags | {"distribution": Distribution.NORMAL})
            if problem and problem.cost.flops <= flops and stored(problem) <= MOST_STORED:
                found[problem] = None
            if len(found) == count:
                break
        return list(found)

    def _value(self, base: Problem, name: str, most: int, near: Sequence[int], others: Sequence[int]) -> int:
        random, most = self.random, max(2, min(most, self._size.work))
        how = random.random()
        if near and how < 1 / 2:  # a multiple of something may lie a little further
            return random.choice(near) + (random.randrange(64) if how < 1 / 6 else 0)
        if others and how < 5 / 8:
            multiple = random.choice(others) * random.choice((1, 1, 2, 3, 4))
            return multiple if multiple <= most else random.choice(others)
        if how < 3 / 4:
            return int(getattr(base, name))
        value = int(most ** random.random())
        if name in base.extents:
            return 1 << value.bit_length() - 1 if how > 7 / 8 else value
        extent = getattr(base, base.extents[-1])  # a row becomes as long as a power of two
        return (1 << (extent + value).bit_length()) - extent if how > 7 / 8 else value

    def _with(self, name: str, value: int) -> Iterator[Problem]:
        """A problem with this value of a field."""
        problem = self._any(of=LARGEST_OF)
        around = {n: getattr(problem, n) for n in problem.extents if n != name and name in problem.extents}
        for step in (STEP, STEP // 2, 1) if around else ():  # half of it keeps most rows aligned
            if math.prod(around.values()) * value <= self._size.work:
                break
            around = {n: like(getattr(problem, n), step) for n in around}
        made = replaced(problem, {**around, name: value})
        if made and made.cost.flops <= FLOPS * self._size.work and stored(made) <= MOST_STORED:
            yield made

    def _meetings(self, problem: Problem, share: int) -> list[tuple[Iterator[Problem], bool]]:
        """Two problems with each of these inputs, so that both ends of all ranges meet it, as `left_out` has them."""
        rounded = any(array.output and not array.dtype.is_float for array in problem.arrays().values())
        kinds = [k for k in (*MEETING, Distribution.NORMAL if rounded else MEETING[-1]) if k in self._kinds] * share
        offsets = [self.random.randrange(2) for _ in dataclasses.fields(problem)]
        # which powers of two have exact results is told by a number that is rounded to a whole one alone
        return [(self._meeting(k, n, offsets), k is not Distribution.NORMAL) for n in range(2) for k in kinds]

    def _meeting(self, kind: Distribution, number: int, offsets: Sequence[int]) -> Iterator[Problem]:
        """A problem with these inputs whose fields with a range are 0 or at an end of it, or powers of two."""
        some = [p for p, kinds in self._taken.items() if kind in kinds]
        for _ in range(MUCH if some else 0):
            base = max(self.random.choices(some, k=LARGEST_OF), key=lambda p: p.cost.bytes)
            pairs = special(self._anywhere, self.random, kind is Distribution.NORMAL)
            values = {name: pair[(number + off) % 2] for off, (name, pair) in zip(offsets, pairs.items(), strict=False)}
            made = replaced(base, values | {"distribution": kind, "seed": base.seed + number})
            if made and made.cost.flops <= FLOPS * self._size.work and stored(made) <= MOST_STORED:
                self._note(made)
                yield made
                return

    def _powers(self) -> Iterator[Problem]:
        """A problem whose extents are powers of two, or next to some, and about as large as it may be."""
        random = self.random
        for _ in range(MUCH):
            problem, bits = self._any(), int(math.log2(self._size.work))
            chosen = dict.fromkeys(random.sample(problem.extents, len(problem.extents)), 0)
            for number, name in enumerate(chosen):
                fair = bits // (len(chosen) - number)
                exponent = max(0, fair + random.randint(-1, 1)) if number + 1 < len(chosen) else fair
                bits -= exponent
                chosen[name] = min(2**exponent, 1 << self._size.extent.bit_length() - 1)
            beside = random.randrange(3) == 0
            moved = {n: max(1, extent + (random.randint(-1, 1) if beside else 0)) for n, extent in chosen.items()}
            made = replaced(problem, moved)
            if made and made.cost.flops <= FLOPS * self._size.work:
                yield made
                return

    def _strided(self) -> Iterator[Problem]:
        """A problem whose rows are far apart, as well aligned as they were."""
        for _ in range(MUCH):
            problem, (low, high) = self._any(), LARGE_STRIDE
            more = {n: getattr(problem, n) for n in strides(problem)}
            if not more:
                continue
            more = {n: v + STEP * round(low / STEP * (high / low) ** self.random.random()) for n, v in more.items()}
            made = replaced(problem, more)
            if made and stored(made) <= MOST_STORED:
                yield made
                return


def _words(problem: Problem) -> list[tuple[str, ...]]:
    return [(problem.distribution, name, problem.text(name)) for name in problem.words()]


def distributions(problem: Problem) -> tuple[Distribution, ...]:
    """Those that a problem may have; where its arrays cannot be told, whoever makes its case says why."""
    try:
        return problem.distributions()
    except Exception:
        return (Distribution.NORMAL,)


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
