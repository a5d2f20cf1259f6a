"""Answers that are near, but not near enough: something is kept in a narrower type than it should be."""

from __future__ import annotations

import dataclasses

import numpy as np

from ...model.dtypes import BF16, E4M3, E5M2, FP16, FP32, TF32, DType
from ...model.problem import Tier
from .evidence import Evidence, Values

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
