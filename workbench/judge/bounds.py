"""A-priori error bounds: how far a correctly rounded kernel may be from the float64 reference, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..model.dtypes import FP32, DType

Array = np.ndarray[Any, Any]

ACCUMULATION = 4.0
"""Constant of the statistical accumulation bound; correct fp32 accumulation stays below 1."""

TRUNCATION = 0.125
"""What a term adds, in unit roundoffs of the sum: tensor cores cut off up to two of them after every eight products,
and the sum that is cut off is half as large as the last one in the mean.

Source: measured on an H200. Sums of 2,431 and of 13,695 squares of fp16 by mma.m16n8k16 were 0.094 and 0.097 of a unit
roundoff a term too small."""


def dot_products(
    reference: Array, magnitude: Array, terms: int | Array, out: DType, accumulator: DType = FP32
) -> Array:
    """Bound for sums of `terms` products: rounding of the result plus c u sqrt(K) sum |a||b| of the accumulation.

    `reference` and `magnitude` (the same sums over absolute values) are float64 of one shape; so is the result.
    The sqrt(K) growth is the probabilistic one of Higham and Mary, A New Approach to Probabilistic Rounding Error
    Analysis (2019): zero-mean inputs make rounding errors a random walk. Tensor cores cut sums off, which is a walk in
    one direction where products have one sign: see `TRUNCATION`. A product that is subnormal is off by half of the
    smallest number more; sums of subnormal numbers are exact."""
    error = ACCUMULATION * np.sqrt(terms) * magnitude + TRUNCATION * terms * np.abs(reference)
    error *= accumulator.unit_roundoff
    return _rounded(reference, error + terms * (accumulator.smallest / 2), out)


def finished(reference: Array, sums: Array, magnitude: Array, terms: int, growth: float, out: DType) -> Array:
    """Bound for a function of sums of `terms` products and what is added to them, whose errors it makes at most
    `growth` times as large. `reference` is the result, `sums` are those of the products and `magnitude` those of
    absolute values, with what is added: float64 of one shape, which is that of the bound. See `dot_products`."""
    error = dot_products(sums, magnitude, terms, FP32) + 2 * FP32.unit_roundoff * magnitude
    return _rounded(reference, growth * error, out)


def _rounded(reference: Array, accumulation: Array, out: DType) -> Array:
    """The bound of a result with that error of accumulation, after it is rounded to `out`."""
    bound: Array = out.unit_roundoff * (np.abs(reference) + accumulation) + accumulation + out.smallest
    return bound


def aligned_magnitudes(x: Array, dtype: DType) -> Array:
    """The magnitudes by which tensor cores align the products of numbers of a type, of any shape, float32.

    A subnormal number counts with the exponent of the smallest normal number. So its product may have too large an
    exponent, and the other products lose bits to it. CUDA cores multiply fp32: its magnitudes are those of the numbers.

    Source: measured on an H100. In 3/512 * -1.625/64 - 11 * 1/512 of e4m3 the first product lost what is below 2^-16,
    13 bits behind the exponents of 8 and 1/64. Products of fp16 lose as much, relative to fp32."""
    found: Array = np.abs(x.astype(np.float32))
    if dtype is FP32:
        return found
    return np.where(found > 0, np.maximum(found, np.float32(dtype.smallest_normal)), found)


FP8_SUM = 2.0**-13
"""Unit roundoff of the sums that the tensor cores of Hopper make of 8-bit products: they keep about 14 bits.

