"""How far rounding alone may move an answer: the reference with every operation rounded up or down by chance.

This is Monte Carlo arithmetic (D. Stott Parker, "Monte Carlo Arithmetic: exploiting randomness in floating-point
arithmetic", 1997). What differs between evaluations is what no kernel in fp32 can be asked for: sums that cancel, a
square that underflows, a number halfway between two integers, the nearest of two that are as near. What is exact, such
as a comparison of inputs or a sum of small integers, stays what it is."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from ..model.arrays import Arrays
from ..model.errors import declared
from ..model.problem import Problem

EVALUATIONS, OF_INTEGERS = 4, 32
"""How often the reference is evaluated: for real numbers, and where some outputs are integers, which a kernel rounds to
another one seldom."""

FACTOR = 4.0
"""How many times as far off as the farthest of these evaluations a kernel may be."""

ROUNDOFF = 2.0**-23
"""Of sums of fp32, relative to the sizes of their terms: twice what one rounding may change."""

UNITS = 2
"""By how many units in the last place a sum or a product may be off, and other functions by twice as many: more than
on a device, so that few evaluations find what a kernel may round the other way."""

EXACT = {
    *(np.maximum, np.minimum, np.fmax, np.fmin, np.negative, np.positive, np.absolute, np.fabs, np.sign, np.copysign),
    *(np.rint, np.floor, np.ceil, np.trunc, np.ldexp, np.fmod, np.remainder, np.floor_divide, np.nextafter),
}
"""Functions that round nothing."""

ARITHMETIC = {np.add, np.subtract, np.multiply, np.square}
"""Functions that a device rounds once."""

SUMS = {np.add, np.matmul}
"""Functions that add up many terms, as `reduce`, `accumulate` or a product of matrices."""


class Rounded(np.ndarray[Any, Any]):
    """Numbers of fp32 in float64. What is computed of them is rounded to fp32, up or down by chance."""

    random: np.random.Generator

    @classmethod
    def of(cls, values: np.ndarray[Any, Any], random: np.random.Generator) -> np.ndarray[Any, Any]:
        """These numbers, rounded by this generator; whole numbers and bools stay what they are."""
        if values.dtype.kind in "iub":
            return values
        made = values.astype(np.float64).view(cls)
        made.random = random
        return made

    def __array_finalize__(self, other: Any) -> None:
        if other is not None:
            self.random = getattr(other, "random", None) or np.random.default_rng(0)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: tuple[Any, ...] = (), **named: Any) -> Any:
        named |= {"out": tuple(map(_plain, out))} if out else {}
        made = getattr(ufunc, method)(*map(_plain, inputs), **named)
        if ufunc in EXACT or method == "at":
            return self._wrapped(made)
        terms: Any = 0.0
        if ufunc in SUMS and (method in ("reduce", "accumulate", "reduceat") or ufunc is np.matmul):
            with np.errstate(all="ignore"):
                sizes = getattr(ufunc, method)(*(np.abs(_plain(value)) for value in inputs), **named | {"out": None})
            whole = all((_plain(value) == np.rint(_plain(value))).all() for value in inputs)
            terms = np.where((sizes <= 2.0**24) & whole, 0.0, ROUNDOFF * sizes)
        units = UNITS if ufunc in ARITHMETIC or ufunc in SUMS else 2 * UNITS
        found = tuple(self._rounded(value, terms, units) for value in (made if isinstance(made, tuple) else (made,)))
        for kept, value in zip(out, found, strict=False):
            kept[...] = value
        return found if isinstance(made, tuple) else found[0]

    def __array_function__(self, function: Any, types: Any, arguments: Any, named: Any) -> Any:
        made = super().__array_function__(function, types, arguments, named)
        return tuple(map(self._wrapped, made)) if type(made) is tuple else self._wrapped(made)

    def _wrapped(self, value: Any) -> Any:
        if not isinstance(value, (np.ndarray, np.floating)) or value.dtype.kind != "f":
            return value
        made = np.asarray(value).view(Rounded)
        made.random = self.random
        return made

    def _rounded(self, value: Any, terms: Any, units: int) -> Any:
        """The value with an error of up to `terms`, rounded to a number of fp32 that is up to so many `units` off; a
        value that fp32 has stays."""
        if getattr(value, "dtype", np.dtype(object)).kind != "f":
            return value
        with np.errstate(all="ignore"):
            plain = np.asarray(value, np.float64)
            plain = plain + terms * self.random.uniform(-1, 1, plain.shape)
            near = plain.astype(np.float32)
            inexact = np.isfinite(near) & (near != plain)
            for _ in range(units):
                other = np.nextafter(near, np.where(self.random.random(near.shape) < 0.5, np.inf, -np.inf), dtype="f4")
                taken = inexact & (np.signbit(other) == np.signbit(plain)) & (self.random.random(near.shape) < 0.5)
                near = np.where(taken, other, near)
        return self._wrapped(near.astype(np.float64))


def _plain(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, Rounded) else value


def evaluations(problem: Problem, inputs: Arrays, count: int) -> list[Arrays]:
    """What the reference gives in fp32, so many times with other roundings, and in the model. Raises BadOperation."""
    found = []
    for number in range(count):
        random = np.random.default_rng([problem.seed, number])
        with contextlib.suppress(Exception), np.errstate(all="ignore"):  # it may take nothing but plain arrays
            answer = problem.reference({name: Rounded.of(values, random) for name, values in inputs.items()})
            found.append({name: np.asarray(values) for name, values in answer.items()})
    with declared("model of the operation"), np.errstate(all="ignore"):
        return [*found, problem.model(inputs) or {}]


def widened(problem: Problem, inputs: Arrays, expected: Arrays, bound: Arrays) -> Arrays:
    """The bound, for real numbers so many times the farthest evaluation at least. It is NaN, so that nothing is asked
    of an element, where the reference is finite and an evaluation is not, or integers differ. Raises BadOperation."""
    made = {name: values.copy() for name, values in bound.items()}
    if any(values.dtype == np.float64 for values in inputs.values()):
        return made  # such kernels compute in fp64
    types = {name: array.dtype for name, array in problem.arrays().items()}
    whole = not all(types[name].is_float for name in made)
    for answer in evaluations(problem, inputs, OF_INTEGERS if whole else EVALUATIONS):
        for name in answer:
            with np.errstate(all="ignore"):
                right, other = (v.astype(np.float64) for v in (expected[name], types[name].rounded(answer[name])))
                off = FACTOR * np.abs(other - right)
            open_ = np.isfinite(right) & ~np.isfinite(off) if types[name].is_float else off > 0
            made[name] = np.where(open_, np.nan, np.where(np.isfinite(off), np.maximum(made[name], off), made[name]))
    return made
