"""A problem with its inputs, its float64 reference and its error bound: what an answer is judged by.

Answers are compared element by element, finite first, against the float64 reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..model.arrays import Array, Arrays
from ..model.distributions import WITHOUT_NUMBERS, Distribution
from ..model.errors import BadOperation, arrays_like, declared
from ..model.problem import Problem, Tier
from ..model.results import Failure, Verdict, WrongElement
from .comparative import twice_the_model
from .rounding import widened

SHOWN = 8
"""Wrong elements that are kept as evidence."""


@dataclass(frozen=True)
class Comparison:
    """`worst` is the largest error / bound over all elements (infinite where one is not finite or not written)."""

    worst: float
    wrong_count: int
    element_count: int
    wrong: list[WrongElement]


def errors(
    array: Array,
    got: np.ndarray[Any, Any],
    expected: np.ndarray[Any, Any],
    bound: np.ndarray[Any, Any],
    tier: Tier,
) -> np.ndarray[Any, Any]:
    """Error / bound of every element: above 1, infinite or NaN where it is wrong, and NaN where the bound is NaN (see
    `compare`)."""
    if array.dtype.numpy.kind == "b":
        got = got.view(np.uint8)  # what is neither true nor false is wrong
    if tier is Tier.EXACT or (array.dtype.numpy.kind in "iu" and expected.dtype.kind in "iu" and not bound.any()):
        return np.where(_same(array, got, _rounded(array, expected)), 0.0, np.inf)
    values = got.astype(np.float64)
    finite = np.isfinite(values)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        ratio = values  # of large outputs every array more takes longer than the arithmetic
        np.subtract(values, expected, out=ratio, where=finite)
        np.abs(ratio, out=ratio)
        np.divide(ratio, bound, out=ratio, where=finite & (ratio != 0))  # a bound may be zero
    if not finite.all():
        agree = _same(array, got, _rounded(array, expected)) | _overflowed(array, got, expected, bound)
        ratio = np.where(finite, ratio, np.where(agree, 0.0, np.inf))
    return ratio


def _same(array: Array, got: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Whether elements are equal, NaN to NaN included, unless it is the one of memory that nobody wrote."""
    same: np.ndarray[Any, Any] = got == right
    if array.dtype.is_float and not same.all():
        nans = np.isnan(right) & np.isnan(got)
        written = True if array.dtype.is_scale else ~array.unwritten(got)  # scales have one NaN
        same = same | (nans & written) if nans.any() else same
    return same


def _overflowed(
    array: Array, got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], bound: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Which elements are infinite where a number within the bound is rounded to that infinity."""
    with np.errstate(invalid="ignore", over="ignore"):
        farthest = array.dtype.rounded(expected + np.copysign(bound, got.astype(np.float64)))
    infinite: np.ndarray[Any, Any] = np.isinf(got) & (got == farthest) & np.isfinite(bound)
    return infinite


def _rounded(array: Array, expected: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """In the array's type; a bool as 0 or 1."""
    rounded = array.dtype.rounded(expected)
    return rounded.view(np.uint8) if array.dtype.numpy.kind == "b" else rounded


def compare(
    name: str,
    array: Array,
    got: np.ndarray[Any, Any],
    expected: np.ndarray[Any, Any],
    bound: np.ndarray[Any, Any],
    tier: Tier,
    widened_by_rounding: bool = False,
) -> Comparison:
    """Compare an output with its reference.

    got: shape of the array, in its dtype; expected, bound: the same shape, float64. In the exact tier the result has
    to equal the reference rounded once to the output's dtype (signed zeros are equal); in the others
    |got - expected| <= bound. An element that is not finite has to be what the rounded reference is, NaN or an infinity
    of the same sign; where a number within the bound is rounded to an infinity, that is right as well. A bound that is
    `widened_by_rounding` is NaN where an element may be anything that was written."""
    ratio = errors(array, got, expected, bound, tier)
    if widened_by_rounding and (nothing_asked := np.isnan(bound)).any():  # but that somebody has written
        ratio = np.where(nothing_asked, np.where(array.unwritten(got), np.inf, 0.0), ratio)
    worst = float(ratio.max(initial=0.0))
    if worst <= 1.0:  # which a NaN is not
        return Comparison(worst, 0, ratio.size, [])
    bad = ~(ratio <= 1.0)
    wrong = []
    for index in np.argwhere(bad)[:SHOWN]:
        at = tuple(int(i) for i in index)
        rounded = _rounded(array, expected[at].reshape(1))[0]
        right = rounded if tier is Tier.EXACT or not np.isfinite(np.float64(rounded)) else expected[at]
        allowed = 0.0 if tier is Tier.EXACT else float(np.nan_to_num(bound[at], posinf=np.inf))
        wrong.append(WrongElement(name, list(at), _text(got[at]), _text(right), allowed))
    return Comparison(worst, int(bad.sum()), bad.size, wrong)


