"""What the bounds of products allow for: tensor cores align products by the exponents of their factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from workbench.judge import bounds
from workbench.kernels.gemm.problem import GemmProblem
from workbench.kernels.gemm_fp8 import ScaledGemmProblem
from workbench.model.dtypes import E4M3, FP16, FP32, DType
from workbench.model.problem import Tier

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TensorCores:
    """How a Hopper GPU multiplies numbers of a type: of every product it keeps so many bits behind the largest
    exponent, and a subnormal factor has that of the smallest normal number."""

    dtype: DType
    kept: int

    @property
    def least_exponent(self) -> int:
        return int(np.log2(self.dtype.smallest_normal))

    def exponents(self, x: Array) -> Array:
        return np.maximum(np.frexp(x)[1] - 1, self.least_exponent)

    def multiplied(self, a: Array, b: Array) -> Array:
        """a b^T of 16 terms (fp16) or 32 (e4m3) at most: products are cut off at a bit that the exponents decide."""
        a, b = a.astype(np.float64)[:, None, :], b.astype(np.float64)[None, :, :]
        products = a * b
        largest = np.where(products == 0, -99, self.exponents(a) + self.exponents(b)).max(axis=2, keepdims=True)
        last = np.exp2(largest - float(self.kept))
        return (np.trunc(products / last) * last).sum(axis=2)

    def bounded(self, a: Array, b: Array) -> tuple[Array, Array, Array]:
        """The error of such a product, its bound, and the bound that magnitudes alone would give."""
        magnitude = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)).T
        size = {"m": len(a), "n": len(b), "k": a.shape[1], "out": "fp32", "tier": Tier.BOUNDED}
        inputs = {"A": a, "B": b}
        if self.dtype is E4M3:
            problem: Any = ScaledGemmProblem(**size)
            inputs |= {"a_scale": np.ones(len(a), np.float32), "b_scale": np.ones(len(b), np.float32)}
            expected = problem.reference(inputs)
            squares = np.square(a.astype(np.float64)) @ np.square(b.astype(np.float64)).T
            plain = bounds.scaled_fp8_products(expected["C"], magnitude, np.sqrt(squares), problem.k, 128, FP32)
        else:
            problem = GemmProblem(**size, dtype=self.dtype.name, layout="nt")
            expected = problem.reference(inputs)
            plain = bounds.dot_products(expected["C"], magnitude, problem.k, FP32)
        return np.abs(self.multiplied(a, b) - expected["C"]), problem.bound(inputs, expected)["C"], plain


HOPPER = (TensorCores(E4M3, 13), TensorCores(FP16, 25))
"""As measured on an H100 and on an H200."""

PRODUCT = 2**-13 + 2**-24 - 2**-34
MEASURED = [
    (HOPPER[0], [3 / 512, -11], [-1.625 / 64, 1 / 512], -0.0216217),
    (HOPPER[1], [1 + 2**-10, 2**-24, -(2**-24)], [2**-13 - 2**-24, 2.0**11, 2.0**11], PRODUCT - 3.6670826e-9),
]
"""Rows of a and b, and what a GPU made of them."""


@pytest.mark.parametrize(("cores", "a", "b", "result"), MEASURED)
def test_a_product_beside_one_with_a_subnormal_factor_loses_what_a_gpu_cuts_off(
    cores: TensorCores, a: list[float], b: list[float], result: float
) -> None:
    rows = [np.array([row]).astype(cores.dtype.numpy) for row in (a, b)]
    exact = float((rows[0].astype(float) * rows[1].astype(float)).sum())
    assert cores.multiplied(*rows).item() - exact == pytest.approx(result - exact, rel=1e-3)
    error, bound, plain = cores.bounded(*rows)
    assert error < bound
    assert plain < bound


@pytest.mark.parametrize("cores", HOPPER)
@pytest.mark.parametrize("below", [0, 2, 5, 9])
def test_the_bound_covers_sums_of_numbers_of_any_size(cores: TensorCores, below: int) -> None:
    rng = np.random.default_rng(below + 100)
    scale = cores.dtype.smallest_normal * 2.0 ** (6 - below)
    for terms in (1, 2, 7, 16):
        a, b = ((rng.standard_normal((40, terms)) * scale).astype(cores.dtype.numpy) for _ in "ab")
        b = (b.astype(np.float32) / np.float32(scale if below % 2 else 1)).astype(cores.dtype.numpy)
        error, bound, _ = cores.bounded(a, b)
        assert (error <= bound).all()


def test_the_bound_of_magnitudes_alone_is_too_small_for_fp16_beside_subnormal_numbers() -> None:
    rng = np.random.default_rng(3)
    cores = HOPPER[1]
    a = (rng.standard_normal((60, 3)) * 2.0**-22).astype(np.float16)
    b = rng.standard_normal((60, 3)).astype(np.float16)
    error, bound, plain = cores.bounded(a, b)
    assert (error <= bound).all()
    assert (error > plain).any()


def test_the_bound_covers_one_large_product_among_many_small_ones() -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal((200, 32)) for _ in "ab")
    a[:, 0], b[:, 0] = 256, rng.choice([-8.0, 8.0], 200)
    cores = HOPPER[0]
    a, b = (x.astype(E4M3.numpy) for x in (a, b))
    error, bound, _ = cores.bounded(a, b)
    assert (error <= bound).all()
    magnitude = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)).T
    assert (error > bounds.ACCUMULATION * bounds.FP8_SUM * magnitude).any()  # as if each instruction rounded once


@pytest.mark.parametrize("cores", HOPPER)
def test_the_bound_of_normal_numbers_is_that_of_their_magnitudes(cores: TensorCores) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.choice([-3.0, -1.0, 0.0, 0.5, 2.0], (9, 20)).astype(cores.dtype.numpy) for _ in "ab")
    _, bound, plain = cores.bounded(a, b)
    assert np.array_equal(bound, plain)