Source: DeepSeek-V3 Technical Report (2024), section 3.3.2."""

FP8_TERMS = 32
"""Products of an instruction of 8-bit numbers."""


def scaled_fp8_products(
    reference: Array, magnitude: Array, root_of_squares: Array, terms: int, run: int, out: DType, ordered: bool = False
) -> Array:
    """Bound for sums of `terms` 8-bit products, multiplied by two scales: tensor cores add up runs of `run` terms, 32
    an instruction, and fp32 adds up the runs.

    Shapes as for `dot_products`; `root_of_squares` is the root of the sum of the squares of the products, of the same
    shape, and the scales are in all three. Each of the products of an instruction loses what is below the last bit of
    the largest one, so that few large products among many small ones cost the more: errors of either sign add up as the
    roots of their number and of the squares do. The errors within runs do not grow with the number of runs: each is
    relative to the magnitude of its own run. Equal products lose the same bits, each up to an eighth of the last bit of
    the sum of its run in the mean: a product has eight bits, which fit until the sum is 32 times as large. Where terms
    are `ordered`, the first ones may add up to as much as all magnitudes, and cancel later."""
    terms_of_run = min(terms, run)
    steps = max(1.0, terms_of_run / FP8_TERMS)
    within = FP8_SUM * (np.sqrt(steps) * magnitude + np.sqrt(min(terms, FP8_TERMS)) * root_of_squares)
    across = FP32.unit_roundoff * (np.sqrt(terms / run) + 2) * magnitude
    cut_off = FP8_SUM / 8 * terms_of_run * (magnitude if ordered else np.abs(reference))
    return _rounded(reference, ACCUMULATION * (within + across) + cut_off, out)


EXPONENTIAL = 4.0
"""Relative error of an exponential of an exact argument, in unit roundoffs of fp32: 2 ulp of exp2f or ex2.approx.

