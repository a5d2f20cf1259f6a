"""NaN and infinities that the kernel computes, where the right answer is a number."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from ...model.dtypes import BF16, E4M3, E5M2, FP16, FP32, TF32, DType
from ...model.problem import Tier
from .evidence import MOSTLY, Evidence, Values, agree
from .places import place, ranges


def computed_nan(e: Evidence) -> str | None:
    """NaN that is not what was in memory before."""
    nan = e.bad & np.isnan(e.got) & ~e.unwritten
    if not nan.any() or nan.sum() < MOSTLY * e.bad.sum():
        return None
    said = f"NaN is computed {_where(nan)}: "
    if read := _from_padding(e, nan):
        return f"{said}it comes from the gaps between the rows of {read}, which belong to no element"
    rows = nan.any(axis=1)
    if len(e.array.shape) > 1 and e.got.shape[1] > 1 and nan[rows].all():
        return (
            f"{said}a value that a whole row shares is NaN, such as 0 / 0 by a sum or a root that is 0 (a missing eps, "
            "a row of zeros, a wholly masked row), or inf - inf by a maximum that is -inf"
        )
    return (
        f"{said}inf / inf or inf - inf (an exponential that overflows: subtract the maximum first), 0 / 0, 0 * inf, or "
        "a root or logarithm of a negative number"
    )


def gaps_read(e: Evidence) -> str | None:
    """Numbers that change with what lies between the rows of inputs, and not from one launch to the next."""
    padded = _padded(e)
    if not padded or not np.array_equal(e.output(e.case), e.got, equal_nan=True):
        return None
    changed = e.bad & (_with_zeros_between(e, padded) != e.got)
    if changed.sum() < MOSTLY * e.bad.sum():
        return None
    where, read = _where(changed), " or ".join(padded)
    return f"what is computed {where} comes from the gaps between the rows of {read}, which belong to no element"


def overflow(e: Evidence) -> str | None:
    """Infinities where the right answer is finite."""
    inf = e.bad & np.isinf(e.got) & np.isfinite(e.expected)
    if not inf.any() or inf.sum() < MOSTLY * e.bad.sum():
        return None
    largest = float(np.abs(e.expected[inf]).max())
    return (
        f"overflow: infinity {_where(inf)}, where at most {largest:.3g} is right; a number in between is too large for "
        "its type (a sum or square in fp16, which ends at 65504; an exponential without the maximum subtracted), or "
        "something is divided by 0"
    )


def _where(mask: Values) -> str:
    if mask.all():
        return "in every element"
    return place(mask) or f"in {mask.sum():,} of {mask.size:,} elements"


def _from_padding(e: Evidence, nan: Values) -> str:
    """The inputs between whose rows the NaN is read: with zeros there, it is gone."""
    padded = _padded(e)
    return "" if not padded or np.isnan(_with_zeros_between(e, padded)[nan]).any() else " or ".join(padded)


def _padded(e: Evidence) -> list[str]:
    return [name for name, array in e.case.arrays.items() if array.padded and not array.output]


def _with_zeros_between(e: Evidence, padded: list[str]) -> Values:
    """The output where there are zeros between the rows of these inputs."""
    zeros = {n: dataclasses.replace(a, fill=bytes(a.dtype.itemsize)) for n, a in e.case.arrays.items() if n in padded}
    return e.output(dataclasses.replace(e.case, arrays={**e.case.arrays, **zeros}))


# -------------------------------------------------------------------- sums of which terms are missing or counted twice


CHANGED = 16.0
"""An answer counts as changed where it is so many times its bound away."""

MOST_PROBES = 16
"""Launches spent on finding out which terms of a sum are missing."""

WARP, WIDTHS = 32, (1, 2, 4, 8)
"""Lanes of a warp, and how many neighbouring elements a lane may take at once."""


def half_warp(e: Evidence) -> str | None:
    """A reduction over half a warp: what the upper lanes take does not count.

    Input elements of the upper half of lanes are changed. A right answer changes with them, by much more than may be
    rounding; one that stays what it is does not depend on them."""
    if e.bad.mean() < MOSTLY:
        return None
    inputs = {n: v for n, v in e.case.inputs.items() if e.case.arrays[n].dtype.is_float and v.ndim > 1}
    name = max(inputs, key=lambda n: inputs[n].size, default=None)
    if name is None or inputs[name].shape[-1] < WARP:
        return None
    values = inputs[name]
    for width in WIDTHS:
        upper = np.arange(values.shape[-1]) // width % WARP >= WARP // 2
        if not upper.any():
            break
        other = e.with_inputs(**{name: np.where(upper, -3 * values.astype(np.float32), values).astype(values.dtype)})
        asked = np.broadcast_to(~upper if e.got.shape[1] == len(upper) else True, e.got.shape)
        with np.errstate(invalid="ignore"):
            change = np.abs(other.expected[e.name].reshape(e.got.shape) - e.expected)
            asked = asked & (change > CHANGED * e.bound)
            if asked.mean() <= MOSTLY / 4:
                continue
            same = np.abs(e.output(other) - e.got) <= e.bound
        if same[asked].all():
            return (
                f"half of every warp is left out: elements {WARP // 2 * width} to {WARP * width - 1} of every "
                f"{WARP * width} along the rows of {name} do not count; look for a shuffle over half a warp, which "
                "begins with distance 8 or has a width of 16"
            )
    return None


def terms(e: Evidence) -> str | None:
    """Which terms are dropped or counted twice, of an operation that can be probed for each."""
    problem = e.case.problem
    terms, cells = problem.terms, e.got.size
    batch = min(terms, cells)
    if terms < 2 or e.bad.mean() < 0.3 or 2 * -(-terms // batch) > MOST_PROBES:
        return None
    seen = np.full((2, terms), np.nan)
    for first in range(0, terms, batch):
        chosen = np.arange(first, min(first + batch, terms))
        for i, at in enumerate((np.arange(len(chosen)), cells - 1 - np.arange(len(chosen)))):
            order = np.full(cells, -1)
            order[at] = chosen
            seen[i, chosen] = e.output(dataclasses.replace(e.case, inputs=problem.probe(order))).reshape(-1)[at]
    return _named(seen, terms)


def _named(seen: Values, terms: int) -> str | None:
    for value, what in ((0.0, "are dropped"), (2.0, "are counted twice")):
        which = np.flatnonzero((seen == value).all(axis=0))
        if 0 < len(which) < terms:
            return f"terms of the sum {what}: {ranges(which)} of k = 0 to {terms - 1}"
    return None


def known_fault(e: Evidence) -> str | None:
    """What one of the operation's negative controls is."""
    for name, answer in e.case.problem.negative_controls(e.case.inputs, e.case.expected).items():
        candidate = answer[e.name].reshape(e.got.shape)
        if not agree(e.expected, candidate, e.bound) and agree(e.got, candidate, e.bound):
            return f"as a kernel with this fault would answer: {name}"
    return None


