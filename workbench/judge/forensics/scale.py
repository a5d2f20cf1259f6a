"""Answers that are off by a factor, of all or of each row, or by the base of a logarithm or exponential."""

from __future__ import annotations

import math

import numpy as np

from .evidence import Evidence, Values

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
