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

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
"""Numbers of four bits, by their codes."""


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


def test_a_product_by_specialised_warps() -> None:
    rng = np.random.default_rng(2)
    m, n, k = 256, 128, 192
    a, b, c = whole(rng, (m, k)), whole(rng, (k, n)), np.zeros((m, n), np.float32)
    with emulate("sm_100a") as run:
        blackwell.specialised[(1,)](a, b, c, m, n, k, 128, 128, 64, num_warps=4, num_stages=3)
    assert run.ok, str(run)
    assert "setmaxnreg" in run.launches[0].ptx
    assert np.array_equal(c, product(a, b))


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


def test_scales_of_blocks() -> None:
    rng = np.random.default_rng(2)
    size, groups = 128, 4
    a, b = (np.array(rng.integers(0, 256, (size, size)) & 0xB7, np.uint8) for _ in range(2))
    of_a, of_b = (rng.integers(125, 130, (size, groups)).astype(np.uint8) for _ in range(2))
    c = np.zeros((size, size), np.float32)
    with emulate("sm_100a") as run:
        blackwell.scaled[(1,)](a, of_a, b, of_b, c, size, size, size)
    assert run.ok, str(run)
    assert "block_scale" in run.launches[0].ptx

    def values(codes: np.ndarray) -> np.ndarray:
        exponent, fraction = codes.astype(int) >> 3 & 15, (codes.astype(int) & 7) / 8
        small = np.where(exponent == 0, fraction * 2.0**-6, (1 + fraction) * 2.0 ** (exponent - 7.0))
        return np.where(codes & 128, -small, small)

    left = values(a) * np.repeat(2.0 ** (of_a - 127.0), 32, axis=1)
    right = values(b) * np.repeat(2.0 ** (of_b - 127.0), 32, axis=1).T
    assert np.abs(c - left @ right).max() <= 2**-20 * (np.abs(left) @ np.abs(right)).max()


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


@pytest.mark.parametrize("blocks", [1, 2])
def test_persistent_products_and_products_of_a_cluster(blocks: int) -> None:
    rng = np.random.default_rng(4)
    a, b, c = whole(rng, (256, 128)), whole(rng, (128, 256)), np.zeros((256, 256), np.float32)
    with emulate("sm_100a") as run:
        if blocks == 1:
            blackwell.persistent[(2,)](a, b, c, 256, 256, 128, 128, 128, 64)
        else:
            blackwell.product[(1, 2)](a, b, c, 256, 256, 128, 256, 128, 64, num_ctas=blocks)
    assert run.ok, str(run)
    assert np.array_equal(c, product(a, b))


def test_a_product_that_is_the_left_operand_of_another() -> None:
    rng = np.random.default_rng(5)
    a, b, c = whole(rng, (128, 64), most=1), *(whole(rng, (64, 64), most=1) for _ in range(2))
    d = np.zeros((128, 64), np.float32)
    with emulate("sm_100a") as run:
        blackwell.chained[(1,)](a, b, c, d, 128, 64)
    assert run.ok, str(run)
    assert np.array_equal(d, product(product(a, b), c))


@pytest.mark.parametrize(
    ("left", "right", "group", "kind"),
    [
        ("e2m1", "e2m1", 32, "mxf4.block_scale"),
        ("e2m1", "e2m1", 16, "mxf4nvf4.block_scale"),
        ("e5m2", "e4m3", 32, "mxf8f6f4.block_scale"),
    ],
)
def test_scales_of_blocks_of_narrow_types(left: str, right: str, group: int, kind: str) -> None:
    rng = np.random.default_rng(6)

    def drawn(rows: int, name: str) -> tuple[Any, Any]:
        if name == "e2m1":
            codes = rng.integers(0, 16, (rows, 128))
            return (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8), E2M1[codes]
        values = whole(rng, (rows, 128), {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[name])
        return values.view(np.uint8), values.astype(np.float32)

    def scales(rows: int) -> tuple[Any, Any]:
        if group == 32:
            exponents = rng.integers(126, 129, (rows, 4)).astype(np.uint8)
            return exponents, np.exp2(exponents - 127.0)
        factors = rng.integers(1, 4, (rows, 8)).astype(ml_dtypes.float8_e4m3fn)
        return factors, factors.astype(float)

    (a, of_a), (b, of_b), (sa, by_a), (sb, by_b) = drawn(128, left), drawn(64, right), scales(128), scales(64)
    c = np.zeros((128, 64), np.float32)
    with emulate("sm_100a") as run:
        blackwell.scaled_of[(1,)](a, sa, b, sb, c, 128, 64, 128, left, right, group)
    assert run.ok, str(run)
    assert f"kind::{kind}" in run.launches[0].ptx
    assert np.array_equal(c, of_a * np.repeat(by_a, group, 1) @ (of_b * np.repeat(by_b, group, 1)).T)


@pytest.mark.parametrize("kernel", gluon_blackwell.KERNELS, ids=lambda kernel: kernel.__name__)
def test_kernels_of_gluon(kernel: Any) -> None:
    rng = np.random.default_rng(7)
    a, b, out = whole(rng, (128, 64)), whole(rng, (64, 64)), np.zeros((128, 64), np.float32)
    with emulate("sm_100a") as run:
        kernel[(1,)](a, b, out, 128, 64, 64)
    assert run.ok, str(run)
    assert np.array_equal(out, gluon_blackwell.KERNELS[kernel](product(a, b)))
