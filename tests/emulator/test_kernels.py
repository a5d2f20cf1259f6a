"""Whole kernels, from a naive matrix product to one with TMA, mbarriers and wgmma, against NumPy on odd shapes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import sample_kernels as kernels
from emulation import Array, compile_cuda
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.emulator import Memory, Statistics, TensorMap, execute

STAGES = ("naive", "tiled", "mma", "wgmma")


def multiply(stage: str, a: Array, b: Array, seed: int = 0, *defines: str, **options: Any) -> tuple[Array, Statistics]:
    """C = A B by one of the kernels. ``a`` is M x K, ``b`` K x N, both small integers that every dtype holds."""
    (m, k), n = a.shape, b.shape[1]
    memory = Memory()
    out = memory.allocate(4 * m * n, "C", shape=(m, n))
    shared = 0
    source = {"naive": kernels.NAIVE, "tiled": kernels.TILED, "mma": kernels.MMA, "wgmma": kernels.WGMMA}[stage]
    if stage in ("naive", "tiled"):
        left, right = memory.upload(a.astype(np.float32), "A"), memory.upload(b.astype(np.float32), "B")
        grid, block = (-(-n // 16), -(-m // 16)), (16, 16)
    else:
        bf16 = ml_dtypes.bfloat16
        left, right = memory.upload(a.astype(bf16), "A"), memory.upload(np.ascontiguousarray(b.T).astype(bf16), "Bt")
        grid, block = (-(-n // 32), -(-m // (32 if stage == "mma" else 64))), (128 if stage == "mma" else 160, 1)
    arguments: list[Any] = [left, right, out, m, n, k]
    if stage == "wgmma":
        shared = 3 * (64 + 32) * 64 * 2
        arguments[0] = TensorMap(left, 2, (k, m), (2 * k,), (64, 64), swizzle=128)
        arguments[1] = TensorMap(right, 2, (k, n), (2 * k,), (64, 32), swizzle=128)
    entry = compile_cuda(source, *defines).entries["gemm"]
    statistics = execute(entry, grid, block, arguments, memory=memory, shared_bytes=shared, seed=seed, **options)
    assert memory.initialised(out).all(), "an element was never written"
    return memory.read(out, np.float32, (m, n)), statistics


def operands(m: int, n: int, k: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(m * 10007 + n * 101 + k)
    return rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (k, n))


@pytest.mark.parametrize("stage", STAGES)
@given(m=st.integers(1, 80), n=st.integers(1, 70), k=st.integers(1, 20), seed=st.integers(0, 2**32))
@settings(max_examples=12, deadline=None)
def test_products_of_any_shape_are_exact(stage: str, m: int, n: int, k: int, seed: int) -> None:
    k *= 8 if stage in ("mma", "wgmma") else 3
    a, b = operands(m, n, k)
    assert np.array_equal(multiply(stage, a, b, seed)[0], a @ b)


@pytest.mark.parametrize("stage", STAGES)
def test_a_run_repeats_with_its_seed_and_on_several_threads(stage: str) -> None:
    a, b = operands(70, 66, 200)
    results = [multiply(stage, a, b, seed=3, threads=threads) for threads in (1, 1, 2)]
    assert all(np.array_equal(result, a @ b) for result, _ in results)
    assert results[0][1].warp_instructions == results[1][1].warp_instructions
    assert results[0][1].switches == results[1][1].switches


def test_rounding_follows_fp32_accumulation() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((64, 256)), rng.standard_normal((256, 32))
    a, b = (x.astype(ml_dtypes.bfloat16).astype(np.float64) for x in (a, b))
    bound = 2**-24 * np.sqrt(256) * (np.abs(a) @ np.abs(b)) * 4
    for stage in STAGES:
        assert np.all(np.abs(multiply(stage, a, b)[0] - a @ b) <= bound), stage