def _text(value: Any) -> str:
    """A number as evidence shows it: integers in full."""
    return str(value) if getattr(value, "dtype", np.dtype(float)).kind in "iub" else f"{float(value):.9g}"


def accepts(arrays: Mapping[str, Array], answer: Arrays, expected: Arrays, bound: Arrays, tier: Tier) -> bool | None:
    """Whether an answer, rounded to the outputs' types, would pass for right; None where it is the right one then."""
    same, wrong = True, 0
    for name, array in arrays.items():
        if not array.output:
            continue
        got, right = (array.dtype.rounded(values[name]) for values in (answer, expected))
        same = same and np.array_equal(got, right, equal_nan=True)
        wrong += compare(name, array, got, expected[name], bound[name], tier).wrong_count
    return None if same else wrong == 0


SAID = {
    Distribution.ZEROS: "the inputs have zeros of both signs",
    Distribution.SCALED: "the inputs are scaled by powers of two",
    Distribution.SUBNORMAL: "the inputs have subnormal numbers",
    Distribution.LARGE: "the inputs are large numbers",
    Distribution.NON_FINITE: "the inputs have NaN or infinities, and the operation declares non_finite=propagate: an "
    "element has to be NaN or infinite where its reference is, and only there",
    Distribution.MANY_NON_FINITE: "rows of the inputs are full of NaN, infinities or zeros, and the operation declares "
    "non_finite=propagate: an element has to be NaN or infinite where its reference is, and only there",
    Distribution.WIDE: "the inputs have numbers of every size in one row",
    Distribution.OUTLIER: "one row or column of the inputs is much larger than the others",
    Distribution.POSITIVE: "all inputs are positive",
    Distribution.NEGATIVE: "all inputs are negative",
    Distribution.CONSTANT: "the inputs are constant, in all or along rows or columns",
    Distribution.EQUAL_ROWS: "all rows of an input are equal",
    Distribution.CLOSE: "the inputs are far from 0 and close together",
    Distribution.BINADE: "numbers of the inputs lie between a power of two and the next",
    Distribution.SORTED: "the rows or columns of the inputs are sorted",
    Distribution.SAME: "inputs of one type hold the same numbers, and may be one array in memory",
}
"""What a failure says of the inputs, where they are no ordinary ones."""


class BadBound(BadOperation):
    """The error bound of an operation is not valid; the message says what it has to be."""


def _checked(bound: Any, expected: Arrays) -> Arrays:
    """The bound, for every element of every output a number that is not negative. Raises BadBound."""
    if not isinstance(bound, dict) or set(bound) != set(expected):
        raise BadBound(f"bound of the operation gives {bound!r}; it has to give a dict with {', '.join(expected)}")
    for name, right in expected.items():
        values = bound[name]
        if not isinstance(values, np.ndarray) or values.dtype.kind != "f" or values.shape != right.shape:
            what = f"{values.dtype} of shape {values.shape}" if isinstance(values, np.ndarray) else repr(values)
            raise BadBound(f"bound of {name} is {what}; it has to be an array of floats of shape {right.shape}")
        if not (values >= 0).all():
            raise BadBound(f"bound of {name} has elements that are negative or NaN")
    return bound


def quiet(problem: Problem) -> np.errstate:
    """A context in which NumPy says nothing of overflow and NaN where inputs have them on purpose."""
    return np.errstate(all=None if problem.distribution is Distribution.NORMAL else "ignore")


def _of_finite(bound: Any, expected: Arrays, kind: Distribution) -> Any:
    """The bound, 0 where the reference is not finite, which has to be met. Beside NaN and infinities a bound may be
    NaN as well: there an element has to be finite, which is all that is known of it."""
    if kind is Distribution.NORMAL or not isinstance(bound, dict):
        return bound
    found = dict(bound)
    for name in bound.keys() & expected.keys():
        values = bound[name]
        if isinstance(values, np.ndarray) and values.shape == expected[name].shape:
            if kind in WITHOUT_NUMBERS:
                values = np.where(np.isnan(values), np.inf, values)
            found[name] = np.where(np.isfinite(expected[name]), values, 0.0)
    return found


def bound_of(problem: Problem, inputs: Arrays, expected: Arrays) -> Arrays:
    """The error that each element may have in the problem's tier. Raises BadOperation."""
    if problem.tier is Tier.COMPARATIVE:
        return _checked(twice_the_model(problem, inputs, expected), expected)
    if Tier.BOUNDED in problem.tiers:
        return _checked(_of_finite(problem.bound(inputs, expected), expected, problem.distribution), expected)
    types = {name: array.dtype for name, array in problem.arrays().items()}
    # exact: nothing but the rounding of the result
    made = {n: types[n].unit_roundoff * np.abs(v).astype(np.float64) + types[n].smallest for n, v in expected.items()}
    return _checked(_of_finite(made, expected, problem.distribution), expected)


