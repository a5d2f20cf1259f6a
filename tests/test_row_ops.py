"""`workbench.ops` on rows: what it makes of arrays is solved in the emulator, and on a GPU where there is one."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from workbench import ops, reference

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def close(found: Any, expected: np.ndarray, tolerance: float = 1e-5) -> bool:
    return found.shape == expected.shape and np.allclose(found.astype(np.float64), expected, tolerance, tolerance)


def test_softmax_and_its_gradient_of_any_leading_dimensions(place, rng):
    x, dy = (rng.standard_normal((2, 3, 70)).astype(np.float32) for _ in "xd")
    y = place.download(ops.softmax(place.upload(x)))
    right = reference.softmax(x.reshape(6, 70))
    assert close(y, right.reshape(2, 3, 70))
    dx = place.download(ops.softmax_backward(place.upload(y), place.upload(dy)))
    assert close(dx, reference.softmax_backward(y.reshape(6, 70), dy.reshape(6, 70)).reshape(2, 3, 70))
    assert ops.softmax(place.upload(x.astype(BFLOAT16)), out_dtype=np.float32).dtype == np.float32


def test_norms_and_their_gradients(place, rng):
    x, dy, residual = (rng.standard_normal((5, 96)).astype(np.float32) for _ in "xdr")
    w, b = (rng.standard_normal(96).astype(np.float32) for _ in "wb")
    given = {name: place.upload(v) for name, v in {"x": x, "dy": dy, "residual": residual, "w": w, "b": b}.items()}
    down = place.download
    assert close(down(ops.rms_norm(given["x"], given["w"], eps=0.1)), reference.rms_norm(x, w, 0.1))
    assert close(down(ops.layer_norm(given["x"], given["w"], given["b"])), reference.layer_norm(x, w, b, 1e-5))
    y, s = ops.residual_rms_norm(given["x"], given["residual"], given["w"])
    assert np.array_equal(down(s), x + residual)
    assert close(down(y), reference.rms_norm(x + residual, w, 1e-6))
    found = ops.rms_norm_backward(given["x"], given["w"], given["dy"])
    assert all(close(down(f), r, 1e-4) for f, r in zip(found, reference.rms_norm_backward(x, w, dy, 1e-6), strict=True))
    found = ops.layer_norm_backward(given["x"], given["w"], given["dy"])
    right = reference.layer_norm_backward(x, w, dy, 1e-5)
    assert all(close(down(f), r, 1e-4) for f, r in zip(found, right, strict=True))


def test_cross_entropy_gives_loss_and_log_sum_exp(place, rng):
    x, labels = rng.standard_normal((7, 300)).astype(np.float32), np.array([0, 299, -1, 7, 7, -100, 30], np.int32)
    loss, lse = ops.cross_entropy(place.upload(x), place.upload(labels))
    assert close(place.download(loss), reference.cross_entropy(x, labels))
    assert close(place.download(lse), reference.log_sum_exp(x))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_rotary_of_both_layouts_and_kinds_of_pairs(place, rng, interleaved, layout):
    x = rng.integers(-2, 3, (2, 3, 5, 16)).astype(BFLOAT16)
    seq = 5 if layout == "bhsd" else 3
    cos, sin = (rng.integers(-2, 3, (seq, 8)).astype(BFLOAT16) for _ in "cs")
    given = (place.upload(v) for v in (x, cos, sin))
    y = place.download(ops.rotary(*given, interleaved=interleaved, layout=layout)).astype(np.float64)
    if layout == "bhsd":
        assert np.array_equal(y, reference.rotary(x, cos, sin, interleaved=interleaved))
    else:
        right = reference.rotary(x.swapaxes(1, 2), cos, sin, interleaved=interleaved)
        assert np.array_equal(y, right.swapaxes(1, 2))


def test_rotary_takes_the_queries_of_packed_queries_keys_and_values(place, rng):
    packed = rng.integers(-2, 3, (2, 5, 3, 4, 16)).astype(np.float16)  # batch, position, which, head, dim
    cos, sin = (rng.integers(-2, 3, (5, 8)).astype(np.float16) for _ in "cs")
    queries = place.upload(packed)[:, :, 1]
    y = place.download(ops.rotary(queries, place.upload(cos), place.upload(sin), layout="bshd"))
    right = reference.rotary(packed[:, :, 1].swapaxes(1, 2), cos, sin)
    assert np.array_equal(y, right.swapaxes(1, 2))


@pytest.mark.long
def test_transpose_reduce_and_scan_of_rows_that_are_apart(place, rng):
    whole = rng.integers(-2, 3, (30, 50)).astype(np.float16)
    x = whole[:, 8:40]
    window = place.upload(whole)[:, 8:40]
    assert np.array_equal(place.download(ops.transpose(window)), x.T)
    assert np.array_equal(place.download(ops.scan(window)), reference.scan(x))
    for op in ("sum", "max"):
        for over in ("columns", "rows", "all"):
            found = place.download(ops.reduce(window, op=op, over=over, out_dtype=np.float32))
            assert np.array_equal(found, reference.reduce(x, op=op, over=over)), (op, over)