Source: CUDA C++ Programming Guide, table of the errors of mathematical functions (exp2f: 2 ulp)."""

ARGUMENT = 3.0
"""Roundings of the argument x - max of an exponential, times log2(e): difference, constant, product."""


def softmax(x: Array, probabilities: Array, out: DType, accumulator: DType = FP32) -> Array:
    """Bound for the probabilities of rows of logits x, (rows, columns) both.

    A relative error of the argument is an absolute one of the exponent (Blanchard, Higham and Higham, Accurately
    Computing the Log-Sum-Exp and Softmax Functions, 2021): ARGUMENT u |x - max| an exponential, and for the sum its
    mean over the probabilities. The sum of n positive terms adds c u sqrt(n); rescaling it when the maximum changes
    costs one exponential a level of the tree of partial maxima, whose changes add up to no more than |x - max|."""
    u, columns = accumulator.unit_roundoff, x.shape[1]
    x64 = x.astype(np.float64)
    top = x64.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        below = np.where(probabilities > 0, top - x64, 0.0)
    argument = 2 * ARGUMENT * below
    mean = (probabilities * argument).sum(axis=1, keepdims=True)
    levels = EXPONENTIAL * (3 + np.log2(columns + 1))
    relative = u * (argument + mean + levels + ACCUMULATION * np.sqrt(columns))
    return _rounded(probabilities, relative * probabilities + 2 * accumulator.smallest, out)


NORM_STEPS = 8.0
"""Roundings between a sum over a row and its normalised elements, in unit roundoffs: mean, eps, reciprocal square root
(2 ulp: CUDA C++ Programming Guide, rsqrtf), two products, and the sum with b."""

UNDERFLOWS = 8.0
"""Products on the way to a normalised element that may be subnormal, where each rounds by half of the smallest number;
weights are at most about 3."""

IN_ORDER = 64
"""Terms that a kernel may add up in order before it begins another run."""


def rms_norm(y: Array, out: DType, accumulator: DType = FP32) -> Array:
    """Bound for x w / sqrt(mean(x^2) + eps), y: (rows, columns).

    All terms of the sum are positive, so that its relative error is c u sqrt(n) (Higham and Mary, 2019); half of it
    reaches the reciprocal square root."""
    relative = accumulator.unit_roundoff * (ACCUMULATION / 2 * np.sqrt(y.shape[1]) + NORM_STEPS)
    return _rounded(y, relative * np.abs(y) + UNDERFLOWS * accumulator.smallest, out)


def standardised(x: Array, eps: float, accumulator: DType = FP32) -> tuple[Array, Array, Array, Array]:
    """The elements of rows less their mean, over the root of variance + eps; by how much they may be off; what they
    were multiplied with, and the relative error of that, (rows, 1) both.

    The mean is off by c u sqrt(n) mean|x|. Sums of squared differences that are put together from parts have a relative
    error of c u sqrt(n) kappa, kappa^2 = mean(x^2) / variance (Chan, Golub and LeVeque, Algorithms for Computing the
    Sample Variance, 1983), and the square of the error of the mean on top. In a row of equal numbers and one other one,
    a large square is followed by equal ones, whose roundings have the same sign: u for each term of a run, and for each
    run."""
    u, count = accumulator.unit_roundoff, x.shape[1]
    growth = ACCUMULATION * np.sqrt(count)
    of_squares = max(growth, min(count, IN_ORDER + count / IN_ORDER))
    x64 = x.astype(np.float64)
    centred = x64 - x64.mean(axis=1, keepdims=True)
    off = u * (growth + 1) * np.mean(np.abs(x64), axis=1, keepdims=True)
    variance, power = (np.mean(v * v, axis=1, keepdims=True) for v in (centred, x64))
    scale = 1 / np.sqrt(variance + eps)
    wrong = (u * of_squares * np.sqrt(variance * power) + off * off) * scale * scale
    n, relative = centred * scale, wrong / 2 + u * NORM_STEPS
    least = UNDERFLOWS * accumulator.smallest
    return n, np.abs(n) * relative + off * scale * (1 + wrong) + least, scale, relative


def layer_norm(x: Array, y: Array, w: Array, b: Array, eps: float, out: DType, accumulator: DType = FP32) -> Array:
    """Bound for (x - mean) w / sqrt(variance + eps) + b, see `standardised`. x, y: (rows, columns); w, b: one row."""
    w64, b64 = (np.abs(v.astype(np.float64)) for v in (w, b))
    _, off, _, _ = standardised(x, eps, accumulator)
    return _rounded(y, off * w64 + accumulator.unit_roundoff * b64 + accumulator.smallest, out)


def log_sum_exp(x: Array, lse: Array, accumulator: DType = FP32) -> Array:
    """Bound for log sum_j e^(x[r, j]); x: (rows, columns), lse: (rows,). 0 where lse is not finite.

    The relative error of the sum, as for `softmax`, is an absolute one of its logarithm; to it come 2 ulp of the
    logarithm (CUDA C++ Programming Guide, logf: 1 ulp) and the rounding of the sum with the maximum."""
    u, columns = accumulator.unit_roundoff, x.shape[1]
    x64, finite = x.astype(np.float64), np.isfinite(lse)
    top = x64.max(axis=1)
    with np.errstate(invalid="ignore", over="ignore"):
        p = np.exp(x64 - lse[:, None])
        mean = np.where(p > 0, p * ARGUMENT * (top[:, None] - x64), 0.0).sum(axis=1)
        sums = u * (mean + EXPONENTIAL * (3 + np.log2(columns + 1)) + ACCUMULATION * np.sqrt(columns))
        error = sums + 4 * u * np.abs(lse - top) + 2 * u * np.abs(lse) + accumulator.smallest
    bound: Array = np.where(finite, error, 0.0)
    return bound


def softmax_backward(y: Array, dy: Array, dx: Array, out: DType, accumulator: DType = FP32) -> Array:
    """Bound for y (dy - sum_j y dy), all (rows, columns): the sum is one of n products (see `dot_products`), to which
    come the roundings of the difference and of the product."""
    u = accumulator.unit_roundoff
    y64, dy64 = np.abs(y.astype(np.float64)), np.abs(dy.astype(np.float64))
    magnitude = (y64 * dy64).sum(axis=1, keepdims=True)
    error = y64 * u * (ACCUMULATION * np.sqrt(y.shape[1]) * magnitude + 3 * (dy64 + magnitude))
    return _rounded(dx, error + (1 + y.shape[1] * y64) * accumulator.smallest, out)


def norm_backward(
    normalised: Array,
    off: Array,
    scale: Array,
    relative: Array | float,
    g: Array,
    dx: Array,
    out: DType,
    accumulator: DType = FP32,
) -> Array:
    """Bound for scale (g - mean g - n mean(g n)), where the normalised elements n are off by at most `off` and the
    scale, (rows, 1), by `relative` of it; all others are (rows, columns).

    Means are sums of n terms (see `dot_products`) of magnitude mean|g| and mean|g n|; the second one has the errors of
    n in it, too. It may be scaled after the products are added up, which round by half of the smallest number."""
    u, growth = accumulator.unit_roundoff, ACCUMULATION * np.sqrt(g.shape[1])
    n, size = np.abs(normalised), np.abs(g)
    mean, product = (np.mean(v, axis=1, keepdims=True) for v in (size, size * n))
    product_off = u * (growth + 4) * product + np.mean(size * off, axis=1, keepdims=True)
    terms = size + mean + n * product
    error = terms * (relative + 4 * u) + u * growth * mean + off * product + n * product_off
    least = accumulator.smallest * (UNDERFLOWS * (1 + n) + n * scale / 2)
    return _rounded(dx, scale * (error + least) + accumulator.smallest, out)