def solved(problem: Problem, inputs: Arrays) -> Arrays:
    """The reference; integers modulo 2^bits of the type of their output, as every kernel stores them."""
    try:
        found: Any = problem.reference(inputs)
    except IndexError as error:
        if problem.distribution is not Distribution.NORMAL and problem.limits():
            error.args = (f"{error}; give `ranges` for elements of {', '.join(problem.limits())} that are indices",)
        raise
    if isinstance(found, dict):
        for name, array in problem.arrays().items():
            whole = array.output and array.dtype.numpy.kind in "iu" and name in found
            if whole and np.asarray(found[name]).dtype.kind in "iu":
                found[name] = array.dtype.rounded(np.asarray(found[name]))
    result: Arrays = found
    return result


@dataclass(frozen=True)
class Case:
    """A problem with its inputs, float64 reference and error bound."""

    problem: Problem
    arrays: dict[str, Array]
    inputs: Arrays
    expected: Arrays
    bound: Arrays

    @classmethod
    def of(cls, problem: Problem) -> Case:
        """Make the inputs of a problem and solve it by the reference. Raises BadOperation."""
        with declared("the operation"), quiet(problem):
            arrays, _, _ = problem.arrays(), problem.label, problem.cost
            shapes = {name: array.shape for name, array in arrays.items()}
            outputs = {name: shape for name, shape in shapes.items() if arrays[name].output}
            inputs = problem.given()
            arrays_like("inputs of the operation", inputs, {n: s for n, s in shapes.items() if arrays[n].given})
            expected = arrays_like("reference of the operation", solved(problem, inputs), outputs)
            return cls(problem, arrays, inputs, expected, bound_of(problem, inputs, expected))

    @cached_property
    def allowed(self) -> Arrays:
        """The bound; where the operation has derived none, as wide as what rounding alone may change, which takes
        longer to find out than to compare. Raises BadOperation."""
        if not self.problem.bound_by_default or self.problem.tier is not Tier.BOUNDED:
            return self.bound
        return widened(self.problem, self.inputs, self.expected, self.bound)

    def by_rounding(self) -> Case:
        """The case with what is `allowed` for its bound; infinity where nothing is asked. Raises BadOperation."""
        return replace(self, bound={n: np.nan_to_num(v, nan=np.inf, posinf=np.inf) for n, v in self.allowed.items()})

    def without_signs(self) -> Case:
        """The same problem with the magnitudes of its inputs. Raises BadOperation."""
        inputs = {name: np.abs(values).astype(values.dtype) for name, values in self.inputs.items()}
        with declared("the operation"), quiet(self.problem):
            expected = solved(self.problem, inputs)
            return replace(self, inputs=inputs, expected=expected, bound=bound_of(self.problem, inputs, expected))

    def bound_for(self, inputs: Arrays) -> Arrays:
        """The bound of the same problem with other inputs. Raises BadOperation."""
        with declared("the operation"), quiet(self.problem):
            return bound_of(self.problem, inputs, self.problem.reference(inputs))

    @cached_property
    def prepared(self) -> Arrays:
        """What the operation prepares of the inputs on the host. Raises BadOperation."""
        shapes = {name: array.shape for name, array in self.arrays.items() if array.prepared}
        with declared("prepare of the operation"):
            return arrays_like("prepare of the operation", self.problem.prepare(self.inputs) if shapes else {}, shapes)

    def storage(self) -> Arrays:
        """Fresh storage for every array: inputs with gaps as `_with_gaps` says, outputs unwritten."""
        values = {**self.prepared, **self.inputs}
        return {
            name: array.poisoned() if array.output and not array.inout else self._with_gaps(array).pack(values[name])
            for name, array in self.arrays.items()
        }

    def _with_gaps(self, array: Array) -> Array:
        """The array with what is to lie between its elements: NaN, which sums do not hide; for odd seeds of an input
        the largest number, which maxima do not hide, since they pass over NaN."""
        if array.output or array.fill or self.problem.seed % 2 == 0:
            return array
        return replace(array, fill=array.dtype.largest)

    def refilled(self) -> Case:
        """The same case, in which memory that a kernel only writes to holds other bits before: what is left of them in
        both was not written."""
        arrays = {n: replace(a, fill=a.dtype.fillers[1]) if a.output else a for n, a in self.arrays.items()}
        return replace(self, arrays=arrays)

    def unwritten(self, name: str, after: Arrays, solve: Callable[[Case], Arrays]) -> np.ndarray[Any, Any]:
        """Which elements of an output nobody wrote, in the storage `after`; `solve` gives that of another case.

        An element that holds the filler's bits may have been computed: then the case is solved once more, in memory
        with other bits."""
        array = self.arrays[name]
        found = array.unwritten(array.view(after[name]))
        if found.any():
            other = self.refilled()
            array = other.arrays[name]
            found = found & array.unwritten(array.view(solve(other)[name]))
        return found

    def judge(self, read: Callable[[str], np.ndarray[Any, Any]]) -> tuple[Failure | None, float]:
        """Compare every output that `read` returns; a failure without replay command, and the worst error / bound."""
        worst = 0.0
        for name, array in self.arrays.items():
            if not array.output:
                continue
            storage = read(name)
            result = compare(name, array, array.view(storage), self.expected[name], self.bound[name], self.problem.tier)
            if result.wrong_count and self.allowed is not self.bound:
                right, allowed = self.expected[name], self.allowed[name]
                result = compare(name, array, array.view(storage), right, allowed, self.problem.tier, True)
            worst = max(worst, result.worst)
            if result.wrong_count:
                return self._mismatch(name, result), worst
            if stray := array.written_padding(storage):
                message = f"{stray} elements between the rows of {name} were written; they are not the kernel's"
                return Failure(Verdict.OUT_OF_BOUNDS, str(self.problem), message, ""), worst
        return None, worst

    def negative_controls(self) -> tuple[int, list[str]]:
        """How many of the problem's negative controls the comparison rejects, and the names of those that it accepts.

        Controls that round to the right answer are neither. Raises BadOperation."""
        shapes = {name: array.shape for name, array in self.arrays.items() if array.output}
        with declared("negative_controls of the operation"):
            answers = {
                name: arrays_like(f"negative_controls, for `{name}`,", answer, shapes)
                for name, answer in self.problem.negative_controls(self.inputs, self.expected).items()
            }
        if not answers:
            return 0, []  # the operation has to know what is wrong of it
        answers = obvious_controls(self.arrays, self.expected) | answers
        verdicts = {
            name: accepts(self.arrays, answer, self.expected, self.bound, self.problem.tier)
            for name, answer in answers.items()
        }
        return sum(v is False for v in verdicts.values()), [name for name, v in verdicts.items() if v]

    def answers(self, after: Arrays) -> Arrays:
        """The outputs in the storage of all arrays, in float64."""
        return {n: a.view(after[n]).astype(np.float64) for n, a in self.arrays.items() if a.output}

    def changed_inputs(self, after: Arrays) -> list[str]:
        """The inputs whose storage differs from what the stage was given, each with its first changed element."""
        before, found = self.storage(), []
        for name, array in self.arrays.items():
            if array.output or after[name].tobytes() == before[name].tobytes():
                continue
            bits = [s.view(np.uint8).reshape(-1, array.dtype.itemsize) for s in (before[name], after[name])]
            first = int(np.flatnonzero((bits[0] != bits[1]).any(axis=1))[0])
            found.append(f"{name} ({name}[{first}] of its storage was {before[name][first]}, now {after[name][first]})")
        return found

    def _mismatch(self, name: str, result: Comparison) -> Failure:
        message = f"{result.wrong_count} of {result.element_count} elements of {name} are wrong"
        if kind := SAID.get(self.problem.distribution):
            message += f"; {kind}"
        failure = Failure(Verdict.MISMATCH, str(self.problem), message, "", result.wrong)
        failure.wrong_count, failure.element_count = result.wrong_count, result.element_count
        return failure


