"""Where a compiled kernel decides by the size of a problem: extents on both sides of each of its conditions.

Every `setp` of the PTX whose operands come from parameters and the shape of the launch is evaluated for thousands of
sizes: where its outcome changes, and where it is one that no problem so far has had, a fault may hide."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np

from ..model.problem import Problem
from ..model.stage import Stage

try:
    from ..emulator import ptx as reader
except ImportError:  # its engine was not built: nothing is known of conditions
    reader = None  # type: ignore[assignment]

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

RECIPROCALS = (41, 47, 55, 61)
"""Numbers n for which `n * (1.0f / n)` is less than 1."""

MOST_TILE, GROWN = 1024, 4096
"""The largest tile of which there are so many, and by what an extent grows to see how the grid follows it."""

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
        seen = {line: {*map(bool, outcome)} for line, outcome in conditions(kernel, had).items()}
        wanted = lines_of(kernel, places)
        for field in (name for name, value in most.items() if value > SMALL):
            values = _looked_at(kernel, most[field], random)
            follows = _following(stage, base, field, number, values)
            known = named(follows, names)
            found = conditions(kernel, known) if follows else {}
            for line, outcome in ((line, found[line]) for line in found if line in wanted):
                unseen, around = _chosen(outcome, values, seen.get(line, set()), random)
                new += [(field, value) for value in unseen]
                near += [(field, value) for value in around]
    for some in (new, near):
        random.shuffle(some)
    return list(dict.fromkeys(new + near))


def awkward(stage: Stage[Any], problem: Problem, random: Random) -> list[tuple[str, int]]:
    """Extents of the problem and values for them: a number of tiles that divides by one of `RECIPROCALS`. First come
    tiles by which the grid follows an extent, then blocks and parameters, then numbers of the source."""
    found: list[list[int]] = []
    for field in problem.extents:
        growth, sizes = list[int](), list[int]()
        with contextlib.suppress(Exception):  # whoever judges the problem says what is wrong
            sizes += (n for launch in stage.plan(problem).launches for n in (math.prod(launch.block), *launch.block))
            of_one: dict[str, Any] = dict.fromkeys(problem.extents, 1)
            both = (dataclasses.replace(problem, **of_one | {field: n}) for n in (1, 1 + GROWN))
            pairs = zip(*(launched(stage, each) for each in both), strict=True)
            growth += (b[name] - a[name] for (_, a), (_, b) in pairs for name in a if name.startswith("%nctaid"))
        tiles = (*(round(GROWN / more) for more in growth if more > 0), *sizes, *stage.parameters.values())
        found.append([*dict.fromkeys(tile for tile in (*tiles, *literals(stage)) if 1 < tile <= MOST_TILE)])
    turns = (pair for turn in itertools.zip_longest(*found) for pair in zip(problem.extents, turn, strict=True))
    return [(name, random.choice(RECIPROCALS) * tile - random.randrange(tile)) for name, tile in turns if tile]


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
    module, plans = reader.parse(ptx), [launched(stage, problem) for problem in problems]
    columns = [*_decided(stage, problems, plans)]
    for number in range(min(map(len, plans))):
        kernel = module.functions.get(plans[-1][number][0])
        if kernel is None or any(plan[number][0] != plans[-1][number][0] for plan in plans):
            continue
        names = [parameter.name for parameter in kernel.parameters]
        had = together([named(plan[number][1], names) for plan in plans])
        columns += list(conditions(kernel, had).values())
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


# ---------------------------------------------------------------------------------------------- outcomes of conditions

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    **{"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater},
    **{"ge": np.greater_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal},
}
_LOGIC: dict[str, Callable[[Any, Any], Any]] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def conditions(kernel: reader.Function, known: Mapping[str, Values], joined: bool = False) -> dict[int, Values]:
    """The conditions of a kernel that hang on its parameters and on the shape of the launch alone, and what
    they become: of each ``setp`` of whole numbers whose operands are known, by its line in the PTX, the outcome of each
    launch.

    A forward pass over the instructions in order: each register that is written once has a value for every launch that
    is asked about, as an array; what depends on memory, on a loop or on anything unknown has none. So a ``setp`` on an
    extent is found wherever the value went before: through moves, conversions, shifts, products, remainders and masks.
    ``known``: values by the name of a parameter or of a special register such as ``%nctaid.x``, all of one shape.
    ``joined``: of ``and``, ``or`` and the like of such outcomes, too. Else also of arithmetic: whether a remainder, a
    quotient, a shift, a mask or a difference is 0, and whether a minimum or a maximum is its constant."""
    writes = Counter(op for i in kernel.instructions for op in _results(i))
    compared = {
        op for i in kernel.instructions if i.parts[0] == "setp" for op in i.operands
    }  # where others are as well
    found, others = dict[int, Values](), dict[int, Values]()
    values: dict[reader.Register, Values] = {}
    with np.errstate(all="ignore"):
        for instruction in kernel.instructions:
            results = _results(instruction)
            if instruction.guard is not None or len(results) != 1 or writes[results[0]] != 1:
                continue
            try:
                value = _value(instruction, values, known)
            except (ArithmeticError, ValueError):  # numbers that no 64 bits hold: nothing is known of them
                value = None
            if value is not None:
                values[results[0]] = value
                if instruction.parts[0] == "setp" or (joined and results[0].type == "pred"):
                    found[instruction.line] = np.broadcast_to(value != 0, _shape(known))
                elif joined or results[0] in compared:
                    continue
                elif (arithmetic := _decides(instruction, value)) is not None:
                    others[instruction.line] = np.broadcast_to(arithmetic, _shape(known))
    return found | others


ZERO = {"rem", "div", "shr", "and", "sub"}
"""Instructions by which a kernel may decide without a predicate: those that give 0 for some sizes."""


def _decides(instruction: reader.Instruction, value: Values) -> Values | None:
    """Whether the result of arithmetic is 0, or that of a minimum or a maximum is its constant."""
    name, last = instruction.parts[0], instruction.operands[-1]
    if name in ZERO:
        return np.asarray(value == 0)
    bound = last.value if isinstance(last, reader.Immediate) and last.width == 0 else None
    return np.asarray(value == bound) if name in ("min", "max") and bound is not None else None


def _shape(known: Mapping[str, Values]) -> tuple[int, ...]:
    return next((values.shape for values in known.values()), ())


def _results(instruction: reader.Instruction) -> list[reader.Register]:
    first = instruction.operands[0] if instruction.operands else None
    elements = getattr(first, "elements", (first,))
    return [op for op in elements if isinstance(op, reader.Register)]


def _value(
    instruction: reader.Instruction, values: Mapping[reader.Register, Values], known: Mapping[str, Values]
) -> Values | None:
    parts, operands = instruction.parts, instruction.operands
    name, kind = parts[0], parts[-1]
    if name == "ld":
        match operands[1:]:
            case [reader.Address(base=reader.Symbol(name=parameter), offset=0)] if "param" in parts:
                return known.get(parameter)
        return None
    sources = [_source(op, values, known) for op in operands[1:]]
    if any(source is None for source in sources) or not sources:
        return None
    if kind == "pred":
        return _predicate(name, [source for source in sources if source is not None])
    if kind[0] not in "sub" or not kind[1:].isdigit():
        return None
    given = [_as(source, kind) for source in sources if source is not None]
    if name == "setp":
        joined = next((p for p in parts[2:-1] if p in _LOGIC), None)
        outcome = _COMPARISONS[parts[1]](given[0], given[1]) if parts[1] in _COMPARISONS else None
        if outcome is None or len(given) > 2 + bool(joined):
            return None
        return np.asarray(_LOGIC[joined](outcome, given[2] != 0) if joined else outcome).astype(np.int64)
    return _number(name, parts, kind, given)


def _predicate(name: str, given: list[Values]) -> Values | None:
    if name == "not":
        return 1 - given[0]
    return np.asarray(_LOGIC[name](*given[:2])) if name in _LOGIC else given[0] if name == "mov" else None


def _source(
    operand: reader.Operand, values: Mapping[reader.Register, Values], known: Mapping[str, Values]
) -> Values | None:
    if isinstance(operand, reader.Register):
        return values.get(operand)
    if isinstance(operand, reader.Special):
        return known.get(operand.name)
    if isinstance(operand, reader.Negated):
        inner = _source(operand.operand, values, known)
        return None if inner is None else 1 - inner
    if isinstance(operand, reader.Immediate) and operand.width == 0:
        return np.array((operand.value + 2**63) % 2**64 - 2**63, np.int64)
    return None


def _as(value: Values, kind: str) -> Values:
    """The low bits of a value as a number of a type; unsigned ones of 64 bits stay as they are."""
    bits = int(kind[1:])
    if bits == 64:
        return value
    low = value & ((1 << bits) - 1)
    return np.where(low >> (bits - 1) & 1, low - (1 << bits), low) if kind[0] == "s" else low


def _number(name: str, parts: tuple[str, ...], kind: str, given: list[Values]) -> Values | None:
    """The result of an instruction on whole numbers; None for one that is not known."""
    one, bits = given[0], int(kind[1:])
    two = given[1] if len(given) > 1 else one
    if name in ("mov", "cvt", "cvta"):
        return _as(one, parts[1]) if name == "cvt" and len(parts) == 3 and parts[1][1:].isdigit() else one
    if name in ("mul", "mad"):
        wide = one * two if bits < 64 or "lo" in parts else None
        if wide is None:
            return None
        product = wide if "wide" in parts else _as(wide >> bits if "hi" in parts else wide, kind)
        return product if name == "mul" else np.asarray(product + given[2])
    if name in ("div", "rem"):
        safe = np.where(two == 0, 1, two)
        quotient = np.sign(one) * np.sign(safe) * (np.abs(one) // np.abs(safe))
        return np.asarray(quotient if name == "div" else one - quotient * safe)
    if name == "selp":
        return np.where(given[2] != 0, one, two)
    if name == "shl":
        return _as(one << np.minimum(two, 63), kind)
    simple: dict[str, Callable[[], Any]] = {
        "add": lambda: _as(one + two, kind),
        "sub": lambda: _as(one - two, kind),
        "min": lambda: np.minimum(one, two),
        "max": lambda: np.maximum(one, two),
        "shr": lambda: one >> np.minimum(two, 63),
        "neg": lambda: -one,
        "abs": lambda: np.abs(one),
        "not": lambda: _as(~one, kind),
        "popc": lambda: np.bitwise_count(one).astype(np.int64),
    }
    if name in _LOGIC:
        return np.asarray(_LOGIC[name](one, two))
    return np.asarray(simple[name]()) if name in simple else None