# --------------- answers that are off by a factor, of all or of each row, or by the base of a logarithm or exponential


LN_2 = math.log(2.0)

TELLING = 16.0
"""An element tells of a factor where it is so many times its bound at least."""

SHARE = 0.5
"""Share of the elements that have to tell."""

CLOSE = 0.01
"""How near a slope of logarithms has to be to the one that is looked for."""

BASE_2_LOGARITHM = "a logarithm to base 2 stands for a natural one (log2f for logf, or a factor ln 2 = 0.693 forgotten)"
BASE_2_EXPONENTIAL = (
    "an exponential to base 2 stands for e^x (exp2f of an argument that was not multiplied with log2 e = 1.4427)"
)


def factor(e: Evidence) -> str | None:
    """The same factor for all, or for the elements of each row or column."""
    with np.errstate(invalid="ignore", divide="ignore"):
        tells = (np.abs(e.expected) > TELLING * e.bound) & np.isfinite(e.expected) & np.isfinite(e.got)
        if tells.sum() < 2 or tells.mean() < SHARE:  # one element is some factor of any other
            return None
        ratio = np.where(tells, e.got / e.expected, np.nan)
    whole = np.full(e.got.shape, np.nanmedian(ratio))
    if _explains(e, whole):
        return _of_all(e, float(whole.flat[0]))
    for axis, noun in e.nouns:
        if len(e.nouns) < 2 or (tells.sum(axis=1 - axis) < 2).any():
            continue
        each = np.nanmedian(ratio, axis=1 - axis, keepdims=True)
        if _explains(e, np.broadcast_to(each, e.got.shape)):
            wrong = each[np.asarray(e.bad.any(axis=1 - axis)).reshape(each.shape)]
            who = f"each {noun} is" if len(wrong) == each.size else f"{len(wrong)} of {each.size} {noun}s are each"
            share = "a sum, mean, maximum or root" if axis == 0 else "a weight or scale"
            return (
                f"{who} off by one factor, of {wrong.min():.4g} to {wrong.max():.4g}: what the elements of a {noun} "
                f"share is wrong ({share})"
            )
    return None


def _explains(e: Evidence, factors: Values) -> bool:
    with np.errstate(invalid="ignore"):
        near = np.abs(e.got - factors * e.expected) <= 2 * np.maximum(1.0, np.abs(factors)) * e.bound
    same = (e.got == e.expected) | (np.isnan(e.got) & np.isnan(e.expected))
    return bool((near | same).all()) and bool((np.abs(factors) > 1e-6).all())


