"""Where a compiled kernel decides by the size of a problem: extents on both sides of each of its conditions.

Every `setp` of the PTX whose operands come from parameters and the shape of the launch is evaluated for thousands of
sizes: where its outcome changes, and where it is one that no problem so far has had, a fault may hide."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np

from ..model.problem import Problem
from ..model.stage import Stage

DENSE, SPARSE = 4096, 160
"""Every value up to the first is looked at, and so many more up to the limit."""

STEPS = (0, 1, 1024, 4096)
"""By which a field is changed to see how the arguments of a launch follow it."""

FEW = 6
"""Places where a condition changes, up to which each counts: a remainder changes at every multiple."""

SMALL = 16
"""Values up to this are drawn often enough."""

MOST_CONDITIONS, MOST_THREES = 48, 20_000
"""Conditions of which the outcomes are looked at together, and threes of them."""

MOST_LITERALS = 12
"""Numbers of a stage's own texts beside which extents are tried."""

NUMBER = re.compile(r"(?<![\w.])\d{2,8}(?![\w.])")

Values = np.ndarray[Any, Any]
Most = Mapping[str, int]
"""By the name of a field: the largest value that is tried of it, 0 for one that is to stay as it is."""

Places = Collection[tuple[str, int]]
"""Files and lines of conditions."""

Known = dict[str, Values]
"""By the name of a parameter or a special register: its values."""


def boundaries(
    stage: Stage[Any],
    ptx: str,
    problems: Sequence[Problem],
    most: Most,
    random: Random,
    places: Places | None = None,
) -> list[tuple[str, int]]:
    """Fields and values for them, those with an outcome that none of the `problems` has first; with `places` only those
    of conditions there.

    `ptx` is the code for the last of the problems. What cannot be read, or has no plan, has no boundaries."""
    try:
        from ..emulator import ptx as reader

        module = reader.parse(ptx)
        plans = [launched(stage, problem) for problem in problems]
    except Exception:  # whoever judges the problem says what is wrong
        return []
    base, new, near = problems[-1], list[tuple[str, int]](), list[tuple[str, int]]()
    for number, (name, _) in enumerate(plans[-1]):
        kernel = module.functions.get(name)
        if kernel is None:
            continue
        names = [parameter.name for parameter in kernel.parameters]
        had = together([named(plan[number][1], names) for plan in plans if len(plan) > number])
        seen = {line: {*map(bool, outcome)} for line, outcome in reader.conditions(kernel, had).items()}
        wanted = lines_of(kernel, places)
        for field in (name for name, value in most.items() if value > SMALL):
            values = _looked_at(kernel, most[field], random)
            follows = _following(stage, base, field, number, values)
            known = named(follows, names)
            found = reader.conditions(kernel, known) if follows else {}
            for line, outcome in ((line, found[line]) for line in found if line in wanted):
                unseen, around = _chosen(outcome, values, seen.get(line, set()), random)
                new += [(field, value) for value in unseen]
                near += [(field, value) for value in around]
    for some in (new, near):
        random.shuffle(some)
    return list(dict.fromkeys(new + near))


def unlike(codes: Mapping[Problem, str]) -> list[Problem]:
    """A problem of each kernel that decides more or less often than others do: one text for several types, say, does
    so as often for all. `codes` is the PTX for each problem."""
    found: dict[int, Problem] = {}
    for problem, code in codes.items():
        found.setdefault(code.count("setp."), problem)
    return list(found.values())


