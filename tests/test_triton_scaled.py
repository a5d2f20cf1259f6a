"""Products with scales of blocks, and rows by their numbers, on each target that has them."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  which gives NumPy float8
import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")

import scaled_kernels as kernels
from triton.tools.tensor_descriptor import TensorDescriptor

from workbench.triton import emulate

_OF_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_120a"])
@pytest.mark.parametrize("kind", ["e4m3", "e5m2", "e2m1"])
def test_scales_of_blocks(target: str, kind: str) -> None:
    """By tcgen05 on sm_100a and by mma on sm_120a; for sm_90a Triton scales beforehand."""
    rng = np.random.default_rng(2)
    size, groups = 128, 4

    def operand() -> tuple[np.ndarray, np.ndarray]:
        if kind == "e2m1":
            codes = rng.integers(0, 16, (size, size)).astype(np.uint8)
            return codes[:, ::2] | codes[:, 1::2] << 4, np.concatenate([_OF_E2M1, -_OF_E2M1])[codes]
        floats = rng.standard_normal((size, size)).astype(f"float8_{kind}" + "fn" * (kind == "e4m3"))
        return floats.view(np.uint8), floats.astype(np.float64)

    (a, left), (b, right) = operand(), operand()
    of_a, of_b = (rng.integers(125, 130, (size, groups)).astype(np.uint8) for _ in range(2))
    c = np.zeros((size, size), np.float32)
    with emulate(target) as run:
        kernels.scaled[(1,)](a, of_a, b, of_b, c, size, size, size, kind)
    assert run.ok, str(run)
    assert ("block_scale" in run.launches[0].ptx) is (target != "sm_90a")
    left = left * np.repeat(2.0 ** (of_a - 127.0), 32, axis=1)
    right = right * np.repeat(2.0 ** (of_b - 127.0), 32, axis=1)
    assert np.abs(c - left @ right.T).max() <= 2**-20 * (np.abs(left) @ np.abs(right.T)).max()


@pytest.mark.parametrize("target", ["sm_100a", "sm_120a"])
def test_rows_by_their_numbers(target: str) -> None:
    """``tile::gather4`` and ``tile::scatter4``, of which sm_120a has the former alone."""
    x = np.random.default_rng(3).standard_normal((64, 64)).astype(np.float16)
    rows = np.random.default_rng(4).permutation(64)[:32].astype(np.int32)
    out, back = np.zeros((32, 32), np.float16), np.zeros_like(x)
    with emulate(target) as run:
        kernels.gathered[(1,)](TensorDescriptor.from_tensor(x, [1, 32]), rows, out, 32, 32)
        if target == "sm_100a":
            kernels.scattered[(1,)](out, rows, TensorDescriptor.from_tensor(back, [1, 32]), 32, 32)
    assert run.ok and "tile::gather4" in run.launches[0].ptx, str(run)
    assert np.array_equal(out, x[rows][:, 16:48])
    if target == "sm_100a":
        assert np.array_equal(back[rows][:, 16:48], out) and np.count_nonzero(back) == np.count_nonzero(out)
