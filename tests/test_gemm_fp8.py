"""What the bound of 8-bit products allows for: tensor cores align products by the exponents of their factors."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.judge import bounds
from workbench.kernels.gemm_fp8 import ScaledGemmProblem
from workbench.model.dtypes import E4M3, FP32
from workbench.model.problem import Tier

LEAST_EXPONENT, KEPT = -6, 13
"""Of a normal number of e4m3; bits behind the largest exponent that an H100 keeps of every product."""

Array = np.ndarray


def exponents(x: Array) -> Array:
    return np.maximum(np.frexp(x)[1] - 1, LEAST_EXPONENT)


def multiplied(a: Array, b: Array) -> Array:
    """a b^T as an H100 adds up 32 terms at most: products are cut off at a bit that the largest exponents decide."""
    a, b = a.astype(np.float64)[:, None, :], b.astype(np.float64)[None, :, :]
    products = a * b
    largest = np.where(products == 0, -99, exponents(a) + exponents(b)).max(axis=2, keepdims=True)
    last = np.exp2(largest - float(KEPT))
    result: Array = (np.trunc(products / last) * last).sum(axis=2)
    return result


def bounded(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """The error of such a product, its bound, and the bound that magnitudes alone would give."""
    problem = ScaledGemmProblem(m=len(a), n=len(b), k=a.shape[1], out="fp32", tier=Tier.BOUNDED)
    inputs = {"A": a, "B": b, "a_scale": np.ones(len(a), np.float32), "b_scale": np.ones(len(b), np.float32)}
    expected = problem.reference(inputs)
    magnitude = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)).T
    plain = bounds.scaled_fp8_products(expected["C"], magnitude, problem.k, 128, FP32)
    return np.abs(multiplied(a, b) - expected["C"]), problem.bound(inputs, expected)["C"], plain


def test_a_product_beside_one_with_a_subnormal_factor_loses_what_an_h100_cuts_off() -> None:
    a = np.array([[3 / 512, -11]]).astype(E4M3.numpy)
    b = np.array([[-1.625 / 64, 1 / 512]]).astype(E4M3.numpy)
    assert multiplied(a, b) == pytest.approx(-0.0216217, rel=1e-5)  # as measured
    error, bound, plain = bounded(a, b)
    assert plain < error < bound


@pytest.mark.parametrize("scale", [0, -4, -7])
def test_the_bound_covers_sums_of_numbers_of_any_size(scale: int) -> None:
    rng = np.random.default_rng(scale + 100)
    for terms in (1, 2, 7, 32):
        a, b = ((rng.standard_normal((40, terms)) * 2.0**scale).astype(E4M3.numpy) for _ in "ab")
        error, bound, _ = bounded(a, b)
        assert (error <= bound).all()


def test_the_bound_of_normal_numbers_is_that_of_their_magnitudes() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.choice([-3.0, -1.0, 0.0, 0.5, 2.0], (9, 20)).astype(E4M3.numpy) for _ in "ab")
    _, bound, plain = bounded(a, b)
    assert np.array_equal(bound, plain)