def covering(
    stage: Stage[Any], ptx: str, problems: Sequence[Problem], candidates: Sequence[Problem], count: int
) -> list[Problem]:
    """Up to so many of the candidates, with outcomes of three conditions that none of the `problems` had together.

    A fault often needs two, and seldom more than three (Kuhn, Wallace and Gallo, Software Fault Interactions and
    Implications for Software Testing, 2004). All problems have the code `ptx`. Each time the one is taken that has the
    most new threes, of which each counts the more the fewer candidates have it."""
    try:
        found = _outcomes(stage, ptx, (*problems, *candidates))
    except Exception:  # whoever judges the problem says what is wrong
        return []
    if not len(found):
        return []
    number, (rows, columns) = np.arange(len(found)), np.triu_indices(len(found))
    threes = np.array([(i, j, k) for i, j in zip(rows, columns, strict=True) for k in number[j:]][:MOST_THREES])
    one, two, three = (found[place].astype(np.int8) for place in threes.T)
    which = (one + 2 * two + 4 * three).T  # by problem and by three
    met = np.zeros((len(threes), 8), bool)
    of_all = np.arange(len(threes))
    for row in which[: len(problems)]:
        met[of_all, row] = True
    left, chosen = which[len(problems) :], list[Problem]()
    work = np.array([p.cost.flops for p in candidates], np.float64)
    often = np.stack([(left == outcome).sum(axis=0) for outcome in range(8)], axis=1)
    worth = 1 / often[of_all, left]
    while len(chosen) < min(count, len(candidates)):
        new = np.where(met[of_all, left], 0.0, worth).sum(axis=1)
        best = int(np.lexsort((work, -new))[0])
        if not new[best]:
            break
        chosen.append(candidates[best])
        met[of_all, left[best]] = True
    return chosen


def lines_of(kernel: Any, places: Places | None) -> set[int]:
    """The lines of the PTX that are made of those of the source."""
    from ..emulator.program import kernel_line

    every = ((i.line, kernel_line(i)) for i in kernel.instructions)
    return {line for line, at in every if places is None or (at.file, at.line) in places}


def _outcomes(stage: Stage[Any], ptx: str, problems: Sequence[Problem]) -> Values:
    """Of the conditions that do not always come out alike, each of those that do the same once: (conditions, problems).

    They are those of the code, what the launch has few values of (a number, a macro, the kernel), and whether an extent
    is less than a number of the sources."""
    from ..emulator import ptx as reader

    module, plans = reader.parse(ptx), [launched(stage, problem) for problem in problems]
    columns = [*_decided(stage, problems, plans)]
    for number in range(min(map(len, plans))):
        kernel = module.functions.get(plans[-1][number][0])
        if kernel is None or any(plan[number][0] != plans[-1][number][0] for plan in plans):
            continue
        names = [parameter.name for parameter in kernel.parameters]
        had = together([named(plan[number][1], names) for plan in plans])
        columns += list(reader.conditions(kernel, had).values())
    distinct = {min(c.tobytes(), (~c).tobytes()): c for c in columns if c.min() != c.max()}
    return np.array(list(distinct.values())[:MOST_CONDITIONS], bool)


def _decided(stage: Stage[Any], problems: Sequence[Problem], plans: Sequence[Launched]) -> Iterator[Values]:
    """What the Python code of the stage, or the preprocessor, may decide by."""
    of_each: list[dict[str, Any]] = []
    for problem, plan in zip(problems, plans, strict=True):
        kernels: dict[str, Any] = {f"kernel {place}": name for place, (name, _) in enumerate(plan)}
        numbers = {f"{place} {name}": v for place, (_, had) in enumerate(plan) for name, v in had.items()}
        of_each.append(kernels | numbers | dict(stage.defines(problem)))
    for name in dict.fromkeys(name for had in of_each for name in had):
        values = [str(had.get(name)) for had in of_each]
        few = sorted(set(values))
        if 1 < len(few) <= FEW:
            yield from (np.array([v == one for v in values]) for one in few[: len(few) if len(few) > 2 else 1])
    for field in problems[0].extents:
        extents = np.array([getattr(problem, field) for problem in problems])
        yield from (extents < number for number in literals(stage))


def literals(stage: Stage[Any]) -> list[int]:
    """Whole numbers in the declaration of a stage, in its source, and in its module, which is not imported here."""
    hosted = stage.module if getattr(stage.plan_for, "module", "") else None
    texts = [str(getattr(stage.plan_for, "text", "")), stage.code or ""]
    for path in (None if stage.code else stage.path, hosted):
        with contextlib.suppress(OSError, ValueError):  # whoever judges the stage says so
            texts += [path.read_text(errors="replace")] if path else []
    found = dict.fromkeys(int(word) for text in texts for word in NUMBER.findall(text))
    return [number for number in found if number > SMALL][:MOST_LITERALS]


Launched = list[tuple[str, dict[str, int]]]
"""The kernels of a plan, with the numbers that they get."""


