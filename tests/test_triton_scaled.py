"""Products with scales of blocks, and rows by their numbers, on each target that has them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")

import blackwell
import scaled_kernels as kernels
from triton.tools.tensor_descriptor import TensorDescriptor

from workbench.triton import emulate

_OF_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_120a"])
@pytest.mark.parametrize(
    ("left", "right", "group", "kind"),
    [
        ("e4m3", "e4m3", 32, "mxf8f6f4"),
        ("e5m2", "e5m2", 32, "mxf8f6f4"),
        ("e5m2", "e4m3", 32, "mxf8f6f4"),
        ("e2m1", "e2m1", 32, "mxf4"),
        ("e2m1", "e2m1", 16, "mxf4nvf4"),
    ],
)
def test_scales_of_blocks(target: str, left: str, right: str, group: int, kind: str) -> None:
    """By tcgen05 on sm_100a and by mma on sm_120a; for sm_90a Triton scales beforehand, groups of 32 alone."""
    if (target, group) == ("sm_90a", 16):
        return
    rng = np.random.default_rng(2)

    def operand(rows: int, name: str) -> tuple[np.ndarray, np.ndarray]:
        if name == "e2m1":
            codes = rng.integers(0, 16, (rows, 128)).astype(np.uint8)
            return codes[:, ::2] | codes[:, 1::2] << 4, np.concatenate([_OF_E2M1, -_OF_E2M1])[codes]
        floats = rng.standard_normal((rows, 128)).astype(f"float8_{name}" + "fn" * (name == "e4m3"))
        return floats.view(np.uint8), floats.astype(np.float64)

    def scales(rows: int) -> tuple[np.ndarray, np.ndarray]:
        if group == 32:
            exponents = rng.integers(125, 130, (rows, 4)).astype(np.uint8)
            return exponents, np.exp2(exponents - 127.0)
        factors = rng.integers(1, 4, (rows, 8)).astype(ml_dtypes.float8_e4m3fn)
        return factors, factors.astype(np.float64)

    (a, of_a), (b, of_b), (sa, by_a), (sb, by_b) = operand(128, left), operand(64, right), scales(128), scales(64)
    c = np.zeros((128, 64), np.float32)
    with emulate(target) as run:
        blackwell.scaled_of[(1,)](a, sa, b, sb, c, 128, 64, 128, left, right, group)
    assert run.ok, str(run)
    ptx = run.launches[0].ptx
    assert ("block_scale" in ptx) is (target != "sm_90a")
    assert target != "sm_100a" or f"kind::{kind}.block_scale" in ptx
    of_a, of_b = of_a * np.repeat(by_a, group, 1), of_b * np.repeat(by_b, group, 1)
    assert np.abs(c - of_a @ of_b.T).max() <= 2**-20 * (np.abs(of_a) @ np.abs(of_b.T)).max()


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
