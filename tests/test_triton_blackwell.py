"""Triton's own ``tcgen05``, which was tested on devices, is right and clean in the emulator."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("triton")

import blackwell
import gluon_blackwell

from workbench.triton import emulate


def whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float16, most: int = 3) -> Any:
    return rng.integers(-most, most + 1, shape).astype(dtype)


def product(a: Any, b: Any) -> Any:
    return a.astype(np.float32) @ b.astype(np.float32)


@pytest.mark.parametrize("target", ["sm_100a", "sm_103a"])
@pytest.mark.parametrize("tile", [(128, 128, 64), (64, 64, 64), (128, 64, 32)])
def test_products_by_descriptors(target: str, tile: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(0)
    m, n, k = 128, 128, 192
    a = rng.integers(-3, 4, (m, k)).astype(np.float16)
    b = rng.integers(-3, 4, (k, n)).astype(np.float16)
    c = np.zeros((m, n), np.float32)
    with emulate(target) as run:
        blackwell.product[(m // tile[0], n // tile[1])](a, b, c, m, n, k, *tile)
    assert run.ok, str(run)
    assert "tcgen05.mma" in run.launches[0].ptx
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32))


def test_attention() -> None:
    rng = np.random.default_rng(1)
    keys, depth = 256, 64
    q, k, v = (rng.standard_normal((keys, depth)).astype(np.float16) for _ in range(3))
    o = np.zeros((keys, depth), np.float32)
    with emulate("sm_100a") as run:
        blackwell.attention[(keys // 128,)](q, k, v, o, keys, 0.125, 128, 64, depth)
    assert run.ok, str(run)
    assert "tcgen05.st" in run.launches[0].ptx
    scores = q.astype(float) @ k.astype(float).T * 0.125
    weights = np.exp(scores - scores.max(1, keepdims=True))
    assert np.abs(o - weights / weights.sum(1, keepdims=True) @ v.astype(float)).max() < 1e-3


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        (np.float16, "f16"),
        (ml_dtypes.bfloat16, "f16"),
        (np.float32, "tf32"),
        (ml_dtypes.float8_e4m3fn, "f8f6f4"),
        (ml_dtypes.float8_e5m2, "f8f6f4"),
    ],
)
def test_products_of_each_type(dtype: Any, kind: str, transposed: bool) -> None:
    rng = np.random.default_rng(3)
    a, b = whole(rng, (128, 128), dtype), whole(rng, (64, 128) if transposed else (128, 64), dtype)
    c = np.zeros((128, 64), np.float32)
    with emulate("sm_100a") as run:
        blackwell.plain[(1,)](a, b, c, 128, 128, 64, 64, transposed)
    assert run.ok, str(run)
    assert f"tcgen05.mma.cta_group::1.kind::{kind} " in run.launches[0].ptx
    assert np.array_equal(c, product(a, b.T if transposed else b))


@pytest.mark.parametrize("how", ["persistent", "specialised", "cluster"])
def test_persistent_products_by_specialised_warps_too_and_products_of_a_cluster(how: str) -> None:
    rng = np.random.default_rng(4)
    a, b, c = whole(rng, (256, 192)), whole(rng, (192, 256)), np.zeros((256, 256), np.float32)
    with emulate("sm_100a") as run:
        if how == "cluster":
            blackwell.product[(1, 2)](a, b, c, 256, 256, 192, 256, 128, 64, num_ctas=2)
        else:
            blackwell.persistent[(2,)](a, b, c, 256, 256, 192, 128, 128, 64, how == "specialised")
    assert run.ok, str(run)
    assert ("setmaxnreg" in run.launches[0].ptx) is (how == "specialised")
    assert np.array_equal(c, product(a, b))


def test_a_product_that_is_the_left_operand_of_another() -> None:
    rng = np.random.default_rng(5)
    a, b, c = whole(rng, (128, 64), most=1), *(whole(rng, (64, 64), most=1) for _ in range(2))
    d = np.zeros((128, 64), np.float32)
    with emulate("sm_100a") as run:
        blackwell.chained[(1,)](a, b, c, d, 128, 64)
    assert run.ok, str(run)
    assert np.array_equal(d, product(product(a, b), c))


@pytest.mark.parametrize("kernel", gluon_blackwell.KERNELS, ids=lambda kernel: kernel.__name__)
def test_kernels_of_gluon(kernel: Any) -> None:
    rng = np.random.default_rng(7)
    a, b, out = whole(rng, (128, 64)), whole(rng, (64, 64)), np.zeros((128, 64), np.float32)
    with emulate("sm_100a") as run:
        kernel[(1,)](a, b, out, 128, 64, 64)
    assert run.ok, str(run)
    assert np.array_equal(out, gluon_blackwell.KERNELS[kernel](product(a, b)))