def launched(stage: Stage[Any], problem: Problem) -> Launched:
    """The kernels that a problem launches, with the numbers that they get, by place, and the shape of the launch."""
    found = []
    for launch in stage.plan(problem).launches:
        numbers = {
            str(place): int(argument) for place, argument in enumerate(launch.args) if isinstance(argument, np.integer)
        }
        for shape, name in ((launch.grid, "nctaid"), (launch.block, "ntid")):
            numbers |= {f"%{name}.{axis}": extent for axis, extent in zip("xyz", shape, strict=True)}
        numbers |= {f"%ctaid.{axis}": extent - 1 for axis, extent in zip("xyz", launch.grid, strict=True)}
        found.append((launch.kernel, numbers | {f"%tid.{axis}": 0 for axis in "xyz"}))
    return found


def named(numbers: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """With the names of parameters in the place of their numbers."""
    given = {names[int(n)]: v for n, v in numbers.items() if n[0] != "%" and int(n) < len(names)}
    return given | {n: v for n, v in numbers.items() if n[0] == "%"}


def together(of_each: Sequence[dict[str, int]]) -> Known:
    """What all of several launches have, as arrays."""
    common = set.intersection(*map(set, of_each)) if of_each else set()
    return {name: np.array([numbers[name] for numbers in of_each], np.int64) for name in common}


def _looked_at(kernel: Any, most: int, random: Random) -> Values:
    """Values of a field in order: all small ones, some larger ones, and those near the constants of the kernel."""
    constants = {
        abs(operand.value)
        for instruction in kernel.instructions
        for operand in instruction.operands
        if getattr(operand, "width", 1) == 0 and DENSE // 64 < abs(operand.value) <= 64 * most
    }
    near = [(c << 6 >> shift) + d for c in sorted(constants)[:64] for shift in range(13) for d in (-1, 0, 1, 2)]
    ramp = np.geomspace(DENSE, max(most, DENSE + 1), SPARSE).astype(np.int64)
    jitter = [int(value) + random.randrange(1 + int(value) // 64) for value in ramp]
    return np.unique([v for v in (*range(1, DENSE + 1), *near, *jitter, *map(int, ramp)) if 1 <= v <= most])


def _following(stage: Stage[Any], base: Problem, field: str, number: int, values: Values) -> Known:
    """What one launch of the plan has for each value of a field, as far as it can be told from a few of them."""
    first = getattr(base, field)
    samples, at = [], []
    for step in STEPS:
        try:
            plan = launched(stage, dataclasses.replace(base, **{field: first + step}))
            samples.append(plan[number][1])
            at.append(first + step)
        except Exception:  # the fields do not go together
            continue
    if len(samples) < 3:
        return {}
    found: Known = {}
    for name in samples[0]:
        had = [sample.get(name) for sample in samples]
        if None not in had and (fitted := _fitted(at, [int(v or 0) for v in had], values)) is not None:
            found[name] = fitted
    return found


def _fitted(at: Sequence[int], had: Sequence[int], values: Values) -> Values | None:
    """Numbers that go straight with a field, or by tiles of it, less one perhaps."""
    slope, rest = divmod(had[-1] - had[0], at[-1] - at[0])
    if not rest and all(had[0] + slope * (x - at[0]) == y for x, y in zip(at, had, strict=True)):
        return had[0] + slope * (values - at[0])
    if had[-1] <= had[0]:
        return None
    tile = round((at[-1] - at[0]) / (had[-1] - had[0]))
    for less in (0, 1) if tile else ():
        if all(-(-x // tile) - less == y for x, y in zip(at, had, strict=True)):
            return -(-values // tile) - less
    return None


def _chosen(outcome: Values, values: Values, seen: set[bool], random: Random) -> tuple[list[int], Iterator[int]]:
    """Values with an outcome that was not seen, and values around the places where it changes."""
    unseen: list[int] = []
    changes = np.flatnonzero(outcome[1:] != outcome[:-1])
    for which in {False, True} - seen if changes.size else ():
        there = values[outcome == which]
        unseen += [int(there[0]), int(random.choice(there))]
    if changes.size > FEW:
        rare = values[outcome == (outcome.mean() < 1 / 2)]
        picked = [int(random.choice(rare)) for _ in range(2)]
        around = {value + d for value in picked for d in (-1, 0, 1)}
    else:
        around = {int(values[i + d]) for i in changes for d in (0, 1)}
    return [v for v in unseen if v > SMALL], (v for v in sorted(around) if v > SMALL)
