"""`workbench.ops`: the fastest stage that can, and one clear sentence for arguments that cannot."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from workbench import ops, reference
from workbench.kernels.gemm import GemmProblem
from workbench.kernels.vector_add import VectorAddProblem

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def test_the_fastest_stage_that_supports_the_problem_is_chosen():
    aligned = GemmProblem(m=64, n=64, k=64, dtype="bf16")
    odd = GemmProblem(m=64, n=64, k=63, dtype="bf16")
    single = GemmProblem(m=64, n=64, k=64, dtype="fp32", out="fp32")
    assert ops.choose("gemm", aligned, 90).name == "fitted_tiles"
    assert ops.choose("gemm", odd, 90).name == "tensor_core"
    assert ops.choose("gemm", aligned, 80).name == "tensor_core"
    assert ops.choose("gemm", single, 90).name == "warp_tiles"
    assert ops.choose("vector_add", VectorAddProblem(n=5), 90).name == "vectorized"


def test_arrays_of_another_library_are_refused():
    with pytest.raises(TypeError, match=r"gemm: a is a numpy.ndarray; it has to be a cupy.ndarray"):
        ops.gemm(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))


@pytest.fixture
def cupy():
    import cupy

    return cupy


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def upload(cupy, values):
    """To the GPU by way of bytes: CuPy need not know the dtype's arithmetic."""
    raw = cupy.asarray(np.ascontiguousarray(values).view(np.uint8))
    return raw.view(values.dtype)


def download(array):
    return array.view(np.uint8).get().view(array.dtype)


def _fp8(cupy, **other):
    arrays = {"a": cupy.ones((2, 3), "u1"), "b": cupy.ones((4, 3), "u1")}
    scales = {"a_scale": cupy.ones(2, "f4"), "b_scale": cupy.ones(4, "f4")}
    return ops.gemm_fp8(**{**arrays, **scales, **other})


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [BFLOAT16, np.dtype(np.float16), np.dtype(np.float32)])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 96, 128), (33, 17, 65), (1, 1, 1), (1, 300, 7)])
@pytest.mark.parametrize("trans_b", [False, True])
def test_gemm_is_the_matrix_product(cupy, rng, dtype, m, n, k, trans_b):
    a = rng.integers(-2, 3, (m, k)).astype(dtype)
    b = rng.integers(-2, 3, (n, k) if trans_b else (k, n)).astype(dtype)
    c = ops.gemm(upload(cupy, a), upload(cupy, b), trans_b=trans_b, out_dtype=np.float32)
    assert c.dtype == np.float32
    assert np.array_equal(download(c), reference.gemm(a, b, trans_b=trans_b))


@pytest.mark.gpu
def test_gemm_takes_a_window_of_a_larger_matrix_and_transposed_views(cupy, rng):
    a, b = rng.integers(-2, 3, (40, 50)).astype(np.float16), rng.integers(-2, 3, (30, 60)).astype(np.float16)
    window_a, window_b = cupy.asarray(a)[3:33, 5:25], cupy.asarray(b)[:20, 8:24]
    expected = reference.gemm(a[3:33, 5:25], b[:20, 8:24])
    assert np.array_equal(ops.gemm(window_a, window_b).get(), expected)
    assert np.array_equal(ops.gemm(window_a, window_b.T, trans_b=True).get(), expected)


@pytest.mark.gpu
def test_gemm_is_right_again_when_another_array_lies_at_the_same_address(cupy, rng):
    for _ in range(3):
        a, b = (rng.integers(-2, 3, (128, 128)).astype(np.float16) for _ in "ab")
        assert np.array_equal(ops.gemm(cupy.asarray(a), cupy.asarray(b)).get(), reference.gemm(a, b))


@pytest.mark.gpu
def test_matvec_and_vector_add_are_what_they_say(cupy, rng):
    a, b = rng.integers(-2, 3, 1000).astype(np.float32), rng.integers(-2, 3, (77, 1000)).astype(np.float32)
    assert np.array_equal(ops.matvec(cupy.asarray(a), cupy.asarray(b)).get(), reference.matvec(a, b))
    assert np.array_equal(ops.vector_add(cupy.asarray(a), cupy.asarray(a)).get(), 2 * a)


@pytest.mark.gpu
@pytest.mark.parametrize(("m", "n", "k"), [(130, 264, 272), (5, 7, 33)])
def test_gemm_fp8_is_the_scaled_product_of_what_the_bytes_stand_for(cupy, rng, m, n, k):
    a, b = (rng.integers(-2, 3, shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((m, k), (n, k)))
    a_scale, b_scale = (np.exp2(rng.integers(-1, 2, rows)).astype(np.float32) for rows in (m, n))
    given = [cupy.asarray(x) for x in (a.view(np.uint8), b.view(np.uint8), a_scale, b_scale)]
    c = ops.gemm_fp8(*given, out_dtype=np.float32)
    assert np.array_equal(c.get(), reference.scaled_gemm(a, b, a_scale, b_scale))
    assert ops.gemm_fp8(*given).dtype == BFLOAT16


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda c: ops.gemm(c.ones((2, 3), "f4"), c.ones((2, 3), "f4")), ValueError, r"it has to be \(3, n\)"),
        (lambda c: ops.gemm(c.ones((2, 3), "f4"), c.ones((3, 2), "f2")), TypeError, "have to have the same"),
        (lambda c: ops.gemm(c.ones((2, 3), "f8"), c.ones((3, 2), "f8")), TypeError, "dtype float64"),
        (lambda c: ops.gemm(c.ones((2, 3), "f4").T, c.ones((2, 3), "f4")), ValueError, "ascontiguousarray"),
        (lambda c: ops.gemm(c.ones(3, "f4"), c.ones((3, 2), "f4")), ValueError, "two dimensions"),
        (lambda c: ops.gemm(c.ones((0, 3), "f4"), c.ones((3, 2), "f4")), ValueError, "at least one element"),
        (lambda c: ops.gemm(c.ones((2, 3), "f2"), c.ones((3, 2), "f2"), out_dtype="f8"), TypeError, "out_dtype"),
        (lambda c: _fp8(c, a=c.ones((2, 3), "f2")), TypeError, "a has dtype float16; it has to be uint8"),
        (lambda c: _fp8(c, b=c.ones((4, 5), "u1")), ValueError, r"\(m, k\) and \(n, k\)"),
        (lambda c: _fp8(c, b_scale=c.ones(2, "f4")), ValueError, r"has to be \(4,\), a scale a row"),
        (lambda c: _fp8(c, a_scale=c.ones(2, "f8")), TypeError, "a_scale has dtype float64; it has to be float32"),
        (lambda c: _fp8(c, out_dtype="f2"), TypeError, "bfloat16 or float32"),
        (lambda c: ops.matvec(c.ones(4, "f4"), c.ones((2, 3), "f4")), ValueError, r"\(k,\) and \(n, k\)"),
        (lambda c: ops.vector_add(c.ones(8, "f4")[::2], c.ones(4, "f4")), ValueError, "not contiguous"),
    ],
)
def test_wrong_arguments_are_answered_with_what_is_right(cupy, call, error, says):
    with pytest.raises(error, match=says):
        call(cupy)


def test_arrays_that_start_anywhere_get_a_stage_that_takes_them():
    aligned = GemmProblem(m=64, n=64, k=64, dtype="bf16")
    assert ops.choose("gemm", aligned, 90, alignment=16).name == "fitted_tiles"
    assert ops.choose("gemm", aligned, 90, alignment=2).name == "warp_parallel"