def _of_all(e: Evidence, by: float) -> str:
    if math.isclose(by, 1 / LN_2, rel_tol=1e-3):
        return f"every element is {by:.6g} = 1 / ln 2 times what is right: {BASE_2_LOGARITHM}"
    if math.isclose(by, -1.0, rel_tol=1e-3):
        return "every element has the wrong sign"
    return (
        f"every element is {by:.6g}{_known(e, by)} times what is right: one factor is missing, wrong or applied twice"
    )


def _known(e: Evidence, by: float) -> str:
    """What the factor is of an extent of the arrays, where it is that of a mean or a root over them."""
    for n in sorted({extent for array in e.case.arrays.values() for extent in array.shape if extent > 3}):
        named = {
            f"{n}": n,
            f"sqrt({n})": n**0.5,
            f"{n} / {n - 1}": n / (n - 1),
            f"sqrt({n} / {n - 1})": (n / (n - 1)) ** 0.5,
        }
        for text, value in named.items():
            if math.isclose(by, value, rel_tol=1e-5):
                return f" = {text}"
            if math.isclose(by, 1 / value, rel_tol=1e-5):
                return f" = 1 / {text}" if " " not in text else f" = 1 / ({text})"
    return ""


def base_two(e: Evidence) -> str | None:
    """Base 2 in a logarithm within a sum, or in exponentials that are normalised."""
    return _logarithm(e) or _exponential(e)


def _logarithm(e: Evidence) -> str | None:
    """Of log sum e^x = max + log sum e^(x - max), the second part is 1 / ln 2 times what it should be."""
    for name, values in e.case.inputs.items():
        if values.ndim != 2 or not e.case.arrays[name].dtype.is_float or values.shape[0] != e.got.size:
            continue
        with np.errstate(all="ignore"):
            x = values.astype(np.float64)
            top = x.max(axis=1)
            missing = ((1 / LN_2 - 1) * np.log(np.exp(x - top[:, None]).sum(axis=1))).reshape(e.got.shape)
            near = np.abs(e.got - e.expected - missing) <= CLOSE * np.abs(missing) + 2 * e.bound
        if near[e.bad].all() and (missing[e.bad] > TELLING * e.bound[e.bad]).any():
            return f"the logarithm of a sum is 1 / ln 2 times too large, base 2: {BASE_2_LOGARITHM}"
    return None


def _exponential(e: Evidence) -> str | None:
    """Rows that sum to 1, of which the logarithms are ln 2 times as steep as they should be."""
    positive = (e.got > 0) & (e.expected > 0) & np.isfinite(e.got) & np.isfinite(e.expected)
    if e.got.shape[1] < 3 or positive.mean() < SHARE or not positive.any(axis=1).all():
        return None
    with np.errstate(all="ignore"):
        logs = [np.where(positive, np.log(v), np.nan) for v in (e.expected, e.got)]
        right, got = (v - np.nanmean(v, axis=1, keepdims=True) for v in logs)
        slope = np.nansum(right * got) / np.nansum(right * right)
        if not math.isclose(slope, LN_2, rel_tol=CLOSE):
            return None
        straight = np.nanmean(np.abs(got - slope * right)) < CLOSE * np.nanmean(np.abs(got))
    return BASE_2_EXPONENTIAL if straight else None


# ------------------ answers that are near, but not near enough: something is kept in a narrower type than it should be


NARROW = (E5M2, E4M3, BF16, FP16)
"""Types that something may be kept in by mistake, the narrowest significand first."""

NEAR = 0.25
"""Largest error, of the root mean square of the right answers, that counts as a loss of precision."""

ALL = 0.99
"""Share of the answers that have to be numbers of a type."""

FEWEST = 8
"""Answers that are needed to tell of their type."""

TIGHT = 8.0
"""Errors of so many times the bound, at most, may be those of a right kernel beyond a bound that is too tight."""


def rounding(e: Evidence) -> str | None:
    """Errors beyond the bound that are not far beyond it."""
    if e.case.problem.tier is Tier.EXACT or not np.isfinite(e.got[e.bad]).all() or not (e.bound[e.bad] > 0).all():
        return None
    error = np.abs(e.got - e.expected)[e.bad]
    worst = float((error / e.bound[e.bad]).max())
    if worst > TIGHT or (error > 1e-3 * np.abs(e.expected).max()).any():
        return None
    return (
        f"errors of at most {worst:.3g} times what is permitted, as rounding gives: the bound may be too tight. "
        "Derive it from the sums that a right kernel rounds, or look for a sum in a bad order"
    )


