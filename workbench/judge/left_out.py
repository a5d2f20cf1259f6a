"""Problems that chance leaves out of those that are drawn: distributions of inputs, extents as large as those of the
suite, and problems like another one, with other extents, strides and values of fields."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from ..model.distributions import WEIGHTS, Distribution
from ..model.operation import Operation
from ..model.problem import Problem, Size, Tier, parsed
from ..model.stage import Stage
from .boundaries import Most
from .comparative import problems_for

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

SHARE = 0.64
"""Of all problems: those at most that chance leaves out."""

AT_BOUNDARIES, TOGETHER, POWERS, STRIDES, TILES = 4, 6, 3, 2, 2
"""Problems of 50 with an extent beside a constant of the kernel; with outcomes of its conditions that no other one had
together; with powers of two as extents; with large strides; with a number of tiles that is `awkward`."""

PAIRS, PAIRED, SPLIT = 2, 4, (0.2, 0.8)
"""Problems of 50 with two extents that are both large; their product, at most, of `Size.work`; and the least and the
largest part of it, as a power, that is the first one."""

OTHERS = (2, 5)
"""The least and the largest of the other extents of those: a row has to be told from the next one."""

FAR = 8
"""Problems of 50 with a value of a field that is drawn anywhere in its range."""

MEETING = (Distribution.NON_FINITE, Distribution.ZEROS, Distribution.MANY_NON_FINITE)
"""Inputs that meet 0 and the ends of such ranges."""

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

STEP = 16
"""An extent changes by multiples of so many elements, so that rows stay as well aligned as they were."""

ALIGNED = (STEP, STEP // 2, 1)
"""Such multiples in turn, until a problem is small enough: half of one keeps most rows aligned, and the one grows."""


def strides(problem: Problem) -> list[str]:
    """The fields that move the elements of arrays apart, and change nothing else."""
    found = []
    for name in (f.name for f in dataclasses.fields(problem) if f.name not in (*problem.extents, *problem.of_inputs())):
        value = getattr(problem, name)
        apart = replaced(problem, {name: value + STEP}) if type(value) is int else None
        if apart is None:
            continue
        pairs = [(array, apart.arrays().get(n)) for n, array in problem.arrays().items()]
        if all(b is not None and a.shape == b.shape for a, b in pairs) and apart.cost == problem.cost:
            rows = any(math.prod(a.shape[:-1]) > 1 for a, _ in pairs)
            farther = any(b is not None and a.element_strides != b.element_strides for a, b in pairs)
            found += [name] if farther and rows else []
    return found


def flags(stage: Stage[Any], problem: Problem) -> list[str]:
    """The fields that are true or false, and of which the code is the same in both cases."""
    names = [f.name for f in dataclasses.fields(problem) if type(getattr(problem, f.name)) is bool]
    others = {name: replaced(problem, {name: not getattr(problem, name)}) for name in names}
    return [name for name, other in others.items() if other and stage.defines(other) == stage.defines(problem)]


def stored(problem: Problem) -> int:
    """The elements of the memory of all arrays."""
    return sum(array.storage_elements for array in problem.arrays().values())


def like(extent: int, most: int, step: int = 0) -> int:
    """The largest extent of at most `most`, and 1 at least, that is `extent` but for a multiple of `step`."""
    return max(1, most - (most - extent) % (step or most))


def replaced(problem: Problem, extents: dict[str, Any]) -> Problem | None:
    """The problem with these fields; None where they do not go together."""
    try:
        return dataclasses.replace(problem, **extents)
    except Exception:
        return None


def first_within(problems: Iterable[Problem | None], flops: float, moved: float = math.inf) -> Problem | None:
    """The first of the problems that there are with that many floating-point operations and bytes that move at most."""
    return next((p for p in problems if p and p.cost.flops <= flops and bytes_seen(p) <= moved), None)


def bytes_seen(problem: Problem) -> float:
    """Those of the problem, or half of those of all problems of which errors are seen."""
    return problem.cost.bytes * (max(1, problems_for(problem) / 2) if Tier.COMPARATIVE in problem.tiers else 1)


Ranges = Mapping[str, tuple[type, float, float]]
"""The type, the least and the largest value of fields, as `Operation.drawn_anywhere` has them."""


EDGES = (8, 16, 24, 31, 32, 53)
"""Bits of integers that types and parts of types can hold."""


def far(ranges: Ranges, random: Random) -> list[tuple[str, Any]]:
    """Values of fields in their ranges, first the least of each, then the largest, then in any order: twice a little
    less than a multiple of 2^bits of a type, or a whole number among real ones; a power of two and one of ten, or what
    is next to one; and others, of every magnitude."""
    ends, found = list[tuple[str, Any]](), list[tuple[str, Any]]()
    for name, (kind, low, high) in ranges.items():
        twos, tens = (2.0**bit for bit in range(-20, 64)), (10.0**digits for digits in range(1, 19))
        powers = [[s * power + d for power in of for s in (1, -1) for d in (-1, 0, 1)] for of in (twos, tens)]
        values = [random.choice([value for value in some if low <= value <= high] or [low]) for some in powers]
        edges = [2**bit for bit in EDGES if 2**bit <= high][-3:]
        for _ in range(2):
            edge = random.choice(edges or [1])
            below = edge * random.randint(1, max(1, min(8, int(high) // edge))) - random.randrange(64)
            values.append(
                below if kind is int else random.randint(math.ceil(low), max(math.ceil(low), math.floor(high)))
            )
        least = max(low, 1 if kind is int else high * 1e-6)
        if high > least:
            values += [math.exp(random.uniform(math.log(least), math.log(high))) for _ in range(3)]
        values.append(random.randint(int(low), int(high)) if kind is int else random.uniform(low, high))
        ends += [(name, kind(low)), (name, kind(high))]
        found += [(name, kind(min(max(value, low), high))) for value in values]
    random.shuffle(found)
    return ends[::2] + ends[1::2] + found


def special(ranges: Ranges, random: Random, powers: bool) -> dict[str, tuple[Any, Any]]:
    """Two values of each field: 0, or the least one, and the largest; or `powers` of two."""
    found = {}
    for name, (kind, low, high) in ranges.items():
        pair = (random.choice((0.5, 0.25)), random.choice((1.0, 2.0))) if powers else (0.0, high)
        found[name] = (kind(min(max(pair[0], low), high)), kind(min(max(pair[1], low), high)))
    return found


Wanted = tuple[Iterator[Problem], bool]
"""Problems that have what there is too little of, the largest first, and whether that is about their size."""


class LeftOut:
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
        """Whether the problems that are left have to be those that chance leaves out."""
        most = int(SHARE * self._wanted)
        return self.room <= (most if len(self._kinds) > 1 else min(most, len(self._far) + POWERS))

    @property
    def taken(self) -> list[Problem]:
        """The problems so far."""
        return list(self._taken)

    @property
    def room(self) -> int:
        """So many more problems are wanted."""
        return self._wanted - len(self._taken)

    def _share(self) -> int:
        """How many times what 50 problems have there is room for."""
        return math.ceil(self.room / (SHARE * EACH))

    def missing(self) -> list[Wanted]:
        """What no problem has: kinds of inputs, extents and values of fields, powers of two, large strides."""
        taken, random, share = self.taken, self.random, self._share()
        kinds = [kind for kind in self._kinds if kind is not Distribution.NORMAL]
        random.shuffle(kinds)
        kinds.sort(key=self._kinds.__getitem__)
        values = far(self._anywhere, self.random)
        met = MEETING if values else ()
        enough = {kind: TOLD * max(1, WEIGHTS[kind] // 3) for kind in kinds}
        missing = [kind for kind in kinds if self._kinds[kind] < enough[kind] and kind not in met]
        first = [(self._in(kind, number), False) for number, kind in enumerate(missing)]
        first += [(self._long(*longest, number), True) for number, longest in enumerate(self._far)]
        whole = any(a.dtype.numpy.kind in "iub" for a in taken[0].arrays().values() if a.given)
        for name, longest in self._far[0 if whole else -1 :] if self._wanted >= EACH else []:
            most = max(longest, min(2 * longest, MOST))
            for number, adding in enumerate(ADDING if whole else ADDING[:1]):
                first.append((self._long(name, most, -1 - number, adding if whole else STANDS_OUT), True))
        first += [(self._both(), True) for _ in range(PAIRS * share)] if len(taken[0].extents) > 1 else []
        first += self._meetings(taken[0], share) if values else []
        first += [(self._with(name, value), True) for name, value in values[: FAR * share]]
        first += [(self._powers(), True) for _ in range(min(POWERS, POWERS * share))]
        first += [
            (self._strided(), True) for _ in range(min(STRIDES, STRIDES * share) if any(map(strides, taken)) else 0)
        ]
        return first

    def of_tiles(self, awkward: Sequence[tuple[str, int]]) -> list[Wanted]:
        """Extents with these values, the others small."""
        count = TILES * self._share()
        return [(self._alone(name, value), True) for name, value in awkward[:count]]

    def at_boundaries(self, beside: Sequence[tuple[str, int]], together: Sequence[Problem]) -> list[Wanted]:
        """Fields with values beside the constants of the code, and problems that meet several of its conditions."""
        several: list[Wanted] = [(iter((problem,)), True) for problem in together[:TOGETHER]]
        return several + [(self._with(name, value), True) for name, value in beside[:AT_BOUNDARIES]]

    def in_any_order(self, missing: list[Wanted], room: int) -> Iterator[Wanted]:
        """As many of these as there is room for, and then kinds of inputs that few problems have."""
        kinds = sum(kind is not Distribution.NORMAL for kind in self._kinds)
        first = missing[:room]
        self.random.shuffle(first)
        yield from first
        for number in range(kinds, 4 * self._wanted) if kinds else ():
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
                last = first_within(larger, self._size.work) or last
        self._note(last)
        if kind not in distributions(last):
            last = some[0]
        smaller = [p for p in self._taken if p.cost.bytes < last.cost.bytes]
        smaller.sort(key=lambda p: p.cost.bytes, reverse=True)
        for problem in (last, some[0], *smaller[:: 1 + len(smaller) // SMALLER]):
            if kind in (self._taken.get(problem) or distributions(problem)):
                yield dataclasses.replace(problem, distribution=kind, seed=problem.seed + number)

    def _small(self, made: Problem) -> bool:
        """Whether the problem is little work in little memory."""
        return made.cost.flops <= FLOPS * self._size.work and stored(made) <= MOST_STORED

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
        if adding is STANDS_OUT:  # of types with the most bits, which show the least errors
            most = max(self._taken, key=lambda p: sum(array.dtype.itemsize for array in p.arrays().values()))
            problem = replaced(problem, {name: getattr(most, name) for name in problem.words()}) or problem
        extent = longest
        while extent > self._size.extent:
            longer = {name: like(getattr(problem, name), extent, STEP)}
            small = ({n: like(getattr(problem, n), step) for n in problem.extents} for step in ALIGNED)
            made = first_within((replaced(problem, less | longer) for less in small), self.most_flops, MOST_MOVED)
            yield from (made,) if made else ()
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
        for step in ALIGNED if around else ():
            if math.prod(around.values()) * value <= self._size.work:
                break
            around = {n: like(getattr(problem, n), step) for n in around}
        made = replaced(problem, {**around, name: value})
        if made and self._small(made):
            yield made

    def _both(self) -> Iterator[Problem]:
        """Problems with two extents that are both large, as far as the work allows, and small others: a block has
        several rows of several tiles."""
        problem, product = self._any(), PAIRED * self._size.work
        one, other = self.random.sample(problem.extents, 2)
        others = {n: self.random.randint(*OTHERS) for n in problem.extents if n not in (one, other)}
        part = self.random.uniform(*SPLIT)
        while product > TELLING**2:
            first = int(product**part)
            pair = {one: first, other: product // first}
            made = replaced(problem, {**others, **pair}) or replaced(problem, pair)
            if made and self._small(made):
                yield made
            product = product * 3 // 4

    def _alone(self, name: str, value: int) -> Iterator[Problem]:
        """A problem with this value of an extent; the others are small, but not 1 where they can be others."""
        problem = self._any(of=LARGEST_OF)
        others = {n: self.random.randint(*OTHERS) for n in problem.extents if n != name}
        made = replaced(problem, {**others, name: value}) or replaced(problem, {name: value})
        if made and self._small(made):
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
            if made and self._small(made):
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