def obvious_controls(arrays: Mapping[str, Array], expected: Arrays) -> dict[str, Arrays]:
    """Answers that no comparison may take, whatever the operation is: zeros, a row that is missing, an element that is
    off by a tenth, and where all numbers have fp32 or fp64 those of half precision. By what is wrong."""
    found: dict[str, Arrays] = {}
    narrow = any(array.dtype.is_float and array.dtype.itemsize < 4 for array in arrays.values())
    for name, right in expected.items():
        if arrays[name].output and right.size:
            found |= {f"{name}: {what}": {**expected, name: made} for what, made in _obvious(right, narrow)}
    return found


TENTH = 0.1
"""Of the largest element of an output, by which it is off."""


def _obvious(right: np.ndarray[Any, Any], narrow: bool) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    yield "all elements zero", np.zeros_like(right)
    if right.dtype.kind not in "fc":
        return
    sizes = np.where(np.isfinite(right), np.abs(right), 0.0)
    place = np.unravel_index(int(sizes.argmax()), right.shape) if right.ndim else ()
    missing, off = right.copy(), right.copy()
    missing[place[:-1]] = 0
    off[place] *= 1 + TENTH
    yield "the row of the largest element zero", missing
    yield "the largest element off by a tenth", off
    if not narrow and sizes.max() < np.finfo(np.float16).max:
        yield "in half precision", right.astype(np.float16).astype(right.dtype)