def narrow(e: Evidence) -> str | None:
    """Errors everywhere that are small: whose type it is."""
    if e.case.problem.tier is Tier.EXACT or not np.isfinite(e.got).all() or not np.isfinite(e.expected).all():
        return None
    spread, error = float(np.sqrt(np.mean(e.expected**2))), np.abs(e.got - e.expected)
    if spread == 0 or error.max() > NEAR * spread or not _everywhere(e, error):
        return None
    typical = float(np.sqrt(np.mean(error**2))) / spread
    said = f"precision is lost: an error of {typical:.1g} of the size of the answers"
    if (kept := _kept_in(e)) is not None:
        return (
            f"{said}, and every answer is a number of {kept}: the accumulator, or the result before it is stored, is "
            f"{kept}; keep it in fp32"
        )
    if (read := _read_as(e)) is not None:
        return f"{said}, which is gone where the inputs are numbers of {read}: an input is rounded to {read}"
    if typical < 16 * FP32.unit_roundoff:
        worst = float(np.max(np.divide(error, e.bound, out=np.zeros_like(error), where=e.bound > 0)))
        return (
            f"{said}, {worst:.3g} times what is permitted: that is what rounding in fp32 gives, so look for a sum in a "
            "bad order, for cancellation, or for a bound that is too tight"
        )
    if not _right_for_integers(e):
        return None
    return (
        f"{said}, while small integers come out right: something is narrower than fp32. As large an error has "
        f"{_as_large(e, typical)}"
    )


ONE, SUM = 0.4, 0.29
"""Root mean square of the relative error of one rounding, and of a sum of K terms over sqrt(K), in unit roundoffs: the
rounding errors of a sum of zero-mean terms are a random walk, of steps as large as its partial sums."""

ALIKE = 3.0
"""Errors that differ by no more than this factor are not told apart."""


def _as_large(e: Evidence, typical: float) -> str:
    """What gives an error of this size, the likeliest first."""
    inputs = [v.shape[-1] for n, v in e.case.inputs.items() if v.ndim and e.case.arrays[n].dtype.is_float]
    terms = e.case.problem.terms or max(inputs, default=1)
    sizes = {
        f"a sum of {terms} terms in bf16": SUM * BF16.unit_roundoff * terms**0.5,
        f"a sum of {terms} terms in fp16": SUM * FP16.unit_roundoff * terms**0.5,
        "a value in between that is rounded to bf16": ONE * BF16.unit_roundoff,
        "one that is rounded to fp16 or tf32": ONE * FP16.unit_roundoff,
    }
    far = {what: abs(np.log(typical / size)) for what, size in sizes.items()}
    likeliest = min(far.values())
    return ", or ".join(
        what for what in sorted(far, key=far.__getitem__) if far[what] <= max(likeliest, float(np.log(ALIKE)))
    )


def _everywhere(e: Evidence, error: Values) -> bool:
    """Whether errors are of all elements alike, and not of a few that are computed otherwise."""
    return bool(e.bad.mean() > 0.3) and float(np.median(error)) > 0.02 * float(error.max())


def _kept_in(e: Evidence) -> DType | None:
    """The narrowest type of which all answers are numbers, and the right ones are not, where the output has a wider
    one."""
    values, right = (v[e.got != 0].astype(np.float32) for v in (e.got, e.expected))
    if len(values) < FEWEST:
        return None
    for dtype in NARROW:
        if e.array.dtype.unit_roundoff < dtype.unit_roundoff:
            ours, theirs = (float(np.mean(dtype.rounded(v).astype(np.float32) == v)) for v in (values, right))
            if ours >= ALL > 2 * theirs:
                return dtype
    return None


def _read_as(e: Evidence) -> DType | None:
    """The type to which inputs are rounded, of which the answers to inputs of that type are right."""
    for dtype in (TF32, FP16, BF16):
        inputs = {
            name: _rounded(values, dtype)
            for name, values in e.case.inputs.items()
            if e.case.arrays[name].dtype.is_float and e.case.arrays[name].dtype.unit_roundoff < dtype.unit_roundoff
        }
        if not inputs:
            continue
        other = e.with_inputs(**inputs)
        if (np.abs(e.output(other) - other.expected[e.name].reshape(e.got.shape)) <= e.bound).all():
            return dtype
    return None


def _rounded(values: Values, dtype: DType) -> Values:
    """Values of a wider type rounded to a narrower one; to tf32 by leaving bits out."""
    if dtype is TF32:
        return (values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(values.dtype)
    rounded: Values = dtype.rounded(values).astype(values.dtype)
    return rounded


def _right_for_integers(e: Evidence) -> bool:
    """Whether the stage is right in the exact tier."""
    if Tier.EXACT not in e.case.problem.tiers:
        return False
    exact = type(e.case).of(dataclasses.replace(e.case.problem, tier=Tier.EXACT))
    right = e.array.dtype.rounded(exact.expected[e.name]).astype(np.float64).reshape(e.got.shape)
    return bool(np.array_equal(e.output(exact), right))
