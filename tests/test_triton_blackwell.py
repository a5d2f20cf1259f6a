"""Triton's own ``tcgen05``, which was tested on devices, is right and clean in the emulator."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton")
sys.path.insert(0, str(Path(__file__).parent / "triton_kernels"))

import blackwell

from workbench.triton import emulate


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
